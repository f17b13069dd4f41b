"""Copies of some columns of data files, mapped from local disk: single rows of them can be read at once.

In a Parquet file a row cannot be read without decompressing thousands of others. Deletion vectors do not count in a
copy. Texts are encoded as dictionaries.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.delta._local_tables import LocalTables
from headgate.delta._log import DataFile
from headgate.delta._parquet import as_rows

__all__ = ["ColumnCopies"]


class ColumnCopies:
    """Copies on this machine, about ``most`` bytes at most."""

    def __init__(self, folder: Path, most: int) -> None:
        self.files: LocalTables[pa.Table] = LocalTables(folder, ".columns", most, lambda table: table)
        self._marks: dict[tuple[str, str], str] = {}

    def rows(self, table: str, file: DataFile, numbers: Any, schema: pa.Schema) -> pa.Table:
        """Return rows of a data file, deleted ones included, in these columns; those that the file lacks are null.

        :param table: the table's path.
        :param numbers: int64[n].
        :raises OSError: the file cannot be read.
        """

        def copy() -> pa.Table:
            with file.open(table) as opened:
                rows = as_rows(opened.read(schema.names), schema)
            columns = [one.dictionary_encode() if pa.types.is_string(one.type) else one for one in rows.columns]
            return pa.table(columns, names=schema.names).unify_dictionaries().combine_chunks()

        mark = hashlib.sha256("\0".join([table, file.path, str(schema)]).encode()).hexdigest()[:40]
        self._marks[table, file.path] = mark
        columns = [
            column.cast(one.type) if pa.types.is_dictionary(column.type) else column
            for one, column in zip(schema, self.files.get(mark, copy).take(pa.array(numbers)).columns, strict=True)
        ]
        return pa.table(columns, schema=schema)

    def forget(self, table: str, path: str) -> None:
        """Remove the copy of a data file that is no longer part of its table."""
        mark = self._marks.pop((table, path), None)
        if mark is not None:
            self.files.forget(mark)

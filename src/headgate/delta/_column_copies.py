"""Copies of some columns of data files, mapped from local disk: single rows of them can be read at once.

In a Parquet file a row cannot be read without decompressing thousands of others. A data file never changes, so neither
does a copy; deletion vectors do not count in it. A copy is a cache: if it is lost, it is made again.

A file is an Arrow IPC file with one record batch, uncompressed; texts are encoded as dictionaries. After a failure of
the machine a renamed file may contain pages that were never written, so files of an earlier boot are not used: the
boot is part of their names.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from headgate.delta._local_files import LocalFiles, boot_number
from headgate.delta._log import DataFile
from headgate.delta._parquet import as_rows

__all__ = ["ColumnCopies"]

_ON_DISK_ROWS: Final = 1 << 16
"""Copies of smaller data files are only kept in memory."""


class ColumnCopies:
    """Copies on this machine, about ``most`` bytes at most."""

    def __init__(self, folder: Path, most: int) -> None:
        self.files = LocalFiles(folder, ".columns", most)
        self._open: dict[str, pa.Table] = {}
        self._marks: dict[tuple[str, str], str] = {}
        self._lock = Lock()
        self._boot = str(boot_number() or uuid.uuid4())

    def rows(self, table: str, file: DataFile, numbers: Any, schema: pa.Schema) -> pa.Table:
        """Return rows of a data file, deleted ones included, in these columns; those that the file lacks are null.

        :param table: the table's path.
        :param numbers: int64[n].
        :raises OSError: the file cannot be read.
        """
        rows = self._get(table, file, schema).take(pa.array(numbers))
        columns = [
            column.cast(one.type) if pa.types.is_dictionary(column.type) else column
            for one, column in zip(schema, rows.columns, strict=True)
        ]
        return pa.table(columns, schema=schema)

    def forget(self, table: str, path: str) -> None:
        """Remove the copy of a data file that is no longer part of its table."""
        mark = self._marks.pop((table, path), None)
        if mark is not None:
            with self._lock:
                self._open.pop(mark, None)
            self.files.path(mark).unlink(missing_ok=True)

    def _get(self, table: str, file: DataFile, schema: pa.Schema) -> pa.Table:
        mark = hashlib.sha256("\0".join([table, file.path, str(schema), self._boot]).encode()).hexdigest()[:40]
        self._marks[table, file.path] = mark
        with self._lock:
            known = self._open.get(mark)
        if known is not None:
            return known
        copy = self._map(mark)
        if copy is None:
            copy = self._make(mark, table, file, schema)
        with self._lock:
            self._open[mark] = copy
        return copy

    def _map(self, mark: str) -> pa.Table | None:
        path = self.files.path(mark)
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as opened:
                copy = opened.read_all()
        except (OSError, pa.ArrowInvalid):  # there is none
            return None
        self.files.touch(path)
        return copy

    def _make(self, mark: str, table: str, file: DataFile, schema: pa.Schema) -> pa.Table:
        with file.open(table) as opened:
            rows = as_rows(opened.read([name for name in schema.names if name in opened.columns]), schema)
        columns = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in rows.columns]
        copy = pa.table(columns, names=schema.names).unify_dictionaries().combine_chunks()
        if copy.num_rows < _ON_DISK_ROWS:
            return copy
        path = self.files.path(mark)
        with contextlib.suppress(OSError):  # disk full or not writable: keep it in memory
            with self.files.create(path) as out, pa.ipc.new_file(out, copy.schema) as writer:
                writer.write_table(copy)
            for other in self.files.trim(path):
                with self._lock:
                    self._open.pop(other, None)
            mapped = self._map(mark)
            if mapped is not None:
                return mapped
        return copy

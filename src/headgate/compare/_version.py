"""One version of a Delta table without Spark: its files, and which of their rows it has.

A version never changes, so its parts are the same whenever it is opened. Tables that require reader features beyond
:data:`READER_FEATURES` are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from headgate.delta import MAPPING_FEATURE, VARIANT, DataFile, Snapshot, is_mapped_otherwise, live_rows, snapshot_at
from headgate.errors import TargetError
from headgate.lake import Form

if TYPE_CHECKING:
    from deltalake.schema import DataType

__all__ = ["RowGroup", "TableVersion", "open_version"]

READER_FEATURES: Final = frozenset({"deletionVectors", "timestampNtz", "variantType", MAPPING_FEATURE})
"""Supported reader features."""


class RowGroup(NamedTuple):
    """A row group of a file."""

    file: DataFile
    group: int
    rows: int
    """Number of its rows, including those that a deletion vector deletes."""


@dataclass(frozen=True)
class TableVersion:
    """A version of a table."""

    path: str
    table: Snapshot
    columns: Mapping[str, DataType]
    schema: pa.Schema
    """The same, in Arrow."""
    parts: Sequence[RowGroup]
    """Row groups, by the names of their files."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.table.properties

    @property
    def rows(self) -> int:
        """Number of rows, including those that are marked as deleted at the source."""
        return sum(part.rows for part in self.parts) - sum(file.deleted for file in self.table.files.values())

    def batches(self, parts: Sequence[RowGroup], names: Sequence[str], *, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts, ``rows`` at a time, with those of the columns that their file has. Rows that are
        marked as deleted at the source are left out. Memory holds the part that is being read, as it is in the file,
        and one batch.

        :param parts: those of one file one after another.
        :raises FileNotFoundError: a file is gone.
        """
        form = Form.of(self.properties)
        for _, chosen in groupby(parts, key=lambda part: part.file.path):
            of_file = list(chosen)
            groups = {part.group for part in of_file}
            needed = (*names, *form.needed)
            for batch in live_rows(self.path, of_file[0].file, needed, rows, groups, threads=False):
                yield form.of_source(batch).select([name for name in names if name in batch.schema.names])


def open_version(path: str, version: int) -> TableVersion:
    """Open a version of the table at a path or a URI.

    :raises TargetError: it cannot be read, or requires unsupported features.
    :raises FileNotFoundError: one of its files is gone.
    """
    from deltalake import Schema
    from deltalake.schema import VariantType

    try:
        table = snapshot_at(path, version)
    except (OSError, pa.ArrowException) as error:
        raise TargetError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    needed = table.reader_features
    if needed is None or not needed <= READER_FEATURES:
        unknown = {"a later protocol version"} if needed is None else needed - READER_FEATURES
        raise TargetError(f"{path} needs reader features that headgate does not support: {', '.join(sorted(unknown))}")
    if is_mapped_otherwise(table.properties):
        raise TargetError(f"{path} has column mapping by id")
    if table.metadata.get("partitionColumns") or not all(file.is_inside for file in table.files.values()):
        raise TargetError(f"{path} has partitions, or files outside its folder, as no table of a pipeline has")
    described = Schema.from_json(table.schema_json)
    parts = []
    for _, file in sorted(table.files.items()):
        with file.open(path) as opened:
            parts += [RowGroup(file, number, rows) for number, rows in enumerate(opened.group_rows)]
    columns = {field.name: field.type for field in described.fields}
    in_arrow = [
        field.with_type(VARIANT) if isinstance(columns[field.name], VariantType) else field
        for field in pa.schema(described.to_arrow())
    ]
    return TableVersion(path, table, columns, pa.schema(in_arrow), parts)

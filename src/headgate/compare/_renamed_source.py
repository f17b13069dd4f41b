"""The source's tables, and as a current table shows them that ignores changes of its columns: for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from headgate.carrier import ABSENT
from headgate.lake import IgnoredChanges, absent_columns

__all__ = ["Key", "SourceTables", "viewed"]

Key: TypeAlias = tuple[Any, ...]
"""The values of a row's key columns, in the source's form."""


class SourceTables(Protocol):
    """The source's tables as of GTID sets; ``headgate.spark.TablesAsOf``.

    Rows have the table's own columns, and ``_absent``: a JSON list of the row's unknown columns.
    """

    def parts(self, table: str, gtid: str) -> tuple[pa.Schema, list[Callable[[], Iterator[pa.RecordBatch]]]]:
        """Return a whole table: its columns, and functions that each read a part of its rows, on every call."""

    def keys(self, table: str, keys: pa.Table) -> list[Key]:
        """Return keys from rows, in the form that the other methods use."""

    def key_table(self, table: str, keys: list[Key]) -> pa.Table:
        """Return keys as columns."""

    def rows(self, table: str, gtid: str, keys: list[Key]) -> pa.Table:
        """Return the rows with these keys, perhaps others too."""

    def moves(self, table: str, start: str, end: str) -> Iterable[tuple[Key, Key]]:
        """Return the changes of keys between two sets, in order."""


def viewed(source: SourceTables, ignored: IgnoredChanges) -> SourceTables:
    """Return the source's tables with the columns that a table has from them, under the table's names.

    :param ignored: the changes that the table ignores.
    """
    return _Viewed(source, ignored) if ignored.names else source


class _Viewed:
    """Implements :class:`SourceTables`."""

    def __init__(self, source: SourceTables, ignored: IgnoredChanges) -> None:
        self._source, self._names, self._source_names = source, ignored.names, ignored.source_names

    def parts(self, table: str, gtid: str) -> tuple[pa.Schema, list[Callable[[], Iterator[pa.RecordBatch]]]]:
        schema, reads = self._source.parts(table, gtid)
        return self._schema(schema), [partial(self._batches, read) for read in reads]

    def keys(self, table: str, keys: pa.Table) -> list[Key]:
        return self._source.keys(table, _renamed(keys, self._source_names))

    def key_table(self, table: str, keys: list[Key]) -> pa.Table:
        return _renamed(self._source.key_table(table, keys), self._names)

    def rows(self, table: str, gtid: str, keys: list[Key]) -> pa.Table:
        rows = self._source.rows(table, gtid, keys)
        return pa.Table.from_batches(self._batches(rows.to_batches), self._schema(rows.schema))

    def moves(self, table: str, start: str, end: str) -> Iterable[tuple[Key, Key]]:
        return self._source.moves(table, start, end)

    def _shown(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the source's columns that the table shows, each with the table's name."""
        columns = ((name, self._names.get(name, name)) for name in names)
        return [(name, column) for name, column in columns if column is not None]

    def _schema(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([schema.field(name).with_name(column) for name, column in self._shown(schema.names)])

    def _batches(self, read: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for batch in read():
            schema = self._schema(batch.schema)
            columns = [batch[name] for name, _ in self._shown(batch.schema.names)]
            if ABSENT in schema.names:
                at = schema.names.index(ABSENT)
                columns[at] = absent_columns(columns[at], self._names)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _renamed(keys: pa.Table, names: Mapping[str, str | None]) -> pa.Table:
    return keys.rename_columns([names.get(name) or name for name in keys.column_names])

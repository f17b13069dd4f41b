"""The two sides of a table as Arrow: which columns there are, what a row's digests are, and rows that are held."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.lake._digests import Digests, RowDigests, UnknownTypeError, draw_key, form_of
from headgate.lake._pairs import Places, contents, take
from headgate.lake._verify import ABSENT, NeedsSparkError, own_columns
from headgate.lake._version import TableVersion

__all__ = ["SideRows", "Sides", "one_batch", "partly_known"]


class Sides:
    """A table's columns, and the digests of its rows under a key that is drawn for it.

    :param source: the source's columns, and perhaps ``_absent``.
    :raises NeedsSparkError: they cannot be compared here.
    """

    def __init__(self, source: pa.Schema, version: TableVersion) -> None:
        self.key: list[str] = json.loads(version.properties.get("headgate.key") or "[]")
        """The key's columns; ``[]``: there is no key."""
        own = own_columns(self.key)
        ours = {field.name: field.type for field in source if field.name != ABSENT}
        theirs = {field.name: field.type for field in version.schema if field.name not in own}
        self.types: dict[str, pa.DataType] = {**ours, **{name: theirs[name] for name in theirs if name not in ours}}
        """All columns; one that a side lacks is NULL there."""
        self.target = pa.schema([pa.field(name, kind) for name, kind in theirs.items()])
        if not {*self.key} <= {*self.types}:
            raise NeedsSparkError(f"neither side has all columns of the key: {', '.join(self.key)}")
        try:
            for name in ours.keys() & theirs.keys():
                if form_of(ours[name]) != form_of(theirs[name]):
                    raise NeedsSparkError(f"column {name} is {ours[name]} in the source and {theirs[name]} in the lake")
            self._secret = draw_key()
            self._of_rows = self._digests_of(self.types)
            self._of_keys = self._digests_of(self.key)
        except UnknownTypeError as error:
            raise NeedsSparkError(f"it has a column of type {error}") from None

    def _digests_of(self, names: Iterable[str]) -> RowDigests:
        return RowDigests([self.types[name] for name in names], self._secret)

    def fitted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What was read from files of the target, with exactly the target's columns and types.

        :raises NeedsSparkError: a file has another type.
        """
        for batch in batches:
            columns = (_column(batch, field.name) for field in self.target)
            fitted = [
                pa.nulls(batch.num_rows, field.type) if column is None else _fitted(column, field)
                for column, field in zip(columns, self.target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(fitted, schema=self.target)

    def digests(self, batch: pa.RecordBatch) -> tuple[Digests, Digests]:
        """Digests of the keys, or without one of the rows, and of the rows.

        :raises NeedsSparkError: a list holds NULL.
        """
        try:
            rows = self._of_rows([_column(batch, name) for name in self.types], batch.num_rows)
        except UnknownTypeError as error:
            raise NeedsSparkError(f"a column holds {error}") from None
        return (self.key_digests(batch) if self.key else rows), rows

    def key_digests(self, batch: pa.RecordBatch) -> Digests:
        """Digests of the keys, or without one of the rows."""
        if not self.key:
            return self.digests(batch)[1]
        return self._of_keys([_column(batch, name) for name in self.key], batch.num_rows)

    def digests_without(self, rows: pa.Table, unknown: Iterable[str]) -> Digests:
        """Digests of what rows hold in all columns but some."""
        names = [name for name in self.types if name not in {*unknown}]
        batch = one_batch(rows)
        return self._digests_of(names)([_column(batch, name) for name in names], batch.num_rows)

    def hold(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SideRows:
        """The rows of one side that are held; each batch is one of the schema."""
        found = [(batch, *self.digests(batch)) for batch in batches]
        keys, rows = ([digests[which] for digests in found] for which in (1, 2))
        return SideRows(pa.Table.from_batches([one[0] for one in found], schema), _joined(keys), _joined(rows))

    def lines(self, rows: SideRows, places: Places) -> list[dict[str, Any]]:
        """Some rows, with all columns of both sides, as Spark gives them to Python."""
        if not len(places):
            return []
        from pyspark.sql.conversion import ArrowTableToRowsConversion
        from pyspark.sql.pandas.types import from_arrow_schema

        found = rows.table.take(pa.array(places))
        there = {*found.column_names}
        columns = [found[name] if name in there else pa.nulls(len(places), kind) for name, kind in self.types.items()]
        table = pa.table(columns, names=list(self.types))
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return [line.asDict() for line in ArrowTableToRowsConversion.convert(table, schema)]


@dataclass(frozen=True)
class SideRows:
    """Some rows of one side."""

    table: pa.Table
    keys: Digests
    """Without a key those of the rows."""
    rows: Digests

    @property
    def partly(self) -> npt.NDArray[np.bool_]:
        """bool[rows]: of which something is not known."""
        found = np.zeros(self.table.num_rows, np.bool_)
        if ABSENT in self.table.column_names:
            found[:] = self.table[ABSENT].is_valid().to_numpy()
        return found

    def unknown(self, places: Places) -> Iterator[tuple[list[str], Places]]:
        """Of some rows those that are not wholly known: columns that nobody knows, and of which of ``places`` (their
        numbers there).
        """
        if ABSENT not in self.table.column_names or not len(places):
            return
        texts = self.table[ABSENT].take(pa.array(places)).combine_chunks().dictionary_encode()
        numbers = np.asarray(texts.indices.fill_null(-1))
        for number, text in enumerate(texts.dictionary.to_pylist()):
            yield json.loads(text), np.flatnonzero(numbers == number)

    def among(self, keys: Digests) -> SideRows:
        """Those with one of these keys."""
        mine, wanted = contents(self.keys, keys)
        places = np.flatnonzero(np.isin(mine, wanted))
        return SideRows(self.table.take(pa.array(places)), take(self.keys, places), take(self.rows, places))


def partly_known(batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
    """bool[rows]: rows of which something is not known; None: there are none."""
    absent = _column(batch, ABSENT)
    if absent is None or absent.null_count == len(absent):
        return None
    return np.asarray(absent.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """All of a table's rows."""
    found = rows.combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _joined(digests: list[Digests]) -> Digests:
    nothing = np.empty(0, np.uint64)
    return np.concatenate([nothing, *(low for low, _ in digests)]), np.concatenate(
        [nothing, *(high for _, high in digests)]
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _fitted(values: pa.Array, field: pa.Field) -> pa.Array:
    """A file's column as one of the table's type. INT96, as Spark writes timestamps, does not say that it is in UTC."""
    if values.type.equals(field.type):
        return values
    try:
        here, wanted = form_of(values.type), form_of(field.type)
    except UnknownTypeError as error:
        raise NeedsSparkError(f"a file has column {field.name} as {error}") from None
    if here != wanted and (here, wanted) != ("timestamp_ntz", "timestamp"):
        raise NeedsSparkError(f"a file has column {field.name} as {values.type}, not as {field.type}")
    return values.cast(field.type)

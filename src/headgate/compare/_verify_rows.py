"""The two sides of a table as Arrow: their columns, the digests of their rows, and rows held in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.carrier import ABSENT
from headgate.compare._differences import headgate_columns, python_rows
from headgate.compare._digests import Digests, RowDigests, UnknownTypeError, draw_key, form_of
from headgate.compare._verify_match import RowIndexes, contents, take
from headgate.compare._version import TableVersion
from headgate.delta import VARIANT, to_variant
from headgate.errors import UnsupportedError
from headgate.lake import key_of

__all__ = ["SideRows", "Sides", "one_batch", "rows_with_unknown_columns"]


class Sides:
    """A table's columns, and digests of its rows under a random key.

    :param source: the source's columns, and perhaps ``_absent``.
    :param kept: columns of the target that the source has dropped, by the ledger.
    :raises UnsupportedError: the sides cannot be compared.
    """

    def __init__(self, source: pa.Schema, version: TableVersion, kept: Collection[str] = ()) -> None:
        self.key = list(key_of(version.properties))
        """Columns of the key; ``[]``: there is no key."""
        excluded = headgate_columns(self.key, version.properties, kept)
        theirs = {field.name: field.type for field in version.schema if field.name not in excluded}
        documents = {name for name, kind in theirs.items() if kind.equals(VARIANT)}
        self.source = pa.schema([field.with_type(VARIANT) if field.name in documents else field for field in source])
        """The source's columns. Text of JSON that is a VARIANT in the target is a VARIANT here, too."""
        ours = {field.name: field.type for field in self.source if field.name != ABSENT}
        self.types: dict[str, pa.DataType] = {**ours, **{name: theirs[name] for name in theirs if name not in ours}}
        """Types of all columns. A column that a side lacks is NULL there."""
        self.target = pa.schema([pa.field(name, kind) for name, kind in theirs.items()])
        if not {*self.key} <= {*self.types}:
            raise UnsupportedError(f"neither side has all columns of the key: {', '.join(self.key)}")
        try:
            for name in ours.keys() & theirs.keys():
                if form_of(ours[name]) != form_of(theirs[name]):
                    raise UnsupportedError(f"column {name} is {ours[name]} in the source, {theirs[name]} in the lake")
            self._secret = draw_key()
            self._of_rows = self._digests_of(self.types)
            self._of_keys = self._digests_of(self.key)
        except UnknownTypeError as error:
            raise UnsupportedError(f"it has a column of type {error}") from None

    def _digests_of(self, names: Iterable[str]) -> RowDigests:
        return RowDigests([self.types[name] for name in names], self._secret)

    def converted(self, read: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the source's batches with the columns of :attr:`source`."""
        for batch in read():
            columns = [
                to_variant(column, field.name) if field.type.equals(VARIANT) else column
                for column, field in zip(batch.columns, self.source, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.source)

    def fitted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches read from the target's files, cast to exactly the target's columns and types.

        :raises UnsupportedError: a file has another type.
        """
        for batch in batches:
            columns = (_column(batch, field.name) for field in self.target)
            fitted = [
                pa.nulls(batch.num_rows, field.type) if column is None else _fitted(column, field)
                for column, field in zip(columns, self.target, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(fitted, schema=self.target)

    def digests(self, batch: pa.RecordBatch) -> tuple[Digests, Digests]:
        """Return digests of the keys (of the rows, if there is no key), and of the rows."""
        rows = self._of_rows([_column(batch, name) for name in self.types], batch.num_rows)
        return (self.key_digests(batch) if self.key else rows), rows

    def key_digests(self, batch: pa.RecordBatch) -> Digests:
        """Return digests of the keys, or of the rows if there is no key."""
        if not self.key:
            return self.digests(batch)[1]
        return self._of_keys([_column(batch, name) for name in self.key], batch.num_rows)

    def digests_without(self, rows: pa.Table, unknown: Iterable[str]) -> Digests:
        """Return digests of all columns of rows except ``unknown``."""
        names = [name for name in self.types if name not in {*unknown}]
        batch = one_batch(rows)
        return self._digests_of(names)([_column(batch, name) for name in names], batch.num_rows)

    def hold(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> SideRows:
        """Hold rows of one side in memory. Each batch has this schema."""
        digested = [(batch, *self.digests(batch)) for batch in batches]
        keys, rows = ([digests[which] for digests in digested] for which in (1, 2))
        return SideRows(pa.Table.from_batches([one[0] for one in digested], schema), _joined(keys), _joined(rows))

    def lines(self, rows: SideRows, row_indexes: RowIndexes) -> list[dict[str, Any]]:
        """Return some rows, with all columns of both sides."""
        selected = rows.table.take(pa.array(row_indexes))
        present = {*selected.column_names}
        columns = [
            selected[name] if name in present else pa.nulls(len(row_indexes), kind) for name, kind in self.types.items()
        ]
        return python_rows(pa.table(columns, names=list(self.types)))


@dataclass(frozen=True)
class SideRows:
    """Rows of one side, in memory."""

    table: pa.Table
    keys: Digests
    """Without a key, digests of the rows."""
    rows: Digests

    @property
    def has_unknown_columns(self) -> npt.NDArray[np.bool_]:
        """bool[rows]: rows with unknown columns."""
        flags = np.zeros(self.table.num_rows, np.bool_)
        if ABSENT in self.table.column_names:
            flags[:] = self.table[ABSENT].is_valid().to_numpy()
        return flags

    def unknown_columns(self, row_indexes: RowIndexes) -> Iterator[tuple[list[str], RowIndexes]]:
        """Yield, for those of ``row_indexes`` with unknown columns, these columns and the rows (indexes into
        ``row_indexes``).
        """
        if ABSENT not in self.table.column_names or not len(row_indexes):
            return
        texts = self.table[ABSENT].take(pa.array(row_indexes)).combine_chunks().dictionary_encode()
        numbers = np.asarray(texts.indices.fill_null(-1))
        for number, text in enumerate(texts.dictionary.to_pylist()):
            yield json.loads(text), np.flatnonzero(numbers == number)

    def among(self, keys: Digests) -> SideRows:
        """Return the rows with one of these keys."""
        mine, wanted = contents(self.keys, keys)
        row_indexes = np.flatnonzero(np.isin(mine, wanted))
        return SideRows(
            self.table.take(pa.array(row_indexes)), take(self.keys, row_indexes), take(self.rows, row_indexes)
        )


def rows_with_unknown_columns(batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
    """Return bool[rows]: rows with unknown columns; None: there are none."""
    absent = _column(batch, ABSENT)
    if absent is None or absent.null_count == len(absent):
        return None
    return np.asarray(absent.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return all rows of a table as one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _joined(digests: list[Digests]) -> Digests:
    nothing = np.empty(0, np.uint64)
    return np.concatenate([nothing, *(low for low, _ in digests)]), np.concatenate(
        [nothing, *(high for _, high in digests)]
    )


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _fitted(values: pa.Array, field: pa.Field) -> pa.Array:
    """Cast a file's column to the table's type. INT96, Spark's form of timestamps, does not record its zone, UTC."""
    if values.type.equals(field.type):
        return values
    try:
        file_form, table_form = form_of(values.type), form_of(field.type)
    except UnknownTypeError as error:
        raise UnsupportedError(f"a file has column {field.name} as {error}") from None
    if file_form != table_form and (file_form, table_form) != ("timestamp_ntz", "timestamp"):
        raise UnsupportedError(f"a file has column {field.name} as {values.type}, not as {field.type}")
    return values.cast(field.type)

"""From blocks of row images to windows: whole transactions, in the order of the log, as Databus events.

Row images come out of the log before their transaction has ended, and table by table. A transaction is known to be
whole when an image of a later one follows, or when the reader says that it reached the log's end with nothing open
(:class:`headgate.replication.Idle`); what is not yet known to be whole waits here.

All whole transactions of a block become windows at once: their rows are ordered by ``_seq``, the sizes of all events
give the place of each, and compiled loops write keys, rows and checksums there (:mod:`headgate.relay._avro`,
:mod:`headgate.relay._events`). Per transaction there is one Python object, its GTID; per row none.

Images are asked for as ``keys``: an update is one event with the row after it, and where it changed the key the row's
old key is deleted by an event before it. Every change is an event, also when a transaction changes a row twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import TableDef
from headgate.errors import UnsupportedError
from headgate.relay._avro import EncodedRows, RowEncoder
from headgate.relay._events import EOP_SIZE, event_sizes, put_eops, put_events, seal
from headgate.relay._schemas import Registry, Schema
from headgate.relay._scn import Scn, Transactions
from headgate.relay._segments import Windows
from headgate.relay._sources import LogicalSource
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch, LogBlock

__all__ = ["Assembler", "Finished", "SourceOf"]

log = logging.getLogger("headgate")

_NS_PER_US: Final = 1000
_NO_KEYS: Final = np.zeros(0, np.int64)
_NO_OFFSETS: Final = np.zeros(1, np.int32)
_NO_BYTES: Final = np.zeros(0, np.uint8)
_DELETES: Final = (ord("d"), ord("b"))

Int64s = npt.NDArray[np.int64]


class SourceOf(Protocol):
    """Finds the logical source of a table."""

    def source_of(self, db: str, table: str) -> LogicalSource:
        """The source of a table that is followed."""


@dataclass(frozen=True)
class Finished:
    """Whole transactions."""

    windows: Windows
    gtids: Sequence[str]
    counts: Mapping[int, tuple[int, int, int]]
    """By source id: events, their bytes, the bytes of their values."""


@dataclass(frozen=True)
class _Writer:
    """What it takes to write events of one definition."""

    source: LogicalSource
    schema: Schema
    encoder: RowEncoder
    key: tuple[int, ...]

    def keys(self, columns: Sequence[pa.Array]) -> tuple[Any, Any, Any]:
        """``(long keys, offsets, bytes)``; the first is empty where the keys are bytes."""
        parts = [self.encoder.key_part(index, columns[index]) for index in self.key]
        if len(parts) == 1 and pa.types.is_int64(parts[0].type):
            return np.asarray(parts[0]), _NO_OFFSETS, _NO_BYTES
        if not parts:
            return _NO_KEYS, np.zeros(len(columns[0]) + 1, np.int32), _NO_BYTES
        texts = [part.cast(pa.string()) if pa.types.is_integer(part.type) else part for part in parts]
        joined = pc.binary_join_element_wise(*(text.cast(pa.binary()) for text in texts), b"\t")
        _, offsets, data = joined.buffers()
        starts = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
        return _NO_KEYS, starts, _NO_BYTES if data is None else np.frombuffer(data, np.uint8)


@dataclass
class _Part:
    """One batch's rows: their place in the log, and in the order of all."""

    image: ImageBatch
    txn: Int64s
    ranks: Int64s
    rows: int = 0
    """How many belong to whole transactions; they are the first ones."""


@dataclass(frozen=True)
class _Coded:
    """One batch's events, sized."""

    writer: _Writer
    ranks: Int64s
    deletes: Any
    stamps: Int64s
    keys: tuple[Any, Any, Any]
    rows: EncodedRows
    sizes: Int64s


class Assembler:
    """Makes windows of one log.

    :param partition: the physical partition's id, 1 to 32767.
    :param version: of the events, 1 or 2.
    :param scn_column: of which SCNs are made, where they are: ``column``, or ``db.table.column``.
    """

    def __init__(
        self,
        sources: SourceOf,
        registry: Registry,
        scn: Scn,
        *,
        partition: int,
        version: int = 1,
        scn_column: str | None = None,
    ) -> None:
        self._column = scn_column
        self._sources, self._registry, self._scn = sources, registry, scn
        self._partition, self._version = partition, version
        self._writers: dict[tuple[str, str], _Writer] = {}
        self._waiting: list[ImageBatch] = []
        self._open: set[str] = set()
        """The GTIDs of what waits, and perhaps of some that are done."""

    def add(self, block: LogBlock) -> Finished | None:
        """Take a block; the transactions that are whole by it.

        :raises UnsupportedError: rows that cannot be written: a partial image, a type that the schema cannot hold.
        :raises DecodeError: a value that the schema does not allow.
        :raises ScnOrderError: transactions that cannot be numbered.
        """
        images = [image for image in block.images if not _is_truncate(image)]
        self._waiting += images
        self._open |= {name for image in images for name in image.batch.column(2).dictionary.to_pylist()}
        # Of a transaction that goes on nothing is whole yet, however many blocks it has.
        return self._finish(everything=False) if len(self._open) > 1 else None

    def flush(self) -> Finished | None:
        """What waits is whole: the log's end was reached. Raises as :meth:`add`."""
        return self._finish(everything=True)

    def _finish(self, *, everything: bool) -> Finished | None:
        if not self._waiting:
            return None
        parts, gtids, seqs = _in_order(self._waiting)
        txn = np.empty(len(seqs[0]), np.int64)
        for part in parts:
            txn[part.ranks] = part.txn
        firsts = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), txn[1:] != txn[:-1])))
        whole = len(firsts) if everything else len(firsts) - 1
        rows = len(txn) if everything else int(firsts[-1])
        if not whole:
            return None
        lasts = np.concatenate((firsts[1:], [len(txn)]))[:whole] - 1
        names = [gtids[code] for code in txn[firsts[:whole]].tolist()]
        for part in parts:
            part.rows = int(np.searchsorted(part.ranks, rows))
        coded = [self._code(part) for part in parts if part.rows]
        values = self._values(parts, np.repeat(np.arange(whole), lasts - firsts[:whole] + 1), whole)
        scns = self._scn.number(Transactions(names, seqs[0][lasts], seqs[1][lasts], seqs[3][lasts], values))
        windows = self._write(coded, rows, firsts[:whole], lasts, scns, seqs[3] * _NS_PER_US)
        self._waiting = [_rest(part) for part in parts if part.rows < part.image.batch.num_rows]
        self._open = {gtids[int(txn[-1])]} if self._waiting else set()
        return Finished(windows, names, _counts(coded))

    def _writer(self, image: ImageBatch) -> _Writer:
        table = image.table
        place = (table.full_name, table.fingerprint)
        writer = self._writers.get(place)
        if writer is None:
            source = self._sources.source_of(table.db, table.name)
            schema = self._registry.schema_of(source.name, table)
            encoder = RowEncoder(schema, table, _fields(image))
            writer = self._writers[place] = _Writer(source, schema, encoder, table.key)
        return writer

    def _code(self, part: _Part) -> _Coded:
        batch = part.image.batch.slice(0, part.rows)
        _refuse_partial(part.image.table, batch)
        writer = self._writer(part.image)
        columns = batch.columns[-len(part.image.table.columns) :]
        rows = writer.encoder.encode(columns)
        keys = writer.keys(columns)
        has_long = len(keys[0]) > 0
        sizes = event_sizes(self._version, rows.sizes, None if has_long else np.diff(keys[1]).astype(np.int64))
        letters = _letters(batch.column(0))
        deletes = (letters == _DELETES[0]) | (letters == _DELETES[1])
        stamps = np.asarray(batch.column(3).cast(pa.int64())) * _NS_PER_US
        return _Coded(writer, part.ranks[: part.rows], deletes, stamps, keys, rows, sizes)

    def _values(self, parts: Sequence[_Part], window_of: Int64s, windows: int) -> Int64s:
        """Of each transaction the greatest value of the column that SCNs are made of; -1: none."""
        found = np.full(windows, -1, np.int64)
        for part in parts:
            index = -1 if self._column is None or not part.rows else self._column_in(part.image.table)
            if index < 0:
                continue
            batch = part.image.batch.slice(0, part.rows)
            column = batch.column(batch.num_columns - len(part.image.table.columns) + index)
            if not (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
                raise UnsupportedError(
                    "SCNs are made of a column that holds no numbers", table=part.image.table.full_name
                )
            np.maximum.at(found, window_of[part.ranks[: part.rows]], np.asarray(column.fill_null(-1).cast(pa.int64())))
        return found

    def _column_in(self, table: TableDef) -> int:
        """The index of the column that SCNs are made of; -1: the table has none."""
        place, _, name = (self._column or "").rpartition(".")
        if place not in ("", table.full_name):
            return -1
        names = [column.name.lower() for column in table.columns]
        return names.index(name.lower()) if name.lower() in names else -1

    def _write(
        self, coded: Sequence[_Coded], rows: int, firsts: Int64s, lasts: Int64s, scns: Int64s, stamps: Int64s
    ) -> Windows:
        eop = EOP_SIZE[self._version]
        sizes = np.empty(rows, np.int64)
        for one in coded:
            sizes[one.ranks] = one.sizes
        window_of = np.repeat(np.arange(len(scns)), lasts - firsts + 1)
        places = np.cumsum(sizes) - sizes + window_of * eop
        eops = places[lasts] + sizes[lasts]
        out = np.empty(int(eops[-1]) + eop, np.uint8)
        for one in coded:
            at = places[one.ranks]
            values = np.empty(len(at), np.int64)
            put_events(
                out, at, one.sizes, self._version, one.deletes, one.stamps, scns[window_of[one.ranks]],
                one.writer.source.id, self._partition, one.writer.source.partition,
                np.frombuffer(one.writer.schema.digest, np.uint8), one.writer.schema.version, *one.keys, values,
            )  # fmt: skip
            one.rows.put(values, out)
        put_eops(out, eops, self._version, stamps[lasts], scns, self._partition)
        seal(out, 0, len(out))
        return Windows(out, scns, eops + eop, stamps[lasts], lasts - firsts + 1)


def _in_order(images: Sequence[ImageBatch]) -> tuple[list[_Part], list[str], tuple[Int64s, Int64s, Int64s, Int64s]]:
    """The batches' rows with their ranks in the log's order; GTIDs by number; ``file, pos, ordinal, µs`` so ordered."""
    codes: dict[str, int] = {}
    columns: list[list[Int64s]] = [[], [], [], []]
    txns = []
    for image in images:
        seq, gtid = image.batch.column(1), image.batch.column(2)
        for found, name in zip(columns, ("file", "pos", "ordinal"), strict=False):
            found.append(np.asarray(seq.field(name)).astype(np.int64, copy=False))
        columns[3].append(np.asarray(image.batch.column(3).cast(pa.int64())))
        own = np.array([codes.setdefault(name, len(codes)) for name in gtid.dictionary.to_pylist()], np.int64)
        txns.append(own[np.asarray(gtid.indices)])
    file, pos, ordinal, stamp = (np.concatenate(arrays) for arrays in columns)
    order = np.lexsort((ordinal, pos, file))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    bounds = np.cumsum([len(txn) for txn in txns])[:-1]
    parts = [_Part(image, txn, own) for image, txn, own in zip(images, txns, np.split(ranks, bounds), strict=True)]
    return parts, list(codes), (file[order], pos[order], ordinal[order], stamp[order])


def _counts(coded: Sequence[_Coded]) -> dict[int, tuple[int, int, int]]:
    counts: dict[int, tuple[int, int, int]] = {}
    for one in coded:
        events, size, payload = counts.get(one.writer.source.id, (0, 0, 0))
        more = (len(one.sizes), int(one.sizes.sum()), int(one.rows.sizes.sum()))
        counts[one.writer.source.id] = (events + more[0], size + more[1], payload + more[2])
    return counts


def _rest(part: _Part) -> ImageBatch:
    return ImageBatch(part.image.table, part.image.batch.slice(part.rows))


def _letters(op: pa.Array) -> Any:
    """The op column's letters (uint8[n])."""
    return np.frombuffer(op.buffers()[2], np.uint8)[op.offset : op.offset + len(op)]


def _fields(image: ImageBatch) -> list[pa.Field]:
    schema = image.batch.schema
    return [schema.field(i) for i in range(len(schema) - len(image.table.columns), len(schema))]


def _is_truncate(image: ImageBatch) -> bool:
    """Databus has no event for it, so it is only said."""
    truncate: bool = image.batch.num_columns == len(META_FIELDS)
    if truncate:
        log.warning(
            "%s was truncated: Databus has no event for that, so consumers keep its rows", image.table.full_name
        )
    return truncate


def _refuse_partial(table: TableDef, batch: pa.RecordBatch) -> None:
    index = batch.schema.get_field_index(ABSENT_FIELD.name)
    if index >= 0 and batch.column(index).null_count < batch.num_rows:
        raise UnsupportedError(
            "a row image in the log leaves columns out, and an event holds whole rows: SET GLOBAL binlog_row_image = "
            "'FULL', and in the sessions that write",
            table=table.full_name,
        )

"""From blocks of row images to windows: whole transactions, in the order of the log, as Databus events.

Row images come out of the log before their transaction has ended, and table by table. A transaction is known to be
whole when an image of a later one follows, when its block says so, or when the reader says that it reached the log's
end with nothing open (:class:`headgate.replication.Idle`); what is not yet known to be whole waits here.

All whole transactions of a block become windows at once: their rows are ordered by ``_seq``, the sizes of all events
give the place of each, and compiled loops write keys, rows and checksums there (``_events._avro``,
``databus._binary``). Per transaction there is one Python object, its GTID; per row none.

Images are asked for as ``keys``: an update is one event with the row after it, and where it changed the key the row's
old key is deleted by an event before it. Every change is an event, also when a transaction changes a row twice. Where
before-images are wanted, all images are asked for, and the event of an update holds the row before it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.catalog import TableDef
from headgate.databus import EOP_SIZE, put_eops, seal
from headgate.errors import UnsupportedError
from headgate.relay._events._avro import EncodedRows
from headgate.relay._events._schemas import Registry
from headgate.relay._scn import Scn, Transactions
from headgate.relay._segments import Windows
from headgate.relay._writers import Befores, EventKeys, RowWriter, RowWriters, SourceOf
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch, LogBlock

__all__ = ["Assembler", "Finished"]

log = logging.getLogger("headgate")

_NS_PER_US: Final = 1000
_BEFORE: Final = ord("b")
_DELETES: Final = (ord("d"), ord("b"))

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finished:
    """Whole transactions."""

    windows: Windows
    gtids: Sequence[str]
    counts: Mapping[int, tuple[int, int, int]]
    """By source id: events, their bytes, the bytes of their values."""


@dataclass
class _Part:
    """One batch's rows: their place in the log, and in the order of all."""

    image: ImageBatch
    txn: Int64s
    ranks: Int64s
    rows: int = 0
    """How many belong to whole transactions; they are the first ones."""
    chosen: Any = None
    """bool[rows]: which of these become events; None: all."""


@dataclass(frozen=True)
class _Coded:
    """One batch's events, sized."""

    writer: RowWriter
    ranks: Int64s
    deletes: Any
    stamps: Int64s
    keys: EventKeys
    rows: EncodedRows
    sizes: Int64s
    befores: Befores | None = None


class Assembler:
    """Makes windows of one log.

    :param partition: the physical partition's id, 1 to 32767.
    :param version: of the events, 1 or 2.
    :param scn_column: of which SCNs are made, where they are: ``column``, or ``db.table.column``.
    :param befores: the images are ``all``, and an update's event holds the row before it, too; version 2 only.
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
        befores: bool = False,
    ) -> None:
        self._column, self._befores = scn_column, befores
        self._writers, self._scn = RowWriters(sources, registry), scn
        self._partition, self._version = partition, version
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
        if block.whole:
            return self._finish(everything=True)
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

    def _code(self, part: _Part) -> _Coded:
        batch = part.image.batch.slice(0, part.rows)
        _refuse_partial(part.image.table, batch)
        writer = self._writers.of(part.image.table, _fields(part.image))
        befores = self._choose(part, batch, writer) if self._befores else None
        batch = batch if befores is None else batch.filter(pa.array(part.chosen))
        columns = batch.columns[-len(part.image.table.columns) :]
        rows = writer.encoder.encode(columns)
        keys = writer.keys(columns)
        sizes = writer.sizes(rows, keys, self._version)
        if befores is not None:
            sizes[befores.of] += befores.sizes
        letters = _letters(batch.column(0))
        deletes = (letters == _DELETES[0]) | (letters == _DELETES[1])
        stamps = np.asarray(batch.column(3).view(pa.int64())) * _NS_PER_US
        return _Coded(writer, _chosen(part), deletes, stamps, keys, rows, sizes, befores)

    @staticmethod
    def _choose(part: _Part, batch: pa.RecordBatch, writer: RowWriter) -> Befores:
        """Before-images go into the events of their updates; those whose key the update changed are events, too."""
        columns = batch.columns[-len(part.image.table.columns) :]
        before = _letters(batch.column(0)) == _BEFORE
        part.chosen = ~(before & writer.repeats(writer.keys(columns))) if writer.key else np.ones(len(before), np.bool_)
        rows = writer.encoder.encode([column.filter(pa.array(before)) for column in columns])
        events = np.cumsum(part.chosen) - 1
        return Befores(rows, events[np.flatnonzero(before) + 1])  # an update's images are next to each other

    def _values(self, parts: Sequence[_Part], window_of: Int64s, windows: int) -> Int64s:
        """Of each transaction the greatest value of the column that SCNs are made of; -1: none."""
        found = np.full(windows, -1, np.int64)
        for part in parts:
            index = -1 if self._column is None or not part.rows else self._column_in(part.image.table)
            if index < 0:
                continue
            batch = part.image.batch.slice(0, part.rows)
            if part.chosen is not None:
                batch = batch.filter(pa.array(part.chosen))
            column = batch.column(batch.num_columns - len(part.image.table.columns) + index)
            if not (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
                raise UnsupportedError(
                    "SCNs are made of a column that holds no numbers", table=part.image.table.full_name
                )
            numbers = np.asarray(column.fill_null(-1).cast(pa.int64()))
            np.maximum.at(found, window_of[_chosen(part)], numbers)
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
        sizes = np.zeros(rows, np.int64)
        for one in coded:
            sizes[one.ranks] = one.sizes
        window_of = np.repeat(np.arange(len(scns)), lasts - firsts + 1)
        places = np.cumsum(sizes) - sizes + window_of * eop
        eops = places[lasts] + sizes[lasts]
        out = np.empty(int(eops[-1]) + eop, np.uint8)
        for one in coded:
            one.writer.put(
                out,
                places[one.ranks],
                one.sizes,
                one.keys,
                one.rows,
                version=self._version,
                deletes=one.deletes,
                stamps=one.stamps,
                scns=scns[window_of[one.ranks]],
                partition=self._partition,
                befores=one.befores,
            )
        put_eops(out, eops, self._version, stamps[lasts], scns, self._partition)
        seal(out, 0, len(out))
        return Windows(out, scns, eops + eop, stamps[lasts], np.bincount(window_of[sizes > 0], minlength=len(scns)))


def _chosen(part: _Part) -> Int64s:
    """The ranks of the rows that become events."""
    ranks = part.ranks[: part.rows]
    return ranks if part.chosen is None else ranks[part.chosen]


def _in_order(images: Sequence[ImageBatch]) -> tuple[list[_Part], list[str], tuple[Int64s, Int64s, Int64s, Int64s]]:
    """The batches' rows with their ranks in the log's order; GTIDs by number; ``file, pos, ordinal, µs`` so ordered."""
    codes: dict[str, int] = {}
    columns: list[list[Int64s]] = [[], [], [], []]
    txns = []
    for image in images:
        seq, gtid = image.batch.column(1), image.batch.column(2)
        for found, name in zip(columns, ("file", "pos", "ordinal"), strict=False):
            found.append(np.asarray(seq.field(name)).astype(np.int64, copy=False))
        columns[3].append(np.asarray(image.batch.column(3).view(pa.int64())))
        own = np.array([codes.setdefault(name, len(codes)) for name in gtid.dictionary.to_pylist()], np.int64)
        txns.append(own[np.asarray(gtid.indices)])
    file, pos, ordinal, stamp = (np.concatenate(arrays) for arrays in columns)
    if _is_ordered(file, pos, ordinal):  # of one table they are
        order = ranks = np.arange(len(file))
    else:
        order = np.lexsort((ordinal, pos, file))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
    bounds = np.cumsum([len(txn) for txn in txns])[:-1]
    parts = [_Part(image, txn, own) for image, txn, own in zip(images, txns, np.split(ranks, bounds), strict=True)]
    return parts, list(codes), (file[order], pos[order], ordinal[order], stamp[order])


@njit(cache=True, nogil=True)
def _is_ordered(file: Any, pos: Any, ordinal: Any) -> bool:
    for i in range(1, file.shape[0]):
        if file[i] != file[i - 1]:
            if file[i] < file[i - 1]:
                return False
        elif pos[i] != pos[i - 1]:
            if pos[i] < pos[i - 1]:
                return False
        elif ordinal[i] < ordinal[i - 1]:
            return False
    return True


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

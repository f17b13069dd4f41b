"""Turn blocks of row images into windows: whole transactions in binlog order, as Databus events.

Row images leave the binlog reader before their transaction has ended, and table by table. A transaction is whole when
an image of a later one follows, when its block is marked ``whole``, or when the reader reports a position behind it
(:class:`headgate.replication.Idle`). Other images wait here.

All whole transactions of a block become windows at once. Their rows are ordered by block, then by ``_seq``: blocks
arrive in log order, and the next server after a failover has other file numbers. The sizes of all events give their
offsets, and compiled loops write keys, rows and checksums there (``events._avro``, ``databus._binary``). A transaction
costs one Python object, its GTID; a row costs none.

Images are requested as ``keys``: an update is one event with the after image. If it changed the key, an event that
deletes the old key precedes it. Every change is an event, even if a transaction changes a row twice. If before images
are wanted, ``all`` images are requested, and an update's event also holds the before image.
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
from headgate.errors import UnsupportedError
from headgate.names import lower_name
from headgate.relay.databus import EOP_SIZE, event_fields, put_eops, seal
from headgate.relay.server._scn import Scn, WholeTransactions
from headgate.relay.server._segments import Windows
from headgate.relay.server._writers import BeforeImages, EncodedEvents, RowWriter, RowWriters, SourceOf
from headgate.relay.server.events import Registry
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch, LogBlock

__all__ = ["Assembler", "Finished"]

log = logging.getLogger("headgate")

_NS_PER_US: Final = 1000
_BEFORE: Final = ord("b")
_DELETES: Final = (ord("d"), ord("b"))

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finished:
    """Whole transactions as windows."""

    windows: Windows
    gtids: Sequence[str]
    counts: Mapping[int, tuple[int, int, int]]
    """Source id → events, their bytes, the bytes of their values."""

    def part(self, begin: int, end: int) -> Finished:
        """Return ``end - begin`` of the windows, with their counts."""
        if (begin, end) == (0, len(self.gtids)):
            return self
        windows = self.windows.part(begin, end)
        fields = event_fields(windows.data)
        counts = {}
        for source in np.unique(fields.source[fields.source >= 0]).tolist():
            sizes, values = fields.size[fields.source == source], fields.value_size[fields.source == source]
            counts[source] = len(sizes), int(sizes.sum()), int(values.sum())
        return Finished(windows, self.gtids[begin:end], counts)


_ROW: Final = np.dtype([(name, np.int64) for name in ("block", "file", "pos", "ordinal", "us", "transaction")])
"""A row image: where it is in the log, when it was committed (µs since 1970), and its transaction's number."""


@dataclass(frozen=True)
class _Part:
    """Rows of one batch, with their ranks in binlog order, ascending."""

    block: int
    image: ImageBatch
    ranks: Int64s

    def split(self, rank: int) -> tuple[_Part, _Part]:
        """Return the rows below a rank, and the others."""
        rows, batch = int(np.searchsorted(self.ranks, rank)), self.image.batch
        below, above = (ImageBatch(self.image.table, one) for one in (batch.slice(0, rows), batch.slice(rows)))
        return _Part(self.block, below, self.ranks[:rows]), _Part(self.block, above, self.ranks[rows:])


@dataclass(frozen=True)
class Ordered:
    """Row images in binlog order."""

    parts: Sequence[_Part]
    rows: Any
    """``_ROW[rows]``, in order."""
    gtids: Sequence[str]
    """By transaction's number."""

    @classmethod
    def of(cls, waiting: Sequence[tuple[int, ImageBatch]]) -> Ordered:
        """Order images that come with the numbers of their blocks."""
        numbers: dict[str, int] = {}
        rows = np.concatenate([_rows_of(block, image.batch, numbers) for block, image in waiting])
        keys = [np.ascontiguousarray(rows[name]) for name in ("block", "file", "pos", "ordinal")]
        ranks = np.arange(len(rows))
        if not _is_ordered(*keys):  # rows of one table are
            order = np.lexsort(keys[::-1])
            ranks[order], rows = np.arange(len(rows)), rows[order]
        bounds = np.cumsum([image.batch.num_rows for _, image in waiting])[:-1]
        parts = [_Part(*one, part_ranks) for one, part_ranks in zip(waiting, np.split(ranks, bounds), strict=True)]
        return cls(parts, rows, list(numbers))

    @property
    def firsts(self) -> Int64s:
        """Ranks of the transactions' first rows."""
        transaction = self.rows["transaction"]
        return np.flatnonzero(np.concatenate((np.ones(1, np.bool_), transaction[1:] != transaction[:-1])))

    def split(self) -> tuple[Ordered, Ordered]:
        """Return all transactions but the last one, which may go on, and the last one."""
        rank = int(self.firsts[-1])
        split = [part.split(rank) for part in self.parts]
        whole, rest = ([one for one in parts if len(one.ranks)] for parts in zip(*split, strict=True))
        return Ordered(whole, self.rows[:rank], self.gtids), Ordered(rest, self.rows[rank:], self.gtids)


@dataclass(frozen=True)
class _Encoded:
    """One batch's events, with their ranks."""

    table: TableDef
    batch: pa.RecordBatch
    ranks: Int64s
    events: EncodedEvents


class Assembler:
    """Makes the windows of one binlog.

    :param partition: id of the physical partition, 1 to 32767.
    :param version: event version, 1 or 2.
    :param scn_column: the column that SCNs are made of, if any: ``column``, or ``db.table.column``.
    :param befores: the images are ``all``, and an update's event also holds the before image; version 2 only.
    """

    def __init__(
        self,
        source_of: SourceOf,
        registry: Registry,
        scn: Scn,
        *,
        partition: int,
        version: int = 1,
        scn_column: str | None = None,
        before_images: bool = False,
    ) -> None:
        self._column, self._with_before_images = scn_column, before_images
        self._writers, self._scn = RowWriters(source_of, registry), scn
        self._partition, self._version = partition, version
        self._blocks = 0
        self._waiting: list[tuple[int, ImageBatch]] = []
        """Images, each with the number of its block."""
        self._open: set[str] = set()
        """GTIDs of waiting images, and perhaps of some finished transactions."""

    def add(self, block: LogBlock) -> Finished | None:
        """Add a block; return the transactions that it completes, None if there are none.

        :raises UnsupportedError: rows that cannot be written: a partial image, a type that the schema cannot hold.
        :raises DecodeError: a value that the schema does not allow.
        :raises ScnOrderError: transactions that cannot be numbered.
        """
        images = [image for image in block.images if not _is_truncate(image)]
        self._blocks += 1
        self._waiting += [(self._blocks, image) for image in images]
        if block.whole:
            return self._finish(everything=True)
        self._open |= {name for image in images for name in image.batch.column(2).dictionary.to_pylist()}
        # While only one transaction is open, it is not whole yet, however many blocks it has.
        return self._finish(everything=False) if len(self._open) > 1 else None

    def flush(self, unfinished: str = "") -> Finished | None:
        """Finish all waiting transactions, except one that is not whole yet. Raises as :meth:`add`.

        :param unfinished: its GTID, whether it has waiting images or not; empty: there is none.
        """
        # Images of an open transaction are the only ones that wait behind a block: all before them are finished.
        return None if unfinished in self._open else self._finish(everything=True)

    def _finish(self, *, everything: bool) -> Finished | None:
        if not self._waiting:
            return None
        whole, rest = Ordered.of(self._waiting), None
        if not everything:
            whole, rest = whole.split()
        if not len(whole.rows):
            return None
        rows, firsts = whole.rows, whole.firsts
        lasts = np.append(firsts[1:], len(rows)) - 1
        names = [whole.gtids[number] for number in rows["transaction"][firsts].tolist()]
        encoded = [self._encode(part) for part in whole.parts]
        window_of = np.repeat(np.arange(len(firsts)), lasts - firsts + 1)
        ends = rows[lasts]
        values = self._values(encoded, window_of, len(firsts))
        scns = self._scn.number(WholeTransactions(names, ends["file"], ends["pos"], ends["us"], values))
        windows = self._write(encoded, window_of, lasts, scns, ends["us"] * _NS_PER_US)
        self._waiting = [] if rest is None else [(part.block, part.image) for part in rest.parts]
        self._open = set() if rest is None else {rest.gtids[int(rest.rows["transaction"][0])]}
        return Finished(windows, names, _counts(encoded))

    def _encode(self, part: _Part) -> _Encoded:
        table, batch, ranks = part.image.table, part.image.batch, part.ranks
        _refuse_partial(table, batch)
        writer, before_images = self._writers.of(table, batch.schema), None
        if self._with_before_images:
            before_images, is_event = self._choose_events(batch, writer, len(table.columns))
            batch, ranks = batch.filter(pa.array(is_event)), ranks[is_event]
        letters = _letters(batch.column(0))
        deletes = (letters == _DELETES[0]) | (letters == _DELETES[1])
        stamps = np.asarray(batch.column(3).view(pa.int64())) * _NS_PER_US
        columns = [batch.column(index) for index in range(batch.num_columns - len(table.columns), batch.num_columns)]
        events = writer.encode(columns, self._version, deletes=deletes, stamps=stamps, before_images=before_images)
        return _Encoded(table, batch, ranks, events)

    @staticmethod
    def _choose_events(batch: pa.RecordBatch, writer: RowWriter, columns: int) -> tuple[BeforeImages, Any]:
        """Return before images for their updates' events, and which rows are events, bool[rows]: all others, and before
        images whose key changes, or is missing.
        """
        rows = batch.columns[-columns:]
        before = _letters(batch.column(0)) == _BEFORE
        is_event = ~(before & writer.repeats(rows))
        images = writer.encoder.encode([column.filter(pa.array(before)) for column in rows])
        events = np.cumsum(is_event) - 1
        return BeforeImages(images, events[np.flatnonzero(before) + 1]), is_event  # an update's images are neighbours

    def _values(self, parts: Sequence[_Encoded], window_of: Int64s, windows: int) -> Int64s:
        """Return each transaction's greatest value of the column that SCNs are made of; -1: none."""
        greatest = np.full(windows, -1, np.int64)
        for part in parts:
            index = -1 if self._column is None else self._column_in(part.table)
            if index < 0:
                continue
            column = part.batch.column(part.batch.num_columns - len(part.table.columns) + index)
            if not (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
                raise UnsupportedError("scn_column must be an integer or decimal column", table=part.table.full_name)
            numbers = np.asarray(column.fill_null(-1).cast(pa.int64()))
            np.maximum.at(greatest, window_of[part.ranks], numbers)
        return greatest

    def _column_in(self, table: TableDef) -> int:
        """Return the index of the column that SCNs are made of; -1: the table does not have it."""
        qualifier, _, name = (self._column or "").rpartition(".")
        if qualifier not in ("", table.full_name):
            return -1
        names = [lower_name(column.mysql_name) for column in table.columns]
        return names.index(lower_name(name)) if lower_name(name) in names else -1

    def _write(
        self, encoded: Sequence[_Encoded], window_of: Int64s, lasts: Int64s, scns: Int64s, stamps: Int64s
    ) -> Windows:
        eop = EOP_SIZE[self._version]
        sizes = np.zeros(len(window_of), np.int64)
        for one in encoded:
            sizes[one.ranks] = one.events.sizes
        offsets = np.cumsum(sizes) - sizes + window_of * eop
        eops = offsets[lasts] + sizes[lasts]
        out = np.empty(int(eops[-1]) + eop, np.uint8)
        for one in encoded:
            one.events.put(out, offsets[one.ranks], scns[window_of[one.ranks]], self._partition)
        put_eops(out, eops, self._version, stamps, scns, self._partition)
        seal(out, 0, len(out))
        return Windows(out, scns, eops + eop, stamps)


def _rows_of(block: int, batch: pa.RecordBatch, numbers: dict[str, int]) -> Any:
    """Return ``_ROW[rows]`` of images; ``numbers`` gets the numbers of new GTIDs."""
    seq, gtid = batch.column(1), batch.column(2)
    rows = np.empty(batch.num_rows, _ROW)
    rows["block"] = block
    for name in ("file", "pos", "ordinal"):
        rows[name] = np.asarray(seq.field(name))
    rows["us"] = np.asarray(batch.column(3).view(pa.int64()))
    number_of = np.array([numbers.setdefault(name, len(numbers)) for name in gtid.dictionary.to_pylist()], np.int64)
    rows["transaction"] = number_of[np.asarray(gtid.indices)]
    return rows


@njit(cache=True, nogil=True)
def _is_ordered(block: Any, file: Any, pos: Any, ordinal: Any) -> bool:
    for i in range(1, block.shape[0]):
        if (block[i], file[i], pos[i], ordinal[i]) < (block[i - 1], file[i - 1], pos[i - 1], ordinal[i - 1]):
            return False
    return True


def _counts(encoded: Sequence[_Encoded]) -> dict[int, tuple[int, int, int]]:
    counts: dict[int, tuple[int, int, int]] = {}
    for one in encoded:
        number = one.events.writer.source.id
        events, size, payload = counts.get(number, (0, 0, 0))
        sizes = one.events.sizes
        counts[number] = (events + len(sizes), size + int(sizes.sum()), payload + int(one.events.rows.sizes.sum()))
    return counts


def _letters(op: pa.Array) -> Any:
    """Return the op column's letters (uint8[n])."""
    return np.frombuffer(op.buffers()[2], np.uint8)[op.offset : op.offset + len(op)]


def _is_truncate(image: ImageBatch) -> bool:
    """Whether it is a TRUNCATE, which is only logged: Databus has no event for it."""
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
            "a row image in the log leaves columns out, and an event needs whole rows: SET GLOBAL binlog_row_image = "
            "'FULL', and set it in the sessions that write",
            table=table.full_name,
        )

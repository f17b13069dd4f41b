"""XA transactions: prepared rows come out where they are committed.

The log holds a two-phase XA transaction as two: the first has its rows and ends with an XA_PREPARE event, the second is
the statement XA COMMIT or XA ROLLBACK. Each has a GTID. The rows are invisible and locked until the commit. So they
come out with position, GTID and time of the XA COMMIT: in the order of effects, and relative to a snapshot at the time
when a SELECT could first see them. Their ordinals are those of the first transaction.

A COMMIT refers to the nearest PREPARE before it in the log that names its xid (an xid can be used again only when its
transaction is over).

- The PREPARE may be in what the same reader has read. Then the reader has its images, or, if they were too many to
  keep, its GTID, by which it reads them again.
- It may be before that: in another task's range, in an earlier batch, before the beginning of the stream, or in a
  snapshot's E while its commit is in W. Then the log is searched backwards from the COMMIT, file by file.

A reader reads a range of the log without gaps, so a PREPARE that it knows is the nearest one. (A set of executed
transactions that has an XA COMMIT has its PREPARE as well, and ranges are cut where files begin.)

If the log no longer holds the PREPARE, the rows cannot be known and a BinlogPurgedError is raised.

A transaction committed in one phase also ends with an XA_PREPARE event, marked in its first byte. It is an ordinary
one. XA transactions that change nothing are not logged. Layout: MySQL source,
``libs/mysql/binlog/event/control_events.h`` (``XA_prepare_event``) and ``sql/xa.h`` (``xid_t::serialize``).

On restart nothing of this is kept. Rows of a COMMIT that was cut off continue where they stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.binlog import GtidEvent, Segment, codes, gtid_event, gtid_indexes
from headgate.errors import BinlogPurgedError, DecodeError, ServerError, ServerSettingError
from headgate.gtid import Gtid
from headgate.mysql import ConnectionSettings
from headgate.offsets import Hint
from headgate.positions import Position, parse_position
from headgate.replication._log_read import LogRead
from headgate.replication._meta import seq_array
from headgate.replication._requests import FIRST_EVENT, has_no_file
from headgate.replication._transport import Transport
from headgate.replication._types import Ddl, ImageBatch, LogBlock, Stopped, file_number
from headgate.replication.resumable import ItemDecoder, ResumableDump, Scan, scan

__all__ = ["PendingImages", "Point", "Prepared", "PreparedTransactions", "parse_prepare", "parse_xa_statement"]

_STATEMENT: Final = re.compile(
    r"XA\s+(START|BEGIN|END|COMMIT|ROLLBACK)\s+X'([0-9A-F]*)'\s*,\s*X'([0-9A-F]*)'\s*,\s*(\d+)\s*", re.IGNORECASE
)


class Point(NamedTuple):
    """Position and time of a transaction's commit."""

    gtid: str
    commit_us: int
    """Microseconds since the Unix epoch."""
    file: str
    pos: int


class PendingImages:
    """Images of an XA transaction that may or may not be committed later.

    :param position: file and position at which a dump may begin to repeat the transaction.
    :param room: most bytes of images to keep.
    """

    def __init__(self, position: tuple[str, int], room: int) -> None:
        self.position = position
        self.size = 0
        self.blocks: list[tuple[LogBlock, int]] | None = []
        """Blocks, each with the number of the transaction's changes up to its end. None: they were too many."""
        self._room = room

    def add(self, block: LogBlock, counted: int) -> None:
        """Keep a block, or discard all if there is no room."""
        if self.blocks is None:
            return
        self.size += sum(image.batch.nbytes for image in block.images)
        if self.size > self._room:
            self.blocks, self.size = None, 0
        else:
            self.blocks.append((block, counted))


@dataclass(frozen=True)
class Prepared:
    """A prepared transaction: its GTID, where a dump of it may begin, and its images if they were kept."""

    gtid: str
    """Empty: it has none, so no reader can request it."""
    position: tuple[str, int]
    blocks: list[tuple[LogBlock, int]] | None = None
    size: int = 0

    def checked(self, commit: Point) -> Self:
        """Return it, if a reader can request it.

        :raises ServerSettingError: it was prepared without a GTID.
        """
        if not self.gtid:
            raise ServerSettingError(
                "an XA COMMIT commits what was prepared without a GTID: the tables have to be read again, with a new"
                " checkpoint",
                setting="gtid_mode",
                expected="ON",
                gtid=commit.gtid,
                file=commit.file,
                pos=commit.pos,
            )
        return self


class _Decoder(ItemDecoder[LogBlock | Ddl | Stopped], Protocol):
    """The part of :class:`~headgate.replication._decoder.LogDecoder` that is needed."""

    changes: int


class PreparedTransactions:
    """Prepared transactions that a reader knows, and the search for others. Outlives the reader's dumps.

    :param decoder_of: returns a decoder of these transactions that yields rows where they are logged.
    :param held_bytes: most bytes of images that are held until the commit.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        decoder_of: Callable[[Position], _Decoder],
        transport: Transport,
        held_bytes: int,
    ) -> None:
        self._held_bytes = held_bytes
        self._settings = settings
        self._decoder_of = decoder_of
        self._transport = transport.retrying(tries=0)  # the reader retries
        self._uuid = ""
        self._known: dict[str, Prepared] = {}
        self._pending_bytes = 0
        self._search = _Search(settings, "", self._transport)

    def begin(self, server_uuid: str) -> None:
        """Begin a dump. Discard what is known of another server's log."""
        if server_uuid != self._uuid:
            self._known.clear()
            self._pending_bytes = 0
        self._uuid = server_uuid
        self._search = _Search(self._settings, server_uuid, self._transport)

    def buffer(self, position: tuple[str, int]) -> PendingImages:
        """Return a buffer for the images of a transaction that begins."""
        return PendingImages(position, self._held_bytes - self._pending_bytes)

    def remember(self, xid: str, gtid: str, pending: PendingImages) -> None:
        """Record a prepared transaction."""
        self.forget(xid)
        self._known[xid] = Prepared(gtid, pending.position, pending.blocks, pending.size)
        self._pending_bytes += pending.size

    def forget(self, xid: str) -> None:
        """Discard a transaction that is over."""
        known = self._known.pop(xid, None)
        if known is not None:
            self._pending_bytes -= known.size

    def committed(self, xid: str, commit: Point) -> Iterator[tuple[LogBlock | Stopped, int]]:
        """Yield the images that an XA COMMIT commits, positioned there; each with the number of changes up to its end.

        :raises BinlogPurgedError: the log no longer holds the PREPARE.
        """
        prepared = self._known.get(xid) or self._search.find(xid, commit)
        items = prepared.blocks if prepared.blocks is not None else self.read_prepared(prepared.gtid, prepared.position)
        for item, counted in items:
            yield _at_commit(item, commit), counted

    def read_prepared(self, gtid: str, position: tuple[str, int]) -> Iterator[tuple[LogBlock | Stopped, int]]:
        """Yield a transaction's images, read from the log again; each with the number of changes up to its end.

        :raises BinlogPurgedError: the log no longer holds it.
        :raises IncompleteReadError: it did not arrive in full.
        """
        wanted = parse_position(gtid)
        read = LogRead(
            self._settings,
            wanted=wanted,
            server_uuid=self._uuid,
            hint=Hint(self._uuid, *position),
            falls_back=True,
            subject="a prepared XA transaction",
        )
        decoding = _AsLogged(self._decoder_of(wanted))
        for item in ResumableDump(read, decoding, self._transport).items():
            if not isinstance(item, Ddl):
                yield item, decoding.decoder.changes


@dataclass
class _AsLogged:
    """Factory with one decoder for one dump."""

    decoder: _Decoder

    def begin(self, _server_uuid: str, _read: LogRead, _skip: tuple[Gtid, int] | None) -> _Decoder:
        return self.decoder

    def close(self) -> None:
        """Do nothing: the decoder shares its connections with another dump, which continues."""


def _at_commit(item: LogBlock | Stopped, commit: Point) -> LogBlock | Stopped:
    """Return an item logged at a PREPARE, with position and GTID of its commit."""
    if isinstance(item, Stopped):
        return replace(item, gtid=commit.gtid, file=commit.file, pos=commit.pos)
    return LogBlock(
        [ImageBatch(image.table, _batch_at_commit(image.batch, commit)) for image in item.images], commit.file
    )


def _batch_at_commit(batch: pa.RecordBatch, commit: Point) -> pa.RecordBatch:
    n, schema = batch.num_rows, batch.schema
    seq = batch.column(1)
    columns = {
        1: seq_array(
            seq[0]["epoch"].as_py(),
            file_number(commit.file),
            np.full(n, commit.pos, np.int64),
            pc.struct_field(seq, "ordinal").to_numpy(),
        ),
        2: pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([commit.gtid], pa.string())),
        3: pa.array(np.full(n, commit.commit_us, np.int64)).cast(schema.field(3).type),
    }
    return pa.RecordBatch.from_arrays(
        [columns.get(index, column) for index, column in enumerate(batch.columns)], schema=schema
    )


# --- the search ---------------------------------------------------------------------------------------------------


@dataclass
class _File:
    """Known PREPAREs of one log file."""

    until: int = FIRST_EVENT
    """Everything before this position is known."""
    whole: bool = False
    prepares: dict[str, list[tuple[int, Prepared]]] = field(default_factory=dict)
    """PREPAREs of each xid with their positions, in log order."""


class _Search:
    """Backward search for PREPAREs in one server's log. Remembers those it met."""

    def __init__(self, settings: ConnectionSettings, server_uuid: str, transport: Transport) -> None:
        self._settings = settings
        self._uuid = server_uuid
        self._transport = transport
        self._files: dict[str, _File] = {}

    def find(self, xid: str, commit: Point) -> Prepared:
        """Return the nearest PREPARE of ``xid`` before its commit.

        :raises BinlogPurgedError: the log has none.
        :raises ServerSettingError: it has no GTID.
        """
        with self._transport.planned(self._settings, self._uuid) as connection:
            names = [name for name, _ in connection.log_files()]
        at = names.index(commit.file) if commit.file in names else -1
        until = (commit.file, commit.pos)
        for name in reversed(names[: at + 1]):
            for pos, prepared in reversed(self._known(name, until).prepares.get(xid, ())):
                if name != commit.file or pos < commit.pos:
                    return prepared.checked(commit)
            until = (name, FIRST_EVENT)
        raise BinlogPurgedError(
            f"the log no longer holds what XA COMMIT {xid} commits: it was prepared in a file that the server has"
            " purged; the tables have to be read again, with a new checkpoint",
            needed=commit.gtid,
            gtid=commit.gtid,
            file=commit.file,
            pos=commit.pos,
        )

    def _known(self, name: str, until: tuple[str, int]) -> _File:
        """Return the file, read up to a position in it, or to the beginning of the next one."""
        known = self._files.setdefault(name, _File())
        to_its_end = until[0] != name
        if not known.whole and (to_its_end or known.until < until[1]):
            read = LogRead(
                self._settings,
                start=(name, known.until),
                until=until,
                server_uuid=self._uuid,
                subject="a position that the server has",
            )
            try:
                scan(read, _Prepares(name, known), self._transport)
            except ServerError as error:
                if not has_no_file(error):
                    raise
                known.whole = True  # purged since the server listed it
            known.whole = known.whole or to_its_end
            known.until = known.until if to_its_end else until[1]
        return known


class _Prepares(Scan):
    """Collector of one file's PREPAREs. Ignores those already recorded."""

    def __init__(self, name: str, known: _File) -> None:
        self._name, self._known = name, known
        self._begin: GtidEvent | None = None

    def inspect(self, segment: Segment) -> None:
        if segment.file == self._name:
            self._begin = _note_prepares(segment, self._known, self._begin)


def _note_prepares(segment: Segment, known: _File, begin: GtidEvent | None) -> GtidEvent | None:
    """Record the segment's two-phase PREPAREs.

    :param begin: begin of the transaction that the segment begins in, if that was read.
    :return: the same for the next segment.
    """
    begins = gtid_indexes(segment)
    for at in np.flatnonzero(segment.buf[segment.start + codes.TYPE_OFFSET] == codes.XA_PREPARE).tolist():
        before = int(np.searchsorted(begins, at))
        transaction = gtid_event(segment, int(begins[before - 1])) if before else begin
        body = segment.buf[int(segment.start[at]) + codes.HEADER_SIZE : int(segment.end[at])].tobytes()
        one_phase, xid = parse_prepare(body)
        pos = int(segment.pos[at])
        if one_phase or transaction is None:
            continue
        prepares = known.prepares.setdefault(xid, [])
        if not prepares or prepares[-1][0] < pos:
            gtid = "" if transaction.gtid is None else str(transaction.gtid)
            prepares.append((pos, Prepared(gtid, (segment.file, transaction.pos))))
    return gtid_event(segment, int(begins[-1])) if len(begins) else begin


# --- xids ---------------------------------------------------------------------------------------------------------


def parse_prepare(body: bytes) -> tuple[bool, str]:
    """Return whether an XA_PREPARE event commits in one phase, and its xid as the server writes it in statements.

    :raises DecodeError: the event is truncated.
    """
    gtrid, bqual = int.from_bytes(body[5:9], "little"), int.from_bytes(body[9:13], "little")
    if len(body) < 13 + gtrid + bqual:
        raise DecodeError("an XA_PREPARE event is truncated")
    data = body[13 : 13 + gtrid + bqual]
    return bool(body[0]), _xid(data[:gtrid].hex(), data[gtrid:].hex(), int.from_bytes(body[1:5], "little"))


def parse_xa_statement(text: str) -> tuple[str, str] | None:
    """Return verb and xid of a statement that the server logs for XA transactions; None for other statements.

    >>> parse_xa_statement("XA COMMIT X'61',X'',1")
    ('COMMIT', "X'61',X'',1")
    """
    match = _STATEMENT.fullmatch(text)
    return match and (match[1].upper(), _xid(match[2], match[3], int(match[4])))


def _xid(gtrid: str, bqual: str, number: int) -> str:
    """Return the one spelling of an xid. The event has 32 bits of its number."""
    return f"X'{gtrid.lower()}',X'{bqual.lower()}',{number & 0xFFFFFFFF}"

"""One dump: a connection to the planned server, the request, the items that come back until the server ends it.

What a bounded reader has to know about the request stands in :mod:`headgate.replication._requests`. A log without GTIDs
is asked for by file and position (``headgate.places``). The events' checksums are asked for always; ``NONE`` would not
strip those already in the log.

If the settings name a copy of the log (``ConnectionSettings.log``), the server is not asked at all, or only for what
the copy no longer has. The bytes are the same, so nothing here or behind it knows the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from headgate.binlog import EndOfLog, ErrorPacket, Framer, LogPosition, Segment
from headgate.errors import BinlogPurgedError, ServerBehindError, ServerSettingError
from headgate.gtid import GtidSet
from headgate.mysql import ByteStream, Connection, KeptLog, log_position
from headgate.places import LogPlace, end_of, file_number
from headgate.replication._log_read import LogRead
from headgate.replication._requests import DumpRequest, dump_error, gtid_request, position_request
from headgate.replication._settings import check_settings
from headgate.replication._transport import TRANSPORT, Transport, check_planned

__all__ = ["Dump", "first_event", "open_dump", "place_of"]

_READ_AGAIN = "the server has purged log that is needed: the tables have to be read again, with a new checkpoint"


@dataclass
class Dump:
    """A dump that has begun."""

    stream: ByteStream
    framer: Framer
    needed: GtidSet
    """The transactions that it has to bring, where they are known: for errors."""
    server_uuid: str = ""

    def items(self) -> Iterator[Segment | LogPosition]:
        """Segments and positions until the server ends the dump. A segment is valid until the next one is asked for.

        :raises TransportError: the connection failed.
        :raises ServerError: the server ended the dump with an error.
        """
        stream, framer = self.stream, self.framer
        while True:
            item, used = framer.next(stream.buf, stream.start, stream.end)
            stream.consume(used - stream.start)
            if item is None:
                stream.fill(framer.needed)
                continue
            if isinstance(item, EndOfLog):
                return
            if isinstance(item, ErrorPacket):
                raise dump_error(item.data, self.needed)
            yield item

    @property
    def is_drained(self) -> bool:
        """Whether all that has come so far was given."""
        return self.stream.end <= self.stream.start


@contextmanager
def open_dump(read: LogRead, transport: Transport = TRANSPORT) -> Iterator[Dump]:
    """Begin a dump of a part of the log, or of more that has been committed since it was planned.

    :raises ServerBehindError: another server, or one that lacks transactions.
    :raises BinlogPurgedError: the log no longer holds what is needed.
    :raises ServerSettingError: the server's log does not have what is needed.
    """
    with ExitStack() as stack:
        kept = _kept(read, stack)
        if kept is not None:
            yield Dump(kept.stream, Framer(), read.wanted or GtidSet(), kept.server_uuid)
            return
        connection = stack.enter_context(transport.connect(read.settings))
        if read.followed is not None:
            check_settings(connection, read.followed, gtids=read.place is None, ordered=False)
        order = _checked(connection, read)
        _prepare(connection, transport.pacing.heartbeat_seconds if read.is_endless else None)
        yield Dump(connection.command(*order.request), Framer(), order.needed, order.server_uuid)


def first_event(read: LogRead, transport: Transport = TRANSPORT) -> bytes | None:
    """The first event that a dump brings, without its checksum; None: it brings none."""
    with open_dump(read, transport) as dump:
        for item in dump.items():
            if isinstance(item, Segment):
                return bytes(item.buf[int(item.start[0]) : int(item.end[0])].tobytes())
    return None


def place_of(item: Segment | LogPosition) -> tuple[int, int]:
    """File number and position up to which the log was read when this item came."""
    return file_number(item.file), int(item.next_pos[-1]) if isinstance(item, Segment) else item.pos


def _kept(read: LogRead, stack: ExitStack) -> KeptLog | None:
    """The part out of a kept copy of the log; None: the server has to be asked."""
    keeper = read.settings.log
    if keeper is None or read.place is not None or read.start is not None:
        return None
    try:
        return stack.enter_context(keeper.open(read.request()))
    except BinlogPurgedError:
        if not keeper.falls_back and not read.falls_back:
            raise
        return None


class _Order(NamedTuple):
    """What to ask of a server that was checked."""

    request: DumpRequest
    needed: GtidSet
    server_uuid: str


def _checked(connection: Connection, read: LogRead) -> _Order:
    """The order, if this is the planned server and its log has what is to be read."""
    if read.start is not None:
        return _by_position(connection, read, read.start)
    place = read.place
    return _by_gtids(connection, read) if place is None else _by_place(connection, read, place)


def _by_gtids(connection: Connection, read: LogRead) -> _Order:
    row = connection.query("SELECT @@global.server_uuid, @@global.gtid_executed, @@global.gtid_purged")[0]
    uuid, now, purged = str(row[0]), GtidSet.parse(str(row[1])), GtidSet.parse(str(row[2]))
    check_planned(uuid, read.server_uuid)
    if read.required is not None and not read.required <= now:
        raise ServerBehindError(
            "the server lacks transactions that the plan counts on: wait for it, or connect to another one",
            missing=str(read.required - now),
        )
    if read.wanted is not None:
        had, needed = now - read.wanted, read.wanted
    else:
        had = read.had or GtidSet()
        needed = now - had
    lost = purged & needed
    if lost:
        raise BinlogPurgedError(_READ_AGAIN, needed=str(lost), purged=str(purged))
    hint = read.hint if read.hint is not None and read.hint.server_uuid == uuid else None
    return _Order(gtid_request(had, read.server_id, hint), needed, uuid)


def _by_place(connection: Connection, read: LogRead, place: LogPlace) -> _Order:
    """In a log without GTIDs."""
    now = log_position(connection)
    end = end_of(now)
    if end is None:
        raise ServerSettingError(
            "gtid_mode is ON, but the position is one of a log without GTIDs: the tables have to be read again,"
            " with a new checkpoint",
            setting="gtid_mode",
            expected="OFF",
            actual="ON",
        )
    check_planned(end.server_uuid, read.server_uuid)
    if end.server_uuid != place.server_uuid:
        raise ServerBehindError(
            f"connected to server {end.server_uuid}, but the position is one of {place.server_uuid}: without GTIDs"
            " a stream cannot go on at another server"
        )
    if end < place or (read.required is not None and not read.required <= now):
        raise ServerBehindError("the server's log ends before the position: was it reset?")
    names = {file_number(str(row[0])): str(row[0]) for row in connection.query("SHOW BINARY LOGS")}
    if place.file not in names:
        needed, purged = f"file {place.file}, position {place.pos}", f"files before {min(names, default=0)}"
        raise BinlogPurgedError(_READ_AGAIN, needed=needed, purged=purged)
    return _Order(position_request(names[place.file], place.pos, read.server_id), GtidSet(), end.server_uuid)


def _by_position(connection: Connection, read: LogRead, start: tuple[str, int]) -> _Order:
    """All events from a position on, whatever their transactions."""
    uuid = ""
    if read.server_uuid is not None:
        uuid = str(connection.query("SELECT @@global.server_uuid")[0][0])
        check_planned(uuid, read.server_uuid)
    return _Order(position_request(*start, read.server_id), GtidSet(), uuid)


def _prepare(connection: Connection, heartbeat_seconds: float | None) -> None:
    """Session variables that the dump reads (both spellings: before and since 8.0.26)."""
    connection.query("SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")
    if heartbeat_seconds is not None:
        period = int(heartbeat_seconds * 1_000_000_000)
        connection.query(f"SET @source_heartbeat_period = {period}, @master_heartbeat_period = {period}")

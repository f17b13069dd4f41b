"""One dump: a connection to the planned server, the request, and the items until the server ends it.

Facts about requests of bounded readers are in :mod:`headgate.replication._requests`. A log without GTIDs is requested
by file and position (``headgate.binlog_positions``). Checksums are always requested; ``NONE`` would not strip those
already in the log.

**A hint proves itself.** A dump that begins inside a file first sends the file's FORMAT_DESCRIPTION event, with the
time at which the file was created (MySQL source ``sql/rpl_binlog_sender.cc``, ``send_format_description_event``). A
file only grows, so if that is the hint's time, the hint leads to the same event as when it was made. Else another dump
begins without it: the file's name was used again, or the file was purged meanwhile.

If the settings name a binlog archive (``ConnectionSettings.log``), the server gets no request, or only for what the
archive no longer has. The bytes are the same, so readers see no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from headgate.binlog import EndOfLog, ErrorPacket, Framer, LogPosition, Segment
from headgate.binlog_positions import BinlogPosition, end_of, file_number, positions_before
from headgate.errors import BinlogPurgedError, ServerBehindError, ServerSettingError
from headgate.gtid import GtidSet
from headgate.mysql import ArchivedLog, ByteStream, Connection, log_position, log_status, missing_error
from headgate.offsets import Hint
from headgate.replication._log_read import LogRead
from headgate.replication._requests import DumpRequest, dump_error, gtid_request, position_request
from headgate.replication._settings import check_settings
from headgate.replication._transport import TRANSPORT, Transport, check_planned

__all__ = ["Dump", "first_event", "open_dump", "position_of"]

_HEARTBEAT_NANOSECONDS: Final = 1_000_000_000
"""Interval of heartbeats that a server sends on an endless dump without new events."""
_READ_AGAIN = "the server has purged log that is needed: the tables have to be read again, with a new checkpoint"


@dataclass
class Dump:
    """A dump that has begun."""

    stream: ByteStream
    framer: Framer
    needed: GtidSet
    """Transactions that it must deliver, if they are known: for errors."""
    server_uuid: str = ""
    begin: Hint | None = None
    """Hint at which it begins."""

    def items(self) -> Iterator[Segment | LogPosition]:
        """Yield segments and positions until the server ends the dump. A segment is valid until the next item.

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

    def segments(self) -> Iterator[Segment]:
        """Yield the segments among :meth:`items`, with the same errors."""
        return (item for item in self.items() if isinstance(item, Segment))

    def proves_begin(self) -> bool:
        """Return whether the dump begins in the file of its hint, as far as the file's creation time is known.

        Waits for the first packets and consumes nothing.
        """
        hint, stream, framer, used = self.begin, self.stream, Framer(), 0
        if hint is None or not hint.created_s:
            return True
        while not framer.created_s:
            item, behind = framer.next(stream.buf, stream.start + used, stream.end)
            if isinstance(item, (Segment, EndOfLog, ErrorPacket)):
                return False
            used = behind - stream.start
            if item is None:
                stream.fill(used + framer.needed)
        return framer.created_s == {hint.file: hint.created_s}

    def hint(self, file: str, pos: int) -> Hint:
        """Return a position that the dump has met as a hint for later dumps."""
        return Hint(self.server_uuid, file, pos, self.framer.created_s.get(file, 0))

    @property
    def is_drained(self) -> bool:
        """Whether everything that has arrived was yielded."""
        return self.stream.end <= self.stream.start


@contextmanager
def open_dump(read: LogRead, transport: Transport = TRANSPORT) -> Iterator[Dump]:
    """Begin a dump of a part of the log. It may also bring what has been committed since the read was planned.

    :raises ServerBehindError: the server is another one, or lacks transactions.
    :raises HistoryRewrittenError: the server has lost transactions that it had.
    :raises BinlogPurgedError: the log no longer holds what is needed.
    :raises ServerSettingError: the server's log does not have what is needed.
    """
    with ExitStack() as stack:
        archived = _archived(read, stack)
        if archived is not None:
            yield Dump(archived.stream, Framer(), read.wanted or GtidSet(), archived.server_uuid)
            return
        dump = stack.enter_context(_requested(read, transport))
        if not dump.proves_begin():
            stack.close()
            dump = stack.enter_context(_requested(replace(read, hint=None), transport))
        yield dump


@contextmanager
def _requested(read: LogRead, transport: Transport) -> Iterator[Dump]:
    """Request a part of the log from the server."""
    with transport.connect(read.settings) as connection:
        if read.followed is not None:
            check_settings(connection, read.followed, gtids=read.begin_position is None, ordered=False)
        checked = _checked(connection, read)
        _prepare(connection, read)
        stream = connection.command(*checked.request)
        yield Dump(stream, Framer(), checked.needed, checked.server_uuid, checked.hint)


def first_event(read: LogRead, transport: Transport = TRANSPORT) -> bytes | None:
    """Return the first event of a dump, without its checksum; None if the dump brings none."""
    with open_dump(read, transport) as dump:
        first = next(dump.segments(), None)
        return None if first is None else bytes(first.buf[int(first.start[0]) : int(first.end[0])].tobytes())


def position_of(item: Segment | LogPosition) -> tuple[int, int]:
    """Return the file number and position up to which the log was read when this item came."""
    return file_number(item.file), int(item.next_pos[-1]) if isinstance(item, Segment) else item.pos


def _archived(read: LogRead, stack: ExitStack) -> ArchivedLog | None:
    """Open the part in the binlog archive; None: request it from the server."""
    archive = read.settings.log
    if archive is None or read.begin_position is not None or read.start is not None:
        return None
    try:
        return stack.enter_context(archive.open(read.request()))
    except BinlogPurgedError:
        if not archive.falls_back and not read.falls_back:
            raise
        return None


class _CheckedRequest(NamedTuple):
    """Request for a server that was checked."""

    request: DumpRequest
    needed: GtidSet
    server_uuid: str
    hint: Hint | None = None
    """Hint at which the dump begins."""


def _checked(connection: Connection, read: LogRead) -> _CheckedRequest:
    """Return the request, if this is the planned server and its log has the part to read."""
    if read.start is not None:
        return _by_start(connection, read, read.start)
    position = read.begin_position
    return _by_gtids(connection, read) if position is None else _by_binlog_position(connection, read, position)


def _by_gtids(connection: Connection, read: LogRead) -> _CheckedRequest:
    row = connection.query("SELECT @@global.server_uuid, @@global.gtid_executed, @@global.gtid_purged")[0]
    uuid, now, purged = str(row[0]), GtidSet.parse(str(row[1])), GtidSet.parse(str(row[2]))
    check_planned(uuid, read.server_uuid)
    if read.required is not None and not read.required <= now:
        raise missing_error(
            connection,
            read.required - now,
            had_them=read.was_complete_on(uuid),
            behind="the server lacks transactions that the plan needs: wait for it, or connect to another one",
        )
    if read.wanted is not None:
        executed_before, needed = now - read.wanted, read.wanted
    else:
        executed_before = read.executed_before or GtidSet()
        needed = now - executed_before
    lost = purged & needed
    if lost:
        raise BinlogPurgedError(_READ_AGAIN, needed=str(lost), purged=str(purged))
    hint = _usable(connection, read, uuid)
    return _CheckedRequest(gtid_request(executed_before, read.server_id, hint), needed, uuid, hint)


def _usable(connection: Connection, read: LogRead, server_uuid: str) -> Hint | None:
    """Return the read's hint if it is of this server, and the position is still in its log. Files are purged although
    nobody needs them any more, and a dump that begins in one fails.
    """
    hint = read.hint
    if hint is None or hint.server_uuid != server_uuid or (read.wanted is None and not hint.created_s):
        return None
    current, end = log_status(connection)
    if hint.file == current:  # as with most dumps; to list all files, the server opens each
        return hint if hint.pos <= end else None
    sizes = {str(row[0]): int(row[1]) for row in connection.query("SHOW BINARY LOGS")}
    return hint if hint.pos <= sizes.get(hint.file, -1) else None


def _by_binlog_position(connection: Connection, read: LogRead, position: BinlogPosition) -> _CheckedRequest:
    """Return the request without GTIDs."""
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
    if end.server_uuid != position.server_uuid:
        raise ServerBehindError(
            f"connected to server {end.server_uuid}, but the position is one of {position.server_uuid}: without GTIDs"
            " a stream cannot continue on another server"
        )
    missing = (positions_before(*position) | (read.required or GtidSet())) - now
    if missing:
        raise missing_error(connection, missing, had_them=True, behind="")
    names = {file_number(str(row[0])): str(row[0]) for row in connection.query("SHOW BINARY LOGS")}
    if position.file not in names:
        needed, purged = f"file {position.file}, position {position.pos}", f"files before {min(names, default=0)}"
        raise BinlogPurgedError(_READ_AGAIN, needed=needed, purged=purged)
    return _CheckedRequest(
        position_request(names[position.file], position.pos, read.server_id), GtidSet(), end.server_uuid
    )


def _by_start(connection: Connection, read: LogRead, start: tuple[str, int]) -> _CheckedRequest:
    """Return the request for all events from a position on."""
    uuid = ""
    if read.server_uuid is not None:
        uuid = str(connection.query("SELECT @@global.server_uuid")[0][0])
        check_planned(uuid, read.server_uuid)
    return _CheckedRequest(position_request(*start, read.server_id), GtidSet(), uuid)


def _prepare(connection: Connection, read: LogRead) -> None:
    """Set the session variables that the dump reads (both spellings: before and since 8.0.26)."""
    connection.query("SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")
    if read.is_endless:
        period = _HEARTBEAT_NANOSECONDS
        connection.query(f"SET @source_heartbeat_period = {period}, @master_heartbeat_period = {period}")

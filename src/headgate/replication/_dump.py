"""One dump: a connection to the planned server, the request, and the items until the server ends it.

Facts about requests of bounded readers are in :mod:`headgate.replication._requests`. The position says what a dump
asks for (``Position.request``). Checksums are always requested; ``NONE`` would not strip those already in the log.

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
from functools import partial
from typing import Final, NamedTuple

from headgate.binlog import EndOfLog, ErrorPacket, Framer, LogPosition, Segment
from headgate.errors import BinlogPurgedError, HistoryRewrittenError
from headgate.mysql import ArchivedLog, ByteStream, Connection, check_required, missing_error, server_identity
from headgate.offsets import Hint
from headgate.positions import NOTHING, ExecutedLog, Position, check_kind, file_number, read_executed
from headgate.replication._log_read import LogRead
from headgate.replication._requests import DumpRequest, dump_error, gtid_request, position_request
from headgate.replication._transport import TRANSPORT, Transport, check_planned
from headgate.retrying import RetryPolicy

__all__ = ["Dump", "first_event", "open_dump", "position_of"]

_HEARTBEAT_NANOSECONDS: Final = 1_000_000_000
"""Interval of heartbeats that a server sends on an endless dump without new events."""
_READ_AGAIN = (
    "the server has purged log that is needed, so the tables have to be read again: by headgate run with"
    " --snapshot-mode when_needed, by a query of yours with a new checkpoint"
)


@dataclass
class Dump:
    """A dump that has begun."""

    stream: ByteStream
    framer: Framer
    needed: Position
    """What it must deliver, if that is known: for errors."""
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
            yield Dump(archived.stream, Framer(), read.wanted or NOTHING, archived.server_uuid)
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
        if read.is_endless:  # no planner has checked the server
            check_required(connection, kinds=[type(read.bounds)], ordered=False)
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
    if archive is None or read.start is not None:
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
    needed: Position
    server_uuid: str
    hint: Hint | None = None
    """Hint at which the dump begins."""


_SETTLES: Final = RetryPolicy(0.05, tries=5, errors=HistoryRewrittenError)
"""Looks at what the server has executed. A dump sends a transaction once it is synced, before ``gtid_executed`` has it
(``MYSQL_BIN_LOG::ordered_commit`` in the server's binlog.cc), so a second dump may need more than is shown yet."""


def _checked(connection: Connection, read: LogRead) -> _CheckedRequest:
    """Return the request, if this is the planned server and its log has the part to read."""
    if read.start is not None:
        return _by_start(connection, read, read.start)
    log = _SETTLES.call(partial(_executed, connection, read))
    needed = read.bounds if read.wanted is not None else log.executed - read.bounds
    purged = log.purged(connection)
    lost = purged & needed
    if lost:
        raise BinlogPurgedError(_READ_AGAIN, needed=str(lost), purged=str(purged))
    start = read.bounds.request(connection, log.executed, inside=read.wanted is not None)
    if start.executed_before is None:
        request = position_request(start.file, start.pos, read.server_id)
        return _CheckedRequest(request, needed, log.server_uuid)
    hint = _usable(connection, read, log.server_uuid)
    return _CheckedRequest(gtid_request(start.executed_before, read.server_id, hint), needed, log.server_uuid, hint)


def _executed(connection: Connection, read: LogRead) -> ExecutedLog:
    """Return the log's end on the planned server, which has executed what is required."""
    log = read_executed(connection)
    check_planned(log.server_uuid, read.server_uuid)
    check_kind(read.bounds, log.executed)
    missing = read.required - log.executed
    if missing:
        raise missing_error(
            connection,
            missing,
            server_uuid=log.server_uuid,
            had_them=read.was_complete_on(log.server_uuid),
            behind="the server lacks transactions that the plan needs: wait for it, or connect to one that has them",
        )
    return log


def _usable(connection: Connection, read: LogRead, server_uuid: str) -> Hint | None:
    """Return the read's hint if it is of this server, and the position is still in its log. Files are purged although
    nobody needs them any more, and a dump that begins in one fails.
    """
    hint = read.hint
    if hint is None or hint.server_uuid != server_uuid or (read.wanted is None and not hint.created_s):
        return None
    current, end = connection.log_status()
    if hint.file == current:  # as with most dumps
        return hint if hint.pos <= end else None
    return hint if hint.pos <= dict(connection.log_files()).get(hint.file, -1) else None


def _by_start(connection: Connection, read: LogRead, start: tuple[str, int]) -> _CheckedRequest:
    """Return the request for all events from a position on."""
    uuid = ""
    if read.server_uuid is not None:
        uuid = server_identity(connection)
        check_planned(uuid, read.server_uuid)
    return _CheckedRequest(position_request(*start, read.server_id), NOTHING, uuid)


def _prepare(connection: Connection, read: LogRead) -> None:
    """Set the session variables that the dump reads (both spellings: before and since 8.0.26)."""
    connection.query("SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")
    if read.is_endless:
        period = _HEARTBEAT_NANOSECONDS
        connection.query(f"SET @source_heartbeat_period = {period}, @master_heartbeat_period = {period}")

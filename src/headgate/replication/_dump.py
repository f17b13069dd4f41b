"""One dump: the request, the connection, the items that come back.

Layouts: MySQL source ``sql/rpl_source.cc`` (``com_binlog_dump``, ``com_binlog_dump_gtid``) and the client/server
protocol, "COM_BINLOG_DUMP_GTID". What a bounded reader has to know:

- ``server_id`` 0 never conflicts with another dump; with any other id the server ends the older dump of the same id.
- A file name and position may stand beside the GTID set: the server starts there and still filters by the set. That
  skips the server's own check for purged transactions, so :func:`open_dump` checks it first.
- A log without GTIDs is asked for by file and position (``headgate._places``).
- The events' checksums are asked for always; ``NONE`` would not strip those already in the log.

Where the settings name somebody who keeps the log (``ConnectionSettings.log``), the server is not asked at all, or only
for what is not kept any more. The bytes are the same, so nothing here or behind it knows the difference.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from headgate._places import LogPlace, begin_of, end_of, file_number
from headgate.binlog import EndOfLog, ErrorPacket, Framer, LogPosition, Segment
from headgate.errors import (
    BinlogPurgedError,
    HeadgateError,
    IncompleteReadError,
    ServerBehindError,
    ServerSettingError,
)
from headgate.gtid import GtidSet
from headgate.mysql import ByteStream, Connection, ConnectionSettings, LogRequest, log_position, server_error
from headgate.replication._types import LogHint

__all__ = ["Dump", "dump_error", "open_dump", "open_file_dump"]

_COM_BINLOG_DUMP: Final = 0x12
_COM_BINLOG_DUMP_GTID: Final = 0x1E
_NON_BLOCK: Final = 0x01
_THROUGH_GTID: Final = 0x04
_LARGEST_POS: Final = 2**32 - 1
"""COM_BINLOG_DUMP has four bytes for the position."""
_FIRST_EVENT: Final = 4
"""Where a file's first event begins."""
_ER_FATAL_READING: Final = 1236
"""ER_SOURCE_FATAL_ERROR_READING_BINLOG: the server cannot serve the dump; the text says why."""


@dataclass
class Dump:
    """A dump that has begun. ``file`` and ``pos`` say how far the server has read its log for it."""

    stream: ByteStream
    framer: Framer
    needed: GtidSet
    server_uuid: str = ""
    file: str = ""
    pos: int = 4

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
            if isinstance(item, LogPosition):
                self._reached(item.file, item.pos)
                yield item
                continue
            yield item
            self._reached(item.file, int(item.next_pos[-1]))

    def _reached(self, file: str, pos: int) -> None:
        if file != self.file:
            self.file, self.pos = file, pos
        else:
            self.pos = max(self.pos, pos)


def dump_error(data: bytes, needed: GtidSet) -> HeadgateError:
    """The error of an error packet: code (2 bytes), ``#``, SQLSTATE (5 bytes), message."""
    code = int.from_bytes(data[:2], "little")
    has_state = data[2:3] == b"#"
    message = data[8 if has_state else 2 :].decode("utf-8", "replace")
    sqlstate = data[3:8].decode("ascii", "replace") if has_state else ""
    if code == _ER_FATAL_READING:
        if "purged" in message:
            return BinlogPurgedError(f"the server has purged log that is needed: {message}", needed=str(needed))
        if "AUTO_POSITION" in message:  # gtid_mode is not ON, or a transaction in the log has no GTID
            return ServerSettingError(
                f"the server cannot send its log by GTID: {message} SET GLOBAL gtid_mode = ON; what was written without"
                " a GTID is lost to a stream, so read the tables again from a position after it",
                setting="gtid_mode", expected="ON",
            )  # fmt: skip
        if "same server_uuid" in message or "same server_id" in message or "Network" in message:
            return IncompleteReadError(f"the server ended the dump: {message}")
    return server_error(code, sqlstate, message)


def _gtid_request(had: GtidSet, server_id: int, flags: int, hint: LogHint | None) -> bytes:
    name = hint.file.encode() if hint else b""
    pos = hint.pos if hint else 4
    data = had.encode()
    return (
        struct.pack("<HII", flags | _THROUGH_GTID, server_id, len(name))
        + name
        + struct.pack("<QI", pos, len(data))
        + data
    )


@contextmanager
def open_dump(
    settings: ConnectionSettings,
    *,
    had: GtidSet | None = None,
    wanted: GtidSet | None = None,
    executed: GtidSet | None = None,
    server_uuid: str | None = None,
    hint: LogHint | None = None,
    server_id: int = 0,
    heartbeat_seconds: float | None = None,
    until: tuple[str, int] | None = None,
    falls_back: bool = False,
    check: Callable[[Connection], object] = lambda _: None,
) -> Iterator[Dump]:
    """A dump of everything outside ``had``, or of ``wanted`` (and whatever was committed since it was planned).

    :param executed: what the server must have executed (a server that lacks it would answer with too little, silently).
    :param server_uuid: the server that the caller planned with.
    :param server_id: 0 for a bounded dump, which ends at the log's end; otherwise the dump goes on for ever.
    :param until: a file and position that the server named, where the log is given by somebody else, who may be behind.
    :param falls_back: ask the server for what that one does not keep any more, whatever the settings say.
    :param check: called with the connection to the server, before it is asked for the log.
    :raises ServerBehindError: another server, or one that lacks transactions.
    :raises BinlogPurgedError: the log no longer holds what is needed.
    """
    begin = begin_of(wanted) if wanted is not None else end_of(had or GtidSet())
    if settings.log is not None and begin is None:
        asked = LogRequest(
            had=None if wanted is not None else had, wanted=wanted, executed=executed, server_uuid=server_uuid,
            until=until, endless=server_id != 0,
        )  # fmt: skip
        with ExitStack() as stack:
            kept = None
            try:
                kept = stack.enter_context(settings.log.open(asked))
            except BinlogPurgedError:
                if not settings.log.falls_back and not falls_back:
                    raise
            if kept is not None:
                yield Dump(kept.stream, Framer(), wanted or GtidSet(), kept.server_uuid)
                return
    if begin is not None:
        with _open_place_dump(settings, begin, executed, server_uuid, server_id, heartbeat_seconds, check) as dump:
            yield dump
        return
    with Connection.open(settings) as connection:
        check(connection)
        row = connection.query("SELECT @@global.server_uuid, @@global.gtid_executed, @@global.gtid_purged")[0]
        uuid, now, purged = str(row[0]), GtidSet.parse(str(row[1])), GtidSet.parse(str(row[2]))
        if server_uuid is not None and uuid != server_uuid:
            raise ServerBehindError(f"connected to server {uuid}, but the read was planned on {server_uuid}")
        if executed is not None and not executed <= now:
            raise ServerBehindError(
                "the server lacks transactions that the plan counts on: wait for it, or connect to another one",
                missing=str(executed - now),
            )
        if wanted is not None:
            had = now - wanted
        assert had is not None
        needed = (now - had) if wanted is None else wanted
        lost = purged & needed
        if lost:
            raise BinlogPurgedError(
                "the server has purged log that is needed: the tables have to be read again, with a new checkpoint",
                needed=str(lost), purged=str(purged),
            )  # fmt: skip
        _prepare(connection, heartbeat_seconds)
        usable = hint if hint is not None and hint.server_uuid == uuid else None
        flags = 0 if server_id else _NON_BLOCK
        stream = connection.command(_COM_BINLOG_DUMP_GTID, _gtid_request(had, server_id, flags, usable))
        yield Dump(stream, Framer(), needed, uuid)


@contextmanager
def _open_place_dump(
    settings: ConnectionSettings,
    begin: LogPlace,
    executed: GtidSet | None,
    server_uuid: str | None,
    server_id: int,
    heartbeat_seconds: float | None,
    check: Callable[[Connection], object],
) -> Iterator[Dump]:
    """A dump from a place of a log without GTIDs on; from its file's beginning if the request cannot say the place."""
    with Connection.open(settings) as connection:
        check(connection)
        now = log_position(connection)
        end = end_of(now)
        if end is None:
            raise ServerSettingError(
                "gtid_mode is ON, but the position is one of a log without GTIDs: the tables have to be read again,"
                " with a new checkpoint", setting="gtid_mode", expected="OFF", actual="ON",
            )  # fmt: skip
        if end.server_uuid != begin.server_uuid or server_uuid not in (None, end.server_uuid):
            raise ServerBehindError(
                f"connected to server {end.server_uuid}, but the position is one of {begin.server_uuid}: without GTIDs"
                " a stream cannot go on at another server"
            )
        if end < begin or (executed is not None and not executed <= now):
            raise ServerBehindError("the server's log ends before the position: was it reset?")
        names = {file_number(str(row[0])): str(row[0]) for row in connection.query("SHOW BINARY LOGS")}
        if begin.file not in names:
            raise BinlogPurgedError(
                "the server has purged log that is needed: the tables have to be read again, with a new checkpoint",
                needed=f"file {begin.file}, position {begin.pos}", purged=f"files before {min(names, default=0)}",
            )  # fmt: skip
        _prepare(connection, heartbeat_seconds)
        pos = begin.pos if begin.pos <= _LARGEST_POS else _FIRST_EVENT
        request = struct.pack("<IHI", pos, 0 if server_id else _NON_BLOCK, server_id) + names[begin.file].encode()
        yield Dump(connection.command(_COM_BINLOG_DUMP, request), Framer(), GtidSet(), end.server_uuid)


@contextmanager
def open_file_dump(connection: Connection, file: str, pos: int = 4) -> Iterator[Dump]:
    """A bounded dump of the log from a position in a file on, all transactions. The connection cannot be used again."""
    _prepare(connection, None)
    request = struct.pack("<IHI", pos, _NON_BLOCK, 0) + file.encode()
    yield Dump(connection.command(_COM_BINLOG_DUMP, request), Framer(), GtidSet())


def _prepare(connection: Connection, heartbeat_seconds: float | None) -> None:
    """Session variables that the dump reads (both spellings: before and since 8.0.26)."""
    connection.query("SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32'")
    if heartbeat_seconds is not None:
        period = int(heartbeat_seconds * 1_000_000_000)
        connection.query(f"SET @source_heartbeat_period = {period}, @master_heartbeat_period = {period}")

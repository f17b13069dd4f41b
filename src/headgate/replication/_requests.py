"""Commands that request a server's log, and the error packets that answer them.

Layouts: MySQL source ``sql/rpl_source.cc`` (``com_binlog_dump``, ``com_binlog_dump_gtid``) and the client/server
protocol, "COM_BINLOG_DUMP", "COM_BINLOG_DUMP_GTID" and "ERR_Packet"::

    COM_BINLOG_DUMP_GTID  flags u16 | server_id u32 | name size u32 | name | pos u64 | set size u32 | GTID set
    COM_BINLOG_DUMP       pos u32 | flags u16 | server_id u32 | name
    ERR                   ff | code u16 | '#' | SQLSTATE 5 | message

- ``server_id`` 0 never conflicts with another dump; with any other id the server ends the older dump of the same id.
- A file name and position may accompany the GTID set: the server starts there and still filters by the set. It then
  skips its own check for purged transactions, so the caller must check first.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headgate.errors import BinlogPurgedError, HeadgateError, IncompleteReadError, ServerError, ServerSettingError
from headgate.mysql import server_error
from headgate.offsets import Hint
from headgate.positions import Position

__all__ = ["FIRST_EVENT", "DumpRequest", "dump_error", "gtid_request", "has_no_file", "position_request"]

FIRST_EVENT: Final = 4
"""Position of a file's first event, behind the magic number."""

_COM_BINLOG_DUMP: Final = 0x12
_COM_BINLOG_DUMP_GTID: Final = 0x1E
_NON_BLOCK: Final = 0x01
_HEARTBEAT_V2: Final = 0x02
"""Heartbeats with positions of 64 bits (``USE_HEARTBEAT_EVENT_V2``, MySQL source ``include/mysql.h``). Servers before
8.0.26 ignore it.
"""
_THROUGH_GTID: Final = 0x04
_LARGEST_POS: Final = 2**32 - 1
"""COM_BINLOG_DUMP has four bytes for the position."""
_ER_FATAL_READING: Final = 1236
"""ER_SOURCE_FATAL_ERROR_READING_BINLOG: the server cannot serve the dump. The text says why."""
_PASSING: Final = ("same server_uuid", "same server_id", "Network")
"""Texts of that error after which a retry may succeed: another dump took this one's place, or bytes were lost."""


class DumpRequest(NamedTuple):
    """A command byte and its payload."""

    command: int
    payload: bytes


def gtid_request(executed_before: bytes, server_id: int, hint: Hint | None) -> DumpRequest:
    """Request everything outside ``executed_before`` (encoded); up to the log's end if ``server_id`` is 0.

    :param hint: the position in this server's log to begin at. None: the server finds it.
    """
    name, pos = (b"", FIRST_EVENT) if hint is None else (hint.file.encode(), hint.pos)
    head = struct.pack("<HII", _flags(server_id) | _THROUGH_GTID, server_id, len(name))
    return DumpRequest(
        _COM_BINLOG_DUMP_GTID, head + name + struct.pack("<QI", pos, len(executed_before)) + executed_before
    )


def position_request(file: str, pos: int, server_id: int) -> DumpRequest:
    """Request everything from a position on; from its file's beginning if the request cannot hold the position."""
    pos = pos if pos <= _LARGEST_POS else FIRST_EVENT
    return DumpRequest(_COM_BINLOG_DUMP, struct.pack("<IHI", pos, _flags(server_id), server_id) + file.encode())


def _flags(server_id: int) -> int:
    return _HEARTBEAT_V2 if server_id else _HEARTBEAT_V2 | _NON_BLOCK


def dump_error(data: bytes, needed: Position) -> HeadgateError:
    """Return the error for an error packet's bytes after the ``ff``.

    :param needed: the requested transactions.
    """
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
                setting="gtid_mode",
                expected="ON",
            )
        if any(text in message for text in _PASSING):
            return IncompleteReadError(f"the server ended the dump: {message}")
    return server_error(code, sqlstate, message)


def has_no_file(error: ServerError) -> bool:
    """Return whether a dump from a position failed because the server no longer has the file."""
    return bool(error.code == _ER_FATAL_READING)

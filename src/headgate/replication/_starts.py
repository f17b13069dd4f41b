"""Start positions in a server's log: of commands, and of pipelines that begin without reading tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.binlog_positions import BinlogPosition, end_of, file_number, positions_before
from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, log_position
from headgate.replication._times import gtids_before

__all__ = ["check_start", "position_text", "start_of"]


def start_of(connection: Connection, start: str) -> tuple[GtidSet, GtidSet]:
    """Return the GTID set that counts as already read, and the one that the server has executed now.

    :param start: ``current``, ``earliest``, a time with its zone (the first transaction committed then or later is the
        first to read) or a GTID set; without GTIDs ``file:position`` instead.
    :raises ConfigError: none of these, or a time in the future.
    :raises ServerBehindError: the server has not executed all of the GTID set.
    :raises BinlogPurgedError: the log no longer holds what follows it.
    """
    executed = log_position(connection)
    purged = GtidSet.parse(str(connection.query("SELECT @@global.gtid_purged")[0][0]))
    log_end = end_of(executed)
    if log_end is not None:
        oldest = str(connection.query("SHOW BINARY LOGS")[0][0])
        purged = positions_before(log_end.server_uuid, file_number(oldest), 4)
    if start.lower() == "current":
        return executed, executed
    if start.lower() == "earliest":
        return purged, executed
    time_us = _time_in(start)
    if time_us is not None:
        return gtids_before(connection.settings, time_us), executed
    read_before = _parsed(start, log_end)
    if not read_before <= executed:
        raise ServerBehindError(
            f"{connection.settings} has not executed {read_before - executed}: is this the right server?"
        )
    if not purged <= read_before:
        raise BinlogPurgedError(
            f"the log of {connection.settings} no longer holds {purged - read_before}: begin at earliest",
            needed=str(purged - read_before),
            purged=str(purged),
        )
    return read_before, executed


def check_start(start: str) -> None:
    """Check the form of a start position, without a server.

    :raises ConfigError: none that :func:`start_of` takes.
    """
    if start.lower() not in ("current", "earliest") and _time_in(start) is None and not _FILE_POSITION.fullmatch(start):
        _parsed(start, None)


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")


def _time_in(start: str) -> int | None:
    """Return microseconds since 1970-01-01 UTC, or None if ``start`` is not a time."""
    if not _TIME.fullmatch(start):
        return None
    try:
        moment = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", start))
    except ValueError:
        raise ConfigError(f"the start is {start!r}; a time looks like 2026-11-21T10:00:00Z") from None
    if moment.tzinfo is None:
        raise ConfigError(f"the start is {start!r}: add its zone, as in {start}Z or {start}+01:00")
    if moment > datetime.now(UTC):
        raise ConfigError(f"the start is {start!r}, which is in the future; current means now")
    return (moment - _EPOCH) // timedelta(microseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FILE_POSITION: Final = re.compile(r"\S*\.([0-9]{1,9}):([0-9]{1,13})")


def _parsed(start: str, log_end: BinlogPosition | None) -> GtidSet:
    """:param log_end: the end of a log without GTIDs."""
    match = _FILE_POSITION.fullmatch(start)
    if log_end is not None and match is not None:
        return positions_before(log_end.server_uuid, int(match[1]), int(match[2]))
    try:
        return GtidSet.parse(start)
    except (ConfigError, ValueError):
        expected = "a GTID set (uuid:1-5)" if log_end is None else "file:position (binlog.000003:157)"
        raise ConfigError(f"the start is {start!r}; expected current, earliest, a time or {expected}") from None


def position_text(connection: Connection, position: GtidSet) -> str:
    """Return a position as :func:`start_of` takes it: a GTID set, or without GTIDs ``file:position``."""
    binlog_position = end_of(position)
    if binlog_position is None:
        return str(position)
    names = (str(row[0]) for row in connection.query("SHOW BINARY LOGS"))
    file = next((name for name in names if file_number(name) == binlog_position.file), f".{binlog_position.file:06d}")
    return f"{file}:{binlog_position.pos}"

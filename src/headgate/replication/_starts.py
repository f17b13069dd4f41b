"""Start positions in a server's log: of commands, and of pipelines that begin without reading tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.binlog_positions import FilePosition, NamedStart, end_of, file_number, parse_start, positions_before
from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, log_position
from headgate.replication._times import gtids_before

__all__ = ["position_text", "start_of"]


def start_of(connection: Connection, start: str) -> tuple[GtidSet, GtidSet]:
    """Return the GTID set that counts as already read, and the one that the server has executed now.

    :param start: as :func:`~headgate.binlog_positions.parse_start` takes it.
    :raises ConfigError: it is none of these, a time in the future, or of the other kind of server (with or without
        GTIDs).
    :raises ServerBehindError: the server has not executed all of the GTID set.
    :raises BinlogPurgedError: the log no longer holds what follows it.
    """
    executed = log_position(connection)
    purged = GtidSet.parse(str(connection.query("SELECT @@global.gtid_purged")[0][0]))
    log_end = end_of(executed)
    if log_end is not None:
        oldest = str(connection.query("SHOW BINARY LOGS")[0][0])
        purged = positions_before(log_end.server_uuid, file_number(oldest), 4)
    read_before = _read_before(connection, start, executed, purged)
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


def _read_before(connection: Connection, start: str, executed: GtidSet, purged: GtidSet) -> GtidSet:
    log_end = end_of(executed)
    match parse_start(start):
        case NamedStart.CURRENT:
            return executed
        case NamedStart.EARLIEST:
            return purged
        case datetime() as moment:
            if moment > datetime.now(UTC):
                raise ConfigError(f"the start is {start!r}, which is in the future; current means now")
            return gtids_before(connection.settings, (moment - _EPOCH) // timedelta(microseconds=1))
        case FilePosition(file=file, pos=pos):
            if log_end is None:
                raise ConfigError(f"the start is {start!r}, and the server has GTIDs: give a GTID set (uuid:1-5)")
            return positions_before(log_end.server_uuid, file, pos)
        case GtidSet() as gtids:
            if log_end is not None and end_of(gtids) is None:
                raise ConfigError(
                    f"the start is {start!r}, and the server has no GTIDs: give file:position (binlog.000003:157)"
                )
            return gtids


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def position_text(connection: Connection, position: GtidSet) -> str:
    """Return a position as :func:`start_of` takes it: a GTID set, or without GTIDs ``file:position``."""
    binlog_position = end_of(position)
    if binlog_position is None:
        return str(position)
    names = (str(row[0]) for row in connection.query("SHOW BINARY LOGS"))
    file = next((name for name in names if file_number(name) == binlog_position.file), f".{binlog_position.file:06d}")
    return f"{file}:{binlog_position.pos}"

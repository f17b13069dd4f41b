"""Start positions in a server's log: of commands, and of pipelines that begin without reading tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError
from headgate.mysql import Connection
from headgate.positions import FilePosition, NamedStart, Position, check_kind, parse_start, read_executed
from headgate.replication._times import position_before

__all__ = ["start_of"]


def start_of(connection: Connection, start: str) -> tuple[Position, Position]:
    """Return the position before which everything counts as already read, and the one that the server has now.

    :param start: as :func:`~headgate.positions.parse_start` takes it.
    :raises ConfigError: it is none of these, a time in the future, or of another kind of server (with or without
        GTIDs).
    :raises ServerBehindError: the server has not executed all of the GTID set.
    :raises BinlogPurgedError: the log no longer holds what follows it.
    """
    log = read_executed(connection)
    executed, purged = log.executed, log.purged(connection)
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


def _read_before(connection: Connection, start: str, executed: Position, purged: Position) -> Position:
    match parse_start(start):
        case NamedStart.CURRENT:
            return executed
        case NamedStart.EARLIEST:
            return purged
        case datetime() as moment:
            if moment > datetime.now(UTC):
                raise ConfigError(f"the start is {start!r}, which is in the future; current means now")
            return position_before(connection, executed, purged, (moment - _EPOCH) // timedelta(microseconds=1))
        case FilePosition(file=file, pos=pos):
            return executed.at(file, pos)
        case position:
            check_kind(position, executed)
            return position


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

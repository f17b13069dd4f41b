"""What commands ask a server before they read its log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from headgate.errors import BinlogPurgedError, ConfigError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.places import LogPlace, end_of, file_number, places_before

if TYPE_CHECKING:
    from headgate.mysql import Connection

__all__ = ["position_text", "start_of"]


def start_of(connection: Connection, start: str) -> tuple[GtidSet, GtidSet]:
    """What counts as already had, and what the server has executed now.

    :param start: ``current``, ``earliest``, a time with its zone (the first transaction committed then or later is the
        first one that is not had) or a GTID set; without GTIDs ``file:position`` in its place.
    :raises ConfigError: none of these, or a time that is yet to come.
    :raises ServerBehindError: the server has not executed all of the GTID set.
    :raises BinlogPurgedError: the log no longer holds what comes after it.
    """
    from headgate.mysql import log_position

    executed = log_position(connection)
    purged = GtidSet.parse(str(connection.query("SELECT @@global.gtid_purged")[0][0]))
    here = end_of(executed)
    if here is not None:
        oldest = str(connection.query("SHOW BINARY LOGS")[0][0])
        purged = places_before(here.server_uuid, file_number(oldest), 4)
    if start.lower() == "current":
        return executed, executed
    if start.lower() == "earliest":
        return purged, executed
    at = _time_in(start)
    if at is not None:
        from headgate.replication import gtids_before

        return gtids_before(connection.settings, at), executed
    had = _parsed(start, here)
    if not had <= executed:
        raise ServerBehindError(f"{connection.settings} has not executed {had - executed}: is this the right server?")
    if not purged <= had:
        raise BinlogPurgedError(
            f"the log of {connection.settings} no longer holds {purged - had}: begin with --from earliest",
            needed=str(purged - had),
            purged=str(purged),
        )
    return had, executed


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")


def _time_in(start: str) -> int | None:
    """Microseconds since 1970-01-01 UTC; None: it is no time."""
    if not _TIME.fullmatch(start):
        return None
    try:
        at = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", start))
    except ValueError:
        raise ConfigError(f"--from is {start!r}; a time looks like 2026-11-21T10:00:00Z") from None
    if at.tzinfo is None:
        raise ConfigError(f"--from is {start!r}: say in which zone, as in {start}Z or {start}+01:00")
    if at > datetime.now(UTC):
        raise ConfigError(f"--from is {start!r}, which is yet to come; current means now")
    return (at - _EPOCH) // timedelta(microseconds=1)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE: Final = re.compile(r"\S*\.([0-9]{1,9}):([0-9]{1,13})")


def _parsed(start: str, here: LogPlace | None) -> GtidSet:
    """:param here: the end of a log without GTIDs."""
    place = _PLACE.fullmatch(start)
    if here is not None and place is not None:
        return places_before(here.server_uuid, int(place[1]), int(place[2]))
    try:
        return GtidSet.parse(start)
    except (ConfigError, ValueError):
        expected = "a GTID set (uuid:1-5)" if here is None else "file:position (binlog.000003:157)"
        raise ConfigError(f"--from is {start!r}; expected current, earliest, a time or {expected}") from None


def position_text(connection: Connection, position: GtidSet) -> str:
    """A position as ``--from`` takes it: a GTID set, or without GTIDs ``file:position``."""
    place = end_of(position)
    if place is None:
        return str(position)
    names = (str(row[0]) for row in connection.query("SHOW BINARY LOGS"))
    file = next((name for name in names if file_number(name) == place.file), f".{place.file:06d}")
    return f"{file}:{place.pos}"

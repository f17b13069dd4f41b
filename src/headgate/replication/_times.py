"""GTID set of a log at a point in time: the transactions before the first one committed then or later.

Times are the *original* commit times in the events (GTID events have them in microseconds). "Before" is the log's
order. Servers take the time shortly before they give a transaction its position, so neighbours may be some microseconds
out of order. A stream from this set may then get extra transactions, but misses none behind the first one that counts.

Only what is needed is read: a bisection over the log's files reads the first transaction of some of them (on a replica
times grow along the log as they did on its source), and one file is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from headgate.binlog import gtid_events
from headgate.errors import BinlogPurgedError, ServerSettingError
from headgate.gtid import Gtid, GtidSet, GtidSetBuilder
from headgate.mysql import Connection, ConnectionSettings
from headgate.replication._dump import open_dump
from headgate.replication._log_read import LogRead
from headgate.replication._readers import previous_gtids
from headgate.replication._requests import FIRST_EVENT

__all__ = ["gtids_before"]


def gtids_before(settings: ConnectionSettings, at_us: int) -> GtidSet:
    """Return all transactions before the first one whose commit time is ``at_us`` or later.

    :param at_us: microseconds since 1970-01-01 UTC.
    :raises BinlogPurgedError: the log begins after that time, so the first one may be purged.
    :raises ServerSettingError: the log has no GTIDs.
    """
    with Connection.open(settings) as connection:
        files = [str(row[0]) for row in connection.query("SHOW BINARY LOGS")]
        purged = str(connection.query("SELECT @@global.gtid_purged")[0][0])
    low, high = 0, len(files)  # files before ``low`` begin before the time, those from ``high`` on do not
    begins: int | None = None
    while low < high:
        middle = (low + high) // 2
        first = _first_time(settings, files[middle])
        if first is not None and first < at_us:
            low = middle + 1
        else:
            high = middle
            begins = first if middle == 0 else begins
    if low == 0:
        if purged:
            raise BinlogPurgedError(
                f"the log begins at {_text(begins)}; what was committed between {_text(at_us)} and then may be purged:"
                " begin at earliest",
                purged=purged,
            )
        return GtidSet()
    file = files[low - 1]
    builder = GtidSetBuilder(previous_gtids(settings, file))
    for gtid, time_us in _transactions(settings, file):
        if time_us >= at_us:
            break
        builder.add(gtid)
    return builder.build()


def _first_time(settings: ConnectionSettings, file: str) -> int | None:
    """Return the time of the first transaction in the file or a later file; None: no transaction."""
    return next((time_us for _, time_us in _transactions(settings, file)), None)


def _transactions(settings: ConnectionSettings, file: str) -> Iterator[tuple[Gtid, int]]:
    """Yield GTIDs and original commit times, from the beginning of a file to the log's end."""
    with open_dump(LogRead(settings, start=(file, FIRST_EVENT))) as dump:
        for segment in dump.segments():
            for event in gtid_events(segment):
                if event.gtid is None:
                    raise ServerSettingError(
                        "a transaction in the log has no GTID, so the position at a time is unknown",
                        setting="gtid_mode",
                        expected="ON",
                    )
                yield event.gtid, event.commit_us


def _text(time_us: int | None) -> str:
    if time_us is None:
        return "its end"
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds")

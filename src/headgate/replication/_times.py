"""Position in a log at a point in time: everything before the first transaction committed then or later.

Times are the *original* commit times in the events (microseconds). "Before" is the log's order. Servers take the time
shortly before they give a transaction its position, so neighbours may be some microseconds out of order. A stream from
this position may then get extra transactions, but misses none behind the first one that counts.

Only what is needed is read: a bisection over the log's files reads the first transaction of some of them (on a replica
times grow along the log as they did on its source), and one file is read from its beginning.
"""

from __future__ import annotations

from datetime import UTC, datetime

from headgate.binlog import Segment, gtid_events
from headgate.errors import BinlogPurgedError
from headgate.gtid import GtidSetBuilder
from headgate.mysql import Connection, ConnectionSettings
from headgate.positions import Position, file_number
from headgate.replication._dump import open_dump, position_of
from headgate.replication._log_read import LogRead
from headgate.replication._readers import previous_gtids
from headgate.replication._requests import FIRST_EVENT

__all__ = ["position_before"]


def position_before(connection: Connection, executed: Position, purged: Position, at_us: int) -> Position:
    """Return everything before the first transaction whose commit time is ``at_us`` or later, of what was executed.

    :param executed: what the server has executed.
    :param purged: what it has purged of that.
    :param at_us: microseconds since 1970-01-01 UTC.
    :raises BinlogPurgedError: the log begins after that time, so the first one may be purged.
    :raises ServerSettingError: the log has a transaction that positions of this kind do not count.
    :raises IncompleteReadError: the log was not read to the first one, or to its end.
    """
    settings = connection.settings
    files = [name for name, _ in connection.log_files()]
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
    if low:
        read = LogRead(settings, start=(files[low - 1], FIRST_EVENT), until=connection.log_status())
        return _read_before(read, executed, at_us) & executed
    if purged:
        raise BinlogPurgedError(
            f"the log begins at {_text(begins)}; what was committed between {_text(at_us)} and then may be purged:"
            " begin at earliest",
            purged=str(purged),
        )
    return purged


def _first_time(settings: ConnectionSettings, file: str) -> int | None:
    """Return the commit time of the first transaction in the file or a later file; None: no transaction."""
    with open_dump(LogRead(settings, start=(file, FIRST_EVENT))) as dump:
        return next((event.commit_us for segment in dump.segments() for event in gtid_events(segment)), None)


def _read_before(read: LogRead, executed: Position, at_us: int) -> Position:
    """Return everything before the first transaction in ``read`` whose commit time is ``at_us`` or later; if there is
    none, everything up to the end of ``read`` and perhaps more.

    :param read: from the begin of a file on.
    """
    assert read.start is not None
    file, keys = read.start[0], GtidSetBuilder()
    logged = executed.before_file(file_number(file), lambda: previous_gtids(read.settings, file))
    with open_dump(read) as dump:
        for item in dump.items():
            number, pos = reached = position_of(item)
            for event in gtid_events(item) if isinstance(item, Segment) else ():
                key = executed.key_of(event.gtid, number, event.pos)
                if event.commit_us >= at_us:
                    return logged | executed.received(keys.build, (number, event.pos))
                keys.add(key)
            if read.is_complete(reached):
                return logged | executed.received(keys.build, (number, pos))
    raise read.incomplete_error()


def _text(time_us: int | None) -> str:
    if time_us is None:
        return "its end"
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds")

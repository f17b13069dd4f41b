"""Tables that are read again because a failover lost transactions that their rows were read with. No Spark here.

Rows that were kept or dropped while they were read depend on transactions behind the batch's end: those of the window.
A failover may lose them without a loss for the stream, and use their numbers again. So the newest one of each window is
compared until a batch's end has it. No batch's end has had one of their numbers before, so the sinks have not called
such a table exact.
"""

from __future__ import annotations

import logging

from headgate.offsets import Hint, Last
from headgate.positions import Position, parse_position
from headgate.spark._server import Server, ServerState
from headgate.spark._server_history import HistoryCheck
from headgate.spark._snapshots import SnapshotPlan

__all__ = ["LostWindows"]

log = logging.getLogger("headgate")


class LostWindows:
    """Compares the windows of one stream with the log, each once on a connection."""

    def __init__(self, server: Server, history: HistoryCheck) -> None:
        self._server, self._history = server, history
        self._connection = 0
        self._same: set[Last] = set()
        """Those that the log of this connection has."""

    def read_again(self, plan: SnapshotPlan, had: Position, begin: Hint | None, state: ServerState) -> None:
        """Read the tables of lost windows again, and forget the windows that ``had`` contains.

        :param begin: binlog position of ``had``, if known for this server.
        """
        before = self._same if self._connection == self._server.connection_number else set[Last]()
        self._same = set()
        for table, ends in list(plan.windows.items()):
            db, _, name = table.partition(".")
            followed = ends if plan.settings.patterns.matches(db, name) else ()
            waiting = tuple(end for end in followed if not parse_position(end.gtid) <= had)
            self._same |= before & {*waiting}
            is_lost = not all(self._is_same(end, begin, state) for end in waiting)
            if is_lost:
                log.warning("%s: a failover lost transactions that its rows were read with: it is read again", table)
                plan.read_from_start(table)
            if waiting and not is_lost:
                plan.windows[table] = waiting
            else:
                del plan.windows[table]
        self._connection = self._server.connection_number

    def _is_same(self, end: Last, begin: Hint | None, state: ServerState) -> bool:
        if end in self._same:
            return True
        is_same = self._history.is_same(end, begin, state)
        if is_same and parse_position(end.gtid) <= state.executed:
            self._same.add(end)
        return is_same

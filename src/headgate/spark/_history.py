"""Detect a rewritten server history by a recently read transaction. No Spark here.

After RESET BINARY LOGS AND GTIDS, or on a server restored from an image, equal GTIDs can name other transactions. So an
offset carries a GTID with its commit time. A server whose transaction of that GTID has another commit time is refused.
The check runs once after each new connection.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.errors import HistoryRewrittenError
from headgate.gtid import GtidSet
from headgate.offsets import Hint, Last, SourceOffset
from headgate.spark._server import Server, ServerState

__all__ = ["HistoryCheck"]

_LAST_SECONDS = 10.0
"""Longest age of ``last`` while the stream moves: refreshing it costs a dump of one transaction."""
_LAST_SECONDS_BLIND = 60.0
"""The same without a hint, if the server has to search a whole file for the transaction."""


class HistoryCheck:
    """The history check of one stream.

    :param clock: seconds.
    """

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        self._checked_connection = -1
        self._last_taken: float | None = None

    def check(self, start: SourceOffset, state: ServerState) -> None:
        """Compare the offset's transaction with the server's, if the connection is new.

        :raises HistoryRewrittenError: they differ.
        """
        if self._checked_connection == self._server.connects:
            return
        last = start.last
        gtid = GtidSet.parse(last.gtid) if last is not None else GtidSet()
        if not gtid <= state.executed:
            return  # the server is behind, and the reader of its log raises that
        if last is not None and not gtid & state.purged:
            committed = self._server.commit_time(gtid, None)
            if committed is not None and committed != last.ts_us:
                raise HistoryRewrittenError(
                    "the server's history was rewritten (RESET BINARY LOGS AND GTIDS, or a restored image): a"
                    " transaction that was read has another commit time; start again with a new checkpoint and target",
                    gtid=last.gtid,
                )
        self._checked_connection = self._server.connects

    def identity(self, start: SourceOffset) -> str:
        """Return the server's UUID after the same comparison.

        :raises HistoryRewrittenError: the transactions differ.
        """
        uuid = self._server.identity()
        if start.last is not None and self._checked_connection != self._server.connects:
            self.check(start, self._server.state())
        return uuid

    def last(self, start: SourceOffset, new: GtidSet, begin: Hint | None) -> Last | None:
        """Return the transaction for the next offset: the first of the new ones, which a reader finds at once."""
        now = self._clock()
        patience = _LAST_SECONDS if begin is not None else _LAST_SECONDS_BLIND
        if not new or (start.last and self._last_taken is not None and now - self._last_taken < patience):
            return start.last
        uuid, tag, number, _ = next(new.intervals())
        one = GtidSet({(uuid, tag): [(number, number)]})
        committed = self._server.commit_time(one, begin)
        self._last_taken = now
        return Last(str(one), committed) if committed is not None else start.last

"""From a server's log into its copy: one thread for each physical source whose log is kept.

Everybody who reads this log, the relay's own reader of rows included, reads the copy: the server has one dump for all.

A dump begins at exactly the set that the copy has. Before that the copy's newest transaction is looked up in both: if
its commit time differs, the server's GTIDs name other transactions than they did, and the feeder stands still, because
nothing could be told from what would be written. The same holds for a log that the server has purged before it was
copied. All else is tried again for ever.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Final

from headgate.archive._spool import LogSpool
from headgate.catalog import TablePatterns
from headgate.errors import BinlogPurgedError, HistoryRewrittenError
from headgate.mysql import ConnectionSettings
from headgate.replication import commit_time, copy_log
from headgate.retrying import Retrying

__all__ = ["LogFeeder"]

_RETRY_SECONDS: Final = 1.0


class LogFeeder(Retrying):
    """Reads the log of a server into ``spool``.

    :param tables: those whose changes the log must have.
    """

    def __init__(self, name: str, settings: ConnectionSettings, spool: LogSpool, tables: TablePatterns) -> None:
        super().__init__(f"headgate-log-{name}", f"{name}: the log is not kept", _RETRY_SECONDS)
        self._settings, self._spool, self._tables = settings, spool, tables

    def start(self) -> None:
        """Begin to read."""
        self._begin()

    def stop(self) -> None:
        """End reading; whoever waits for more gets an end."""
        self._end()
        self._spool.close()

    def _work(self) -> None:
        self._check_history()
        try:
            begun = copy_log(self._settings, self._spool.gtid, tables=self._tables, hint=self._spool.hint())
            with closing(begun) as items:  # type: ignore[type-var]
                for item in items:
                    self._spool.take(item)
                    self._goes_on()
                    if self._stop.is_set():
                        return
        finally:
            self._spool.interrupted()

    def _check_history(self) -> None:
        """:raises HistoryRewrittenError: the server's history is another one than the copy's."""
        newest = self._spool.newest()
        if not newest:
            return
        kept = commit_time(replace(self._settings, log=self._spool), newest)
        try:
            there = commit_time(self._settings, newest)
        except BinlogPurgedError:
            return
        if kept != there:
            raise HistoryRewrittenError(
                "the server's history was rewritten (RESET BINARY LOGS AND GTIDS, or a restored image): start the relay"
                " with --anew; streams that read its log need a new checkpoint and target",
                gtid=str(newest),
            )

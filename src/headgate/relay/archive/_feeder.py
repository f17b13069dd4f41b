"""Copies a server's binlog to the archive: one thread for each physical source with an archive.

All readers of this log read the archive, including the relay's row reader: the server has one dump for all.

A dump begins at exactly the GTID set of the archive. First the archive's last transaction is looked up at the server.
If its commit time differs, the GTIDs name other transactions than before. The feeder then fails, because readers
could not distinguish them. It also fails if the server has purged log before it was copied. All other errors are
retried for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.relay.archive._spool import LogSpool
from headgate.replication import LogRead, check_history, copy_log
from headgate.retrying import Retrying, RetryPolicy

__all__ = ["LogFeeder"]

_RETRY: Final = RetryPolicy.every(1.0)


class LogFeeder(Retrying):
    """Copies the log of a server to ``spool``.

    :param tables: the tables whose changes the log must contain.
    :param begin: waits until it is known where a new archive begins, and returns it; None: not yet.
    """

    def __init__(
        self, name: str, settings: ConnectionSettings, spool: LogSpool, begin: Callable[[], GtidSet | None]
    ) -> None:
        super().__init__(f"headgate-log-{name}", f"{name}: binlog archive", _RETRY)
        self.spool, self._settings, self._begin_of = spool, settings, begin

    def start(self) -> None:
        """Start copying."""
        self._begin()

    def stop(self) -> None:
        """Stop copying; readers that wait for more stop, too."""
        self._end()
        self.spool.close()

    def _work(self) -> None:
        if not self.spool.has_begun:
            begin = self._begin_of()
            if begin is None:
                return
            self.spool.begin(begin)
        self._check_history()
        try:
            dump = copy_log(self._settings, self.spool.gtid, hint=self.spool.hint())
            with closing(dump) as items:  # type: ignore[type-var]
                for item in items:
                    self.spool.store(item)
                    self._resume()
                    if self._stop.is_set():
                        return
        finally:
            self.spool.interrupted()

    def _check_history(self) -> None:
        """:raises HistoryRewrittenError: the server's history differs from the archive's, or the server lost it."""
        last, hint = self.spool.last, self.spool.hint()
        if last is not None:
            check_history(LogRead(self._settings, had_by=None if hint is None else hint.server_uuid), last)

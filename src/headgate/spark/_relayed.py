"""A server whose log comes out of a relay: what the planner asks of either.

Rows of tables come from the server, the log from the relay, which is a little behind. That changes nothing about what a
batch is, only how far it can go:

- **E is the smaller of two sets**: what the server has executed, and what the relay keeps. Commits are in log order, so
  each is a prefix of one log, and the smaller one is the other's prefix. All of it is visible to a SELECT begun later,
  because the server has executed it, and all of it can be read, because the relay has it. So batches, chunks and
  windows are those of a stream that reads the server itself and asked a moment earlier. A stream that is to end
  (AvailableNow) waits at its beginning until the relay has what the server has.
- **Windows wait.** The log's place after a chunk's SELECT is named by the server; the relay answers when it has come
  there (:mod:`headgate.snapshot._reader` reads on until then, so a relay that is behind makes a chunk slow, not wrong).
- **One server's places in a batch.** ``_seq`` holds places in a server's files. After a failover the relay's log goes
  on with another server's, so a batch ends where one server's part does (:meth:`RelayedServer.reach`), as it would at
  any other cut; all its ranges are read from that part. Chunks are read as of ends in the present server's part only,
  because their windows end there.
- **What the relay does not keep** is an error, or, if the user allows it, read from the server. Then all of a batch is:
  the two roads are mixed only where both are the same server's.
- **The same history** is checked in what the relay keeps, and the relay checks that against its server.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.catalog import TablePatterns
from headgate.errors import ServerBehindError
from headgate.gtid import GtidSet
from headgate.spark._server import MySQLServer, ServerState

if TYPE_CHECKING:
    from headgate.archive import LogHead, LogOfRelay, Series
    from headgate.mysql import ConnectionSettings
    from headgate.spark._options import Options

__all__ = ["RelayedServer", "server_of"]

_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.5
"""A relay that keeps up is some milliseconds behind; a batch that ends there is worth waiting for, a second in all."""


def server_of(options: Options) -> MySQLServer:
    """The planner's view of the server, or of the server and the relay that has its log."""
    relay, patterns = options.log_of_relay(), TablePatterns(options.patterns)
    if relay is not None:
        return RelayedServer(options.settings(), patterns, relay)
    return MySQLServer(options.settings(), patterns, without_gtids=options.watermark == "signal-table")


class RelayedServer(MySQLServer):
    """:class:`headgate.spark._server.Server` over a server and a relay.

    :param settings: with ``relay`` as ``log``.
    """

    def __init__(self, settings: ConnectionSettings, patterns: TablePatterns, relay: LogOfRelay) -> None:
        super().__init__(settings, patterns)
        self._relay = relay
        self._files: list[tuple[str, int, GtidSet]] | None = None
        """Those of the part of the log that the last :meth:`reach` was about; None: they are the server's own."""

    def executed(self) -> GtidSet:
        """What the server has executed and the relay keeps."""
        return super().executed() & self._relay.head().gtid

    def state(self, *, whole: bool = False) -> ServerState:
        """The server's own, as far as the relay's log goes; ``purged`` is what no log that may be read holds.

        :raises ServerBehindError: the relay reads another server, or with ``whole`` it is behind.
        """
        found = super().state()
        head = self._head_with(found.executed)
        if head.server_uuid != found.uuid:
            reads = f"reads the log of server {head.server_uuid}" if head.server_uuid else "has not read any log yet"
            raise ServerBehindError(
                f"the relay {reads}, and the connection leads to server {found.uuid}: both have to be the same server"
            )
        if whole and not found.executed <= head.gtid:
            raise ServerBehindError("the relay is behind its server", missing=str(found.executed - head.gtid))
        purged = found.purged if self._relay.falls_back else head.begin
        return replace(found, executed=found.executed & head.gtid, purged=purged, by_relay=True)

    def _head_with(self, executed: GtidSet) -> LogHead:
        """What the relay keeps, when it has all of this, or after a little while: then it is far behind."""
        head, pause = self._relay.head(), _FIRST_PAUSE_SECONDS
        while not executed <= head.gtid and pause < _LONGEST_PAUSE_SECONDS:
            time.sleep(pause)
            pause *= 2
            head = self._relay.head()
        return head

    def reach(self, had: GtidSet, end: GtidSet) -> GtidSet:
        """To the end of one server's part of the relay's log, at most."""
        head = self._relay.head()
        part = _part_after(head, had)
        if part is None:
            self._files = None  # nothing is new, or the server is read
            return end
        uuid, begin, last = part
        self._files = [
            (one.name, one.bytes, one.before)
            for one in self._relay.files()
            if one.server_uuid == uuid and begin <= one.before <= last
        ]
        return had | (end & last)

    def reads_windows(self, end: GtidSet) -> bool:
        """Whether ``end`` is in the present server's part, or the server itself may be read."""
        series = self._relay.head().series
        return self._relay.falls_back or (bool(series) and series[-1].begin <= end)

    def log_uuid(self, had: GtidSet, end: GtidSet) -> str | None:
        """The server whose part of the relay's log holds what lies between."""
        part = self._relay.head().series_of(end - had)
        return None if part is None else part.server_uuid

    def log_file(self) -> str:
        return self._files[-1][0] if self._files else super().log_file()

    def log_files(self) -> list[tuple[str, int]]:
        if self._files is None:
            return super().log_files()
        return [(name, size) for name, size, _ in self._files]

    def previous_gtids(self, file: str) -> GtidSet:
        if self._files is None:
            return super().previous_gtids(file)
        return next(before for name, _, before in self._files if name == file)


def _part_after(head: LogHead, had: GtidSet) -> Series | None:
    """The part that holds what comes after a set; None: nothing does, or the relay does not keep it."""
    if not head.begin <= had:
        return None
    return next((one for one in head.series if not one.end <= had), None)

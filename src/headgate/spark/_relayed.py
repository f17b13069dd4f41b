"""A server whose log comes from a relay: the planner's view of both.

Table rows come from the server, the log from the relay, which is a little behind. That does not change what a batch is,
only how far it can go:

- **E is the smaller of two sets**: what the server has executed, and what the relay holds. Commits are in log order, so
  each is a prefix of one log, and the smaller one is the other's prefix. All of it is visible to a SELECT begun later,
  because the server has executed it, and can be read, because the relay has it. So batches, chunks and windows are
  those of a stream that queried the server itself a moment earlier. A stream that is to end (AvailableNow) waits at its
  beginning until the relay has what the server has.
- **Windows wait.** The server names the log position after a chunk's SELECT; the relay answers when it has reached it
  (:mod:`headgate.snapshot._reader` reads on until then, so a relay that is behind makes a chunk slow, not wrong).
- **One server's positions in a batch.** ``_seq`` holds positions in a server's files. After a failover the relay's log
  continues with another server's. So a batch ends where one server's part does (:meth:`RelayedServer.reach`), as at any
  other cut, and all its ranges are read from that part. Chunks are read only as of ends in the present server's part,
  because their windows end there.
- **Log that the relay does not hold** is an error, or, if the user allows it, read from the server. Then all of a batch
  is: the two sources are mixed only where both are the same server's.
- **The same history** is checked in the relay's log, and the relay checks its log against its server.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.errors import HeadgateError, IncompleteReadError, ServerBehindError
from headgate.gtid import GtidSet
from headgate.positions import Position
from headgate.spark._server import ServerState, SourceServer

if TYPE_CHECKING:
    from headgate.mysql import ConnectionSettings
    from headgate.relay.archive import LogFile, LogHead, LogOfRelay, Series
    from headgate.spark._options import Options

__all__ = ["RelayedServer", "server_of"]

_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.5
"""A relay that keeps up is some milliseconds behind, so waiting for its head, less than a second, is worth it."""


def server_of(options: Options) -> SourceServer:
    """Return the planner's view of the server, or of the server and the relay that has its log."""
    from headgate.mysql import kinds_of_watermark

    relay = options.log_of_relay()
    if relay is not None:
        return RelayedServer(options.settings(), relay)
    return SourceServer(options.settings(), kinds_of_watermark(options.watermark))


class RelayedServer(SourceServer):
    """:class:`headgate.spark._server.Server` on a server and a relay.

    :param settings: with ``relay`` as ``log``.
    """

    def __init__(self, settings: ConnectionSettings, relay: LogOfRelay) -> None:
        super().__init__(settings, [GtidSet])
        self._relay = relay
        self._part: Series | None = None
        """Part of the relay's log whose files count: the present server's after :meth:`state`, that of the batch after
        :meth:`reach`. None: the files of the server itself."""
        self._files: list[LogFile] | None = None
        """Files of the part; None: not listed yet."""

    def executed(self) -> Position:
        """Return what the server has executed and the relay holds."""
        return super().executed() & self._relay.head().gtid

    def state(self, *, whole: bool = False) -> ServerState:
        """Return the server's state, limited to the relay's log; ``purged`` is what no usable log holds.

        :raises ServerBehindError: the relay reads another server, or with ``whole`` it is behind.
        """
        state = super().state()
        head = self._head_with(state.executed)
        if head.server_uuid != state.uuid:
            reads = f"reads the log of server {head.server_uuid}" if head.server_uuid else "has not read any log yet"
            raise ServerBehindError(
                f"the relay {reads}, and the connection leads to server {state.uuid}: both have to be the same server"
            )
        if whole and not state.executed <= head.gtid:
            raise ServerBehindError("the relay is behind its server", missing=str(state.executed - head.gtid))
        self._use(head.series[-1] if head.series else None)
        purged = state.purged if self._relay.falls_back else head.begin
        return replace(state, executed=state.executed & head.gtid, purged=purged, by_relay=True)

    def _head_with(self, executed: Position) -> LogHead:
        """Return the relay's head once it has all of this set, or after a short wait: then the relay is far behind."""
        head, pause = self._relay.head(), _FIRST_PAUSE_SECONDS
        while not executed <= head.gtid and pause < _LONGEST_PAUSE_SECONDS:
            time.sleep(pause)
            pause *= 2
            head = self._relay.head()
        return head

    def missing_error(self, missing: Position, *, server_uuid: str, had_them: bool, behind: str) -> HeadgateError:
        """Return the error for transactions that the server or its relay lacks. A relay that is behind lost nothing."""
        lost = missing - super().executed()
        had_them = had_them and bool(lost)
        return super().missing_error(lost or missing, server_uuid=server_uuid, had_them=had_them, behind=behind)

    def reach(self, had: Position, end: Position) -> Position:
        """Return ``end``, limited to the end of one server's part of the relay's log."""
        head = self._relay.head()
        part = _part_after(head, had)
        self._use(part)
        return end if part is None else had | (end & part.end)

    def _use(self, part: Series | None) -> None:
        self._part, self._files = part, None

    def _listed(self, part: Series) -> list[LogFile]:
        """:raises IncompleteReadError: the part was deleted since it was chosen. A new planning sees what is left."""
        if self._files is None:
            self._files = [
                one
                for one in self._relay.files()
                if one.server_uuid == part.server_uuid and part.begin <= one.before <= part.end
            ]
        if not self._files:
            raise IncompleteReadError("the relay deleted this part of the binlog while its files were listed")
        return self._files

    def reads_windows(self, end: Position) -> bool:
        """Whether ``end`` is in the present server's part, or the server itself may be read."""
        series = self._relay.head().series
        return self._relay.falls_back or (bool(series) and series[-1].begin <= end)

    def log_uuid(self, had: Position, end: Position) -> str | None:
        """Return the server whose part of the relay's log holds the changes between."""
        part = self._relay.head().series_of(end - had)
        return None if part is None else part.server_uuid

    def log_file(self) -> str:
        return super().log_file() if self._part is None else self._listed(self._part)[-1].name

    def _log_end(self) -> tuple[str, int] | None:
        return None

    def log_files(self) -> list[tuple[str, int]]:
        if self._part is None:
            return super().log_files()
        return [(one.name, one.bytes) for one in self._listed(self._part)]

    def previous_gtids(self, file: str) -> Position:
        if self._part is None:
            return super().previous_gtids(file)
        return next(one.before for one in self._listed(self._part) if one.name == file)


def _part_after(head: LogHead, had: Position) -> Series | None:
    """Return the part with the changes after a set; None if there are none, or the relay does not hold them."""
    if not head.begin <= had:
        return None
    return next((one for one in head.series if not one.end <= had), None)

"""Detect a rewritten server history. No Spark here.

After RESET BINARY LOGS AND GTIDS, a crash without ``sync_binlog=1``, or on a server restored from an image, equal GTIDs
can name other transactions. A history is rewritten from some transaction on. So it is the *newest* transaction of an
offset that shows it: the offset carries its GTID, its commit time, and its position in the log (a hint).

- The planner reads that transaction's header from the log while it plans the batch that the transaction ends. A new
  stream begins with the newest transaction of its start.
- Each later planning, and one after the last batch, reads the header again. A transaction with another commit time ends
  the stream; on another server only if the log has the original time, which transactions of MySQL 5.7 lack. So does a
  server that lacks what it had executed, unless it may receive it again (``mysql/_missing.py``).
- A batch that is replayed is compared with its own newest transaction first.
- A task compares this transaction of its batch when it has read everything (``spark/_read_task.py``). A range that
  ends with it needs no other dump for that.
- So is the newest one of each window with which rows were kept or dropped (``spark/_lost_windows.py``).

So, with GTIDs, all of a batch is of the history that its planning met. One dump reads both headers, the old one and the
new one, and begins where the old one is.

"Newest" is the last one in the log. Numbers do not show it: a group assigns them in blocks, and users choose some. Of a
few new transactions all headers are read, from the last known position on. Of many, the highest number of each source
in the last binlog file is read, and then, from the last one of these on, what is behind it: mostly nothing, so that two
short dumps are enough however large the batch is.

**Without GTIDs** the offset carries the first transaction of the batch instead, or of the batch's last file if the
begin of the batch is not known in this log: a dump by position cannot request the last one (``Position.newest``). So a
log that was reset or restored as of before that transaction shows, and one that lost only later ones does not. A range
that begins with it, and came from one file by one dump, needs no other dump: all of it is of that history. If the batch
holds no transaction (the server only began another file), the one before stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HistoryRewrittenError, ServerBehindError
from headgate.offsets import Hint, Last, SinkPosition, SourceOffset
from headgate.positions import NOTHING, Position, parse_position
from headgate.spark._notes import Notes
from headgate.spark._server import Server, ServerState, check_executed, newest_file

if TYPE_CHECKING:
    from headgate.replication import TransactionHeader

__all__ = ["HistoryCheck"]

_FIRST_EVENT: Final = 4
"""Position of a file's first event."""
_FEW: Final = 256
"""Most transactions whose headers are all read: a millisecond, or a dump for each that is large."""


class HistoryCheck:
    """The history check of one stream."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._compared: tuple[int, int] | None = None
        """Connection and offset (its epoch) of the last planning."""
        self._planned: tuple[int, int] | None = None
        """The same of the batch that it planned."""

    def is_compared(self, start: SourceOffset) -> bool:
        """Return whether a planning on the present connection has compared this offset."""
        return self._compared == (self._server.connection_number, start.epoch)

    def begin(self, had: Position, state: ServerState) -> dict[str, Any]:
        """Return the newest transaction of a new stream's start, and its position, as fields of its offset."""
        last, hint = self._headers(None, None, had - state.purged, state, had)
        return {"last": last, "hint": hint}

    def resume(self, applied: SinkPosition, state: ServerState) -> None:
        """Compare the position of the sinks with the server, for a stream without a checkpoint.

        :raises ServerBehindError: the server has not executed all of it.
        :raises HistoryRewrittenError: the server lost some of it, or its last transaction is another one.
        """
        check_executed(parse_position(applied.gtid), state, self._server, applied.server_uuid)
        self._headers(applied.last, None, NOTHING, state, NOTHING, read_on=applied.server_uuid)

    def advance(
        self, start: SourceOffset, new: Position, state: ServerState, epoch: int
    ) -> tuple[Last | None, Hint | None]:
        """Compare the offset's newest transaction with the server's. Return that of the next offset, and its position.

        :param new: transactions between the two offsets.
        :param epoch: of the next offset.
        :raises HistoryRewrittenError: they differ.
        """
        if new or not self.is_compared(start):
            executed = start.position | new
            last, hint = self._headers(start.last, start.hint, new - state.purged, state, executed)
        else:
            last, hint = start.last, start.hint
        connection = self._server.connection_number
        self._compared, self._planned = (connection, start.epoch), (connection, epoch)
        return last, hint

    def is_same(self, known: Last, begin: Hint | None, state: ServerState) -> bool:
        """Return False if the server has executed another transaction of the GTID of one that no offset has yet. One
        whose log is purged counts as the same: no batch can bring it.

        :param begin: a position before it.
        """
        from headgate.replication import check_header

        gtids = parse_position(known.gtid)
        if not gtids <= state.executed or gtids & state.purged:
            return True
        at = begin if begin is not None and begin.server_uuid == state.uuid else None
        try:
            for header in self._server.headers(gtids, at):
                check_header(header, known, None)
        except HistoryRewrittenError:
            return False
        return True

    def identity(self, end: SourceOffset) -> str:
        """Return the server's UUID, after a comparison if the batch that ends here was planned on another connection.

        :raises HistoryRewrittenError: the newest transactions differ, or the server lost what it had at planning.
        """
        if end.last is None or self._planned == (self._server.connection_number, end.epoch):
            return self._server.identity()
        state = self._server.state()
        try:
            check_executed(end.position, state, self._server, Notes.from_dict(end.signals).server_uuid)
        except ServerBehindError:
            return state.uuid  # the tasks refuse this server, as long as it is behind
        self._headers(end.last, end.hint, NOTHING, state, NOTHING)
        self._planned = self._server.connection_number, end.epoch
        return state.uuid

    def _headers(
        self,
        last: Last | None,
        hint: Hint | None,
        new: Position,
        state: ServerState,
        executed: Position,
        read_on: str | None = None,
    ) -> tuple[Last | None, Hint | None]:
        """Compare ``last`` with the server's, and return the newest of ``last`` and ``new`` with its position.

        :param hint: position of ``last``.
        :param executed: the log's transactions up to the end of ``new``.
        :param read_on: UUID of the server on which ``last`` was read, if there is no hint.
        """
        from headgate.replication import check_header

        read_on = read_on if hint is None else hint.server_uuid

        known = NOTHING if last is None else parse_position(last.gtid) - state.purged
        at = hint if hint is not None and hint.server_uuid == state.uuid else None
        part, begin = self._last_part(new, state.uuid, at)
        candidates = part.newest(_FEW)
        reads = [(known, at), (candidates, begin)]
        if known and begin is not None and begin == at:
            reads = [(known | candidates, at)]
        newest: TransactionHeader | None = None
        read_before = last if known else None  # in a rewritten log, new transactions may come before its namesake
        for gtids, position in reads:
            for header in self._server.headers(gtids, position) if gtids else ():
                if read_before is not None and str(header.key) == read_before.gtid:
                    check_header(header, read_before, read_on)
                last, hint = header.last, header.hint
                newest = header
        if newest is not None and candidates != part:
            newest = self._server.last_header(newest, executed, part - candidates)
            last, hint = newest.last, newest.hint
        return last, hint

    def _last_part(self, new: Position, server_uuid: str, at: Hint | None) -> tuple[Position, Hint | None]:
        """Return the last part of ``new`` in the log, and a position before it.

        :param at: a known position before all of ``new``.
        """
        if not new:
            return new, at
        if at is not None and (new.newest(_FEW) == new or at.file == self._server.log_file()):
            return new, at
        names = [name for name, _ in self._server.log_files()]
        index, before = newest_file(self._server, names, lambda logged: not new <= logged)
        return new - before, Hint(server_uuid, names[index], _FIRST_EVENT)

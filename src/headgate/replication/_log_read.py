"""Part of a server's log to read: begin, end, and server."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from headgate.errors import HeadgateError, IncompleteReadError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings, LogRequest
from headgate.offsets import Hint
from headgate.positions import NOTHING, Position, file_number, gtids_of

__all__ = ["LogRead"]


@dataclass(frozen=True)
class LogRead:
    """Part of one server's log. Exactly one of ``wanted``, ``executed_before`` and ``start`` defines its begin.

    =============== ============ ==========================================================================
    begin           end          which part
    =============== ============ ==========================================================================
    wanted          —            this part of the log
    executed_before until        everything outside ``executed_before``, at least to the position ``until``
    executed_before server_id    everything outside ``executed_before``, endlessly
    start           until        all events from one position on, to another or to the log's end
    =============== ============ ==========================================================================
    """

    settings: ConnectionSettings
    wanted: Position | None = None
    executed_before: Position | None = None
    start: tuple[str, int] | None = None
    """File, and position in it at which an event begins."""
    until: tuple[str, int] | None = None
    """File and position that the server reported."""
    executed: Position | None = None
    """What the server must have executed; None: ``executed_before``. A server that lacks part of it would send too
    little, without an error."""
    server_uuid: str | None = None
    """Server that the read was planned on; None: any that has executed it."""
    had_by: str | None = None
    """Another server that is known to have executed all of it, besides ``server_uuid``."""
    hint: Hint | None = None
    """Position at which a reader had everything before this part."""
    server_id: int = 0
    """0: up to the log's end. Any other id: endlessly, as the log grows."""
    falls_back: bool = False
    """Request from the server what a binlog archive no longer has, whatever the settings are."""
    subject: str = "a range"
    """Name of this part in errors; with ``until``, of its end."""

    @classmethod
    def endless(cls, settings: ConnectionSettings, executed_before: Position, *, hint: Hint | None = None) -> LogRead:
        """Return an endless read of everything after ``executed_before``. The server is checked on each connection.

        Its server id is random, above those of servers (2³¹).
        """
        identity = random.randrange(1 << 31, (1 << 32) - 1)
        return cls(settings, executed_before=executed_before, hint=hint, server_id=identity)

    @property
    def is_endless(self) -> bool:
        """Whether the read continues as the log grows."""
        return self.server_id != 0

    @property
    def bounds(self) -> Position:
        """The part itself, or what it leaves out; empty for a read from ``start`` on."""
        part = self.executed_before if self.wanted is None else self.wanted
        return NOTHING if part is None else part

    @property
    def required(self) -> Position:
        """What the server must have executed."""
        required = self.executed_before if self.executed is None else self.executed
        return NOTHING if required is None else required

    def was_complete_on(self, server_uuid: str) -> bool:
        """Return whether a server is known to have executed what is required."""
        return server_uuid in (self.server_uuid, self.had_by)

    def is_received(self, count: int, reached: tuple[int, int]) -> bool:
        """Return whether a dump can end, because nothing of the part is behind what it brought.

        A read of everything outside ``executed_before`` continues to the log's end, so that the next one resumes there.

        :param count: transactions that it brought whole.
        :param reached: file number and position up to which it was read.
        """
        if self.start is not None:
            return self._until is not None and reached >= self._until
        return self.wanted is not None and self.wanted.is_complete(count, reached)

    @property
    def _until(self) -> tuple[int, int] | None:
        return None if self.until is None else (file_number(self.until[0]), self.until[1])

    def is_complete(self, reached: tuple[int, int]) -> bool:
        """Return whether nothing of the part is left.

        :param reached: file number and position up to which the log has been read.
        """
        if self.wanted is not None:
            return not self.wanted
        return self._until is not None and reached >= self._until

    def rest(self, received: Position, end: Hint | None) -> LogRead:
        """Return the part that is left.

        :param received: transactions that were received whole.
        :param end: position behind the last of them.
        """
        if self.wanted is not None:
            return replace(self, wanted=self.wanted - received)
        if self.executed_before is None:
            return self
        hint = self.hint if end is None or self.server_uuid is None else end
        executed = self.executed | received if self.is_endless and self.executed is not None else self.executed
        return replace(self, executed_before=self.executed_before | received, executed=executed, hint=hint)

    def incomplete_error(self) -> IncompleteReadError:
        """Return the error for a dump that ended early without an error."""
        if self.is_endless:
            return IncompleteReadError("the server ended the dump")
        if self.until is not None:
            file, pos = self.until
            return IncompleteReadError(f"the dump ended before {self.subject}", file=file, pos=pos)
        return IncompleteReadError(f"the dump ended before all of {self.subject} had arrived")

    def explain(self, error: HeadgateError) -> None:
        """Add the missing transactions to the error that ended a try."""
        if self.wanted is not None:
            error.fields.setdefault("missing", str(self.wanted))

    def request(self) -> LogRequest:
        """Return the same read as a request to a binlog archive."""
        return LogRequest(
            executed_before=_gtids(self.executed_before),
            wanted=_gtids(self.wanted),
            executed=_gtids(self.required),
            server_uuid=self.server_uuid,
            until=self.until,
            endless=self.is_endless,
        )


def _gtids(position: Position | None) -> GtidSet | None:
    return None if position is None else gtids_of(position, "a binlog archive")

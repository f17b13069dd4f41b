"""The part of a server's log to read: from where, to where, of which server."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from headgate.catalog import TablePatterns
from headgate.errors import HeadgateError, IncompleteReadError
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings, LogRequest
from headgate.places import LogPlace, begin_of, end_of
from headgate.replication._types import LogHint, file_number

__all__ = ["LogRead"]


@dataclass(frozen=True)
class LogRead:
    """A part of one server's log. Exactly one of ``wanted``, ``had`` and ``start`` says where it begins.

    ======== ============ ==========================================================================
    begin    end          which part
    ======== ============ ==========================================================================
    wanted   —            these transactions, or of a log without GTIDs these positions
    had      until        everything outside ``had``, at least to the position ``until``
    had      server_id    everything outside ``had``, for ever
    start    until        all events from one position on, to another or to the log's end
    ======== ============ ==========================================================================
    """

    settings: ConnectionSettings
    wanted: GtidSet | None = None
    had: GtidSet | None = None
    start: tuple[str, int] | None = None
    """A file and the position in it at which an event begins."""
    until: tuple[str, int] | None = None
    """A file and position that the server named."""
    executed: GtidSet | None = None
    """What the server must have executed (one that lacks some of it answers with too little, and no error); None:
    ``had``."""
    server_uuid: str | None = None
    """The server that the read was planned on; None: any that has executed it."""
    hint: LogHint | None = None
    """Where a reader stood when it had everything before this part."""
    server_id: int = 0
    """0: up to the log's end; another one: for ever, as the log grows."""
    followed: TablePatterns | None = None
    """Tables whose changes the log must hold as rows, which is checked on each connection; None: a planner has."""
    falls_back: bool = False
    """Ask the server for what a kept copy of the log no longer has, whatever the settings say."""
    subject: str = "a range"
    """What a failure calls this part; with ``until``, its end."""

    @classmethod
    def endless(
        cls, settings: ConnectionSettings, had: GtidSet, tables: TablePatterns, *, hint: LogHint | None = None
    ) -> LogRead:
        """Everything after ``had``, for ever. The server id is a random one above 2³¹, which servers do not have."""
        identity = random.randrange(1 << 31, (1 << 32) - 1)
        return cls(settings, had=had, hint=hint, server_id=identity, followed=tables)

    @property
    def is_endless(self) -> bool:
        """Whether it goes on as the log grows."""
        return self.server_id != 0

    @property
    def place(self) -> LogPlace | None:
        """Where it begins in a log without GTIDs; None: it is a matter of GTIDs, or of ``start``."""
        if self.wanted is not None:
            return begin_of(self.wanted)
        return None if self.had is None else end_of(self.had)

    @property
    def required(self) -> GtidSet | None:
        """What the server must have executed."""
        return self.had if self.executed is None else self.executed

    @property
    def stop(self) -> tuple[int, int] | None:
        """File number and position behind which nothing belongs to it; None: what comes first, or has GTIDs, tells.

        A read of everything outside ``had`` goes to the log's end, so that the next one goes on from there.
        """
        if self.start is not None:
            return self._until
        end = None if self.wanted is None else end_of(self.wanted)
        return None if end is None else (end.file, end.pos)

    @property
    def count(self) -> int | None:
        """How many transactions it has; None: unknown."""
        return None if self.wanted is None else self.wanted.count()

    @property
    def _until(self) -> tuple[int, int] | None:
        return None if self.until is None else (file_number(self.until[0]), self.until[1])

    def is_complete(self, reached: tuple[int, int]) -> bool:
        """Whether nothing of it is left.

        :param reached: file number and position up to which the log has been read.
        """
        if self.wanted is not None:
            return not self.wanted
        return self._until is not None and reached >= self._until

    def rest(self, received: GtidSet, end: tuple[str, int] | None) -> LogRead:
        """What is left of it.

        :param received: transactions that were received whole.
        :param end: file and position behind the last of them.
        """
        if self.wanted is not None:
            return replace(self, wanted=self.wanted - received)
        if self.had is None:
            return self
        hint = self.hint if end is None or self.server_uuid is None else LogHint(self.server_uuid, *end)
        return replace(self, had=self.had | received, hint=hint)

    def short(self) -> IncompleteReadError:
        """The error of a dump that ended without one before its end."""
        if self.is_endless:
            return IncompleteReadError("the server ended the dump")
        if self.until is not None:
            file, pos = self.until
            return IncompleteReadError(f"the log ended before {self.subject}", file=file, pos=pos)
        return IncompleteReadError(f"the log ended before all of {self.subject} had arrived")

    def explain(self, error: HeadgateError) -> None:
        """Let the error that ended a try say what is still missing."""
        if self.wanted is not None:
            error.fields.setdefault("missing", str(self.wanted))

    def request(self) -> LogRequest:
        """The same, asked of a kept copy of the log."""
        return LogRequest(
            had=self.had,
            wanted=self.wanted,
            executed=self.required,
            server_uuid=self.server_uuid,
            until=self.until,
            endless=self.is_endless,
        )

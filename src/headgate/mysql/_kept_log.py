"""Who may give a server's log in its place: what such a one is asked for, and what it answers with.

The answer is what the server itself would send after COM_BINLOG_DUMP: packets with events in them, which say where they
are in the server's own files. So readers decode either with the same code, and cannot tell them apart.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from headgate.gtid import GtidSet
from headgate.mysql._stream import ByteStream

__all__ = ["KeptLog", "LogKeeper", "LogRequest"]


@dataclass(frozen=True)
class LogRequest:
    """A range of the log: all of ``wanted``, or everything after ``had``; other transactions may be among it."""

    had: GtidSet | None = None
    wanted: GtidSet | None = None
    """Given instead of ``had``."""
    executed: GtidSet | None = None
    """What must be in the log; a keeper that lacks some of it waits for a while."""
    server_uuid: str | None = None
    """Whose log it must be; None: anybody's."""
    until: tuple[str, int] | None = None
    """File and position of that server's log which must have been reached; a keeper waits for a while."""
    endless: bool = False
    """Go on as the log grows, for ever; else to the log's end."""


@dataclass
class KeptLog:
    """The answer."""

    stream: ByteStream
    server_uuid: str
    """Whose log it begins with."""


class LogKeeper(Protocol):
    """Keeps a copy of a server's log. Equal ones give the same log."""

    @property
    def falls_back(self) -> bool:
        """Whether the server itself is to be asked for what is not kept any more."""

    def open(self, asked: LogRequest) -> AbstractContextManager[KeptLog]:
        """The range that was asked for.

        :raises BinlogPurgedError: it is not kept any more, or never was.
        :raises ServerBehindError: it is not there yet, or is another server's.
        :raises TransportError: the keeper cannot be reached.
        """

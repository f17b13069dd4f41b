"""Interface of a binlog archive, which serves a server's log in the server's place: requests and answers.

The answer is what the server itself would send after COM_BINLOG_DUMP: packets with events, which name their positions
in the server's own files. So readers decode both with the same code.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from headgate.gtid import GtidSet
from headgate.mysql._stream import ByteStream

__all__ = ["ArchivedLog", "BinlogArchive", "LogRequest"]


@dataclass(frozen=True)
class LogRequest:
    """A range of the log: all of ``wanted``, or everything after ``executed_before``.

    The answer may hold other transactions.
    """

    executed_before: GtidSet | None = None
    wanted: GtidSet | None = None
    """Set instead of ``executed_before``."""
    executed: GtidSet | None = None
    """What the log must hold. An archive that lacks part of it waits for a while."""
    server_uuid: str | None = None
    """Server whose log it must be; None: any."""
    until: tuple[str, int] | None = None
    """File and position that the copy of that server's log must have reached. An archive waits for a while."""
    endless: bool = False
    """True: continue endlessly, as the log grows; False: stop at the log's end."""


@dataclass
class ArchivedLog:
    """Answer to a :class:`LogRequest`."""

    stream: ByteStream
    server_uuid: str
    """Server whose log the stream begins with."""


class BinlogArchive(Protocol):
    """Binlog archive: a copy of a server's log. Equal archives serve the same log."""

    @property
    def falls_back(self) -> bool:
        """Whether the server itself is read for what the archive no longer has."""

    def open(self, request: LogRequest) -> AbstractContextManager[ArchivedLog]:
        """Open the requested range.

        :raises BinlogPurgedError: the archive no longer has it, or never had.
        :raises ServerBehindError: the archive does not have it yet, or has another server's log.
        :raises TransportError: the archive cannot be reached.
        """

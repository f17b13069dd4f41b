"""How readers of the log reach a server: connections, the check that it is the planned one, and when to try again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import HeadgateError, ServerBehindError, Transient
from headgate.mysql import Connection, ConnectionSettings

__all__ = ["TRANSPORT", "BackOff", "Pacing", "Transport", "check_planned"]


@dataclass(frozen=True)
class Pacing:
    """How long a reader waits, and how often it tries. The default gives up after about 10 seconds."""

    attempts: int = 8
    """Tries in a row without progress."""
    first_pause_seconds: float = 0.1
    """Before the second try; each pause is twice the one before."""
    longest_pause_seconds: float = 10.0
    heartbeat_seconds: float = 1.0
    """How often a server says, on a dump without an end, that there is nothing new."""
    retries: type[Any] = Transient
    """The errors after which a reader tries again."""
    sleep: Callable[[float], object] = time.sleep
    """An error that it raises ends the reading."""


class BackOff:
    """Count the tries of one reader, and pause between them: doubling, with jitter."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._failed = 0

    def progress(self) -> None:
        """Something was read: the tries begin again."""
        self._failed = 0

    def pause(self, error: HeadgateError) -> None:
        """Sleep before the next try, or raise ``error`` if there were enough, or if no try can help."""
        pacing = self._pacing
        self._failed += 1
        if not isinstance(error, pacing.retries) or self._failed >= pacing.attempts:
            raise error
        pause = min(pacing.longest_pause_seconds, pacing.first_pause_seconds * 2 ** (self._failed - 1))
        pacing.sleep(pause * random.uniform(0.5, 1.0))


def _connect(settings: ConnectionSettings) -> Connection:
    return Connection.open(settings)


@dataclass(frozen=True)
class Transport:
    """What stands between a reader and a server."""

    connect: Callable[[ConnectionSettings], Connection] = _connect
    pacing: Pacing = Pacing()

    @contextmanager
    def planned(self, settings: ConnectionSettings, server_uuid: str) -> Iterator[Connection]:
        """A connection to the server with this UUID.

        :raises ServerBehindError: another server answered.
        """
        with self.connect(settings) as connection:
            check_planned(str(connection.query("SELECT @@global.server_uuid")[0][0]), server_uuid)
            yield connection


TRANSPORT: Final = Transport()
"""Real connections."""


def check_planned(server_uuid: str, planned: str | None) -> None:
    """The server that answered is the planned one.

    :param planned: None: any server will do.
    :raises ServerBehindError: it is another one.
    """
    if planned is not None and server_uuid != planned:
        raise ServerBehindError(f"connected to server {server_uuid}, but the read was planned on {planned}")

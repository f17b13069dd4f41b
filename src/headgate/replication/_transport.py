"""Connections of log readers, the check for the planned server, and the pace of retries."""

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
    """Pauses and number of tries of a reader. The default gives up after about 10 seconds."""

    attempts: int = 8
    """Tries in a row without progress."""
    first_pause_seconds: float = 0.1
    """Pause before the second try. Each pause is twice the one before."""
    longest_pause_seconds: float = 10.0
    heartbeat_seconds: float = 1.0
    """Interval of heartbeats that a server sends on an endless dump without new events."""
    retries: type[Any] = Transient
    """Errors after which a reader retries."""
    sleep: Callable[[float], object] = time.sleep
    """Sleep function. An error that it raises ends the read."""


class BackOff:
    """Retry counter of one reader. Its pauses double, with jitter."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._failed = 0

    def progress(self) -> None:
        """Reset the count: something was read."""
        self._failed = 0

    def pause(self, error: HeadgateError) -> None:
        """Sleep before the next try. Raise ``error`` if no tries are left or a retry cannot help."""
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
    """Connections to a server, and the pace of retries."""

    connect: Callable[[ConnectionSettings], Connection] = _connect
    pacing: Pacing = Pacing()

    @contextmanager
    def planned(self, settings: ConnectionSettings, server_uuid: str) -> Iterator[Connection]:
        """Open a connection to the server with this UUID.

        :raises ServerBehindError: another server answered.
        """
        with self.connect(settings) as connection:
            check_planned(str(connection.query("SELECT @@global.server_uuid")[0][0]), server_uuid)
            yield connection


TRANSPORT: Final = Transport()
"""Real connections."""


def check_planned(server_uuid: str, planned: str | None) -> None:
    """Check that the server that answered is the planned one.

    :param planned: None: any server.
    :raises ServerBehindError: another server answered.
    """
    if planned is not None and server_uuid != planned:
        raise ServerBehindError(f"connected to server {server_uuid}, but the read was planned on {planned}")

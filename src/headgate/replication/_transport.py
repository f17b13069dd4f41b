"""Connections of log readers, their retries, and the check for the planned server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from headgate.errors import ServerBehindError
from headgate.mysql import Connection, ConnectionSettings, server_identity
from headgate.retrying import RetryPolicy

__all__ = ["TRANSPORT", "Transport", "check_planned"]


def _connect(settings: ConnectionSettings) -> Connection:
    return Connection.open(settings)


_RETRY: Final = RetryPolicy(tries=7)
"""Gives up after about 10 seconds."""


@dataclass(frozen=True)
class Transport:
    """Connections to a server, and the retries of a reader. Everything that it reads is progress."""

    connect: Callable[[ConnectionSettings], Connection] = _connect
    retry: RetryPolicy = _RETRY

    def retrying(self, **changes: Any) -> Self:
        """Return the same connections, with a retry policy that differs in these fields."""
        return replace(self, retry=replace(self.retry, **changes))

    @contextmanager
    def planned(self, settings: ConnectionSettings, server_uuid: str) -> Iterator[Connection]:
        """Open a connection to the server with this UUID.

        :raises ServerBehindError: another server answered.
        """
        with self.connect(settings) as connection:
            check_planned(server_identity(connection), server_uuid)
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

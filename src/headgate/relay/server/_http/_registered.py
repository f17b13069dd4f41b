"""Schemas that each connection got by ``/register``.

Databus's Java client requests ``/register`` once per connection, before the first ``/stream``
(``RelayPullThread.java``). An event by an unknown schema becomes null for its consumer (``DbusEventAvroDecoder.java``),
which fails; the client then passes it the same event again, for ever. So the relay remembers which schemas it sent. An
answer of ``/stream`` ends before the first window with an event by a newer schema, and the connection ends with it. The
client registers on its next connection and continues with that window. It reconnects only after a window's end, where
it has nothing to roll back.

This applies only to clients that identify themselves like Databus's, in ``x-dbus-client-host`` or
``x-dbus-client-service`` (``AbstractNettyHttpConnection.java``), and registered on the same connection; others look up
a schema when they meet it. If clients share a proxy's connections to the relay, a connection identifies no client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request

from headgate.relay.databus import CLIENT_HOST, CLIENT_SERVICE, Schema
from headgate.relay.server.events import Registry

__all__ = ["Registrations", "is_databus_client"]

_KEY: Final = "registered"


def is_databus_client(request: Request) -> bool:
    """Return whether a client identifies itself like Databus's."""
    return CLIENT_SERVICE in request.headers or CLIENT_HOST in request.headers


@dataclass(frozen=True)
class _Registration:
    digests: Mapping[str, frozenset[bytes]]
    """Schema ids by the source's name."""
    changes: int = -1
    """The registry's change count when ``digests`` was last known to be complete; -1: not checked."""


class Registrations:
    """The schemas that the connections of one relay registered."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @staticmethod
    def note(request: Request, schemas: Mapping[str, Iterable[Schema]]) -> None:
        """Record the schemas in an answer of ``/register``, by the source's name."""
        connection: dict[str, _Registration] = getattr(request.state, "connection", {})
        if not is_databus_client(request):
            return
        earlier = connection.get(_KEY)
        digests = {name: frozenset(one.digest for one in versions) for name, versions in schemas.items()}
        connection[_KEY] = _Registration({**(earlier.digests if earlier else {}), **digests})

    def newer(self, request: Request) -> Sequence[bytes]:
        """Return the ids of schemas that the connection did not get, though it registered their sources.

        Call it after reading events: a schema is in the registry before any event refers to it.
        """
        connection: dict[str, _Registration] = getattr(request.state, "connection", {})
        registration = connection.get(_KEY)
        if registration is None or registration.changes == self._registry.changes or not is_databus_client(request):
            return ()
        changes = self._registry.changes
        newer = [
            schema.digest
            for name, digests in registration.digests.items()
            for schema in self._registry.versions(name)
            if schema.digest not in digests
        ]
        if not newer:
            connection[_KEY] = replace(registration, changes=changes)
        return newer

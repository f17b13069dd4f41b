"""Which schemas a connection was told of by ``/register``.

Databus's Java client asks ``/register`` once on each connection, before the first ``/stream``, and not again while it
lasts (``RelayPullThread.java``). An event by a schema that it does not know is null to its consumer
(``DbusEventAvroDecoder.java``), which fails; the client gives it the same event again, for ever. So the relay remembers
what it told. An answer of ``/stream`` ends before the first window with an event by a newer schema, and the connection
ends with it: the client registers on its next one, and goes on with that window. It asks again only behind a window's
end, where it has nothing to take back.

Only clients that name themselves as it does, in ``x-dbus-client-host`` or ``x-dbus-client-service``
(``AbstractNettyHttpConnection.java``), and that registered on the same connection: others look a schema up when they
meet it. Where a proxy shares its connections to the relay among clients, a connection says nothing of a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request

from headgate.databus import Schema
from headgate.relay._events._schemas import Registry

__all__ = ["Registrations", "is_databus_client"]

_KEY: Final = "registered"


def is_databus_client(request: Request) -> bool:
    """Whether a client names itself as Databus's does."""
    return "x-dbus-client-service" in request.headers or "x-dbus-client-host" in request.headers


@dataclass(frozen=True)
class _Told:
    digests: Mapping[str, frozenset[bytes]]
    """By the source's name, the ids of its schemas."""
    changes: int = -1
    """Of the registry, when these were last known to be all of them."""


class Registrations:
    """Those of one relay's connections."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @staticmethod
    def note(request: Request, schemas: Mapping[str, Iterable[Schema]]) -> None:
        """These are the schemas of sources, by name, that an answer of ``/register`` has."""
        connection: dict[str, _Told] = getattr(request.state, "connection", {})
        if not is_databus_client(request):
            return
        before = connection.get(_KEY)
        found = {name: frozenset(one.digest for one in versions) for name, versions in schemas.items()}
        connection[_KEY] = _Told({**(before.digests if before else {}), **found})

    def newer(self, request: Request) -> Sequence[bytes]:
        """Ids of the schemas that its connection was not told of, though it registered their sources.

        To be asked after events were read: a schema is in the registry before any event refers to it.
        """
        connection: dict[str, _Told] = getattr(request.state, "connection", {})
        told = connection.get(_KEY)
        if told is None or told.changes == self._registry.changes or not is_databus_client(request):
            return ()
        changes = self._registry.changes
        found = [
            schema.digest
            for name, digests in told.digests.items()
            for schema in self._registry.versions(name)
            if schema.digest not in digests
        ]
        if not found:
            connection[_KEY] = replace(told, changes=changes)
        return found

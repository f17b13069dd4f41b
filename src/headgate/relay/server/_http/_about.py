"""The relay's sources and state: ``/sources``, ``/register``, ``/physicalSources``, ``/bufferInfo``, ``/admin``."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay.databus import PROTOCOL_VERSION, Schema
from headgate.relay.server._http._commands import HEADERS, Command, compact, reply
from headgate.relay.server._http._parameters import Flag, InvalidParameterError, Number, Parameters, digits
from headgate.relay.server._http._registered import Registrations, is_databus_client
from headgate.relay.server._http._requests import SourceIds, known_sources
from headgate.relay.server._relay import Relay
from headgate.relay.server._sources import LogicalSource
from headgate.relay.server._tenants import Client, client_of

__all__ = ["commands"]

_NS_PER_MS: Final = 1_000_000
_WITH_METADATA: Final = 4
"""The protocol version that includes schemas of metadata."""


class _Sources(Parameters):
    v: Annotated[Literal[1, 2], digits] = 1


class _Register(Parameters):
    sources: SourceIds | None = None
    protocol_version: Annotated[Literal[2, 3, 4], digits] = 3
    compress: Flag = False


class _Buffer(Parameters):
    name: str
    partition: Annotated[Number, Field(ge=1)]


def commands(relay: Relay) -> list[Command]:
    """Return the commands, which only report."""
    about = _About(relay)
    status = Command("/admin/status", about.admin, for_all=True)
    return [
        Command("/sources", about.sources, _Sources, for_all=True),
        Command("/register", about.register, _Register, for_all=True),
        Command("/physicalSources", about.physical_sources),
        Command("/physicalBuffers", about.physical_buffers, for_all=True),
        Command("/bufferInfo/inbound/{name}/{partition}", about.buffer_info, _Buffer),
        Command("/bufferInfo/{rest:path}", about.no_buffer),
        status,
        replace(status, path="/admin"),
    ]


class _About:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def _readable(self, client: Client) -> Sequence[LogicalSource]:
        return [one for one in self._relay.names.all() if client.may_read(one.name)]

    async def sources(self, request: Request, parameters: _Sources) -> Response:
        sources = self._readable(client_of(request))
        if parameters.v == 1:
            return reply(request, [{"name": one.name, "id": one.id} for one in sources])
        wild = {"wildcard": False, "allSourcesWildcard": False}
        return reply(request, [{"id": one.id, "name": one.name, **wild} for one in sources])

    async def register(self, request: Request, parameters: _Register) -> Response:
        client = client_of(request)
        wanted = self._readable(client)
        if parameters.sources is not None:
            wanted = known_sources(parameters.sources, client, self._relay.names, "register").sources
        schemas = {one.name: self._relay.registry.versions(one.name) for one in wanted}
        Registrations.note(request, schemas)
        entries = [
            {"id": one.id, "version": schema.version, "schema": schema.text}
            for one in wanted
            for schema in schemas[one.name]
        ]
        metadata = self._metadata(schemas)
        protocol = _protocol(request, parameters.protocol_version, metadata)
        four = {"sourceSchemas": entries, **({"metadataSchemas": metadata} if metadata else {})}
        text = compact(four if protocol == _WITH_METADATA else entries)
        if parameters.compress:
            text = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        return Response(text, headers={**HEADERS, PROTOCOL_VERSION: str(protocol)})

    def _metadata(self, schemas: Mapping[str, Sequence[Schema]]) -> list[dict[str, Any]]:
        """Return the schemas of rows before updates; ``crc32`` is Databus's name of the id in events."""
        registry = self._relay.registry
        by_version = {registry.metadata_version(one): one for versions in schemas.values() for one in versions}
        return [
            {"version": version, "schema": one.text, "crc32": base64.b64encode(one.digest).decode()}
            for version, one in sorted(by_version.items())
            if version
        ]

    async def physical_sources(self, request: Request, _parameters: Parameters) -> Response:
        return reply(request, [dict(one.source.shown) for one in self._relay.partitions.values()])

    async def physical_buffers(self, request: Request, _parameters: Parameters) -> Response:
        client, buffers = client_of(request), {}
        for number, one in self._relay.partitions.items():
            sources = [
                source for source in self._readable(client) if self._relay.names.physical_of(source.id) == number
            ]
            if sources or not client.is_restricted:
                buffers[f"{one.source.name}:{number}"] = [{"name": source.name, "id": source.id} for source in sources]
        return reply(request, buffers)

    async def admin(self, request: Request, _parameters: Parameters) -> Response:
        status, message = self._relay.status()
        if client_of(request).is_restricted and message:
            message = "the relay's operator can see the reason"  # the message may contain table names
        return reply(request, {"status": status, "message": message})

    async def buffer_info(self, request: Request, parameters: _Buffer) -> Response:
        partition = self._relay.partitions.get(parameters.partition)
        if partition is None or partition.source.name != parameters.name:
            raise InvalidParameterError("bufferInfo", "partition", f"{parameters.name}/{parameters.partition}")
        info = partition.buffer.info()
        stamps = [stamp if stamp < 0 else stamp // _NS_PER_MS for stamp in (info.last_stamp, info.first_stamp)]
        value = {"minScn": info.min_scn, "maxScn": info.max_scn}
        return reply(request, value | {"timestampLatestEvent": stamps[0], "timestampFirstEvent": stamps[1]})

    async def no_buffer(self, request: Request, _parameters: Parameters) -> Response:
        raise InvalidParameterError("bufferInfo", "path", request.path_params["rest"])


def _protocol(request: Request, requested: int, metadata: Sequence[Any]) -> int:
    """Return the protocol version of the answer to ``/register``.

    Databus's client never requests 4, but it parses an answer by the version in the answer's header
    (``DatabusHttpClientImpl.java``, ``NettyHttpDatabusRelayConnection.java``).
    """
    reads_the_header = "protocolVersion" in request.query_params and is_databus_client(request)
    return _WITH_METADATA if metadata and reads_the_header else requested

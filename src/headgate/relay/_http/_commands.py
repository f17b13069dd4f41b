"""What every command of the relay is made of: a path, a table of parameters, and how it answers or fails.

What is the same for all of them (Databus, ``DatabusRequest.java``, ``DatabusHttpHeaders.java``): bodies are
``text/plain; charset=UTF-8`` whatever they hold, and an error is status 500, a body ``{"error": …, "message": …}`` and
headers with the Java classes of error and cause, by which clients tell a consumer that is too far behind
(``ScnNotFoundException``) from everything else. Ours alone, status 400: a filter that can never be asked about the keys
or rows of its source, and rows that cannot be given at all; it is no use to come again for them.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from headgate.errors import HeadgateError, ScnNotFoundError, UnsupportedError
from headgate.relay._buffer import KeyIsNoNumberError
from headgate.relay._counters import Outcome
from headgate.relay._http._parameters import (
    InvalidParameterError,
    Parameter,
    UnfitFilterError,
    presence,
    read_parameters,
)
from headgate.relay._tenants import Client, NotAllowedError, client_of
from headgate.relay._usage import Traffic, Usage

__all__ = [
    "HEADERS",
    "PRETTY",
    "PROCESSING",
    "TEXT",
    "UNKNOWN",
    "Command",
    "compact",
    "events_response",
    "failure",
    "object_of",
    "reply",
    "route",
]

TEXT: Final = "text/plain; charset=UTF-8"
HEADERS: Final = {"content-type": TEXT}
_JAVA: Final = "com.linkedin.databus2.core.container.request."
PROCESSING: Final = f"{_JAVA}RequestProcessingException"
UNKNOWN: Final = f"{_JAVA}UnknownCommandException"
_INVALID: Final = f"{_JAVA}InvalidRequestParamValueException"
_SCN_NOT_FOUND: Final = "com.linkedin.databus.core.ScnNotFoundException"
_SERVER: Final = (
    (b"x-dbus-server-host", socket.gethostname().encode("ascii", "backslashreplace")),
    (b"x-dbus-server-service", b"headgate-relay"),
)
"""Of every answer of a command, by which Databus's clients say in their logs where they are connected; its service
identifier is made of properties that only LinkedIn's deployments set (``DbusConstants.java``)."""
_WHOLE_BODY: Final = 8192
_KNOWN_QUERIES: Final = 128
"""Of a command: all who wait for the same events ask for them in the same words, and most of that is JSON in JSON."""
_LONG_QUERY: Final = 2000
_NO_PATH: Final[Mapping[str, str]] = MappingProxyType({})
PRETTY: Final = presence("pretty", "Answer with a name and value a line.")


@dataclass(frozen=True)
class Command:
    """One command.

    The function gets the request and its parameters, read by the table; others may be given the same objects, so it
    changes none. HeadgateErrors that it raises, and InvalidParameterErrors, become Databus's errors; filters that do
    not fit, ours.
    """

    path: str
    """As Starlette has it: ``/bufferInfo/inbound/{name}/{partition}``; segments in braces are in ``parameters``."""
    answer: Callable[[Request, Mapping[str, Any]], Awaitable[Response]]
    summary: str
    parameters: Sequence[Parameter] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the body of a good answer; empty: anything."""
    media: Sequence[str] = (TEXT,)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of a good answer, name → what it says; only those that matter to clients."""
    for_all: bool = False
    """Whether tenants that may read only some sources may use it: it keeps to those itself, or gives nothing away."""
    shown: bool = True
    """Whether ``/openapi.json`` has it."""
    body: Mapping[str, Any] | None = None
    """JSON Schema of what is sent to it, by POST; None: nothing, it is a GET."""
    changes: Sequence[Parameter] = ()
    """Parameters of PUT and POST, where a command that is a GET has these, too."""

    @property
    def methods(self) -> Sequence[str]:
        """GET or POST; or GET, POST and PUT."""
        if self.changes:
            return ("GET", "POST", "PUT")
        return ("GET",) if self.body is None else ("POST",)

    def takes(self, method: str) -> Sequence[Parameter]:
        """The parameters of a method."""
        return [*self.parameters, *(self.changes if method in ("POST", "PUT") else ())]

    @property
    def name(self) -> str:
        """The path's first segment: Databus's name of the command."""
        return self.path.split("/")[1]


def route(command: Command, usage: Usage, traffic: Traffic) -> Route:
    """The command as Starlette serves it, its errors as Databus's clients read them."""
    return Route(command.path, _Served(command, usage, traffic), methods=list(command.methods))


class _Served:
    """A command as an ASGI application: one, unlike a function, is called by Starlette as it is, and consumers that
    poll notice what stands between the server and the buffer.
    """

    def __init__(self, command: Command, usage: Usage, traffic: Traffic) -> None:
        self._command, self._usage, self._traffic = command, usage, traffic
        self._given = lru_cache(_KNOWN_QUERIES)(self._read)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request = Request(scope, receive)
        client, began = client_of(request), time.monotonic()
        try:
            response, outcome = await self._answer(client, request)
        except Exception:
            self._usage.container.answered(good=False)
            raise
        address = "unknown" if request.client is None else request.client.host
        if isinstance(response, StreamingResponse):
            response.body_iterator = _counted(response.body_iterator, self._traffic, address)
        else:
            self._traffic.sent(address, len(response.body))
        self._usage.count(client.name, self._command.name, outcome, time.monotonic() - began)
        response.raw_headers.extend(_SERVER)
        await response(scope, receive, send)

    async def _answer(self, client: Client, request: Request) -> tuple[Response, Outcome]:
        command = self._command
        try:
            if client.is_restricted and not command.for_all:
                raise NotAllowedError(f"/{command.name} is not for tenants that may read some sources only")
            return await command.answer(request, self._parameters(request)), "good"
        except (UnfitFilterError, KeyIsNoNumberError) as error:
            return failure(_INVALID, str(error), status=400), "bad request"
        except InvalidParameterError as error:
            return failure(_INVALID, str(error)), "bad request"
        except NotAllowedError as error:
            return failure("Forbidden", str(error), status=403), "bad request"
        except ScnNotFoundError as error:
            return failure(PROCESSING, str(error), _SCN_NOT_FOUND), "scn not found"
        except UnsupportedError as error:
            return failure(PROCESSING, str(error), status=400), "bad request"
        except HeadgateError as error:
            return failure(PROCESSING, str(error)), "error"

    def _parameters(self, request: Request) -> Mapping[str, Any]:
        """:raises InvalidParameterError: one is missing or wrong."""
        query, path = request.scope["query_string"], request.path_params
        if path or len(query) > _LONG_QUERY:
            return self._read(request.method, query, path)
        return self._given(request.method, query)

    def _read(self, method: str, query: bytes, path: Mapping[str, str] = _NO_PATH) -> Mapping[str, Any]:
        return read_parameters(self._command.name, self._command.takes(method), QueryParams(query), path)


async def _counted(parts: AsyncIterable[Any], traffic: Traffic, address: str) -> AsyncIterator[Any]:
    """An answer's parts, counted as they go."""
    async for part in parts:
        traffic.sent(address, len(part))
        yield part


def object_of(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that has these properties, and perhaps more."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def failure(
    error: str, message: str, cause: str | None = None, *, status: int = 500, more: Mapping[str, str] | None = None
) -> Response:
    """An error as Databus has it; ``error`` and ``cause`` are Java's names. What Databus lacks has another status.

    :param more: headers beside.
    """
    text = " ".join(message.split())
    headers = {**HEADERS, **(more or {}), "x-dbus-error": error, "x-dbus-error-message": _in_header(text)}
    if cause is not None:
        headers |= {"x-dbus-error-cause": cause, "x-dbus-error-cause-message": _in_header(text)}
    return Response(compact({"error": error, "message": text}) + "\r\n", status, headers)


def _in_header(text: str) -> str:
    """As it may stand in a header: what is not printable ASCII is escaped."""
    return text.encode("unicode_escape").decode("ascii")


def events_response(request: Request, body: bytes | memoryview[int], headers: Mapping[str, str]) -> Response:
    """Events; more than 8 KiB go in chunks, as Databus sends them (``ChunkedBodyWritableByteChannel.java``).

    Its client reads a body while it comes. Where there is a length, it takes the end of what has come for the end of
    the body, if that is longer than what Netty gives it as a whole (``ChunkedBodyReadableByteChannel.java``, Netty 3's
    ``HttpMessageDecoder.java``). HTTP/1.0 has no chunks.
    """
    response = Response(body, headers=dict(headers))
    if len(body) > _WHOLE_BODY and request.scope["http_version"] != "1.0":
        del response.headers["content-length"]  # the server sends what has no length in chunks
    return response


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pretty(value: Any) -> str:
    """As Jackson's default printer has it: ``"name" : value`` a line."""
    return json.dumps(value, ensure_ascii=False, indent=2, separators=(",", " : "))


def reply(request: Request, value: Any) -> Response:
    """A value as JSON; ``?pretty`` for people."""
    return Response(_pretty(value) if "pretty" in request.query_params else compact(value), headers=HEADERS)

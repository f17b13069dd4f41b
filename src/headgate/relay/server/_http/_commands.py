"""What every command of the relay consists of: a path, a table of parameters, and how it answers or fails.

Common to all of them (Databus, ``DatabusRequest.java``, ``DatabusHttpHeaders.java``): bodies are
``text/plain; charset=UTF-8`` whatever they contain. An error is status 500, a body ``{"error": …, "message": …}`` and
headers with the Java classes of error and cause. By these, clients distinguish a consumer that is too far behind
(``ScnNotFoundException``) from all other errors. Only headgate has status 400: for a filter that can never apply to the
keys or rows of its source, and for rows that cannot be encoded. A retry does not help there.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from headgate.errors import HeadgateError, ScnNotFoundError, UnsupportedError
from headgate.relay.databus import (
    ERROR,
    ERROR_CAUSE,
    ERROR_CAUSE_MESSAGE,
    ERROR_MESSAGE,
    INVALID_PARAMETER,
    PROCESSING_FAILED,
    SCN_NOT_FOUND,
    SERVER_HOST,
    SERVER_SERVICE,
)
from headgate.relay.server._counters import SERVER, Counters, Outcome
from headgate.relay.server._cursor import KeyIsNoNumberError
from headgate.relay.server._http._parameters import InvalidParameterError, Parameters, UnfitFilterError, read_parameters
from headgate.relay.server._tenants import Client, NotAllowedError, client_of
from headgate.web import read_body

__all__ = ["HEADERS", "TEXT", "Answer", "Command", "body_of", "compact", "events_response", "failure", "reply", "route"]

TEXT: Final = "text/plain; charset=UTF-8"
HEADERS: Final = {"content-type": TEXT}
_SERVER: Final = (
    (SERVER_HOST.encode(), socket.gethostname().encode("ascii", "backslashreplace")),
    (SERVER_SERVICE.encode(), b"headgate-relay"),
)
"""Headers of every answer of a command, which Databus's clients log as their server. Its service identifier consists
of properties that only LinkedIn's deployments set (``DbusConstants.java``)."""
_WHOLE_BODY: Final = 8192
_LARGEST_BODY: Final = 4 << 20
"""Of a POST; the checkpoints of the largest group are a tenth of it, and GTID sets of a log much less."""
_KNOWN_QUERIES: Final = 128
"""Per command: consumers of the same events send the same query, most of which is JSON in JSON."""
_LONG_QUERY: Final = 2000
_LONGEST_IN_HEADER: Final = 2048
"""Python's client reads lines of 65,536 bytes, Netty's default is 8,192 for all headers, and a message comes twice."""

Answer: TypeAlias = Callable[[Request, Any], Awaitable[Response]]
"""Takes the request and its parameters."""


@dataclass(frozen=True)
class Command:
    """One command.

    Its answer's HeadgateErrors and InvalidParameterErrors become Databus's errors; filters that do not fit, headgate's.
    """

    path: str
    """In Starlette's form: ``/bufferInfo/inbound/{name}/{partition}``; segments in braces are in ``parameters``."""
    answer: Answer
    parameters: type[Parameters] = Parameters
    for_all: bool = False
    """Whether tenants restricted to some sources may use it: it checks the sources, or reveals nothing of them."""
    methods: Sequence[str] = ("GET",)

    @property
    def name(self) -> str:
        """Databus's name of the command: the path's first segment."""
        return self.path.split("/")[1]


def route(command: Command, counters: Counters) -> Route:
    """Return the command as a Starlette route; its errors have Databus's form."""
    return Route(command.path, _Served(command, counters), methods=list(command.methods))


class _Served:
    """A command as an ASGI application. Starlette calls an application directly, but wraps a function; consumers that
    poll notice every layer between the server and the buffer.
    """

    def __init__(self, command: Command, counters: Counters) -> None:
        self._command, self._counters = command, counters
        self._read_cached = lru_cache(_KNOWN_QUERIES)(self._read)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        client, began = client_of(request), time.monotonic()
        try:
            response, outcome = await self._answer(client, request)
        except ClientDisconnect:  # before all of its request came
            return
        except Exception:
            self._counters.add(SERVER, workerTaskCount=1, errorUncaughtCount=1)
            raise
        address = "unknown" if request.client is None else request.client.host
        if isinstance(response, StreamingResponse):
            response.body_iterator = _counted(response.body_iterator, self._counters, address)
        else:
            self._counters.sent(address, len(response.body))
        self._counters.answer(client.name, self._command.name, outcome, time.monotonic() - began)
        response.raw_headers.extend(_SERVER)
        await response(scope, receive, send)

    async def _answer(self, client: Client, request: Request) -> tuple[Response, Outcome]:
        command = self._command
        try:
            if client.is_restricted and not command.for_all:
                raise NotAllowedError(f"/{command.name} is not for tenants that may read some sources only")
            return await command.answer(request, self._parameters(request)), "good"
        except (UnfitFilterError, KeyIsNoNumberError) as error:
            return failure(INVALID_PARAMETER, str(error), status=400), "bad request"
        except InvalidParameterError as error:
            return failure(INVALID_PARAMETER, str(error)), "bad request"
        except NotAllowedError as error:
            return failure("Forbidden", str(error), status=403), "bad request"
        except ScnNotFoundError as error:
            return failure(PROCESSING_FAILED, str(error), SCN_NOT_FOUND), "scn not found"
        except UnsupportedError as error:
            return failure(PROCESSING_FAILED, str(error), status=400), "bad request"
        except HeadgateError as error:
            return failure(PROCESSING_FAILED, str(error)), "error"

    def _parameters(self, request: Request) -> Parameters:
        """:raises InvalidParameterError: one is missing or wrong."""
        query, path = request.scope["query_string"], request.path_params
        if path or len(query) > _LONG_QUERY:
            return self._read(query, **path)
        return self._read_cached(query)

    def _read(self, query: bytes, **path: str) -> Parameters:
        texts = {**QueryParams(query), **path}
        return read_parameters(self._command.name, self._command.parameters, texts)


async def _counted(parts: AsyncIterable[Any], counters: Counters, address: str) -> AsyncIterator[Any]:
    """Yield an answer's parts, counted as they are sent."""
    async for part in parts:
        counters.sent(address, len(part))
        yield part


async def body_of(request: Request, command: str) -> bytes:
    """Return what was posted, at most 4 MiB.

    :raises InvalidParameterError: it is larger.
    """
    body = await read_body(request.stream(), _LARGEST_BODY)
    if body is None:
        raise InvalidParameterError(command, "body", f"more than {_LARGEST_BODY} bytes")
    return body


def failure(
    error: str,
    message: str,
    cause: str | None = None,
    *,
    status: int = 500,
    more: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Response:
    """Return an error in Databus's form; ``error`` and ``cause`` are Java names. headgate's errors have another status.
    The body has the whole message, the headers at most 2,048 bytes of it: clients limit a header's line.

    :param more: additional headers.
    :param fields: of headgate's error, for the body.
    """
    text = " ".join(message.split())
    headers = {**HEADERS, **(more or {}), ERROR: error, ERROR_MESSAGE: _in_header(text)}
    if cause is not None:
        headers |= {ERROR_CAUSE: cause, ERROR_CAUSE_MESSAGE: _in_header(text)}
    body = {"error": error, "message": text} | ({} if fields is None else {"fields": fields})
    return Response(compact(body) + "\r\n", status, headers)


def _in_header(text: str) -> str:
    """Return text for a header, perhaps its beginning: characters other than printable ASCII are escaped."""
    escaped = text.encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= _LONGEST_IN_HEADER else f"{escaped[:_LONGEST_IN_HEADER]} ..."


def events_response(request: Request, body: bytes | memoryview[int], headers: Mapping[str, str]) -> Response:
    """Return events; more than 8 KiB go in chunks, as Databus sends them (``ChunkedBodyWritableByteChannel.java``).

    Databus's client parses a body while it arrives. If a body has a length and is longer than one piece from Netty,
    the client takes the end of the received part for its end (``ChunkedBodyReadableByteChannel.java``, Netty 3's
    ``HttpMessageDecoder.java``). HTTP/1.0 has no chunks.
    """
    response = Response(body, headers=dict(headers))
    if len(body) > _WHOLE_BODY and request.scope["http_version"] != "1.0":
        del response.headers["content-length"]  # the server sends a body without a length in chunks
    return response


def compact(value: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _pretty(value: Any) -> str:
    """Return JSON in the format of Jackson's default printer: one ``"name" : value`` per line."""
    return json.dumps(value, ensure_ascii=False, indent=2, separators=(",", " : "))


def reply(request: Request, value: Any) -> Response:
    """Answer with a value as JSON; ``?pretty`` formats it for people."""
    return Response(_pretty(value) if "pretty" in request.query_params else compact(value), headers=HEADERS)

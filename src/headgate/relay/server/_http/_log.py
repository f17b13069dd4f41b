"""The binlog archive over HTTP, for readers that would otherwise dump the log from the server: ``POST /log``,
``/log/head``, ``/log/files``.

They are headgate's, not Databus's, but fail in Databus's form. The cause is the name of a headgate error, by which
clients distinguish what is not archived yet (ServerBehindError) from what is no longer archived (BinlogPurgedError);
the body's ``fields`` are the error's fields.

A request that needs what is not archived yet waits without a thread, and any number of them may. Reading has a thread
pool of its own, so that it blocks no other commands.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headgate.errors import ConfigError, HeadgateError, ServerBehindError
from headgate.mysql import LogRequest
from headgate.relay.archive import FILES, HEAD, RANGE, SERVER_UUID, LogFeeder, LogReader, LogSpool
from headgate.relay.databus import PROCESSING_FAILED
from headgate.relay.server._http._commands import Answer, Command, body_of, failure
from headgate.relay.server._http._parameters import Parameters
from headgate.relay.server._http._waiting import AppendNotifier
from headgate.relay.server._relay import Relay

__all__ = ["commands"]

_CHUNK: Final = 1 << 20
_THREADS: Final = 64
"""Most readings at a time; more wait for a thread."""
_BINARY: Final = "application/octet-stream"


class _OfSource(Parameters):
    source: str | None = None
    """The physical source's name; None: the relay has only one."""


def commands(relay: Relay) -> list[Command]:
    """Return the commands of the binlog archive."""
    log = _Log(relay)
    return [
        Command("/log/head", _answering(log.head), _OfSource),
        Command("/log/files", _answering(log.files), _OfSource),
        Command("/log", _answering(log.read_range), methods=("POST",)),
    ]


class _Range(StreamingResponse):
    """A range of the log. It closes the reader, even if the client leaves before the first chunk is read."""

    def __init__(self, reader: LogReader, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(chunks, headers={SERVER_UUID: reader.server_uuid}, media_type=_BINARY)
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with contextlib.closing(self._reader):
            await super().__call__(scope, receive, send)


class _Log:
    def __init__(self, relay: Relay) -> None:
        self._relay, self._threads = relay, CapacityLimiter(_THREADS)
        spools = [one.spool for one in relay.partitions.values() if one.spool is not None]
        self._notifiers = {spool: AppendNotifier([spool]) for spool in spools}

    async def head(self, _request: Request, parameters: _OfSource) -> Response:
        return JSONResponse(await run_sync(_head, self._feeder(parameters.source), limiter=self._threads))

    async def files(self, _request: Request, parameters: _OfSource) -> Response:
        spool = self._feeder(parameters.source).spool
        return JSONResponse(FILES.dump_python(await run_sync(spool.files, limiter=self._threads), mode="json"))

    async def read_range(self, request: Request, _parameters: Parameters) -> Response:
        content = await body_of(request, "log")
        try:
            body = RANGE.validate_json(content)
        except ValidationError as error:
            raise ConfigError(f"invalid request: {error.errors()[0]['msg']}") from None
        reader = await self._reader(self._feeder(body.source).spool, body)
        return _Range(reader, self._chunks(reader))

    async def _reader(self, spool: LogSpool, request: LogRequest) -> LogReader:
        """Return a reader of a range as soon as it is archived.

        :raises ServerBehindError: it is not in time.
        """
        read = partial(spool.reader, request, wait_seconds=0.0)

        async def attempt(is_last: bool) -> LogReader | None:
            try:
                return await run_sync(read, limiter=self._threads)
            except ServerBehindError:
                if is_last:
                    raise
                return None

        return await self._notifiers[spool].repeat(attempt, self._relay.times.archive_wait)

    async def _chunks(self, reader: LogReader) -> AsyncIterator[bytes]:
        """Yield the answer; an error truncates it before its EOF packet, which the reader detects."""
        while chunk := await run_sync(reader.read, _CHUNK, limiter=self._threads):
            yield chunk

    def _feeder(self, name: str | None) -> LogFeeder:
        """:raises ConfigError: no source has this name, the name is missing and there are several, or no archive."""
        matches = [one for one in self._relay.partitions.values() if name in (None, one.source.name)]
        names = ", ".join(sorted(one.source.name for one in self._relay.partitions.values()))
        if not matches:
            raise ConfigError(f"the relay has no physical source {name}; it has {names}")
        if len(matches) > 1:
            raise ConfigError(f"the relay has several physical sources, name one (relay_source): {names}")
        if matches[0].log_feeder is None:
            raise ConfigError("the relay does not keep the log: start it with log_disk_bytes")
        return matches[0].log_feeder


def _head(feeder: LogFeeder) -> dict[str, Any]:
    return {
        **HEAD.dump_python(feeder.spool.head(), mode="json"),
        "failed": feeder.failed,
        "problem": feeder.problem,
        "error": None if feeder.error is None else _describe_error(feeder.error),
    }


def _describe_error(error: HeadgateError) -> dict[str, Any]:
    return {"name": type(error).__name__, "message": error.message, "fields": error.fields}


def _answering(answer: Answer) -> Answer:
    """Return the handler of a command; its errors name their class and fields."""

    async def answering(request: Request, parameters: Any) -> Response:
        try:
            return await answer(request, parameters)
        except HeadgateError as error:
            return failure(PROCESSING_FAILED, error.message, type(error).__name__, fields=error.fields)

    return answering

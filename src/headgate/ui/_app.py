"""The pages: ``/`` for people, ``/api/status`` and ``/metrics`` for programs, ``/healthz`` and ``/readyz`` for
supervisors, ``POST /signals`` and ``PUT /config`` with the token.

Every answer is rendered from the status files. The page has no state, so several pages may show the same pipelines, and
a pipeline runs without any. Templates escape what they show: table names and messages come from other systems.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headgate.catalog import expressions
from headgate.control import Signal, parse_signal
from headgate.errors import ConfigError, HeadgateError, Transient
from headgate.files import reason_of
from headgate.status import (
    activity_text,
    duration,
    files_text,
    index_text,
    requests_text,
    signal_text,
    snapshot_text,
    table_remarks,
    table_text,
)
from headgate.ui._guard import Guard
from headgate.ui._metrics import CONTENT_TYPE, exposition
from headgate.ui._phases import BAR, phase_bar, phase_steps, phases_text
from headgate.ui._pipelines import PipelineView, Watched, watch
from headgate.ui._plots import HEIGHT, WIDTH, plots
from headgate.web import Token, is_loopback, read_body
from headgate.web.probes import Probes

__all__ = ["create_app"]

_TABLES_SHOWN: Final = 200
"""Table rows that are shown without ``?all=1``: a browser replaces them every few seconds."""
_LARGEST_BODY: Final = 1 << 20
"""Bytes of a signal or a configuration; the limit for a signal's conditions is much lower."""


def create_app(pipelines: Sequence[Watched], *, host: str = "127.0.0.1", token: Token | None = None) -> ASGIApp:
    """Return the page of these pipelines.

    :param host: the address to listen on; any but a loopback address needs a token.
    :raises ConfigError: a required token is missing, or two pipelines have the same name.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(f"a page on {host} can be reached from elsewhere, so it needs a token: --token-file FILE")
    pages = _Pages(watch(pipelines), token)
    routes = [
        Route("/", pages.page),
        Route("/content", pages.content),
        Route("/api/status", pages.status),
        Route("/metrics", pages.metrics),
        Route("/signals", pages.signals, methods=["POST"]),
        Route("/config", pages.config, methods=["PUT"]),
        Mount("/static", StaticFiles(packages=[("headgate.ui", "static")])),
    ]
    app = Starlette(routes=routes, exception_handlers={ClientDisconnect: _gone})
    return Guard(Probes(app, pages.are_following), host, token)


def _gone(_request: Request, _error: Exception) -> Response:
    """Answer a client that left before all of its request came; nobody reads it."""
    return Response(status_code=400)


class _Pages:
    def __init__(self, pipelines: Mapping[str, Watched], token: Token | None) -> None:
        self._pipelines, self._token = pipelines, token
        self._templates = templates()

    # --- reading; these are plain functions, so they run in threads and may read files

    def page(self, request: Request) -> Response:
        return self._html("page.html", request, signals=self._token is not None)

    def content(self, request: Request) -> Response:
        return self._html("content.html", request)

    def status(self, _request: Request) -> Response:
        return JSONResponse({"v": 1, "pipelines": [view.to_dict() for view in self._views()]})

    def metrics(self, _request: Request) -> Response:
        return Response(exposition(self._views()), media_type=CONTENT_TYPE)

    def are_following(self) -> bool:
        """Return whether every pipeline follows its server."""
        return all(view.is_following for view in self._views())

    def _views(self) -> list[PipelineView]:
        return [pipeline.state() for pipeline in self._pipelines.values()]

    def _html(self, name: str, request: Request, **more: Any) -> Response:
        limit = None if request.query_params.get("all") == "1" else _TABLES_SHOWN
        return HTMLResponse(self._templates.get_template(name).render(views=self._views(), limit=limit, **more))

    # --- changing

    async def signals(self, request: Request) -> Response:
        """Return 202 when the signal's file is written; the pipeline takes it with its next batch."""
        body = await _body(request)
        is_form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        try:
            form = parse_qsl(body.decode()) if is_form else []
        except ValueError:
            return PlainTextResponse("not a form\n", 400)
        fields = dict(form)
        if self._token is None:
            return self._answer(request, 403, problem="signals are switched off: start the page with --token-file")
        if not (self._token.bearer(request.headers) or self._token.equals(fields.get("token", ""))):
            return self._answer(request, 401, problem="the token is missing or wrong")
        pipeline = self._named(fields.get("pipeline") or request.query_params.get("pipeline"))
        if pipeline is None:
            return self._unknown_pipeline(request)
        try:
            signal = _from_form(fields) if is_form else parse_signal(body)
            await run_in_threadpool(pipeline.submit, signal)
        except ConfigError as error:
            return self._answer(request, 400, problem=str(error))
        except HeadgateError as error:
            return self._answer(request, 503, problem=str(error))
        except OSError as error:
            return self._answer(request, 503, problem=f"the inbox cannot be written: {reason_of(error)}")
        return self._answer(request, 202, id=signal.id, type=signal.type, pipeline=pipeline.name)

    async def config(self, request: Request) -> Response:
        """Return 202 when the pipeline's file is replaced; the pipeline applies it at the end of a batch."""
        body = await _body(request)
        if self._token is None:
            return self._answer(request, 403, problem="changes are switched off: start the page with --token-file")
        if not self._token.bearer(request.headers):
            return self._answer(request, 401, problem="the token is missing or wrong")
        pipeline = self._named(request.query_params.get("pipeline"))
        if pipeline is None:
            return self._unknown_pipeline(request)
        if pipeline.file is None:
            return self._answer(request, 404, problem=f"this page does not know the file of {pipeline.name}")
        try:
            await run_in_threadpool(pipeline.file.replace, body.decode())
        except UnicodeDecodeError:
            return self._answer(request, 400, problem="the configuration is not UTF-8, so it is not TOML")
        except HeadgateError as error:
            return self._answer(request, 503 if isinstance(error, Transient) else 400, problem=str(error))
        except OSError as error:
            return self._answer(request, 503, problem=f"the file cannot be written: {reason_of(error)}")
        return self._answer(request, 202, pipeline=pipeline.name)

    def _named(self, name: str | None) -> Watched | None:
        """Return the named pipeline; without a name, the only one."""
        if name is None and len(self._pipelines) == 1:
            return next(iter(self._pipelines.values()))
        return None if name is None else self._pipelines.get(name)

    def _unknown_pipeline(self, request: Request) -> Response:
        known = ", ".join(self._pipelines)
        return self._answer(request, 404, problem=f"name the pipeline with ?pipeline=NAME: {known}")

    def _answer(self, request: Request, code: int, **value: str) -> Response:
        headers = {"www-authenticate": 'Bearer realm="headgate"'} if code == 401 else None
        if "text/html" in request.headers.get("accept", ""):
            html = self._templates.get_template("answer.html").render(value=value)
            return HTMLResponse(html, code, headers)
        return JSONResponse(value, code, headers)


async def _body(request: Request) -> bytes:
    """:raises HTTPException: it is too large."""
    body = await read_body(request.stream(), _LARGEST_BODY)
    if body is None:
        raise HTTPException(413, "a signal or a configuration may have 1 MiB at most")
    return body


def _from_form(fields: Mapping[str, str]) -> Signal:
    """Return the signal of a filled-in form; ignore fields of other types of signals."""
    kind = fields.get("type", "")
    data: dict[str, Any] = {}
    tables: list[str] = []
    if kind in ("execute-snapshot", "stop-snapshot"):
        tables = expressions(line.strip() for line in fields.get("tables", "").splitlines() if line.strip())
    if tables:
        data["data-collections"] = tables
    if kind == "execute-snapshot":
        data["type"] = fields.get("kind", "INCREMENTAL")
        condition = fields.get("condition", "").strip()
        if condition:
            data["additional-conditions"] = [{"data-collection": one, "filter": condition} for one in tables]
    return parse_signal({"type": kind, "data": data})


def _count(number: float | None) -> str:
    """Return ``1,234`` or ``12.5``; an empty text for None."""
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 100 or isinstance(number, int) else f"{number:,.1f}"


def templates() -> Environment:
    """Return the page's templates, with filters that format figures."""
    environment = Environment(
        loader=PackageLoader("headgate.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        activity=activity_text,
        ago=_ago,
        bar=phase_bar,
        clock=_clock,
        count=_count,
        duration=duration,
        files=files_text,
        index=index_text,
        phases=phases_text,
        plots=plots,
        progress=table_text,
        remarks=table_remarks,
        requests=requests_text,
        signal=signal_text,
        snapshot=snapshot_text,
        steps=phase_steps,
    )
    environment.globals.update(bar_width=BAR, plot_width=WIDTH, plot_height=HEIGHT)
    return environment


def _ago(at_us: int, now_us: int) -> str:
    return f"{duration(max(0, now_us - at_us) / 1e6)} ago"


def _clock(at_us: int) -> str:
    """Return an instant in ISO 8601, UTC, to the second."""
    return dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

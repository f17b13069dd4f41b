"""The relay over HTTP: the commands of all modules, in one application.

A module contributes a function ``commands(relay)`` that returns a list of ``_commands.Command``. Probes of supervisors
are answered before any of them, and are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.relay.databus import UNKNOWN_COMMAND
from headgate.relay.server._http import _about, _log, _metrics, _statistics, _stream
from headgate.relay.server._http import _bootstrap as _bootstrap_commands
from headgate.relay.server._http import _groups as _group_commands
from headgate.relay.server._http._commands import Command, failure, route
from headgate.relay.server._http._gate import Gate
from headgate.relay.server._http._pages import Pages
from headgate.relay.server._relay import Relay
from headgate.relay.server.bootstrap import Supplier
from headgate.web import is_loopback
from headgate.web.probes import Probes

__all__ = ["create_app"]

_MODULES: Final[Sequence[Callable[[Relay], Sequence[Command]]]] = (
    _about.commands,
    _statistics.commands,
    _metrics.commands,
    _stream.commands,
    _group_commands.commands,
    _log.commands,
)


def create_app(relay: Relay, *, suppliers: Mapping[int, Supplier] | None = None) -> Starlette:
    """Return the relay's HTTP application.

    :param suppliers: suppliers of bootstrap rows, by physical source; default: MySQL.
    """
    config, commands = relay.config, [command for module in _MODULES for command in module(relay)]
    commands += _bootstrap_commands.commands(relay, suppliers)
    routes = [route(one, relay.counters) for one in commands]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Probes, lambda: relay.is_following),
            Middleware(Pages, local=not config.tenants and is_loopback(config.host)),
            Middleware(Gate, config.tenants),
            Middleware(_FixedPathRouter, routes),
        ],
        exception_handlers={404: _unknown, 405: _unknown},
    )
    app.router.redirect_slashes = False
    return app


class _FixedPathRouter:
    """Looks up commands with a fixed path in a dictionary: Starlette matches a request against one route after the
    other, which takes longer than a polling consumer's events do.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[Route]) -> None:
        self._app = app
        plain = [one for one in routes if not one.param_convertors]
        self._by_path = {(one.path, method): one.app for one in plain for method in one.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        handler = self._by_path.get((scope["path"], scope["method"])) if scope["type"] == "http" else None
        await (handler or self._app)(scope, receive, send)


async def _unknown(request: Request, _error: Exception) -> Response:
    """Answer an unknown path, or an unsupported method."""
    return failure(UNKNOWN_COMMAND, f"Unknown command: {request.method} {request.scope['path']}")

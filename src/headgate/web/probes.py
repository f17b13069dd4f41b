"""``/healthz`` and ``/readyz`` for supervisors: a container platform's probes, a load balancer.

They come by an address, have no token, and are answered with one word, so the answers name nothing. It needs starlette,
so it is imported by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["ALIVE", "READY", "Probes", "is_probe"]

ALIVE: Final = "/healthz"
READY: Final = "/readyz"
_METHODS: Final = ("GET", "HEAD")


def is_probe(scope: Scope) -> bool:
    """Return whether a request is a probe, which needs neither a token nor a name."""
    return scope["type"] == "http" and scope["path"] in (ALIVE, READY) and scope["method"] in _METHODS


class Probes:
    """ASGI middleware that answers probes: 200 ``alive`` as long as the process serves; 200 ``ready``, else 503.

    :param is_ready: called for each ``/readyz``, in a thread.
    """

    def __init__(self, app: ASGIApp, is_ready: Callable[[], bool]) -> None:
        self._app, self._is_ready = app, is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] not in (ALIVE, READY):
            await self._app(scope, receive, send)
        elif scope["method"] not in _METHODS:
            await PlainTextResponse("GET only\n", 405, {"allow": ", ".join(_METHODS)})(scope, receive, send)
        elif scope["path"] == ALIVE:
            await PlainTextResponse("alive\n")(scope, receive, send)
        else:
            ready = await run_in_threadpool(self._is_ready)
            await PlainTextResponse(*(("ready\n", 200) if ready else ("not ready\n", 503)))(scope, receive, send)

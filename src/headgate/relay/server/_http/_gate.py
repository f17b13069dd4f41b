"""Authentication and rate limits of the relay's HTTP requests.

If tenants are configured, every request needs the token of one of them, as Bearer, from any address; all tokens are
compared, each in constant time. Without tenants, every client that reaches the port may send requests. A tenant's
limits:

* a number of concurrent requests;
* requests per second: bursts up to one second's worth of them (at least one);
* bytes of answers per second: an answer is never cut, so the next request waits for a large one; one in pieces, as of
  the binlog archive, is slowed down to the rate.

A request over a limit gets status 429 with ``Retry-After`` in seconds. The limits are counted in the server's one
thread, so they need no locks; a restart resets them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.relay.server._http._commands import failure
from headgate.relay.server._tenants import Client, Tenant

__all__ = ["Gate"]

_BUSY_SECONDS: Final = 1


class _Allowance:
    """A rate per second; an unused allowance lasts for one second."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._most, self._left, self._at = rate, max(rate, 1.0), max(rate, 1.0), now

    def seconds_until(self, least: float, now: float) -> float:
        """Return how long until ``least`` is left; 0: it is left now."""
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, (least - self._left) / self._rate)

    def take(self, amount: float) -> None:
        """Take an amount, even if less is left."""
        self._left -= amount


class _Limits:
    """The usage and limits of one tenant."""

    def __init__(self, tenant: Tenant, clock: Callable[[], float]) -> None:
        self.tenant, self._clock = tenant, clock
        self.running = 0
        now = clock()
        self._requests = None if tenant.requests_per_second is None else _Allowance(tenant.requests_per_second, now)
        self._bytes = None if tenant.bytes_per_second is None else _Allowance(tenant.bytes_per_second, now)

    def refusal(self) -> Response | None:
        """Return the refusal of a request over a limit; otherwise count it."""
        tenant, now = self.tenant, self._clock()
        if tenant.concurrent is not None and self.running >= tenant.concurrent:
            return _too_many(f"{tenant.name} has {self.running} concurrent requests, its limit", _BUSY_SECONDS)
        if self._bytes is not None and (wait := self._bytes.seconds_until(0, now)):
            return _too_many(f"{tenant.name} may read {tenant.bytes_per_second:g} bytes a second", wait)
        if self._requests is not None:
            if wait := self._requests.seconds_until(1, now):
                return _too_many(f"{tenant.name} may send {tenant.requests_per_second:g} requests a second", wait)
            self._requests.take(1)
        return None

    def sent(self, size: int) -> float:
        """Count a body's sent bytes; return how many seconds the next ones should wait."""
        if self._bytes is None:
            return 0.0
        self._bytes.take(size)
        return self._bytes.seconds_until(0, self._clock())


class Gate:
    """Admits authorized requests within limits, with the :class:`Client` in their state.

    :param clock: returns seconds.
    :param pause: waits so many seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        tenants: Sequence[Tenant],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._app, self._pause = app, pause
        self._limits: Mapping[str, _Limits] = {one.name: _Limits(one, clock) for one in tenants}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._limits:
            host = scope["client"][0] if scope.get("client") else "unknown"
            await self._answer(Client(host), scope, receive, send)
        else:
            await self._answer_tenant(scope, receive, send)

    async def _answer(self, client: Client, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["client"] = client
        await self._app(scope, receive, send)

    async def _answer_tenant(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._tenant(Headers(scope=scope))
        refusal = _unknown() if limits is None else limits.refusal()
        if limits is None or refusal is not None:
            assert refusal is not None
            await refusal(scope, receive, send)
            return

        async def count(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body":
                pause = limits.sent(len(message.get("body", b"")))
                if pause and message.get("more_body"):
                    await self._pause(pause)

        limits.running += 1
        try:
            await self._answer(Client(limits.tenant.name, limits.tenant), scope, receive, count)
        finally:
            limits.running -= 1

    def _tenant(self, headers: Headers) -> _Limits | None:
        matches = [one for one in self._limits.values() if one.tenant.token.bearer(headers)]
        return matches[0] if matches else None


def _unknown() -> Response:
    message = "a token is needed: send Authorization: Bearer with the token of a tenant"
    return failure("Unauthorized", message, status=401, more={"www-authenticate": 'Bearer realm="headgate"'})


def _too_many(message: str, seconds: float) -> Response:
    return failure("TooManyRequests", message, status=429, more={"retry-after": str(math.ceil(seconds))})

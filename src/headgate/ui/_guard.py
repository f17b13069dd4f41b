"""Access control of the page.

A page on a loopback address may be read from the same machine; a page on any other address only with the token.
Signals always need the token: without one they are disabled. Other web pages are kept out as follows:

* on a loopback address the ``Host`` of a request must be a loopback name. Otherwise a name that resolves to 127.0.0.1
  could be used to read the page through a browser (DNS rebinding);
* a POST must come from this page or from no page (``Origin``, ``Sec-Fetch-Site``), and the token must be in the
  request, as Bearer or in the form. Credentials that a browser adds automatically (Basic) permit reading only;
* the probes of a supervisor need neither: their answers name nothing;
* answers are never cached or framed; they load nothing from other hosts, and run only scripts of this server.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.web import Token, is_foreign_page, is_loopback
from headgate.web.probes import is_probe

__all__ = ["Guard"]

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "referrer-policy": "same-origin",  # with no-referrer, browsers hide the origin of the page's form
    "x-content-type-options": "nosniff",
}


class Guard:
    """Outermost middleware of the page.

    :param host: the address that the page listens on.
    """

    def __init__(self, app: ASGIApp, host: str, token: Token | None) -> None:
        self._app, self._token = app, token
        self._local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        answer = None if is_probe(scope) else self._refusal(scope["method"], headers)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._local and not is_loopback(_name(host)):
            return PlainTextResponse("this page answers to localhost only\n", 421)
        if method not in ("GET", "HEAD"):
            if is_foreign_page(headers):
                return PlainTextResponse("signals and changes from other pages are refused\n", 403)
            return None  # the handler checks the token after it has read the body
        if self._local or (self._token and (self._token.bearer(headers) or self._token.basic(headers))):
            return None
        return PlainTextResponse("the token is needed\n", 401, {"www-authenticate": 'Basic realm="headgate"'})


def _name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]

"""Who may ask what.

A page on a loopback address may be read by whoever is on the machine; a page on any other address only with the token.
Signals always need the token: without one there are no signals. What else keeps others' pages out of ours:

* the ``Host`` of a request must be a loopback name when we listen there, so that a name that somebody points at
  127.0.0.1 cannot be used to read the page through a browser (DNS rebinding);
* a POST must come from our own page or from no page at all (``Origin``, ``Sec-Fetch-Site``), and the token must be in
  the request itself, as Bearer or in the form. What a browser adds by itself (Basic) lets one read, not ask;
* answers are never cached or framed, and nothing is loaded from elsewhere or run that is not a file of ours.

The token is compared in constant time and is in no answer, log or repr.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.errors import ConfigError

__all__ = ["Guard", "Token", "is_loopback"]

_SHORTEST = 16
"""Characters of a token: what ``openssl rand -hex 16`` gives is twice that; a word would be guessed."""

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "referrer-policy": "same-origin",  # with no-referrer, browsers hide the origin of our own form
    "x-content-type-options": "nosniff",
}


class Token:
    """The secret that allows signals.

    :raises ConfigError: it is too short to be one.
    """

    def __init__(self, text: str) -> None:
        if len(text) < _SHORTEST:
            raise ConfigError(f"the token is shorter than {_SHORTEST} characters; make one: openssl rand -hex 16")
        self._bytes = text.encode()

    @classmethod
    def from_file(cls, file: Path) -> Token:
        """The token in a file, without the white space around it.

        :raises ConfigError: the file cannot be read, or what it holds is too short.
        """
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"the token file {file} cannot be read: {reason}") from None
        return cls(text.strip())

    def equals(self, given: str) -> bool:
        """Whether this is it; takes as long for any other of the same length."""
        return hmac.compare_digest(given.encode(), self._bytes)

    def __repr__(self) -> str:
        return "Token(…)"

    def bearer(self, headers: Headers) -> bool:
        """Whether the request carries it as Bearer."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.equals(value.strip())

    def basic(self, headers: Headers) -> bool:
        """Whether the request carries it as the password of any user, as browsers ask for it."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            _, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return self.equals(password)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address or name."""
    name = host.strip("[]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


class Guard:
    """The outermost layer of the page.

    :param host: the address that is listened on.
    """

    def __init__(self, app: ASGIApp, host: str, token: Token | None) -> None:
        self._app, self._token = app, token
        self._local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        answer = self._refusal(scope["method"], headers)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refusal(self, method: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if self._local and not is_loopback(_name(host)):
            return PlainTextResponse("this page answers to localhost only\n", 421)
        if method not in ("GET", "HEAD"):
            if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return PlainTextResponse("signals are not taken from other pages\n", 403)
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                return PlainTextResponse("signals are not taken from other pages\n", 403)
            return None  # the token is looked at where the body is read
        if self._local or (self._token and (self._token.bearer(headers) or self._token.basic(headers))):
            return None
        return PlainTextResponse("the token is needed\n", 401, {"www-authenticate": 'Basic realm="headgate"'})


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]

"""The server's name in the answers of a bootstrap: that of the header ``Host``, as browsers and Java write it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.relay.server import Tenant
from headgate.web import Token
from tests.relay.server.serving import Served, served
from tests.relay.server.test_bootstrap import NAME, point

TOKEN = "0123456789-operator"


@pytest.fixture(scope="module")
def relay() -> Iterator[Served]:
    """One with tokens, which answers to any name."""
    with served(tenants=[Tenant("a", Token(TOKEN))]) as one:
        yield one


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("relay.example:80", "relay.example:80"), ("relay.example", "relay.example:PORT"), ("[::1]:80", "[::1]:80"),
        ("10.0.0.1:80", "10.0.0.1:80"), ("[::1]", "[::1]:PORT"),
        ("localhost/127.0.0.1:80", "localhost:80"), ("relay.example/10.0.0.1:80", "relay.example:80"),
        ("/127.0.0.1:80", "127.0.0.1:80"), ("/[0:0:0:0:0:0:0:1]:80", "[0:0:0:0:0:0:0:1]:80"),
        ("/0:0:0:0:0:0:0:1:80", "[0:0:0:0:0:0:0:1]:80"), ("/fe80:0:0:0:0:0:0:1%2:80", "[fe80:0:0:0:0:0:0:1%2]:80"),
        ("relay.example/<unresolved>:80", "relay.example:80"),
        ("", "127.0.0.1:PORT"), ("/", "127.0.0.1:PORT"), ("/:80", "127.0.0.1:80"),
        ("localhost:http", "localhost:PORT"), ("a b/c d:80", "127.0.0.1:80"), ("[", "127.0.0.1:PORT"),
    ],
)  # fmt: skip
def test_the_plain_form(relay: Served, host: str, plain: str) -> None:
    answer = relay.get("startSCN", token=TOKEN, sources=NAME, checkPoint=point(), headers={"host": host})
    assert answer.headers["x-dbus2-bs-hostport"] == plain.replace("PORT", str(relay.port))

"""What a ``Host`` header names, in the forms of browsers and of Java."""

from __future__ import annotations

import pytest

from headgate.relay.server._http._pages import host_and_port, is_here

SERVER = ("127.0.0.1", 11115)


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("relay.example:80", "relay.example:80"), ("relay.example", "relay.example:11115"), ("[::1]:80", "[::1]:80"),
        ("10.0.0.1:80", "10.0.0.1:80"), ("[::1]", "[::1]:11115"),
        ("localhost/127.0.0.1:80", "localhost:80"), ("relay.example/10.0.0.1:80", "relay.example:80"),
        ("/127.0.0.1:80", "127.0.0.1:80"), ("/[0:0:0:0:0:0:0:1]:80", "[0:0:0:0:0:0:0:1]:80"),
        ("/0:0:0:0:0:0:0:1:80", "[0:0:0:0:0:0:0:1]:80"), ("/fe80:0:0:0:0:0:0:1%2:80", "[fe80:0:0:0:0:0:0:1%2]:80"),
        ("relay.example/<unresolved>:80", "relay.example:80"),
        ("", "127.0.0.1:11115"), ("/", "127.0.0.1:11115"), ("/:80", "127.0.0.1:80"),
        ("localhost:http", "localhost:11115"), ("a b/c d:80", "127.0.0.1:80"), ("[", "127.0.0.1:11115"),
    ],
)  # fmt: skip
def test_the_plain_form(host: str, plain: str) -> None:
    assert host_and_port(host, SERVER) == plain
    assert host_and_port(plain, ("10.9.9.9", 1)) == plain


@pytest.mark.parametrize("host", ["localhost", "localhost/127.0.0.1:80", "/127.0.0.1:80", "/[::1]:80", "[::1]:80"])
def test_this_machine(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ["", "/", ":80", "/:80", "a/127.0.0.1:80", "localhost/a:80", "//127.0.0.1:80"])
def test_another_machine_or_none(host: str) -> None:
    assert not is_here(host)

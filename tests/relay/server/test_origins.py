"""Requests that browsers send for web pages, and names of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.relay.server import REQUESTS, Tenant
from headgate.web import Token
from tests.relay.server.rows import block, people
from tests.relay.server.serving import Served, served
from tests.relay.server.test_bootstrap import point

TOKEN = "0123456789-operator"


@pytest.fixture
def relay() -> Iterator[Served]:
    with served() as one:
        one.put(block(people([1])))
        yield one


SCN: dict[str, Any] = {"sources": "40", "checkPoint": point()}
STREAM = {"sources": "40", "size": "100000", "output": "rows"}


@pytest.mark.parametrize("headers", [
    {"origin": "https://other.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:1"}, {"origin": "http://["},
    {"origin": "garbage"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
])  # fmt: skip
def test_pages_of_other_servers_are_refused(relay: Served, headers: dict[str, str]) -> None:
    """Whatever they request, as also a GET may have effects; and no answer lets them read it."""
    for path, parameters in (("startSCN", SCN), ("stream", STREAM), ("sources", {}), ("nothing", {})):
        for method in ("GET", "POST", "OPTIONS"):
            answer = relay.get(path, method=method, headers=headers, **parameters)
            assert (answer.status, answer.json["error"]) == (403, "Forbidden")
            assert "let the page's server read the relay" in answer.json["message"]
            assert not {name for name in answer.headers if name.startswith("access-control")}
    assert relay.relay.counters.read(*REQUESTS)["numStreamCalls"] == 0


def test_the_relays_user_and_programs_are_answered(relay: Served) -> None:
    same = f"http://127.0.0.1:{relay.port}"
    for headers in (
        {},
        {"origin": same},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": same},
    ):
        assert relay.get("startSCN", headers=headers, **SCN).status == 200
        assert relay.get("stream", headers=headers, **STREAM).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LocalHost:80", 200), ("127.0.0.1:11115", 200), ("[::1]:11115", 200), ("127.1.2.3", 200),
        ("rebound.example", 421), ("rebound.example:11115", 421), ("127.0.0.1.rebound.example", 421), ("10.0.0.1", 421),
        ("[2001:db8::1]", 421), ("[", 421), (":80", 421),
        # As Java prints an address: both halves have to be this machine's, as far as they are given.
        ("localhost/127.0.0.1:11115", 200), ("/127.0.0.1:11115", 200), ("127.0.0.1/127.0.0.1:11115", 200),
        ("localhost/[0:0:0:0:0:0:0:1]:80", 200), ("localhost/0:0:0:0:0:0:0:1:11115", 200), ("/[::1]:80", 200),
        ("rebound.example/127.0.0.1:11115", 421), ("localhost/10.0.0.1:11115", 421), ("/10.0.0.1:11115", 421),
        ("127.0.0.1/rebound.example:11115", 421), ("localhost/<unresolved>:11115", 421),
        ("localhost/127.0.0.1/rebound.example:1", 421), ("localhost/[10.0.0.1", 421), ("/", 421), ("/:11115", 421),
        ("//127.0.0.1:80", 421), ("localhost/a:80", 421),
    ],
)  # fmt: skip
def test_names_that_lead_to_this_machine(relay: Served, host: str, status: int) -> None:
    assert relay.get("sources", headers={"host": host}).status == status


def test_a_host_with_a_slash_is_no_part_of_the_path(relay: Served) -> None:
    answer = relay.get("containerStats/x", headers={"host": "localhost/127.0.0.1:11115"})
    assert answer.json == relay.get("containerStats/x").json
    assert "containerStats" in answer.json["message"]
    assert relay.get("nothing", headers={"host": "localhost/127.0.0.1:11115"}).json == relay.get("nothing").json


def test_with_tokens_any_name_will_do() -> None:
    with served(tenants=[Tenant("a", Token(TOKEN))]) as relay:
        assert relay.get("sources", token=TOKEN, headers={"host": "relay.example"}).status == 200

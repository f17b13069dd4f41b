"""Which web pages may read a relay, as browsers ask and see it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from headgate.errors import ConfigError
from headgate.relay import RelayConfig, Tenant
from headgate.web import Token
from tests.relay.rows import block, people
from tests.relay.serving import PATIENCE_SECONDS, PERSON, Served, physical, served

TOKEN = "0123456789-operator"
DASH, OTHER = "https://dash.example", "https://other.example"
READ, EXPOSED = "access-control-allow-origin", "access-control-expose-headers"
STREAM = {"sources": "40", "size": "100000", "output": "rows"}


@pytest.fixture
def relay() -> Iterator[Served]:
    with served(allow_origins=[DASH, "http://localhost:8000"]) as one:
        one.put(block(people([1])))
        yield one


@pytest.mark.parametrize("path", ["sources", "stream", "nothing", "openapi.json", "events?seconds=0"])
def test_by_default_no_page_may_read(path: str) -> None:
    with served() as relay:
        for origin in (DASH, "null", f"http://127.0.0.1:{relay.port}"):
            answer = relay.get(path, headers={"origin": origin})
            assert not {name for name in answer.headers if name.startswith("access-control") or name == "vary"}
        before = relay.get(path, method="OPTIONS", headers={"origin": DASH})
        assert (before.status, before.body, set(before.headers) - {"date"}) == (204, b"", set())


def test_pages_that_are_listed(relay: Served) -> None:
    for origin in (DASH, "http://localhost:8000"):
        answer = relay.get("stream", headers={"origin": origin}, **STREAM)
        assert (answer.status, answer.headers[READ], answer.headers["vary"]) == (200, origin, "Origin")
        assert "x-headgate-checkpoint" in answer.headers[EXPOSED]
    # An answer is kept for nobody else: it would be another one for another origin.
    for headers in ({"origin": OTHER}, {"origin": "http://dash.example"}, {"origin": f"{DASH}:8443"}, {}):
        answer = relay.get("stream", headers=headers, **STREAM)
        assert (answer.status, answer.headers.get(READ), answer.headers["vary"]) == (200, None, "Origin")


def test_errors_may_be_read_too(relay: Served) -> None:
    wrong = relay.get("stream", headers={"origin": DASH})
    assert (wrong.status, wrong.headers[READ]) == (500, DASH)
    assert "x-dbus-error-cause" in wrong.headers[EXPOSED]
    with served(allow_origins=[DASH], tenants=[Tenant("a", Token(TOKEN))]) as closed:
        for path, status in (("sources", 401), ("nothing", 401)):
            answer = closed.get(path, headers={"origin": DASH})
            assert (answer.status, answer.headers[READ]) == (status, DASH)
        answer = closed.get("sources", token=TOKEN, headers={"origin": DASH})
        assert (answer.status, answer.headers[READ]) == (200, DASH)


def test_a_browser_asks_before_it_sends_a_token(relay: Served) -> None:
    before = relay.get("stream", method="OPTIONS", headers={"origin": DASH})
    assert (before.status, before.body, before.headers[READ]) == (204, b"", DASH)
    assert before.headers["access-control-allow-headers"] == "authorization, last-event-id"
    refused = relay.get("stream", method="OPTIONS", headers={"origin": OTHER})
    assert (refused.status, refused.headers.get(READ)) == (204, None)
    assert "access-control-allow-headers" not in refused.headers


def test_as_databus_has_it() -> None:
    with served(allow_origins=["*"]) as relay:
        for headers in ({}, {"origin": OTHER}, {"origin": "null", "host": "rebound.example"}):
            answer = relay.get("sources", headers=headers)
            assert (answer.status, answer.headers[READ], answer.headers.get("vary")) == (200, "*", None)


def post(relay: Served, origin: str | None, host: str | None = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_SECONDS)
    headers = {"content-type": "application/json", **({} if origin is None else {"origin": origin})}
    if host is not None:
        headers["host"] = host
    connection.request("POST", "/log", json.dumps({}), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_what_is_sent_comes_from_no_other_page(relay: Served) -> None:
    kept_no_log = 500
    for origin in (None, DASH, f"http://127.0.0.1:{relay.port}"):
        assert post(relay, origin) == kept_no_log
    for origin in (OTHER, "null", "http://127.0.0.1:1", "http://[", "garbage"):
        assert post(relay, origin) == 403, origin


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LocalHost:80", 200), ("127.0.0.1:11115", 200), ("[::1]:11115", 200), ("127.1.2.3", 200),
        ("rebound.example", 421), ("rebound.example:11115", 421), ("127.0.0.1.rebound.example", 421), ("10.0.0.1", 421),
        ("[2001:db8::1]", 421), ("[", 421),
        # As Java prints an address: both halves have to be this machine's, as far as they are given.
        ("localhost/127.0.0.1:11115", 200), ("/127.0.0.1:11115", 200), ("127.0.0.1/127.0.0.1:11115", 200),
        ("localhost/[0:0:0:0:0:0:0:1]:80", 200), ("localhost/0:0:0:0:0:0:0:1:11115", 200), ("/[::1]:80", 200),
        ("rebound.example/127.0.0.1:11115", 421), ("localhost/10.0.0.1:11115", 421), ("/10.0.0.1:11115", 421),
        ("127.0.0.1/rebound.example:11115", 421), ("localhost/<unresolved>:11115", 421),
        ("localhost/127.0.0.1/rebound.example:1", 421), ("localhost/[10.0.0.1", 421), ("/", 421), ("/:11115", 421),
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


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "dash.example", "https://dash.example/", "https://Dash.example", "HTTPS://dash.example",
        "https://dash.example:443", "http://dash.example:80", "https://u@dash.example", "https://dash.example:x",
        "https://*.example", "https://dash.example ", "https://", "https://dash.example?x", "https://dash exam.ple",
    ],
)  # fmt: skip
def test_what_is_no_origin(origin: str) -> None:
    with pytest.raises(ConfigError, match="is not an origin as browsers send it"):
        RelayConfig((physical(1, "p", PERSON),), allow_origins=(origin,))


def test_origins_of_any_scheme_and_port() -> None:
    for origin in ("http://localhost:8000", "https://[2001:db8::1]:8443", "chrome-extension://abcdef", "*"):
        assert RelayConfig((physical(1, "p", PERSON),), allow_origins=(origin,)).allow_origins == (origin,)

"""Access control and limits of each route of the relay; a new route is among them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.relay.server import Tenant
from headgate.web import Token
from tests.relay.server.serving import Served, served
from tests.web.misuse import Misuse

TOKEN, SLOW = "0123456789-operator", "0123456789-slow-one"
LARGEST_BODY = 4 << 20


def routes(app: Any) -> list[tuple[str, str]]:
    """Method and path of all routes, with 1 for each part that varies."""
    every = {(method, re.sub(r"\{[^}]*\}", "1", one.path)) for one in app.routes for method in one.methods}
    return sorted((method, path) for method, path in every if method != "HEAD")


@pytest.fixture(scope="module")
def relay() -> Iterator[Served]:
    with served(request_seconds=1.0) as one:
        yield one


def test_another_name_for_this_machine_is_refused(relay: Served) -> None:
    every = routes(relay.app)
    assert len(every) > 20
    assert {("POST", "/log"), ("POST", "/groups/1"), ("GET", "/stream"), ("GET", "/metrics")} < set(every)
    for method, path in every:
        answer = relay.get(path.removeprefix("/"), method=method, headers={"host": "rebound.example"})
        assert (answer.status, answer.json["error"]) == (421, "Forbidden"), path


def test_a_page_of_another_server_is_refused(relay: Served) -> None:
    for method, path in routes(relay.app):
        for headers in ({"origin": "https://other.example"}, {"sec-fetch-site": "cross-site"}):
            answer = relay.get(path.removeprefix("/"), method=method, headers=headers)
            assert (answer.status, answer.json["error"]) == (403, "Forbidden"), path
            assert not {name for name in answer.headers if name.startswith("access-control")}


def test_a_token_is_needed_and_its_rate_holds() -> None:
    tenants = [Tenant("operator", Token(TOKEN)), Tenant("slow", Token(SLOW), requests_per_second=0.0001)]
    with served(tenants=tenants) as relay:
        every = routes(relay.app)
        assert relay.get("sources", token=SLOW).status == 200
        for method, path in every:
            for token, status in ((None, 401), (TOKEN[:-1], 401), (SLOW, 429)):
                assert relay.get(path.removeprefix("/"), method=method, token=token).status == status, path


def test_slow_headers_and_bodies_end_their_connection(relay: Served) -> None:
    misuse = Misuse(relay.port, routes(relay.app))
    assert misuse.left_open_by_slow_headers() == []
    assert misuse.left_open_by_slow_bodies() == []


def test_large_headers_and_bodies_are_refused(relay: Served) -> None:
    every = routes(relay.app)
    assert Misuse(relay.port, every).accepting_large_headers() == {}
    reading = [route for route in every if route[0] == "POST" and "Stats" not in route[1]]
    answers = Misuse(relay.port, reading).answers_to_large_bodies(LARGEST_BODY + 1)
    assert answers == dict.fromkeys(reading, 500)
    assert relay.get("sources").status == 200

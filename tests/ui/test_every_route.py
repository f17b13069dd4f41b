"""Access control and limits of each route of the page; a new route is among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from headgate.carrier import ControlFolder
from headgate.ui import Serving, Token, Watched, create_app
from tests.ui.status import put
from tests.ui.test_app import SECRET, ask
from tests.web.misuse import Misuse

PROBES = {("GET", "/healthz"), ("GET", "/readyz")}
"""They name nothing, so supervisors need neither name nor token."""
LARGEST_BODY = 1 << 20


def routes(app: Any) -> list[tuple[str, str]]:
    """Method and path of all routes; a folder of files by one of them."""
    every: list[tuple[str, str]] = []
    for one in app._app._app.routes:
        if isinstance(one, Mount):
            every.append(("GET", f"{one.path}/page.js"))
        else:
            assert isinstance(one, Route)
            every += [(method, one.path) for method in sorted(one.methods or ()) if method != "HEAD"]
    return every


EVERY = [*routes(create_app([])), *sorted(PROBES)]


@pytest.fixture
def inbox(tmp_path: Path) -> ControlFolder:
    folder = ControlFolder(str(tmp_path / "inbox"))
    put(folder)
    return folder


@pytest.fixture
def here(inbox: ControlFolder) -> ASGIApp:
    """A page on a loopback address."""
    return create_app([Watched("shop", inbox)], token=Token(SECRET))


@pytest.fixture
def elsewhere(inbox: ControlFolder) -> ASGIApp:
    """A page on all addresses."""
    return create_app([Watched("shop", inbox)], host="0.0.0.0", token=Token(SECRET))


def test_there_are_routes() -> None:
    assert len(EVERY) >= 9
    assert {("POST", "/signals"), ("PUT", "/config"), ("GET", "/static/page.js")} < set(EVERY)


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_another_name_for_this_machine_is_refused(here: ASGIApp, method: str, path: str) -> None:
    answer = ask(here, path, method, {"host": "rebound.example", "authorization": f"Bearer {SECRET}"})
    assert answer.code in ((200, 503) if (method, path) in PROBES else (421,))
    assert "shop" not in answer.text


@pytest.mark.parametrize(("method", "path"), EVERY)
@pytest.mark.parametrize("token", [None, "wrong-0123456789-wrong"])
def test_no_token_or_a_wrong_one_is_refused(elsewhere: ASGIApp, method: str, path: str, token: str | None) -> None:
    headers = {"host": "watch.example", **({} if token is None else {"authorization": f"Bearer {token}"})}
    answer = ask(elsewhere, path, method, headers)
    assert answer.code in ((200, 503) if (method, path) in PROBES else (401,))
    assert "shop" not in answer.text


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_a_page_of_another_server_changes_and_reads_nothing(
    here: ASGIApp, inbox: ControlFolder, method: str, path: str
) -> None:
    for headers in ({"origin": "https://other.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        answer = ask(here, path, method, {**headers, "authorization": f"Bearer {SECRET}"}, b"{}")
        assert answer.code in ((403,) if method != "GET" else (200, 503))
        assert not {name for name in answer.headers if name.startswith("access-control")}
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert inbox.signals() == {}


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_other_methods_do_nothing(here: ASGIApp, method: str, path: str) -> None:
    known = {one for one, other in EVERY if other == path} | {"HEAD"}
    for other in {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"} - known:
        assert ask(here, path, other, {"authorization": f"Bearer {SECRET}"}).code == 405


@pytest.fixture(scope="module")
def misuse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Misuse]:
    shop = Watched("shop", ControlFolder(str(tmp_path_factory.mktemp("inbox"))))
    with Serving(create_app([shop], token=Token(SECRET)), "127.0.0.1", 0, request_seconds=1.0) as serving:
        yield Misuse(serving.port, EVERY)


def test_slow_headers_and_bodies_end_their_connection(misuse: Misuse) -> None:
    assert misuse.left_open_by_slow_headers() == []
    assert misuse.left_open_by_slow_bodies() == []


def test_large_headers_and_bodies_are_refused(misuse: Misuse) -> None:
    assert misuse.accepting_large_headers() == {}
    answers = misuse.answers_to_large_bodies(LARGEST_BODY + 1)
    assert {route: code for route, code in answers.items() if route[0] != "GET"} == {
        route: 413 for route in EVERY if route[0] != "GET"
    }
    assert misuse.answers_to_large_bodies(0)["GET", "/healthz"] == 200

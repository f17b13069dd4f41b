"""Server-sent events: the messages, going on from the last one, and a page in a real browser."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route

from headgate.relay import RelayLimits, RelayTimes, Tenant
from headgate.testing import Proxy
from headgate.web import Token
from headgate.web.serving import Serving
from tests.browser import Browser
from tests.relay.rows import UUID, block, people
from tests.relay.serving import PATIENCE_SECONDS, Answer, Served, served
from tests.relay.test_app import GENERATION, INVALID, PROCESSING, checkpoint, pets, refused

PAGE = Path(__file__).parents[2] / "examples" / "changes.html"
ROWS = "document.getElementById('rows').rows"


@pytest.fixture
def relay() -> Iterator[Served]:
    with served() as one:
        fill(one)
        yield one


def fill(relay: Served) -> None:
    """Two persons; a pet."""
    put(relay, 1, [1, 2])
    relay.put(block(pets([7], gtids=[f"{UUID}:2"], pos=[200])))


def put(relay: Served, number: int, ids: list[int]) -> None:
    relay.put(block(people(ids, gtids=[f"{UUID}:{number}"] * len(ids), pos=[number * 100] * len(ids))))


def messages(body: bytes) -> list[dict[str, str]]:
    """As a browser takes them apart; comments and ``retry`` have no data."""
    events = []
    for text in body.decode().split("\n\n"):
        lines = [line.partition(": ") for line in text.splitlines() if not line.startswith(":")]
        message = {name: value for name, _, value in lines}
        if "data" in message:
            events.append(message)
    return events


def ask(relay: Served, last: str | None = None, **more: Any) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        headers = {} if last is None else {"last-event-id": last}
        connection.request("GET", f"/events?{urlencode({'seconds': 0, **more})}", headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): one for name, one in answer.getheaders()}, answer.read())


def ids(answer: Answer) -> list[str]:
    assert answer.status == 200, answer
    return [message["id"] for message in messages(answer.body)]


FIRST, SECOND = str(GENERATION + 1), str(GENERATION + 2)


def test_messages(relay: Served) -> None:
    answer = ask(relay)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body.startswith(b"retry: 1000\n\nid: ")
    events = messages(answer.body)
    assert [one["id"] for one in events] == [f"{FIRST}:1", f"{FIRST}:2", FIRST, f"{SECOND}:1", SECOND]
    assert [one.get("event") for one in events] == [None, None, "end", None, "end"]
    assert json.loads(events[2]["data"]) == {"scn": GENERATION + 1}
    lines = relay.get("stream", sources="40,41", size="100000", output="rows").body.decode().splitlines()
    assert [one["data"] for one in events if "event" not in one] == lines
    assert ids(ask(relay, sources="41")) == [FIRST, f"{SECOND}:1", SECOND]
    assert ids(ask(relay, streamFromLatestScn="true")) == [f"{SECOND}:1", SECOND]
    assert ids(ask(relay, checkPoint=json.dumps(checkpoint(GENERATION + 1)))) == [f"{SECOND}:1", SECOND]


def test_going_on_after_any_message(relay: Served) -> None:
    everything = ids(ask(relay))
    for place, last in enumerate(everything):
        # The browser's own place is newer than what the page's address says.
        assert ids(ask(relay, last, streamFromLatestScn="true")) == everything[place + 1 :], last
    for wrong in ("x", "1:2:3", "-1", "9" * 30):
        refused(ask(relay, wrong), INVALID)
    refused(ask(relay, str(GENERATION - 5)), PROCESSING, "com.linkedin.databus.core.ScnNotFoundException")
    refused(ask(relay, sources="42"), INVALID)
    refused(ask(relay, seconds="x"), INVALID)


@pytest.mark.parametrize("size", [150, 1])
def test_a_large_transaction_comes_in_pieces(relay: Served, size: int) -> None:
    with served(limits=RelayLimits(piece=size)) as sparing:
        fill(sparing)
        with contextlib.closing(Listening(sparing.port, "/events")) as listening:
            body = listening.until(f'data: {{"scn":{SECOND}}}\n\n'.encode())
    assert [one["id"] for one in messages(body)] == ids(ask(relay))


class Listening:
    """A connection that stays open."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        self._connection.request("GET", path)
        self._answer = self._connection.getresponse()

    def until(self, text: bytes) -> bytes:
        """What comes up to and with ``text``."""
        data = b""
        while text not in data:
            line = self._answer.readline()
            assert line, data
            data += line
        return data

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def test_changes_come_as_they_happen(relay: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    relay.relay.times = RelayTimes(heartbeat=0.05)
    listening = Listening(relay.port, "/events?sources=40,41")
    with contextlib.closing(listening):
        listening.until(f"id: {SECOND}\n".encode())
        listening.until(b"\n:\n")  # a sign of life
        put(relay, 3, [5])
        assert b'"key":5' in listening.until(f"id: {GENERATION + 3}\n".encode())
        # What is gone before it could be sent is told, and the answer ends.
        buffer = relay.relay.partitions[1].buffer
        with buffer._lock:  # readers look for news meanwhile
            monkeypatch.setattr(buffer, "oldest_resumable_scn", GENERATION + 50)
            buffer._segments.clear()
        put(relay, 99, [6])
        listening.until(b"event: failure\n")
        assert b"ScnNotFoundError" in listening.until(b"data: ")


def test_the_server_ends_while_somebody_listens(capfd: pytest.CaptureFixture[str]) -> None:
    with served() as relay:
        put(relay, 1, [1])
        listening = Listening(relay.port, "/events")
        listening.until(f"id: {FIRST}\n".encode())
    with contextlib.closing(listening):
        pass
    assert "Traceback" not in capfd.readouterr().err


def test_a_tenant_sees_its_changes() -> None:
    token = "0123456789-kennel"
    with served(tenants=[Tenant("kennel", Token(token), sources=("com.example.*",))]) as relay:
        relay.put(block(people([1], ordinals=[0]), pets([7], ordinals=[1])))
        answer = relay.get("events", token=token, seconds="0")
        assert [json.loads(one["data"])["key"] for one in messages(answer.body) if "event" not in one] == ["7\tpet7"]
        assert relay.get("events", token=token, sources="40").status == 403
        head = relay.get("events", token=token, method="HEAD")
        assert (head.status, head.headers["content-type"], head.body) == (200, "text/event-stream", b"")


SHOWN = """new Promise((resolve) => {
  const rows = document.getElementById("rows");
  const look = () => rows.rows.length >= COUNT && resolve([...rows.rows].map((row) => row.cells[4].textContent));
  new MutationObserver(look).observe(rows, {childList: true});
  look();
})"""
STATE_TEXT = """new Promise((resolve) => {
  const state = document.getElementById("state");
  const look = () => state.textContent.startsWith("TEXT") && resolve(state.textContent);
  new MutationObserver(look).observe(state, {childList: true, characterData: true, subtree: true});
  look();
})"""


@pytest.fixture
def pages() -> Iterator[str]:
    """An origin that serves the example."""

    async def page(request: Request) -> Response:
        del request
        return FileResponse(PAGE)

    with Serving(Starlette(routes=[Route("/changes.html", page)]), "127.0.0.1", 0) as serving:
        yield serving.url.rstrip("/")


def test_a_page_in_a_browser(browser: Browser, pages: str) -> None:
    """Changes appear as they come; a relay that was away and is back gives what was missed, and nothing twice."""
    with served(allow_origins=[pages]) as relay:
        fill(relay)
        shows_changes(browser, pages, relay)


def test_a_page_of_an_origin_that_is_not_allowed_sees_nothing(browser: Browser, pages: str, relay: Served) -> None:
    for page in (f"{pages}/changes.html", PAGE.as_uri()):
        browser.open(f"{page}?{urlencode({'relay': f'http://127.0.0.1:{relay.port}'})}")
        assert browser.run(STATE_TEXT.replace("TEXT", "refused")).startswith("refused"), page
        assert browser.run(f"{ROWS}.length") == 0


def test_a_page_of_the_relays_own_origin_needs_no_leave(browser: Browser, relay: Served) -> None:
    """As behind a proxy that serves both."""

    async def page(request: Request) -> Response:
        del request
        return FileResponse(PAGE)

    both = Starlette(routes=[Route("/changes.html", page), Mount("/", relay.app)])
    with Serving(both, "127.0.0.1", 0) as serving:
        browser.open(f"{serving.url}changes.html?{urlencode({'relay': serving.url, 'sources': '40'})}")
        assert browser.run(STATE_TEXT.replace("TEXT", "connected")) == "connected"
        put(relay, 3, [3])
        assert browser.run(SHOWN.replace("COUNT", "1")) == ["3"]


def shows_changes(browser: Browser, pages: str, relay: Served) -> None:
    """The relay's address stays; its port is another one when it is back, as another process may have the old one."""
    with contextlib.ExitStack() as stack:
        with Serving(relay.app, "127.0.0.1", 0) as serving:
            proxy = stack.enter_context(Proxy("127.0.0.1", serving.port))
            address = f"http://{proxy.host}:{proxy.port}"
            browser.open(f"{pages}/changes.html?{urlencode({'relay': address, 'sources': '40'})}")
            shows_one(browser, relay)
        assert browser.run(STATE_TEXT.replace("TEXT", "connecting")) == "connecting again"
        put(relay, 4, [4])
        with Serving(relay.app, "127.0.0.1", 0) as serving:
            proxy.aim("127.0.0.1", serving.port)
            put(relay, 5, [5])
            assert browser.run(SHOWN.replace("COUNT", "3")) == ["5", "4", "3"]


def shows_one(browser: Browser, relay: Served) -> None:
    assert browser.run(STATE_TEXT.replace("TEXT", "connected")) == "connected"
    put(relay, 3, [3])
    assert browser.run(SHOWN.replace("COUNT", "1")) == ["3"]
    cells = browser.run(f"[...{ROWS}[0].cells].map((cell) => cell.textContent)")
    assert (cells[0], cells[3], json.loads(cells[5])["firstName"]) == (str(GENERATION + 3), "UPSERT", "first3")
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    browser.look(width=375, height=800, dark=True)
    assert browser.run(overflow) == 0

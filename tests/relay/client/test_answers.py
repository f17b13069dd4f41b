"""What a consumer makes of answers that are none: which it tries again, when, and at which it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import (
    ConfigError,
    ConnectError,
    Definite,
    RelayConsumerError,
    ScnNotFoundError,
    ServerBehindError,
    Transient,
)
from headgate.gtid import GtidSet
from headgate.mysql import LogRequest
from headgate.relay.archive import LogOfRelay
from headgate.relay.client import Consumer, GroupMember, RelayClient, RelayTransport, Retry
from headgate.web import retry_after
from tests.relay.server.rows import block, people
from tests.relay.server.serving import Served, served
from tests.relay.server.test_app import pets

INVALID = "com.linkedin.databus2.core.container.request.InvalidRequestParamValueException"
UNKNOWN = "com.linkedin.databus2.core.container.request.UnknownCommandException"
NOT_FOUND = {"x-dbus-error-cause": "com.linkedin.databus.core.ScnNotFoundException"}
TRANSIENT = (408, 425, 429, 500, 502, 503, 504, 599)
DEFINITE = (201, 204, 301, 400, 401, 403, 404, 405, 409, 410, 413, 414, 421, 422, 431, 451)


class Answering:
    """A web server that gives one answer to everything."""

    def __init__(self) -> None:
        self.status, self.headers, self.request_count = 500, dict[str, str](), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                outer.request_count += 1
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                if outer.status != 204:
                    self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_POST = _answer  # noqa: N815 - the library's names

            def log_message(self, *_arguments: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Answering]:
    answering = Answering()
    yield answering
    answering.close()


@pytest.mark.parametrize("status", DEFINITE)
def test_what_a_client_ends_with_at_once(server: Answering, status: int) -> None:
    server.status = status
    with pytest.raises(ConfigError, match=f"refuses the request: status {status}"):
        RelayClient(server.url, [], Consumer()).run()
    assert server.request_count == 1
    with pytest.raises(Exception, match=server.url) as error:
        LogOfRelay(server.url).head()
    assert isinstance(error.value, Definite)


@pytest.mark.parametrize("status", TRANSIENT)
def test_what_a_client_tries_again(server: Answering, status: int) -> None:
    server.status = status
    with pytest.raises(RelayConsumerError, match=f"given up after 3 tries: .*status {status}"):
        RelayClient(server.url, [], Consumer(), retry=Retry(first_seconds=0.001, tries=2)).run()
    assert server.request_count == 3
    with pytest.raises(Exception, match=server.url) as error:
        LogOfRelay(server.url).head()
    assert isinstance(error.value, Transient)


def test_what_the_headers_of_status_500_say(server: Answering) -> None:
    for kind in (INVALID, UNKNOWN):
        server.headers = {"x-dbus-error": kind, "x-dbus-error-message": "wrong"}
        with pytest.raises(ConfigError, match="refuses the request: wrong"):
            RelayClient(server.url, [], Consumer()).run()
    server.headers = {"x-dbus-error": "RequestProcessingException", **NOT_FOUND}
    with pytest.raises(ScnNotFoundError):
        RelayClient(server.url, [], Consumer()).run()
    assert server.request_count == 3


def test_a_filter_that_cannot_be_asked_ends_the_client() -> None:
    ranges = {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 1, "end": 2}}]}
    with served() as relay:
        relay.put(block(people([1]), pets([7])))
        for filters, message in (
            ({"com.example.Pet": ranges}, "are made of owner, name"),
            ({"com.example.Pet": {"partitionType": "NONE", "where": "owner = 'x'"}}, "'x' is not a number"),
            ({"com.example.Pet": {"partitionType": "HASH", "filters": [{}]}}, "Invalid value for parameter filters"),
        ):
            for bootstrap in (False, True):
                if bootstrap and "Invalid" not in message:
                    continue  # rows come from MySQL: tests/integration/relay/test_relay_bootstrap.py
                client = client_of(relay, filters=filters, bootstrap=bootstrap)
                with pytest.raises(ConfigError, match=message):
                    client.run()


def client_of(relay: Served, **more: Any) -> RelayClient:
    return RelayClient(f"http://127.0.0.1:{relay.port}", [], Consumer(), **more)


# --- Retry-After


def headers(**fields: str) -> Message:
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


@given(st.integers(0, 10**9 - 1))
def test_seconds(seconds: int) -> None:
    assert retry_after(headers(retry_after=str(seconds))) == min(seconds, 60)


@given(st.integers(0, 4 * 10**9), st.integers(-1000, 1000))
def test_dates_by_the_clock_of_who_sent_them(now: int, later: int) -> None:
    then = formatdate(max(now + later, 0), usegmt=True)
    seconds = retry_after(headers(retry_after=then, date=formatdate(now, usegmt=True)))
    assert seconds == min(max(max(now + later, 0) - now, 0), 60)


def test_dates_by_our_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.web._answers.time.time", lambda: 1_000_000.0)
    assert retry_after(headers(retry_after=formatdate(1_000_007, usegmt=True))) == 7
    assert retry_after(headers(retry_after=formatdate(1_000_007, usegmt=True), date="garbage")) == 7


@given(st.text(max_size=40))
def test_anything_else_is_as_good_as_nothing(text: str) -> None:
    message = headers()
    message.add_header("retry-after", text.replace("\r", "").replace("\n", ""))
    assert 0 <= retry_after(message) <= 60


@pytest.mark.parametrize("text", ["", "-1", "1.5", "soon", "9" * 5000, "\u0663", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_what_is_no_time(text: str) -> None:
    message = headers()
    message.add_header("retry-after", text)
    assert retry_after(message) == 0


class Clock:
    """Time that passes only in pauses, which are noted."""

    def __init__(self, client: RelayClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.pauses = 1000.0, list[float]()
        monkeypatch.setattr("headgate.relay.client._transport.time.monotonic", lambda: self.now)
        monkeypatch.setattr(client._stop, "wait", self.wait)

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("status", [429, 503])
def test_a_client_waits_as_long_as_it_is_asked_to(
    server: Answering, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    server.status, server.headers = status, {"retry-after": "7"}
    client = RelayClient(server.url, [], Consumer(), retry=Retry(tries=2))
    clock = Clock(client, monkeypatch)
    with pytest.raises(RelayConsumerError):
        client.run()
    assert len(clock.pauses) == 2
    assert all(7 <= pause <= 7.7 for pause in clock.pauses)


def test_no_longer_than_a_minute_and_not_beyond_the_deadline(
    server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.status, server.headers = 503, {"retry-after": "86400"}
    client = RelayClient(server.url, [], Consumer(), retry=Retry(tries=1))
    clock = Clock(client, monkeypatch)
    with pytest.raises(RelayConsumerError):
        client.run()
    (pause,) = clock.pauses
    assert 60 <= pause <= 66
    client = RelayClient(server.url, [], Consumer(), retry=Retry(deadline_seconds=90))
    clock = Clock(client, monkeypatch)
    with pytest.raises(RelayConsumerError):
        client.run()
    assert sum(clock.pauses) == pytest.approx(90)


def test_of_other_answers_it_says_nothing(server: Answering) -> None:
    server.status, server.headers = 500, {"retry-after": "7"}
    transport = RelayTransport([server.url])
    with pytest.raises(Exception, match="cannot answer"):
        transport.json("sources")
    assert transport.requested_wait_seconds() == 0


def test_another_relay_is_asked_at_once(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    server.status, server.headers = 429, {"retry-after": "30"}
    other = Answering()
    other.status = 503
    try:
        client = RelayClient([server.url, other.url], [], Consumer(), retry=Retry(tries=2))
        clock = Clock(client, monkeypatch)
        with pytest.raises(RelayConsumerError):
            client.run()
        assert clock.pauses[0] <= 0.1  # before the other one
        assert 29.8 <= clock.pauses[1] <= 33  # what is left of the first one's time
        assert (server.request_count, other.request_count) == (2, 1)
    finally:
        other.close()


@pytest.mark.parametrize("status", [429, 503])
def test_a_reader_of_the_log_waits_as_long_as_it_is_asked_to(server: Answering, status: int) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            server.status, server.headers = 500, {"x-dbus-error-cause": "ServerBehindError", "retry-after": "7"}

    log = LogOfRelay(server.url, retry=replace(LogOfRelay.retry, sleep=sleep))
    for what in (log.head, lambda: log.open(LogRequest(executed_before=GtidSet())).__enter__()):
        server.status, server.headers, server.request_count = status, {"retry-after": "7"}, 0
        pauses.clear()
        with pytest.raises(ServerBehindError):  # what the third answer says; of its own it says no time
            what()
        assert (server.request_count, len(pauses)) == (3, 2)
        assert all(7 <= pause <= 7.7 for pause in pauses)


def test_a_reader_of_the_log_does_not_wait_for_ever(server: Answering) -> None:
    pauses: list[float] = []
    for delay, most in (("86400", 2), ("20", 6), ("0", 0), ("soon", 0)):
        server.status, server.headers = 429, {"retry-after": delay}
        pauses.clear()
        with pytest.raises(ConnectError, match="HTTP status 429"):
            LogOfRelay(server.url, retry=replace(LogOfRelay.retry, sleep=pauses.append)).head()
        assert len(pauses) <= most
        assert sum(pauses) <= 132
        assert bool(pauses) == bool(most)


def test_a_member_of_a_group_waits_as_long_as_it_is_asked_to(
    server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    member = GroupMember(server.url, "g", 4, [], lambda *_: Consumer())

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        server.status, server.headers = 503, {"retry-after": "60"}
        if len(pauses) == 2:
            member.stop()

    monkeypatch.setattr(member._sync_now, "wait", wait)
    member.run()
    assert pauses[0] == 0.2
    assert 1 < pauses[1] <= 60  # what is left of the minute

"""Answers over the web server: what goes out in one piece."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headgate.web.serving import Serving, _Joining
from headgate_testing import wait_until

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """Stands for asyncio's transport: what was sent, piece by piece."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.sent.append(b"closed")


def sent(*steps: bytes | memoryview | None) -> list[bytes]:
    """The pieces that these writes become; None: a turn of the loop."""

    async def run() -> list[bytes]:
        wire: Any = Wire()
        joining = _Joining(wire, asyncio.get_running_loop())
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            else:
                joining.write(step)
        joining.close()
        return list(wire.sent)

    return asyncio.run(run())


def test_a_short_answer_is_one_piece() -> None:
    assert sent(HEAD, b"body", HEAD, memoryview(b"next")) == [HEAD + b"body", HEAD + b"next", b"closed"]


def test_a_head_does_not_wait_for_its_body() -> None:
    assert sent(HEAD, None, b"body", b"more") == [HEAD, b"body", b"more", b"closed"]
    assert sent(HEAD) == [HEAD, b"closed"]


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_large_body_is_not_copied(kind: Any) -> None:
    large = bytes(70_000)
    assert sent(HEAD, kind(large)) == [HEAD, large, b"closed"]


@given(st.lists(st.sampled_from([HEAD, b"", b"x", b"HTTP/1.1", bytes(70_000), None]), max_size=8))
def test_nothing_is_lost_and_the_order_kept(steps: list[bytes | None]) -> None:
    assert b"".join(sent(*steps)) == b"".join(step for step in steps if step is not None) + b"closed"


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    bodies = {"/short": Response("short"), "/large": Response(bytes(1_000_000)), "/none": Response(status_code=204)}
    if scope["path"] == "/stream":

        async def parts() -> Any:
            for number in range(3):
                await asyncio.sleep(0)
                yield f"HTTP/1.1 {number}"

        bodies["/stream"] = StreamingResponse(parts())
    await bodies[scope["path"]](scope, receive, send)


def test_answers_over_one_connection() -> None:
    with Serving(_app, "127.0.0.1", 0, idle_seconds=3600) as serving:
        connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)
        bodies = []
        for path in ("/short", "/large", "/none", "/stream", "/short"):
            connection.request("GET", path)
            bodies.append(connection.getresponse().read())
        connection.request("GET", "/short", headers={"Connection": "close"})
        bodies.append(connection.getresponse().read())
        connection.close()
    assert bodies == [b"short", bytes(1_000_000), b"", b"HTTP/1.1 0HTTP/1.1 1HTTP/1.1 2", b"short", b"short"]


def test_an_idle_connection_ends_as_asked() -> None:
    with Serving(_app, "127.0.0.1", 0, idle_seconds=1) as serving:
        connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60)
        connection.request("GET", "/short")
        assert connection.getresponse().read() == b"short"
        assert connection.sock.recv(1) == b""  # it does not time out: the server ends it
        connection.close()


async def _counting(scope: Scope, receive: Receive, send: Send) -> None:
    """Which request of its connection this is."""
    connection = scope["state"]["connection"]
    connection["requests"] = connection.get("requests", 0) + 1
    await Response(str(connection["requests"]))(scope, receive, send)


def test_what_is_remembered_of_a_connection_is_its_own() -> None:
    with Serving(_counting, "127.0.0.1", 0, idle_seconds=3600) as serving, contextlib.ExitStack() as ended:
        made = [http.client.HTTPConnection("127.0.0.1", serving.port, timeout=60) for _ in range(2)]
        answers = []
        for number in (0, 1, 0, 0, 1):
            ended.callback(made[number].close)
            made[number].request("GET", "/")
            answers.append((number, made[number].getresponse().read()))
    assert answers == [(0, b"1"), (1, b"1"), (0, b"2"), (0, b"3"), (1, b"2")]


def _connected(serving: Serving, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", serving.port), timeout=60)
    connection.sendall(data)
    return connection


@pytest.mark.parametrize(
    "data",
    [b"", b"GET /sho", b"GET /short HTTP/1.1\r\nA: b\r\n", b"POST /short HTTP/1.1\r\nContent-Length: 9\r\n\r\n1"],
)
def test_a_request_that_does_not_arrive_ends_its_connection(data: bytes) -> None:
    with Serving(_app, "127.0.0.1", 0, idle_seconds=3600, request_seconds=0.2) as serving:
        with contextlib.closing(_connected(serving, data)) as connection:
            connection.recv(1 << 16)  # perhaps an answer before the end of the body
            assert connection.recv(1) == b""
        # After an answer the time of an idle connection counts, until the next request begins.
        with contextlib.closing(_connected(serving, b"GET /short HTTP/1.1\r\n\r\n")) as connection:
            assert connection.recv(1 << 16).endswith(b"short")
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            connection.settimeout(60)
            connection.sendall(b"GET /short HTTP/1.1\r\n\r\n")
            assert connection.recv(1 << 16).endswith(b"short")
            connection.sendall(data or b"G")
            connection.recv(1 << 16)
            assert connection.recv(1) == b""


def test_headers_without_an_end_are_refused() -> None:
    with (
        Serving(_app, "127.0.0.1", 0) as serving,
        contextlib.closing(_connected(serving, b"GET /short HTTP/1.1\r\n")) as connection,
        pytest.raises(ConnectionError),
    ):
        connection.sendall((b"A: " + b"b" * 1000 + b"\r\n") * 100_000)


def test_more_connections_than_allowed_are_refused() -> None:
    with Serving(_app, "127.0.0.1", 0, most_connections=2) as serving, contextlib.ExitStack() as stack:
        request = b"GET /short HTTP/1.1\r\n\r\n"
        first, second = (stack.enter_context(contextlib.closing(_connected(serving, request))) for _ in range(2))
        assert all(one.recv(1 << 16).endswith(b"short") for one in (first, second))
        third = stack.enter_context(contextlib.closing(_connected(serving, b"")))
        assert third.recv(1 << 16).startswith(b"HTTP/1.1 503")
        assert third.recv(1) == b""
        first.close()
        wait_until(lambda: _answer_of(serving, request).endswith(b"short"))


def _answer_of(serving: Serving, data: bytes) -> bytes:
    with contextlib.closing(_connected(serving, data)) as connection, contextlib.suppress(ConnectionError):
        return connection.recv(1 << 16)
    return b""

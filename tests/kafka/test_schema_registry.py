"""The client of a schema registry, before a server whose answers the test gives."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headgate.errors import ConfigError, ConnectError, HeadgateError, TargetError
from headgate.kafka import schema_registry
from headgate.kafka.schema_registry import SchemaRegistry

SUBJECT = "shop.shop.a b-value"


class Answers(ThreadingHTTPServer):
    """A server that gives its answers one after the other, the last one for ever."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, Any]] = [(200, {"id": 7})]
        self.requests: list[tuple[str, str, Any, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/"


class Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.requests.append((self.command, self.path, body, self.headers.get("authorization")))
        answers = self.server.answers
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers() as answers:
        thread = threading.Thread(target=answers.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield answers
        answers.shutdown()
        thread.join()


def client(url: str, auth_env: str | None = None, seconds: float = 5) -> SchemaRegistry:
    return SchemaRegistry(url, auth_env, None, seconds)


def test_a_schema_is_asked_for_once(server: Answers) -> None:
    registry = client(server.url)
    assert [registry.schema_id(SUBJECT, '"long"') for _ in range(3)] == [7, 7, 7]
    assert server.requests == [("POST", "/api/subjects/shop.shop.a%20b-value/versions", {"schema": '"long"'}, None)]
    server.answers = [(200, {"id": 8})]
    assert registry.schema_id(SUBJECT, '"int"') == 8
    assert registry.schema_id("other-value", '"long"') == 8
    assert registry.schema_id(SUBJECT, '"long"') == 7


def test_a_user(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY", "me:pass:wörd")
    client(server.url, "REGISTRY").check()
    basic = base64.b64encode("me:pass:wörd".encode()).decode()
    assert server.requests == [("GET", "/api/subjects", None, f"Basic {basic}")]
    monkeypatch.setenv("REGISTRY", "secret")
    with pytest.raises(ConfigError, match="REGISTRY is not set to user:password") as raised:
        client(server.url, "REGISTRY").check()
    assert "secret" not in str(raised.value)


def test_answers_that_may_change_are_asked_for_again(server: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(schema_registry, "_RETRY", replace(schema_registry._RETRY, sleep=pauses.append))
    server.answers = [(503, {}), (500, "no JSON"), (429, {}), (200, {"id": 9})]
    assert client(server.url).schema_id(SUBJECT, '"long"') == 9
    assert all(longest / 2 <= pause <= longest for pause, longest in zip(pauses, [0.2, 0.4, 0.8], strict=True))
    server.answers = [(503, {})]
    with pytest.raises(ConnectError, match="the schema registry answers 503"):
        client(server.url, seconds=0.1).schema_id(SUBJECT, '"long"')


@pytest.mark.parametrize(
    ("status", "answer", "error", "text"),
    [
        (401, {}, ConfigError, r"refuses the user \(401\)"),
        (403, "", ConfigError, r"refuses the user \(403\)"),
        (
            409,
            {"error_code": 409, "message": "READER_FIELD_MISSING"},
            TargetError,
            "not compatible .*READER_FIELD_MISS",
        ),
        (422, {"error_code": 42201, "message": "Invalid schema"}, TargetError, f"422 for {SUBJECT}: Invalid schema"),
        (404, "<html>", TargetError, "404 .*no message"),
        (200, "<html>", TargetError, "200 .*no message"),
    ],
)
def test_refusals(server: Answers, status: int, answer: Any, error: type[HeadgateError], text: str) -> None:
    server.answers = [(status, answer)]
    with pytest.raises(error, match=text):
        client(server.url).schema_id(SUBJECT, '"long"')
    assert len(server.requests) == 1


def test_nobody_answers() -> None:
    with Answers() as closed:
        url = closed.url
    with pytest.raises(ConnectError, match="the schema registry does not answer"):
        client(url, seconds=0.1).check()

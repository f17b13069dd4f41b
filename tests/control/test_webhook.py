"""POSTs to a real HTTP server; lines in the log."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headgate.control import LogChannel, Notification, WebhookChannel
from headgate.errors import NotificationError

ONE = Notification("e1", "s", "Incremental Snapshot", "STARTED", {"data_collections": "d.ä"}, 17)


class Receiver(ThreadingHTTPServer):
    """Keeps what it is sent; answers with ``code``."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], Any]] = []
        self.code = 200
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        receiver.posts.append((self.path, dict(self.headers), body))
        self.send_response(receiver.code)
        self.send_header("Content-Length", "0")
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_post_for_each(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-1\n")
    WebhookChannel(receiver.url, token_file=str(tmp_path / "token")).send(5, [ONE, ONE])
    assert len(receiver.posts) == 2
    path, headers, body = receiver.posts[0]
    assert path == "/hook"
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "e1"
    assert headers["Authorization"] == "Bearer secret-1"
    assert body == {**ONE.to_dict(), "epoch": 5}


@pytest.mark.parametrize("code", [301, 400, 404, 503, 599])
def test_other_answers_are_no_delivery(receiver: Receiver, code: int) -> None:
    receiver.code = code
    with pytest.raises(NotificationError, match=f"the webhook answers {code}"):
        WebhookChannel(receiver.url).send(5, [ONE, ONE])
    assert len(receiver.posts) == 1, "the order is kept"


def test_nobody_there_and_no_answer(receiver: Receiver, tmp_path: Path) -> None:
    channel = WebhookChannel(receiver.url.replace("/hook", ""), token_file=str(tmp_path / "none"))
    with pytest.raises(NotificationError, match="token_file cannot be read"):
        channel.send(5, [ONE])
    with Receiver() as silent:  # it listens, and nobody serves
        with pytest.raises(NotificationError, match="cannot be reached: timed out"):
            WebhookChannel(silent.url, timeout_seconds=0.05).send(5, [ONE])
        closed = silent.url
    with pytest.raises(NotificationError, match="cannot be reached"):
        WebhookChannel(closed).send(5, [ONE])


def test_the_log_has_a_line_for_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "headgate.notifications")
    types = {"STARTED": "INFO", "IN_PROGRESS": "DEBUG", "REJECTED": "WARNING"}
    LogChannel().send(5, [Notification("e", "s", "Signal", kind, {}, 1) for kind in types])
    assert [record.levelname for record in caplog.records] == list(types.values())
    assert json.loads(caplog.records[0].getMessage().partition(": ")[2])["type"] == "STARTED"

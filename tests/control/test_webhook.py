"""POSTs to a real HTTP server; lines in the log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headgate.control import LogChannel, Notification, WebhookChannel
from headgate.errors import NotificationError
from tests.fix_webhook import Receiver

ONE = Notification("e1", "s", "Incremental Snapshot", "STARTED", {"data_collections": "d.ä"}, 17)


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

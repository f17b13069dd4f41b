"""POSTs to a real HTTP server; lines in the log."""

from __future__ import annotations

import json
import logging
import socket
import ssl
from pathlib import Path

import pytest

from headgate.control import LogChannel, Notification, WebhookChannel
from headgate.errors import NotificationError
from tests.certificates import make_certificates
from tests.fix_webhook import Receiver
from tests.logged import logged_here

ONE = Notification("e1", "s", "Incremental Snapshot", "STARTED", {"data_collections": "d.ä"}, 17)


def test_a_post_for_each(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-1\n")
    WebhookChannel(receiver.url, token_file=str(tmp_path / "token"), timeout_seconds=60).send(5, [ONE, ONE])
    assert len(receiver.posts) == 2
    path, headers, body = receiver.posts[0]
    assert path == "/hook"
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "e1"
    assert headers["Authorization"] == "Bearer secret-1"
    assert body == {**ONE.to_dict(), "epoch": 5}


def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca, certificate, key = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with Receiver(tls).serving() as receiver:
        with pytest.raises(NotificationError, match=r"cannot be reached: .*certificate verify failed"):
            WebhookChannel(receiver.url, timeout_seconds=60).send(5, [ONE])
        monkeypatch.setenv("SSL_CERT_FILE", ca)  # the system's certificates
        WebhookChannel(receiver.url, timeout_seconds=60).send(5, [ONE])
    assert [body["id"] for _, _, body in receiver.posts] == [ONE.id]


@pytest.mark.parametrize("code", [301, 400, 404, 503, 599])
def test_other_answers_are_no_delivery(receiver: Receiver, code: int) -> None:
    receiver.code = code
    with pytest.raises(NotificationError, match=f"the webhook answers {code}"):
        WebhookChannel(receiver.url, timeout_seconds=60).send(5, [ONE, ONE])
    assert len(receiver.posts) == 1, "the order is kept"


def test_nobody_there_and_no_answer(receiver: Receiver, tmp_path: Path) -> None:
    channel = WebhookChannel(receiver.url.replace("/hook", ""), token_file=str(tmp_path / "none"), timeout_seconds=60)
    with pytest.raises(NotificationError, match="token_file cannot be read"):
        channel.send(5, [ONE])
    (tmp_path / "none").write_text("secret-1\nsecret-2\n")
    with pytest.raises(NotificationError, match="token_file is not one line") as refused:
        channel.send(5, [ONE])
    assert "secret" not in str(refused.value)
    with Receiver() as silent, pytest.raises(NotificationError, match="cannot be reached: timed out"):
        WebhookChannel(silent.url, timeout_seconds=0.05).send(5, [ONE])  # it listens, and nobody serves
    with socket.socket() as held:  # nobody listens there, and nobody can begin to
        held.bind(("127.0.0.1", 0))
        nobody = WebhookChannel(f"http://127.0.0.1:{held.getsockname()[1]}", timeout_seconds=60)
        with pytest.raises(NotificationError, match="cannot be reached"):
            nobody.send(5, [ONE])


def test_the_log_has_a_line_for_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "headgate.notifications")
    types = {"STARTED": "INFO", "IN_PROGRESS": "DEBUG", "REJECTED": "WARNING"}
    LogChannel().send(5, [Notification("e", "s", "Signal", kind, {}, 1) for kind in types])
    lines = logged_here(caplog)
    assert [line.levelname for line in lines] == list(types.values())
    assert json.loads(lines[0].getMessage().partition(": ")[2])["type"] == "STARTED"

"""The server around the page: it takes its port at once, answers from a thread, and is gone with its block."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path

import pytest

from headgate.carrier import ControlFolder
from headgate.errors import ConfigError
from headgate.ui import Serving, Watched, create_app
from tests.ui.status import put


def serving_threads() -> set[threading.Thread]:
    """The server's own, and those in which it answers."""
    return {one for one in threading.enumerate() if one.name.startswith(("headgate-http", "AnyIO"))}


def test_it_serves_within_the_block(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path))
    put(inbox)
    app = create_app([Watched("shop", inbox)])
    before = serving_threads()
    with Serving(app, "127.0.0.1", 0) as page:
        assert page.url == f"http://127.0.0.1:{page.port}/"
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1, port {page.port}: Address already in use$"):
            Serving(app, "127.0.0.1", page.port)
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
        connection.request("GET", "/api/status")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("server")) == (200, None)
        assert json.loads(answer.read())["pipelines"][0]["condition"] == "running"
        # A reader that keeps its connection does not keep the block from ending.
    connection.close()
    for thread in serving_threads() - before:  # a worker that answered hears of the end, and goes
        thread.join(60)
    assert serving_threads() <= before
    assert page._socket.fileno() == -1


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1, port 80"):
        Serving(create_app([]), "192.0.2.1", 80)  # TEST-NET-1 of RFC 5737, which no machine has

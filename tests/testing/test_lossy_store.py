"""Requests and answers that are lost on the way to a store and back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from headgate_testing import Loss, LossyStore, wait_until


class Store(ThreadingHTTPServer):
    """Keeps what is put, and gives it back."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, bytes] = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_PUT(self) -> None:
        self.server.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.server.objects[self.path])

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request(lossy: LossyStore, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = HTTPConnection(urlsplit(lossy.endpoint).netloc, timeout=30)
    try:
        connection.request(method, path, body)
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.parametrize("loss", [None, *Loss])
def test_a_request_or_its_answer_is_lost(store: Store, monkeypatch: pytest.MonkeyPatch, loss: Loss | None) -> None:
    with LossyStore(f"http://127.0.0.1:{store.server_port}", 1) as lossy:
        monkeypatch.setattr(lossy, "choose", lambda *_: loss)
        if loss is None:
            request(lossy, "PUT", "/a", b"content")
            assert request(lossy, "GET", "/a") == b"content"
            return
        if loss in (Loss.BUSY, Loss.THROTTLED):
            assert b"SlowDown" in request(lossy, "PUT", "/a", b"content")
            assert "/a" not in store.objects
            return
        with pytest.raises((OSError, HTTPException)):
            request(lossy, "PUT", "/a", b"content")
        if loss is Loss.LATE:
            wait_until(lambda: "/a" in store.objects, "the request does not arrive")
        assert ("/a" in store.objects) is (loss is not Loss.BEFORE)


def test_what_is_spared_is_never_lost() -> None:
    with LossyStore("http://127.0.0.1:9", 1, spared="/checkpoint/") as lossy:
        lossy.share = lossy.commit_share = 1.0
        assert lossy.choose("PUT", "/lake/checkpoint/_delta_log/1.json") is None
        losses = {lossy.choose("PUT", f"/lake/t/_delta_log/{number}.json") for number in range(100)}
        assert losses == {*Loss}
        reads = {lossy.choose("GET", f"/lake/t/{number}.parquet") for number in range(100)}
        assert reads == {*Loss} - {Loss.LATE}
        lossy.kinds = (Loss.BUSY,)
        assert lossy.choose("GET", "/lake/t/a.parquet") is Loss.BUSY

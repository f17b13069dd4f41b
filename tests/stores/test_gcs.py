"""Requests to GCS without a server: a file that must not exist is put under that condition."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headgate.stores import VARIABLE, folder_of, share_credentials


class Handler(BaseHTTPRequestHandler):
    """Puts and returns objects; of the conditions it knows the one that an object does not exist."""

    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_new = self.headers.get("x-goog-if-generation-match") == "0"
        refused = is_new and self.path in self.objects
        if not refused:
            self.objects[self.path] = body
        self.answer(412 if refused else 200)

    def do_GET(self) -> None:
        self.answer(200 if self.path in self.objects else 404, self.objects.get(self.path, b""))

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 22:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URI of a bucket."""
    Handler.objects = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url, keyfile = f"http://127.0.0.1:{server.server_port}", tmp_path / "key.json"
        account = {"client_email": "", "private_key": "", "private_key_id": ""}
        keyfile.write_text(json.dumps({**account, "gcs_base_url": url, "disable_oauth": True}))
        monkeypatch.setenv(VARIABLE, "")
        settings = {
            "fs.gs.storage.root.url": url, "google.cloud.auth.service.account.json.keyfile": str(keyfile),
        }  # fmt: skip
        share_credentials("gs://bucket", settings.get)
        yield "gs://bucket"
        server.shutdown()
        thread.join()


def test_a_file_is_made_once(gcs: str) -> None:
    folder = folder_of(f"{gcs}/lake")
    for data in (b"first", b"second"):
        with folder.new_file("a b/1.json", data) as create:
            if data == b"first":
                create()
            else:
                with pytest.raises(FileExistsError):
                    create()
    assert folder.read("a b/1.json") == b"first"
    folder.put("a b/1.json", b"third")
    assert folder.read("a b/1.json") == b"third"
    with pytest.raises(FileNotFoundError):
        folder.read("another")

"""The log itself over HTTP: what clients are told when they cannot have it; tokens and TLS."""

from __future__ import annotations

import asyncio
import http.server
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from headgate.binlog import EndOfLog, Framer
from headgate.errors import (
    AccessError,
    BinlogPurgedError,
    ChecksumError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    HeadgateError,
    HistoryRewrittenError,
    ProtocolError,
    ServerBehindError,
)
from headgate.gtid import GtidSet
from headgate.mysql import LogRequest
from headgate.relay.archive import LogOfRelay, Series
from headgate.relay.server import OUTBOUND_CONNECTIONS, Relay, RelayConfig, RelayTimes, Tenant, create_app, load_relay
from headgate.web import Token
from headgate.web.serving import Serving
from headgate_testing import pass_time, wait_until
from tests.certificates import make_certificates
from tests.relay.archive.test_spool import SOURCE, A, B, Server, feed, gtids
from tests.relay.server.serving import PATIENCE_SECONDS, PERSON, PET, physical

TOKEN = "0123456789abcdef-operator"
PETS = "0123456789abcdef-pets"


@contextmanager
def kept(folder: Path, *, sources: int = 1, tls: Any = None, **config: Any) -> Iterator[tuple[Relay, str]]:
    """A relay that keeps logs, of 10 transactions of server A; nobody reads more."""
    names = (physical(1, "first", PERSON), physical(2, "second", PET))
    relay = Relay(
        RelayConfig(physical=names[:sources], state=folder, log_disk_bytes=1 << 20, **config), lambda _: gtids(0)
    )
    server = Server(A)
    for _ in range(10):
        server.commit()
    try:
        for one in relay.partitions.values():
            assert one.spool is not None
            one.spool.begin(gtids(0))
            feed(one.spool, A, server.dump(0), 1000)
        with Serving(create_app(relay), "127.0.0.1", 0, tls=tls, connections=relay.counters) as serving:
            yield relay, serving.url.rstrip("/")
    finally:
        relay.close()


def read(log: LogOfRelay, **options: Any) -> int:
    """Bytes of a whole answer."""
    framer, count = Framer(), 0
    with log.open(LogRequest(**options)) as answer:
        stream = answer.stream
        while True:
            item, used = framer.next(stream.buf, stream.start, stream.end)
            count += used - stream.start
            stream.consume(used - stream.start)
            if isinstance(item, EndOfLog):
                return count
            if item is None:
                stream.fill(framer.needed)


def test_bytes_of_an_answer_in_pieces_are_counted(tmp_path: Path) -> None:
    with kept(tmp_path) as (relay, url):
        size = read(LogOfRelay(url), executed_before=gtids(0), server_uuid=A)
        assert relay.counters.read(*OUTBOUND_CONNECTIONS)["numBytes"] >= size > 500


def test_what_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept(tmp_path, times=RelayTimes(archive_wait=0.01)) as (relay, url):
        log = LogOfRelay(url)
        assert read(log, executed_before=gtids(3), server_uuid=A) > 500
        head = log.head()
        assert (head.server_uuid, head.gtid, head.begin) == (A, gtids(10), GtidSet())
        assert head.series == (Series(A, GtidSet(), gtids(10)),)
        assert [(one.server_uuid, one.name) for one in log.files()] == [(A, "binlog.000001")]
        with pytest.raises(BinlogPurgedError, match="as server") as purged:
            read(log, executed_before=gtids(3), server_uuid=B)
        assert GtidSet.parse(purged.value.needed) == gtids(10, 4)
        with pytest.raises(ServerBehindError, match="yet") as behind:
            read(log, executed_before=gtids(3), executed=gtids(12))
        assert GtidSet.parse(behind.value.missing) == gtids(12, 11)
        with pytest.raises(ConfigError, match="has no physical source other; it has first"):
            LogOfRelay(url, "other").head()
        feeder = relay.partitions[1].log_feeder
        assert feeder is not None
        feeder._fail("unexpected KeyError: 1")
        with pytest.raises(ConfigError, match="any more: unexpected KeyError"):
            log.head()
        ends: list[HeadgateError] = [
            BinlogPurgedError("gone", needed=str(gtids(10, 4)), purged=str(gtids(6))), AccessError("no", code=1045),
            HistoryRewrittenError("reset", gtid=str(gtids(1))), ChecksumError("odd", file="binlog.000001", pos=4),
        ]  # fmt: skip
        for end in ends:
            feeder._fail(str(end), end)
            with pytest.raises(type(end), match=f"the relay does not read the log any more: {end.message}") as ended:
                log.head()
            assert (type(ended.value), ended.value.fields) == (type(end), end.fields)
    with pytest.raises(ConnectError, match="does not answer"):
        log.head()


def test_an_error_of_any_size(tmp_path: Path) -> None:
    """A GTID set with many holes exceeds what clients read of a header."""
    missing = GtidSet.parse(f"{SOURCE}:" + ":".join(str(n) for n in range(101, 60_101, 2)))
    with kept(tmp_path, times=RelayTimes(archive_wait=0.01)) as (_, url):
        with pytest.raises(ServerBehindError, match="yet") as behind:
            read(LogOfRelay(url), executed_before=gtids(3), executed=missing)
        assert GtidSet.parse(behind.value.missing) == missing
        assert len(str(missing)) > 1 << 16


def test_requests_that_wait_block_nobody(tmp_path: Path) -> None:
    """And each gets its range as soon as it is archived."""
    with (
        kept(tmp_path, times=RelayTimes(archive_wait=PATIENCE_SECONDS)) as (relay, url),
        ThreadPoolExecutor(80) as pool,
    ):
        log, spool = LogOfRelay(url), relay.partitions[1].spool
        assert spool is not None
        waiting = [pool.submit(read, log, executed_before=gtids(3), executed=gtids(11)) for _ in range(80)]
        wait_until(lambda: len(relay.counters.open_lives(*OUTBOUND_CONNECTIONS)) >= 80)
        assert log.head().gtid == gtids(10)
        assert read(log, executed_before=gtids(3)) > 500
        assert not any(one.done() for one in waiting)
        server = Server(A, number=10)
        server.commit()
        feed(spool, A, server.dump(10), 1000)
        assert {one.result(PATIENCE_SECONDS) > 500 for one in waiting} == {True}


def test_a_client_that_leaves_before_the_first_packet(tmp_path: Path) -> None:
    async def leave(app: ASGIApp) -> None:
        messages: list[Message] = [
            {"type": "http.request", "body": b'{"executed_before": ""}', "more_body": False},
            {"type": "http.disconnect"},
        ]  # fmt: skip
        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "path": "/log", "raw_path": b"/log", "headers": [],
            "query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http",
        }  # fmt: skip
        statuses = []

        async def receive() -> Message:
            return messages.pop(0)

        async def send(message: Message) -> None:
            statuses.append(message["status"])
            await asyncio.Event().wait()  # nobody reads

        await app(scope, receive, send)
        assert statuses == [200]

    def open_segments() -> list[str]:
        names = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
        return sorted(one for one in names if one.startswith(str(tmp_path)) and one.endswith(".packets"))

    with kept(tmp_path) as (relay, _):
        before = open_segments()
        asyncio.run(leave(create_app(relay)))
        assert open_segments() == before


@pytest.mark.parametrize("path", ["log", "groups/g"])
def test_a_body_of_any_size_is_not_held(tmp_path: Path, path: str) -> None:
    body = b'{"source": "' + b"x" * (5 << 20) + b'"}'
    with kept(tmp_path) as (_, url):
        request = urllib.request.Request(f"{url}/{path}", body, {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=30):
            pass
        with closing(refused.value) as answer:
            assert answer.code == 500
            assert f"more than {4 << 20} bytes" in answer.headers["x-dbus-error-message"]


@pytest.mark.parametrize(
    "body",
    [
        '{"executed_before": true}',
        '{"executed_before": "x"}',
        '{"until": "x"}',
        '{"endless": true}',
        '{"more": 1}',
        "no",
    ],
)
def test_what_is_no_request_is_refused(tmp_path: Path, body: str) -> None:
    with kept(tmp_path) as (_, url):
        request = urllib.request.Request(f"{url}/log", body.encode(), {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(request, timeout=30):
            pass
        with closing(refused.value) as answer:
            assert (answer.code, answer.headers["x-dbus-error-cause"]) == (500, "ConfigError")


def test_one_of_several_sources(tmp_path: Path) -> None:
    with kept(tmp_path, sources=2) as (_, url):
        for what in (LogOfRelay.head, lambda log: read(log, executed_before=gtids(3))):
            with pytest.raises(ConfigError, match=r"several physical sources, name one .*: first, second"):
                what(LogOfRelay(url))
        assert LogOfRelay(url, "second").head().gtid == gtids(10)
        assert read(LogOfRelay(url, "second"), executed_before=gtids(3)) > 500


def test_tokens_and_tls(tmp_path: Path) -> None:
    ca, certificate, key = make_certificates(tmp_path)
    for name, token in (("all", TOKEN), ("pets", PETS), ("none", "wrong")):
        (tmp_path / name).write_text(token + "\n")
    tenants = [Tenant("operator", Token(TOKEN)), Tenant("pets", Token(PETS), sources=("com.example.*",))]
    with kept(tmp_path / "state", tls=(certificate, key), tenants=tenants) as (_, url):
        assert url.startswith("https://")
        assert read(LogOfRelay(url, token_file=str(tmp_path / "all"), ca_file=ca), executed_before=gtids(3)) > 500
        for name in ("none", "pets"):
            with pytest.raises(AccessError, match="relay_token_file names a file"):
                LogOfRelay(url, token_file=str(tmp_path / name), ca_file=ca).head()
        with pytest.raises(AccessError):
            LogOfRelay(url, ca_file=ca).head()
        with pytest.raises(ConfigError, match="cannot be verified"):
            LogOfRelay(url, token_file=str(tmp_path / "all")).head()
        with pytest.raises(ConfigError, match="with the relay's token cannot be read"):
            LogOfRelay(url, token_file=str(tmp_path / "nothing"), ca_file=ca).head()
        with pytest.raises(ConfigError, match="no certificates"):
            LogOfRelay(url, ca_file=str(tmp_path / "nothing")).head()


def test_a_tenant_that_asks_too_often_waits(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        pass_time(seconds)

    tenants = [Tenant("operator", Token(TOKEN), requests_per_second=1)]
    with kept(tmp_path / "state", tenants=tenants) as (_, url):
        log = LogOfRelay(url, token_file=str(tmp_path / "token"), retry=replace(LogOfRelay.retry, sleep=sleep))
        assert log.head().gtid == gtids(10)
        assert read(log, executed_before=gtids(3)) > 500
    assert pauses
    assert all(1 <= pause <= 1.1 for pause in pauses)


def test_a_relay_that_keeps_no_log(tmp_path: Path) -> None:
    relay = Relay(RelayConfig(physical=(physical(1, "first", PERSON),), state=tmp_path), lambda _: gtids(0))
    with (
        closing(relay.partitions[1].buffer),
        Serving(create_app(relay), "127.0.0.1", 0) as serving,
        pytest.raises(ConfigError, match="does not keep the log"),
    ):
        LogOfRelay(serving.url).head()


@pytest.mark.parametrize(
    "url",
    [
        "r:1", "ftp://r", "http://u:p@r", "http://r/x", "http://r:x", "http://r:65536", "http://", "http://r..x:1",
        "http://.r", f"http://{'r' * 64}.x",
    ],
)  # fmt: skip
def test_what_is_no_relay(url: str) -> None:
    with pytest.raises(ConfigError, match="not the URL of a relay"):
        LogOfRelay(url)


class _Answers(http.server.BaseHTTPRequestHandler):
    """Something else than a relay of this version. If a source is requested, its name is the answer."""

    def do_GET(self) -> None:
        path, _, source = self.path.partition("?source=")
        if path == "/log/head" and not source:
            self.send_response(500)
            self.send_header("x-dbus-error", "com.linkedin.UnknownCommandException")
            self.end_headers()
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(urllib.parse.unquote(source or "<html>").encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))  # what is not read may cost the answer: a reset
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"\x10\x00\x00")

    def log_message(self, *_: object) -> None:
        pass


def test_answers_that_are_none() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{other.server_address[1]}"
        log = LogOfRelay(url)
        with pytest.raises(ConfigError, match="it is not headgate's"):
            log.head()
        with pytest.raises(ConnectionLostError):
            log.files()
        for body in ("{}", "null", "[{}]", '{"failed": true}', '{"failed": false}'):
            for describe in (LogOfRelay.head, LogOfRelay.files):
                with pytest.raises(ProtocolError, match=r"does not describe a log: is this a relay\?"):
                    describe(LogOfRelay(url, body))
        with pytest.raises(ConnectionLostError, match="broke off"):
            read(log, executed_before=GtidSet())
        other.shutdown()
        thread.join()


def test_the_file(tmp_path: Path) -> None:
    text = """
state = "state"
log_disk_bytes = 5000000
[[physical]]
id = 1
name = "shop"
url = "mysql://u@h"
[[physical.sources]]
id = 40
name = "a"
table = "d.t"
"""
    file = tmp_path / "relay.toml"
    file.write_text(text)
    assert load_relay([file]).log_disk_bytes == 5_000_000
    file.write_text(text.replace('state = "state"', ""))
    with pytest.raises(ConfigError, match="needs a state folder"):
        load_relay([file])
    file.write_text(text.replace("5000000", "5"))
    with pytest.raises(ConfigError, match="log"):
        load_relay([file])

"""The relay on real servers: everything that is committed, in order, once, whatever happens to the relay."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import fastavro
import pytest

import headgate
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.relay.server import LogicalSource, PhysicalSource, Relay, RelayConfig, create_app
from headgate.web.serving import Serving
from headgate_testing import MySQLServer, replica_pair
from tests.logged import logged_here

SRC = str(Path(headgate.__file__).parents[1])
DEADLINE_SECONDS = 240
EOP = -2


class Event(NamedTuple):
    scn: int
    source: int
    opcode: int
    key: int | bytes
    row: dict[str, Any] | None


class Consumer:
    """Pulls by checkpoints, as Databus's client does, and decodes what it gets by the schemas of /register."""

    def __init__(self, port: int, sources: str) -> None:
        self.port, self.sources = port, sources
        self.place = {"windowScn": -1, "windowOffset": -1}
        self.windows: list[list[Event]] = [[]]
        self.bytes = b""
        self._schemas: dict[bytes, Any] = {}

    def get(self, path: str, **parameters: str) -> tuple[int, dict[str, str], bytes]:
        query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"/{path}?{query}")
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def pull(self, *, size: int = 1_000_000, wait_ms: int = 1000) -> int:
        """One request; how many bytes it gave."""
        status, headers, data = self.get(
            "stream", sources=self.sources, size=str(size), output="binary", wait=str(wait_ms),
            checkPoint=json.dumps(self.place),
        )  # fmt: skip
        assert status == 200, headers
        self.bytes += data
        at = 0
        while at < len(data):
            length = int.from_bytes(data[at + 5 : at + 9], "big")
            self._take(data[at : at + length])
            at += length
        return len(data)

    def _take(self, event: bytes) -> None:
        scn = int.from_bytes(event[11:19], "big")
        source = int.from_bytes(event[31:33], "big", signed=True)
        attributes = int.from_bytes(event[9:11], "big")
        if source == EOP:
            self.place = {"windowScn": scn, "windowOffset": -1}
            self.windows.append([])
            return
        taken = self.place["windowOffset"] if self.place["windowScn"] == scn else 0
        self.place = {"windowScn": scn, "windowOffset": max(taken, 0) + 1}
        size = int.from_bytes(event[53:57], "big")
        key: int | bytes = event[57 : 57 + size]
        value = event[57 + size :]
        if not attributes & 8:
            key, value = int.from_bytes(event[53:61], "big", signed=True), event[61:]
        row = self._decoded(event[33:49], value)
        self.windows[-1].append(Event(scn, source, attributes & 3, key, row))

    def _decoded(self, digest: bytes, value: bytes) -> dict[str, Any]:
        if digest not in self._schemas:
            from headgate.relay.databus import Schema

            _, _, body = self.get("register", sources=self.sources)
            for one in json.loads(body):
                parsed = json.loads(one["schema"])
                self._schemas[Schema("", one["version"], one["schema"], parsed).digest] = fastavro.parse_schema(parsed)
        row = fastavro.schemaless_reader(io.BytesIO(value), self._schemas[digest], None)
        assert isinstance(row, dict)
        return row

    def until(self, scn_or_rows: Any, *, size: int = 1_000_000) -> list[list[Event]]:
        """Pull until ``scn_or_rows(self)`` holds; the whole windows."""
        end = time.monotonic() + DEADLINE_SECONDS
        while not scn_or_rows(self):
            assert time.monotonic() < end, self.windows[-3:]
            self.pull(size=size)
        return [window for window in self.windows if window]

    @property
    def events(self) -> list[Event]:
        return [event for window in self.windows for event in window]


def physical(server: MySQLServer, *sources: LogicalSource) -> PhysicalSource:
    return PhysicalSource(1, "test", ConnectionSettings.from_url(server.url), sources)


@contextlib.contextmanager
def relaying(
    server: MySQLServer, *sources: LogicalSource, had: str | None = None, anew: bool = False, **config: Any
) -> Iterator[Consumer]:
    """A relay in this process, from ``had`` on (by default from now)."""
    start = GtidSet.parse(server.gtid_executed if had is None else had)
    relay = Relay(RelayConfig(physical=(physical(server, *sources),), **config), lambda _: start, reset=anew)
    with relay, Serving(create_app(relay), "127.0.0.1", 0) as serving:
        yield Consumer(serving.port, ",".join(str(one.id) for one in sources))


def do(server: MySQLServer, db: str, *statements: str) -> None:
    """All in one transaction."""
    with server.connect(database=db, autocommit=False) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


UPSERT, DELETE = 1, 2


def test_a_table_that_is_not_there_is_told(
    mysql_server: MySQLServer, mysql_db: str, caplog: pytest.LogCaptureFixture
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.orders (id INT PRIMARY KEY)")
    sources = (LogicalSource(1, "a.Order", f"{mysql_db}.orders"), LogicalSource(2, "a.Item", f"{mysql_db}.itmes"))
    with relaying(mysql_server, *sources, LogicalSource(9, "a.All", f"{mysql_db}.x*")):
        messages = [record.getMessage() for record in logged_here(caplog)]
    assert messages == [
        f"test: there is no table {mysql_db}.itmes (source a.Item) yet: check the spelling (case counts) and the grants"
    ]


def test_transactions_whole_in_order_and_every_change(mysql_server: MySQLServer, mysql_db: str) -> None:
    server, db = mysql_server, mysql_db
    server.execute(
        f"CREATE TABLE {db}.a (id INT PRIMARY KEY, v VARCHAR(20), price DECIMAL(10,2))",
        f"CREATE TABLE {db}.b (x INT, y VARCHAR(9), n BIGINT UNSIGNED, PRIMARY KEY (x, y))",
        f"CREATE TABLE {db}.other (id INT PRIMARY KEY)",
    )
    sources = (LogicalSource(1, "test.A", f"{db}.a"), LogicalSource(2, "test.B", f"{db}.b"))
    with relaying(server, *sources) as consumer:
        do(
            server, db, "INSERT INTO a VALUES (1, 'é', 1.50), (2, NULL, NULL)", "INSERT INTO other VALUES (1)",
            "INSERT INTO b VALUES (7, 'k', 18446744073709551615)", "UPDATE a SET v = 'x' WHERE id = 1",
            "UPDATE a SET v = 'y' WHERE id = 1",
        )  # fmt: skip
        do(server, db, "UPDATE a SET id = 3 WHERE id = 2", "DELETE FROM b")
        do(server, db, "INSERT INTO other VALUES (2)")
        server.execute(f"ALTER TABLE {db}.a ADD COLUMN w INT DEFAULT 5")
        do(server, db, "INSERT INTO a VALUES (4, 'z', -0.01, 9)")
        windows = consumer.until(lambda one: len(one.windows) > 3)
        _, _, registered = consumer.get("register", sources="1")
    assert [[(e.source, e.opcode, e.key, e.row) for e in window] for window in windows] == [
        [
            (1, UPSERT, 1, {"id": 1, "v": "é", "price": Decimal("1.50")}),
            (1, UPSERT, 2, {"id": 2, "v": None, "price": None}),
            (2, UPSERT, b"7\tk", {"x": 7, "y": "k", "n": 2**64 - 1}),
            (1, UPSERT, 1, {"id": 1, "v": "x", "price": Decimal("1.50")}),
            (1, UPSERT, 1, {"id": 1, "v": "y", "price": Decimal("1.50")}),
        ],
        [
            (1, DELETE, 2, {"id": 2, "v": None, "price": None}),
            (1, UPSERT, 3, {"id": 3, "v": None, "price": None}),
            (2, DELETE, b"7\tk", {"x": 7, "y": "k", "n": 2**64 - 1}),
        ],
        [(1, UPSERT, 4, {"id": 4, "v": "z", "price": Decimal("-0.01"), "w": 9})],
    ]
    scns = [window[0].scn for window in windows]
    assert scns == sorted(set(scns))
    assert [scn >> 48 for scn in scns] == [1, 1, 1]
    assert all(event.scn == window[0].scn for window in windows for event in window)
    assert [one["version"] for one in json.loads(registered)] == [1, 2]


def test_a_large_transaction_in_small_batches(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    had = mysql_server.gtid_executed
    rows = 20_000
    values = ", ".join(f"({i}, REPEAT('x', {i % 100}))" for i in range(rows))
    do(mysql_server, mysql_db, f"INSERT INTO t VALUES {values}", "DELETE FROM t WHERE id = 5")
    source = LogicalSource(1, "test.T", f"{mysql_db}.t")
    with relaying(mysql_server, source, had=had, memory_bytes=1 << 20) as consumer:
        (window,) = consumer.until(lambda one: len(one.windows) > 1, size=50_000)
    assert [event.key for event in window] == [*range(rows), 5]
    assert [event.opcode for event in window[-2:]] == [UPSERT, DELETE]
    assert [len(event.row["v"]) for event in window[:-1] if event.row] == [i % 100 for i in range(rows)]


def test_tables_by_pattern_keep_their_ids(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    server, db = mysql_server, mysql_db
    server.execute(f"CREATE TABLE {db}.b (id INT PRIMARY KEY)", f"CREATE TABLE {db}.c (id INT PRIMARY KEY)")
    pattern = LogicalSource(1000, "test", f"{db}.*")
    for tables in ("bc", "bca"):
        with relaying(server, pattern, state=tmp_path / "state", schemas=tmp_path / "schemas") as consumer:
            if tables == "bca":
                server.execute(f"CREATE TABLE {db}.a (id INT PRIMARY KEY)")
                do(server, db, "INSERT INTO a VALUES (1)")
                end = time.monotonic() + DEADLINE_SECONDS
                while len(json.loads(consumer.get("sources")[2])) < 3:  # it has one with its first change
                    assert time.monotonic() < end
                consumer.sources = "1002"
                consumer.until(lambda one: one.events)
                assert [event.source for event in consumer.events] == [1002]
            _, _, answer = consumer.get("sources")
            assert json.loads(answer) == [
                {"name": f"test.{db}.{table}", "id": 1000 + n} for n, table in enumerate(tables)
            ]
    assert sorted(file.name for file in (tmp_path / "schemas").iterdir()) == [f"test.{db}.{t}.1.avsc" for t in "abc"]


# --- killed, restarted, on another server


class Process:
    """``headgate relay`` as a process of its own."""

    def __init__(self, file: Path, *more: str) -> None:
        self._command = [sys.executable, "-m", "headgate.cli", "relay", "--sources", str(file), "--port", "0", *more]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, "PYTHONPATH": SRC},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line.startswith("http://"):
            self._process.kill()
            raise AssertionError(self._process.communicate())
        self.port = int(line.rstrip("/").rpartition(":")[2])
        return self

    def kill(self) -> None:
        self._process.kill()

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.send_signal(signal.SIGTERM)


class Writer:
    """Transactions of several rows, numbered, until it is told to stop."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self._server, self._db = server, db
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.transactions = 0
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _write(self) -> None:
        try:
            while not self._stop.is_set():
                n = self.transactions
                do(
                    self._server, self._db,
                    f"INSERT INTO t (n, part) VALUES {', '.join(f'({n}, {part})' for part in range(1 + n % 5))}",
                )  # fmt: skip
                self.transactions += 1
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error


def numbered(windows: list[list[Event]]) -> list[tuple[int, int]]:
    """The transaction's number and how many rows each window has."""
    out = []
    for window in windows:
        rows = [event.row for event in window if event.row is not None]
        assert len({row["n"] for row in rows}) == 1
        assert [row["part"] for row in rows] == list(range(len(rows)))
        out.append((rows[0]["n"], len(rows)))
    return out


def killed(server: MySQLServer, db: str, tmp_path: Path, kills: int, *more: str) -> None:
    """Kill the relay while a writer writes, again and again: its consumer sees all transactions, whole and in order."""
    server.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT, part INT)")
    file = tmp_path / "relay.toml"
    file.write_text(
        f'state = "state"\nmemory_bytes = 1000000\n[[physical]]\nid = 1\nname = "t"\nurl = "{server.url}"\n'
        f'[[physical.sources]]\nid = 40\nname = "test.T"\ntable = "{db}.t"\n'
    )
    consumer = Consumer(0, "40")
    more = (*more, "--disk-bytes", "100000000", "--from", server.gtid_executed)
    with Writer(server, db) as writer:
        for _ in range(kills):
            with Process(file, *more) as relay:
                consumer.port = relay.port
                before = len(consumer.windows)
                consumer.until(lambda one, before=before: len(one.windows) > before + 20)
                relay.kill()
    assert writer.error is None
    with Process(file, *more) as relay:
        consumer.port = relay.port
        windows = consumer.until(lambda one: len(one.windows) > writer.transactions)
    assert numbered(windows) == [(n, 1 + n % 5) for n in range(writer.transactions)]
    scns = [window[0].scn for window in windows]
    assert scns == sorted(set(scns))


@pytest.mark.long
def test_kills(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    killed(mysql_server, mysql_db, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scn", ["gtid-generation", "binlog-offset", "relay-generated"])
def test_twenty_kills(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, scn: str) -> None:
    killed(mysql_server, mysql_db, tmp_path, 20, "--scn", scn)


def test_a_restart_serves_the_same_bytes(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    server, db = mysql_server, mysql_db
    server.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY)")
    config: dict[str, Any] = {"state": tmp_path, "disk_bytes": 1 << 24, "memory_bytes": 1 << 20}
    source = LogicalSource(1, "test.T", f"{db}.t")
    with relaying(server, source, **config) as first:
        for n in range(20):
            do(server, db, f"INSERT INTO t VALUES ({n})")
        first.until(lambda one: len(one.windows) > 20)
    do(server, db, "INSERT INTO t VALUES (100)")  # while no relay runs
    with relaying(server, source, had="", **config) as again:
        again.until(lambda one: len(one.windows) > 21)
    assert again.bytes[: len(first.bytes)] == first.bytes
    assert again.events[-1].key == 100
    # All of it read again, with the map of generations that the first one made: the same.
    (tmp_path / "partition-1.json").unlink()
    begin = GtidSet.parse(server.gtid_executed)
    number = again.events[0].scn & (1 << 48) - 1
    had = begin - GtidSet.parse(f"{server.server_uuid}:{number}-{2**62}")
    with relaying(server, source, had=str(had), **config) as anew:
        anew.until(lambda one: len(one.windows) > 21)
    assert anew.bytes == again.bytes


@pytest.mark.needs_own_server
def test_a_promoted_replica_and_a_reset_log(tmp_path: Path) -> None:
    with replica_pair() as (primary, replica):
        primary.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        source = LogicalSource(1, "test.T", "d.t")
        with relaying(primary, source, state=tmp_path) as consumer:
            do(primary, "d", "INSERT INTO t VALUES (1)")
            consumer.until(lambda one: one.events)
            place = consumer.place
        do(primary, "d", "INSERT INTO t VALUES (2)")
        replica.wait_for(primary.gtid_executed)
        replica.execute("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF")
        do(replica, "d", "INSERT INTO t VALUES (3)")
        with relaying(replica, source, state=tmp_path) as consumer:
            consumer.place = place
            events = [event for window in consumer.until(lambda one: len(one.windows) > 2) for event in window]
            assert [event.key for event in events] == [2, 3]
            assert [event.scn >> 48 for event in events] == [1, 2]
            assert events[0].scn == place["windowScn"] + 1
        replica.reset_log()
        with relaying(replica, source, state=tmp_path) as consumer:
            do(replica, "d", "INSERT INTO t VALUES (4)")
            end = time.monotonic() + DEADLINE_SECONDS
            while b"history was rewritten" not in (status := consumer.get("admin/status")[2]):
                assert time.monotonic() < end, status
            assert consumer.pull(wait_ms=100) == 0
        with relaying(replica, source, had="", anew=True, state=tmp_path) as consumer:
            (window,) = consumer.until(lambda one: one.events and len(one.windows) > 1)
            assert [event.key for event in window] == [4]
            assert window[0].scn >> 48 == 4  # after the reset, which is a generation of the map
            behind = json.dumps({"windowScn": events[-1].scn, "windowOffset": -1})
            _, headers, _ = consumer.get("stream", sources="1", size="1000", output="binary", checkPoint=behind)
            assert headers["x-dbus-error-cause"] == "com.linkedin.databus.core.ScnNotFoundException"


@pytest.mark.needs_own_server
def test_a_log_that_was_reset_and_has_grown_again(tmp_path: Path) -> None:
    """Without a binlog archive: the numbers go on from what the relay has, but after other transactions."""
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        source = LogicalSource(1, "test.T", "d.t")
        with relaying(server, source, state=tmp_path) as consumer:
            do(server, "d", "INSERT INTO t VALUES (1)")
            consumer.until(lambda one: one.events)
        count = GtidSet.parse(server.gtid_executed).count()
        server.reset_log()
        for number in range(2, count + 3):
            do(server, "d", f"INSERT INTO t VALUES ({number})")
        with relaying(server, source, state=tmp_path) as consumer:
            end = time.monotonic() + DEADLINE_SECONDS
            while b"history was rewritten" not in (status := consumer.get("admin/status")[2]):
                assert time.monotonic() < end, status
            assert consumer.pull(wait_ms=100) == 0

"""Relays that are killed and a source that fails over, under load: every consumer sees every transaction, whole and in
order, whatever form it takes events in.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import fastavro
import numpy as np
import pytest

from headgate.relay.client import CheckpointFile, Consumer, Event, RelayClient, Result
from headgate.relay.databus import event_fields, is_intact
from headgate_testing import MySQLServer, Proxy, replica_pair
from headgate_testing._ports import free_port
from tests.integration.relay.test_relay import Process

DEADLINE_SECONDS = 240
UPDATED = 10
"""``part`` of each transaction's first row, after its update."""


class Row(NamedTuple):
    id: int
    n: int
    part: int


class Change(NamedTuple):
    deleted: bool
    row: Row
    before: Row | None = None


class Writer:
    """Transactions of several inserts and an update, numbered; to a server that may change between two of them."""

    def __init__(self, server: MySQLServer) -> None:
        self._server = server
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._write)
        self.error: Exception | None = None
        self.transactions = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    @contextlib.contextmanager
    def moving(self, server: MySQLServer) -> Iterator[None]:
        """Nothing is written within; then to ``server``."""
        with self._turn:
            yield
            self._server = server

    def _write(self) -> None:
        try:
            while not self._stop.is_set():
                with self._turn, self._server.connect(database="d", autocommit=False) as connection:
                    for _ in range(20):
                        self._commit(connection)
                        self.transactions += 1
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error

    def _commit(self, connection: Any) -> None:
        n = self.transactions
        rows = ", ".join(f"({n}, {part})" for part in range(1 + n % 5))
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO t (n, part) VALUES {rows}")
            cursor.execute(f"UPDATE t SET part = {UPDATED} WHERE id = LAST_INSERT_ID()")
        connection.commit()


class Seen:
    """The windows that one consumer has had, each whole."""

    def __init__(self, arrived: threading.Condition) -> None:
        self._arrived = arrived
        self.windows: list[tuple[int, list[Change]]] = []
        self._by_scn: dict[int, list[Change]] = {}
        self.open: list[Change] = []
        self.repeated = 0

    def change(self, change: Change) -> None:
        self.open.append(change)

    def end(self, scn: int) -> None:
        window, self.open = (scn, self.open), []
        if self.windows and scn <= self.windows[-1][0]:  # at least once: it has to be the same
            assert self._by_scn[scn] == window[1]
            self.repeated += 1
            return
        self._by_scn[scn] = window[1]
        with self._arrived:
            self.windows.append(window)
            self._arrived.notify_all()


class Puller:
    """Asks ``/stream`` again and again, from what it had on, whatever becomes of the relay."""

    def __init__(self, port: int, arrived: threading.Condition, **parameters: str) -> None:
        self.seen = Seen(arrived)
        self._port, self._parameters = port, {"sources": "40", "size": "20000", "wait": "1000", **parameters}
        self._place = {"windowScn": -1, "windowOffset": -1}
        self._schema: Any = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self._pull()
                    continue
                self._stop.wait(0.05)  # the relay is away
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error

    def _get(self, path: str, parameters: dict[str, str]) -> bytes:
        query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            connection.request("GET", f"/{path}?{query}")
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200, (answer.getheaders(), body)
            return body

    def _pull(self) -> None:
        if self._schema is None:
            self._schema = fastavro.parse_schema(json.loads(json.loads(self._get("register", {}))[0]["schema"]))
        body = self._get("stream", {**self._parameters, "checkPoint": json.dumps(self._place)})
        for scn, source, change in self._events(body):
            taken = max(self._place["windowOffset"], 0) if self._place["windowScn"] == scn else 0
            if source < 0:
                self._place = {"windowScn": scn, "windowOffset": -1}
                self.seen.end(scn)
            else:
                assert change is not None
                self._place = {"windowScn": scn, "windowOffset": taken + 1}
                self.seen.change(change)

    def _events(self, body: bytes) -> Iterator[tuple[int, int, Change | None]]:
        if self._parameters["output"] == "json":
            for line in body.decode().splitlines():
                one = json.loads(line)
                value = base64.b64decode(one.get("value") or one.get("payloadValue") or "")
                before = base64.b64decode(one.get("metadataValue", ""))
                yield one["sequence"], one["srcId"], self._change(one.get("opcode") == "DELETE", value, before)
            return
        data = np.frombuffer(body, np.uint8)
        assert is_intact(data)
        f = event_fields(data)
        for i in range(len(f.scn)):
            before = body[f.before[i] : f.before[i] + f.before_size[i]] if f.before[i] >= 0 else b""
            value = body[f.value[i] : f.value[i] + f.value_size[i]]
            yield int(f.scn[i]), int(f.source[i]), self._change(bool(f.attributes[i] & 2), value, before)

    def _change(self, deleted: bool, value: bytes, before: bytes) -> Change | None:
        if not value:
            return None
        return Change(deleted, self._row(value), self._row(before) if before else None)

    def _row(self, data: bytes) -> Row:
        row: Any = fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)
        return Row(**row)


class Keeper(Consumer):
    """The Python client, with checkpoints in a file."""

    def __init__(self, port: int, arrived: threading.Condition, folder: Path) -> None:
        self.seen = Seen(arrived)
        checkpoints = CheckpointFile(folder, "keeper")
        self._client = RelayClient(f"http://127.0.0.1:{port}", ["test.T"], self, checkpoints, before_images=True)
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def on_start_data_event_sequence(self, scn: int) -> Result | None:
        del scn
        self.seen.open = []
        return None

    def on_data_event(self, event: Event) -> Result | None:
        before = None if event.row_before is None else Row(**event.row_before)
        self.seen.change(Change(event.opcode == "DELETE", Row(**event.row), before))
        return None

    def on_end_data_event_sequence(self, scn: int) -> Result | None:
        self.seen.end(scn)
        return None

    def _run(self) -> None:
        try:
            self._client.run()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._thread.join(60)


FILTER = {
    "partitionType": "MOD", "filters": [{"numBuckets": 2, "bktRange": {"start": 1, "end": 2}}],
    "where": "part > 1 OR n = 0",
}  # fmt: skip


def passes(row: Row) -> bool:
    return row.id % 2 == 1 and (row.part > 1 or row.n == 0)


def fail_over(writer: Writer, proxy: Proxy, old: MySQLServer, new: MySQLServer) -> None:
    """Promote the replica; the old primary follows it. For the relay the connection breaks, and the next one leads to
    the promoted server.
    """
    with writer.moving(new):
        proxy.cut()
        new.wait_for(old.gtid_executed)
        new.execute("STOP REPLICA", "RESET REPLICA ALL")
        old.follow(new)
        proxy.aim(new.host, new.port)
        proxy.restore()


def run(tmp_path: Path, kills: int, failovers: set[int]) -> None:
    """Kill the relay so many times; fail over after the kills with these numbers."""
    arrived = threading.Condition()
    port = free_port()
    with contextlib.ExitStack() as stack:
        primary, replica = stack.enter_context(replica_pair())
        primary.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT, part INT)")
        had = primary.gtid_executed
        replica.wait_for(had)
        proxy = stack.enter_context(Proxy(primary.host, primary.port))
        file = tmp_path / "relay.toml"
        file.write_text(
            f'state = "state"\nevent_version = 2\nbefore_images = true\nmemory_bytes = 1000000\n'
            f'disk_bytes = 200000000\n[[physical]]\nid = 1\nname = "t"\nurl = "{proxy.url}"\n'
            f'[[physical.sources]]\nid = 40\nname = "test.T"\ntable = "d.t"\n'
        )
        more = ("--port", str(port), "--from", had)
        consumers: dict[str, Puller | Keeper] = {
            "version 1": Puller(port, arrived, output="binary"),
            "version 2": Puller(port, arrived, output="binary", maxev="2"),
            "json": Puller(port, arrived, output="json", maxev="2"),
            "filtered": Puller(port, arrived, output="binary", filters=json.dumps({"40": FILTER})),
            "client": Keeper(port, arrived, tmp_path / "checkpoints"),
        }
        for one in consumers.values():
            stack.enter_context(one)

        def until(enough: Callable[[int], bool]) -> None:
            """Until each consumer has had so many windows."""
            end = time.monotonic() + DEADLINE_SECONDS
            with arrived:
                while not all(enough(len(one.seen.windows)) for one in consumers.values()):
                    problems = {name: one.error for name, one in consumers.items() if one.error is not None}
                    assert not problems
                    assert time.monotonic() < end, {name: len(one.seen.windows) for name, one in consumers.items()}
                    arrived.wait(1)

        with Writer(primary) as writer:
            for kill in range(kills):
                with Process(file, *more) as relay:
                    goal = max(len(one.seen.windows) for one in consumers.values()) + 20
                    until(lambda count, goal=goal: count >= goal)  # type: ignore[misc]
                    if kill in failovers:
                        fail_over(writer, proxy, primary, replica)
                        primary, replica = replica, primary
                        goal = writer.transactions + 20
                        until(lambda count, goal=goal: count >= goal)  # type: ignore[misc]
                    relay.kill()
        assert writer.error is None
        with Process(file, *more):
            until(lambda count: count >= writer.transactions)
    check({name: one.seen for name, one in consumers.items()}, writer.transactions, len(failovers))


def check(seen: dict[str, Seen], transactions: int, failovers: int) -> None:
    """Every transaction, whole, in order, and the same for all."""
    plain = seen["version 1"].windows
    assert [[change.row.n for change in window] for _, window in plain] == [
        [n] * (2 + n % 5) for n in range(transactions)
    ]
    for _, window in plain:
        assert [change.row.part for change in window] == [*range(len(window) - 1), UPDATED]
        assert not any(change.deleted for change in window)
        assert window[-1].row.id == window[0].row.id
    scns = [scn for scn, _ in plain]
    assert scns == sorted(set(scns))
    assert len({scn >> 48 for scn in scns}) == 1 + failovers
    with_before = [(scn, [*window[:-1], window[-1]._replace(before=window[0].row)]) for scn, window in plain]
    for name in ("version 2", "json", "client"):
        assert seen[name].windows == with_before, name
    wanted = [(scn, [change for change in window if passes(change.row)]) for scn, window in plain]
    assert seen["filtered"].windows == wanted


@pytest.mark.long
@pytest.mark.needs_own_server
@pytest.mark.timeout(600)
def test_a_kill_and_a_failover(tmp_path: Path) -> None:
    run(tmp_path, 1, {0})


@pytest.mark.slow
@pytest.mark.needs_own_server
@pytest.mark.timeout(3000)
def test_twenty_kills_and_two_failovers(tmp_path: Path) -> None:
    run(tmp_path, 20, {6, 13})

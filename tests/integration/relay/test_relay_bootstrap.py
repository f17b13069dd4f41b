"""Bootstrap on real servers: rows and changes make a consumer's tables equal the server's beside writers.

What a consumer holds at the end of a bootstrap is compared with the log replayed to the transaction of that SCN, which
knows nothing of snapshots.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, get_args
from urllib.parse import quote

import fastavro
import numpy as np
import pytest

from headgate.config import SCNS_OF_COLUMNS, ScnKind
from headgate.gtid import Gtid, GtidSet
from headgate.mysql import ConnectionSettings
from headgate.policies import Policies
from headgate.relay.client import CheckpointFile, ClientTuning, Consumer, Event, RelayClient, Result, Retry
from headgate.relay.databus import CHECKPOINT_SOURCE, BootstrapPoint, Schema, event_fields
from headgate.relay.server import LogicalSource, Relay, RelayConfig, create_app
from headgate.relay.server.bootstrap import ChunkSupplier
from headgate.web.serving import Serving
from headgate_testing import MySQLServer
from headgate_testing._ports import free_port
from tests.integration.relay.test_relay import DEADLINE_SECONDS, Process, do, physical
from tests.integration.snapshot.test_exactness import ROWS, TABLES, Replay, create_tables, writing

pytestmark = pytest.mark.needs_own_server

SOURCES = tuple(LogicalSource(40 + n, f"exact.{name}", f"exact.{name}") for n, name in enumerate(TABLES))
CHUNK_ROWS = 70
Rows = dict[str, dict[Any, tuple[Any, ...]]]


class Tables(Consumer):
    """Applies what it is given; ``until`` says after which calls the client ends."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.scns: dict[str, dict[Any, int]] = {}
        self.ends: list[tuple[int, Rows]] = []
        self.calls: list[str] = []
        self.applied = 0
        self.answer: Callable[[str, int], Result | None] = lambda _name, _scn: None
        self.client: RelayClient

    def on_data_event(self, event: Event) -> Result | None:
        self.applied += 1
        rows, scns = self.rows.setdefault(event.source, {}), self.scns.setdefault(event.source, {})
        if event.opcode == "UPSERT":
            rows[event.key], scns[event.key] = tuple(event.row.values()), event.scn
        else:
            rows.pop(event.key, None)
            scns.pop(event.key, None)
        return self.answer("event", event.scn)

    def on_start_bootstrap_sequence(self, scn: int) -> Result | None:
        self.calls.append("start")
        self.begin = scn
        return None

    def on_end_bootstrap_sequence(self, scn: int) -> Result | None:
        """What was last set before the start is gone."""
        self.calls.append("end")
        for source, scns in self.scns.items():
            for key in [key for key, last in scns.items() if last < self.begin]:
                del self.rows[source][key], scns[key]
        self.ends.append((scn, {source: dict(rows) for source, rows in self.rows.items()}))
        return self.answer("end", scn)

    def on_bootstrap_checkpoint(self, scn: int) -> Result | None:
        return self.answer("bootstrap checkpoint", scn)

    def on_checkpoint(self, scn: int) -> Result | None:
        return self.answer("checkpoint", scn)


def consume(port: int, tables: Tables, checkpoints: CheckpointFile | None = None, **more: Any) -> None:
    tables.client = RelayClient(
        f"http://127.0.0.1:{port}", [one.name for one in SOURCES], tables, checkpoints, bootstrap=True, **more
    )
    tables.client.run()


def plain(rows: Rows) -> dict[str, dict[Any, None]]:
    """By the name of the table, without keys: they are in the rows."""
    return {source.rpartition(".")[2]: dict.fromkeys(by_key.values()) for source, by_key in rows.items() if by_key}


class Log:
    """The server's history from before the first row."""

    def __init__(self, server: MySQLServer, start: GtidSet) -> None:
        settings, end = ConnectionSettings.from_url(server.url), GtidSet.parse(server.gtid_executed)
        self._replay = Replay()
        self._replay.load(settings, start, end, server.server_uuid)
        self._at = 0

    def at(self, scn: int) -> dict[str, Any]:
        """All rows after the transaction with this SCN; asked for in order."""
        number = scn & (1 << 48) - 1
        while self._at < len(self._replay.log):
            gtid, images = self._replay.log[self._at]
            if Gtid.parse(gtid).number > number:
                break
            for image in images:
                self._replay.apply(*image)
            self._at += 1
        return {name: dict.fromkeys(rows.values()) for name, rows in self._replay.state.items() if rows}


@contextlib.contextmanager
def serving(server: MySQLServer, account: str | None = None, **config: Any) -> Iterator[int]:
    """A relay from now on, or from its state, with small chunks; its port.

    :param account: ``user:password``, instead of the server's own.
    """
    start, source = GtidSet.parse(server.gtid_executed), physical(server, *SOURCES)
    if account is not None:
        url = f"mysql://{account}@{server.host}:{server.port}"
        source = replace(source, settings=ConnectionSettings.from_url(url))
    relay = Relay(RelayConfig(physical=(source,), **config), lambda _: start)
    suppliers = {1: ChunkSupplier(source.settings, Policies(), chunk_rows=CHUNK_ROWS)}
    with relay, Serving(create_app(relay, suppliers=suppliers), "127.0.0.1", 0) as service:
        yield service.port


def rounds(
    server: MySQLServer, count: int, seed: int, once: Callable[[MySQLServer, int, Path], tuple[int, Rows]], path: Path
) -> None:
    """New consumers beside writers, one after the other; each is exact at its target."""
    before = GtidSet.parse(server.gtid_executed)
    create_tables(server)
    with writing(server, seed):
        results = [once(server, seed * 1000 + number, path / str(number)) for number in range(count)]
    log = Log(server, before)
    for scn, rows in sorted(results, key=lambda one: one[0]):
        expected, got = log.at(scn), plain(rows)
        for name in TABLES:
            assert got.get(name) == expected.get(name), (name, scn)
    server.execute("DROP DATABASE exact")


def undisturbed(server: MySQLServer, seed: int, path: Path) -> tuple[int, Rows]:
    """Our client, from one end to the other."""
    del seed, path
    tables = Tables()
    tables.answer = lambda name, _scn: tables.client.stop() if name == "end" else None
    with serving(server) as port:
        consume(port, tables)
    (end,) = tables.ends
    return end


def interrupted(server: MySQLServer, seed: int, path: Path) -> tuple[int, Rows]:
    """Our client; callbacks fail, and client and relay end and come again, at random."""
    dice, tables = random.Random(seed), Tables()
    checkpoints = CheckpointFile(path / "consumer", "c")
    runs, failures, met = 0, iter([Result.ERROR] * 5), itertools.count(1)

    def answer(name: str, scn: int) -> Result | None:
        del scn
        if name == "end":
            tables.client.stop()
        elif name == "event" and dice.random() < 0.01:
            return next(failures, None)
        elif name == "bootstrap checkpoint" and (dice.random() < 0.2 or next(met) == 5):  # once at any rate
            tables.client.stop()
        return None

    tables.answer = answer
    while not tables.ends:
        with serving(server, state=path / "relay", disk_bytes=1 << 26, memory_bytes=1 << 24) as port:
            for _ in range(dice.randrange(1, 3)):
                consume(port, tables, checkpoints)
                runs += 1
                if tables.ends:
                    break
    assert runs > 1
    return tables.ends[0]


class Databus:
    """The order in which Databus's client bootstraps (``BootstrapPullThread.java``): all rows of a source, then the
    changes of all sources so far, source by source, each time from the start.
    """

    def __init__(self) -> None:
        self.port = 0
        self.rows: Rows = {}
        self.at = BootstrapPoint(snapshot_source=SOURCES[0].name, catchup_source=SOURCES[0].name)
        self._schemas: dict[bytes, Any] = {}
        self.requests = 0

    def get(self, path: str, **parameters: str) -> tuple[dict[str, str], bytes]:
        self.requests += 1
        query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", f"/{path}?{query}")
            answer = connection.getresponse()
            headers, body = {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        assert answer.status == 200, body
        return headers, body

    def step(self) -> int | None:
        """One request; the target when everything is done."""
        text = json.dumps(self.at.to_json())
        names = [one.name for one in SOURCES]
        if self.at.start < 0:
            self.at = self._with(
                start=int(json.loads(self.get("startSCN", sources=",".join(names), checkPoint=text)[1]))
            )
        elif self.at.offset == -1 and self.at.mode == "BOOTSTRAP_SNAPSHOT":
            _, body = self.get("targetSCN", source=self.at.snapshot_source, checkPoint=text)
            self.at = self._with(
                target=int(json.loads(body)), snapshot_index=self.at.snapshot_index + 1, mode="BOOTSTRAP_CATCHUP"
            )
            self._catch_up(0)
        else:
            done = self._take(text)
            if done and self.at.mode == "BOOTSTRAP_SNAPSHOT":
                self.at = self._with(offset=-1)
            elif done and self.at.catchup_index + 1 < self.at.snapshot_index:
                self._catch_up(self.at.catchup_index + 1)
            elif done and self.at.snapshot_index == len(names):
                return self.at.target
            elif done:
                self.at = self._with(
                    mode="BOOTSTRAP_SNAPSHOT", offset=0, snapshot_source=names[self.at.snapshot_index], catchup_index=0,
                    catchup_source=names[0],
                )  # fmt: skip
        return None

    def _with(self, **more: Any) -> BootstrapPoint:
        return replace(self.at, **more)

    def _catch_up(self, index: int) -> None:
        self.at = self._with(
            catchup_index=index, catchup_source=SOURCES[index].name, window=self.at.start, window_offset=0
        )

    def _take(self, text: str) -> bool:
        headers, body = self.get(
            "bootstrap", sources="40,41,42,43", checkPoint=text, batchSize="12000", output="binary"
        )
        fields = event_fields(np.frombuffer(body, np.uint8))
        for n, source in enumerate(fields.source.tolist()):
            value = body[fields.value[n] : fields.value[n] + fields.value_size[n]]
            if source == CHECKPOINT_SOURCE:
                self.at = BootstrapPoint.from_json(json.loads(value))
                continue
            is_long = fields.key[n] < 0
            key = int(fields.long_key[n]) if is_long else body[fields.key[n] : fields.key[n] + fields.key_size[n]]
            name = next(one.name for one in SOURCES if one.id == source)
            rows = self.rows.setdefault(name, {})
            if fields.attributes[n] & 2:
                rows.pop(key, None)
            else:
                rows[key] = self._row(body[fields.digest[n] : fields.digest[n] + 16], value)
        return headers.get("phasecompleted") == "TRUE"

    def _row(self, digest: bytes, value: bytes) -> tuple[Any, ...]:
        if digest not in self._schemas:
            for one in json.loads(self.get("register", sources="40,41,42,43")[1]):
                schema = Schema("", one["version"], one["schema"], json.loads(one["schema"]))
                self._schemas[schema.digest] = fastavro.parse_schema(dict(schema.value))
        row: Any = fastavro.schemaless_reader(io.BytesIO(value), self._schemas[digest], None)
        return tuple(row.values())


def as_databus(server: MySQLServer, seed: int, path: Path) -> tuple[int, Rows]:
    """Databus's client; the relay ends and comes again, at random."""
    dice, client, target = random.Random(seed), Databus(), None
    while target is None:
        with serving(server, state=path / "relay", disk_bytes=1 << 26, memory_bytes=1 << 24) as client.port:
            for _ in range(dice.randrange(20, 60)):
                target = client.step()
                if target is not None:
                    break
    return target, client.rows


def by_who_may_only_read(server: MySQLServer, seed: int, path: Path) -> tuple[int, Rows]:
    """The relay's account may neither write nor lock tables."""
    del seed, path
    server.execute(
        "CREATE USER reader IDENTIFIED BY 'only'", "GRANT SELECT ON exact.* TO reader",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader",
    )  # fmt: skip
    tables = Tables()
    tables.answer = lambda name, _scn: tables.client.stop() if name == "end" else None
    with serving(server, "reader:only") as port:
        consume(port, tables)
    server.execute("DROP USER reader")
    (end,) = tables.ends
    return end


ONCE = [undisturbed, interrupted, as_databus]


@pytest.mark.long
@pytest.mark.parametrize("once", [*ONCE, by_who_may_only_read])
def test_exact_at_the_target(mysql_server: MySQLServer, tmp_path: Path, once: Any) -> None:
    rounds(mysql_server, 1, 7, once, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("once", ONCE)
def test_exact_at_the_target_many_times(mysql_server: MySQLServer, tmp_path: Path, once: Any) -> None:
    rounds(mysql_server, 8, 11, once, tmp_path)


# --- the relay is killed

SMALL_CHUNKS = (
    "from headgate.cli import main\n"
    "from headgate.relay.server.bootstrap import ChunkSupplier\n"
    f"ChunkSupplier.__init__.__defaults__ = ({CHUNK_ROWS},)\n"
    "main()\n"
)
SMALL_ANSWERS = 5_000
"""Bytes: a part takes some of them, so that kills are within parts, too."""
LAST = 10_000_000
"""The key of the last change that is made."""


class Relays:
    """``headgate relay`` on one port and folder: killed by SIGKILL some events after its start, and started again.

    :param options: of the command.
    """

    def __init__(self, file: Path, kills: int, seed: int, *options: str) -> None:
        self.port = free_port()
        self._file, self._left, self._dice = file, kills, random.Random(seed)
        self._options = ("--port", str(self.port), *options)
        self._changed, self._over = threading.Condition(), threading.Event()
        self._seen, self._goal = 0, self._dice.randrange(10, 45)
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(DEADLINE_SECONDS)

    def event(self) -> None:
        """The consumer has had one more. It waits for a kill that is overdue."""
        with self._changed:
            self._seen += 1
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not self._left or self._seen < self._goal + 15 or self._over.is_set(), DEADLINE_SECONDS
            )

    def _start(self) -> Process:
        process = Process(self._file, *self._options)
        process._command[1:3] = ["-c", SMALL_CHUNKS]
        return process.__enter__()

    def _run(self) -> None:
        try:
            process = self._start()
            while self._await():
                self._over.wait(self._dice.random() / 20)  # somewhere in what it does then
                process.kill()
                process.__exit__()
                process = self._start()
                with self._changed:
                    self._left -= 1
                    self._goal = self._seen + self._dice.randrange(10, 45)
                    self._changed.notify_all()
            process.__exit__()
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error

    def _await(self) -> bool:
        """Whether it is to be killed once more; waits for the moment."""
        with self._changed:
            self._changed.wait_for(lambda: (self._left > 0 and self._seen >= self._goal) or self._over.is_set())
            return not self._over.is_set()

    @property
    def left(self) -> int:
        """Kills that are still to come."""
        return self._left


def killed(server: MySQLServer, path: Path, kills: int, seed: int, *options: str) -> None:
    """The consumer is exact at the target, and equal to the source when it has followed the log to its end."""
    before = GtidSet.parse(server.gtid_executed)
    create_tables(server)
    file = path / "relay.toml"
    file.write_text(
        f'state = "state"\nmemory_bytes = 1000000\n[[physical]]\nid = 1\nname = "exact"\n'
        f'url = "{server.url}"\n'
        + "".join(
            f'[[physical.sources]]\nid = {one.id}\nname = "{one.name}"\ntable = "{one.table}"\n' for one in SOURCES
        )
    )
    tables, done = Tables(), threading.Event()
    windows: list[int] = []
    with contextlib.ExitStack() as stack:
        relays = stack.enter_context(Relays(file, kills, seed, *options))
        writers = stack.enter_context(contextlib.ExitStack())
        writers.enter_context(writing(server, seed))

        def answer(name: str, scn: int) -> Result | None:
            if name == "event":
                relays.event()
            elif name == "end":
                windows.clear()
                if not done.is_set():  # the first bootstrap; in memory only, a kill may make it begin another one
                    done.set()
                    writers.close()
                    with server.connect(database="exact") as connection, connection.cursor() as cursor:
                        cursor.execute(f"INSERT INTO orders VALUES ({LAST}, 1, 'last', 0, NULL)")
            elif name == "checkpoint":
                windows.append(scn)
                if LAST in tables.rows["exact.orders"]:
                    tables.client.stop()
            return None

        tables.answer = answer
        consume(
            relays.port, tables, CheckpointFile(path / "consumer", "c"),
            retry=Retry(longest_seconds=0.5, deadline_seconds=DEADLINE_SECONDS),
            tuning=ClientTuning(rows_bytes=SMALL_ANSWERS),
        )  # fmt: skip
        assert relays.left == 0
    assert relays.error is None
    assert windows == sorted(set(windows))  # what comes after a bootstrap: once, in order
    assert windows
    log = Log(server, before)
    for scn, rows in [*tables.ends, (windows[-1], tables.rows)]:
        expected, got = log.at(scn), plain(rows)
        for name in TABLES:
            assert got.get(name) == expected.get(name), (name, scn)
    server.execute("DROP DATABASE exact")


@pytest.mark.long
@pytest.mark.parametrize("options", [("--disk-bytes", "100000000"), ()], ids=["disk", "memory"])
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_kills_of_the_relay(mysql_server: MySQLServer, tmp_path: Path, kills: int, options: tuple[str, ...]) -> None:
    killed(mysql_server, tmp_path, kills, 23 + kills, *options)


# --- every kind of SCN


class Ledger:
    """One writer of transactions on ``exact.orders``, each with a number in ``exact.ledger`` that grows with them."""

    def __init__(self, server: MySQLServer, seed: int) -> None:
        self._server, self._dice = server, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self.write(20)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)

    def write(self, transactions: int) -> None:
        with self._server.connect(database="exact", autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(transactions):
                one, two = self._dice.randrange(2 * ROWS), self._dice.randrange(2 * ROWS)
                for statement in (
                    "INSERT INTO ledger (at) VALUES (NOW(6))",
                    f"DELETE FROM orders WHERE id = {one}",
                    f"REPLACE INTO orders VALUES ({two}, {self._dice.randrange(1000)}, 'written', 1.5, NOW(3))",
                    f"UPDATE orders SET qty = qty + 1 WHERE id BETWEEN {one} AND {one + 3}",
                ):
                    cursor.execute(statement)
                connection.commit()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.write(10)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error


TARGETS: dict[ScnKind, Callable[[int, int], int]] = {
    "application": lambda _count, newest: newest,
    "source-generated": lambda _count, newest: 1 << 48 | newest,
    "relay-generated": lambda count, _newest: count,
}
"""What the target's SCN is, given how many transactions the ledger has and the newest one's number."""


def test_parts_of_a_table_of_large_rows(mysql_server: MySQLServer, mysql_db: str) -> None:
    """As many rows as take some MB, however many that are."""
    server, size = mysql_server, 1 << 20
    server.execute(
        f"CREATE TABLE {mysql_db}.large (id BIGINT PRIMARY KEY, data LONGBLOB)",
        f"INSERT INTO {mysql_db}.large WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)"
        f" SELECT i, REPEAT('x', {size}) FROM n",
        f"ANALYZE TABLE {mysql_db}.large",
    )
    source = LogicalSource(40, "a.Large", f"{mysql_db}.large")
    supplier, counts, part = ChunkSupplier(physical(server, source).settings, Policies()), list[int](), None
    executed = GtidSet.parse(server.gtid_executed)
    while (part := supplier.plan(source, part)) is not None:
        rows = supplier.read(source, part, executed, None)
        counts.append(0 if rows is None else rows.columns.num_rows)
    assert sum(counts) == 100
    assert max(counts) <= 40


@pytest.mark.parametrize("kind", get_args(ScnKind))
def test_every_kind_of_scn(mysql_server: MySQLServer, tmp_path: Path, kind: ScnKind) -> None:
    """Client and relay end and come again; the consumer has what the source has at the target, and at the end."""
    server = mysql_server
    create_tables(server)
    server.execute("CREATE TABLE exact.ledger (id BIGINT PRIMARY KEY AUTO_INCREMENT, at DATETIME(6))")
    sources = (SOURCES[0], LogicalSource(50, "exact.ledger", "exact.ledger"))
    start, source = GtidSet.parse(server.gtid_executed), physical(server, *sources)
    config = RelayConfig(
        physical=(source,), state=tmp_path / "relay", disk_bytes=1 << 26, memory_bytes=1 << 24, scn=kind,
        scn_column="exact.ledger.id" if kind in SCNS_OF_COLUMNS else None,
    )  # fmt: skip
    tables, checkpoints, scns = Tables(), CheckpointFile(tmp_path / "consumer", "c"), list[int]()
    turns = iter([False, True, False, False, True])

    def answer(name: str, scn: int) -> Result | None:
        if (name == "bootstrap checkpoint" and next(turns, False)) or name == "end":
            tables.client.stop()
        elif name == "checkpoint":
            scns.append(scn)
            if LAST in tables.rows["exact.orders"]:
                tables.client.stop()
        return None

    def run() -> None:
        relay = Relay(config, lambda _: start)
        suppliers = {1: ChunkSupplier(source.settings, Policies(), chunk_rows=CHUNK_ROWS)}
        with relay, Serving(create_app(relay, suppliers=suppliers), "127.0.0.1", 0) as service:
            tables.client = RelayClient(
                f"http://127.0.0.1:{service.port}", [one.name for one in sources], tables, checkpoints, bootstrap=True
            )
            tables.client.run()

    tables.answer = answer
    with Ledger(server, 3) as writer:
        while not tables.ends:
            run()
    assert writer.error is None
    assert tables.calls.count("start") > 2
    ((target, rows),) = tables.ends
    ledger = rows["exact.ledger"]
    assert len(ledger) == max(ledger)  # each transaction once, without a gap
    if kind in TARGETS:
        assert target == TARGETS[kind](len(ledger), max(ledger))
    do(
        server, "exact", "INSERT INTO ledger (at) VALUES (NOW())",
        f"INSERT INTO orders VALUES ({LAST}, 1, 'last', 0, NULL)",
    )  # fmt: skip
    run()
    assert [target, *scns] == sorted({target, *scns})
    for table in ("orders", "ledger"):
        assert set(tables.rows[f"exact.{table}"].values()) == set(server.query(f"SELECT * FROM exact.{table}"))
    server.execute("DROP DATABASE exact")

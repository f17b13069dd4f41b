"""A server with ``gtid_mode=OFF``: the log by file and position, and chunks behind a watermark row."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headgate.catalog import TablePatterns
from headgate.errors import BinlogPurgedError, ServerBehindError, UnsupportedError
from headgate.gtid import Gtid
from headgate.mysql import Connection, ConnectionSettings
from headgate.offsets import ChunkSpec
from headgate.positions import LogPlace, Position, parse_position, read_executed
from headgate.replication import (
    Ddl,
    DecodeOptions,
    Idle,
    LogRead,
    RangeEnd,
    cut_in_order,
    follow,
    read_range,
    transaction_headers,
)
from headgate.snapshot import ChunkRead, Redo, read_chunks
from headgate.spark import TablesAsOf
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.integration.changes import plain
from tests.integration.commands import run
from tests.integration.databases import Database

pytestmark = pytest.mark.needs_own_server

TABLES = TablePatterns(["d.*", "!d.signals"])


@pytest.fixture(scope="module")
def server() -> Iterator[MySQLServer]:
    with MySQLServer.start({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        yield server


@pytest.fixture
def scene(server: MySQLServer) -> Iterator[Scene]:
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(20))",
        "CREATE TABLE d.signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        "INSERT INTO d.t VALUES " + ", ".join(f"({i}, 'v{i}')" for i in range(1, 10)),
    )  # fmt: skip
    yield Scene(server)
    server.execute("DROP DATABASE d")


class Scene(Database):
    """The log from a mark on."""

    def __init__(self, server: MySQLServer) -> None:
        super().__init__(server, "d")
        self.settings = ConnectionSettings.from_url(server.url)
        self.start = self.position()

    def position(self) -> Position:
        with Connection.open(self.settings) as connection:
            return read_executed(connection).executed

    def read(self, start: Position | None = None, end: Position | None = None, **options: Any) -> list[Any]:
        end = end or self.position()
        uuid, wanted = self.server.server_uuid, end - (start or self.start)
        read = LogRead(self.settings, wanted=wanted, executed=end, server_uuid=uuid)
        return list(read_range(read, DecodeOptions(TABLES, epoch=1, **options)))

    def chunk(self, executed: Position) -> list[dict[str, Any]]:
        items = list(
            read_chunks(
                ChunkRead(
                    self.settings, [ChunkSpec("d.t", 0)], executed, self.server.server_uuid, epoch=1, planned_us=0
                )
            )
        )
        assert not any(isinstance(item, Redo) for item in items), items
        return plain(items)


def changes(items: list[Any]) -> list[tuple[Any, ...]]:
    return [(row["_op"], row["id"], row["v"]) for row in plain(items)]


def state(rows: list[dict[str, Any]]) -> dict[int, str]:
    return {row["id"]: row["v"] for row in rows}


WRITES = (
    "INSERT INTO t VALUES (20, 'new'), (21, 'new')", "UPDATE t SET v = 'changed' WHERE id < 3",
    "FLUSH BINARY LOGS", "DELETE FROM t WHERE id = 5", "UPDATE t SET id = 50 WHERE id = 6",
)  # fmt: skip
CHANGES = [
    ("c", 20, "new"), ("c", 21, "new"), ("b", 1, "v1"), ("u", 1, "changed"), ("b", 2, "v2"), ("u", 2, "changed"),
    ("d", 5, "v5"), ("b", 6, "v6"), ("u", 50, "v6"),
]  # fmt: skip


def test_a_range_between_two_places(scene: Scene) -> None:
    scene.do(*WRITES)
    end = scene.position()
    scene.do("INSERT INTO t VALUES (99, 'behind the end')")
    items = scene.read(end=end)
    assert changes(items) == CHANGES
    last = items[-1]
    assert isinstance(last, RangeEnd)
    assert last.gtid == end
    assert isinstance(end, LogPlace)
    assert (last.file.rpartition(".")[2].lstrip("0"), last.pos) == (str(end.end.file), end.end.pos)
    (first, *_) = [image for item in items[:-1] for image in item.images]
    assert first.batch.column("_gtid").null_count == len(first.batch)
    assert first.batch.column("_ts").null_count == 0
    assert items[-1:] == scene.read(end, end) or not scene.read(end, end)[:-1]


def test_a_range_in_one_file_shows_the_transaction_that_its_planning_met(scene: Scene) -> None:
    scene.do(*WRITES[:2])
    end = scene.position()
    (header,) = transaction_headers(LogRead(scene.settings, wanted=end - scene.start))
    (*_, read) = scene.read(end=end)
    assert isinstance(read, RangeEnd)
    assert read.first == header.last
    scene.do("FLUSH BINARY LOGS", "DELETE FROM t WHERE id = 5")
    (*_, read) = scene.read()
    assert isinstance(read, RangeEnd)
    assert read.first is None, "the log may be reset between two files"


def test_stretches_are_divided_anywhere_between_transactions(scene: Scene) -> None:
    places = [scene.start]
    for statement in WRITES:
        scene.do(statement)
        places.append(scene.position())
    rows = []
    for start, end in itertools.pairwise(places):
        rows += changes(scene.read(start, end)) if start != end else []
    assert rows == CHANGES
    cut = cut_in_order(scene.settings, scene.start, places[-1], limit_rows=3)
    assert cut == places[2]
    assert cut_in_order(scene.settings, scene.start, places[-1], limit_rows=100) == places[-1]


def test_the_log_as_it_grows(scene: Scene) -> None:
    items, met = follow(scene.settings, scene.start, DecodeOptions(TABLES)), []
    scene.do(*WRITES)
    goal = scene.position()
    for item in items:
        met.append(item)
        if isinstance(item, Idle) and goal <= item.gtid:
            break
    items.close()  # type: ignore[attr-defined]
    assert changes(met) == CHANGES


def test_a_chunk_is_exact_at_a_place(scene: Scene) -> None:
    then = dict(scene.server.query("SELECT id, v FROM d.t"))
    executed = scene.position()
    scene.do(*WRITES)
    assert state(scene.chunk(executed)) == then
    scene.do("TRUNCATE TABLE t")


def test_statements(scene: Scene) -> None:
    scene.do("ALTER TABLE t ADD COLUMN n INT", "INSERT INTO t VALUES (70, 'x', 7)", "TRUNCATE TABLE t")
    items = scene.read()
    (ddl,) = [item for item in items if isinstance(item, Ddl)]
    assert (ddl.action, ddl.table, ddl.gtid) == ("alter", "t", None)
    rows = plain(items)
    assert [row["_op"] for row in rows] == ["c", "t"]
    assert rows[0]["n"] == 7


def test_the_history_is_recognised_by_a_commit_time(scene: Scene) -> None:
    scene.do("FLUSH BINARY LOGS", WRITES[0])
    new = scene.position() - scene.start
    uuid, tag, number, _ = next(new.intervals())
    one = new.only(Gtid(uuid, tag, number))
    first, second = (transaction_headers(LogRead(scene.settings, wanted=one)) for _ in range(2))
    assert first == second
    assert first[0].commit_us > 1_600_000_000_000_000


def test_what_is_refused(scene: Scene) -> None:
    scene.do("XA START 'x'", "INSERT INTO t VALUES (70, 'xa')", "XA END 'x'", "XA PREPARE 'x'")
    scene.server.execute("XA COMMIT 'x'")
    with pytest.raises(UnsupportedError, match="XA transactions need GTIDs"):
        scene.read()
    other = parse_position(str(scene.start).replace(scene.server.server_uuid, "3e11fa47-71ca-11e1-9e33-c80aa9429562"))
    with pytest.raises(ServerBehindError):
        next(follow(scene.settings, other, DecodeOptions(TABLES)))
    start = scene.position()
    scene.do("FLUSH BINARY LOGS")
    scene.do("FLUSH BINARY LOGS", "INSERT INTO t VALUES (71, 'x')")
    newest, _ = scene.server.log_status()
    scene.server.purge_log(newest)
    with pytest.raises(BinlogPurgedError, match="read again"):
        scene.read(start)


# --- commands, beside writers


def moving_amounts(server: MySQLServer, sessions: int) -> AbstractContextManager[None]:
    """Sessions that move amounts between the two tables, so that the sum of both stays."""

    def work(rng: random.Random, stop: threading.Event) -> None:
        with server.connect(database="d", autocommit=False) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                amount, one, two = rng.randrange(50), rng.randrange(100), rng.randrange(100)
                try:
                    cursor.execute(f"UPDATE a SET v = v - {amount} WHERE id = {one}")
                    cursor.execute(f"UPDATE b SET v = v + {amount} WHERE id = {two}")
                    connection.commit()
                except pymysql.err.OperationalError as error:
                    connection.rollback()
                    if error.args[0] != 1213:  # a deadlock is no failure, here as in any application
                        raise

    return beside(work, sessions)


def test_snapshot_and_tail_beside_writers(scene: Scene) -> None:
    """The rows behind a watermark row, and then every change from their place on, give the tables of the end."""
    server, state = scene.server, dict[tuple[str, int], int]()
    for name in ("a", "b"):
        rows = ", ".join(f"({i}, 100)" for i in range(100))
        scene.do(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT NOT NULL)", f"INSERT INTO {name} VALUES {rows}")
    tables = ("-t", "d.a", "-t", "d.b")
    marks = ("--watermark", "signal-table", "--signal-table", "d.signals")
    with moving_amounts(server, 3):
        for _ in range(4):
            code, out, err = run("snapshot", server.url, *tables, "--chunk-rows", "20", *marks)
            assert code == 0, err
            lines = [json.loads(line) for line in out.splitlines()]
            state = {(line["table"], line["after"]["id"]): line["after"]["v"] for line in lines}
            assert len(lines) == len(state) == 200
            assert sum(state.values()) == 20_000
    place = err.splitlines()[-1]
    assert place.startswith(f"{server.server_uuid}@")
    code, out, err = run("tail", server.url, "--from", place, "--until-current", *tables)
    assert (code, err) == (0, "")
    for change in map(json.loads, out.splitlines()):
        table, before, after = change["table"], change["before"], change["after"]
        assert change["gtid"] is None
        assert state[table, before["id"]] == before["v"]
        state[table, after["id"]] = after["v"]
    assert state == {(name, *key): v for name in "ab" for *key, v in server.query(f"SELECT id, v FROM d.{name}")}
    assert len(server.query("SELECT * FROM d.signals")) == 1


def test_single_rows_are_read_behind_a_watermark(scene: Scene, tmp_path: Path) -> None:
    """Else a transaction before the position may be logged and not visible yet, and ``verify`` would miss its rows."""
    (tmp_path / "secret").write_text("")
    options = {"url": scene.server.url, "password_file": str(tmp_path / "secret")}
    past = TablesAsOf({**options, "watermark": "signal-table", "signal_table": "d.signals"})
    marks = set()
    for _ in range(2):
        assert {"id": 1, "v": "v1"} in past.rows("d.t", str(scene.position()), [(1,)]).select(["id", "v"]).to_pylist()
        marks |= {*scene.server.query("SELECT id, data FROM d.signals")}
    assert len(marks) == 2


def test_what_is_said_without_a_signal_table(scene: Scene) -> None:
    url = scene.server.url
    code, _, err = run("snapshot", url, "-t", "d.t")
    assert (code, "gtid_mode is OFF" in err) == (3, True)
    code, _, err = run("snapshot", url, "-t", "d.t", "--watermark", "signal-table")
    assert (code, "--signal-table DB.TABLE" in err) == (2, True)
    code, _, err = run("snapshot", url, "-t", "d.t", "--watermark", "signal-table", "--signal-table", "d.nothing")
    assert (code, "CREATE TABLE `d`.`nothing` (id " in err) == (3, True)
    code, _, err = run("tail", url, "--from", "yesterday")
    assert (code, "file:position" in err) == (2, True)


def test_a_log_that_was_begun_again(scene: Scene) -> None:
    """Equal positions and table ids mean other columns after RESET, in a process that knows the old ones."""
    reset = scene.server.reset_statement
    try:
        scene.do("SET GLOBAL binlog_row_metadata = MINIMAL", "SET timestamp = 1234567890", reset)
        start = scene.position()
        scene.do("CREATE TABLE u (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO u VALUES (1, 10, 20)")
        scene.do("INSERT INTO u VALUES (2, 10, 20)")
        assert plain(scene.read(start))[0] == {"_op": "c", "id": 1, "a": 10, "b": 20}
        scene.do("DROP TABLE u", "SET timestamp = 1234567890", reset)
        scene.do("CREATE TABLE u (id INT PRIMARY KEY, b INT, a INT)", "INSERT INTO u VALUES (1, 20, 10)")
        assert plain(scene.read(start)) == [{"_op": "c", "id": 1, "b": 20, "a": 10}]
    finally:
        scene.do("SET GLOBAL binlog_row_metadata = FULL")

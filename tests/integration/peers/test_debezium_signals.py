"""Debezium's scenarios for incremental snapshots and signals, by the numbers and names of its suites.

Planner and tasks on a real server, with a sink in memory that folds images and checks itself: after each batch every
table that it holds whole is equal to the source as of the batch, and no row that a snapshot brings is older than that.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import ControlFolder, Redo, Signals
from headgate.control import (
    BatchFacts,
    KafkaTopic,
    Notification,
    OpenSnapshots,
    SignalForwarder,
    batch_notifications,
    inbox_files,
    parse_signal,
    submit,
)
from headgate.offsets import SourceOffset
from headgate.replication import ImageBatch
from headgate.spark import Options, Planner
from headgate_testing import MySQLServer
from tests.integration.databases import Database
from tests.integration.streams import items_of, open_server, tasks_of
from tests.spark.model import as_json, readings_of

ROWS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i + 1, i FROM n"
Key = tuple[Any, ...]


@dataclass
class Held:
    """One table of the sink."""

    rows: dict[Key, tuple[tuple[Any, ...], int]] = field(default_factory=dict)
    """Key → row, epoch."""
    live: bool = False


@dataclass
class Run(Database):
    """A stream and its sink."""

    server: MySQLServer
    db: str
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    topic: KafkaTopic | None = None

    def __post_init__(self) -> None:
        texts = {"chunk_rows": "100", "slots": "2", "poll_ms": "1", "start": "current", "append": "false"}
        texts |= {"url": self.server.url, "tables": f"{self.db}.*", "control_path": str(self.folder), **self.options}
        secret = self.folder / "secret"
        self.folder.mkdir(exist_ok=True)
        secret.write_text(self.server._password)
        self.parsed = Options.parse({**texts, "secret_file": str(secret)})
        self.inbox = ControlFolder(str(self.folder))
        self.tables: dict[str, Held] = {}
        self.reads: dict[str, list[Key]] = {}
        self.headers: list[dict[str, Any]] = []
        self.missed: list[str] = []
        self.under_way = OpenSnapshots()
        self.notifications: list[Notification] = []
        self._open()
        self.offset = self.planner.initial()

    def restart(self) -> None:
        """All is forgotten but the offset and the folder."""
        self.close()
        self._open()

    def _open(self) -> None:
        self._eyes = open_server(self.parsed)
        self._topic = None if self.topic is None else SignalForwarder(self.topic, self.inbox)
        self.planner = Planner(self.parsed, self._eyes, self.inbox, forwarder=self._topic)

    def close(self) -> None:
        self._eyes.drop()
        if self._topic is not None:
            self._topic.close()

    def signal(self, kind: str, *tables: str, **data: Any) -> str:
        if tables:
            data["data-collections"] = [f"{self.db}\\.{table}" for table in tables]
        return submit(
            self.inbox, parse_signal({"type": kind, "data": {k.replace("_", "-"): v for k, v in data.items()}})
        )

    def where(self, table: str, condition: str) -> list[dict[str, str]]:
        return [{"data-collection": f"{self.db}\\.{table}", "filter": condition}]

    def batch(self, meanwhile: Callable[[], None] | None = None, *, killed: bool = False) -> bool:
        """One batch; ``meanwhile`` runs after it was planned and before it is read; so does the kill."""
        end = self.planner.latest(self.offset)
        if end is self.offset:
            return False
        if meanwhile is not None:
            meanwhile()
        end = SourceOffset.from_json(end.to_json())
        if killed:
            self.restart()
        tasks = tasks_of(self.planner, self.parsed, self.offset, end)
        (header,) = [as_json(task.header) for task in tasks if task.header is not None]
        rows: list[tuple[tuple[int, ...], str, dict[str, Any], tuple[str, ...]]] = []
        missed: set[str] = set()
        inserted: list[dict[str, Any]] = []
        for task in tasks:
            for item in items_of(self.parsed, task):
                if isinstance(item, Redo):
                    missed.add(item.chunk.table)
                    self.missed.append(item.reason)
                    value = {"type": "redo", "table": item.chunk.table, "chunk": item.chunk.to_dict()}
                    self.inbox.write(f"signals/redo-{end.epoch}-{len(missed)}.json", value)
                elif isinstance(item, Signals):
                    inserted += item.rows
                elif isinstance(item, ImageBatch):
                    for row in item.batch.to_pylist():
                        seq = row.pop("_seq")
                        place = (seq["file"], seq["pos"], seq["ordinal"], row["_op"] not in "bd")
                        rows.append((place, item.table.full_name, row, item.table.key_names))
        self._apply(header, sorted(rows, key=lambda one: one[0]), missed)
        self._tell(header, [table for _, table, row, _ in rows if row["_op"] == "r"], missed)
        for name, value in inbox_files(inserted):
            self.inbox.write(name, value)
        self.headers.append(header)
        self.offset = end
        self.planner.finished(end)
        return True

    def _apply(self, header: dict[str, Any], rows: list[Any], missed: set[str]) -> None:
        for _, table, row, names in rows:
            held = self.tables.setdefault(table, Held())
            op = row["_op"]
            values = tuple(value for name, value in row.items() if not name.startswith("_"))
            key = tuple(row[name] for name in names) or values
            if op == "r":
                self.reads.setdefault(table, []).append(key)
            if op in "bd":
                held.rows.pop(key, None)
            else:
                held.rows[key] = (values, header["epoch"])
        for table, info in header["tables"].items():
            held = self.tables.setdefault(table, Held())
            if info.get("partial"):
                continue
            held.live = info["last"] and table not in missed
            if held.live:
                held.rows = {key: row for key, row in held.rows.items() if row[1] >= info["since_epoch"]}
        live = sorted(table for table, held in self.tables.items() if held.live)
        self.inbox.write("finished.json", {"tables": live})

    def _tell(self, header: dict[str, Any], rows: list[str], missed: set[str]) -> None:
        facts = BatchFacts("p", header["epoch"], 1, header["actions"], readings_of(header), Counter(rows), missed)
        self.under_way, notifications = batch_notifications(self.under_way, facts)
        self.notifications += notifications

    def heard(self, *types: str) -> list[tuple[str, str, dict[str, str]]]:
        """(id, type, additional data without the batch's epoch) of what was told; of these types only."""
        return [
            (one.id, one.type, {name: text for name, text in one.additional_data.items() if name != "epoch"})
            for one in self.notifications
            if not types or one.type in types
        ]

    def drain(self) -> None:
        for _ in range(100):
            if not self.batch():
                return
        raise AssertionError("the stream does not come to rest")

    def ids(self, table: str) -> list[int]:
        return sorted(key[0] for key in self.reads.get(f"{self.db}.{table}", []))

    def check(self, *tables: str) -> None:
        """The sink has these tables whole, and as they are now."""
        for table in tables:
            held = self.tables[f"{self.db}.{table}"]
            assert held.live, table
            source = sorted(tuple(row) for row in self.server.query(f"SELECT * FROM `{self.db}`.`{table}`"))
            assert sorted(row for row, _ in held.rows.values()) == source

    @property
    def actions(self) -> list[dict[str, Any]]:
        return [action for header in self.headers for action in header["actions"]]


@pytest.fixture
def start(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Streams of tables ``a``, ``b``, ``c`` of 1000 rows (pk = i + 1, aa = i), which nobody has read yet."""
    runs: list[Run] = []

    def begin(*tables: str, **options: str) -> Run:
        for table in tables or ("a",):
            mysql_server.execute(
                f"CREATE TABLE `{mysql_db}`.{table} (pk INT AUTO_INCREMENT PRIMARY KEY, aa INT)",
                f"INSERT INTO `{mysql_db}`.{table} {ROWS}",
            )
        runs.append(Run(mysql_server, mysql_db, tmp_path / "control", options))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()
        ids = [one.event_id for one in run.notifications]
        assert len(set(ids)) == len(ids)


ALL = list(range(1, 1001))


def test_01_snapshot_only(start: Callable[..., Run]) -> None:
    run = start()
    run.drain()
    assert run.reads == {}
    name = run.signal("execute-snapshot", "a")
    run.drain()
    assert run.ids("a") == ALL
    run.check("a")
    assert run.headers[0]["tables"][f"{run.db}.a"]["signals"] == [name]
    (action,) = run.actions
    assert action.pop("sent_us") > 0
    assert action == {"id": name, "type": "execute-snapshot", "tables": [f"{run.db}.a"]}
    assert run.inbox.signals() == {}


def test_02_inserts(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    run.batch(lambda: run.do("INSERT INTO a SELECT i + 1000, i FROM (SELECT pk AS i FROM a) AS x"))
    run.drain()
    assert run.ids("a") == ALL, "what comes later comes with the stream"
    assert len(run.tables[f"{run.db}.a"].rows) == 2000
    run.check("a")


def test_03_updates(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    parts = iter(range(0, 1000, 20))

    def update() -> None:
        ranges = [f"pk > {low} AND pk <= {low + 20}" for low in itertools.islice(parts, 10)]
        run.do(*(f"UPDATE a SET aa = aa + 2000 WHERE {part}" for part in ranges))

    while run.batch(update):
        pass
    for _ in range(5):
        update()
    run.drain()
    assert next(parts, None) is None
    run.check("a")
    assert min(row[1] for row, _ in run.tables[f"{run.db}.a"].rows.values()) >= 2000


def test_04_updates_large_chunk(start: Callable[..., Run]) -> None:
    run = start(chunk_rows="1000")
    run.signal("execute-snapshot", "a")
    run.batch(lambda: run.do("UPDATE a SET aa = aa + 2000"))
    run.drain()
    run.check("a")
    assert run.ids("a") == ALL


def test_05_updates_with_restart(start: Callable[..., Run]) -> None:
    """Killed after each planning, so every batch is one that another process planned."""
    run = start()
    run.signal("execute-snapshot", "a")
    low = 0

    def update() -> None:
        nonlocal low
        run.do(*(f"UPDATE a SET aa = aa + 2000 WHERE pk > {n} AND pk <= {n + 50}" for n in range(low, low + 250, 50)))
        low += 250

    while low < 1000:
        assert run.batch(update, killed=True)
        run.restart()
    run.drain()
    run.check("a")
    assert run.ids("a") == ALL
    assert min(row[1] for row, _ in run.tables[f"{run.db}.a"].rows.values()) >= 2000


def test_06_snapshot_only_with_restart(start: Callable[..., Run]) -> None:
    """Nobody writes any more: no heartbeat is needed to go on."""
    run = start()
    run.do("INSERT INTO a SELECT pk + 1000 * n, aa FROM a, (VALUES ROW(1), ROW(2), ROW(3)) AS m(n)")
    run.drain()
    run.signal("execute-snapshot", "a")
    for _ in range(3):
        assert run.batch(killed=True)
    run.restart()
    assert 0 < len(run.ids("a")) < 4000
    run.drain()
    assert run.ids("a") == list(range(1, 4001)), "nothing twice"
    run.check("a")


def test_07_what_was_read_before_a_kill_is_not_read_again(start: Callable[..., Run]) -> None:
    run = start("a", "c", slots="1")
    name = run.signal("execute-snapshot", "a", "c")
    while not run.ids("c"):
        assert run.batch()
    assert run.ids("a") == ALL
    run.restart()
    run.drain()
    assert (run.ids("a"), run.ids("c")) == (ALL, ALL)
    run.check("a", "c")
    assert [one for one, kind, _ in run.heard() if kind in ("STARTED", "COMPLETED")] == [name, name]


def test_09_filtered_events(start: Callable[..., Run]) -> None:
    """A table that is not followed is written all the time: the snapshot ends, and nothing of it comes."""
    run = start("a", "b")
    run.parsed = replace(run.parsed, patterns=(f"{run.db}.a",))
    run.restart()
    run.signal("execute-snapshot", "a")
    number = 0

    def insert() -> None:
        nonlocal number
        run.do(*(f"INSERT INTO b VALUES ({2000 + number + n}, 0)" for n in range(20)))
        number += 20

    while not run.tables.get(f"{run.db}.a", Held()).live:
        assert run.batch(insert)
    assert run.ids("a") == ALL
    assert run.tables.keys() == {f"{run.db}.a"}


@pytest.mark.parametrize("rows", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_10_keys_of_four_columns(start: Callable[..., Run], rows: int) -> None:
    """Chunks end within each of the key's columns."""
    run = start(chunk_rows=str(rows), slots="8" if rows == 1 else "2")
    limit = {1: 80, 7: 300}[rows]
    run.do(
        "CREATE TABLE a4 (pk1 INT, pk2 INT, pk3 INT, pk4 INT, aa INT, PRIMARY KEY (pk1, pk2, pk3, pk4))",
        f"INSERT INTO a4 SELECT aa DIV 64, aa DIV 16 % 4, aa DIV 4 % 4, aa % 4, aa FROM a WHERE aa < {limit}",
    )
    run.drain()
    run.signal("execute-snapshot", "a4")
    run.batch(lambda: run.do("UPDATE a4 SET pk4 = pk4 + 4 WHERE pk1 = 1", "DELETE FROM a4 WHERE pk2 = 2 AND pk1 = 0"))
    run.drain()
    run.check("a4")
    read = run.reads[f"{run.db}.a4"]
    assert len(set(read)) == len(read)


def test_11_a_table_without_a_key_and_with_nulls(start: Callable[..., Run]) -> None:
    """Nine rows with NULLs in what would be the key there: all come, also beside an insert."""
    run = start(chunk_rows="1")
    run.do("CREATE TABLE a42 (pk1 INT, pk2 INT, pk3 INT, pk4 INT, aa INT)")
    values = [(a, b) for a in ("NULL", "1", "2") for b in ("NULL", "1", "2")]
    run.do(*(f"INSERT INTO a42 VALUES ({a}, {b}, 3, 4, {n})" for n, (a, b) in enumerate(values[:8])))
    run.drain()
    run.signal("execute-snapshot", "a42")
    run.batch(lambda: run.do("INSERT INTO a42 VALUES (2, 2, 3, 4, 8)"))
    run.drain()
    held = run.tables[f"{run.db}.a42"]
    assert held.live
    rows = [row for row, _ in held.rows.values()]
    assert len(rows) == 9
    assert set(rows) == set(run.server.query(f"SELECT * FROM {run.db}.a42"))


def test_08_empty_high_watermark(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    run.drain()
    assert {header["gtid"] for header in run.headers} == {run.headers[0]["gtid"]}, "nobody else did anything"
    assert run.ids("a") == ALL


def test_12_table_without_a_key(start: Callable[..., Run]) -> None:
    """Not skipped as there: it is read in one piece, and a condition on it is refused."""
    run = start()
    run.do("CREATE TABLE bare (pk INT, aa INT)", "INSERT INTO bare SELECT * FROM a WHERE pk <= 9")
    run.signal("execute-snapshot", "bare", "a", additional_conditions=run.where("bare", "pk = 1"))
    run.drain()
    assert "a table without a key is read whole" in run.actions[0]["error"]
    ended = [data for _, _, data in run.heard("TABLE_SCAN_COMPLETED")]
    assert [(data["scanned_collection"], data["status"]) for data in ended] == [
        (f"{run.db}.bare", "NO_PRIMARY_KEY"), (f"{run.db}.a", "SUCCEEDED"),
    ]  # fmt: skip
    run.check("a")
    run.signal("execute-snapshot", "bare")
    run.batch(lambda: run.do("INSERT INTO bare VALUES (10, 10)"))
    run.drain()
    run.check("bare")
    run.do("UPDATE a SET aa = 0 WHERE pk = 1")
    run.drain()
    run.check("a")


def test_13_invalid_tables_in_the_list(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "bad1", "a", "bad2")
    run.drain()
    run.check("a")
    (action,) = run.actions
    assert action["tables"] == [f"{run.db}.a"]
    assert action["unmatched"] == [f"{run.db}\\.bad1", f"{run.db}\\.bad2"]
    assert "no table of this pipeline matches" in action["error"]
    ended = [data for _, _, data in run.heard("TABLE_SCAN_COMPLETED")]
    assert [(data["scanned_collection"], data["status"]) for data in ended] == [
        (f"{run.db}\\.bad1", "UNKNOWN_SCHEMA"), (f"{run.db}\\.bad2", "UNKNOWN_SCHEMA"), (f"{run.db}.a", "SUCCEEDED"),
    ]  # fmt: skip


def test_14_regex(start: Callable[..., Run]) -> None:
    run = start("a", "b", "c")
    run.signal("execute-snapshot", ".*")
    run.drain()
    run.check("a", "b", "c")


def test_15_regex_that_matches_nothing(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "x.*")
    run.drain()
    (action,) = run.actions
    assert action["tables"] == []
    assert "matches" in action["error"]
    assert run.reads == {}
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")


def test_16_duplicate_names(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a", ".", "a")
    run.signal("execute-snapshot", "a")
    run.batch()
    last = run.signal("execute-snapshot", "a")
    run.drain()
    assert run.ids("a") == ALL, "one scan"
    assert last in run.headers[-1]["tables"][f"{run.db}.a"]["signals"]


def test_17_pause_and_resume(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    run.batch()
    run.signal("pause-snapshot")
    run.drain()
    before = len(run.ids("a"))
    assert 0 < before < 1000
    run.restart()
    run.do("UPDATE a SET aa = -1 WHERE pk IN (1, 1000)", "INSERT INTO a VALUES (2000, 1)")
    run.drain()
    assert len(run.ids("a")) == before, "paused, also after a restart"
    assert (2000,) in run.tables[f"{run.db}.a"].rows, "changes go on"
    run.signal("resume-snapshot")
    run.drain()
    assert run.ids("a") == ALL
    run.check("a")


def test_18_stop_all(start: Callable[..., Run]) -> None:
    run = start("a", "b")
    run.signal("execute-snapshot", "a", "b")
    run.batch()
    run.signal("stop-snapshot")
    run.drain()
    before = len(run.ids("a")) + len(run.ids("b"))
    run.do("INSERT INTO a VALUES (5000, 1)")
    run.restart()
    run.drain()
    assert len(run.ids("a")) + len(run.ids("b")) == before < 2000, "nothing of it is left"
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")


def test_19_stop_a_table_that_waits(start: Callable[..., Run]) -> None:
    run = start("a", "b", "c", slots="1")
    run.signal("execute-snapshot", "a", "b", "c")
    run.batch()
    assert run.ids("c") == []
    run.signal("stop-snapshot", "c")
    run.drain()
    assert run.actions[-1]["tables"] == [f"{run.db}.c"]
    assert run.ids("c") == []
    run.check("a", "b")


def test_20_stop_the_running_table(start: Callable[..., Run]) -> None:
    run = start("a", "b", slots="1")
    run.signal("execute-snapshot", "a", "b")
    run.batch()
    run.batch()
    run.signal("stop-snapshot", "a")
    run.drain()
    assert 0 < len(run.ids("a")) < 1000
    run.check("b")


@pytest.mark.parametrize("restarted", [False, True], ids=["21", "22_with_restart"])
def test_21_additional_conditions(start: Callable[..., Run], restarted: bool) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")
    run.reads.clear()
    run.parsed = replace(run.parsed, chunk_rows=4)
    run.restart()
    run.do("UPDATE a SET aa = 12345678 WHERE pk % 100 = 0")
    run.signal("execute-snapshot", "a", additional_conditions=run.where("a", "aa = 12345678"))
    batches = 0

    def match_one_more() -> None:
        run.do(f"UPDATE a SET aa = 12345678 WHERE pk = {batches + 501}")

    while batches < 10 and run.batch(match_one_more):
        batches += 1
        if restarted:
            run.restart()
    run.drain()
    assert [key for key in run.ids("a") if key % 100 == 0] == [100 * n for n in range(1, 11)]
    assert batches > 1, "its rows are several chunks"
    run.check("a")


def test_21_rows_that_change_while_they_are_read(start: Callable[..., Run]) -> None:
    """The chunk holds the rows that fulfil the condition at E: no more, no less, whatever they are by now."""
    run = start()
    run.do("UPDATE a SET aa = 7777 WHERE pk BETWEEN 11 AND 20")
    run.drain()
    run.signal("execute-snapshot", "a", additional_conditions=run.where("a", "aa = 7777"))
    run.batch(
        lambda: run.do(
            "UPDATE a SET aa = 8 WHERE pk = 11",  # fulfilled it
            "DELETE FROM a WHERE pk = 12",  # did, too
            "UPDATE a SET aa = 7777 WHERE pk = 100",  # did not
            "UPDATE a SET aa = aa + 1 WHERE pk BETWEEN 13 AND 14",
            "UPDATE a SET aa = aa - 1 WHERE pk BETWEEN 13 AND 14",
            "DELETE FROM a WHERE pk = 200",
            "INSERT INTO a VALUES (3000, 7777)",
        )
    )
    assert run.ids("a") == list(range(11, 21))
    run.drain()
    assert run.ids("a") == list(range(11, 21))


def test_23_surrogate_key(start: Callable[..., Run]) -> None:
    run = start()
    run.do("ALTER TABLE a MODIFY aa INT NOT NULL, ADD KEY (aa)", "UPDATE a SET aa = 1000 - aa DIV 7")
    run.drain()
    run.signal("execute-snapshot", "a", surrogate_key="aa")
    number = 0

    def shift() -> None:
        nonlocal number
        number += 1
        run.do(f"UPDATE a SET aa = 1857 - aa WHERE pk % 10 = {number}", f"DELETE FROM a WHERE pk = {number * 90}")

    while number < 9 and run.batch(shift):
        pass
    run.drain()
    assert number > 3
    run.check("a")


@pytest.mark.parametrize(
    ("column", "problem"),
    [("aa", "must be NOT NULL"), ("nothing", "there is no column nothing"), ("bb", "no index begins with column bb")],
)
def test_24_invalid_surrogate(start: Callable[..., Run], column: str, problem: str) -> None:
    run = start()
    run.do("ALTER TABLE a ADD bb INT NOT NULL DEFAULT 1")
    run.drain()
    run.signal("execute-snapshot", "a", surrogate_key=column)
    run.drain()
    assert problem in run.actions[-1]["error"]
    assert run.reads == {}
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")


def test_25_a_table_that_is_included_after_a_restart(start: Callable[..., Run]) -> None:
    """Nobody has captured its schema: nothing is missing for reading it."""
    run = start("a", "b", new_tables="wait")
    run.parsed = replace(run.parsed, patterns=(f"{run.db}.a",))
    run.restart()
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")
    run.do("ALTER TABLE b ADD late INT DEFAULT 7")
    run.parsed = replace(run.parsed, patterns=(f"{run.db}.*",))
    run.restart()
    name = run.signal("execute-snapshot", "b")
    run.batch(lambda: run.do("UPDATE b SET aa = 0 WHERE pk < 50", "INSERT INTO b VALUES (2000, 1, 2)"))
    run.drain()
    run.check("a", "b")
    assert [(who, kind) for who, kind, _ in run.heard() if kind in ("STARTED", "COMPLETED")][-2:] == [
        (name, "STARTED"), (name, "COMPLETED"),
    ]  # fmt: skip


def test_29_notifications(start: Callable[..., Run]) -> None:
    run = start()
    name = run.signal("execute-snapshot", "a")
    run.batch()
    pause = run.signal("pause-snapshot")
    run.drain()
    resume = run.signal("resume-snapshot")
    run.drain()
    table = f"{run.db}.a"
    listed = {"connector_name": "p", "data_collections": table}
    heard = run.heard()
    assert heard[0] == (name, "STARTED", listed)
    progress = {**listed, "current_collection_in_progress": table, "maximum_key": "1000"}
    assert heard[1] == (name, "IN_PROGRESS", {**progress, "last_processed_key": "200"})
    assert heard[2] == (name, "PAUSED", {**listed, "signal": pause})
    assert heard[3] == (name, "RESUMED", {**listed, "signal": resume})
    assert [data.get("last_processed_key") for _, _, data in heard[4:-2]] == ["400", "600", "800", "1000"]
    scanned = {**listed, "scanned_collection": table, "total_rows_scanned": "1000", "status": "SUCCEEDED"}
    assert heard[-2] == (name, "TABLE_SCAN_COMPLETED", scanned)
    assert heard[-1] == (name, "COMPLETED", listed)
    assert {one.aggregate_type for one in run.notifications} == {"Incremental Snapshot"}


def test_29_stopping_is_told(start: Callable[..., Run]) -> None:
    run = start("a", "b", slots="1")
    name = run.signal("execute-snapshot", "a", "b")
    run.batch()
    stop = run.signal("stop-snapshot", "a")
    run.drain()
    assert run.heard("ABORTED") == [
        (name, "ABORTED", {"connector_name": "p", "data_collections": f"{run.db}.a", "signal": stop})
    ]
    assert run.heard()[-1] == (name, "COMPLETED", {"connector_name": "p", "data_collections": f"{run.db}.b"})
    run.signal("execute-snapshot", "a")
    run.batch()
    run.signal("stop-snapshot")
    run.drain()
    assert [kind for _, kind, _ in run.heard()][-1] == "ABORTED"


def test_30_progress_shows_a_key_of_four_parts(start: Callable[..., Run]) -> None:
    run = start()
    run.do(
        "CREATE TABLE a4 (pk1 INT, pk2 VARCHAR(9), pk3 DATE, pk4 INT, aa INT, PRIMARY KEY (pk1, pk2, pk3, pk4))",
        "INSERT INTO a4 SELECT pk DIV 300, CONCAT('ä', aa DIV 100), '2024-01-02', pk, aa FROM a",
    )
    run.drain()
    run.signal("execute-snapshot", "a4")
    run.drain()
    run.check("a4")
    (first, *_, last) = [data for _, _, data in run.heard("IN_PROGRESS")]
    assert {first["maximum_key"], last["maximum_key"]} == {"3,ä9,2024-01-02,1000"}
    assert last["last_processed_key"] == "3,ä9,2024-01-02,1000"
    assert first["last_processed_key"].startswith("0,ä1,2024-01-02,")


def test_39_blocking(start: Callable[..., Run]) -> None:
    """Changes wait until the tables are read; all are exact at one GTID set. A bad condition blocks nothing."""
    run = start("a", "b")
    run.signal("execute-snapshot", "a", type="BLOCKING", additional_conditions=run.where("a", "nothing = 1"))
    run.do("UPDATE b SET aa = -5 WHERE pk = 5")
    run.batch()
    assert "Unknown column" in run.actions[-1]["error"]
    assert (5,) in run.tables[f"{run.db}.b"].rows, "changes go on"
    run.headers.clear()
    run.signal("execute-snapshot", "a", "b", type="BLOCKING")
    number = 0

    def change() -> None:
        nonlocal number
        number += 1
        run.do(f"UPDATE a SET aa = {number} WHERE pk % 5 = 0", f"INSERT INTO b VALUES ({5000 + number}, 0)")

    while not all(table.live for table in run.tables.values()) or len(run.tables) < 2:
        assert run.batch(change)
    assert number > 5
    assert len({header["gtid"] for header in run.headers}) == 1
    assert run.ids("b") == ALL
    run.drain()
    run.check("a", "b")


def test_a_condition_that_fails_on_a_row_ends_the_reading_and_not_the_stream(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a", additional_conditions=run.where("a", "aa * 9223372036854775807 > 1"))
    run.drain()
    assert "the server refuses the filter" in run.actions[-1]["error"]
    (_, _, scan), (_, end, _) = run.heard("TABLE_SCAN_COMPLETED", "COMPLETED")
    assert (scan["status"], end) == ("SQL_EXCEPTION", "COMPLETED")
    assert not run.offset.snapshot.is_pending
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")


def test_log(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("log", message="here: {}")
    run.drain()
    (action,) = run.actions
    assert action["message"] == f"here: {run.server.gtid_executed}"


TYPES = {
    "i": ("INT", "i BETWEEN 2 AND 4"),
    "u": ("BIGINT UNSIGNED", "u > 18446744073709551611 OR u IS NULL"),
    "d": ("DECIMAL(12,3)", "d >= 1.5 AND d < 3.25"),
    "f": ("DOUBLE", "f / 2 > 1.1"),
    "s": ("VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", "s IN ('B', 'ä') OR s LIKE '%;%'"),
    "l": ("VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin", "l = 'a' OR l = 'A'"),
    "t": ("DATETIME(3)", "t > '2024-01-02 00:00:00' AND t LIKE '%.500'"),
    "p": ("TIMESTAMP NULL", "UNIX_TIMESTAMP(p) > 1704153600"),
    "h": ("DATE", "h < '2024-01-05' AND MONTH(h) = 1"),
    "m": ("TIME", "m < '00:00:03' OR m IS NULL"),
    "y": ("YEAR", "y % 2 = 0"),
    "e": ("ENUM('x','y')", "e = 'x'"),
    "b": ("BIT(3)", "b = 2"),
    "x y": ("INT", "`x y` = 1 OR t.`x y` = 2"),
}


def test_conditions_of_every_type_on_rows_that_changed(start: Callable[..., Run]) -> None:
    """All rows change after E: what MySQL says of the images is what it said of the rows."""
    run = start(chunk_rows="1000")
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
    run.do(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    times = ["NULL", *(f"'00:00:0{n}'" for n in range(1, 8))]
    text = ["'a'", "'B'", "'b;'", "NULL"]
    for n in range(8):
        run.do(
            f"INSERT INTO t VALUES ({n}, {n}, {18446744073709551608 + n if n % 3 else 'NULL'}, {n} * 0.75, {n} * 0.7,"
            f" {text[n % 4]}, {text[(n + 1) % 4]}, '2024-01-0{n + 1} 00:00:0{n}.{500 * (n % 2)}',"
            f" '2024-01-0{n + 1} 00:00:00', '2024-0{1 + n % 2}-0{n + 1}', {times[n]},"
            f" {2000 + n}, {1 + n % 2}, {n % 8}, {n % 4})"
        )
    for name, (_, condition) in TYPES.items():
        run.drain()
        run.reads.clear()
        wanted = sorted(row[0] for row in run.server.query(f"SELECT id FROM `{run.db}`.t WHERE {condition}"))
        assert 0 < len(wanted) < 8, name
        run.signal("execute-snapshot", "t", additional_conditions=run.where("t", condition))
        run.batch(
            lambda: run.do("UPDATE t SET id = id + 100", "UPDATE t SET id = id - 100", "DELETE FROM t WHERE id = 99")
        )
        if name in ("e", "b"):
            assert run.ids("t") == [], "cannot be asked, so it is read again at a later E"
            run.drain()
        assert run.ids("t") == wanted, name


@pytest.mark.parametrize(
    ("window", "surrogate", "condition", "problem"),
    [
        ("rewind", "c", "c = 1", None), ("keep", "c", "TRUE", "whole row images"),
        ("rewind", "j", "TRUE", "cannot be split into ranges"), ("rewind", "c", "c =", "refuses the filter"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_read(
    start: Callable[..., Run], window: str, surrogate: str, condition: str, problem: str | None
) -> None:
    run = start(window=window)
    run.do("CREATE TABLE t (id INT PRIMARY KEY, c INT NOT NULL, j JSON NOT NULL, KEY (c))")
    run.drain()
    run.signal("execute-snapshot", "t", surrogate_key=surrogate, additional_conditions=run.where("t", condition))
    run.drain()
    error = run.actions[-1].get("error")
    assert error is None if problem is None else problem in str(error)

"""Debezium's scenarios for incremental snapshots and signals, by the numbers and names of its suites.

Planner, tasks and decisions on a real server, with a sink in memory.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import TablePatterns
from headgate.control import (
    BatchFacts,
    Notification,
    OpenSnapshots,
    batch_notifications,
    inbox_files,
    parse_signal,
    submit,
)
from headgate.lake import State, TableState
from headgate.offsets import SourceOffset
from headgate_testing import MySQLServer
from tests.integration.streams import Stream
from tests.spark.model import as_json, readings_of

ROWS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i + 1, i FROM n"


class Run(Stream):
    """A stream, of which signals request snapshots, and what it tells of them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"chunk_rows": "100", "poll_ms": "10", "start": "current", **options})
        patterns = TablePatterns(self.options.patterns)
        for (table,) in self.server.query(f"SHOW TABLES FROM `{self.db}`"):
            if patterns.matches(self.db, table):
                name = f"{self.db}.{table}"
                self.states[name] = TableState(name, State.SNAPSHOTTING)  # followed, and not read
        self.reads: dict[str, list[tuple[Any, ...]]] = {}
        """The keys of rows in chunks, by table."""
        self.headers: list[dict[str, Any]] = []
        self.under_way = OpenSnapshots()
        self.notifications: list[Notification] = []

    def signal(self, kind: str, *tables: str, **data: Any) -> str:
        if tables:
            data["data-collections"] = [f"{self.db}\\.{table}" for table in tables]
        return submit(
            self.inbox, parse_signal({"type": kind, "data": {k.replace("_", "-"): v for k, v in data.items()}})
        )

    def where(self, table: str, condition: str) -> list[dict[str, str]]:
        return [{"data-collection": f"{self.db}\\.{table}", "filter": condition}]

    def next(self, meanwhile: Callable[[], None] | None = None, *, killed: bool = False) -> bool:
        """One batch; ``meanwhile`` runs after it was planned and before it is read; so does the kill."""
        end = self.planner.latest(self.offset)
        if end is self.offset:
            return False
        if meanwhile is not None:
            meanwhile()
        end = SourceOffset.from_json(end.to_json())
        if killed:
            self.restart()
        self.batch(end=end)
        batch, read = self.applied[-1], Counter[str]()
        for table, parts in batch.parts.items():
            for part in parts:
                if part.kind == "chunk":
                    rows = [row for one in part.record_batches() for row in one.to_pylist()]
                    self.reads.setdefault(table, []).extend(tuple(row[k] for k in part.definition.key) for row in rows)
                    read[table] += len(rows)
        header = as_json(batch.header)
        missed = {redo.table for redo in batch.redo}
        facts = BatchFacts("p", header["epoch"], 1, header["actions"], readings_of(header), read, missed)
        self.under_way, notifications = batch_notifications(self.under_way, facts)
        self.notifications += notifications
        for name, value in inbox_files(batch.signals):
            self.inbox.write(name, value)
        self.headers.append(header)
        return True

    def heard(self, *types: str) -> list[tuple[str, str, dict[str, str]]]:
        """(id, type, additional data without the batch's epoch) of what was told; of these types only."""
        return [
            (one.id, one.type, {name: text for name, text in one.additional_data.items() if name != "epoch"})
            for one in self.notifications
            if not types or one.type in types
        ]

    def drain(self) -> None:
        for _ in range(100):
            if not self.next():
                return
        raise AssertionError("the stream does not come to rest")

    def ids(self, table: str) -> list[int]:
        return sorted(key[0] for key in self.reads.get(f"{self.db}.{table}", []))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [row for _, row in self.copies[f"{self.db}.{table}"].rows.values()]

    def is_live(self, table: str) -> bool:
        name = f"{self.db}.{table}"
        return name in self.states and self.states[name].state == "live"

    def check(self, *tables: str) -> None:
        """The sink has these tables whole, and as they are now."""
        for table in tables:
            assert self.is_live(table), table
            self.assert_equal(f"{self.db}.{table}")

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
        runs.append(Run(mysql_server, mysql_db, tmp_path, **options))
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
    run.next(lambda: run.do("INSERT INTO a SELECT i + 1000, i FROM (SELECT pk AS i FROM a) AS x"))
    run.drain()
    assert run.ids("a") == ALL, "what comes later comes with the stream"
    assert len(run.rows("a")) == 2000
    run.check("a")


def test_03_updates(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    parts = iter(range(0, 1000, 20))

    def update() -> None:
        ranges = [f"pk > {low} AND pk <= {low + 20}" for low in itertools.islice(parts, 10)]
        run.do(*(f"UPDATE a SET aa = aa + 2000 WHERE {part}" for part in ranges))

    while run.next(update):
        pass
    for _ in range(5):
        update()
    run.drain()
    assert next(parts, None) is None
    run.check("a")
    assert min(row["aa"] for row in run.rows("a")) >= 2000


def test_04_updates_large_chunk(start: Callable[..., Run]) -> None:
    run = start(chunk_rows="1000")
    run.signal("execute-snapshot", "a")
    run.next(lambda: run.do("UPDATE a SET aa = aa + 2000"))
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
        assert run.next(update, killed=True)
        run.restart()
    run.drain()
    run.check("a")
    assert run.ids("a") == ALL
    assert min(row["aa"] for row in run.rows("a")) >= 2000


def test_06_snapshot_only_with_restart(start: Callable[..., Run]) -> None:
    """Nobody writes any more: no heartbeat is needed to go on."""
    run = start()
    run.do("INSERT INTO a SELECT pk + 1000 * n, aa FROM a, (VALUES ROW(1), ROW(2), ROW(3)) AS m(n)")
    run.drain()
    run.signal("execute-snapshot", "a")
    for _ in range(3):
        assert run.next(killed=True)
    run.restart()
    assert 0 < len(run.ids("a")) < 4000
    run.drain()
    assert run.ids("a") == list(range(1, 4001)), "nothing twice"
    run.check("a")


def test_07_what_was_read_before_a_kill_is_not_read_again(start: Callable[..., Run]) -> None:
    run = start("a", "c", slots="1")
    name = run.signal("execute-snapshot", "a", "c")
    while not run.ids("c"):
        assert run.next()
    assert run.ids("a") == ALL
    run.restart()
    run.drain()
    assert (run.ids("a"), run.ids("c")) == (ALL, ALL)
    run.check("a", "c")
    assert [one for one, kind, _ in run.heard() if kind in ("STARTED", "COMPLETED")] == [name, name]


def test_09_filtered_events(start: Callable[..., Run]) -> None:
    """A table that is not followed is written all the time: the snapshot ends, and nothing of it comes."""
    run = start("a", "b")
    run.options = run.options.model_copy(update={"tables": (f"{run.db}.a",)})
    run.restart()
    run.signal("execute-snapshot", "a")
    number = 0

    def insert() -> None:
        nonlocal number
        run.do(*(f"INSERT INTO b VALUES ({2000 + number + n}, 0)" for n in range(20)))
        number += 20

    while not run.is_live("a"):
        assert run.next(insert)
    assert run.ids("a") == ALL
    assert run.copies.keys() == {f"{run.db}.a"}


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
    run.next(lambda: run.do("UPDATE a4 SET pk4 = pk4 + 4 WHERE pk1 = 1", "DELETE FROM a4 WHERE pk2 = 2 AND pk1 = 0"))
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
    run.next(lambda: run.do("INSERT INTO a42 VALUES (2, 2, 3, 4, 8)"))
    run.drain()
    assert len(run.rows("a42")) == 9
    run.check("a42")


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
    run.next(lambda: run.do("INSERT INTO bare VALUES (10, 10)"))
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
    run.next()
    last = run.signal("execute-snapshot", "a")
    run.drain()
    assert run.ids("a") == ALL, "one scan"
    assert last in run.headers[-1]["tables"][f"{run.db}.a"]["signals"]


def test_17_pause_and_resume(start: Callable[..., Run]) -> None:
    run = start()
    run.signal("execute-snapshot", "a")
    run.next()
    run.signal("pause-snapshot")
    run.drain()
    before = len(run.ids("a"))
    assert 0 < before < 1000
    run.restart()
    run.do("UPDATE a SET aa = -1 WHERE pk IN (1, 1000)", "INSERT INTO a VALUES (2000, 1)")
    run.drain()
    assert len(run.ids("a")) == before, "paused, also after a restart"
    assert {"pk": 2000, "aa": 1} in run.rows("a"), "changes go on"
    run.signal("resume-snapshot")
    run.drain()
    assert run.ids("a") == ALL
    run.check("a")


def test_18_stop_all(start: Callable[..., Run]) -> None:
    run = start("a", "b")
    run.signal("execute-snapshot", "a", "b")
    run.next()
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
    run.next()
    assert run.ids("c") == []
    run.signal("stop-snapshot", "c")
    run.drain()
    assert run.actions[-1]["tables"] == [f"{run.db}.c"]
    assert run.ids("c") == []
    run.check("a", "b")


def test_20_stop_the_running_table(start: Callable[..., Run]) -> None:
    run = start("a", "b", slots="1")
    run.signal("execute-snapshot", "a", "b")
    run.next()
    run.next()
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
    run.options = run.options.model_copy(update={"chunk_rows": 4})
    run.restart()
    run.do("UPDATE a SET aa = 12345678 WHERE pk % 100 = 0")
    run.signal("execute-snapshot", "a", additional_conditions=run.where("a", "aa = 12345678"))
    batches = 0

    def match_one_more() -> None:
        run.do(f"UPDATE a SET aa = 12345678 WHERE pk = {batches + 501}")

    while batches < 10 and run.next(match_one_more):
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
    run.next(
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

    while number < 9 and run.next(shift):
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
    run = start("a", "b", snapshot_new_tables="false")
    run.options = run.options.model_copy(update={"tables": (f"{run.db}.a",)})
    run.restart()
    run.signal("execute-snapshot", "a")
    run.drain()
    run.check("a")
    run.do("ALTER TABLE b ADD late INT DEFAULT 7")
    run.options = run.options.model_copy(update={"tables": (f"{run.db}.*",)})
    run.restart()
    name = run.signal("execute-snapshot", "b")
    run.next(lambda: run.do("UPDATE b SET aa = 0 WHERE pk < 50", "INSERT INTO b VALUES (2000, 1, 2)"))
    run.drain()
    run.check("a", "b")
    assert [(who, kind) for who, kind, _ in run.heard() if kind in ("STARTED", "COMPLETED")][-2:] == [
        (name, "STARTED"), (name, "COMPLETED"),
    ]  # fmt: skip


def test_29_notifications(start: Callable[..., Run]) -> None:
    run = start()
    name = run.signal("execute-snapshot", "a")
    run.next()
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
    run.next()
    stop = run.signal("stop-snapshot", "a")
    run.drain()
    assert run.heard("ABORTED") == [
        (name, "ABORTED", {"connector_name": "p", "data_collections": f"{run.db}.a", "signal": stop})
    ]
    assert run.heard()[-1] == (name, "COMPLETED", {"connector_name": "p", "data_collections": f"{run.db}.b"})
    run.signal("execute-snapshot", "a")
    run.next()
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
    run.next()
    assert "Unknown column" in run.actions[-1]["error"]
    assert {"pk": 5, "aa": -5} in run.rows("b"), "changes go on"
    run.headers.clear()
    run.signal("execute-snapshot", "a", "b", type="BLOCKING")
    number = 0

    def change() -> None:
        nonlocal number
        number += 1
        run.do(f"UPDATE a SET aa = {number} WHERE pk % 5 = 0", f"INSERT INTO b VALUES ({5000 + number}, 0)")

    while not run.is_live("a") or not run.is_live("b"):
        assert run.next(change)
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
        run.next(
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

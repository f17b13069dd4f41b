"""Keys that their text does not tell apart: streams for people and programs tell them, a pipeline stops it."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headgate.carrier import UnreadableRows
from headgate.cli import app
from headgate.errors import AmbiguousKeyError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec
from headgate.pipeline import Pipeline
from headgate.policies import Policies
from headgate.relay.server import LogicalSource
from headgate.replication import ImageBatch, Stopped
from headgate.snapshot import Redo
from headgate.status import read_status
from headgate_testing import MySQLServer
from tests.integration.changes import Log
from tests.integration.outside import lake_rows
from tests.integration.relay.test_relay import DELETE, UPSERT, relaying
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.lake import TableState

SPELL = Policies(temporals="text", ambiguous_keys="spell")


def lines(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


VARCHAR = "VARCHAR(9) CHARACTER SET"
KEYS = {
    "ujis": (f"{VARCHAR} ujis", "_ujis X'41A1C0'", "41a1c0", "_ujis X'415C'", "A\\"),
    "ucs2": (f"{VARCHAR} ucs2", "_ucs2 X'0061DC000062'", "0061dc000062", "'a?b'", "a?b"),
    "cp932": ("CHAR(9) CHARACTER SET cp932", "_cp932 X'ED40'", "ed40", "_cp932 X'FA5C'", "纊"),
    "swe7": (f"{VARCHAR} swe7", "_swe7 X'FF'", "ff", "'?'", "?"),
    "gb18030": (f"{VARCHAR} gb18030", "_gb18030 X'FE39FE39'", "fe39fe39", "'?'", "?"),
    "enum": ("ENUM('x', '')", "0", None, "2", ""),
    "set": ("SET('x', '')", "0", None, "2", ""),
}
"""A key's type, a value that its text does not tell, its bytes in hex, another value of that text, and that text."""


@pytest.mark.parametrize("name", KEYS)
def test_tail_and_snapshot_print_them_apart_from_all_others(log: Log, name: str) -> None:
    kind, odd, stored, even, text = KEYS[name]
    spelled = 0 if stored is None else {"charset": name, "hex": stored}
    url, table = log.server.url, f"{log.db}.t"
    log.do("SET sql_mode = ''", f"CREATE TABLE t (k {kind} PRIMARY KEY, v INT)", f"INSERT INTO t VALUES ({odd}, 1)")
    log.mark()
    log.do("SET sql_mode = ''", f"INSERT INTO t VALUES ({even}, 2)", f"UPDATE t SET v = 3 WHERE k = {odd}")
    log.do("UPDATE t SET k = 'x' WHERE v = 3", "SET sql_mode = ''", f"UPDATE t SET k = {odd} WHERE v = 3")
    assert sorted((row["after"] for row in lines("snapshot", url, "-t", table)), key=lambda row: int(row["v"])) == [
        {"k": text, "v": 2},
        {"k": spelled, "v": 3},
    ]
    log.do("DELETE FROM t WHERE v = 3")
    changes = lines("tail", url, "--from", str(log.start), "--until-current", "-t", table)
    assert [(row["before"], row["after"]) for row in changes] == [
        (None, {"k": text, "v": 2}),
        ({"k": spelled, "v": 1}, {"k": spelled, "v": 3}),
        ({"k": spelled, "v": 3}, {"k": "x", "v": 3}),
        ({"k": "x", "v": 3}, {"k": spelled, "v": 3}),
        ({"k": spelled, "v": 3}, None),
    ]
    people = CliRunner().invoke(
        app, ["tail", url, "--from", str(log.start), "--until-current", "-t", table, "--format", "text"]
    )
    assert people.exit_code == 0
    assert f"k={json.dumps(spelled)}" in people.stdout


def test_half_a_surrogate_pair_in_another_column_is_a_question_mark(log: Log) -> None:
    """What MySQL itself makes of it is no text at all."""
    log.do("CREATE TABLE t (id INT PRIMARY KEY, v TEXT CHARACTER SET ucs2)")
    log.mark()
    log.do("INSERT INTO t VALUES (1, _ucs2 X'0061DC000062D800')")
    assert log.rows() == [{"_op": "c", "id": 1, "v": "a?b?"}]
    assert log.chunk("t") == [{"_op": "r", "id": 1, "v": "a?b?"}]


RANGES: dict[str, Callable[[int], str]] = {
    f"{VARCHAR} ujis": lambda n: f"_ujis X'{n % 5 + 0x41:02X}{('A1C0', '5C', '41')[n % 3]}{n:04}'",
    f"{VARCHAR} ucs2": lambda n: f"_ucs2 X'{('DC00', '003F', 'D801')[n % 3]}{n % 5 + 0x41:04X}00{n:02}'",
    f"{VARCHAR} ujis COLLATE ujis_bin": lambda n: f"_ujis X'{('A1C0', '5C')[n % 2]}{n:04}'",
}


@pytest.mark.parametrize("kind", RANGES)
def test_chunks_put_them_back_where_they_were(log: Log, kind: str) -> None:
    """Deleted, moved and new keys, spelled ones too, come out as of E: MySQL says in which range each one lies."""
    numbers, value = [*range(10, 70)], RANGES[kind]
    log.do(f"CREATE TABLE t (k {kind}, e ENUM('', 'b'), v INT, PRIMARY KEY (k, e))", "SET sql_mode = ''")
    log.do("SET sql_mode = ''", *(f"INSERT INTO t VALUES ({value(n)}, {n % 3}, {n})" for n in numbers))
    executed, chunks = log.executed(), log.planned("t", 7)
    before = keyed(read(log, chunks, executed))
    assert len(before) == len(numbers)
    rng = random.Random(5)
    for n in rng.sample(numbers, 40):
        where = f"v = {n}"
        log.do(
            "SET sql_mode = ''",
            rng.choice([
                f"DELETE FROM t WHERE {where}", f"UPDATE t SET v = v + 1000 WHERE {where}",
                f"UPDATE t SET k = {value(n + 1)}, e = 2, v = v + 2000 WHERE {where}",
                f"DELETE FROM t WHERE {where}", f"INSERT INTO t VALUES ({value(n + 2)}, 2, {n + 3000})",
            ]).replace("INSERT", "INSERT IGNORE").replace("UPDATE t SET k", "UPDATE IGNORE t SET k"),
        )  # fmt: skip
    assert keyed(read(log, chunks, executed)) == before
    assert keyed(read(log, chunks, log.executed())) != before


def read(log: Log, chunks: list[ChunkSpec], executed: GtidSet) -> list[Any]:
    items = log.chunks(chunks, executed, policies=SPELL)
    assert not any(isinstance(item, Redo) for item in items)
    return items


def keyed(items: list[ImageBatch]) -> dict[tuple[str, str], int]:
    rows = [row for item in items for row in item.batch.to_pylist()]
    values = {(row["k"], row["e"]): row["v"] for row in rows}
    assert len(values) == len(rows)
    return values


def test_a_relay_gives_them_to_its_consumers(mysql_server: MySQLServer, mysql_db: str) -> None:
    mysql_server.execute(
        f"CREATE TABLE {mysql_db}.t (k VARCHAR(9) CHARACTER SET ujis, e ENUM('', 'a'), v INT, PRIMARY KEY (k, e))"
    )
    with relaying(mysql_server, LogicalSource(1, "test.T", f"{mysql_db}.t")) as consumer:
        with mysql_server.connect(database=mysql_db, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute("INSERT INTO t VALUES (_ujis X'A1C0', 0, 1), (_ujis X'5C', 1, 2)")
            cursor.execute("DELETE FROM t WHERE v = 1")
        consumer.until(lambda one: len(one.windows) > 2)
        status, _, decoded = consumer.get("stream", sources="1", size="100000", output="rows")
    odd, zero = "\U0010ffffujis:a1c0", "\U0010ffff0"
    assert [(event.opcode, event.key, event.row) for event in consumer.events] == [
        (UPSERT, f"{odd}\t{zero}".encode(), {"k": odd, "e": zero, "v": 1}),
        (UPSERT, b"\\\t", {"k": "\\", "e": "", "v": 2}),
        (DELETE, f"{odd}\t{zero}".encode(), {"k": odd, "e": zero, "v": 1}),
    ]
    assert status == 200
    assert odd in decoded.decode()


def test_typed_streams_end_with_the_reason(log: Log) -> None:
    log.do("CREATE TABLE t (k VARCHAR(9) CHARACTER SET ujis PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    log.mark()
    log.do("INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (_ujis X'A1C0')", "INSERT INTO u VALUES (2)")
    with pytest.raises(AmbiguousKeyError, match=r"as a key must be: 0xa1c0 .*table=.*\.t, column=k") as caught:
        log.rows()
    assert caught.value.gtid
    items = log.items(ambiguous="stop")
    (stopped,) = [item for item in items if isinstance(item, Stopped)]
    assert (stopped.table, stopped.gtid, stopped.pos) == (f"{log.db}.t", caught.value.gtid, caught.value.pos)
    with pytest.raises(AmbiguousKeyError, match="0xa1c0"):
        log.chunk("t")


@pytest.mark.parametrize("kind", ["ENUM('a', 'b', 'a')", "SET('a', 'b', 'a')"])
def test_a_member_that_a_type_has_twice(log: Log, kind: str) -> None:
    """Only a session that is not strict can create such a type, and only by number a row gets the second one."""
    log.do("SET sql_mode = ''", f"CREATE TABLE t (k {kind}, n INT, PRIMARY KEY (k, n))")
    log.mark()
    log.do("INSERT INTO t VALUES ('a', 1), ('b', 1)")
    assert [row["k"] for row in log.rows()] == [row["k"] for row in log.chunk("t")] == ["a", "b"]
    log.do(f"INSERT INTO t VALUES ({3 if 'ENUM' in kind else 4}, 1)")
    with pytest.raises(AmbiguousKeyError, match=r"whose text another value has, too .*column=k"):
        log.rows()
    with pytest.raises(AmbiguousKeyError, match=r"whose text another value has, too .*column=k"):
        log.chunk("t")


def test_a_task_reads_its_other_chunks_after_one_that_it_cannot(log: Log) -> None:
    log.do("CREATE TABLE t (k VARCHAR(9) CHARACTER SET ujis PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    log.do("INSERT INTO t VALUES ('a'), (_ujis X'A1C0'), ('z')", "INSERT INTO u VALUES (1), (2)")
    chunks = [ChunkSpec(f"{log.db}.{table}", 0, None, None) for table in ("t", "u", "t")]
    first, rows, last = log.chunks(chunks, ambiguous="stop")
    assert isinstance(rows, ImageBatch)
    assert rows.batch.column("id").to_pylist() == [1, 2]
    for stop in (first, last):
        assert isinstance(stop, UnreadableRows)
        assert (stop.table, stop.chunk) == (f"{log.db}.t", 0)
        assert stop.reason.endswith(f"headgate run --resnapshot '{log.db}.t'")


def test_a_window_with_such_an_image_has_the_chunk_read_again(log: Log) -> None:
    """A row that came and went: at a later E there is nothing odd about the range."""
    log.do("CREATE TABLE t (k VARCHAR(9) CHARACTER SET ujis PRIMARY KEY)", "INSERT INTO t VALUES ('a')")
    executed = log.executed()
    log.do("INSERT INTO t VALUES (_ujis X'A1C0')", "DELETE FROM t WHERE k <> 'a'")
    chunk = ChunkSpec(f"{log.db}.t", 0, None, None)
    (redo,) = log.chunks([chunk], executed, ambiguous="stop")
    assert isinstance(redo, Redo)
    assert "row images of the window cannot be read" in redo.reason
    assert log.chunk("t") == [{"_op": "r", "k": "a"}]


class Tables(Runs):
    """A pipeline of all tables of the database."""

    def states(self, *resnapshot: str) -> dict[str, TableState]:
        """Run up to now; the tables' states at the end."""
        reports: list[Any] = []
        Pipeline(self.config(), self.spark).run(
            once=True, resnapshot=[f"{self.db}.{name}" for name in resnapshot], on_progress=reports.append
        )
        return {name.partition(".")[2]: state for name, state in reports[-1].tables.items()}

    def keys(self, table: str) -> list[Any]:
        return sorted(row[0] for row in lake_rows(self.lake.current(f"{self.db}.{table}"), ["k"]).elements())

    def at_the_source(self, table: str) -> list[Any]:
        return sorted(row[0] for row in self.server.query(f"SELECT k FROM {self.db}.{table}"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_such_a_key_stops_its_table_alone(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Met in a chunk or in the log, by the first run or a later one; over restarts; until it is changed at the source
    and the table is read again. The others go on."""
    runs = Tables(spark, mysql_server, mysql_db, tmp_path)
    runs.reads = 'zero_dates = "null"'
    text = "k VARCHAR(9) CHARACTER SET {} PRIMARY KEY"
    runs.do(
        "SET sql_mode = ''", "CREATE TABLE good (k INT PRIMARY KEY)", "INSERT INTO good VALUES (1)",
        f"CREATE TABLE early ({text.format('ujis')})", f"CREATE TABLE late ({text.format('ucs2')})",
        "INSERT INTO late VALUES ('a')", "CREATE TABLE days (k DATE PRIMARY KEY)",
        "INSERT INTO days VALUES ('2020-01-02'), ('0000-00-00')", "CREATE TABLE words (k ENUM('', 'b') PRIMARY KEY)",
        "INSERT INTO words VALUES ('b')",
        "INSERT INTO early WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 250)"
        " SELECT i FROM n",
        "UPDATE early SET k = _ujis X'313530A1C0' WHERE k = '150'",  # in one of three chunks
    )  # fmt: skip
    states = runs.states()
    live = {name for name, state in states.items() if state.state == "live"}
    assert live == {"good", "late", "words"}
    assert "0x313530a1c0" in str(states["early"].reason)
    assert "zero or impossible date" in str(states["days"].reason)

    runs.do("SET sql_mode = ''", "INSERT INTO late VALUES (_ucs2 X'D800'), ('b')", "INSERT INTO words VALUES (0)")
    runs.do("INSERT INTO good VALUES (2)", "INSERT INTO early VALUES ('late')")
    caplog.clear()
    again = runs.states("early")
    assert {name for name, state in again.items() if state.state == "stopped"} == {"early", "late", "days", "words"}
    assert runs.keys("good") == [1, 2]
    assert (runs.keys("late"), runs.keys("words")) == (["a"], ["b"])
    reasons = {name: str(again[name].reason) for name in ("early", "late", "days", "words")}
    for name, reason in reasons.items():
        assert reason.endswith(
            f"change that value at the source, then read the table again with: headgate run --resnapshot '{runs.db}."
            f"{name}'"
        )
    warned = {record.getMessage() for record in caplog.records if record.levelno == logging.WARNING}
    assert {f"{mysql_db}.{name} is stopped: {reason}" for name, reason in reasons.items()} <= warned
    status = read_status(runs.inbox)
    assert status is not None
    assert {name: status.tables[f"{mysql_db}.{name}"].reason for name in reasons} == reasons

    runs.do("SET sql_mode = ''", "UPDATE early SET k = '150' WHERE k LIKE '150%'", "DELETE FROM words WHERE k = 0")
    runs.do("UPDATE late SET k = 'c' WHERE HEX(k) = 'D800'", "INSERT INTO good VALUES (3)")
    runs.do("SET sql_mode = ''", "UPDATE days SET k = '2020-01-03' WHERE k = '0000-00-00'")
    assert {state.state for state in runs.states(*reasons).values()} == {"live"}
    for name in (*reasons, "good"):
        assert runs.keys(name) == runs.at_the_source(name)

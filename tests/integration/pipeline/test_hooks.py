"""``hook`` in a pipeline: its tables are what the function makes of MySQL's rows, in every mode."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import HookError, SchemaChangedError
from headgate.lake import newest_row
from headgate.pipeline import Pipeline, check_source
from headgate.status import read_status
from headgate_testing import KafkaBroker, MySQLServer
from tests.fix_spark import JAVA_OPTIONS
from tests.integration.outside import lake_dicts, lake_rows, logged, source_rows
from tests.integration.pipeline.test_kafka import KafkaRuns
from tests.integration.pipeline.verifying import newest, verify
from tests.integration.runs import Runs, killed_before_the_ledger, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[3] / "examples/outbox"


class HookRuns(Runs):
    """A pipeline whose table ``t`` has a hook of ``tests.hooks_of_tests``."""

    def choose(self, hook: str, version: str = "1", more: str = "") -> None:
        self.more = hook_text(self.db, hook, version) + more

    def made(self, factor: int = 2, columns: int = 3) -> dict[int, tuple[Any, ...]]:
        """What ``doubled`` or ``tripled`` makes of MySQL's rows, which have so many columns."""
        others = ", ".join(["n", *(["extra"] if columns > 3 else [])])
        rows = self.server.query(f"SELECT id, {others}, v * {factor}, CONCAT('v=', v) FROM {self.db}.t")
        return {i: (*row, columns) for i, *row in rows}

    def check(self, factor: int = 2, columns: int = 3) -> None:
        """The lake's table is what the hook makes of MySQL's rows, and ``headgate verify`` says so."""
        rows = self.made(factor, columns)
        assert self.rows(f"{self.db}.t") == rows
        result = verify(self.config(), newest_row(self.lake), f"{self.db}.t")
        assert (result.equal, result.differences, result.state) == (len(rows), 0, "live"), result

    def changelog(self, table: str) -> list[dict[str, Any]]:
        return logged(self.lake.changelog(table))


def hook_text(db: str, hook: str, version: str = "1") -> str:
    return f'[tables."{db}.t"]\nhook = "tests.hooks_of_tests:{hook}@{version}"\n' if hook else ""


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> HookRuns:
    runs = HookRuns(spark, mysql_server, mysql_db, tmp_path)
    runs.choose("doubled")
    return runs


def test_current_and_changelog_are_what_the_hook_makes(
    runs: HookRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Chunks read during writes, changes, a replay of a batch, a TRUNCATE; before-images equal after-images."""
    chosen, runs.modes = random.Random(5), '["current", "changelog"]'
    table = runs.table("t", rows=250)
    planned = plan(runs.text(), tmp_path)
    assert "columns by the hook tests.hooks_of_tests:doubled@1" in planned
    lines = planned.splitlines()
    assert f"column {table}.n: int as int32" in lines
    assert f"column {table}.product: by the hook as int64" in lines
    runs.run(meanwhile=lambda number: runs.write(chosen, 20, "t") if number < 4 else None)
    runs.run()
    runs.check()
    runs.write(chosen, 60, "t")
    with killed_before_the_ledger(monkeypatch):
        runs.run()
    runs.run()
    runs.check()
    runs.do("TRUNCATE t", "INSERT INTO t VALUES (1, 5, 7)")
    runs.run()
    runs.check()
    state: dict[int, dict[str, Any]] = {}
    names = ("id", "n", "product", "text", "columns")
    log = runs.changelog(table)
    assert max(Counter((row["_seq"]["epoch"], *row["_seq"].values()) for row in log).values()) == 1
    for row in log:
        image = {name: row[name] for name in names}
        if row["_op"] == "u":
            before = {name: row["_before"][name] for name in names}
            assert state.pop(before["id"]) == before
        elif row["_op"] == "t":
            state.clear()
            continue
        if row["_op"] == "d":
            assert state.pop(row["id"]) == image
        else:
            state[row["id"]] = image
    assert {key: (*list(image.values())[1:],) for key, image in state.items()} == runs.made()
    assert newest_row(runs.lake).tables[table].hook == "tests.hooks_of_tests:doubled@1"
    status = read_status(runs.inbox)
    assert status is not None
    assert status.tables[table].hook == "tests.hooks_of_tests:doubled@1"


@pytest.mark.parametrize(("hook", "version", "factor"), [("tripled", "1", 3), ("doubled", "2", 2)])
def test_another_hook_or_version_reads_the_table_again_without_any_change(
    runs: HookRuns, hook: str, version: str, factor: int, caplog: pytest.LogCaptureFixture
) -> None:
    table = runs.table("t", rows=60)
    runs.table("other", rows=3)
    runs.run()
    runs.check()
    runs.choose(hook, version)
    runs.run()
    before, after = "tests.hooks_of_tests:doubled@1", f"tests.hooks_of_tests:{hook}@{version}"
    assert [record.getMessage() for record in caplog.records if "read again" in record.getMessage()] == [
        f"{table} is read again: the hook changed from {before} to {after}"
    ]
    runs.check(factor)
    caplog.clear()
    runs.do("UPDATE t SET v = 9 - v")
    runs.run()
    runs.check(factor)
    assert "read again" not in caplog.text


def test_a_hook_that_is_taken_away_gives_the_tables_own_rows(runs: HookRuns) -> None:
    table = runs.table("t", rows=20)
    runs.run()
    runs.choose("")
    runs.run()
    assert runs.rows(table) == runs.source(table)


@pytest.mark.parametrize("mode", ["current", "history"])
def test_an_alter_reads_the_table_again_because_old_rows_may_differ(runs: HookRuns, mode: str) -> None:
    """``doubled`` counts the columns: with one more, every row differs, though its own columns are as they were."""
    runs.modes = f'["{mode}"]'
    table = runs.table("t", rows=40)
    runs.run()
    runs.do("ALTER TABLE t ADD COLUMN extra INT DEFAULT 4", "UPDATE t SET v = 70 WHERE id = 3")
    reports = [*runs.run(), *runs.run()]
    assert any("ALTER may have changed rows" in str(report.tables[table].reason) for report in reports)
    assert newest_row(runs.lake).tables[table].state == "live"
    rows = lake_dicts(runs.lake.current(table))
    if mode == "history":
        old = [row for row in rows if row["columns"] == 3]
        assert len(old) == 40
        assert not any(row["_is_current"] for row in old)
        rows = [row for row in rows if row["_is_current"]]
    names = ("id", "n", "extra", "product", "text", "columns")
    by_id = {row["id"]: tuple(row[name] for name in names[1:]) for row in rows}
    assert by_id == runs.made(columns=4)
    result = verify(runs.config(), newest_row(runs.lake), table)
    assert (result.equal, result.differences) == (40, 0)
    runs.do("ALTER TABLE t ADD INDEX (v)", "UPDATE t SET v = 71 WHERE id = 4")
    runs.run()
    assert [report.tables[table].state for report in runs.reports] == ["live"] * len(runs.reports)


@pytest.mark.long
def test_an_alter_that_leaves_what_the_hook_gets_reads_nothing_again(
    runs: HookRuns, caplog: pytest.LogCaptureFixture
) -> None:
    """Longer texts, more members, a wider integer of the same Arrow type, an excluded column; but no other order."""
    runs.more += '[columns."*.t"]\nx = "exclude"\n'
    table = runs.table("t", rows=20)
    runs.do("ALTER TABLE t ADD name VARCHAR(5) DEFAULT 'a', ADD kind ENUM('a','b') DEFAULT 'a', ADD m MEDIUMINT")
    runs.run()
    runs.do(
        "UPDATE t SET name = 'short' WHERE id = 1",
        "ALTER TABLE t MODIFY name VARCHAR(50) COMMENT 'longer', MODIFY kind ENUM('a','b','c') DEFAULT 'b'",
        "UPDATE t SET name = 'longer than five', kind = 'c', v = 100 WHERE id = 2",
        "ALTER TABLE t MODIFY m INT, ADD COLUMN x INT DEFAULT 5",
        "INSERT INTO t (id, v, n, name, m, x) VALUES (30, 1, 1, REPEAT('n', 50), 2147483647, 8)",
    )
    runs.run()
    runs.do("ALTER TABLE t MODIFY name TEXT, DROP COLUMN x", "UPDATE t SET name = REPEAT('m', 99) WHERE id = 3")
    runs.run()
    assert "read again" not in caplog.text
    result = verify(runs.config(), newest(runs.lake), table)
    assert (result.equal, result.differences, result.state) == (21, 0, "live"), result
    runs.do("ALTER TABLE t MODIFY m INT AFTER id")
    runs.run()
    runs.run()
    assert f"{table} is read again: the hook gets other columns, so it may make other rows" in caplog.text
    result = verify(runs.config(), newest(runs.lake), table)
    assert (result.equal, result.differences, result.state) == (21, 0, "live"), result


def test_a_history_has_the_versions_that_the_hook_makes(runs: HookRuns) -> None:
    runs.modes = '["history"]'
    table = runs.table("t", rows=20)
    runs.run()
    runs.do("UPDATE t SET v = 30 WHERE id = 1", "UPDATE t SET v = 31 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    runs.run()
    rows = lake_dicts(runs.lake.current(table), where="id < 3")
    rows.sort(key=lambda row: (row["id"], row["_valid_from"]))
    versions = [(row["id"], row["text"], row["product"], row["_is_current"]) for row in rows]
    assert versions == [(1, "v=1", 2, False), (1, "v=30", 60, False), (1, "v=31", 62, True), (2, "v=2", 4, False)]
    result = verify(runs.config(), newest_row(runs.lake), table)
    assert (result.equal, result.differences) == (19, 0)


def test_shards_of_a_merged_table_have_hooks(runs: HookRuns) -> None:
    """Each shard has its rows by its hook; the merged table has them together, also while only one has another one."""
    shards, chosen = ("t", "u"), random.Random(7)

    def choose(**hooks: str) -> None:
        routes = f'[routes]\n"{runs.db}.*" = {{ to = "shop.all", shard = "{{table}}" }}\n'
        runs.more = "".join(
            f'[tables."{runs.db}.{table}"]\nhook = "tests.hooks_of_tests:{hook}"\n' for table, hook in hooks.items()
        )
        runs.more += routes

    def check(**factors: int) -> None:
        rows = lake_rows(runs.lake.current("shop.all"), ["_shard", "id", "n", "product", "text", "columns"])
        expected = Counter[tuple[Any, ...]]()
        for table, factor in factors.items():
            columns = f"'{table}', id, n, v * {factor}, CONCAT('v=', v), 3"
            expected += source_rows(runs.server, f"{runs.db}.{table}", columns)
            result = verify(runs.config(), newest_row(runs.lake), f"{runs.db}.{table}")
            assert (result.differences, result.state) == (0, "live"), result
        assert rows == expected

    choose(t="doubled", u="doubled")
    for table in shards:
        runs.table(table, rows=60)
    runs.run(meanwhile=lambda number: runs.write(chosen, 5, *shards) if number < 2 else None)
    runs.run()  # what was written during the last batches
    check(t=2, u=2)
    choose(t="doubled", u="tripled")
    runs.do("UPDATE t SET v = v + 1 WHERE id < 9", "DELETE FROM u WHERE id > 50")
    runs.run()
    check(t=2, u=3)


@pytest.mark.parametrize("key", ["PRIMARY KEY", pytest.param("", marks=pytest.mark.long)])
def test_lists_and_structures(runs: HookRuns, key: str) -> None:
    """In a table with a key and in one whose rows are counted; nulls at each level, and a name that Delta maps."""
    runs.choose("nested")
    table = f"{runs.db}.t"
    runs.do(f"CREATE TABLE t (id INT {key}, v INT)", "INSERT INTO t VALUES (1, 12), (2, NULL), (3, 7), (4, 7)")
    runs.run()
    runs.do("UPDATE t SET v = 345 WHERE id = 1", "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5, NULL)")
    runs.run()

    def made(number: int | None) -> tuple[Any, Any]:
        parts = None if number is None else str(number).split("4")
        return parts, parts and {"text": str(number), "parts": parts, "is_seven": number == 7}

    expected = sorted((i, *made(v)) for i, v in runs.server.query(f"SELECT * FROM {table}"))
    rows = runs.spark.read.format("delta").load(runs.lake.current(table)).toArrow().to_pylist()
    assert sorted((row["id"], row["parts"], row["a Pair"]) for row in rows) == expected
    result = verify(runs.config(), newest(runs.lake), table)
    assert (result.equal, result.differences, result.state) == (4, 0, "live"), result


@pytest.mark.long
def test_a_partial_image_stops_its_table_only(runs: HookRuns) -> None:
    """A table with a hook, and one with ``rows``."""
    runs.choose("doubled", more=f'[tables."{runs.db}.u"]\nrows = "v < 5"\n')
    table, filtered, other = (runs.table(name, rows=20) for name in ("t", "u", "other"))
    runs.run()
    changes = [f"UPDATE {name} SET v = 1 WHERE id = 7" for name in "tu"]
    runs.do("SET SESSION binlog_row_image = MINIMAL", *changes, "DELETE FROM other WHERE id = 3")
    runs.run()
    states = runs.reports[-1].tables
    assert [states[name].state for name in (table, filtered, other)] == ["stopped", "stopped", "live"]
    assert str(states[table].reason).startswith("its hook needs whole row images, and one leaves columns out: SET GLOB")
    assert str(states[filtered].reason).startswith("`rows` needs whole row images to tell which rows pass: SET GLOBAL")
    assert runs.rows(other) == runs.source(other)
    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[table, filtered])
    runs.run()
    runs.check()
    assert runs.rows(filtered) == runs.source(filtered, "v < 5")


def test_an_exception_ends_the_run_and_nothing_is_lost(runs: HookRuns) -> None:
    table, other = runs.table("t", rows=20), runs.table("other", rows=20)
    runs.choose("refusing")
    runs.run()
    runs.do("UPDATE t SET v = 13 WHERE id = 7", "DELETE FROM other WHERE id = 3")
    with pytest.raises(HookError, match=r"hook tests.hooks_of_tests:refusing@1 raised ValueError: 13 in v .*=\S+\.t\]"):
        runs.run()
    runs.do("UPDATE t SET v = 14 WHERE id = 7")
    with pytest.raises(HookError):
        runs.run()
    runs.choose("doubled")
    runs.run()
    runs.run()
    assert runs.rows(other) == runs.source(other)
    assert newest_row(runs.lake).tables[table].state == "live"
    runs.check()


def test_mistakes_are_found_before_a_run(runs: HookRuns) -> None:
    runs.table("t", rows=1)
    runs.choose("missing")
    with pytest.raises(HookError, match=r"tests.hooks_of_tests:missing cannot be imported: AttributeError"):
        check_source(runs.config())
    runs.choose("reserved")
    with pytest.raises(SchemaChangedError, match="column _seq has a name that headgate uses itself"):
        check_source(runs.config())
    runs.choose("doubled", more='rows = "v < 5"\n')
    assert check_source(runs.config()) == [f"{runs.db}.t"]


def test_messages_have_the_hooks_columns(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    runs = KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)
    runs.settings = 'format = "json-schema"'
    runs.more = hook_text(mysql_db, "doubled")
    runs.table("t", rows=3)
    runs.run()
    runs.do("UPDATE t SET v = 40 WHERE id = 2", "ALTER TABLE t ADD COLUMN extra INT", "DELETE FROM t WHERE id = 1")
    runs.run()
    messages = runs.messages(runs.topic("t"))
    shown = [(one.value["payload"]["op"], one.value["payload"]["after"]) for one in messages if one.value is not None]
    assert [after for op, after in shown if op == "r"] == [
        {"id": i, "n": None, "product": 2 * i, "text": f"v={i}", "columns": 3} for i in (1, 2, 3)
    ]
    changed = {"id": 2, "n": None, "product": 80, "text": "v=40", "columns": 3}
    assert [(op, after) for op, after in shown if op != "r"] == [("u", changed), ("d", None)]
    (deleted,) = [one.value for one in messages if one.value is not None and one.value["payload"]["op"] == "d"]
    assert deleted["payload"]["before"]["columns"] == 4
    fields = next(one for one in deleted["schema"]["fields"] if one["field"] == "before")["fields"]
    assert {one["field"]: one["type"] for one in fields} == {
        "id": "int32", "n": "int32", "extra": "int32", "product": "int64", "text": "string", "columns": "int32",
    }  # fmt: skip


def test_the_outbox_example(runs: HookRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application deletes its events in the transaction that writes them; each comes once, with typed columns."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    example = tomllib.loads((EXAMPLE / "pipeline.toml").read_text("utf-8"))
    settings = example["tables"]["shop.outbox"]
    assert settings["hook"] == "outbox_hooks:outbox"
    runs.modes = json.dumps(example["target"]["mode"])
    runs.more = f'[tables."{runs.db}.outbox"]\n' + "".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items())
    runs.more = runs.more.replace("outbox_hooks:outbox", "examples.outbox.outbox_hooks:outbox")
    runs.do((EXAMPLE / "outbox.sql").read_text("utf-8"))
    runs.run()
    events = [
        ("e1", "Order", "1", "Paid", '{"order_id": 1, "customer": "Ada", "total_cents": 1250, "tags": ["a", "b"]}'),
        ("e2", "Order", "1", "Sent", '{"order_id": 1, "total_cents": 1250, "unknown": {"x": [1]}}'),
        ("e3", "Customer", "7", "CustomerMoved", "{}"),
        ("e4", "Customer", "7", "CustomerGone", None),
    ]  # fmt: skip
    with runs.server.connect(database=runs.db, autocommit=False) as connection, connection.cursor() as cursor:
        for event in events:
            cursor.execute("INSERT INTO outbox VALUES (%s, %s, %s, %s, %s)", event)
            cursor.execute("DELETE FROM outbox WHERE id = %s", (event[0],))
            connection.commit()
    runs.run()
    names = ("_op", "id", "aggregatetype", "aggregateid", "type", "order_id", "customer", "total_cents", "tags")
    changes = [tuple(row[name] for name in names) for row in runs.changelog(f"{runs.db}.outbox")]
    assert changes == [
        ("c", "e1", "Order", "1", "Paid", 1, "Ada", 1250, ["a", "b"]),
        ("c", "e2", "Order", "1", "Sent", 1, None, 1250, None),
        ("c", "e3", "Customer", "7", "CustomerMoved", None, None, None, None),
        ("c", "e4", "Customer", "7", "CustomerGone", None, None, None, None),
    ]


@pytest.mark.slow
def test_spark_ships_a_file_that_is_on_no_path(runs: HookRuns, tmp_path: Path) -> None:
    """To the workers of a run; without Spark, to the checks before it and to ``headgate verify``."""
    runs.do("CREATE TABLE outbox (id INT PRIMARY KEY, payload JSON)")
    runs.do("""INSERT INTO outbox VALUES (1, '{"order_id": 5}'), (2, NULL)""")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copy(EXAMPLE / "outbox_hooks.py", folder / "copied_hooks.py")
    hook = f'[tables."{runs.db}.outbox"]\nhook = "copied_hooks:outbox"\n'
    spark = f'[spark]\nmaster = "local[2]"\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    runs.more = f'{hook}{spark}"spark.submit.pyFiles" = "{folder}/copied_hooks.py"\n'
    file = tmp_path / "pipeline.toml"
    file.write_text(runs.text())
    for command in (["run", "--once"], ["verify"]):
        program = [sys.executable, "-m", "headgate.cli", *command, str(file)]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
    rows = runs.spark.read.format("delta").load(runs.lake.current(f"{runs.db}.outbox")).select("id", "order_id")
    assert {tuple(row) for row in rows.collect()} == {(1, 5), (2, None)}

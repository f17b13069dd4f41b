"""Keys that users choose: tables that MySQL gives none, followed by key as long as it identifies their rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import ConfigError
from headgate.lake import TableState, newest_row
from headgate.pipeline import Pipeline, check_source
from headgate_testing import MySQLServer
from tests.integration.outside import lake_rows
from tests.integration.pipeline.verifying import verify
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = "CREATE TABLE t (a INT, b VARCHAR(9), n INT)"


@pytest.fixture
def runs(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Runs:
    runs = Runs(spark, mysql_server, mysql_db, tmp_path)
    choose(runs, "a", "b")
    runs.do(CREATE, "CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    return runs


def choose(runs: Runs, *names: str) -> None:
    runs.more = f'[tables."{runs.db}.t"]\nkey = {list(names)}\n'


def source(runs: Runs) -> Counter[tuple[Any, ...]]:
    return Counter(runs.server.query(f"SELECT * FROM {runs.db}.t"))


def target(runs: Runs) -> Counter[tuple[Any, ...]]:
    return lake_rows(runs.lake.current(f"{runs.db}.t"))


def state(runs: Runs) -> TableState:
    return newest_row(runs.lake).tables[f"{runs.db}.t"]


def check(runs: Runs) -> None:
    """The table is the source's, and ``headgate verify`` compares it by its key."""
    assert (state(runs).state, target(runs)) == ("live", source(runs))
    result = verify(runs.config(), newest_row(runs.lake), f"{runs.db}.t")
    assert (result.equal, result.differences) == (source(runs).total(), 0)


def write(runs: Runs, chosen: random.Random, count: int) -> None:
    """Random changes of which none gives two rows the same key."""
    for _ in range(count):
        rows = sorted(source(runs))
        taken = {row[:2] for row in rows}
        free = [(a, b) for a in range(6) for b in "xyz" if (a, b) not in taken]
        kind = chosen.choice(["insert", "insert", "update", "move", "delete"])
        if kind == "insert" and free:
            a, b = chosen.choice(free)
            runs.do(f"INSERT INTO t VALUES ({a}, '{b}', {chosen.randrange(9)})")
        elif rows and kind == "move" and free:
            (a, b), row = chosen.choice(free), chosen.choice(rows)
            runs.do(f"UPDATE t SET a = {a}, b = '{b}' WHERE a = {row[0]} AND b = '{row[1]}'")
        elif rows and kind == "delete":
            row = chosen.choice(rows)
            runs.do(f"DELETE FROM t WHERE a = {row[0]} AND b = '{row[1]}'")
        else:
            runs.do(f"UPDATE t SET n = n + 1 WHERE a < {chosen.randrange(6)}")


@pytest.mark.long
def test_a_table_is_followed_by_its_chosen_key(runs: Runs) -> None:
    chosen = random.Random(4)
    write(runs, chosen, 12)
    for number in range(4):
        runs.run()
        check(runs)
        if number == 2:
            runs.do("DELETE FROM t WHERE a = 1", "TRUNCATE t", "INSERT INTO t VALUES (1, 'x', 1), (1, 'y', 2)")
        write(runs, chosen, 20)
    runs.do("ALTER TABLE t ADD COLUMN more INT", "UPDATE t SET more = a")
    runs.run()
    check(runs)
    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[f"{runs.db}.t"])
    check(runs)


@pytest.mark.parametrize(
    "statements",
    [
        ["INSERT INTO t VALUES (2, 'x', 9)"], ["UPDATE t SET a = 2 WHERE a = 3"],
        ["INSERT INTO t VALUES (2, 'x', 9)", "DELETE FROM t WHERE n = 2"],
        ["TRUNCATE t", "INSERT INTO t VALUES (7, 'x', 1), (7, 'x', 2)"],
    ],
)  # fmt: skip
def test_a_key_that_comes_twice_later_stops_the_table(runs: Runs, statements: list[str]) -> None:
    runs.do("INSERT INTO t VALUES (1, 'x', 1), (2, 'x', 2), (3, 'x', 3)")
    runs.run()
    check(runs)
    runs.do(*statements, "INSERT INTO other VALUES (2)")
    runs.run()
    assert state(runs).state == "stopped"
    assert str(state(runs).reason).startswith(
        "key (a, b) is not unique: by it the table has 1 row fewer than its source:"
    )
    assert runs.state(f"{runs.db}.other") == "live"
    assert runs.rows(f"{runs.db}.other") == {1: (), 2: ()}
    choose(runs, "a", "b", "n")
    Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[f"{runs.db}.t"])
    check(runs)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("(1, 'x', 2)", r"key (a, b) is not unique: 2 rows have a=1, b='x': choose other columns, then read the table"),
        ("(1, NULL, 2)", "key (a, b): a row has NULL in b: choose other columns, then read the table again with"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_what_a_read_finds_stops_the_table(runs: Runs, row: str, problem: str, *, later: bool) -> None:
    runs.do("INSERT INTO t VALUES (1, 'x', 1)")
    if later:
        runs.run()
        check(runs)
    runs.do(f"INSERT INTO t VALUES {row}")
    if later and "NULL" not in row:
        Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[f"{runs.db}.t"])
    else:
        runs.run()
    assert state(runs).state == "stopped"
    if "NULL" in row or not later:
        assert str(state(runs).reason).startswith(problem)


def test_mistakes_are_found_before_a_run(runs: Runs) -> None:
    choose(runs, "a", "z")
    with pytest.raises(ConfigError, match=r"key of .*\.t: the table has no column 'z'"):
        check_source(runs.config())
    choose(runs, "a")
    runs.do("ALTER TABLE t ADD PRIMARY KEY (n)")
    with pytest.raises(ConfigError, match=r"key of .*\.t: the table has the key \(n\): remove `key`"):
        check_source(runs.config())

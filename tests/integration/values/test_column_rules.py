"""Rules for columns through a whole pipeline: what they give, and that nothing else of a value is left anywhere."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.columns import hash_mark
from headgate.config import PipelineConfig
from headgate.errors import ConfigError, UnsupportedError
from headgate.lake import Lake, newest_row
from headgate.pipeline import Pipeline, check_source
from headgate_testing import MySQLServer
from tests.integration.databases import pipeline_config
from tests.integration.outside import lake_rows
from tests.integration.pipeline.verifying import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "not the password, but a key"
SECRET = "s3cr3t"
"""Part of each value that a rule hides."""

COLUMNS = (
    "id INT PRIMARY KEY, email VARCHAR(80), name VARCHAR(40), phone VARCHAR(40), born VARCHAR(40), notes TEXT, doc"
    " JSON, admin TINYINT(1) NOT NULL DEFAULT 0, flag BIT(1), state ENUM('new', 'old'), open VARCHAR(40)"
)
RULES = """
    [columns."*.*"]
    "em*" = "hash"
    phone = { text = "-" }
    name = "hash"
    id = "keep"
    notes = "exclude"
    doc = "exclude"
    born = "null"
    "admin*" = "boolean"
    flag = "boolean"
    state = "number"
    [columns."*.people"]
    name = { truncate = 2 }
"""


def row(n: int, **values: Any) -> dict[str, Any]:
    return {
        "id": n, "email": f"{SECRET}{n}@x.org", "name": f"Añ{SECRET}", "phone": SECRET, "born": SECRET,
        "notes": SECRET * 3, "doc": f'{{"a": "{SECRET}", "b": 1}}', "admin": n % 3, "flag": n % 2,
        "state": ("new", "old", None)[n % 3], "open": f"open {n}", **values,
    }  # fmt: skip


def insert(server: MySQLServer, table: str, rows: list[dict[str, Any]]) -> None:
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for one in rows:
            values = ", ".join(["%s"] * len(one))
            cursor.execute(f"INSERT INTO {table} ({', '.join(one)}) VALUES ({values})", tuple(one.values()))


def hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def shown(one: dict[str, Any]) -> tuple[Any, ...]:
    number = {"new": 1, "old": 2, None: None}[one["state"]]
    flag = None if one["flag"] is None else one["flag"] == 1
    name = one["name"] and one["name"][:2]
    return (
        one["id"], hashed(one["email"]), name, one["phone"] and "-", None, one["admin"] != 0, flag, number,
        one["open"],
    )  # fmt: skip


def config_of(server: MySQLServer, db: str, folder: Path, rules: str = RULES) -> PipelineConfig:
    (folder / "key").write_text(KEY + "\n", encoding="utf-8")
    source, modes = f'mask_key_file = "{folder / "key"}"', '["current", "changelog"]'
    return pipeline_config(server, [f"{db}.*"], folder, source=source, mode=modes, more=rules)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def uncompressed(spark: SparkSession) -> Any:
    name = "spark.sql.parquet.compression.codec"
    before = spark.conf.get(name)
    spark.conf.set(name, "uncompressed")
    yield
    spark.conf.set(name, str(before))


@pytest.mark.long
@pytest.mark.usefixtures("uncompressed")
def test_rules_hold_in_reads_and_changes_and_nothing_else_is_left(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    people, loose = f"{mysql_db}.people", f"{mysql_db}.loose"
    mysql_server.execute(f"CREATE TABLE {people} ({COLUMNS})")
    mysql_server.execute(f"CREATE TABLE {loose} (email VARCHAR(80), notes TEXT, n INT)")
    rows = {n: row(n) for n in range(1, 7)} | {7: row(7, email=None, name=None, phone=None, doc=None, flag=None)}
    insert(mysql_server, people, list(rows.values()))
    insert(mysql_server, loose, [{"email": f"{SECRET}{n % 2}", "notes": f"{SECRET}{n}", "n": 1} for n in range(4)])
    config = config_of(mysql_server, mysql_db, tmp_path)
    Pipeline(config, spark).run(once=True)
    check(config, people, [shown(one) for one in rows.values()])
    check(config, loose, [(hashed(f"{SECRET}{n % 2}"), 1) for n in range(4)])

    with mysql_server.connect(database=mysql_db, autocommit=True) as connection, connection.cursor() as cursor:
        for image in ("FULL", "MINIMAL"):
            cursor.execute(f"SET binlog_row_image = {image}, binlog_row_value_options = 'PARTIAL_JSON'")
            first = 1 if image == "FULL" else 4
            cursor.execute(f"UPDATE people SET email = '{SECRET}.new', admin = 1 - admin WHERE id = {first}")
            cursor.execute(f"UPDATE people SET doc = JSON_SET(doc, '$.b', '{SECRET}!') WHERE id = {first + 1}")
            cursor.execute(f"UPDATE people SET notes = '{SECRET}?' WHERE id = {first + 1}")
            cursor.execute(f"UPDATE people SET id = {first + 100} WHERE id = {first + 2}")
            rows[first] |= {"email": f"{SECRET}.new", "admin": 1 - rows[first]["admin"]}
            rows[first + 2]["id"] = first + 100
        cursor.execute("DELETE FROM loose WHERE email LIKE '%0' LIMIT 1")
        cursor.execute("SET binlog_row_image = MINIMAL")
        cursor.execute(f"INSERT INTO people (id, email, state) VALUES (50, '{SECRET}', 'old')")
    rows[50] = {**dict.fromkeys(row(50)), "id": 50, "email": SECRET, "state": "old", "admin": 0}
    Pipeline(config, spark).run(once=True)
    check(config, people, [shown(one) for one in rows.values()])
    check(config, loose, [(hashed(f"{SECRET}{n}"), 1) for n in (0, 1, 1)])

    left = [name for name, data in contents(tmp_path / "lake").items() if SECRET.encode() in data]
    assert left == []
    assert SECRET not in caplog.text


def check(config: PipelineConfig, table: str, expected: list[tuple[Any, ...]]) -> None:
    """Compare the current table with what is expected, and as ``headgate verify`` does."""
    lake = Lake.of(config)
    assert lake_rows(lake.current(table)) == Counter(expected)
    result = verify(config, newest_row(lake), table)
    assert (result.equal, result.differences) == (len(expected), 0), result


def test_added_columns_have_rules_too(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    people = f"{mysql_db}.people"
    mysql_server.execute(f"CREATE TABLE {people} (id INT PRIMARY KEY, open VARCHAR(9))")
    mysql_server.execute(f"INSERT INTO {people} VALUES (1, 'a'), (2, 'b')")
    config = config_of(mysql_server, mysql_db, tmp_path)
    Pipeline(config, spark).run(once=True)
    for ddl in (
        "ADD admin TINYINT(1) NOT NULL DEFAULT 1, ADD notes TEXT", "ADD email VARCHAR(40) FIRST",
        f"ADD born VARCHAR(20) NOT NULL DEFAULT '{SECRET}'", "ADD doc JSON",
    ):  # fmt: skip
        mysql_server.execute(f"ALTER TABLE {people} {ddl}")
    mysql_server.execute(f"INSERT INTO {people} VALUES ('e', 3, 'c', 0, 'n', 'x', '[]')")
    Pipeline(config, spark).run(once=True)
    assert "read again" not in caplog.text
    rows = [(None, 1, "a", True, None), (None, 2, "b", True, None), (hashed("e"), 3, "c", False, None)]
    check(config, people, rows)

    mysql_server.execute(f"ALTER TABLE {people} ADD em2 VARCHAR(40) NOT NULL DEFAULT 'd' AFTER id")
    for _ in range(2):  # a default that is hashed has to be read
        Pipeline(config, spark).run(once=True)
    check(config, people, [(*one[:2], hashed("d"), *one[2:]) for one in rows])


def test_a_changed_rule_reads_the_table_again(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    table = f"{mysql_db}.t"
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, email VARCHAR(80))")
    mysql_server.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    Pipeline(config_of(mysql_server, mysql_db, tmp_path, rules=""), spark).run(once=True)
    config = config_of(mysql_server, mysql_db, tmp_path)
    nulls = config_of(mysql_server, mysql_db, tmp_path, RULES + '[columns."*.t"]\nemail = "null"')
    for masked, n in ((config, 3), (nulls, 4)):
        mysql_server.execute(f"INSERT INTO {table} VALUES ({n}, 'c')")
        for _ in range(2):
            Pipeline(masked, spark).run(once=True)
        mask = hashed if masked is config else lambda _text: None
        check(masked, table, [(1, mask("a")), (2, mask("b")), *((k, mask("c")) for k in range(3, n + 1))])


def test_a_rename_that_would_end_a_mask_stops_the_table(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    t, u = f"{mysql_db}.t", f"{mysql_db}.u"
    for table in (t, u):
        mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, email VARCHAR(80), born VARCHAR(40))")
        mysql_server.execute(f"INSERT INTO {table} VALUES (1, '{SECRET}', '1999-01-01')")
    config = config_of(mysql_server, mysql_db, tmp_path)
    Pipeline(config, spark).run(once=True)
    mysql_server.execute(
        f"ALTER TABLE {t} CHANGE born birth DATE", f"INSERT INTO {t} VALUES (2, '{SECRET}', '1998-01-01')",
        f"ALTER TABLE {t} FORCE", f"ALTER TABLE {u} RENAME COLUMN email TO em2",
        f"INSERT INTO {u} VALUES (2, '{SECRET}', 'x')",
    )  # fmt: skip
    for _ in range(2):
        Pipeline(config, spark).run(once=True)
    lake = Lake.of(config)
    assert lake_rows(lake.current(t)) == Counter([(1, hashed(SECRET), None)])
    state = newest_row(lake).tables[t]
    assert (state.state, "what a rule hid in birth" in str(state.reason)) == ("stopped", True)
    Pipeline(config, spark, snapshot_mode="always").run(once=True)
    assert newest_row(lake).tables[t].reason == state.reason
    assert lake_rows(lake.current(t)) == Counter([(1, hashed(SECRET), None)])
    kept = config_of(mysql_server, mysql_db, tmp_path, RULES + '[columns."*.t"]\nbirth = "keep"')
    Pipeline(kept, spark).run(once=True, resnapshot=[t])
    assert newest_row(lake).tables[t].state == "live"
    check(kept, t, [(n, hashed(SECRET), date(born, 1, 1)) for n, born in ((1, 1999), (2, 1998))])
    check(config, u, [(n, hashed(SECRET), None) for n in (1, 2)])


def test_a_key_that_is_replaced_while_a_run_goes_on_ends_it(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Before there are hashes of two keys: a process that began earlier still has the old one."""
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, email VARCHAR(80))")
    config = config_of(mysql_server, mysql_db, tmp_path)
    assert hash_mark(config.policies()), "this process has read the key"
    (tmp_path / "key").write_text(KEY[::-1])
    with pytest.raises(ConfigError, match="key is another one than when the run began: start the run again"):
        Pipeline(config, spark).run(once=True)


def test_a_statement_in_an_error_is_not_shown(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, email VARCHAR(80))")
    config = config_of(mysql_server, mysql_db, tmp_path)
    Pipeline(config, spark).run(once=True)
    with mysql_server.connect(database=mysql_db, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET binlog_format = STATEMENT")
        cursor.execute(f"INSERT INTO t VALUES (1, '{SECRET}')")
    with pytest.raises(UnsupportedError, match="a change as a statement") as caught:
        Pipeline(config, spark).run(once=True)
    assert SECRET not in str(caught.value)


def test_rules_are_checked_before_anything_is_read(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mysql_server.execute(f"CREATE TABLE {mysql_db}.t (id INT PRIMARY KEY, Email VARCHAR(80))")

    def check_with(rules: str) -> None:
        check_source(config_of(mysql_server, mysql_db, tmp_path, f'[columns."{mysql_db}.*"]\n{rules}'))

    with pytest.raises(UnsupportedError, match="a column of the key"):
        check_with('id = "null"')
    with pytest.raises(UnsupportedError, match="which it is not for"):
        check_with('email = "boolean"')
    check_with('email = "hash"\n"*mail" = "null"\nemial = "hash"')
    assert [record.getMessage() for record in caplog.records] == [
        f"the rule for {mysql_db}.*.emial in [columns] matches no column: check the spelling"
    ]

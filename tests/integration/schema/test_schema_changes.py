"""Tables that change while they are followed: after every statement the target equals the source.

One pipeline reads many small tables. Each has rows before the first reading; then, in one batch, rows, the changes, and
rows again; then rows in batches of their own. What came of each statement is held against the schema history, so that
a re-read where none is needed fails as well as a wrong value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headgate.errors import SchemaChangedError
from headgate.lake import Lake, LeftOut, newest_row
from headgate.pipeline import Pipeline
from tests.integration.databases import Database, pipeline_config
from tests.integration.outside import HEADGATE_COLUMNS, lake_dicts, lake_rows
from tests.integration.pipeline.verifying import newest, verify
from tests.integration.runs import killed_before_the_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.sinks import BatchReport
    from headgate_testing import MySQLServer


class Follower(Database):
    """A pipeline that is run up to now, again and again, and what it made."""

    def __init__(
        self,
        spark: SparkSession,
        server: MySQLServer,
        db: str,
        folder: Path,
        *,
        more: str = "",
        mode: str = '"current"',
        but: Sequence[str] = (),
    ) -> None:
        super().__init__(server, db)
        self.spark = spark
        self.tables, self.folder, self.mode = [f"{db}.*", *(f"!{db}.{pattern}" for pattern in but)], folder, mode
        self.configure(more)
        self.lake = Lake.at(folder / "lake")
        self.reports: list[BatchReport] = []

    def configure(self, more: str) -> None:
        """Set further sections of the configuration."""
        more = more.format(db=self.db)
        self.config = pipeline_config(self.server, self.tables, self.folder, mode=self.mode, more=more)

    def run(self, *resnapshot: str) -> dict[str, str]:
        """Everything that the server has done; the tables' states then. These tables are read again."""
        first, again = len(self.reports), [f"{self.db}.{table}" for table in resnapshot]
        Pipeline(self.config, self.spark).run(once=True, resnapshot=again, on_progress=self.reports.append)
        assert len(self.reports) > first
        return {name.partition(".")[2]: state.state for name, state in self.reports[-1].tables.items()}

    def target(self, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows, in an order of their own."""
        folder = self.lake.current(f"{self.db}.{table}")
        columns = [field.name for field in DeltaTable(folder).schema().fields if field.name not in HEADGATE_COLUMNS]
        return columns, ordered([*lake_rows(folder).elements()])

    def sources(self, tables: Sequence[str]) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
        """The same of the source's tables."""
        sources = {}
        with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"SHOW COLUMNS FROM `{table}`")
                columns = [row[0] for row in cursor.fetchall()]
                cursor.execute(f"SELECT {', '.join(f'`{name}`' for name in columns)} FROM `{table}`")
                sources[table] = (columns, ordered([tuple(row) for row in cursor.fetchall()]))
        return sources

    def outcomes(self) -> dict[str, set[str]]:
        """What came of each table's statements."""
        outcomes: dict[str, set[str]] = {}
        for row in lake_dicts(self.lake.schema_history):
            outcomes.setdefault(row["table"], set()).add(row["outcome"])
        return outcomes

    def assert_equal(self, *tables: str) -> None:
        assert {table: self.target(table) for table in tables} == self.sources(tables)


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    plain = [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in rows]
    return sorted(plain, key=repr)


@dataclass(frozen=True)
class Change:
    """One table's story. ``{t}`` in a statement is its name."""

    name: str
    columns: str
    first: str  # VALUES of the rows before the first reading
    change: tuple[str, ...]  # what happens in one batch
    later: tuple[str, ...] = ()  # what happens in a later one
    outcome: str = "re-read"  # of its statements in the history: all that there are
    state: str = "live"  # in the end; a suspended table keeps the rows it had before
    needs: tuple[str, ...] = ()  # what has to be there before

    def sql(self, statement: str) -> str:
        return statement.replace("{t}", self.name)


def tell(
    spark: SparkSession,
    server: MySQLServer,
    db: str,
    folder: Path,
    changes: Sequence[Change],
    *,
    more: str = "",
    made: Sequence[str] = (),
) -> Follower:
    """Live through all stories at once.

    :param made: tables that come into being with the changes.
    """
    follower = Follower(spark, server, db, folder, but=["other_*"], more=more)
    for story in changes:
        follower.do(
            *story.needs,
            story.sql(f"CREATE TABLE {{t}} ({story.columns})"),
            story.sql(f"INSERT INTO {{t}} VALUES {story.first}"),
        )
    assert set(follower.run().values()) == {"live"}
    before = follower.sources([story.name for story in changes if story.state != "live"])
    states = {**{story.name: story.state for story in changes}, **dict.fromkeys(made, "live")}
    for story in changes:
        follower.do(*map(story.sql, story.change))
    assert follower.run() == states
    follower.assert_equal(*(story.name for story in changes if story.name not in before), *made)
    for story in changes:
        follower.do(*map(story.sql, story.later))
    assert follower.run() == states
    follower.assert_equal(*(story.name for story in changes if story.later and story.name not in before), *made)
    assert {name: follower.target(name) for name in before} == before
    outcomes = follower.outcomes()
    actual = {name: " ".join(sorted(outcomes.get(name, ()))) for name in (story.name for story in changes)}
    assert actual == {story.name: story.outcome for story in changes}
    return follower


TWO = "id INT PRIMARY KEY, v VARCHAR(20)"
ROWS = "(1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')"
WRITES = ("UPDATE {t} SET v = 'before' WHERE id = 1", "DELETE FROM {t} WHERE id = 2")

CHANGES = [
    Change(
        "filled",
        TWO,
        ROWS,
        (
            *WRITES,
            "ALTER TABLE {t} ADD a INT FIRST, ADD b DECIMAL(6,2) NOT NULL DEFAULT 1.5 AFTER a",
            "INSERT INTO {t} (id, v, a) VALUES (5, 'five', 50)",
            "UPDATE {t} SET id = 6 WHERE id = 1",
            "ALTER TABLE {t} ADD c VARCHAR(9) DEFAULT 'x y', ADD COLUMN d ENUM('no','yes') NOT NULL, ALGORITHM=INSTANT",
            "UPDATE {t} SET c = NULL, d = 'yes' WHERE id = 3",
            "ALTER TABLE {t} ADD e DATE DEFAULT '2024-02-29', ADD f DATETIME(3) DEFAULT '2024-02-29 12:00:00.25'",
            "ALTER TABLE {t} ADD (g BIGINT UNSIGNED NOT NULL, h DOUBLE DEFAULT -0.5)",
        ),
        ("INSERT INTO {t} (id, v, d, g) VALUES (7, 'seven', 'yes', 1)", "UPDATE {t} SET h = 1 WHERE id = 4"),
        "applied",
    ),
    Change(
        "modified",
        "id SMALLINT PRIMARY KEY, a TINYINT, b BIGINT, c INT, d VARCHAR(10) CHARACTER SET latin1, e ENUM('a','b'),"
        " f ENUM('a','b'), g VARCHAR(5), h DECIMAL(8,4), i INT",
        "(1, 1, 1000, 5, 'é', 'a', 'a', 'abc', 1.2345, 7), (2, -1, 2, 6, 'ü', 'b', 'b', 'de', 2.5, NULL)",
        (
            "INSERT INTO {t} VALUES (3, 3, 3, 3, 'ö', 'b', 'a', 'fgh', 3.9999, 3)",
            "UPDATE {t} SET i = 0 WHERE id = 2",
            "ALTER TABLE {t} MODIFY id BIGINT UNSIGNED, MODIFY a INT, MODIFY b SMALLINT, MODIFY c INT UNSIGNED",
            "ALTER TABLE {t} MODIFY d VARCHAR(10) CHARACTER SET utf8mb4, MODIFY g CHAR(3), MODIFY h DECIMAL(10,1)",
            "ALTER TABLE {t} MODIFY e ENUM('a','b','c'), MODIFY f ENUM('b','a'), MODIFY i INT NOT NULL",
            "INSERT INTO {t} VALUES (4, 70000, 4, 4000000000, '水', 'c', 'b', 'x', 4.44, 4)",
            "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
        ),
    ),
    Change(
        "reshaped",
        "id INT PRIMARY KEY, f1 INT, f2 INT, f3 INT, n INT",
        "(1, 1, 2, 3, 4), (2, 10, 20, 30, 40)",
        (
            "INSERT INTO {t} VALUES (3, 100, 200, 300, 400)",
            "ALTER TABLE {t} CHANGE f1 f3 INT, CHANGE f2 f1 INT, CHANGE f3 f2 INT",
            "INSERT INTO {t} (id, f1, f2, f3, n) VALUES (4, 1000, 2000, 3000, 4000)",
            "ALTER TABLE {t} RENAME COLUMN n TO m, DROP COLUMN f2, ADD COLUMN n INT",
            "INSERT INTO {t} (id, f1, f3, m, n) VALUES (5, 1, 3, 4, 5)",
            "ALTER TABLE {t} ADD f2 VARCHAR(5)",
            "INSERT INTO {t} (id, f1, f2) VALUES (6, 1, 'text')",
            "ALTER TABLE {t} ADD a VARCHAR(20) DEFAULT (CONCAT('r', id)), ADD b INT AS (id * 2) VIRTUAL",
            "ALTER TABLE {t} ADD c INT AS (id * 3) STORED AFTER id, ADD d INT NOT NULL AUTO_INCREMENT UNIQUE",
            "ALTER TABLE {t} ADD e DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP",
            "INSERT INTO {t} (id, f1) VALUES (8, 8)",
        ),
        ("UPDATE {t} SET f1 = 11, m = 44 WHERE id = 1", "INSERT INTO {t} (id, f2) VALUES (7, 'again')"),
        "held re-read",
    ),
    Change(
        "altered",
        "id INT PRIMARY KEY, a TINYINT, b INT NOT NULL, c DECIMAL(8,2), d VARCHAR(9), e INT, f SMALLINT,"
        " k VARCHAR(3), l ENUM('a','b'), m SMALLINT UNSIGNED",
        "(1, -128, -2147483648, 999999.99, 'gone', 1, 3, 'kkk', 'a', 65535),"
        " (2, 127, 2147483647, -0.01, 'too', NULL, NULL, 'k  ', 'b', 0),"
        " (3, NULL, 0, NULL, NULL, 3, -32768, NULL, NULL, NULL), (4, 4, 4, 4, 'd', 4, 4, '', 'a', 4)",
        (
            "INSERT INTO {t} VALUES (5, 5, 5, 5.55, 'five', 5, 5, 'é', 'b', 5)",
            "UPDATE {t} SET id = 6, e = 66 WHERE id = 1",
            "DELETE FROM {t} WHERE id = 4",
            "ALTER TABLE {t} DROP COLUMN d, MODIFY a INT COMMENT 'wider'",
            "ALTER TABLE {t} MODIFY b BIGINT NOT NULL, MODIFY COLUMN c DECIMAL(20,4) DEFAULT 1.5",
            "INSERT INTO {t} VALUES (7, 70000, 7000000000, 7777777777.7777, 7, 7, 'abc', 'a', 7)",
            "UPDATE {t} SET c = 0.0001 WHERE id = 2",
            "ALTER TABLE {t} RENAME COLUMN e TO g, CHANGE f h BIGINT DEFAULT 7, ADD i INT NOT NULL DEFAULT 9",
            "ALTER TABLE {t} MODIFY k VARCHAR(40) DEFAULT 'it''s' COMMENT 'longer', MODIFY id INT COMMENT 'key'",
            "ALTER TABLE {t} MODIFY l ENUM('a','b','c') NULL, MODIFY m INT UNSIGNED",
            "INSERT INTO {t} (id, b, g, k, l, m) VALUES (8, 8, 88, 'longer than three', 'c', 4294967295)",
            "UPDATE {t} SET h = 9000000000 WHERE id = 7",
        ),
        (
            "ALTER TABLE {t} DROP g, RENAME COLUMN i TO j, CHANGE k n TEXT",
            "UPDATE {t} SET j = 10, n = REPEAT('n', 99) WHERE id = 6",
        ),
        "applied",
    ),
    Change(
        "rekeyed",
        "a INT PRIMARY KEY, b INT NOT NULL, v VARCHAR(9)",
        "(1, 10, 'x'), (2, 20, 'y')",
        (
            "UPDATE {t} SET v = 'z' WHERE a = 1",
            "ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (b, v)",
            "INSERT INTO {t} VALUES (1, 10, 'other'), (1, 30, 'new')",
            "DELETE FROM {t} WHERE b = 20",
        ),
    ),
    Change(
        "in_parts",
        "id INT PRIMARY KEY, v VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),"
        " PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (30), PARTITION p3 VALUES LESS THAN (40)",
        "(1, 'a'), (11, 'b'), (21, 'c'), (31, 'd')",
        (
            "INSERT INTO {t} VALUES (2, 'a2'), (12, 'b2'), (22, 'c2')",
            "ALTER TABLE {t} TRUNCATE PARTITION p0",
            "INSERT INTO {t} VALUES (3, 'a3')",
            "ALTER TABLE {t} DROP PARTITION p2",
            "INSERT INTO other_parts VALUES (13, 'outside')",
            "ALTER TABLE {t} EXCHANGE PARTITION p1 WITH TABLE other_parts",
        ),
        needs=("CREATE TABLE other_parts (id INT PRIMARY KEY, v VARCHAR(9))",),
    ),
    Change(
        "quiet",
        "id INT PRIMARY KEY, v VARCHAR(20) COMMENT 'x') PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10)",
        ROWS,
        (
            *WRITES,
            "ALTER TABLE {t} ADD INDEX (v), COMMENT 'y'",
            "CREATE UNIQUE INDEX u ON {t} (id, v)",
            "ALTER TABLE {t} RENAME INDEX v TO w, ALTER INDEX u INVISIBLE, ALTER COLUMN v SET DEFAULT 'd'",
            "INSERT INTO {t} (id) VALUES (5)",
            "DROP INDEX w ON {t}",
            "ALTER TABLE {t} ADD PARTITION (PARTITION p1 VALUES LESS THAN (20))",
            "ALTER TABLE {t} REORGANIZE PARTITION p0, p1 INTO (PARTITION p2 VALUES LESS THAN (20))",
            "ALTER TABLE {t} ENGINE=InnoDB, AUTO_INCREMENT=9, ROW_FORMAT=DYNAMIC",
            "ALTER TABLE {t} REMOVE PARTITIONING",
            "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0), ALTER COLUMN v DROP DEFAULT",
            "INSERT INTO {t} VALUES (16, 'sixteen')",
        ),
        outcome="applied",
    ),
    Change(
        "emptied",
        TWO,
        ROWS,
        (
            *WRITES,
            "TRUNCATE {t}",
            "INSERT INTO {t} VALUES (1, 'new'), (8, 'eight')",
            "TRUNCATE TABLE {t}",
            "INSERT INTO {t} VALUES (9, 'nine')",
        ),
        ("TRUNCATE {t}",),
        "applied",
    ),
]


def statements(text: str) -> tuple[str, ...]:
    """Divided at empty lines."""
    return tuple(" ".join(part.split()) for part in text.split("\n\n"))


PT = statements("""
CREATE TABLE `_{t}_new` (`id` int NOT NULL, `v` varchar(20) DEFAULT NULL, PRIMARY KEY (`id`))

ALTER TABLE `_{t}_new` MODIFY v VARCHAR(40), ADD c INT DEFAULT 7

CREATE TRIGGER `pt_osc_{t}_del` AFTER DELETE ON `{t}` FOR EACH ROW
DELETE IGNORE FROM `_{t}_new` WHERE `_{t}_new`.`id` <=> OLD.`id`

CREATE TRIGGER `pt_osc_{t}_upd` AFTER UPDATE ON `{t}` FOR EACH ROW
BEGIN
DELETE IGNORE FROM `_{t}_new` WHERE !(OLD.`id` <=> NEW.`id`) AND `_{t}_new`.`id` <=> OLD.`id`;
REPLACE INTO `_{t}_new` (`id`, `v`) VALUES (NEW.`id`, NEW.`v`);
END

CREATE TRIGGER `pt_osc_{t}_ins` AFTER INSERT ON `{t}` FOR EACH ROW
REPLACE INTO `_{t}_new` (`id`, `v`) VALUES (NEW.`id`, NEW.`v`)

INSERT INTO {t} VALUES (5, 'while it copies')

INSERT LOW_PRIORITY IGNORE INTO `_{t}_new` (`id`, `v`) SELECT `id`, `v` FROM `{t}` LOCK IN SHARE MODE

UPDATE {t} SET id = 13 WHERE id = 3

ANALYZE TABLE `_{t}_new` /* pt-online-schema-change */

RENAME TABLE `{t}` TO `_{t}_old`, `_{t}_new` TO `{t}`

INSERT INTO {t} VALUES (6, 'longer than twenty characters', 1)

DROP TABLE IF EXISTS `_{t}_old`

DROP TRIGGER IF EXISTS `pt_osc_{t}_del`

DROP TRIGGER IF EXISTS `pt_osc_{t}_upd`

DROP TRIGGER IF EXISTS `pt_osc_{t}_ins`
""")
"""The statements of pt-online-schema-change 3.2 in the order in which they come to the log, with rows between them."""

GHOST = statements("""
CREATE /* gh-ost */ TABLE `_{t}_gho` LIKE `{t}`

ALTER /* gh-ost */ TABLE `_{t}_gho` ADD COLUMN c INT NOT NULL DEFAULT 3 AFTER id, DROP COLUMN v

CREATE /* gh-ost */ TABLE `_{t}_ghc` (
id bigint unsigned auto_increment,
last_update timestamp not null DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
hint varchar(64) charset ascii not null,
value varchar(4096) charset ascii not null,
primary key(id), unique key hint_uidx(hint)) auto_increment=256

INSERT /* gh-ost */ INTO `_{t}_ghc` (id, hint, value) VALUES (NULLIF(1, 0), 'state', 'copying')
ON DUPLICATE KEY UPDATE last_update=NOW(), value=VALUES(value)

INSERT /* gh-ost */ IGNORE INTO `_{t}_gho` (`id`)
(SELECT `id` FROM `{t}` FORCE INDEX (`PRIMARY`) LOCK IN SHARE MODE)

DELETE FROM {t} WHERE id = 4

DELETE /* gh-ost */ FROM `_{t}_gho` WHERE ((`id` = 4))

CREATE /* gh-ost */ TABLE `_{t}_del` (id int auto_increment primary key) engine=InnoDB comment='ghost-cut-over-sentry'

DROP /* gh-ost */ TABLE IF EXISTS `_{t}_del`

RENAME /* gh-ost */ TABLE `{t}` TO `_{t}_del`, `_{t}_gho` TO `{t}`

DROP /* gh-ost */ TABLE IF EXISTS `_{t}_ghc`

DROP /* gh-ost */ TABLE IF EXISTS `_{t}_del`

INSERT INTO {t} VALUES (8, 80)
""")
"""The statements of gh-ost (cut-over: atomic) in the order in which they come to the log."""


NAMES = [
    Change("pt", TWO, ROWS, (*WRITES, *PT), ("DELETE FROM {t} WHERE id = 13",), "dropped re-read"),
    Change("gh", TWO, ROWS, (*WRITES, *GHOST), ("UPDATE {t} SET c = 4 WHERE id = 3",), "dropped re-read"),
    Change("away", TWO, ROWS, ("ALTER TABLE {t} RENAME TO other_away",), (), "dropped", state="dropped"),
    Change(
        "given",
        TWO,
        ROWS,
        (
            "DROP TABLE {t}",
            "CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20), w INT)",
            "INSERT INTO {t} VALUES (3, 'three', 3)",
        ),
        ("INSERT INTO {t} VALUES (4, 'four', 4)",),
        "dropped re-read",
    ),
    Change(
        "strict",
        TWO,
        ROWS,
        ("ALTER TABLE {t} COMMENT 'x'", "ALTER TABLE {t} MODIFY v CHAR(9)"),
        ("INSERT INTO {t} VALUES (5, 'x')", "ALTER TABLE {t} MODIFY v CHAR(8)"),
        "held stopped",
        state="stopped",
    ),
    Change(
        "makes",
        TWO,
        ROWS,
        (
            "CREATE TABLE made_1 (PRIMARY KEY (id)) SELECT * FROM {t}",
            "CREATE TABLE made_2 (id INT PRIMARY KEY, v VARCHAR(20)) TABLE {t}",
            "CREATE TABLE made_3 (column_0 INT PRIMARY KEY) VALUES ROW(1, 'a'), ROW(2, 'b')",
            "CREATE TABLE made_4 (PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3 AS SELECT * FROM {t}",
            "CREATE TABLE made_5 LIKE {t}",
            "INSERT INTO made_5 SELECT * FROM {t}",
            "CREATE TABLE other_1 (PRIMARY KEY (id)) SELECT * FROM {t}",
            "CREATE TABLE other_2 TABLE {t}",
            "CREATE TABLE other_3 VALUES ROW(1, 'a'), ROW(2, 'b')",
            "CREATE TABLE other_4 (PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3 AS SELECT * FROM {t}",
            "CREATE TABLE other_5 LIKE {t}",
            "INSERT INTO {t} SELECT id + 100, v FROM {t}",
        ),
        ("DELETE FROM made_1 WHERE id > 2", "INSERT INTO made_4 VALUES (9, 'x')", "DROP TABLES other_1, other_5"),
        "",
    ),
    Change(
        "child",
        "id INT PRIMARY KEY, p INT, q INT, FOREIGN KEY (p) REFERENCES other_parents (id) ON DELETE CASCADE ON UPDATE"
        " CASCADE, FOREIGN KEY (q) REFERENCES other_parents (id) ON DELETE SET NULL",
        "(1, 1, 2), (2, 2, 1), (3, 3, NULL), (4, NULL, NULL)",
        ("DELETE FROM other_parents WHERE id = 1", "UPDATE other_parents SET id = 30 WHERE id = 3"),
        ("DELETE FROM other_parents",),
        "",
        needs=("CREATE TABLE other_parents (id INT PRIMARY KEY)", "INSERT INTO other_parents VALUES (1), (2), (3)"),
    ),
]


OFTEN = ("filled", "modified", "reshaped", "altered", "in_parts", "quiet", "pt", "strict")
STRICT = '[tables."{db}.strict"]\nschema_changes = "strict"'


@pytest.mark.timeout(900)
def test_29_to_38_a_table_that_changes_equals_its_source(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    stories = [story for story in CHANGES + NAMES if story.name in OFTEN]
    tell(spark, mysql_server, mysql_db, tmp_path, stories, more=STRICT)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_29_to_38_the_other_changes(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    unlogged = () if mysql_server.logs_cascades else ("child",)  # whose cascades nobody would see
    stories = [story for story in CHANGES + NAMES if story.name not in (*OFTEN, *unlogged)]
    made = [f"made_{number}" for number in range(1, 6)]
    tell(spark, mysql_server, mysql_db, tmp_path, stories, made=made)


CHOICES = """
[tables."{db}.again"]
schema_changes = "strict"
inconsistent_images = "reread"
[tables."{db}.stopped"]
inconsistent_images = "stop"
[tables."{db}.failing"]
inconsistent_images = "fail"
"""


SKIP = """
[tables."{db}.t"]
inconsistent_images = "skip"
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_images_that_contradict_their_table_are_left_out(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a kill before the ledger row, and restarts, until the table is read again."""
    mode = '["current", "changelog"]'
    follower = Follower(spark, mysql_server, mysql_db, tmp_path, more=SKIP, mode=mode)
    table = f"{mysql_db}.t"
    follower.do("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    assert follower.run() == {"t": "live"}
    exact = follower.reports[-1].gtid
    follower.do("UPDATE t SET v = 10 WHERE id = 1")
    follower.do("SET SESSION sql_log_bin = 0", "ALTER TABLE t ADD w INT", "SET SESSION sql_log_bin = 1")
    follower.do("INSERT INTO t VALUES (3, 3, 3)", "UPDATE t SET v = 20, w = 2 WHERE id = 2")
    with killed_before_the_ledger(monkeypatch):
        follower.run()
    assert follower.run() == {"t": "inexact"}
    left_out = newest_row(follower.lake).tables[table].left_out
    assert left_out == LeftOut("column w is new, and no statement of the log added it", exact, 2)
    assert follower.target("t") == (["id", "v"], [(1, 10), (2, 2)])
    logged = lake_rows(follower.lake.changelog(table), ["_op", "id", "v"])
    assert sorted(logged.elements()) == [("r", 1, 1), ("r", 2, 2), ("u", 1, 10)], "nor are they in the changelog"
    follower.do("DELETE FROM t WHERE id = 1")
    assert follower.run() == {"t": "inexact"}
    state = newest_row(follower.lake).tables[table]
    assert state.left_out is not None
    assert (state.left_out.changes, state.reason) == (3, state.left_out.text)
    result = verify(follower.config, newest(follower.lake), table)
    assert (result.inexact, result.only_target, result.differences) == (state.reason, 1, 3)
    assert follower.run("t") == {"t": "live"}
    follower.assert_equal("t")
    assert newest_row(follower.lake).tables[table].left_out is None


@pytest.mark.long
@pytest.mark.timeout(900)
def test_columns_in_another_letter_case(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The changelog keeps its spelling; a history, whose ended versions have the old one, stops."""
    mode = '["current", "changelog"]'
    follower = Follower(spark, mysql_server, mysql_db, tmp_path, mode=mode)
    (tmp_path / "history").mkdir()
    history = Follower(spark, mysql_server, mysql_db, tmp_path / "history", mode='"history"')
    for one in ("r", "d"):
        follower.do(f"CREATE TABLE {one} (id INT PRIMARY KEY, Name VARCHAR(9))", f"INSERT INTO {one} VALUES (1, 'a')")
    assert (follower.run(), history.run()) == ({"r": "live", "d": "live"}, {"r": "live", "d": "live"})
    follower.do("UPDATE r SET Name = 'b'", "ALTER TABLE r RENAME COLUMN Name TO name", "INSERT INTO r VALUES (2, 'c')")
    follower.do("ALTER TABLE d DROP COLUMN Name")
    follower.run()
    follower.do("UPDATE r SET name = 'd' WHERE id = 2", "ALTER TABLE d ADD COLUMN NAME VARCHAR(9)")
    follower.do("INSERT INTO d VALUES (2, 'e')")
    assert follower.run() == {"r": "live", "d": "live"}
    newest_batch = newest(follower.lake)
    results = [verify(follower.config, newest_batch, f"{mysql_db}.{table}") for table in ("r", "d")]
    assert [(result.equal, result.differences) for result in results] == [(2, 0), (2, 0)]
    changes = lake_dicts(follower.lake.changelog(f"{mysql_db}.r"), ["_op", "id", "Name", "_before"])
    updates = {(one["id"], one["Name"], one["_before"]["Name"]) for one in changes if one["_op"] == "u"}
    assert updates == {(1, "b", "a"), (2, "d", "c")}
    assert ("c", 2, "e") in lake_rows(follower.lake.changelog(f"{mysql_db}.d"), ["_op", "id", "Name"])
    assert history.run() == {"r": "stopped", "d": "stopped"}
    reason = str(history.reports[-1].tables[f"{mysql_db}.r"].reason)
    assert reason.startswith("column name differs from column Name only in letter case, which its history cannot hold")


@pytest.mark.timeout(900)
def test_images_that_no_statement_explains(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    """Debezium's ``inconsistent.schema.handling.mode``, by table: an ALTER that is not logged."""
    follower = Follower(spark, mysql_server, mysql_db, tmp_path, more=CHOICES)
    tables = ("again", "stopped", "failing", "usual")
    follower.do(*(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)" for table in tables))
    follower.do(*(f"INSERT INTO {table} VALUES (1, 1), (2, 2)" for table in tables))
    assert follower.run() == dict.fromkeys(tables, "live")
    unlogged = [f"ALTER TABLE {table} MODIFY v VARCHAR(10)" for table in tables]
    follower.do("SET SESSION sql_log_bin = 0", *unlogged[:2], unlogged[3], "SET SESSION sql_log_bin = 1")
    follower.do(*(f"INSERT INTO {table} VALUES (3, 3)" for table in tables))
    states = follower.run()
    assert states == {"again": "live", "stopped": "stopped", "failing": "live", "usual": "live"}
    assert follower.target("stopped") == (["id", "v"], [(1, 1), (2, 2)])
    follower.assert_equal("again", "failing", "usual")
    assert follower.run("stopped")["stopped"] == "live"
    follower.do("SET SESSION sql_log_bin = 0", unlogged[2], "SET SESSION sql_log_bin = 1")
    follower.do("INSERT INTO failing VALUES (4, '4')", "INSERT INTO usual VALUES (4, '4')")
    for _ in range(2):
        with pytest.raises(SchemaChangedError, match=r"v changed its type from int to string, and inconsistent_images"):
            follower.run()
    assert [len(follower.target(table)[1]) for table in ("failing", "usual")] == [3, 3], "nothing of the batch"
    follower.configure("")
    assert follower.run() == dict.fromkeys(tables, "live")
    follower.assert_equal(*tables)

"""gh-ost on real sessions beside writers: the copy, the changes applied to it from the log, and the cut-over.

The statements are those of gh-ost (``go/logic/applier.go``), the sessions too: one locks the table and a sentry table,
a second one waits for it with the RENAME, and the first drops the sentry and lets go. So the RENAME is next in line,
before the writers.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from headgate.gtid import GtidSet
from headgate.replication import Ddl, LogBlock
from headgate_testing import MySQLServer, wait_until
from tests.integration.beside import beside
from tests.integration.changes import Log
from tests.integration.schema.test_schema_changes import Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDS = 60
WRITERS = 3
SECONDS = 60.0
"""For anything to happen that is waited for."""
LIFE_AMONG_WRITERS = (1205, 1213)
"""Lock wait, deadlock."""


def number(cursor: Any) -> int:
    """The session's number."""
    cursor.execute("SELECT /* gh-ost */ CONNECTION_ID()")
    return int(cursor.fetchone()[0])


class Ghost(Log):
    """gh-ost, migrating table ``t`` of a database."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        super().__init__(server, db, create=False)
        self.do(
            "CREATE /* gh-ost */ TABLE `_t_gho` LIKE `t`",
            "ALTER /* gh-ost */ TABLE `_t_gho` ADD COLUMN c INT NOT NULL DEFAULT 3 AFTER id, MODIFY v VARCHAR(30)",
            "CREATE /* gh-ost */ TABLE `_t_ghc` (id bigint unsigned auto_increment, last_update timestamp not null"
            " DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null, value"
            " varchar(4096) charset ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256",
        )

    def copy(self) -> None:
        """The rows that there are, in ranges, with what the log brings in between."""
        for low in range(0, IDS, 20):
            while not self._copied(
                "INSERT /* gh-ost */ IGNORE INTO `_t_gho` (`id`, `v`) (SELECT `id`, `v` FROM `t`"
                f" FORCE INDEX (`PRIMARY`) WHERE (`id` >= {low}) AND (`id` < {low + 20}) LOCK IN SHARE MODE)"
            ):
                pass
            self.apply()

    def _copied(self, statement: str) -> bool:
        """False: it and a writer waited for each other, and it was the one to give way; gh-ost tries again, too."""
        try:
            self.do(statement)
        except pymysql.MySQLError as error:
            if error.args[0] not in LIFE_AMONG_WRITERS:
                raise
            return False
        return True

    def apply(self) -> None:
        """The changes since the last time, as they are in the log."""
        end = self.executed()
        rows = self.rows(f"{self.db}.t", end=end)
        with self.server.connect(database=self.db, autocommit=False) as connection, connection.cursor() as cursor:
            for row in rows:
                if row["_op"] in ("b", "d"):
                    cursor.execute("DELETE /* gh-ost */ FROM `_t_gho` WHERE ((`id` = %s))", (row["id"],))
                else:
                    sql = "REPLACE /* gh-ost */ INTO `_t_gho` (`id`, `v`) VALUES (%s, %s)"
                    cursor.execute(sql, (row["id"], row["v"]))
            connection.commit()
        self.start = end

    def cut_over(self) -> None:
        with self.server.connect(database=self.db) as locking, locking.cursor() as cursor:
            cursor.execute("SELECT /* gh-ost */ GET_LOCK(%s, 0)", (f"gh-ost.{number(cursor)}.lock",))
            cursor.execute("SET /* gh-ost */ SESSION lock_wait_timeout := 60")
            cursor.execute(
                "CREATE /* gh-ost */ TABLE `_t_del` (id int auto_increment primary key) engine=InnoDB"
                " comment='ghost-cut-over-sentry'"
            )
            cursor.execute("LOCK /* gh-ost */ TABLES `t` WRITE, `_t_del` WRITE")
            self.apply()  # the last changes: nobody writes the table now
            with self._renaming() as session:
                self._wait_for(session)
                cursor.execute("DROP /* gh-ost */ TABLE IF EXISTS `_t_del`")
                cursor.execute("UNLOCK TABLES")
        self.do("DROP /* gh-ost */ TABLE IF EXISTS `_t_ghc`", "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`")

    @contextmanager
    def _renaming(self) -> Iterator[int]:
        """A session that waits for the lock with its RENAME; its number. It has to succeed."""
        failures = list[BaseException]()
        with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
            cursor.execute("SET /* gh-ost */ SESSION lock_wait_timeout := 60")

            def rename() -> None:
                try:
                    cursor.execute("RENAME /* gh-ost */ TABLE `t` TO `_t_del`, `_t_gho` TO `t`")
                except pymysql.MySQLError as error:
                    failures.append(error)

            session = number(cursor)
            thread = threading.Thread(target=rename)
            thread.start()
            try:
                yield session
            finally:
                thread.join()
        assert failures == []

    def _wait_for(self, session: int) -> None:
        waiting = (
            "SELECT id FROM information_schema.processlist WHERE id = %s AND state LIKE '%%metadata lock%%'"
            " AND info LIKE '%%rename%%'"
        )
        wait_until(lambda: self.server.query(waiting, (session,)), "the RENAME does not wait", seconds=SECONDS)


class Writers:
    """What sessions do that write the table all the while, whatever it looks like."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db = server, db
        self.counts, self._numbers = [0] * WRITERS, itertools.count()

    def go_on(self, count: int = 10) -> None:
        """Wait until each has committed so many more changes."""
        goals = [before + count for before in self.counts]
        wait_until(
            lambda: all(now >= goal for now, goal in zip(self.counts, goals, strict=True)),
            "the writers wait",
            seconds=SECONDS,
        )

    def write(self, chance: random.Random, stop: threading.Event) -> None:
        number = next(self._numbers)
        with self.server.connect(database=self.db) as connection, connection.cursor() as cursor:
            while not stop.wait(0.002):
                self._change(chance, cursor)
                self.counts[number] += 1

    def _change(self, chance: random.Random, cursor: Any) -> None:
        one, other, text = chance.randrange(IDS), chance.randrange(IDS), f"w{chance.random():.6f}"
        sql, args = chance.choice(
            [
                ("REPLACE INTO t (id, v) VALUES (%s, %s)", (one, text)),
                ("UPDATE t SET v = %s WHERE id = %s", (text, one)),
                ("UPDATE IGNORE t SET id = %s WHERE id = %s", (other, one)),
                ("DELETE FROM t WHERE id = %s", (one,)),
                ("INSERT IGNORE INTO t (id, v) VALUES (%s, %s), (%s, NULL)", (one, text, other)),
            ]
        )
        try:
            cursor.execute(sql, args)
        except pymysql.MySQLError as error:
            if error.args[0] not in LIFE_AMONG_WRITERS:
                raise


def fill(server: MySQLServer, db: str) -> None:
    with server.connect(database=db) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        cursor.executemany("INSERT INTO t VALUES (%s, 'first')", [(number,) for number in range(0, IDS, 2)])


def replayed(items: list[Any]) -> tuple[list[str], dict[str, dict[int, dict[str, Any]]]]:
    """The statements in short, and the tables by key, as the log makes them."""
    tables: dict[str, dict[int, dict[str, Any]]] = {}
    statements = []
    for item in items:
        if isinstance(item, Ddl):
            new = None if item.new_name is None else item.new_name.partition(".")[2]
            statements.append(f"{item.action} {item.table}{f' -> {new}' if new else ''}")
            if item.action == "create":
                tables[item.table] = {}
            elif item.action == "drop":
                tables.pop(item.table)
            elif new is not None:
                tables[new] = tables.pop(item.table)
        elif isinstance(item, LogBlock):
            images = [
                (tuple(row["_seq"].values()), image.table.name, row)
                for image in item.images
                for row in image.batch.to_pylist()
            ]
            for _, name, row in sorted(images, key=lambda image: image[0]):
                if row["_op"] in ("b", "d"):
                    del tables[name][row["id"]]
                else:
                    assert row["id"] not in tables[name]
                    tables[name][row["id"]] = {k: v for k, v in row.items() if not k.startswith("_")}
    return statements, tables


def test_the_log_of_gh_ost_beside_writers_is_the_table(mysql_server: MySQLServer, mysql_db: str) -> None:
    start = GtidSet.parse(mysql_server.gtid_executed)
    fill(mysql_server, mysql_db)
    writers = Writers(mysql_server, mysql_db)
    with beside(writers.write, WRITERS):
        ghost = Ghost(mysql_server, mysql_db)
        ghost.copy()
        writers.go_on()
        ghost.cut_over()
        writers.go_on()
    statements, tables = replayed(ghost.items(start=start))
    assert statements == [
        "create t", "create _t_gho", "alter _t_gho", "create _t_ghc", "create _t_del", "drop _t_del",
        "rename t -> _t_del", "rename _t_gho -> t", "drop _t_ghc", "drop _t_del",
    ]  # fmt: skip
    with mysql_server.connect(database=mysql_db) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, c, v FROM t ORDER BY id")
        rows = list(cursor.fetchall())
    assert list(tables) == ["t"]
    assert [(row["id"], row["c"], row["v"]) for _, row in sorted(tables["t"].items())] == rows


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_table_that_gh_ost_changes_beside_writers_equals_its_source(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    fill(mysql_server, mysql_db)
    follower = Follower(spark, mysql_server, mysql_db, tmp_path)
    writers = Writers(mysql_server, mysql_db)
    with beside(writers.write, WRITERS):
        assert follower.run() == {"t": "live"}
        ghost = Ghost(mysql_server, mysql_db)
        ghost.copy()
        writers.go_on()
        assert follower.run() == {"t": "live"}
        ghost.apply()
        ghost.cut_over()
        writers.go_on()
        assert follower.run() == {"t": "live"}
        writers.go_on()
    assert follower.run() == {"t": "live"}
    follower.assert_equal("t")
    assert follower.target("t")[0] == ["id", "c", "v"]
    assert follower.outcomes() == {"t": {"dropped", "re-read"}}

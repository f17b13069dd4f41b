"""``headgate verify`` of a lake in a folder: without a JVM, beside writers, ended in the middle."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.compare import Comparer, verify_table
from headgate.config import parse_config
from headgate.lake import Lake, TableState, Workers, newest_row
from headgate.pipeline import read_source
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.lake.tables import make_ledger, make_table

CONFIG = """\
name = "verify"
[source]
url = "{url}"
tables = ["{db}.*"]
chunk_rows = 300
[target]
path = "{lake}"
[spark]
master = "local[1]"
"""
STAMPS = pa.schema([("_gtid", pa.string()), ("_ts", pa.timestamp("us", "UTC"))])


class Lakes:
    """A lake that is made of what the tables hold, without a pipeline."""

    def __init__(self, server: MySQLServer, db: str, folder: Path) -> None:
        self.server, self.db, self.config = server, db, folder / "pipeline.toml"
        self.lake = Lake.at(folder / "lake")
        self.config.write_text(CONFIG.format(url=server.url, db=db, lake=self.lake.path))
        self.states: list[TableState] = []

    def copy(self, table: str, schema: pa.Schema, key: list[str], rows: list[tuple[Any, ...]] | None = None) -> None:
        """A copy of a table as it is now, or of other rows."""
        held = self.server.query(f"SELECT * FROM {self.db}.{table}") if rows is None else rows
        added = STAMPS if key else pa.schema([*STAMPS, ("_row_hash", pa.binary())])
        columns = [pa.array([row[i] for row in held], one.type) for i, one in enumerate(schema)]
        everything = pa.schema([*schema, *added])
        whole = pa.table([*columns, *(pa.nulls(len(held), one.type) for one in added)], schema=everything)
        name = f"{self.db}.{table}"
        properties = {"headgate.key": json.dumps(key)}
        make_table(
            self.lake.current(name), [whole.slice(at, 400) for at in range(0, len(held), 400)], everything, properties
        )
        self.states.append(TableState(name, "live", 0))

    def commit(self) -> str:
        """The ledger's row, as of what the server has executed."""
        gtid = self.server.gtid_executed
        make_ledger(self.lake, [7], gtid=gtid, states=self.states, pipeline="verify")
        return gtid

    def command(self) -> list[str]:
        return [sys.executable, "-m", "headgate.cli", "verify", str(self.config)]

    def verify_without_java(self) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "JAVA_HOME": str(self.config.parent), "PYTHONWARNINGS": "error"}
        return subprocess.run(self.command(), env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def lakes(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Lakes:
    return Lakes(mysql_server, mysql_db, tmp_path)


ROWS = pa.schema([("id", pa.int32()), ("v", pa.string())])


def test_a_lake_in_a_folder_needs_no_jvm(lakes: Lakes) -> None:
    """Tables that are equal, differ, have no key, or are not compared; in the order of their names."""
    values = ", ".join(f"({n}, 'row {n}')" for n in range(1000))
    for table in ("a", "b", "c", "d"):
        key = "" if table == "c" else " PRIMARY KEY"
        lakes.server.execute(f"CREATE TABLE {lakes.db}.{table} (id INT{key}, v VARCHAR(20))")
        lakes.server.execute(f"INSERT INTO {lakes.db}.{table} VALUES {values}")
    lakes.server.execute(f"INSERT INTO {lakes.db}.c VALUES (1, 'row 1'), (7, NULL)")
    lakes.copy("a", ROWS, ["id"])
    changed = [(n, "other" if n == 500 else f"row {n}") for n in range(1, 1001)]
    lakes.copy("b", ROWS, ["id"], changed)
    lakes.copy("c", ROWS, [])
    lakes.states.append(TableState(f"{lakes.db}.d", "stale", reason="an ALTER"))
    gtid = lakes.commit()
    done = lakes.verify_without_java()
    db = lakes.db
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        f"{db}.a: 1,000 rows, equal as of {gtid}",
        f"{db}.b: 1,000 rows as of {gtid}: 1 only in source, 1 only in target, 1 different",
        "  different: id=500: v: source 'row 500', target 'other'",
        "  only in source: id=0",
        "  only in target: id=1000",
        f"{db}.c: 1,002 rows, equal as of {gtid}",
        f"{db}.d: stale: an ALTER",
        "1 of 3 tables differs, 1 is stopped or stale",
    ]


def test_a_table_that_cannot_be_compared(lakes: Lakes) -> None:
    """It is undecided, with the reason; the others are compared."""
    for table in ("a", "b", "c"):
        lakes.server.execute(
            f"CREATE TABLE {lakes.db}.{table} (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {lakes.db}.{table} VALUES (1, '2'), (3, NULL)",
        )
        kind = pa.int64() if table == "b" else pa.string()
        rows = [(1, 2 if table == "b" else "2"), (3, None)]
        lakes.copy(table, pa.schema([("id", pa.int32()), ("v", kind)]), ["id"], rows)
    gtid = lakes.commit()
    done = lakes.verify_without_java()
    db = lakes.db
    assert done.stdout.splitlines() == [
        f"{db}.a: 2 rows, equal as of {gtid}",
        f"{db}.b: undecided: column v is string in the source, int64 in the lake",
        f"{db}.c: 2 rows, equal as of {gtid}",
        "1 table could not be compared wholly; its line has the reason",
    ]
    assert (done.returncode, done.stderr) == (1, "")


def test_every_followed_table_is_compared_or_named(lakes: Lakes) -> None:
    """One that the pipeline has not begun to read, or has not read again, is no success. One that the configuration or
    the source leaves incomparable is none of its failures.
    """
    followed = ("a", "again", "begun", "condition", "new", "skip", "unread", "_a_gho", "other")
    for table in followed:
        lakes.server.execute(
            f"CREATE TABLE {lakes.db}.{table} (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {lakes.db}.{table} VALUES (1, '2')",
        )
    db = lakes.db
    config = lakes.config.read_text().replace(f'["{db}.*"]', f'["{db}.*", "!{db}.other"]')
    lakes.config.write_text(f'{config}[tables."{db}.skip"]\nskip = ["insert"]\n')
    for table in ("a", "skip"):
        lakes.copy(table, ROWS, ["id"])
    states = {"again": "excluded", "condition": "filtered", "begun": "settling"}
    lakes.states += [TableState(f"{db}.{table}", state) for table, state in states.items()]
    lakes.states.append(TableState(f"{db}.gone", "dropped", reason="DROP TABLE gone"))
    lakes.states.append(TableState(f"{db}.unread", "live", changelog_version=3))
    gtid = lakes.commit()
    done = lakes.verify_without_java()
    assert done.stdout.splitlines() == [
        f"{db}.a: 1 row, equal as of {gtid}",
        f"{db}.again: new: not compared: the pipeline has not begun to read it",
        f"{db}.begun: settling: not compared: it is not complete yet",
        f"{db}.condition: filtered: not compared: it has a condition",
        f"{db}.gone: dropped: DROP TABLE gone",
        f"{db}.new: new: not compared: the pipeline has not begun to read it",
        f"{db}.skip: inexact: not compared: skip leaves out inserts",
        f"{db}.unread: undecided: not compared: the lake has its changes, but not its rows",
        "4 tables could not be compared wholly; their lines have the reasons",
    ]
    assert (done.returncode, done.stderr) == (1, "")


def test_rows_are_those_of_the_set_while_writers_go_on(lakes: Lakes) -> None:
    """Whatever they have done since: several chunks, each read from a view of its own, are all as of the copy."""
    lakes.server.execute(
        f"CREATE TABLE {lakes.db}.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO {lakes.db}.t VALUES {', '.join(f'({n}, {n})' for n in range(0, 4000, 2))}",
    )
    lakes.copy("t", ROWS, ["id"])
    gtid = lakes.commit()
    written = threading.Semaphore(0)

    def write(choice: random.Random, stop: threading.Event) -> None:
        with lakes.server.connect(database=lakes.db) as one, one.cursor() as cursor:
            while not stop.is_set():
                n, m = choice.randrange(4000), choice.randrange(4000)
                cursor.execute(
                    choice.choice([
                        f"REPLACE INTO t VALUES ({n}, 'new')", f"DELETE FROM t WHERE id = {n}",
                        f"UPDATE t SET v = 'changed' WHERE id BETWEEN {n} AND {n + 9}",
                        f"UPDATE IGNORE t SET id = {m} WHERE id = {n}",
                    ])
                )  # fmt: skip
                written.release()

    source, row = read_source(parse_config(lakes.config.read_text())), newest_row(lakes.lake)
    with beside(write, 2), Workers(2) as workers:
        for _ in range(5):
            for _ in range(200):
                assert written.acquire(timeout=60)
            result = verify_table(Comparer(lakes.lake, source, workers), row, f"{lakes.db}.t")
            assert (result.equal, result.differences, result.undecided) == (2000, 0, 0), result
    assert row.gtid == gtid


def test_it_begins_where_the_pipeline_stood_in_the_log(lakes: Lakes) -> None:
    """Where that is known of this server and not of later transactions. A note of what is not in the log does no harm:
    the dump begins elsewhere.
    """
    lakes.server.execute(
        f"CREATE TABLE {lakes.db}.t (id INT PRIMARY KEY, v VARCHAR(20))", f"INSERT INTO {lakes.db}.t VALUES (1, 'a')"
    )
    lakes.copy("t", ROWS, ["id"])
    gtid = lakes.commit()
    file, pos = lakes.server.log_status()
    lakes.server.execute(f"UPDATE {lakes.db}.t SET v = 'b'", f"INSERT INTO {lakes.db}.t VALUES (2, 'a')")
    note = {"gtid": gtid, "server_uuid": lakes.server.server_uuid, "file": file, "pos": pos, "created_s": 0}
    others = [
        {**note, "gtid": lakes.server.gtid_executed}, {**note, "server_uuid": "none"},
        {**note, "file": "binlog.999999"}, {**note, "pos": 1 << 60}, {},
    ]  # fmt: skip
    source, row = read_source(parse_config(lakes.config.read_text())), newest_row(lakes.lake)
    hints = []
    for known in [note, *others]:
        inbox = Path(lakes.lake.inbox)
        inbox.mkdir(parents=True, exist_ok=True)
        (inbox / "hint.json").write_text(json.dumps(known))
        parts: list[Any] = [*source.parts(f"{lakes.db}.t", gtid)[1]]
        hints += [(part.args[1].hint.file, part.args[1].hint.pos) for part in parts if part.args[1].hint is not None]
        with Workers(2) as workers:
            result = verify_table(Comparer(lakes.lake, source, workers), row, f"{lakes.db}.t")
        assert (result.equal, result.differences) == (1, 0)
    assert hints == [(file, pos), ("binlog.999999", pos), (file, 1 << 60)]


def test_ctrl_c_while_the_server_does_not_answer(lakes: Lakes) -> None:
    """It ends at once and in order, though a SELECT waits for a lock."""
    lakes.server.execute(f"CREATE TABLE {lakes.db}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    lakes.copy("t", ROWS, ["id"])
    lakes.commit()
    waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata lock'"
    with lakes.server.connect(database=lakes.db) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        with subprocess.Popen(
            lakes.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                deadline = time.monotonic() + 240
                while not lakes.server.query(waiting)[0][0]:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=120)
            finally:
                process.kill()
        cursor.execute("UNLOCK TABLES")
    assert (process.returncode, out, err) == (130, "", "interrupted\n")

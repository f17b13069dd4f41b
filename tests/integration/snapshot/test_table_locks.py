"""``watermark = "lock"``: chunks read from a view that was opened while their tables were locked."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from headgate.errors import AccessError, ChunkRetryError, Transient
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.offsets import ChunkSpec
from headgate.snapshot import ChunkOptions, ChunkRead, Redo, TableLocks, read_chunks
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.integration.changes import Log, plain

SELECT = "headgate.snapshot._reader.select_blocks"


@pytest.fixture
def log(mysql_server: MySQLServer) -> Iterator[Log]:
    log = Log(mysql_server, "locks")
    rows = ", ".join(f"({i}, 'v{i % 3}')" for i in range(20))
    log.do(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", f"INSERT INTO t VALUES {rows}",
        "CREATE TABLE bare (id INT, v VARCHAR(20))", "INSERT INTO bare SELECT id DIV 4, v FROM t",
    )  # fmt: skip
    log.mark()
    yield log
    mysql_server.execute("DROP DATABASE locks")


LOCKS = TableLocks("setup", 10)


def read(log: Log, *chunks: ChunkSpec, locks: TableLocks | None, settings: ConnectionSettings | None = None) -> Any:
    return read_chunks(
        ChunkRead(settings or log.settings, chunks, log.start, log.server.server_uuid, epoch=1, planned_us=0),
        ChunkOptions(locks=locks),
    )


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, Any]]:
    return Counter((row["id"], row["v"]) for row in rows)


def writes(log: Log, table: str, within: int = 60) -> bool:
    """Whether a writer gets through in so many seconds; if nobody has locked the table, it does at once."""
    with log.server.connect(database="locks", autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION lock_wait_timeout = {within}")
        try:
            cursor.execute(f"INSERT INTO {table} VALUES (100, 'other')")
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1205:
                raise
            return False
        return True


def test_a_table_without_a_key_is_turned_back(log: Log) -> None:
    then = counted(log.chunk("bare"))
    log.do(
        "INSERT INTO bare VALUES (1, 'v1'), (7, NULL), (7, NULL)", "DELETE FROM bare WHERE id = 0 LIMIT 2",
        "UPDATE bare SET v = 'v0' WHERE v = 'v1'", "INSERT INTO bare SELECT * FROM bare", "DELETE FROM bare LIMIT 3",
    )  # fmt: skip
    (redo,) = read(log, ChunkSpec("locks.bare", 0), locks=None)
    assert isinstance(redo, Redo)
    rows = plain(list(read(log, ChunkSpec("locks.bare", 0), locks=LOCKS)))
    assert counted(rows) == then
    assert {row["_op"] for row in rows} == {"r"}
    log.do("TRUNCATE TABLE bare")
    (redo,) = read(log, ChunkSpec("locks.bare", 0), locks=LOCKS)
    assert "truncated" in redo.reason


def test_chunks_of_keyed_tables_are_turned_back(log: Log) -> None:
    then = counted(log.chunk("t"))
    log.do("UPDATE t SET id = id + 50 WHERE id < 5", "DELETE FROM t WHERE id = 9", "INSERT INTO t VALUES (-1, 'x')")
    chunks = [ChunkSpec("locks.t", 0, None, ("8",)), ChunkSpec("locks.gone", 0), ChunkSpec("locks.t", 1, ("8",), None)]
    items = list(read(log, *chunks, locks=LOCKS))
    assert [item.chunk.table for item in items if isinstance(item, Redo)] == ["locks.gone"]
    assert counted(plain([item for item in items if not isinstance(item, Redo)])) == then


def test_a_table_without_a_key_under_permanent_writes(log: Log) -> None:
    def write(choice: random.Random, stop: threading.Event) -> None:
        with log.server.connect(database="locks", autocommit=True) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute(f"INSERT INTO bare VALUES ({choice.randrange(5)}, 'w'), ({choice.randrange(3)}, NULL)")
                cursor.execute(f"UPDATE bare SET v = 'u{choice.randrange(4)}' WHERE id = {choice.randrange(5)} LIMIT 2")
                cursor.execute(f"DELETE FROM bare WHERE id = {choice.randrange(2)} LIMIT 2")

    state, began = counted(log.chunk("bare")), log.start
    taken = []
    with beside(write, 2):
        for _ in range(6):
            log.mark()
            rows = plain(list(read(log, ChunkSpec("locks.bare", 0), locks=TableLocks("setup", 60))))
            taken.append((log.start, counted(rows)))
            while log.executed() == log.start:
                pass
    assert len({str(executed) for executed, _ in taken}) == len(taken)
    for executed, was in taken:
        changes = log.between(began, executed)
        state += counted([image for image in changes if image["_op"] in ("c", "u")])
        state -= counted([image for image in changes if image["_op"] in ("b", "d")])
        began = executed
        assert was == state
    assert counted(log.chunk("bare", log.executed())) != state


def test_a_lock_that_is_waited_for_in_vain(log: Log) -> None:
    with log.server.connect(database="locks", autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO bare VALUES (1, 'open')")
        with pytest.raises(ChunkRetryError, match=r"locks\.bare, locks\.t could not be locked within 1 s") as caught:
            list(read(log, ChunkSpec("locks.bare", 0), ChunkSpec("locks.t", 0), locks=TableLocks("setup", 1)))
        assert isinstance(caught.value, Transient)
        assert writes(log, "t"), "nothing is left locked"
        assert writes(log, "bare")
        other.rollback()
    assert counted(plain(list(read(log, ChunkSpec("locks.bare", 0), locks=TableLocks("setup", 1)))))


@pytest.mark.parametrize(("hold", "passes"), [("setup", True), ("read", False)])
def test_how_long_tables_are_locked(log: Log, hold: Any, passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``read``, until the last chunk's rows are there; then, too, nothing waits for who takes the rows."""
    during = []

    def selecting(connection: Connection, sql: str, **options: Any) -> Any:
        during.append(writes(log, "bare", within=60 if passes else 1))
        return select_blocks(connection, sql, **options)

    then = counted(log.chunk("bare"))
    monkeypatch.setattr(SELECT, selecting)
    items = read(log, ChunkSpec("locks.bare", 0), locks=TableLocks(hold, 10))
    images = [next(items)]
    assert during == [passes]
    assert writes(log, "bare")
    images += items
    assert counted(plain(images)) == then


def test_tasks_share_a_table(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second task reads while the first one holds its lock; each is turned back from where its own view stands."""
    then = counted(log.chunk("t"))
    inner: list[Any] = []

    def selecting(connection: Connection, sql: str, **options: Any) -> Any:
        if not inner:
            inner.append(None)
            inner.extend(read(log, ChunkSpec("locks.t", 1, ("9",), None), locks=TableLocks("read", 10)))
        return select_blocks(connection, sql, **options)

    log.do("UPDATE t SET v = 'changed' WHERE id > 5")
    monkeypatch.setattr(SELECT, selecting)
    outer = list(read(log, ChunkSpec("locks.t", 0, None, ("9",)), locks=TableLocks("read", 10)))
    assert counted(plain([*outer, *inner[1:]])) == then


def test_an_account_without_the_privilege(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.server.execute(
        "CREATE USER unlocking IDENTIFIED BY 'w0rd'", "GRANT SELECT ON locks.* TO unlocking",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO unlocking",
    )  # fmt: skip
    monkeypatch.setenv("HEADGATE_PASSWORD", "w0rd")
    settings = ConnectionSettings.from_url(f"mysql://unlocking@{log.server.host}:{log.server.port}")
    try:
        with pytest.raises(AccessError, match="LOCK TABLES"):
            list(read(log, ChunkSpec("locks.t", 0), locks=LOCKS, settings=settings))
        log.server.execute("GRANT LOCK TABLES ON locks.* TO unlocking")
        assert counted(plain(list(read(log, ChunkSpec("locks.t", 0), locks=LOCKS, settings=settings))))
    finally:
        log.server.execute("DROP USER unlocking")

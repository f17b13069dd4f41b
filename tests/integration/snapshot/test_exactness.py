"""Chunked snapshots under writers, each compared with the log replayed to its E.

The replay is independent of the snapshot: it folds every transaction of the log, from the empty tables on, and says
what each table was at E. Replayed to its end it must equal what a plain client sees, so it is held to the truth too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from headgate.catalog import TablePatterns, load_tables
from headgate.gtid import Gtid, GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.offsets import ChunkSpec
from headgate.replication import DecodeOptions, ImageBatch, LogBlock, LogRead, read_range
from headgate.snapshot import (
    ChunkOptions,
    ChunkRead,
    TableLocks,
    Window,
    advance,
    first_chunk_bounds,
    next_chunk,
    read_chunks,
)
from headgate_testing import MySQLServer, replica_pair

Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[Any, ...]
State: TypeAlias = dict[str, dict[Key, Row]]

TABLES = {
    "orders": "id BIGINT PRIMARY KEY, qty INT, note VARCHAR(40), price DECIMAL(10,2), at DATETIME(3)",
    "names": "name VARCHAR(40) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT",
    "pairs": "v DOUBLE, b CHAR(10) CHARACTER SET latin1 COLLATE latin1_swedish_ci, a INT, PRIMARY KEY (a, b)",
    "kinds": "k ENUM('z','m','a','q') , n SMALLINT UNSIGNED, t TIME(2), v VARBINARY(20), PRIMARY KEY (k, n, t)",
}
PATTERNS = TablePatterns(["exact.*"])
WRITERS = 8
ROWS = 150
CHUNK_ROWS = 70


# --- writers


@contextmanager
def writing(server: MySQLServer, seed: int, xa: float = 0.0) -> Iterator[None]:
    """Writers at work while the block runs, in a process of their own; none of them may have failed.

    :param xa: the share of two-phase XA transactions.
    """
    url = urlsplit(server.url)
    program = Path(__file__).with_name("exact_writers.py")
    command = [
        sys.executable,
        str(program),
        str(url.hostname),
        str(url.port),
        str(url.username),
        str(seed),
        str(WRITERS),
        str(xa),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            out, _ = process.communicate()
    assert process.returncode == 0
    assert int(out) > WRITERS


def create_tables(server: MySQLServer) -> None:
    server.execute("DROP DATABASE IF EXISTS exact", "CREATE DATABASE exact")
    for name, columns in TABLES.items():
        server.execute(f"CREATE TABLE exact.{name} ({columns})")
    with server.connect(database="exact") as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO orders VALUES (%s, 1, 'first', 0, NULL)", [(i * 2,) for i in range(ROWS)])
        names = [a + b + c for a in "abcdefgh" for b in "abcdefgh" for c in "xyz"]
        cursor.executemany("INSERT INTO names VALUES (%s, 1)", [(name,) for name in names])
        cursor.executemany(
            "INSERT INTO pairs VALUES (1, %s, %s)", [(name, a) for a in range(12) for name in names[::12]]
        )
        kinds = [(k, n, bytes([n])) for k in "zmaq" for n in range(40)]
        cursor.executemany("INSERT INTO kinds VALUES (%s, %s, '0', %s)", kinds)


# --- snapshots


@dataclass
class Snapshot:
    """What a chunked snapshot said the tables were at E."""

    executed: GtidSet
    state: State
    chunks: int


class Reader:
    """Takes chunked snapshots of all tables, one E each.

    :param across: whether each E must have transactions that were prepared before it and ended after it.
    :param locks: how chunks lock their tables.
    :param late: how many transactions are committed after each E before anything is read, at least.
    """

    def __init__(
        self, settings: ConnectionSettings, *, across: bool = False, locks: TableLocks | None = None, late: int = 0
    ) -> None:
        self.settings, self.across, self.locks, self.late = settings, across, locks, late
        self.connection = Connection.open(settings)
        self.uuid = str(self.connection.query("SELECT @@global.server_uuid")[0][0])
        self.taken: list[Snapshot] = []

    def moved(self) -> GtidSet:
        """E, as soon as the writers have committed something since the snapshot before."""
        deadline = time.monotonic() + 60
        while True:
            before = self.prepared()
            executed = gtid_executed(self.connection)
            across = before & self.prepared() or not self.across
            if across and (not self.taken or executed != self.taken[-1].executed):
                return executed
            assert time.monotonic() < deadline, "the writers commit nothing"

    def prepared(self) -> set[str]:
        """The xids of prepared transactions."""
        return {str(row[3]) for row in self.connection.query("XA RECOVER")}

    def wait_for_later(self, executed: GtidSet) -> None:
        deadline = time.monotonic() + 60
        while (gtid_executed(self.connection) - executed).count() < self.late:
            assert time.monotonic() < deadline, "the writers commit nothing"

    def take(self) -> None:
        executed = self.moved()
        self.wait_for_later(executed)
        chunks = [chunk for table in load_tables(self.connection.query, PATTERNS) for chunk in self.plan(table)]
        state: State = {name: {} for name in TABLES}
        items = read_chunks(
            ChunkRead(self.settings, chunks, executed, self.uuid, epoch=1, planned_us=0), ChunkOptions(locks=self.locks)
        )
        for item in items:
            assert isinstance(item, ImageBatch), item
            for op, key, row in images(item):
                assert op == "r"
                assert key not in state[item.table.name], f"{item.table.name} {key} is in two chunks"
                state[item.table.name][key] = row
        self.taken.append(Snapshot(executed, state, len(chunks)))

    def plan(self, table: Any) -> Iterator[ChunkSpec]:
        progress = first_chunk_bounds(self.connection.query, table, epoch=1, rows=CHUNK_ROWS)
        while chunk := next_chunk(self.connection.query, table, progress, CHUNK_ROWS):
            yield chunk
            progress = advance(progress, chunk, CHUNK_ROWS)


def images(item: ImageBatch) -> Iterator[tuple[str, Key, Row]]:
    """``(op, key, row)`` of every image."""
    columns = [item.batch.column(column.name).to_pylist() for column in item.table.columns]
    for op, row in zip(item.batch.column("_op").to_pylist(), zip(*columns, strict=True), strict=True):
        yield op, tuple(row[index] for index in item.table.key), row


# --- the replay


class Replay:
    """The tables as the log makes them, transaction by transaction."""

    def __init__(self) -> None:
        self.state: State = {name: {} for name in TABLES}
        self.log: list[tuple[str, list[tuple[str, str, Key, Row]]]] = []

    def load(self, settings: ConnectionSettings, start: GtidSet, end: GtidSet, uuid: str) -> None:
        """Reads the transactions of ``end - start``, in log order."""
        changes: list[tuple[tuple[int, ...], str, str, str, Key, Row]] = []
        for block in read_range(
            LogRead(settings, wanted=end - start, executed=end, server_uuid=uuid),
            DecodeOptions(PATTERNS, epoch=1, images="all"),
        ):
            for item in block.images if isinstance(block, LogBlock) else ():
                seqs = list(zip(*(part.to_pylist() for part in item.batch.column("_seq").flatten()), strict=True))
                gtids = item.batch.column("_gtid").cast(pa.string()).to_pylist()
                for seq, gtid, (op, key, row) in zip(seqs, gtids, images(item), strict=True):
                    changes.append((seq, gtid, item.table.name, op, key, row))
        for _, gtid, name, op, key, row in sorted(changes, key=lambda one: one[0]):  # stable: b stays before its u
            if not self.log or self.log[-1][0] != gtid:
                self.log.append((gtid, []))
            self.log[-1][1].append((name, op, key, row))

    def apply(self, name: str, op: str, key: Key, row: Row) -> None:
        rows = self.state[name]
        if op in ("c", "u"):
            assert key not in rows, f"{name}: {op} of {key}, which is there"
            rows[key] = row
        else:
            assert rows.pop(key) == row, f"{name}: {op} of {key} with another image"

    def differences(self, snapshots: list[Snapshot]) -> list[str]:
        """What each snapshot has otherwise than the log at its E; one text per snapshot that differs."""
        out = []
        position = 0
        for snapshot in sorted(snapshots, key=lambda one: one.executed.count()):
            while position < len(self.log) and Gtid.parse(self.log[position][0]) in snapshot.executed:
                for image in self.log[position][1]:
                    self.apply(*image)
                position += 1
            later = [Gtid.parse(gtid) for gtid, _ in self.log[position : position + 200]]
            assert not any(gtid in snapshot.executed for gtid in later), "E is no prefix of the log"
            different = [
                f"{name}{key}: {snapshot.state[name].get(key)} is not {self.state[name].get(key)}"
                for name in TABLES
                for key in sorted(self.state[name].keys() | snapshot.state[name].keys(), key=repr)
                if snapshot.state[name].get(key) != self.state[name].get(key)
            ]
            if different:
                out.append(f"{len(different)} rows differ, the first: {different[0]}")
        for _, rest in self.log[position:]:
            for image in rest:
                self.apply(*image)
        return out


def contents(server: MySQLServer) -> dict[str, set[Row]]:
    """The tables as a plain client sees them (TIME as text, as Arrow has it)."""
    with server.connect(database="exact") as connection, connection.cursor() as cursor:
        rows = {}
        for name in TABLES:
            cursor.execute(f"SELECT {'k, n, CAST(t AS CHAR), v' if name == 'kinds' else '*'} FROM {name}")
            rows[name] = set(cursor.fetchall())
        return rows


# --- the tests


def settings_of(server: MySQLServer) -> ConnectionSettings:
    return replace(ConnectionSettings.from_url(server.url), tls="disabled")


def run(
    primary: MySQLServer,
    source: MySQLServer,
    seed: int,
    count: int,
    rewind: Callable[..., Any] | None = None,
    *,
    xa: float = 0.0,
    locks: TableLocks | None = None,
    late: int = 0,
) -> tuple[list[Snapshot], list[str]]:
    """Takes ``count`` snapshots of ``source`` while writers write to ``primary``; the snapshots, and what is wrong."""
    settings = settings_of(source)
    reader = Reader(settings, across=xa > 0, locks=locks, late=late)
    with reader.connection:
        start = gtid_executed(reader.connection)
        create_tables(primary)
        source.wait_for(primary.gtid_executed)
        with pytest.MonkeyPatch.context() as patch:
            if rewind is not None:
                patch.setattr(Window, "rewind", rewind)
            with writing(primary, seed, xa):
                for number in range(count):
                    if number % 10 == 5:  # logs rotate under the window, and stay short for the dumps to skip
                        source.execute("FLUSH BINARY LOGS")
                    reader.take()
        source.wait_for(primary.gtid_executed)
        replay = Replay()
        replay.load(settings, start, gtid_executed(reader.connection), reader.uuid)
    wrong = replay.differences(reader.taken)
    assert {name: set(rows.values()) for name, rows in replay.state.items()} == contents(source)
    return reader.taken, wrong


LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("seed", "count"),
    [
        (1, 5),
        pytest.param(2, 30, marks=pytest.mark.long),
        *(pytest.param(seed, 200, marks=LONG) for seed in (11, 12, 13, 14)),
    ],
)
def test_snapshots_of_a_primary_are_exact(mysql_server: MySQLServer, seed: int, count: int) -> None:
    snapshots, wrong = run(mysql_server, mysql_server, seed, count)
    assert sum(snapshot.chunks for snapshot in snapshots) > 8 * count
    assert len({snapshot.executed for snapshot in snapshots}) == count
    assert wrong == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "count"), [(4, 15), *(pytest.param(seed, 200, marks=LONG) for seed in (41, 42))])
def test_snapshots_among_xa_transactions_are_exact(mysql_server: MySQLServer, seed: int, count: int) -> None:
    """A third of the transactions in two phases; at each E there are some that were prepared before and end later."""
    snapshots, wrong = run(mysql_server, mysql_server, seed, count, xa=0.35)
    assert len({snapshot.executed for snapshot in snapshots}) == count
    assert wrong == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_without_the_rewind_they_are_not(mysql_server: MySQLServer) -> None:
    """The control: the same run finds differences when the window is not used, and something happened in it."""
    _, wrong = run(mysql_server, mysql_server, 2, 10, rewind=lambda self, rows, in_range, **more: rows, late=20)
    assert len(wrong) > 3


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "count"), [(4, 15), pytest.param(41, 60, marks=LONG)])
def test_snapshots_under_table_locks_are_exact(mysql_server: MySQLServer, seed: int, count: int) -> None:
    _, wrong = run(mysql_server, mysql_server, seed, count, locks=TableLocks("setup", 60))
    assert wrong == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.needs_own_server
@pytest.mark.parametrize(("seed", "count"), [(3, 15), *(pytest.param(seed, 200, marks=LONG) for seed in (31, 32))])
def test_snapshots_of_a_replica_are_exact(seed: int, count: int) -> None:
    flags = {"replica_parallel_workers": 4, "replica_preserve_commit_order": True}
    with replica_pair(replica_flags=flags) as (primary, replica):
        _, wrong = run(primary, replica, seed, count)
    assert wrong == []

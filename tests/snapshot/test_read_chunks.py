"""Chunks that are read while their table is written: exactly the rows as of E, or the reason why not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.errors import (
    AccessError,
    ChunkRetryError,
    DefiniteServerError,
    HistoryRewrittenError,
    ServerBehindError,
    SnapshotRefusedError,
    TransientServerError,
)
from headgate.gtid import GtidSet
from headgate.policies import Policies
from headgate.positions import Position
from headgate.replication import ImageBatch
from headgate.snapshot import Chunk, ChunkOptions, ChunkRead, HighWatermark, Redo, TableLocks, read_chunks
from headgate.snapshot.keys import key_order
from tests.replication.pretended import OTHER, SETTINGS, UUID, gtids
from tests.snapshot.selectable import Image, Row, SelectableServer, connected

ORDER = key_order([Column("id", "int", nullable=False)])
WHOLE = Chunk("d.t", 0)
UNTIL_3 = Chunk("d.t", 0, None, ("3",), order=ORDER)
REST = Chunk("d.t", 1, ("3",), None, order=ORDER)
READ = TableLocks("read", 5)
SETUP = TableLocks("setup", 5)


@dataclass
class Read:
    """What a task yields."""

    rows: list[Row] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    redo: list[tuple[int, str, bool]] = field(default_factory=list)
    watermarks: list[HighWatermark] = field(default_factory=list)


def read(server: SelectableServer, *chunks: Chunk, executed: Position | None = None, **options: Any) -> Read:
    task = ChunkRead(SETTINGS, chunks, executed or server.position, UUID, 7, 1_000_000, first_ordinal=10)
    got = Read()
    with connected(server) as network:
        for item in read_chunks(task, ChunkOptions(**options)):
            if isinstance(item, ImageBatch):
                for row in item.batch.to_pylist():
                    assert (row["_op"], row["_gtid"], row["_seq"]["epoch"]) == ("r", None, 7)
                    got.rows.append((row["id"], row["v"]))
                    got.ordinals.append(row["_seq"]["ordinal"])
            elif isinstance(item, Redo):
                got.redo.append((item.chunk.number, item.reason, item.whole_table))
            else:
                assert isinstance(item, HighWatermark)
                got.watermarks.append(item)
    assert network.open == 0
    assert got.ordinals == [*range(10, 10 + len(got.rows))]
    return got


# --- exact at E, whatever is written


STEP = st.tuples(st.sampled_from(["put", "put", "delete", "move"]), st.integers(0, 6), st.integers(0, 6))
TRANSACTIONS = st.lists(st.lists(STEP, min_size=1, max_size=3), max_size=4)


def images(rows: list[Row], steps: list[tuple[str, int, int]], value: int) -> list[Image]:
    """Return changes of rows with unique keys; those that are not possible are left out."""
    now: dict[int, int | None] = dict(rows)
    done: list[Image] = []
    for action, key, other in steps:
        before = (key, now[key]) if key in now else None
        after = None if action == "delete" else (key, value) if action == "put" else (other, value)
        if (before is None and action != "put") or (action == "move" and other in now):
            continue
        done.append((before, after))
        now.pop(key, None)
        if after is not None:
            now[after[0]] = after[1]
    return done


@given(
    before=TRANSACTIONS,
    seen=st.lists(TRANSACTIONS, min_size=3, max_size=3),
    unseen=st.lists(TRANSACTIONS, min_size=3, max_size=3),
    bounds=st.sets(st.integers(-1, 6), max_size=2),
    anonymous=st.booleans(),
    condition=st.sampled_from([None, "v > 2"]),
)
def test_rows_are_those_of_e_whatever_the_selects_see(
    before: list[Any], seen: list[Any], unseen: list[Any], bounds: set[int], anonymous: bool, condition: str | None
) -> None:
    """Of each chunk's SELECT, some of the transactions since E are visible, and some only reach the log."""
    server = SelectableServer(anonymous=anonymous)
    values = iter(range(1000))

    def write(transactions: list[Any]) -> None:
        for steps in transactions:
            server.change(*images(server.states[-1], steps, next(values) % 5))

    write(before)
    executed, rows = server.position, server.states[-1]
    visible, later = iter(seen), iter(unseen)
    server.before_select = lambda: write(next(visible))
    server.after_select = lambda: write(next(later))
    cuts = [None, *((str(bound),) for bound in sorted(bounds)), None]
    chunks = [
        Chunk("d.t", number, low, high, condition, order=ORDER if low or high else None)
        for number, (low, high) in enumerate(pairwise(cuts))
    ]
    got = read(server, *chunks, executed=executed)
    assert (got.redo, got.watermarks) == ([], [])
    assert sorted(got.rows) == sorted(row for row in rows if condition is None or (row[1] or 0) > 2)


@given(before=st.lists(st.tuples(st.integers(0, 1), st.none()), max_size=4), hold=st.sampled_from([READ, SETUP]))
def test_a_table_without_a_key_is_exact_under_locks(before: list[Row], hold: TableLocks) -> None:
    """Equal rows are counted. What is written after the view was opened is neither selected nor undone."""
    server = SelectableServer(is_keyed=False)
    server.change((None, (0, None)), *((None, row) for row in before))
    executed = server.position
    server.change((None, (1, None)), ((0, None), None))
    server.before_select = lambda: server.change((None, (1, None)))
    got = read(server, WHOLE, executed=executed, locks=hold)
    assert Counter(got.rows) == Counter([(0, None), *before])
    locked = server.statements.index("LOCK TABLES `d`.`t` READ")
    assert server.statements[locked - 1] == "SET SESSION lock_wait_timeout = 5"
    assert ("UNLOCK TABLES" in server.statements) == (hold is SETUP), "else they end with their connection"


def test_no_chunk_is_no_connection() -> None:
    assert read(SelectableServer()) == Read()


# --- rows that are kept or dropped


@pytest.mark.parametrize(("window", "rows"), [("keep", [(1, 5), (4, 0)]), ("drop", [(4, 0)])])
def test_rows_that_are_not_rewound_have_a_watermark(window: Any, rows: list[Row]) -> None:
    server = SelectableServer()
    server.change((None, (1, 0)), (None, (4, 0)))
    executed = server.position
    server.before_select = lambda: server.change(((1, 0), (1, 5)))
    got = read(server, WHOLE, executed=executed, policies=Policies(window=window))
    assert sorted(got.rows) == rows
    (watermark,) = got.watermarks
    assert (watermark.table, watermark.gtid) == ("d.t", gtids(1, 2))
    server.before_select = lambda: None
    assert read(server, WHOLE, policies=Policies(window=window)).watermarks == [], "nothing was written meanwhile"


# --- chunks that are retried


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE d.t ADD COLUMN w INT", "DDL while the chunk was read: ALTER TABLE d.t"),
        ("RENAME TABLE d.x TO d.t", "DDL while the chunk was read"),
        ("DROP DATABASE d", "DDL while the chunk was read"),
        ("TRUNCATE TABLE d.t", "the table was truncated while the chunk was read"),
        ("ALTER TABLE d.other ADD COLUMN w INT", None),
        ("CREATE TABLE IF NOT EXISTS d.t (id INT)", None),
        ("DROP DATABASE e", None),
    ],
)
def test_statements_that_change_the_table_meanwhile(statement: str, reason: str | None) -> None:
    server = SelectableServer()
    server.change((None, (1, 0)))
    executed = server.position
    server.after_select = lambda: server.statement(statement)
    got = read(server, WHOLE, executed=executed)
    if reason is None:
        assert (got.rows, got.redo) == ([(1, 0)], [])
    else:
        ((number, cause, whole_table),) = got.redo
        assert (number, cause.startswith(reason), whole_table, got.rows) == (0, True, False, [])


def test_a_truncation_may_be_accepted() -> None:
    server = SelectableServer()
    server.change((None, (1, 0)))
    executed = server.position
    server.after_select = lambda: server.statement("TRUNCATE TABLE d.t")
    assert read(server, WHOLE, executed=executed, truncate="keep").rows == [(1, 0)]


def test_a_definition_that_changes_during_the_select() -> None:
    """Its statement is not logged yet."""
    server = SelectableServer()
    server.change((None, (1, 0)))
    server.after_select = lambda: server.columns.append("w")
    assert read(server, WHOLE).redo == [(0, "the table's definition changed while it was read", False)]


def test_a_table_without_a_key_that_is_written_meanwhile() -> None:
    server = SelectableServer(is_keyed=False)
    server.change((None, (1, 0)))
    executed = server.position
    server.after_select = lambda: server.change((None, (2, 0)))
    ((_, reason, _),) = read(server, WHOLE, executed=executed).redo
    assert reason == 'a table without a key was written while it was read (watermark = "lock" prevents that)'


def test_a_range_of_another_key() -> None:
    server = SelectableServer()
    server.change((None, (1, 0)), (None, (4, 0)))
    other = Chunk("d.t", 1, ("3",), None, order="another")
    got = read(server, UNTIL_3, other)
    ((number, reason, whole_table),) = got.redo
    assert (got.rows, number, whole_table) == ([(1, 0)], 1, True)
    assert reason.startswith("the table has another key")
    ((_, reason, whole_table),) = read(server, Chunk("d.t", 0, None, ("3",), surrogate="v", order=ORDER)).redo
    assert (reason, whole_table) == ("a surrogate key must be NOT NULL, unlike column v", True)


def test_a_table_that_is_gone_leaves_the_others() -> None:
    server = SelectableServer()
    server.change((None, (1, 0)))
    got = read(server, Chunk("d.gone", 0), WHOLE, locks=SETUP)
    assert (got.rows, got.redo) == ([(1, 0)], [(0, "the table does not exist", True)])
    assert "LOCK TABLES `d`.`t` READ" in server.statements


@pytest.mark.parametrize(
    ("code", "condition", "redo"),
    [
        (1146, None, (0, "the table changed while it was read: refused", False)),
        (1412, None, (0, "the table changed while it was read: refused", False)),
        (1305, "f(v)", (0, "the server refuses the filter: refused", True)),
        (1054, "w > 1", (0, "the server refuses the filter: refused", True)),
    ],
)
def test_a_select_that_the_server_refuses(code: int, condition: str | None, redo: tuple[int, str, bool]) -> None:
    server = SelectableServer()
    server.failures["chunk"] = DefiniteServerError("refused", code=code)
    assert read(server, Chunk("d.t", 0, filter=condition)).redo == [redo]


# --- errors


def test_a_select_that_takes_too_long() -> None:
    server = SelectableServer()
    server.failures["chunk"] = DefiniteServerError("interrupted", code=3024)
    with pytest.raises(ChunkRetryError, match="longer than 600 s to read: use smaller chunks") as caught:
        read(server, WHOLE)
    assert caught.value.table == "d.t"


def test_an_engine_without_consistent_reads() -> None:
    server = SelectableServer()
    server.engine = "MyISAM"
    with pytest.raises(SnapshotRefusedError, match=r"engine MyISAM has no consistent reads: ALTER TABLE"):
        read(server, WHOLE)


def test_columns_that_the_account_may_not_select() -> None:
    server = SelectableServer()
    server.failures["SELECT `headgate: no such column`"] = AccessError("denied", code=1143)
    with pytest.raises(AccessError, match=r"GRANT SELECT ON `d`\.`t`"):
        read(server, WHOLE)


def test_the_wrong_server_and_one_that_lost_what_it_had() -> None:
    server = SelectableServer()
    server.change((None, (1, 0)))
    with pytest.raises(HistoryRewrittenError, match=f"it had executed {UUID}:2 and now lacks that"):
        read(server, WHOLE, executed=gtids(1, 2))
    of_another = server.executed | GtidSet.parse(f"{OTHER}:1")
    with pytest.raises(HistoryRewrittenError, match=f"it had executed {OTHER}:1"):
        read(server, WHOLE, executed=of_another)
    server.replicates = True
    with pytest.raises(ServerBehindError, match="the server lacks transactions that the snapshot needs: wait for it"):
        read(server, WHOLE, executed=of_another)
    server.uuid = OTHER
    with pytest.raises(ServerBehindError, match=f"connected to server {OTHER}, but the chunk was planned on {UUID}"):
        read(server, WHOLE)
    assert not any("MAX_EXECUTION_TIME" in sql for sql in server.statements)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            TransientServerError("timeout", code=1205),
            ChunkRetryError,
            "d.t could not be locked within 5 s: a transaction",
        ),
        (DefiniteServerError("no table", code=1146), ChunkRetryError, "a table was dropped before it could be locked"),
        (DefiniteServerError("read only", code=1290), DefiniteServerError, "read only"),
        (AccessError("GRANT SELECT", code=1044), AccessError, "GRANT SELECT, and LOCK TABLES on it, or set watermark"),
    ],
)
def test_tables_that_cannot_be_locked(error: Exception, kind: type[Exception], message: str) -> None:
    server = SelectableServer()
    server.change((None, (1, 0)))
    server.failures["LOCK TABLES"] = error
    with pytest.raises(kind, match=message):
        read(server, WHOLE, locks=SETUP)

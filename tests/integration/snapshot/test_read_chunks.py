"""What a chunk's reading does when the server does something else meanwhile.

Races are made, not hoped for: E is taken first, then the other thing happens, then the chunk is read. That is the same
to the reader as if it had happened while it read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from headgate.carrier import DATA_COLUMN, encode
from headgate.catalog import Column, TableDef
from headgate.errors import ChunkRetryError, HistoryRewrittenError, ServerBehindError, SnapshotRefusedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed, select_blocks
from headgate.offsets import ChunkSpec
from headgate.policies import Policies
from headgate.replication import SNAPSHOT_FILE, SNAPSHOT_POS
from headgate.snapshot import ChunkOptions, ChunkRead, HighWatermark, Redo, first_chunk_bounds, read_chunks
from headgate_testing import MySQLServer
from tests.integration.databases import Database


@dataclass
class Scene(Database):
    """A table ``t`` with rows 1 to 9, and the E at which it had them."""

    server: MySQLServer
    db: str
    settings: ConnectionSettings
    executed: GtidSet

    def mark(self) -> None:
        with Connection.open(self.settings) as connection:
            self.executed = gtid_executed(connection)

    def chunk(self, table: str = "t", lo: int | None = None, hi: int | None = None, number: int = 0) -> ChunkSpec:
        first, last = (None if bound is None else (str(bound),) for bound in (lo, hi))
        return ChunkSpec(f"{self.db}.{table}", number, first, last)

    def read(self, *chunks: ChunkSpec, **options: Any) -> list[Any]:
        """Read some chunks; by default one of all of ``t``. Options of the read, and how chunks are read."""
        uuid = self.server.server_uuid
        read = ChunkRead(self.settings, chunks or [self.chunk()], self.executed, uuid, epoch=5, planned_us=1000)
        names = {"executed", "first_ordinal", "server_uuid"} & options.keys()
        read = replace(read, **{name: options.pop(name) for name in names})
        return list(read_chunks(read, ChunkOptions(**options)))


def order_of(kind: str) -> str:
    """The order of a key ``id`` of a type."""
    table = TableDef("d", "t", (Column("id", kind),), key=(0,))
    return first_chunk_bounds(lambda _: [("9",)], table, epoch=1, rows=1).order


def ids(items: list[Any]) -> list[int]:
    return sorted(i for item in items for i in item.batch.column("id").to_pylist())


def reason(items: list[Any]) -> str:
    assert len(items) == 1
    assert isinstance(items[0], Redo), items
    return items[0].reason


@pytest.fixture
def scene(mysql_server: MySQLServer, mysql_db: str) -> Scene:
    scene = Scene(mysql_server, mysql_db, ConnectionSettings.from_url(mysql_server.url), GtidSet())
    scene.do("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", "CREATE TABLE bare (id INT)")
    scene.do(
        "INSERT INTO t VALUES " + ",".join(f"({i}, 'v{i}')" for i in range(1, 10)), "INSERT INTO bare VALUES (1), (1)"
    )
    scene.mark()
    return scene


def test_rows_are_canonical_images(scene: Scene) -> None:
    first, second = scene.read(scene.chunk(hi=4), scene.chunk(lo=4, number=1), first_ordinal=100)
    assert first.table.full_name == f"{scene.db}.t"
    assert first.batch.schema.names == ["_op", "_seq", "_gtid", "_ts", "id", "v"]
    assert first.batch.schema.metadata[b"headgate.key"] == b'["id"]'
    assert set(first.batch.column("_op").to_pylist()) == {"r"}
    seqs = [seq for item in (first, second) for seq in item.batch.column("_seq").to_pylist()]
    assert seqs == [{"epoch": 5, "file": SNAPSHOT_FILE, "pos": SNAPSHOT_POS, "ordinal": 100 + i} for i in range(9)]
    assert first.batch.column("_gtid").null_count == 4
    assert {moment.microsecond for moment in second.batch.column("_ts").to_pylist()} == {1000}
    assert (ids([first]), ids([second])) == ([1, 2, 3, 4], [5, 6, 7, 8, 9])


def test_changes_after_e_are_turned_back(scene: Scene) -> None:
    scene.do("DELETE FROM t WHERE id = 2", "UPDATE t SET v = 'new' WHERE id = 3", "UPDATE t SET id = 50 WHERE id = 4")
    scene.do("INSERT INTO t VALUES (60, 'x')", "UPDATE t SET id = 70 WHERE id = 60", "REPLACE INTO t VALUES (5, 'y')")
    low, high = scene.read(scene.chunk(hi=4), scene.chunk(lo=4))
    assert sorted(low.batch.to_pydict()["v"]) == ["v1", "v2", "v3", "v4"]
    assert sorted(high.batch.to_pydict()["v"]) == ["v5", "v6", "v7", "v8", "v9"]


def test_an_empty_chunk_gives_one_batch_without_rows(scene: Scene) -> None:
    scene.do("INSERT INTO t VALUES (100, 'later')")
    (empty,) = scene.read(scene.chunk(lo=9))
    assert empty.batch.num_rows == 0
    (rows,) = scene.read()
    assert rows.batch.schema == empty.batch.schema
    assert rows.batch.num_rows == 9


@pytest.mark.parametrize(
    ("statements", "cause"),
    [
        (["ALTER TABLE t ADD COLUMN w INT"], "ALTER TABLE t ADD COLUMN w INT"),
        (["ALTER TABLE t RENAME TO u", "CREATE TABLE t LIKE u"], "RENAME"),
        (["CREATE TABLE n LIKE t", "RENAME TABLE t TO o, n TO t"], "RENAME"),
        (["CREATE INDEX i ON t (v)"], "CREATE INDEX"),
        (["ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2"], "PARTITION BY"),
        (["ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2", "ALTER TABLE t TRUNCATE PARTITION p0"], "PARTITION"),
        (["DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))"], "DROP TABLE"),
        (["DROP TABLE t"], "does not exist"),
        (["ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"], "another key"),
    ],
)
def test_ddl_of_the_table_gives_redo(scene: Scene, statements: list[str], cause: str) -> None:
    scene.do("UPDATE t SET v = 'x' WHERE id = 1", *statements)
    chunk = replace(scene.chunk(lo=0, number=7), order=order_of("int"))
    items = scene.read(chunk)
    assert cause in reason(items)
    assert items[0].chunk == chunk
    assert items[0].whole_table == (cause in ("does not exist", "another key"))
    assert json.loads(encode(items[0])[DATA_COLUMN][0].as_py())["chunk"] == chunk.to_dict()


def test_ddl_of_another_table_does_not(scene: Scene) -> None:
    scene.do("ALTER TABLE bare ADD COLUMN w INT", "CREATE TABLE other (a INT)", "DROP TABLE other")
    assert ids(scene.read()) == list(range(1, 10))


def test_one_table_of_a_task_gives_redo_and_the_other_rows(scene: Scene) -> None:
    scene.do("CREATE TABLE u LIKE t", "INSERT INTO u SELECT * FROM t")
    scene.mark()
    scene.do("ALTER TABLE u ADD COLUMN w INT", "DELETE FROM t")
    items = scene.read(scene.chunk("u", hi=4), scene.chunk("t", hi=4), scene.chunk("u", lo=4), scene.chunk("t", lo=4))
    assert [type(item).__name__ for item in items] == ["Redo", "ImageBatch", "Redo", "ImageBatch"]
    assert ids([items[1], items[3]]) == list(range(1, 10))


def test_a_truncated_table(scene: Scene) -> None:
    """Its rows at E are gone, but for those that were changed before; nothing says which they were."""
    scene.do("DELETE FROM t WHERE id < 3", "TRUNCATE t", "INSERT INTO t VALUES (7, 'after')")
    assert "truncated" in reason(scene.read())
    assert ids(scene.read(truncate="keep")) == [1, 2]


@pytest.mark.parametrize("kind", ["binary", "varchar", "time", "decimal", "double"])
def test_a_bound_of_a_key_of_another_type(scene: Scene, kind: str) -> None:
    """What MySQL makes of such a comparison is an error as often as not."""
    (redo,) = scene.read(replace(scene.chunk(hi=4), order=order_of(kind)))
    assert redo.whole_table
    assert redo.reason == "the table has another key, or another order of it, than when the chunk was planned"


def test_a_table_that_becomes_another_one_just_before_its_select(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With values that the columns of before cannot have: that is no damage, and the next try finds the statement."""

    def late(*arguments: Any, **options: Any) -> Iterator[Any]:
        scene.do("DROP TABLE t", "CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, v INT)", "INSERT INTO t VALUES ('x', 1)")
        return select_blocks(*arguments, **options)

    monkeypatch.setattr("headgate.snapshot._reader.select_blocks", late)
    with pytest.raises(ChunkRetryError, match="the table changed while it was read"):
        scene.read()
    monkeypatch.undo()
    assert "DDL" in reason(scene.read())


def test_a_bound_that_the_key_cannot_hold_any_more(scene: Scene) -> None:
    scene.do("ALTER TABLE t MODIFY id TINYINT")
    scene.mark()
    scene.do("DELETE FROM t WHERE id = 2")
    assert ids(scene.read(scene.chunk(lo=1, hi=5_000_000_000))) == list(range(2, 10))


def test_a_table_without_a_key(scene: Scene) -> None:
    scene.do("DELETE FROM t")
    assert ids(scene.read(scene.chunk("bare"))) == [1, 1]
    scene.do("INSERT INTO bare VALUES (2)")
    assert "without a key" in reason(scene.read(scene.chunk("bare")))
    scene.mark()
    assert ids(scene.read(scene.chunk("bare"))) == [1, 1, 2]


def test_another_or_an_older_server_is_refused(scene: Scene) -> None:
    with pytest.raises(ServerBehindError, match="planned on"):
        scene.read(server_uuid="3e11fa47-71ca-11e1-9e33-c80aa9429562")
    unseen = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3")
    with pytest.raises(HistoryRewrittenError, match=f"had executed {unseen} and now lacks that"):
        scene.read(executed=scene.executed | unseen)


def test_an_engine_without_consistent_reads_is_refused(scene: Scene) -> None:
    scene.do("CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM")
    with pytest.raises(SnapshotRefusedError, match="MyISAM"):
        scene.read(scene.chunk("m"))


@pytest.mark.parametrize("name", ["a.b", "we`ird", "!x", "[y]*", "ü ?"])
def test_names_with_anything_in_them(scene: Scene, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    scene.do(f"CREATE TABLE {quoted} LIKE t", f"INSERT INTO {quoted} SELECT * FROM t")
    scene.mark()
    scene.do(f"DELETE FROM {quoted} WHERE id > 3")
    assert ids(scene.read(scene.chunk(name))) == list(range(1, 10))


def large(scene: Scene, rows: int) -> None:
    numbers = f"JSON_TABLE(CONCAT('[0', REPEAT(',0', {rows - 1}), ']'), '$[*]' COLUMNS (i FOR ORDINALITY)) AS n"
    scene.do(
        f"CREATE TABLE big AS SELECT i AS id, REPEAT('x', 50) AS v FROM {numbers}",
        "ALTER TABLE big ADD PRIMARY KEY (id)",
    )
    scene.mark()


@pytest.mark.parametrize("change", ["UPDATE big SET v = 'y'", "DELETE FROM big", "UPDATE big SET id = -id"])
def test_a_change_of_every_row_is_turned_back(scene: Scene, change: str) -> None:
    large(scene, 150_000)
    scene.do(change)
    items = scene.read(scene.chunk("big", hi=100_000), scene.chunk("big", lo=100_000))
    assert ids(items) == list(range(1, 150_001))
    assert {v for item in items for v in item.batch.column("v").unique().to_pylist()} == {"x" * 50}


@pytest.mark.parametrize("window", ["keep", "drop"])
def test_rows_that_are_not_turned_back_come_with_what_makes_them_exact(scene: Scene, window: Any) -> None:
    policies = Policies(window=window)
    assert not [item for item in scene.read(policies=policies) if isinstance(item, HighWatermark)]
    scene.do("CREATE TABLE other (id INT PRIMARY KEY)", "INSERT INTO other VALUES (1)")
    scene.mark()
    scene.do("INSERT INTO other VALUES (2)")
    items = scene.read(scene.chunk(), policies=policies)
    assert not [item for item in items if isinstance(item, HighWatermark)], "the table itself was not written"
    scene.do("UPDATE t SET id = 99 WHERE id = 3")
    after = GtidSet.parse(scene.server.gtid_executed)
    items = scene.read(scene.chunk(hi=5), scene.chunk("other"), policies=policies)
    marks = {item.table: item.gtid for item in items if isinstance(item, HighWatermark)}
    assert marks.keys() == {f"{scene.db}.t", f"{scene.db}.other"}, "each table that was written, also in another range"
    assert all(scene.executed | after <= mark for mark in marks.values())
    items = scene.read(*(scene.chunk(lo=lo, hi=lo + 1) for lo in range(5)), policies=policies)
    assert [type(item) for item in items].count(HighWatermark) == 1, "one for all chunks of a task"
    assert not [item for item in scene.read() if isinstance(item, HighWatermark)], "rows that are turned back are exact"

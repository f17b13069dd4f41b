"""Batches made by hand into real Delta tables: what a reader finds there, and after a batch is given twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.apply import CurrentTable
from headgate.carrier import Commits
from headgate.catalog import AddedColumn, DroppedColumn, RedefinedColumn
from headgate.config import SchemaChangesConfig
from headgate.decide import Policy
from headgate.delta import _commit
from headgate.errors import CommitConflictError, CommitUnknownError, ConfigError, TargetError
from headgate.lake import DeltaPath, Lake, WriteMethod, ledger_notifications, newest_row, read_as_of
from headgate.sinks import BatchReport, BatchWriter
from headgate.stores import _folder
from tests.fix_carrier import UUID, Crash, FakeBatch, FakeTable, crash_before_ledger
from tests.integration.outside import lake_dicts, lake_rows, logged, operations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = FakeTable()
NAME = ORDERS.name


class Bench:
    """One lake and the pipeline that writes it; ``restart`` forgets everything but the files."""

    def __init__(self, spark: SparkSession, path: Path, modes: tuple[str, ...] = ("current", "changelog")) -> None:
        self.spark = spark
        self.lake = Lake.at(path)
        self.modes = modes
        self.restart()

    def restart(self) -> None:
        self.writer = BatchWriter(self.spark, self.lake, "shop", self.modes)

    def write(self, *batches: FakeBatch) -> BatchReport:
        for batch in batches:
            report = self.writer.write(batch.frame(self.spark), batch.epoch)
        return report

    def crash_before_ledger(self, batch: FakeBatch) -> None:
        crash_before_ledger(self.writer, lambda: self.write(batch))
        self.restart()

    def rows(self, table: str = NAME) -> list[tuple[Any, ...]]:
        return sorted(lake_rows(self.lake.current(table)).elements())

    def log(self, table: str = NAME) -> list[tuple[Any, ...]]:
        rows = logged(self.lake.changelog(table))
        return [(row["_op"], row["id"], row["_before"] and row["_before"]["id"]) for row in rows]

    def operations(self, table: str = NAME) -> list[str]:
        return operations(self.lake.current(table))

    def version(self, table: str = NAME) -> int:
        return DeltaPath(self.spark, self.lake.current(table)).version()


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path / "lake")


def first_read(*values: tuple[Any, ...], table: FakeTable = ORDERS) -> FakeBatch:
    return FakeBatch(1).snapshot(table.name, 1, append=True, first=True, last=True).chunk(table, values)


def live(epoch: int, *images: tuple[Any, ...], table: FakeTable = ORDERS, file: int = 1) -> FakeBatch:
    return FakeBatch(epoch).images(table, images, file=file)


def test_spark_vacuums_a_table_of_which_few_rows_are_deleted(bench: Bench) -> None:
    bench.write(first_read((1, "a"), (2, "b")), live(2, ("d", 10, 1, "a")))
    setting = "spark.databricks.delta.retentionDurationCheck.enabled"
    bench.spark.conf.set(setting, "false")
    try:
        bench.spark.sql(f"VACUUM delta.`{bench.lake.current(NAME)}` RETAIN 0 HOURS")
    finally:
        bench.spark.conf.unset(setting)
    assert bench.rows() == [(2, "b")]


def test_a_snapshot_and_then_changes(bench: Bench) -> None:
    bench.write(first_read((1, "a"), (2, "b"), (3, "c")))
    report = bench.write(
        live(
            2,
            ("c", 10, 4, "d"),
            ("b", 20, 1, "a"),
            ("u", 20, 1, "a2"),
            ("d", 30, 2, "b"),
            ("b", 40, 3, "c"),  # the key changes
            ("u", 40, 33, "c"),
            ("c", 50, 5, "e"),  # comes and goes within the batch
            ("d", 60, 5, "e"),
        )
    )
    assert bench.rows() == [(1, "a2"), (4, "d"), (33, "c")]
    assert bench.log() == [
        *[("r", 1, None), ("r", 2, None), ("r", 3, None)],
        *[("c", 4, None), ("u", 1, 1), ("d", 2, None), ("u", 33, 3), ("c", 5, None), ("d", 5, None)],
    ]
    assert report.tables[NAME].state == "live"
    assert report.tables[NAME].version == bench.version()
    assert report.images == {NAME: 8}
    assert report.commits == {NAME: [Commits(1_700_000_000_000_000, 1_700_000_000_000_000, 6)]}
    assert report.write_methods == {NAME: {WriteMethod.UPSERT}}


def test_keys_that_swap(bench: Bench) -> None:
    bench.write(first_read((1, "a"), (2, "b")))
    swap = [
        ("b", 10, 1, "a"),
        ("u", 10, 9, "a"),
        ("b", 20, 2, "b"),
        ("u", 20, 1, "b"),
        ("b", 30, 9, "a"),
        ("u", 30, 2, "a"),
    ]
    bench.write(live(2, *swap))
    assert bench.rows() == [(1, "b"), (2, "a")]


@pytest.mark.parametrize("other_file", [1, 2, 0])
def test_killed_between_the_tables_and_the_ledger(bench: Bench, other_file: int) -> None:
    """The replay may come from another server, where the same changes have other positions."""
    bench.crash_before_ledger(first_read((1, "a"), (2, "b"), (3, "c")))
    bench.write(first_read((1, "a"), (2, "b"), (3, "c")))
    assert bench.rows() == [(1, "a"), (2, "b"), (3, "c")]
    images = [
        ("d", 10, 1, "a"),
        ("b", 20, 2, "b"),
        ("u", 20, 7, "b"),
        ("c", 30, 4, "d"),
        ("d", 40, 4, "d"),
        ("c", 50, 1, "x"),
    ]
    bench.crash_before_ledger(live(2, *images))
    assert bench.writer.ledger.last is not None
    assert bench.writer.ledger.last.epoch == 1
    report = bench.write(live(2, *images, file=other_file))
    assert bench.rows() == [(1, "x"), (3, "c"), (7, "b")]
    assert [op for op, *_ in bench.log()] == ["r", "r", "r", "d", "u", "c", "d", "c"]
    assert report.tables[NAME].version == bench.version()


def test_a_committed_batch_is_not_written_again(bench: Bench) -> None:
    bench.write(first_read((1, "a")), live(2, ("c", 10, 2, "b")))
    before = bench.version()
    bench.restart()
    report = bench.write(live(2, ("c", 10, 2, "b")))
    assert report.replayed
    assert bench.version() == before
    for behind in (first_read((1, "a")), FakeBatch(3, start_epoch=1).images(ORDERS, [("c", 10, 2, "b")])):
        with pytest.raises(TargetError, match="checkpoint is older"):
            bench.write(behind)
    assert bench.log() == [("r", 1, None), ("c", 2, None)]


def test_a_ledger_row_that_arrives_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store does not answer, the run is retried, and then the row appears."""
    bench.write(first_read((1, "a")))
    late: list[tuple[Path, bytes]] = []
    link = _folder._link

    def lost(aside: Path, path: Path) -> None:
        if path.is_relative_to(bench.lake.ledger):
            late.append((path, aside.read_bytes()))
            raise OSError("timed out")
        link(aside, path)

    with monkeypatch.context() as patch:
        patch.setattr(_folder, "_link", lost)
        patch.setattr(_commit, "_RETRY", replace(_commit._RETRY, first_seconds=0.0))
        with pytest.raises(CommitUnknownError):
            bench.write(live(2, ("c", 10, 4, "d")))
    bench.restart()
    late[0][0].write_bytes(late[0][1])
    with pytest.raises(CommitConflictError, match="arrived late"):
        bench.write(live(2, ("c", 10, 4, "d")))
    bench.restart()
    assert bench.write(live(2, ("c", 10, 4, "d"))).replayed
    assert (bench.rows(), bench.log()) == ([(1, "a"), (4, "d")], [("r", 1, None), ("c", 4, None)])


def test_the_ledger_row_is_a_consistent_view(bench: Bench) -> None:
    items = FakeTable("shop.items")
    bench.write(
        first_read((1, "a")).snapshot(items.name, 1, append=True, first=True, last=True).chunk(items, [(1, "i")])
    )
    bench.write(live(2, ("c", 10, 2, "b")).images(items, [("c", 11, 2, "j")]))
    bench.write(live(3, ("c", 20, 3, "c")))

    def view(**at: Any) -> dict[str, int]:
        return {name: frame.count() for name, frame in read_as_of(bench.spark, bench.lake.path, **at).items()}

    assert view() == {"shop.orders": 3, "shop.items": 2}
    assert view(batch=1) == {"shop.orders": 1, "shop.items": 1}
    assert view(gtid=f"{UUID}:1-2") == {"shop.orders": 2, "shop.items": 2}
    row = newest_row(bench.lake)
    (by_spark,) = bench.spark.read.format("delta").load(bench.lake.ledger).where("epoch = 3").collect()
    states = {(one["table"], one["state"], one["version"]) for one in by_spark["tables"]}
    assert states == {(name, state.state, state.version) for name, state in row.tables.items()}
    assert (by_spark["epoch"], by_spark["gtid"]) == (row.epoch, row.gtid) == (3, f"{UUID}:1-3")
    with pytest.raises(ConfigError, match="yet"):
        view(gtid=f"{UUID}:1-9")


def test_an_added_column_is_filled_with_its_default_once(bench: Bench) -> None:
    """In the rows there were and in images from before it, also if the driver dies after the tables."""
    wider = FakeTable(columns=(("id", "bigint"), ("added", "int"), ("item", "string")))
    five = AddedColumn("added", default="5")

    def batch() -> FakeBatch:
        fake = live(2, ("b", 10, 1, "a"), ("u", 10, 1, "a2")).images(
            wider, [("c", 30, 3, 7, "c"), ("c", 31, 4, None, "d")]
        )
        return fake.ddl(NAME, "ALTER TABLE orders ADD added INT DEFAULT 5 AFTER id", "alter", 20, adds=[five])

    bench.write(first_read((1, "a"), (2, "b")))
    bench.crash_before_ledger(batch())
    bench.write(batch())
    assert bench.rows() == [(1, 5, "a2"), (2, 5, "b"), (3, 7, "c"), (4, None, "d")]
    frame = bench.spark.read.format("delta").load(bench.lake.current(NAME))
    assert frame.columns == ["id", "added", "item", "_seq", "_gtid", "_ts"]
    assert [row["added"] for row in logged(bench.lake.changelog(NAME), where="_op = 'c'")] == [7, None]
    history = [
        (row["db"], row["table"], row["action"], row["outcome"], row["reason"])
        for row in lake_dicts(bench.lake.schema_history)
    ]
    assert history == [("shop", "orders", "alter", "applied", None)]
    alone = FakeBatch(3)
    widest = FakeTable(columns=(*wider.columns, ("price", "double")))
    price = [AddedColumn("price", nullable=False, default="0.5")]
    bench.write(alone.ddl(NAME, "ALTER TABLE orders ADD price ...", "alter", 5, adds=price, schema=widest))
    assert {row[-1] for row in bench.rows()} == {0.5}
    assert bench.writer.inbox.signals() == {}


BEFORE = FakeTable(columns=(("id", "bigint"), ("n", "int"), ("item", "string"), ("old", "string")))
AFTER = FakeTable(columns=(("id", "bigint"), ("n", "bigint"), ("name", "string")))
CHANGES = (RedefinedColumn("n", "n", "bigint"), RedefinedColumn("item", "name"), DroppedColumn("old"))


def altered(epoch: int) -> FakeBatch:
    """Images from before and after statements that drop, rename and widen columns."""
    fake = live(epoch, ("b", 10, 1, 1, "a", "x"), ("u", 10, 1, -1, "a2", "y"), ("c", 11, 4, 4, "d", "z"), table=BEFORE)
    fake.images(AFTER, [("c", 30, 3, 1 << 40, "c")])
    return fake.ddl(NAME, "ALTER TABLE orders ...", "alter", 20, adds=CHANGES, schema=AFTER)


def test_columns_are_dropped_renamed_and_widened_once(bench: Bench) -> None:
    """In the rows there were and in images from before it, also if the driver dies after the tables."""
    bench.write(first_read((1, 1, "a", "x"), (2, None, None, "x"), table=BEFORE))
    bench.crash_before_ledger(altered(2))
    report = bench.write(altered(2))
    expected = [(1, -1, "a2"), (2, None, None), (3, 1 << 40, "c"), (4, 4, "d")]
    assert bench.rows() == expected
    assert report.tables[NAME].state == "live"
    done = [one for one in bench.operations() if one != "STREAMING UPDATE"]
    assert done == ["CREATE TABLE", "WRITE", "REPLACE COLUMNS", "SET TBLPROPERTIES"]
    log = logged(bench.lake.changelog(NAME))
    shown = [(row["_op"], row["id"], row["n"], row["item"], row["name"], row["old"]) for row in log]
    assert shown == [
        ("r", 1, 1, "a", None, "x"),
        ("r", 2, None, None, None, "x"),
        ("u", 1, -1, "a2", None, "y"),
        ("c", 4, 4, "d", None, "z"),
        ("c", 3, 1 << 40, None, "c", None),
    ]
    assert [(row["_before"]["n"], row["_before"]["item"]) for row in log if row["_op"] == "u"] == [(1, "a")]
    assert dict(bench.spark.read.format("delta").load(bench.lake.changelog(NAME)).dtypes)["n"] == "bigint"
    bench.write(live(3, ("d", 10, 3, 1 << 40, "c"), table=AFTER))
    narrower = FakeTable(columns=(("id", "bigint"), ("n", "bigint")))
    alone = FakeBatch(4)
    alone.ddl(NAME, "ALTER TABLE orders DROP name", "alter", 5, adds=[DroppedColumn("name")], schema=narrower)
    assert bench.write(alone).tables[NAME].state == "live"
    assert bench.rows() == [row[:2] for row in expected if row[0] != 3]


def test_a_dropped_column_may_stay_without_values(bench: Bench) -> None:
    policy = Policy(schema_changes=SchemaChangesConfig(dropped_columns="keep"))
    bench.writer = BatchWriter(bench.spark, bench.lake, "shop", bench.modes, policy=lambda _: policy)
    bench.write(first_read((1, 1, "a", "x"), (2, None, None, "x"), table=BEFORE), altered(2))
    expected = [(1, -1, "a2", None), (2, None, None, None), (3, 1 << 40, "c", None), (4, 4, "d", None)]
    assert bench.rows() == expected
    bench.restart()
    report = bench.write(live(3, ("d", 10, 3, 1 << 40, "c"), ("c", 11, 5, 5, "e"), table=AFTER))
    assert report.tables[NAME].state == "live"
    assert bench.rows() == [*expected[:2], expected[3], (5, 5, "e", None)]
    back = FakeTable(columns=(*AFTER.columns, ("old", "string")))
    added = FakeBatch(4).ddl(NAME, "ALTER TABLE orders ADD old TEXT", "alter", 5, adds=[AddedColumn("old")])
    assert bench.write(added.images(back, [("c", 10, 6, 6, "f", "o")])).tables[NAME].state == "stale"
    again = FakeBatch(5).snapshot(NAME, 5, append=False, first=True, last=True).chunk(back, [(6, 6, "f", "o")])
    assert bench.write(again).tables[NAME].state == "live"
    assert bench.rows() == [(6, 6, "f", "o")]


@pytest.mark.parametrize("steps", range(4))
def test_killed_between_the_steps_of_an_alter(bench: Bench, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    bench.write(first_read((1, 1, "a", "x"), (2, None, None, "x"), table=BEFORE))
    added = AddedColumn("k", default="7")
    after = FakeTable(columns=(*AFTER.columns, ("k", "int")))

    def batch() -> FakeBatch:
        fake = live(2, ("d", 10, 2, None, None, "x"), ("c", 11, 4, 4, "d", "z"), table=BEFORE)
        fake.images(after, [("c", 30, 3, 1 << 40, "c", 1)])
        return fake.ddl(NAME, "ALTER TABLE orders ...", "alter", 20, adds=[*CHANGES, added], schema=after)

    with monkeypatch.context() as patch:
        perform, left = CurrentTable._perform, [steps]

        def dies(self: CurrentTable, *arguments: Any) -> None:
            if not left[0]:
                raise Crash
            left[0] -= 1
            perform(self, *arguments)

        patch.setattr(CurrentTable, "_perform", dies)
        with pytest.raises(Crash):
            bench.write(batch())
    bench.restart()
    assert bench.write(batch()).tables[NAME].state == "live"
    assert bench.rows() == [(1, 1, "a", 7), (3, 1 << 40, "c", 1), (4, 4, "d", 7)]


def test_columns_that_do_not_fit_hold_the_table_and_a_reread_replaces_it(bench: Bench) -> None:
    retyped = FakeTable(columns=(("id", "bigint"), ("item", "int")))
    items = FakeTable("shop.items")
    bench = Bench(bench.spark, Path(bench.lake.path), ("current",))
    bench.write(first_read((1, "a"), (2, "b")))
    batch = live(2, ("c", 10, 3, 3), table=retyped).create(items.name).images(items, [("c", 11, 1, "x")])
    report = bench.write(batch)
    assert report.tables[NAME].state == "stale"
    assert bench.rows() == [(1, "a"), (2, "b")]
    assert bench.rows(items.name) == [(1, "x")]
    signal = bench.writer.inbox.read("signals/ddl-2-shop-002eorders.json")
    assert signal is not None
    assert signal["tables"] == [NAME]
    again = FakeBatch(3).snapshot(NAME, 3, append=False, first=True, last=True).chunk(retyped, [(1, 1), (3, 3)])
    bench.crash_before_ledger(again)
    report = bench.write(again)
    assert bench.rows() == [(1, 1), (3, 3)]
    assert report.tables[NAME].state == "live"


def test_a_changelog_that_cannot_hold_a_type_stops_its_table_alone(bench: Bench) -> None:
    retyped = FakeTable(columns=(("id", "bigint"), ("item", "int")))
    items = FakeTable("shop.items")
    bench.write(first_read((1, "a")))
    report = bench.write(live(2, ("c", 10, 3, 3), table=retyped).create(items.name).images(items, [("c", 11, 1, "x")]))
    assert (report.tables[NAME].state, report.tables[items.name].state) == ("stopped", "live")
    assert [op for op, *_ in bench.log()] == ["r"]
    folder = Path(bench.lake.changelog(NAME))
    remedy = f"move {folder} away, then read the table again with: headgate run --resnapshot '{NAME}'"
    assert report.warnings[0].endswith(remedy)
    folder.rename(folder.with_name("away"))
    again = FakeBatch(3).snapshot(NAME, 3, append=False, first=True, last=True)
    report = bench.write(again.chunk(retyped, [(1, 1), (3, 3)]))
    assert report.tables[NAME].state == "live"
    assert [op for op, *_ in bench.log()] == ["r", "r"], "a new changelog begins"


def test_chunks_and_images_of_the_same_keys_are_upserted_in_one_commit(bench: Bench) -> None:
    """A table that was followed before it is read."""
    bench.write(live(1, ("c", 10, 20, "followed")).create(NAME))
    batch = FakeBatch(2).snapshot(NAME, 2, append=False, first=True)
    batch.images(ORDERS, [("u", 10, 1, "older"), ("c", 20, 4, "gone"), ("d", 30, 4, "gone"), ("c", 40, 9, "above")])
    batch.chunk(ORDERS, [(1, "a"), (2, "b")]).chunk(ORDERS, [(3, "c"), (5, "e")], start=100)
    bench.crash_before_ledger(batch)
    expected = [(1, "a"), (2, "b"), (3, "c"), (5, "e"), (9, "above"), (20, "followed")]
    assert bench.rows() == expected
    assert bench.operations() == ["CREATE TABLE", "STREAMING UPDATE", "STREAMING UPDATE"]
    bench.write(batch)
    assert bench.rows() == expected
    last = FakeBatch(3).snapshot(NAME, 2, append=False, last=True)
    bench.write(last.chunk(ORDERS, [(9, "above"), (20, "followed"), (21, "u")]))
    assert bench.rows() == [*expected, (21, "u")]


def test_inserts_of_the_signal_table_are_in_the_inbox_before_their_batch_counts(bench: Bench) -> None:
    """And once, however often the batch is written."""
    bench.write(first_read((1, "a")))
    signal = {"id": "ad hoc", "type": "pause-snapshot", "data": None}
    batch = live(2, ("c", 1, 2, "b")).signal("ops.signals", signal, {"problem": "unreadable"})
    bench.crash_before_ledger(batch)
    signals = bench.writer.inbox.signals()
    names = list(signals)
    bench.write(batch)
    assert bench.writer.inbox.signals() == signals
    assert [signals[name] for name in names] == [
        {**signal, "submitted_us": 1}, {"problem": "unreadable", "submitted_us": 2}
    ]  # fmt: skip
    assert "ops.signals" not in bench.writer.ledger.tables()
    bench.restart()
    assert bench.write(batch).replayed
    assert bench.writer.inbox.signals() == signals
    taken = live(3, ("c", 1, 3, "c"))
    taken.actions = [{"id": "ad hoc", "file": names[0], "type": "pause-snapshot", "sent_us": 1}]
    bench.write(taken)
    assert list(bench.writer.inbox.signals()) == names[1:]


def test_a_file_in_the_inbox_that_is_no_signal_stops_nothing(bench: Bench) -> None:
    folder = Path(bench.writer.inbox.path, "signals")
    folder.mkdir(parents=True)
    (folder / "torn.json").write_text("{")
    bench.writer.inbox.write("signals/empty.json", {"type": "resnapshot"})
    bench.write(first_read((1, "a")))
    assert bench.rows() == [(1, "a")]


@pytest.mark.parametrize("whole_table", [False, True])
def test_a_chunk_to_redo_is_handed_back_and_holds_the_sweep(bench: Bench, whole_table: bool) -> None:
    bench.write(first_read((1, "a"), (2, "b")))
    batch = FakeBatch(2).snapshot(NAME, 2, append=False, first=True, last=True)
    report = bench.write(batch.redo(NAME, whole_table=whole_table))
    assert report.tables[NAME].state == "snapshotting"
    assert bench.rows() == [(1, "a"), (2, "b")]
    assert bench.writer.inbox.read("signals/redo-2-0.json") == {
        "submitted_us": FakeBatch(2).described().header.planned_us,
        "type": "redo",
        "table": NAME,
        "chunk": {"table": NAME, "number": 0, "lo": None, "hi": None},
        "reason": "altered",
        "whole_table": whole_table,
    }
    assert bench.writer.inbox.sink_tables().finished == frozenset()


def test_killed_after_rows_that_the_replay_does_not_have(bench: Bench) -> None:
    """The table was altered between the two, so its chunk has to wait, and a deletion meanwhile is left out."""
    bench.write(first_read((1, "a"), (2, "b")))
    bench.write(FakeBatch(2).ddl(NAME, "ALTER TABLE orders MODIFY item TEXT", "alter", 5))
    begun = FakeBatch(3).snapshot(NAME, 3, append=False, first=True)
    bench.crash_before_ledger(
        FakeBatch(3).snapshot(NAME, 3, append=False, first=True).chunk(ORDERS, [(1, "a"), (2, "b")])
    )
    report = bench.write(begun.redo(NAME))
    assert report.tables[NAME].state == "stale"
    bench.write(FakeBatch(4).snapshot(NAME, 3, append=False).images(ORDERS, [("d", 10, 1, "a")]))
    report = bench.write(FakeBatch(5).snapshot(NAME, 3, append=False, last=True).chunk(ORDERS, [(2, "b")]))
    assert report.tables[NAME].state == "live"
    assert bench.rows() == [(2, "b")]


def test_what_is_handed_back(bench: Bench) -> None:
    bench.writer.inbox.write("signals/1.json", {"type": "resnapshot", "tables": ["shop.*"]})
    batch = first_read((1, "a")).end(f"{UUID}:1")
    batch.actions = [{"id": "1", "type": "resnapshot"}]
    bench.write(batch)
    assert bench.writer.inbox.signals() == {}
    assert bench.writer.inbox.sink_tables().finished == {NAME}
    hint = bench.writer.inbox.read("hint.json")
    position = {"server_uuid": UUID, "file": "binlog.000001", "pos": 4}
    assert hint == {"gtid": f"{UUID}:1", **position, "created_s": 0}
    bench.write(live(2, ("c", 10, 2, "b")).end(f"{UUID}:1"))  # not at the batch's end
    assert bench.writer.inbox.read("hint.json") == hint


def test_a_dropped_table_keeps_its_rows_and_is_no_alarm(bench: Bench) -> None:
    bench.write(first_read((1, "a")))
    report = bench.write(FakeBatch(2).ddl(NAME, "DROP TABLE orders", "drop", 5))
    assert report.tables[NAME].state == "dropped"
    assert report.warnings == (f"{NAME} is dropped, and its rows stay: DROP TABLE orders",)
    bench.restart()
    bench.write(live(3, ("c", 10, 2, "b")))
    assert bench.rows() == [(1, "a")]


def _delta(bench: Bench, path: str) -> None:
    bench.spark.range(3).write.format("delta").save(path)


def _files(bench: Bench, path: str) -> None:
    Path(path).mkdir(parents=True)
    (Path(path) / "notes.txt").write_text("mine")


def _other_pipeline(bench: Bench, path: str) -> None:
    other = Bench(bench.spark, Path(bench.lake.path).parent / "other")
    other.writer.pipeline = "other"
    other.write(first_read((1, "a")))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(other.lake.current(NAME)).rename(path)


@pytest.mark.parametrize("occupy", [_delta, _files, _other_pipeline])
@pytest.mark.parametrize("sink", ["current", "changelog"])
def test_a_target_that_is_not_ours_is_refused_before_anything_is_written(
    bench: Bench, occupy: Callable[[Bench, str], None], sink: str
) -> None:
    path = bench.lake.current(NAME) if sink == "current" else bench.lake.changelog(NAME)
    occupy(bench, path)
    items = FakeTable("shop.items")
    batch = first_read((1, "a")).snapshot(items.name, 1, append=True).chunk(items, [(1, "i")])
    with pytest.raises(TargetError, match=r"choose another target\.path"):
        bench.write(batch)
    assert not DeltaPath(bench.spark, bench.lake.current(items.name)).exists()
    with pytest.raises(TargetError):
        bench.writer.check_targets(bench.spark, [NAME])


def test_what_a_killed_commit_leaves_is_not_in_the_way(bench: Bench) -> None:
    log = Path(bench.lake.current(NAME)) / "_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.5b1f.tmp").write_text("half", encoding="utf-8")
    bench.write(first_read((1, "a")))
    assert bench.rows() == [(1, "a")]


def test_two_pipelines_on_one_target(bench: Bench, spark: SparkSession) -> None:
    second = Bench(spark, Path(bench.lake.path))
    bench.write(first_read((1, "a")))
    with pytest.raises(TargetError, match="two pipelines"):
        second.write(FakeBatch(2, start_epoch=0).images(ORDERS, [("c", 10, 2, "b")]))
    with pytest.raises(TargetError, match="belongs to pipeline"):
        BatchWriter(spark, bench.lake, "other", ("current",))


def reads(batch: FakeBatch, state: str = "read") -> FakeBatch:
    batch.readings[NAME] = {"state": state, "since_epoch": 1, "maximum_key": "2", "last_processed_key": "2"}
    return batch


def test_what_a_batch_has_to_tell_is_committed_with_it(bench: Bench) -> None:
    """Killed before the ledger: nobody was told. After it: the same events, however often the batch is given."""
    batch = reads(first_read((1, "a"), (2, "b")))
    bench.crash_before_ledger(batch)
    assert ledger_notifications(bench.spark, bench.lake, after=0, limit=9) == []
    notifications = bench.write(reads(first_read((1, "a"), (2, "b")))).notifications
    assert [one.type for one in notifications] == ["STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    again = bench.write(batch)
    assert (again.replayed, again.notifications) == (True, notifications)
    bench.restart()
    assert bench.write(batch).notifications == notifications
    assert bench.write(live(2, ("c", 10, 4, "d"))).notifications == ()
    assert ledger_notifications(bench.spark, bench.lake, after=0, limit=9) == [(1, notifications)]
    assert ledger_notifications(bench.spark, bench.lake, after=1, limit=9) == []


def test_tables_that_a_stream_which_begins_anew_does_not_find(bench: Bench) -> None:
    bench.write(first_read((1, "a")))
    batch = FakeBatch(2, full_restart=True).snapshot("shop.other", 2, append=True, first=True, last=True)
    report = bench.write(batch.chunk(FakeTable("shop.other"), [(1, "x")]))
    assert {name: state.state for name, state in report.tables.items()} == {NAME: "dropped", "shop.other": "live"}
    assert "missing, or not followed" in str(report.tables[NAME].reason)
    assert bench.rows() == [(1, "a")]

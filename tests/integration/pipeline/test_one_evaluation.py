"""A batch is evaluated once: what is decided and what is written come from the same rows, although Spark may compute a
partition again, and a chunk that is read again may give others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from headgate.apply import _expand
from headgate.carrier import CARRIER_DDL, Batch
from headgate.decide import Policy
from headgate.lake import DeltaPath, Form, Lake
from headgate.pipeline import Pipeline
from headgate.sinks import BatchWriter
from headgate_testing import MySQLServer
from tests.fix_carrier import FakeBatch, FakeTable
from tests.integration.databases import pipeline_config
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.verifying import newest, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = FakeTable()
BARE = FakeTable("shop.bare", key=())
NAME, OTHER = ORDERS.name, BARE.name
KINDS: dict[str, Callable[[], FakeBatch]] = {
    "appended chunk": lambda: (
        FakeBatch(7, start_epoch=5).snapshot(NAME, 5, append=True, last=True).chunk(ORDERS, [(9, "x")])
    ),
    "merged chunk": lambda: (
        FakeBatch(7, start_epoch=5)
        .snapshot(NAME, 7, append=False, first=True, last=True)
        .chunk(ORDERS, [(1, "x"), (9, "x")])
    ),
    "changes": lambda: FakeBatch(7, start_epoch=5).images(ORDERS, [("d", 1, 1, "a"), ("c", 2, 9, "x")]),
    "partial images": lambda: FakeBatch(7, start_epoch=5).images(
        ORDERS, [("b", 1, 1, ...), ("u", 1, 1, ...), ("c", 2, 9, "x")]
    ),
    "whole keyless table": lambda: (
        FakeBatch(7, start_epoch=5).snapshot(OTHER, 7, append=False, first=True, last=True).chunk(BARE, [(9, "x")])
    ),
    "counted rows": lambda: FakeBatch(7, start_epoch=5).images(BARE, [("d", 1, 1, "a"), ("c", 2, 9, "x")]),
}

ONLY_PLAIN = ("partial images", "whole keyless table", "counted rows")


def evaluated_once(frame: DataFrame, folder: Path) -> DataFrame:
    """The same frame, each of whose partitions can be computed once."""
    folder.mkdir()

    def evaluate(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (folder / str(context.partitionId())).touch(exist_ok=False)
        yield from rows

    return frame.mapInArrow(evaluate, CARRIER_DDL)


@pytest.mark.parametrize("in_tasks", [False, True], ids=["driver", "tasks"])
@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for kind in KINDS for form in Form if form is Form.PLAIN or kind not in ONLY_PLAIN]
)
def test_each_partition_is_computed_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, form: Form, in_tasks: bool
) -> None:
    table = BARE if kind in ("whole keyless table", "counted rows") else ORDERS
    if in_tasks:
        monkeypatch.setattr(_expand, "_DRIVER_BYTES", 0)
    lake = Lake.at(tmp_path / "lake")
    writer = BatchWriter(
        spark, lake, "shop", ["current", "changelog"], policy=lambda _: Policy(form=form, changelog=True)
    )
    begin = FakeBatch(5, start_epoch=0).snapshot(
        table.name, 5, append=kind == "appended chunk", first=True, last="chunk" not in kind
    )
    writer.write(begin.chunk(table, [(1, "a"), (2, "b")]).frame(spark), 5)

    def lose_blocks(_: Batch) -> dict[str, Any]:
        spark.catalog.clearCache()
        return {}

    writer.unseen = lose_blocks
    writer.write(evaluated_once(KINDS[kind]().frame(spark), tmp_path / "partitions"), 7)
    assert [*(tmp_path / "partitions").iterdir()]
    assert newest(lake).tables[table.name].state == "live"
    ids = [row["id"] for row in DeltaPath(spark, lake.current(table.name)).read().where(form.condition).collect()]
    kept = {"merged chunk": [1, 9], "changes": [2, 9], "counted rows": [2, 9], "whole keyless table": [9]}
    assert sorted(ids) == kept.get(kind, [1, 2, 9])


@pytest.mark.parametrize("modes", [["current", "changelog"], ["history"]], ids="+".join)
def test_statements_between_decision_and_writes(
    mysql_server: MySQLServer,
    mysql_db: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modes: Sequence[str],
) -> None:
    """A chunk that is read again then gives nothing: its table was altered, or has no key and was written."""
    tables = [f"{mysql_db}.{name}" for name in ("keyed", "emptied", *(["bare"] if "current" in modes else []))]
    config = pipeline_config(mysql_server, tables, tmp_path, mode=json.dumps(modes))
    mysql_server.execute(
        *(f"CREATE TABLE {mysql_db}.{name} (id INT PRIMARY KEY, v INT)" for name in ("keyed", "emptied")),
        f"CREATE TABLE {mysql_db}.bare (id INT, v INT)",
        *(f"INSERT INTO {mysql_db}.{name} VALUES (1, 1), (2, 2), (3, 3)" for name in ("keyed", "emptied", "bare")),
    )
    statements = [
        f"ALTER TABLE {mysql_db}.keyed COMMENT 'x'",
        f"TRUNCATE TABLE {mysql_db}.emptied",
        f"INSERT INTO {mysql_db}.bare VALUES (4, 4)",
    ]
    decide = BatchWriter._decide

    def interrupted(writer: BatchWriter, session: SparkSession, batch: Batch, before: Any) -> Any:
        if batch.parts:
            mysql_server.execute(*statements)
            statements.clear()
        session.catalog.clearCache()
        return decide(writer, session, batch, before)

    lake = Lake.at(tmp_path / "lake")
    monkeypatch.setattr(BatchWriter, "_decide", interrupted)
    where = "_is_current" if "history" in modes else "true"
    Pipeline(config, spark).run(once=True)
    assert not statements
    for table in tables:
        assert newest(lake).tables[table].state == "live"
        assert len(lake_rows(lake.current(table), where=where)) == 3, "the rows that were decided by"
    Pipeline(config, spark).run(once=True)
    for table in tables:
        assert lake_rows(lake.current(table), ["id", "v"], where=where) == source_rows(mysql_server, table)
        result = verify(config, newest(lake), table)
        assert (result.state, result.differences) == ("live", 0), result

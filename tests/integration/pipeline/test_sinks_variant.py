"""JSON columns as VARIANT, which the sinks make of MySQL's text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fix_carrier import FakeTable
from tests.integration.pipeline.test_sinks import Bench, first_read, live

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ODD = "do.c`u"
DOCUMENTS = FakeTable("shop.docs", (("id", "bigint"), (ODD, "variant"), ("note", "string")))
BAG = FakeTable("shop.bag", (("id", "bigint"), ("j", "variant")), key=())


@pytest.mark.slow
def test_variants_in_current_and_changelog(spark: SparkSession, tmp_path: Path) -> None:
    bench, name, quoted = Bench(spark, tmp_path / "lake"), DOCUMENTS.name, "`do.c``u`"
    bench.write(
        first_read((1, '{"a": [1.50, 18446744073709551615]}', "x"), (2, "null", "y"), (3, None, "z"), table=DOCUMENTS)
    )
    bench.write(
        live(
            2, ("b", 10, 1, '{"a": [1.50, 18446744073709551615]}', "x"), ("u", 10, 1, '"text"', "x"),
            ("b", 20, 2, ..., ...), ("u", 20, 2, ..., "new"), ("c", 30, 4, '{"k": null}', None), table=DOCUMENTS,
        )
    )  # fmt: skip
    current = spark.read.format("delta").load(bench.lake.current(name))
    assert dict(current.dtypes)[ODD] == "variant"
    rows = current.orderBy("id").selectExpr("id", f"to_json({quoted})", "note").collect()
    assert [tuple(row) for row in rows] == [
        (1, '"text"', "x"),
        (2, "null", "new"),
        (3, None, "z"),
        (4, '{"k":null}', None),
    ]
    log = spark.read.format("delta").load(bench.lake.changelog(name)).orderBy("_seq")
    changes = log.selectExpr("_op", f"to_json({quoted})", f"to_json(_before.{quoted})", "_before IS NULL").collect()
    assert [tuple(row) for row in changes] == [
        ("r", '{"a":[1.5,18446744073709551615]}', None, True), ("r", "null", None, True), ("r", None, None, True),
        ("u", '"text"', '{"a":[1.5,18446744073709551615]}', False), ("u", None, None, False),
        ("c", '{"k":null}', None, True),
    ]  # fmt: skip


@pytest.mark.slow
def test_variants_of_a_table_without_a_key(spark: SparkSession, tmp_path: Path) -> None:
    """A document that is ``null`` is not NULL, and rows are told apart by their documents."""
    bench = Bench(spark, tmp_path / "lake", ("current",))
    bench.write(first_read((1, "null"), (1, None), (1, '{"a":1}'), (1, '{"a":1}'), table=BAG))
    bench.write(live(2, ("d", 10, 1, "null"), ("d", 20, 1, '{"a":1}'), ("c", 30, 1, "[]"), table=BAG))
    rows = spark.read.format("delta").load(bench.lake.current(BAG.name)).selectExpr("to_json(j) AS j").collect()
    assert sorted(str(row["j"]) for row in rows) == ["None", "[]", '{"a":1}']

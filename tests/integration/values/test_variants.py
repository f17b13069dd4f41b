"""VARIANTs that are made here, beside those of Spark's ``parse_json``; and files of both in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from headgate.delta import VARIANT, FoldLayout, TableLog, prepare_fold, to_variant, write_files
from headgate.errors import TargetError
from headgate.lake import DeltaPath, inspect_base, spark_schema
from tests.delta.commits import commit
from tests.fix_documents import NASTY, document_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("id", pa.int64()), pa.field("v", VARIANT), ("pair", pa.struct([pa.field("v", VARIANT)]))])
DDL = "id bigint, v variant, pair struct<v: variant>"
VECTORS = {"delta.enableDeletionVectors": "true"}


def at_random(count: int) -> list[str]:
    """Documents; the same in each run."""
    texts: list[str] = []

    @settings(
        max_examples=count, database=None, derandomize=True, phases=[Phase.generate], deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(document_texts)
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    return texts


@pytest.mark.long
def test_spark_makes_the_same_bytes(spark: SparkSession) -> None:
    texts = pa.array([*NASTY, *at_random(2000)])
    frame = spark.createDataFrame(pa.table({"j": texts})).coalesce(1).selectExpr("parse_json(j) AS v")
    theirs = [pair for chunk in frame.toArrow()["v"].chunks for pair in chunk.to_pylist()]
    ours = to_variant(texts, "j").to_pylist()
    assert len(ours) == len(theirs)
    different = [text for text, one, other in zip(texts.to_pylist(), ours, theirs, strict=True) if one != other]
    assert [text[:200] for text in different] == []


def rows(first: int, texts: list[str | None]) -> pa.RecordBatch:
    """With the document in a struct as well, which is NULL in every third row."""
    documents = to_variant(pa.array(texts, pa.string()), "j")
    numbers = range(first, first + len(texts))
    pairs = pa.StructArray.from_arrays(
        [documents], fields=list(SCHEMA.field("pair").type), mask=pa.array([n % 3 == 0 for n in numbers])
    )
    return pa.RecordBatch.from_arrays([pa.array(numbers), documents, pairs], schema=SCHEMA)


@pytest.mark.long
def test_files_of_spark_and_of_ours_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    """Made, appended to and folded here; read, appended to and optimised by Spark."""
    delta = DeltaPath(spark, str(tmp_path / "t"))
    delta.create(spark_schema(DDL), VECTORS)
    log, texts = TableLog(delta.path), [*NASTY[:40], None, *at_random(60)]

    def append(first: int) -> None:
        added = write_files([rows(first, texts[first : first + 25])], delta.path, SCHEMA, "snappy")
        commit(delta.path, log.refresh(), list(added), "WRITE", {"mode": "Append"}, blind=True)

    def append_by_spark(first: int) -> None:
        made = rows(first, texts[first : first + 25])
        lines = pa.table({"id": made["id"], "j": pa.array(texts[first : first + 25], pa.string())})
        spark.createDataFrame(lines).createOrReplaceTempView("lines")
        pair = "CASE WHEN id % 3 != 0 THEN named_struct('v', parse_json(j)) END AS pair"
        spark.sql(f"SELECT id, parse_json(j) AS v, {pair} FROM lines").write.format("delta").mode("append").save(
            delta.path
        )

    append(0)
    append_by_spark(25)
    expected = by_spark(delta)
    assert [row[:2] for row in expected] == parsed_by_spark(spark, texts[:50])
    spark.sql(f"OPTIMIZE delta.`{delta.path}`")
    assert len(log.refresh().files) == 1
    append(50)
    append_by_spark(75)
    expected = by_spark(delta)
    table = log.refresh()
    base = inspect_base(delta, DDL, ["id", "v", "pair"])
    fold = prepare_fold(delta.path, list(table.files.values()), FoldLayout(base.schema, base.codec, ("id",)))
    assert fold is not None
    actions = fold.actions(table, ())
    assert actions is not None
    commit(delta.path, table, actions, "OPTIMIZE", {}, blind=False)
    assert len(log.refresh().files) == 1
    assert by_spark(delta) == expected
    assert len(expected) == 100


def by_spark(delta: DeltaPath) -> list[tuple[Any, ...]]:
    columns = ["id", "to_json(v)", "to_json(pair.v)", "pair IS NULL", "is_variant_null(v)"]
    return [tuple(row) for row in delta.read().orderBy("id").selectExpr(*columns).collect()]


def parsed_by_spark(spark: SparkSession, texts: list[str | None]) -> list[tuple[Any, ...]]:
    lines = pa.table({"id": pa.array(range(len(texts))), "j": pa.array(texts, pa.string())})
    parsed = spark.createDataFrame(lines).orderBy("id").selectExpr("id", "to_json(parse_json(j))")
    return [tuple(row) for row in parsed.collect()]


def test_a_table_that_shreds_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its files may have VARIANTs that were taken apart."""
    delta = DeltaPath(spark, str(tmp_path / "t"))
    delta.create(spark_schema("id bigint, v variant"), VECTORS)
    assert delta.writable(deletes=True).version == 0
    spark.sql(f"ALTER TABLE delta.`{delta.path}` SET TBLPROPERTIES ('delta.enableVariantShredding' = 'true')")
    with pytest.raises(TargetError, match=r"remove .*hredding"):
        inspect_base(delta, "id bigint, v variant", ["id", "v"])

"""Files that the tasks write themselves: what Spark reads of them, and which tables are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from headgate.delta import RETENTION_PROPERTIES, NewColumn, needs_mapping
from headgate.errors import CommitConflictError, TargetError
from headgate.lake import DeltaPath, Marker, _append, append, append_rows, spark_schema
from tests.integration.outside import lake_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEQ = "struct<epoch:bigint,file:int,pos:bigint,ordinal:bigint>"
COLUMNS = (
    "i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, flag boolean, small decimal(7,2), "
    "large decimal(38,10), day date, plain timestamp_ntz, zoned timestamp, text string, bytes binary, "
    f"names array<string>, pairs map<string, bigint>, _seq {SEQ}"
)

ROWS: list[tuple[Any, ...]] = [
    (
        1, 2, 3, 4, 1.5, -0.1, True, Decimal("12345.67"), Decimal("1234567890123456789012345678.0123456789"),
        date(1, 1, 1), datetime(1000, 1, 1, 0, 0, 0, 1), datetime(1582, 10, 4, 23, 59, 59, 999_999, UTC),
        "a", b"\x00\xff", ["x", None], {"a": 1, "b": None}, (1, 2, 3, 4),
    ),
    (
        -128, -32768, -(2**31), -(2**63), -3.0e38, 1e308, False, Decimal("-99999.99"),
        Decimal("-9999999999999999999999999999.9999999999"), date(9999, 12, 31),
        datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(2038, 1, 19, 3, 14, 7, 999_999, UTC),
        "\U0001f600" * 40, b"", [], {}, (9, 2, 3, 2**60),
    ),
    (None,) * 17,
]  # fmt: skip


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def table_at(spark: SparkSession, path: Path, ddl: str, **properties: str) -> DeltaPath:
    from pyspark.sql.types import _parse_datatype_string

    delta = DeltaPath(spark, str(path))
    schema: Any = _parse_datatype_string(ddl)
    delta.create(schema, {"headgate.pipeline": "p", **properties})
    return delta


def ids(delta: DeltaPath) -> list[int]:
    """The ids of all rows, by delta-rs: Spark takes seconds after each commit."""
    return sorted(number for (number,) in lake_rows(delta.path, ["id"]).elements())


def test_spark_reads_every_type_as_if_it_had_written_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame(ROWS, COLUMNS).coalesce(1)
    ours = table_at(spark, tmp_path / "ours", COLUMNS, **{"delta.enableDeletionVectors": "true"})
    theirs = table_at(spark, tmp_path / "theirs", COLUMNS)
    append(ours, rows, same, COLUMNS, rows.columns, Marker("p/t", 1))
    rows.write.format("delta").mode("append").save(theirs.path)
    expected = theirs.read().orderBy("i64").collect()
    assert ours.read().orderBy("i64").collect() == expected
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
    try:
        assert ours.read().orderBy("i64").collect() == expected
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


@pytest.mark.long
def test_statistics_hide_no_row_and_skip_files(spark: SparkSession, tmp_path: Path) -> None:
    ours = table_at(spark, tmp_path / "ours", COLUMNS)
    for version, row in enumerate(ROWS):
        rows = spark.createDataFrame([row], COLUMNS).coalesce(1)
        append(ours, rows, same, COLUMNS, rows.columns, Marker("p/t", version))
    frame = ours.read()
    for row in ROWS[:2]:
        literals = _literals(spark.createDataFrame([row], COLUMNS))
        parts = [frame.where(f"{name} = {value}").selectExpr(f"'{name}'", "i64") for name, value in literals.items()]
        assert {tuple(one) for one in reduce(DataFrame.union, parts).collect()} == {(name, row[3]) for name in literals}
    assert frame.where("small IS NULL AND _seq.epoch IS NULL").count() == 1
    assert len(frame.where("_seq.epoch > 5").inputFiles()) == 1


def _literals(row: DataFrame) -> dict[str, str]:
    """The values as SQL literals of their own types, so that Delta may compare them with statistics."""
    types = {field.name: field.dataType.simpleString() for field in row.schema if field.name != "_seq"}
    texts = [f"hex({name})" if kind == "binary" else f"CAST({name} AS STRING)" for name, kind in types.items()]
    values = dict(zip(types, row.selectExpr(*texts).collect()[0], strict=True))
    literals = {name: f"CAST('{values[name]}' AS {kind})" for name, kind in types.items()}
    literals["bytes"] = f"unhex('{values['bytes']}')"
    del literals["pairs"]  # maps are not compared
    literals["names"] = "array('x', CAST(NULL AS STRING))" if "x" in values["names"] else "array()"
    seq = row.selectExpr("_seq.*").collect()[0]
    return {**literals, **{f"_seq.{name}": f"{seq[name]}L" for name in ("epoch", "ordinal")}}


def test_a_marker_that_is_there_appends_nothing(spark: SparkSession, tmp_path: Path) -> None:
    delta = table_at(spark, tmp_path / "t", "id bigint, more string")
    rows = spark.range(10)
    for version in (1, 1, 2, 1, 2):
        append(delta, rows, same, "id bigint", ["id"], Marker("p/t", version))
    append_rows(delta, [(10, "x")], "id bigint, more string", Marker("p/t", 2))
    append_rows(delta, [(11, "y")], "id bigint, more string", Marker("p/t", 3))
    append_rows(delta, [(12, None)], "id bigint, more string")
    assert len(ids(delta)) == 22
    assert {row.more for row in delta.read().collect()} == {None, "y"}
    assert delta.version() == 4
    spark.sql(f"DESCRIBE HISTORY delta.`{delta.path}`").createOrReplaceTempView("history")
    operations = spark.sql("SELECT operation FROM history WHERE version > 0").collect()
    assert [row.operation for row in operations] == ["WRITE"] * 4


def before_commit(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Have something done once, between the writing of an append's files and its commit."""
    commit = _append._commit

    def overtaken(*args: Any) -> None:
        monkeypatch.undo()
        meanwhile()
        commit(*args)

    monkeypatch.setattr(_append, "_commit", overtaken)


def test_who_appends_under_a_marker_while_another_does_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although rows that are only appended never conflict."""
    delta = table_at(spark, tmp_path / "t", "id bigint")
    marker = Marker("p/t", 7)

    def meanwhile() -> None:
        append_rows(delta, [(1,)], "id bigint", marker)
        append_rows(delta, [(2,)], "id bigint", Marker("p/another", 7))

    before_commit(monkeypatch, meanwhile)
    with pytest.raises(CommitConflictError):
        append(delta, spark.range(3), same, "id bigint", ["id"], marker)
    assert ids(delta) == [1, 2]


def test_of_two_appends_to_one_version_one_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = table_at(spark, tmp_path / "t", "id bigint")

    def meanwhile() -> None:
        append_rows(delta, [(1,)], "id bigint", at=0)

    before_commit(monkeypatch, meanwhile)
    with pytest.raises(CommitConflictError):
        append_rows(delta, [(2,)], "id bigint", at=0)
    with pytest.raises(CommitConflictError, match="after version 0"):
        append_rows(delta, [(3,)], "id bigint", at=0)
    append_rows(delta, [(4,)], "id bigint", at=1)
    assert ids(delta) == [1, 4]


def test_an_append_goes_on_after_what_others_commit_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = table_at(spark, tmp_path / "t", "id bigint")

    def meanwhile() -> None:
        spark.range(10, 12).write.format("delta").mode("append").save(delta.path)
        append_rows(delta, [(1,)], "id bigint")

    before_commit(monkeypatch, meanwhile)
    append(delta, spark.range(2), same, "id bigint", ["id"], Marker("p/t", 1))
    assert ids(delta) == [0, 1, 1, 10, 11]
    assert delta.version() == 3


def test_rows_that_do_not_fit_the_columns_of_meanwhile_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = table_at(spark, tmp_path / "t", "id bigint")

    def meanwhile() -> None:
        delta.add_columns([NewColumn("more", "string")])

    before_commit(monkeypatch, meanwhile)
    with pytest.raises(CommitConflictError):
        append_rows(delta, [(1,)], "id bigint")
    assert ids(delta) == []


def test_spark_appends_under_the_same_marker(spark: SparkSession, tmp_path: Path) -> None:
    delta = table_at(spark, tmp_path / "t", "id bigint")
    append(delta, spark.range(3), same, "id bigint", ["id"], Marker("p/t", 5))
    again = spark.range(3).write.format("delta").mode("append").option("txnAppId", "p/t")
    again.option("txnVersion", 5).save(delta.path)
    assert ids(delta) == [0, 1, 2]


@pytest.mark.parametrize(
    "properties",
    [
        "'delta.columnMapping.mode' = 'id'",
        "'delta.enableChangeDataFeed' = 'true'",
        "'delta.enableRowTracking' = 'true'",
        "'delta.constraints.positive' = 'id > 0'",
    ],
)
def test_a_table_that_requires_more_is_refused(spark: SparkSession, tmp_path: Path, properties: str) -> None:
    delta = DeltaPath(spark, str(tmp_path / "t"))
    spark.sql(f"CREATE TABLE delta.`{delta.path}` (id bigint) USING delta TBLPROPERTIES ({properties})")
    name = properties.split("'")[1].replace(".", r"\.")
    message = rf"headgate cannot write this table: it (requires|has) .*{name}"
    with pytest.raises(TargetError, match=message):
        append(delta, spark.range(3), same, "id bigint", ["id"], Marker("p/t", 1))
    with pytest.raises(TargetError, match=message):
        append_rows(delta, [(1,)], "id bigint", Marker("p/t", 1))
    assert delta.version() == 0
    assert not list((tmp_path / "t").glob("*.parquet"))


@pytest.mark.parametrize("ddl", ["id bigint", "id int, more string"])
def test_rows_of_other_columns_are_refused(spark: SparkSession, tmp_path: Path, ddl: str) -> None:
    delta = table_at(spark, tmp_path / "t", "id int")
    row = (1, "x")[: ddl.count(",") + 1]
    with pytest.raises(TargetError, match="it lacks columns of its rows, or has them in other types"):
        append_rows(delta, [row], ddl)
    assert delta.version() == 0


def test_a_task_that_fails_commits_nothing_and_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    delta = table_at(spark, tmp_path / "t", "id bigint")

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise ValueError("the task ends here")

    with pytest.raises(PySparkException, match="the task ends here"):
        append(delta, spark.range(1, numPartitions=1), fails, "id bigint", ["id"], Marker("p/t", 1))
    assert delta.version() == 0
    assert not list((tmp_path / "t").glob("*.parquet"))


def described(spark: SparkSession, path: str) -> tuple[Any, ...]:
    """Columns, properties and protocol of a table."""
    (detail,) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()
    ignored = ("delta.feature.", "delta.columnMapping.maxColumnId")
    properties = {name: value for name, value in detail["properties"].items() if not name.startswith(ignored)}
    protocol = (detail["minReaderVersion"], detail["minWriterVersion"], set(detail["tableFeatures"]))
    return spark.read.format("delta").load(path).schema, properties, protocol


@pytest.mark.parametrize(
    ("kind", "key", "last", "vectors"),
    [
        ("bigint", "id", "last", "true"),
        ("timestamp_ntz", "id", "last", "true"),
        ("array<string>", "id", "last", "false"),
        ("struct<at: timestamp_ntz>", "id", "last", "true"),
        ("variant", "id", "last", "false"),
        ("variant", "id", "last", "true"),
        ("bigint", "the id", "last", "false"),
        ("struct<`at =`: timestamp_ntz>", "id", "the last", "true"),
    ],
)
def test_a_table_that_is_made_without_spark_is_the_one_that_spark_makes(
    spark: SparkSession, tmp_path: Path, kind: str, key: str, last: str, vectors: str
) -> None:
    """As made, and after columns were added; and Spark writes to ours."""
    ours = DeltaPath(spark, str(tmp_path / "ours"))
    properties = {"headgate.table": "t", "delta.enableDeletionVectors": vectors}
    ours.create(spark_schema(f"`{key}` bigint, _before struct<`{key}`: bigint>"), properties)
    ours.add_columns(
        [NewColumn("first", kind, after=""), NewColumn(last, kind), NewColumn("x", kind, inside="_before")]
    )
    theirs = str(tmp_path / "theirs")
    mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(key) or needs_mapping(last) or "=" in kind else {}
    values = {**properties, **RETENTION_PROPERTIES, **mapping}
    text = ", ".join(f"'{name}' = '{value}'" for name, value in values.items())
    columns = f"first {kind}, `{key}` bigint, _before struct<`{key}`: bigint, x: {kind}>, `{last}` {kind}"
    spark.sql(f"CREATE TABLE delta.`{theirs}` ({columns}) USING delta TBLPROPERTIES ({text})")
    descriptions = [described(spark, path) for path in (ours.path, theirs)]
    assert descriptions[0] == descriptions[1]
    if kind not in ("bigint", "variant"):  # a few are enough, with vectors and without, and with both kinds of names
        return
    spark.sql(f"INSERT INTO delta.`{ours.path}` (`{key}`) VALUES (1), (2)")
    spark.sql(f"DELETE FROM delta.`{ours.path}` WHERE `{key}` = 1")
    (row,) = ours.read().collect()
    assert {name: value for name, value in row.asDict().items() if value is not None} == {key: 2}

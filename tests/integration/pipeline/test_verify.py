"""The comparison behind `headgate verify`, on frames made by hand."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from headgate.lake import Difference, compare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "id int, `a b` string, x double, added int"
TARGET = "id int, `a b` string, x double"


def test_equal_frames_in_any_order(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1, "a", 1.0, None), (2, None, None, None)], SOURCE)
    right = spark.createDataFrame([(2, None, None), (1, "a", 1.0)], TARGET)
    result = compare("shop.t", left, right, ["id"])[0]
    assert (result.equal, result.differences, result.samples) == (2, 0, ())


def test_every_kind_of_difference(spark: SparkSession) -> None:
    left = spark.createDataFrame(
        [(1, "a", 1.0, None), (2, "b", 2.0, None), (3, "c", None, 7), (5, "e", 5.0, None)], SOURCE
    )
    right = spark.createDataFrame([(1, "a", 1.0), (2, "B", 2.0), (3, "c", None), (4, "d", 4.0)], TARGET)
    result = compare("shop.t", left, right, ["id"])[0]
    assert (result.equal, result.only_source, result.only_target, result.different) == (1, 1, 1, 2)
    assert sorted(result.samples, key=lambda sample: sample.key["id"]) == [
        Difference("different", {"id": 2}, {"a b": ("b", "B")}),
        Difference("different", {"id": 3}, {"added": (7, None)}),
        Difference("only in target", {"id": 4}),
        Difference("only in source", {"id": 5}),
    ]


def test_composite_keys_and_the_number_of_samples(spark: SparkSession) -> None:
    left = spark.createDataFrame([(1, str(n)) for n in range(30)], "id int, k string")
    right = spark.createDataFrame([], "id int, k string")
    result = compare("shop.t", left, right, ["id", "k"], samples=3)[0]
    assert (result.only_source, len(result.samples)) == (30, 3)


def test_a_key_that_the_target_has_twice(spark: SparkSession) -> None:
    """Even if both rows are the source's."""
    left = spark.createDataFrame([(1, "a"), (2, "b")], "id int, v string")
    right = spark.createDataFrame([(1, "a"), (1, "a"), (2, "b"), (3, "c"), (3, "c")], "id int, v string")
    result = compare("shop.t", left, right, ["id"])[0]
    assert (result.equal, result.only_source, result.only_target, result.different) == (2, 0, 3, 0)
    assert sorted(sample.key["id"] for sample in result.samples) == [1, 3, 3]


def test_rows_without_a_key_are_counted(spark: SparkSession) -> None:
    ddl, extra = "a int, b string", "a int, b string, added int"
    left = spark.createDataFrame([(1, "x", None)] * 3 + [(2, None, None)] * 2 + [(3, "z", None)], extra)
    right = spark.createDataFrame([(1, "x")] * 3 + [(2, None)] + [(4, "z")] * 2, ddl)
    result = compare("shop.t", left, right, [])[0]
    assert (result.equal, result.only_source, result.only_target, result.different) == (4, 2, 2, 0)
    assert sorted(result.samples, key=lambda sample: sample.key["a"]) == [
        Difference("only in source", {"a": 2, "b": None, "added": None}, copies=(2, 1)),
        Difference("only in source", {"a": 3, "b": "z", "added": None}, copies=(1, 0)),
        Difference("only in target", {"a": 4, "b": "z", "added": None}, copies=(0, 2)),
    ]
    assert compare("shop.t", right, right, [])[0].differences == 0


def test_differences_have_dates_of_the_year_0_as_text(spark: SparkSession) -> None:
    source = spark.sql("SELECT 1 AS id, DATE '0000-01-01' AS day, TIMESTAMP_NTZ '0000-12-31 01:02:03' AS at")
    target = spark.sql("SELECT 1 AS id, DATE '2026-01-02' AS day, TIMESTAMP_NTZ '2026-01-02 01:02:03' AS at")
    by_key = compare("d.a", source, target, ["id"])[0]
    assert by_key.samples[0].columns["day"] == ("0000-01-01", date(2026, 1, 2))
    assert str(by_key.samples[0].columns["at"][0]).startswith("0000-12-31 01:02:03")
    by_day = compare("d.a", source, target, ["day"])[0]
    assert {str(sample.key["day"]) for sample in by_day.samples} == {"0000-01-01", "2026-01-02"}
    counted = compare("d.a", source, target, [])[0]
    assert {str(sample.key["day"]) for sample in counted.samples} == {"0000-01-01", "2026-01-02"}

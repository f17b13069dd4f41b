"""Comparing a table with its source in both ways, which have to come to the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.config import PipelineConfig
from headgate.lake import (
    ArrowComparer,
    Comparer,
    Lake,
    LedgerRow,
    NeedsSparkError,
    SparkComparer,
    TableResult,
    Workers,
    find_row,
    newest_row,
    verify_table,
)
from headgate.pipeline import read_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["comparer", "newest", "verify"]


@contextmanager
def comparer(kind: str, spark: SparkSession | None, config: PipelineConfig, *, samples: int = 20) -> Iterator[Comparer]:
    """``arrow`` or ``spark``."""
    lake, source = Lake.at(config.target.path or ""), read_source(config)
    with Workers(2) as workers:
        if kind == "arrow":
            yield ArrowComparer(lake, source, workers, samples=samples)
        else:
            assert spark is not None
            yield SparkComparer(spark, lake, source, samples=samples)


def verify(
    spark: SparkSession | None, config: PipelineConfig, row: LedgerRow, table: str, *, without_spark: bool = True
) -> TableResult:
    """The result for a table as of a row.

    :param spark: None: compare without Spark only, for tests that compare again and again.
    :param without_spark: whether it can be compared without Spark.
    """
    if spark is None:
        with comparer("arrow", None, config, samples=1000) as one:
            return verify_table(one, row, table)
    with comparer("spark", spark, config, samples=1000) as one, comparer("arrow", spark, config, samples=1000) as other:
        result = verify_table(one, row, table)
        try:
            arrow_result = verify_table(other, row, table)
        except NeedsSparkError:
            assert not without_spark
            return result
        assert without_spark
    assert _sorted(arrow_result) == _sorted(result)
    return result


def _sorted(result: TableResult) -> TableResult:
    return replace(
        result,
        samples=tuple(sorted(result.samples, key=repr)),
        undecided_keys=tuple(sorted(result.undecided_keys, key=repr)),
    )


def newest(spark: SparkSession, lake: Lake) -> LedgerRow:
    """The newest row of the ledger, which is the same without Spark."""
    row, without_spark = find_row(spark, lake), newest_row(lake)
    assert replace(without_spark, committed_at=row.committed_at) == row
    assert without_spark.committed_at.astimezone().replace(tzinfo=None) == row.committed_at.replace(tzinfo=None)
    return row

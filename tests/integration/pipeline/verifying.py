"""Comparing one table with its source, as ``headgate verify`` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.compare import Comparer, TableResult, verify_table
from headgate.config import PipelineConfig
from headgate.lake import Lake, LedgerRow, Workers, newest_row
from headgate.lake._ledger import find_row
from headgate.pipeline import read_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["comparer", "newest", "verify"]


@contextmanager
def comparer(config: PipelineConfig, *, samples: int = 20) -> Iterator[Comparer]:
    with Workers(2) as workers:
        yield Comparer(Lake.at(config.target.path or ""), read_source(config), workers, samples=samples)


def verify(config: PipelineConfig, row: LedgerRow, table: str) -> TableResult:
    """The result for a table as of a row."""
    with comparer(config, samples=1000) as one:
        return verify_table(one, row, table)


def newest(spark: SparkSession, lake: Lake) -> LedgerRow:
    """The newest row of the ledger, which is the same without Spark."""
    row, without_spark = find_row(spark, lake), newest_row(lake)
    assert replace(without_spark, committed_at=row.committed_at) == row
    assert without_spark.committed_at.astimezone().replace(tzinfo=None) == row.committed_at.replace(tzinfo=None)
    return row

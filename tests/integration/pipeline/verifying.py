"""Comparing one table with its source, as ``headgate verify`` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headgate.compare import Comparer, TableResult, verify_table
from headgate.config import PipelineConfig
from headgate.lake import Lake, LedgerRow, Workers, newest_row
from headgate.pipeline import read_source
from tests.integration.outside import lake_rows

__all__ = ["comparer", "newest", "verify"]


@contextmanager
def comparer(config: PipelineConfig, *, samples: int = 20) -> Iterator[Comparer]:
    with Workers(2) as workers:
        yield Comparer(Lake.at(config.target.path or ""), read_source(config), workers, samples=samples)


def verify(config: PipelineConfig, row: LedgerRow, table: str) -> TableResult:
    """The result for a table as of a row."""
    with comparer(config, samples=1000) as one:
        return verify_table(one, row, table)


def newest(lake: Lake) -> LedgerRow:
    """The newest row of the ledger, which is the same for delta-rs."""
    row = newest_row(lake)
    assert max(lake_rows(lake.ledger, ["epoch", "gtid", "batch_id"])) == (row.epoch, row.gtid, row.batch_id)
    return row

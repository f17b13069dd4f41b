"""Rows of a lake as a relay's bootstraps take them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headgate.cli._lake_supplier as module
from headgate._policies import Policies
from headgate.catalog import Column, TableDef
from headgate.cli._lake_supplier import LakeSupplier
from headgate.errors import ChunkRetryError
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.mysql import ConnectionSettings
from headgate.relay import LogicalSource, PlanGoneError
from tests.lake.tables import ledger_line

TABLE = TableDef("d", "t", (Column("id", "bigint", nullable=False),), (0,))
SOURCE = LogicalSource(1, "t", "d.t")
SETTINGS = ConnectionSettings("127.0.0.1", 1, "nobody")


def batch(lake: Lake, epoch: int, definition: str) -> None:
    table = {"table": "d.t", "state": "live", "version": 0, "definition": definition}
    write_deltalake(lake.ledger, pa.Table.from_pylist([ledger_line(epoch, table)]), mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    target = Lake.at(tmp_path)
    write_deltalake(target.current("d.t"), pa.table({"id": pa.array(range(3), pa.int64())}))
    return target


@pytest.fixture
def supplier(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> LakeSupplier:
    """MySQL has the table under its definition."""
    monkeypatch.setattr(module, "Connection", SimpleNamespace(open=contextlib.nullcontext))
    monkeypatch.setattr(module, "keyed_table", lambda settings, source: {(SETTINGS, SOURCE): TABLE}[settings, source])
    return LakeSupplier(lake, SETTINGS, Policies())


def test_all_rows_of_a_table(lake: Lake, supplier: LakeSupplier) -> None:
    batch(lake, 1, TABLE.common_fingerprint)
    beginning = supplier.begin()
    assert beginning.gtid == GtidSet()
    part = supplier.plan(SOURCE, beginning.token, None)
    assert part is not None
    assert supplier.plan(SOURCE, beginning.token, part) is None
    chunk = supplier.read(SOURCE, beginning.token, part, GtidSet(), None)
    assert chunk is not None
    assert (chunk.table, chunk.columns["id"].to_pylist()) == (TABLE, [0, 1, 2])


def test_a_copy_that_has_changed_since_begins_again(lake: Lake, supplier: LakeSupplier) -> None:
    batch(lake, 1, "another")
    token = supplier.begin().token
    with pytest.raises(ChunkRetryError):
        supplier.read(SOURCE, token, {"part": 0}, GtidSet(), None)
    batch(lake, 2, TABLE.common_fingerprint)
    with pytest.raises(PlanGoneError, match="has reached the table's definition"):
        supplier.read(SOURCE, token, {"part": 0}, GtidSet(), None)
    with pytest.raises(PlanGoneError, match="file list changed"):
        supplier.read(SOURCE, supplier.begin().token, {"part": 1}, GtidSet(), None)

"""Which tables a batch decides on, and what its ledger row has of the others, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.decide import Decision
from headgate.lake import Lake, TableState
from headgate.sinks import BatchWriter
from tests.fix_carrier import UUID, FakeBatch

CONF = {"spark.sql.parquet.compression.codec": "snappy"}
SESSION: Any = SimpleNamespace(conf=SimpleNamespace(getAll=CONF, get=lambda name, other=None: CONF.get(name, other)))
SETTLING = TableState("shop.orders", "settling", version=4, settles_at=f"{UUID}:8-10", images=7)


def writer_at(path: Path, states: dict[str, TableState]) -> BatchWriter:
    writer = BatchWriter(SESSION, Lake(str(path)), "shop", ["current"])
    ledger: Any = SimpleNamespace(
        last=SimpleNamespace(merged=(), epoch=8), table=states.get, tables=lambda: states, entered_epoch=lambda: 8
    )
    writer.ledger = ledger
    return writer


def decided(path: Path, fake: FakeBatch, states: dict[str, TableState]) -> list[Decision]:
    return writer_at(path, states)._decide(SESSION, fake.described(), states)


@pytest.mark.parametrize(("end", "state", "left"), [(9, "settling", f"{UUID}:10"), (10, "live", None)])
def test_a_table_without_changes_settles_too(end: int, state: str, left: str | None, tmp_path: Path) -> None:
    """The batch that ends its wait may have only changes of other tables."""
    (decision,) = decided(tmp_path, FakeBatch(9, f"{UUID}:1-{end}"), {"shop.orders": SETTLING})
    assert (decision.state.state, decision.state.settles_at, decision.state.version) == (state, left, 4)


def test_a_table_that_the_batch_leaves_out_has_no_images_of_it(tmp_path: Path) -> None:
    before = {"shop.a": TableState("shop.a", "live", version=4, images=7), "shop.orders": SETTLING}
    decisions, writer = decided(tmp_path, FakeBatch(9, f"{UUID}:1-10"), before), writer_at(tmp_path, before)
    assert not any(map(writer._is_written, decisions)), "nor do its folds wait"
    states = writer._states_after(before, decisions)
    assert {table: (one.state, one.images) for table, one in states.items()} == {
        "shop.a": ("live", 0), "shop.orders": ("live", 0),
    }  # fmt: skip

"""The plan of chunks."""

from __future__ import annotations

import pytest

from headgate.catalog import TablePatterns
from headgate.spark._snapshots import PlanSettings, SnapshotPlan
from tests.spark.model import FakeServer


@pytest.mark.parametrize("tables", [1, 3])
def test_a_table_whose_key_has_changed_begins_again_at_once(tables: int) -> None:
    """Not with the next transaction, which may be a day away."""
    server, names = FakeServer(), [f"d.t{number}" for number in range(tables)]
    for name in names:
        server.create(name, {*range(1, 101)})
    settings = PlanSettings(TablePatterns(["d.*"]), 1, 10, tables)
    before = SnapshotPlan(settings)
    before.enqueue(names, {})
    before.plan_chunks(server)
    assert {chunk.table for chunk in before.chunks} == {*names}
    server.key_type = "varchar"
    after = SnapshotPlan(settings, before.state())
    after.plan_chunks(server)
    assert {chunk.table for chunk in after.chunks if chunk.lo is None} == {*names}

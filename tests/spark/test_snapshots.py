"""The plan of chunks."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.catalog import TablePatterns
from headgate.errors import DefiniteServerError
from headgate.offsets import ChunkSpec, ReadState, SnapshotRequest
from headgate.spark._requests import queue_snapshot, take_signals
from headgate.spark._snapshots import PlanSettings, SnapshotPlan
from tests.spark.model import FakeServer

SETTINGS = PlanSettings(TablePatterns(["d.*"]), 1, 10, 1)
REDO = {"type": "redo", "chunk": ChunkSpec("d.t", 0).to_dict(), "whole_table": True}
RESNAPSHOT = {"type": "resnapshot", "tables": ["d.t"]}


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


@pytest.mark.parametrize(("row_bytes", "rows"), [(0, 100), (1 << 20, 100), (32 << 20, 4), (1 << 30, 1)])
def test_chunks_of_wide_rows_have_fewer(row_bytes: int, rows: int) -> None:
    """A task holds a chunk in memory, also of a later batch."""
    server = FakeServer()
    server.create("d.t", {*range(1, 301)})
    server.row_bytes = row_bytes
    settings = PlanSettings(TablePatterns(["d.*"]), 1, 100, 1)
    plan = SnapshotPlan(settings)
    plan.enqueue(["d.t"], {})
    plan.plan_chunks(server)
    later = SnapshotPlan(settings, plan.state())
    later.plan_chunks(server)
    for chunks in (plan.chunks, later.chunks):
        bounds = [(chunk.lo, chunk.hi) for chunk in chunks]
        widths = [int(hi[0]) - int(lo[0] if lo else 0) for lo, hi in bounds if hi]
        assert set(widths) == {rows}


def requested(server: FakeServer, plan: SnapshotPlan) -> SnapshotPlan:
    """The plan after a batch in which a blocking snapshot of the table began."""
    queue_snapshot(plan, "d.t", SnapshotRequest(("one",), blocking=True))
    plan.plan_chunks(server)
    return SnapshotPlan(SETTINGS, plan.state())


@pytest.mark.parametrize("rows", [9, 100], ids=["read", "reading"])
@pytest.mark.parametrize("signal", [REDO, RESNAPSHOT, None], ids=["redo", "resnapshot", "another key"])
def test_a_table_that_is_read_again_still_blocks_changes_for_its_signal(
    rows: int, signal: dict[str, Any] | None
) -> None:
    server = FakeServer()
    server.create("d.t", {*range(rows)})
    plan = requested(server, SnapshotPlan(SETTINGS))
    if signal is not None:
        take_signals(plan, {"again": signal}, lambda: ["d.t"], server)
    else:
        server.key_type = "varchar"
    plan.plan_chunks(server)
    request = plan.reads.request("d.t")
    assert (request.signals, request.blocking) == (("one",), True)
    assert plan.changes_wait == (rows > 10)


def test_a_request_that_replaces_an_unconfirmed_snapshot_includes_its_signal() -> None:
    server = FakeServer()
    server.create("d.t", {1})
    plan = requested(server, SnapshotPlan(SETTINGS))
    queue_snapshot(plan, "d.t", SnapshotRequest(("two",), "v = 0", partial=True))
    assert plan.reads.request("d.t") == SnapshotRequest(("one", "two"), blocking=True)


def test_a_table_whose_filter_fails_on_its_first_chunk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No header named it: it was never read, and a signal requested a part of it before its first batch."""

    def fails(*_: Any, **__: Any) -> None:
        raise DefiniteServerError("Division by 0", code=1365)

    server = FakeServer()
    server.create("d.t", {1})
    plan = SnapshotPlan(SETTINGS)
    plan.reads.defer("d.t")
    queue_snapshot(plan, "d.t", SnapshotRequest(("one",), "v = 0", partial=True))
    monkeypatch.setattr("headgate.snapshot.next_chunk", fails)
    plan.plan_chunks(server)
    assert [read.state for read in plan.reads] == [ReadState.DEFERRED]
    assert [action["id"] for action in plan.actions] == ["one"]

"""The figures of a run: rates over the time that batches took, and how far the batch under way is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate._figures import BatchUnderWay, Rates, count_transactions, snapshot_status
from headgate._places import places_before
from headgate.carrier import Header, Part
from headgate.lake import TableStatus
from headgate.sinks import Batch
from headgate.spark import BatchPlan
from headgate.spark._progress import PlannedTable

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
T = "shop.orders"


def test_a_batch_counts_evenly_over_the_time_it_took() -> None:
    rates = Rates(0.0)
    rates.add(200.0, 120.0, {T: 600}, 12_000)
    now = rates.at(200.0)
    assert (now.changes, now.rows, dict(now.tables)) == (5.0, 100.0, {T: 5.0}), "its last minute, and no more"
    assert rates.at(230.0).rows == 50.0, "half of the last minute"
    assert rates.at(260.0).rows == 0.0
    assert rates.at(400.0).changes == 0.0


def test_a_young_run_has_no_minute_yet() -> None:
    rates = Rates(100.0)
    rates.add(110.0, 4.0, {T: 30}, 600)
    assert (rates.at(110.0).changes, rates.at(110.0).rows) == (3.0, 60.0)
    assert Rates(100.0).at(100.0).changes == 0.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-12])
def test_a_batch_that_took_no_time_counts_all_the_same(seconds: float) -> None:
    rates = Rates(0.0)
    rates.add(100.0, seconds, {T: 60}, 6)
    assert (rates.at(100.0).changes, rates.at(100.0).rows) == (1.0, 0.1)
    assert rates.at(161.0).changes == 0.0


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 200), st.integers(0, 10**12)), max_size=20), st.floats(0, 500))
def test_rates_are_never_more_than_what_was_done(batches: list[tuple[float, float, int]], later: float) -> None:
    rates, now = Rates(0.0), 0.0
    for pause, seconds, rows in batches:
        now += pause + seconds
        rates.add(now, seconds, {T: rows}, rows)
    found = rates.at(now + later)
    done = sum(rows for *_, rows in batches)
    assert 0 <= found.rows <= done + 0.1
    assert found.rows * min(60.0, max(1.0, now + later)) <= done * 1.001 + 10
    assert found.changes == found.rows


class Told:
    """What a planner and tasks have said."""

    def __init__(self, plan: BatchPlan | None) -> None:
        self.found: BatchPlan | None = plan
        self.done: tuple[Counter[str], Counter[str]] | None = None

    def plan(self, batch_id: int) -> BatchPlan | None:
        assert batch_id == 7
        return self.found

    def read(self, epoch: int) -> tuple[Counter[str], Counter[str]] | None:
        assert epoch == 9
        return self.done


def reading(plan: BatchPlan | None = None) -> tuple[BatchUnderWay, Told]:
    table = PlannedTable(1, 3, rows=500, chunks_estimate=7, rows_estimate=1500)
    told = Told(plan or BatchPlan(9, {T: table}, transactions=4, behind=2))
    return BatchUnderWay(7, 100.0, told), told  # type: ignore[arg-type]


def test_the_reading_of_a_batch() -> None:
    batch, told = reading()
    first = batch.activity(0, {})
    assert (first.phase, first.rows, first.rows_estimate, first.seconds_left) == ("reading", None, None, None)
    batch.look(101.0)
    planned = batch.activity(0, {})
    assert (planned.rows, planned.rows_estimate, planned.transactions) == (None, 500, 4)
    assert batch.behind() == 6
    told.done = Counter({T: 100}), Counter({T: 3})
    batch.look(105.0)
    now = batch.activity(0, {})
    assert (now.rows, now.changes, now.rows_per_second, now.seconds_left) == (100, 3, 20.0, 20.0)
    assert now.tables[T].model_dump() == {
        "first": 1, "last": 3, "chunks_estimate": 7, "rows": 100, "rows_estimate": 500, "table_rows_estimate": 1500,
    }  # fmt: skip
    told.done = Counter({T: 600}), Counter()
    batch.look(120.0)
    over = batch.activity(0, {})
    assert (over.rows, over.seconds_left) == (600, None), "the estimate was too low: nobody knows what is left"


def test_the_rate_of_reading_is_that_of_the_last_seconds() -> None:
    batch, told = reading()
    for second in range(1, 60):
        told.done = Counter({T: 10 * second if second < 40 else 400 + (second - 40)}), Counter()
        batch.look(100.0 + second)
    assert batch.activity(0, {}).rows_per_second == 1.0
    for second in range(60, 80):
        batch.look(100.0 + second)
    assert batch.activity(0, {}).rows_per_second is None
    assert batch.activity(0, {}).seconds_left is None, "it stands still"


def test_a_later_batch_reads_what_is_left() -> None:
    table = PlannedTable(4, 6, rows=750, chunks_estimate=6, rows_estimate=1500)
    batch, _ = reading(BatchPlan(9, {T: table}))
    batch.look(101.0)
    known = TableStatus(state="snapshotting", rows_read=1200, rows_estimate=1500)
    assert batch.activity(0, {T: known}).rows_estimate == 300
    more = known.model_copy(update={"rows_read": 1600})
    assert batch.activity(0, {T: more}).rows_estimate == 750, "there are more rows than the server thought"


def test_where_nobody_says_anything() -> None:
    batch = BatchUnderWay(7, 100.0, None)
    batch.look(101.0)
    batch.counts_tasks(1, 4)
    found = batch.activity(0, {})
    assert (found.rows, found.changes, found.tasks_done, found.tasks) == (None, None, 1, 4)
    assert batch.behind() is None


def described(**header: Any) -> Batch:
    parts = [Part(T, "chunk", "{}", images=500, changes=500), Part(T, "rows", "{}", images=8, changes=5)]
    return Batch(Header(9, "", f"{UUID}:1-4", UUID, 0, **header), {T: parts}, [], [], [])


def test_applying_a_batch() -> None:
    batch, _ = reading()
    batch.applies(described(behind=3))
    batch.writes(2)
    batch.wrote()
    now = batch.activity(5, {})
    assert (now.phase, now.since_us, now.rows, now.changes, now.transactions) == ("applying", 5, 500, 5, 4)
    assert (now.tables_written, now.tables_to_write, now.seconds_left) == (1, 2, None)
    assert batch.behind() == 7
    rates = Rates(100.0)
    assert rates.at(110.0, batch).rows == 50.0, "what is under way counts"


def test_transactions_are_counted_where_there_are_gtids() -> None:
    assert count_transactions(f"{UUID}:1-4", f"{UUID}:1-9") == 5
    assert count_transactions("", "") == 0
    places = str(places_before(UUID, 3, 1000))
    assert count_transactions(places, places) is None


def test_how_far_all_tables_are() -> None:
    live = TableStatus(state="live", rows=99)
    assert snapshot_status({"a": live}, 10.0) is None
    half = TableStatus(state="snapshotting", rows_read=500, rows_estimate=1000)
    found = snapshot_status({"a": live, "b": half, "c": half}, 10.0)
    assert found is not None
    assert found.model_dump() == {"tables": 2, "rows": 1000, "rows_estimate": 2000, "seconds_left": 100.0}
    waits = TableStatus(state="snapshotting")
    unknown = snapshot_status({"b": half, "c": waits}, 10.0)
    assert unknown is not None
    assert (unknown.rows_estimate, unknown.seconds_left) == (None, None)
    low = snapshot_status({"b": half.model_copy(update={"rows_read": 1200})}, 0.0)
    assert low is not None
    assert (low.rows, low.rows_estimate, low.seconds_left) == (1200, 1200, None)

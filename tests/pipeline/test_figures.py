"""The figures of a run: rates over the time that batches took, and how far the batch under way is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import Batch, Commits, Header, Part
from headgate.pipeline._figures import (
    CurrentBatch,
    FigureHistory,
    Freshness,
    Rates,
    count_transactions,
    snapshot_status,
)
from headgate.positions import LogPlace
from headgate.spark import BatchPlan, PlannedTable
from headgate.status import HistoryStatus, TableStatus

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
    current = rates.at(now + later)
    done = sum(rows for *_, rows in batches)
    assert 0 <= current.rows <= done + 0.1
    assert current.rows * min(60.0, max(1.0, now + later)) <= done * 1.001 + 10
    assert current.changes == current.rows


NOW_US = 1_700_000_000_000_000
AGES = st.floats(0, 10**6)
"""How many seconds before :data:`NOW_US`."""


def taken(*ages: float, changes: int = 1) -> list[Commits]:
    """Changes that were committed so many seconds before the ledger had them."""
    return [Commits(at_us, at_us, changes) for at_us in (NOW_US - round(age * 1e6) for age in ages)]


def followed(since_us: int = 0) -> Freshness:
    """Of a run that was up to date at a moment."""
    fresh = Freshness()
    fresh.follow(since_us)
    return fresh


def is_near(estimate: float | None, exact: float) -> bool:
    """Between the same two limits, which are of a ratio of 1.1; the least one is 0.01 s."""
    assert estimate is not None
    if exact <= 0.0101:
        return 0 < estimate <= 0.0111
    return exact / 1.101 - 0.001 <= estimate <= exact * 1.101 + 0.001


def test_without_changes_nothing_is_fresh_or_old() -> None:
    fresh = followed()
    fresh.add(0.0, NOW_US, [])
    figures = fresh.at(9.0)
    assert (figures.p50, figures.p99, figures.changes, figures.seconds) == (None, None, 0, 0.0)
    assert {count for _, count in figures.buckets} == {0}


@given(st.lists(AGES, min_size=1, max_size=60))
def test_percentiles_are_those_of_the_changes(ages: list[float]) -> None:
    fresh = followed()
    fresh.add(0.0, NOW_US, taken(*ages))
    figures, ordered = fresh.at(1.0), sorted(ages)
    for share, value in ((0.5, figures.p50), (0.99, figures.p99)):
        assert is_near(value, ordered[math.ceil(share * len(ages)) - 1])
    assert figures.changes == len(ages)
    assert figures.seconds == pytest.approx(sum(ages), abs=0.01)


@given(st.lists(st.tuples(AGES, AGES, st.integers(1, 10**6)), min_size=1, max_size=20), st.data())
def test_batches_count_alike_if_divided(parts: list[tuple[float, float, int]], data: st.DataObject) -> None:
    commits = [
        Commits(NOW_US - round(max(one, other) * 1e6), NOW_US - round(min(one, other) * 1e6), changes)
        for one, other, changes in parts
    ]
    whole, divided = followed(), followed()
    whole.add(0.0, NOW_US, commits)
    shuffled = data.draw(st.permutations(commits))
    now = 0.0
    while shuffled:
        now += data.draw(st.floats(0, 14))
        size = data.draw(st.integers(1, len(shuffled)))
        divided.add(now, NOW_US, shuffled[:size])
        shuffled = shuffled[size:]
    one, other = whole.at(290.0), divided.at(now)
    limits, counts = zip(*one.buckets, strict=True)
    others = [count for _, count in other.buckets]
    assert max(abs(mine - theirs) for mine, theirs in zip(counts, others, strict=True)) <= 1, "rounded"
    assert one.changes == other.changes
    for mine, theirs in ((one.seconds, other.seconds), (one.p50, other.p50), (one.p99, other.p99)):
        assert mine == pytest.approx(theirs, rel=1e-6, abs=0.002)
    assert list(limits) == sorted(limits)
    assert list(counts) == sorted(counts), "each counts those below it, too"
    assert 0 <= counts[0] <= counts[-1] <= one.changes


def test_a_bucket_holds_what_took_as_long_as_its_limit() -> None:
    fresh = followed()
    fresh.add(0.0, NOW_US, taken(0.1, 1.0, 1.000001, 3.0, 10**9))
    buckets = dict(fresh.at(0.0).buckets)
    assert (buckets[0.1], buckets[0.5], buckets[1.0], buckets[2.0], buckets[3.0], buckets[7200.0]) == (1, 1, 2, 3, 4, 4)


def test_changes_count_evenly_between_the_oldest_and_the_newest_commit() -> None:
    fresh = followed()
    fresh.add(0.0, NOW_US, [Commits(NOW_US - 10_000_000, NOW_US, 1000)])
    figures = fresh.at(0.0)
    assert (figures.p50, figures.p99, figures.seconds) == (5.0, 9.9, 5000.0)
    assert [dict(figures.buckets)[limit] for limit in (0.1, 1.0, 5.0, 10.0)] == [10, 100, 500, 1000]


def test_a_clock_that_is_ahead_makes_no_time_negative() -> None:
    fresh = followed()
    fresh.add(0.0, NOW_US, [Commits(NOW_US + 10, NOW_US + 5_000_000, 7)])
    assert (fresh.at(0.0).seconds, dict(fresh.at(0.0).buckets)[0.1]) == (0.0, 7)


@given(st.lists(st.tuples(st.floats(0, 120), AGES), min_size=1, max_size=40), st.floats(0, 400))
def test_percentiles_are_those_of_the_last_five_minutes(batches: list[tuple[float, float]], later: float) -> None:
    fresh, now = followed(), 0.0
    added = []
    for pause, age in batches:
        now += pause
        fresh.add(now, NOW_US, taken(age))
        added.append((now, age))
    now += later
    figures = fresh.at(now)
    since = [age for at, age in added if at > now - 295]
    within = [age for at, age in added if at > now - 306]
    assert (figures.p50 is not None) or not since
    if len(since) == len(within) and since:
        assert is_near(figures.p50, sorted(since)[math.ceil(len(since) / 2) - 1])
    if not within:
        assert (figures.p50, figures.p99) == (None, None)
    assert figures.changes == len(batches), "what is counted since the run began stays"


def test_percentiles_leave_out_what_waited_for_the_run_to_be_up_to_date() -> None:
    fresh = Freshness()
    fresh.add(0.0, NOW_US, taken(*[40.0] * 99))
    assert (fresh.at(1.0).p50, fresh.at(1.0).changes) == (None, 99), "it has never been up to date"
    fresh.follow(NOW_US)
    later = NOW_US + 2_000_000
    fresh.follow(later)  # only the first time counts
    fresh.add(
        2.0, later, [Commits(NOW_US - 40_000_000, NOW_US - 1, 50), Commits(NOW_US + 1_000_000, NOW_US + 1_000_000, 1)]
    )
    figures = fresh.at(2.0)
    assert is_near(figures.p50, 1.0)
    assert is_near(figures.p99, 1.0)
    assert figures.changes == 150
    assert figures.seconds == pytest.approx(99 * 40 + 50 * 22 + 1, abs=0.1)
    assert dict(figures.buckets)[60.0] == 150, "the counts since the run began have all"


def test_of_a_record_batch_from_before_and_after_the_newer_part_counts() -> None:
    fresh = followed(NOW_US - 4_000_000)
    fresh.add(0.0, NOW_US, [Commits(NOW_US - 10_000_000, NOW_US, 1000)])
    figures = fresh.at(0.0)
    assert is_near(figures.p50, 2.0)
    assert is_near(figures.p99, 3.96)
    assert (figures.changes, figures.seconds) == (1000, 5000.0)


def test_thousands_of_record_batches_in_one_batch() -> None:
    fresh = followed()
    fresh.add(0.0, NOW_US, taken(*[0.5, 2.5] * 2500, changes=2))
    assert (fresh.at(0.0).changes, dict(fresh.at(0.0).buckets)[1.0]) == (10_000, 5000)


def test_a_point_of_the_history_has_the_greatest_lag_of_its_five_seconds() -> None:
    history = FigureHistory(HistoryStatus())
    assert history.status() == HistoryStatus()
    for second, lag in enumerate([None, 1.0, 4.0, 0.0, 2.0, 0.5, None]):
        history.add(NOW_US + second * 1_000_000, lag, float(second))
    status = history.status()
    assert status.at_us == (NOW_US + 4_000_000, NOW_US + 6_000_000)
    assert (status.lag_seconds, status.changes_per_second) == ((4.0, 0.5), (4.0, 6.0))
    goes_on = FigureHistory(status)
    goes_on.add(NOW_US + 7_000_000, 3.0, 0.0)
    assert goes_on.status().lag_seconds == (4.0, 3.0), "the next run has the points of the one before"
    goes_on.add(NOW_US + 5_000_000, 1.0, 0.0)
    assert len(goes_on.status().at_us) == 2, "the clock was set back"


@given(st.lists(st.integers(0, 30_000_000), max_size=400))
def test_a_history_is_bounded(steps: list[int]) -> None:
    history, at_us = FigureHistory(HistoryStatus()), NOW_US
    for step in steps:
        at_us += step
        history.add(at_us, 1.0, 0.0)
    times = history.status().at_us
    assert len(times) <= 120
    assert all(at_us - time < 600_000_000 for time in times)
    assert list(times) == sorted(times)


def reading(plan: BatchPlan | None = None) -> CurrentBatch:
    table = PlannedTable(1, 3, rows=500, chunks_estimate=7, rows_estimate=1500)
    plans = {7: plan or BatchPlan(9, {T: table}, transactions=4, behind=2)}
    return CurrentBatch(7, 100.0, plans.get)


def test_the_reading_of_a_batch() -> None:
    batch = reading()
    first = batch.activity(0, {})
    assert (first.phase, first.rows_estimate, first.tasks, first.seconds_left) == ("reading", None, None, None)
    assert batch.behind() is None
    batch.update_plan()
    planned = batch.activity(0, {})
    assert (planned.rows, planned.rows_estimate, planned.transactions, batch.behind()) == (None, 500, 4, 6)
    assert planned.tables[T].model_dump() == {
        "first": 1, "last": 3, "chunks_estimate": 7, "rows_estimate": 500, "table_rows_estimate": 1500,
    }  # fmt: skip
    batch.counts_tasks(0, 4, 104.0)
    assert (batch.activity(0, {}).tasks_done, batch.activity(0, {}).seconds_left) == (0, None)
    batch.counts_tasks(1, 4, 105.0)
    now = batch.activity(0, {})
    assert (now.rows, now.changes, now.tasks_done, now.tasks, now.seconds_left) == (None, None, 1, 4, None)
    batch.counts_tasks(2, 4, 105.0)
    assert batch.activity(0, {}).seconds_left == 5.0
    batch.counts_tasks(4, 4, 110.0)
    assert batch.activity(0, {}).seconds_left == 0.0


def test_the_first_batch_of_a_run_does_not_tell_how_long_it_takes() -> None:
    batch = CurrentBatch(7, 100.0, lambda _: None, is_first=True)
    batch.counts_tasks(3, 4, 400.0)
    assert batch.activity(0, {}).seconds_left is None


def test_the_time_left_of_a_snapshot_is_known_after_three_batches() -> None:
    """The first one of a run took 300 s, most of them for loading and compiling, the others 10 s each."""
    rates = Rates(0.0)
    rates.add(300.0, 300.0, {}, 1000)
    assert rates.steady_rows is None
    rates.add(310.0, 10.0, {"t": 5}, 0)
    rates.add(320.0, 10.0, {}, 1000)
    assert rates.steady_rows is None
    rates.add(330.0, 10.0, {}, 3000)
    steady: list[float | None] = [rates.steady_rows]
    for end in range(340, 640, 10):
        rates.add(float(end), 10.0, {}, 500)
    assert [*steady, rates.steady_rows] == [200.0, 50.0], "older batches do not count"


def test_a_later_batch_reads_what_is_left() -> None:
    table = PlannedTable(4, 6, rows=750, chunks_estimate=6, rows_estimate=1500)
    batch = reading(BatchPlan(9, {T: table}))
    batch.update_plan()
    known = TableStatus(state="snapshotting", rows_read=1200, rows_estimate=1500)
    assert batch.activity(0, {T: known}).rows_estimate == 300
    more = known.model_copy(update={"rows_read": 1600})
    assert batch.activity(0, {T: more}).rows_estimate == 750, "there are more rows than the server thought"


def described(**header: Any) -> Batch:
    parts = [Part(T, "chunk", "{}", images=500, changes=500), Part(T, "rows", "{}", images=8, changes=5)]
    return Batch(Header(9, "", f"{UUID}:1-4", UUID, 0, **header), {T: parts}, [], [], [])


def test_applying_a_batch() -> None:
    batch = reading()
    batch.applies(described(behind=3))
    batch.writes(2)
    batch.wrote()
    now = batch.activity(5, {})
    assert (now.phase, now.since_us, now.rows, now.changes, now.transactions) == ("applying", 5, 500, 5, 4)
    assert (now.tables_written, now.tables_to_write, now.seconds_left) == (1, 2, None)
    assert batch.behind() == 7
    batch.commits()
    assert batch.activity(6, {}).phase == "committing"
    rates = Rates(100.0)
    assert rates.at(110.0, batch).rows == 50.0, "what is under way counts"


def test_transactions_are_counted_where_there_are_gtids() -> None:
    assert count_transactions(f"{UUID}:1-4", f"{UUID}:1-9") == 5
    assert count_transactions("", "") == 0
    places = str(LogPlace.before(UUID, 3, 1000))
    assert count_transactions(places, places) is None


def test_how_far_all_tables_are() -> None:
    live = TableStatus(state="live", rows=99)
    assert snapshot_status({"a": live}, 10.0) is None
    half = TableStatus(state="snapshotting", rows_read=500, rows_estimate=1000)
    total = snapshot_status({"a": live, "b": half, "c": half}, 10.0)
    assert total is not None
    assert total.model_dump() == {"tables": 2, "rows": 1000, "rows_estimate": 2000, "seconds_left": 100.0}
    waits = TableStatus(state="snapshotting")
    unknown = snapshot_status({"b": half, "c": waits}, 10.0)
    assert unknown is not None
    assert (unknown.rows_estimate, unknown.seconds_left) == (None, None)
    low = snapshot_status({"b": half.model_copy(update={"rows_read": 1200})}, None)
    assert low is not None
    assert (low.rows, low.rows_estimate, low.seconds_left) == (1200, 1200, None)

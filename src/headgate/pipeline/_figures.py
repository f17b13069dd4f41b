"""Figures of a run for its status: its speed, the lake's freshness, the current batch's progress. No clock in here.

Times are seconds of one monotonic clock, which the caller reads; those with ``_us`` are microseconds since 1970 UTC.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headgate.carrier import Batch, Commits
from headgate.positions import parse_position
from headgate.sinks import BatchReport
from headgate.status import (
    BATCH_PHASES,
    Activity,
    FreshnessStatus,
    HistoryStatus,
    Phase,
    SnapshotStatus,
    TableReadProgress,
    TableStatus,
)

if TYPE_CHECKING:
    from headgate.spark import BatchPlan

__all__ = [
    "CurrentBatch",
    "FigureHistory",
    "Freshness",
    "Rates",
    "RatesNow",
    "as_of_after",
    "count_transactions",
    "past_moment",
    "snapshot_status",
]

_RATE_SECONDS = 60.0
"""Rates are averages over this time, or over the run's life if that is shorter."""
_STEADY_BATCHES: Final = 8
_LEAST_STEADY: Final = 2
"""An estimate of the time left needs this many batches that have read tables, after the first, and uses the last
``_STEADY_BATCHES``. The first one of a run also loads and compiles, so its speed is not that of the others."""
_LEAST_TASKS: Final = 2
"""The time left of a batch is known once this many of its tasks are done: they begin together."""

_FRESHNESS_SECONDS: Final = 300.0
_SLICE_SECONDS: Final = 5.0
"""Percentiles cover the last five minutes, in steps of this length."""
_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Bucket limits of the counts since the run began, in seconds; close together where a run that keeps up is."""
_STEP: Final = 1.1
"""Highest ratio of adjacent limits for percentiles, which sets their precision."""
_LONGEST_SECONDS: Final = 1e7
_AT_ONCE: Final = 1024

_POINT_US: Final = 5_000_000
_POINTS: Final = 120
"""Points of a history; ``_POINT_US`` is the time between two."""


@dataclass(frozen=True)
class RatesNow:
    """Rates per second; ``tables`` has the changes of each table with recent ones, without the current batch."""

    changes: float
    rows: float
    tables: Mapping[str, float]


@dataclass(frozen=True)
class _Work:
    """Work of a batch from ``begin`` to ``end``."""

    begin: float
    end: float
    changes: Mapping[str, int]
    rows: int

    def before(self, moment: float) -> float:
        """Return which part of it was done before a moment: it counts evenly over its duration."""
        return min(1.0, (moment - self.begin) / (self.end - self.begin)) if self.begin < min(moment, self.end) else 0.0


class Rates:
    """Changes and rows per second over the last minute.

    They are kept as a sum, so a look costs little, however many batches and tables there are. Batches do not overlap,
    so only the oldest one may have begun before that minute.

    :param begun: when the run began.
    """

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._end = begun
        self._recent: deque[_Work] = deque()  # ended within the last minute, as of the last look; in order of time
        self._changes: Counter[str] = Counter()
        self._rows = 0
        self._steady: deque[_Work] = deque(maxlen=_STEADY_BATCHES)
        self._has_read = False

    def add(self, end: float, seconds: float, changes: Mapping[str, int], rows: int) -> None:
        """Add a batch that took ``seconds`` and has ended; batches do not overlap."""
        work = _Work(min(max(end - seconds, self._end), end), end, dict(changes), rows)
        self._end = end
        self._recent.append(work)
        if rows and self._has_read:
            self._steady.append(work)
        self._has_read = self._has_read or rows > 0
        self._changes.update(work.changes)
        self._rows += rows

    def at(self, now: float, under_way: CurrentBatch | None = None) -> RatesNow:
        """Return the rates at a moment, with the current batch's work so far."""
        since = max(now - _RATE_SECONDS, self._begun)
        while self._recent and self._recent[0].end < since:
            work = self._recent.popleft()
            self._changes.subtract(work.changes)
            self._rows -= work.rows
        tables: dict[str, float] = dict(self._changes)
        rows = float(self._rows)
        if self._recent:
            oldest = self._recent[0]
            share = oldest.before(since)
            rows -= oldest.rows * share
            for table, count in oldest.changes.items():
                tables[table] -= count * share
        span = max(1.0, now - since)
        changes = sum(tables.values())
        if under_way is not None:
            work = under_way.work(now)
            share = 1 - work.before(since)
            changes, rows = changes + sum(work.changes.values()) * share, rows + work.rows * share
        each = {table: round(count / span, 1) for table, count in tables.items() if count}
        return RatesNow(round(changes / span, 1), round(rows / span, 1), each)

    @property
    def steady_rows(self) -> float | None:
        """Rows read per second in the newest batches that read tables; None: there were too few to tell."""
        if len(self._steady) < _LEAST_STEADY:
            return None
        seconds = self._steady[-1].end - self._steady[0].begin
        return sum(work.rows for work in self._steady) / seconds if seconds > 0 else None


def _limits() -> Any:
    """Return float64[n]: limits of freshness in seconds, ascending, those of ``_BUCKETS`` among them."""
    marks = (0.01, *_BUCKETS, _LONGEST_SECONDS)
    parts = [np.array([marks[0]])]
    for low, high in pairwise(marks):
        steps = int(np.ceil(np.log(high / low) / np.log(_STEP)))
        parts.append(np.geomspace(low, high, steps + 1)[1:])
    return np.concatenate(parts)


_LIMITS: Final = _limits()
_MARKS: Final = np.searchsorted(_LIMITS, _BUCKETS)


class Freshness:
    """Time that changes take from their commit at the source to the ledger's row.

    Of each record batch the oldest and the newest commit are known; its changes count evenly over the time between
    them. If the clocks date a change in the future, it took no time.

    Percentiles have only changes that were committed after the run was up to date for the first time: those before had
    to wait for its start or for tables to be read, which says nothing about a run that follows. What is counted since
    the run began has all changes.
    """

    def __init__(self) -> None:
        self._changes, self._seconds = 0, 0.0
        self._followed_since_us: int | None = None
        self._since_begun = np.zeros(len(_LIMITS))  # changes that took at most each limit
        self._slices: deque[tuple[float, Any]] = deque()  # the same, by start of the slice

    def follow(self, since_us: int) -> None:
        """Note that the lake was up to date at a moment. Only the first call counts."""
        if self._followed_since_us is None:
            self._followed_since_us = since_us

    def add(self, now: float, committed_us: int, commits: Sequence[Commits]) -> None:
        """Add the changes of a batch that the ledger has since ``committed_us``."""
        for first in range(0, len(commits), _AT_ONCE):
            oldest, newest, changes = np.array(commits[first : first + _AT_ONCE], np.float64).T
            most, least = (((committed_us - at_us) / 1e6).clip(0, _LONGEST_SECONDS) for at_us in (oldest, newest))
            self._changes += int(changes.sum())
            self._seconds += float(((most + least) / 2 * changes).sum())
            shares = _up_to(_LIMITS[:, None], least, most)
            self._since_begun += shares @ changes
            if self._followed_since_us is not None:
                longest = (committed_us - self._followed_since_us) / 1e6
                self._count(now, np.minimum(shares, _up_to(longest, least, most)) @ changes)

    def _count(self, now: float, counts: Any) -> None:
        if not self._slices or now >= self._slices[-1][0] + _SLICE_SECONDS:
            self._slices.append((now, np.zeros(len(_LIMITS))))
        self._slices[-1][1][:] += counts

    def at(self, now: float) -> FreshnessStatus:
        """Return the figures at a moment."""
        while self._slices and self._slices[0][0] <= now - _FRESHNESS_SECONDS:
            self._slices.popleft()
        recent = sum((counts for _, counts in self._slices), np.zeros(len(_LIMITS)))
        buckets = zip(_BUCKETS, np.rint(self._since_begun[_MARKS]).astype(int).tolist(), strict=True)
        return FreshnessStatus(
            p50=_percentile(recent, 0.5),
            p99=_percentile(recent, 0.99),
            changes=self._changes,
            seconds=round(self._seconds, 3),
            buckets=tuple(buckets),
        )


def _up_to(seconds: Any, least: Any, most: Any) -> Any:
    """Return which share of each record batch's changes took at most so long; it counts evenly between its least and
    its most seconds.
    """
    return np.where(seconds >= most, 1.0, ((seconds - least) / np.maximum(most - least, 1e-9)).clip(0, 1))


def _percentile(counts: Any, share: float) -> float | None:
    """Return the seconds that this share of the changes took at most; None: there are none."""
    wanted = share * counts[-1]
    if wanted <= 0:
        return None
    index = int(np.searchsorted(counts, wanted * (1 - 1e-9)))  # counts are sums of fractions
    low, below = (_LIMITS[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    part = (wanted - below) / (counts[index] - below)
    return round(float(low + (_LIMITS[index] - low) * part), 3)


class FigureHistory:
    """Lag and rate of the last ten minutes.

    :param before: the history of the previous run.
    """

    def __init__(self, before: HistoryStatus) -> None:
        points = zip(before.at_us, before.lag_seconds, before.changes_per_second, strict=False)
        self._points: deque[tuple[int, float | None, float]] = deque(points, _POINTS)

    def add(self, at_us: int, lag_seconds: float | None, changes_per_second: float) -> None:
        """Add the lag and the rate at a moment. A point has the greatest lag and the last rate of its five seconds."""
        if self._points and self._points[-1][0] // _POINT_US >= at_us // _POINT_US:
            _, before, _ = self._points.pop()
            lag_seconds = max((lag for lag in (before, lag_seconds) if lag is not None), default=None)
        self._points.append((at_us, lag_seconds, changes_per_second))
        while self._points[0][0] <= at_us - _POINTS * _POINT_US:
            self._points.popleft()

    def status(self) -> HistoryStatus:
        """Return all points."""
        at_us, lag, changes = zip(*self._points, strict=True) if self._points else ((), (), ())
        return HistoryStatus(at_us=at_us, lag_seconds=lag, changes_per_second=changes)


@dataclass(frozen=True)
class _Facts:
    """Known facts of a batch: rows and changes by table, and transactions; None: unknown."""

    transactions: int | None = None
    behind: int | None = None
    rows: Mapping[str, int] | None = None
    changes: Mapping[str, int] | None = None


class CurrentBatch:
    """One batch, from the moment at which Spark hands it over.

    :meth:`update_plan` may be called in another thread than the other methods, which are called one at a time.

    :param plan: returns what a batch reads; None: not known yet.
    :param is_first: whether it is the run's first batch, whose tasks also load and compile.
    """

    def __init__(
        self, batch_id: int, now: float, plan: Callable[[int], BatchPlan | None], *, is_first: bool = False
    ) -> None:
        self._batch_id, self._begun, self._find_plan, self._is_first = batch_id, now, plan, is_first
        self._plan: BatchPlan | None = None
        self._final_facts: _Facts | None = None  # once it is read
        self._tasks: tuple[int, int] | None = None
        self._seconds_left: float | None = None
        self._tables: tuple[int, int] | None = None
        self._is_written = False
        self._phases: dict[Phase, float] = {}

    # --- updates

    def update_plan(self) -> None:
        """Look for the plan, as long as it is unknown and the batch is being read."""
        if self._plan is None and self._final_facts is None:
            self._plan = self._find_plan(self._batch_id)

    def applies(self, batch: Batch) -> None:
        """Note that it was read."""
        report = BatchReport.of(batch, self._batch_id, {})
        new = count_transactions(report.start, report.gtid)
        self._final_facts = _Facts(new, None if new is None else report.behind, report.rows, report.changes)

    def counts_tasks(self, done: int, number: int, now: float) -> None:
        """Note how many of the tasks that read it are done."""
        self._tasks = done, number
        is_known = not self._is_first and done >= min(number, _LEAST_TASKS)
        self._seconds_left = round((now - self._begun) / done * (number - done), 1) if is_known and done else None

    def writes(self, tables: int) -> None:
        """Note that writing of this many tables begins."""
        self._tables = 0, tables

    def wrote(self) -> None:
        """Note that one of them is written."""
        if self._tables is not None:
            self._tables = self._tables[0] + 1, self._tables[1]

    def commits(self) -> None:
        """Note that all tables are written."""
        self._is_written = True

    def took(self, phase: Phase, us: int) -> None:
        """Note how many microseconds one of its phases took; a clock that is set back makes no time negative."""
        self._phases[phase] = round(max(0, us) / 1e6, 3)

    # --- results

    @property
    def _facts(self) -> _Facts:
        if self._final_facts is not None or self._plan is None:
            return self._final_facts or _Facts()
        return _Facts(self._plan.transactions, self._plan.behind)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of those of its phases that are over, in order."""
        return {phase: self._phases[phase] for phase in BATCH_PHASES if phase in self._phases}

    def behind(self) -> int | None:
        """Return the transactions that the lake lacks, as known at planning; None: unknown."""
        facts = self._facts
        return None if facts.transactions is None or facts.behind is None else facts.transactions + facts.behind

    def work(self, now: float) -> _Work:
        """Return the work done so far."""
        return _Work(self._begun, now, self._facts.changes or {}, sum((self._facts.rows or {}).values()))

    def activity(self, since_us: int, known: Mapping[str, TableStatus]) -> Activity:
        """Return its activity for the status.

        :param since_us: when its reading, or its applying, began.
        :param known: the tables as of the ledger.
        """
        facts = self._facts
        tables = self._readings(known)
        common: dict[str, Any] = {
            "since_us": since_us,
            "batch_id": self._batch_id,
            "tables": tables,
            "rows": None if facts.rows is None else sum(facts.rows.values()),
            "changes": None if facts.changes is None else sum(facts.changes.values()),
            "transactions": facts.transactions,
            "phases": self.phases,
        }
        if self._final_facts is not None:
            written, to_write = self._tables or (None, None)
            phase: Phase = "committing" if self._is_written else "applying"
            return Activity(phase=phase, tables_written=written, tables_to_write=to_write, **common)
        estimate = sum(table.rows_estimate for table in tables.values()) if tables else None
        done, number = self._tasks or (None, None)
        return Activity(
            phase="reading",
            rows_estimate=estimate,
            seconds_left=self._seconds_left,
            tasks_done=done,
            tasks=number,
            **common,
        )

    def _readings(self, known: Mapping[str, TableStatus]) -> dict[str, TableReadProgress]:
        progress = {}
        for name, planned in (self._plan.tables if self._plan is not None else {}).items():
            before = known.get(name)
            left = planned.rows_estimate - (before.rows_read if before is not None else 0)
            progress[name] = TableReadProgress(
                first=planned.first,
                last=planned.last,
                chunks_estimate=planned.chunks_estimate,
                table_rows_estimate=planned.rows_estimate or None,
                rows_estimate=min(planned.rows, left) if left > 0 else planned.rows,
            )
        return progress


def count_transactions(start: str, end: str) -> int | None:
    """Return how many transactions are in ``end`` and not in ``start``; None: the log does not tell."""
    return (parse_position(end) - parse_position(start)).transactions()


def snapshot_status(tables: Mapping[str, TableStatus], rows_per_second: float | None) -> SnapshotStatus | None:
    """Return the progress of the tables being read; None: none is being read.

    :param rows_per_second: None: not known yet, nor the time left.
    """
    snapshotting = [table for table in tables.values() if table.state == "snapshotting"]
    if not snapshotting:
        return None
    rows = sum(table.rows_read for table in snapshotting)
    known = all(table.rows_estimate for table in snapshotting)
    estimate = sum(max(table.rows_estimate or 0, table.rows_read) for table in snapshotting) if known else None
    left = (estimate - rows) / rows_per_second if estimate and rows_per_second else None
    return SnapshotStatus(
        tables=len(snapshotting),
        rows=rows,
        rows_estimate=estimate,
        seconds_left=None if left is None else round(left, 1),
    )


def past_moment(as_of_us: int | None, now_us: int) -> int | None:
    """Return a moment as of which the lake is complete; None: unknown, also if a clock that was ahead made it."""
    return None if as_of_us is None or as_of_us > now_us else as_of_us


def as_of_after(report: BatchReport, before: int | None) -> int | None:
    """Return as of when the lake is complete, after a batch; None: unknown. It never decreases.

    :param before: the same before the batch.
    """
    as_of_us = report.planned_us
    if report.behind:  # changes after its newest one are still missing
        as_of_us = min(
            as_of_us,
            max(
                (commits.newest_us for table_commits in report.commits.values() for commits in table_commits), default=0
            ),
        )
    return max(as_of_us, before or 0) or None

"""Figures of a run for its status: how fast it is, how fresh the lake, how far the batch under way. No clock in here.

Times are seconds of one monotonic clock, which the caller reads; those with ``_us`` are microseconds since 1970 UTC.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headgate.carrier import Commits
from headgate.gtid import GtidSet
from headgate.lake import Activity, FreshnessStatus, HistoryStatus, SnapshotStatus, TableReading, TableStatus
from headgate.places import end_of, transactions
from headgate.sinks import Batch

if TYPE_CHECKING:
    from headgate.spark import BatchPlan, BatchProgress

__all__ = ["BatchUnderWay", "Freshness", "History", "Rates", "RatesNow", "count_transactions", "snapshot_status"]

_RATE_SECONDS = 60.0
"""Rates are averages over so long, or over the run's life if that is shorter."""
_READING_SECONDS = 10.0
"""The same for the rows of a batch that is being read."""

_FRESHNESS_SECONDS: Final = 300.0
_SLICE_SECONDS: Final = 5.0
"""Percentiles are those of the last five minutes, which move on by so much."""
_BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Limits of what is counted since the run began, in seconds: close to each other where a run that keeps up is."""
_STEP: Final = 1.1
"""What is counted for percentiles has limits of this ratio at most, so they are that near."""
_LONGEST_SECONDS: Final = 1e7
_AT_ONCE: Final = 1024

_POINT_US: Final = 5_000_000
_POINTS: Final = 120
"""Points of a history, and the time between two."""


@dataclass(frozen=True)
class RatesNow:
    """Per second; ``tables`` has the changes of each table that had some lately, but for the batch under way."""

    changes: float
    rows: float
    tables: Mapping[str, float]


@dataclass(frozen=True)
class _Work:
    """What a batch did from ``begin`` to ``end``."""

    begin: float
    end: float
    changes: Mapping[str, int]
    rows: int

    def share(self, begin: float, end: float) -> float:
        """Which part of it was done between two moments: it counts evenly over the time that it took."""
        if self.end <= self.begin:
            return float(begin <= self.end <= end)
        return max(0.0, min(self.end, end) - max(self.begin, begin)) / (self.end - self.begin)


class Rates:
    """Changes and rows per second over the last minute.

    What was done within it is kept as a sum, so that a look costs little, however many batches and tables there are.

    :param begun: when the run began.
    """

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._end = begun
        self._whole: deque[_Work] = deque()  # begun within the last minute, as of the last look; in order of time
        self._partly: deque[_Work] = deque()  # begun before that
        self._changes: Counter[str] = Counter()  # of the former
        self._rows = 0

    def add(self, end: float, seconds: float, changes: Mapping[str, int], rows: int) -> None:
        """A batch that took so long has ended; one begins after the other."""
        work = _Work(min(max(end - seconds, self._end), end), end, dict(changes), rows)
        self._end = end
        self._whole.append(work)
        self._changes.update(work.changes)
        self._rows += rows

    def at(self, now: float, under_way: BatchUnderWay | None = None) -> RatesNow:
        """The rates at a moment, with what the batch under way has done so far."""
        since = max(now - _RATE_SECONDS, self._begun)
        while self._whole and self._whole[0].begin < since:
            work = self._whole.popleft()
            self._changes.subtract(work.changes)
            self._rows -= work.rows
            self._partly.append(work)
        while self._partly and self._partly[0].end < since:
            self._partly.popleft()
        tables: dict[str, float] = dict(self._changes)
        rows = float(self._rows)
        for work in self._partly:
            share = work.share(since, now)
            rows += work.rows * share
            for table, count in work.changes.items():
                tables[table] = tables.get(table, 0.0) + count * share
        span = max(1.0, now - since)
        changes = sum(tables.values())
        if under_way is not None:
            work = under_way.work(now)
            share = work.share(since, now)
            changes, rows = changes + sum(work.changes.values()) * share, rows + work.rows * share
        each = {table: round(count / span, 1) for table, count in tables.items() if count}
        return RatesNow(round(changes / span, 1), round(rows / span, 1), each)


def _limits() -> Any:
    """float64[n]: limits of freshness in seconds, ascending, those of ``_BUCKETS`` among them."""
    marks = (0.01, *_BUCKETS, _LONGEST_SECONDS)
    parts = [np.array([marks[0]])]
    for low, high in pairwise(marks):
        steps = int(np.ceil(np.log(high / low) / np.log(_STEP)))
        parts.append(np.geomspace(low, high, steps + 1)[1:])
    return np.concatenate(parts)


_LIMITS: Final = _limits()
_MARKS: Final = np.searchsorted(_LIMITS, _BUCKETS)


class Freshness:
    """How long changes take from their commit at the source to the ledger's row.

    Of each record batch the oldest and the newest commit are known; its changes count evenly over the time between
    them. A change from the future, as the clocks have it, took no time.
    """

    def __init__(self) -> None:
        self._changes, self._seconds = 0, 0.0
        self._since_begun = np.zeros(len(_LIMITS))  # changes that took at most so long as the limit
        self._slices: deque[tuple[float, Any]] = deque()  # the same, by when the slice began

    def add(self, now: float, committed_us: int, commits: Sequence[Commits]) -> None:
        """The ledger has a batch since ``committed_us``."""
        for first in range(0, len(commits), _AT_ONCE):
            oldest, newest, changes = np.array(commits[first : first + _AT_ONCE], np.float64).T
            most, least = (((committed_us - at_us) / 1e6).clip(0, _LONGEST_SECONDS) for at_us in (oldest, newest))
            self._changes += int(changes.sum())
            self._seconds += float(((most + least) / 2 * changes).sum())
            inside = (_LIMITS[:, None] - least) / np.maximum(most - least, 1e-9)
            share = np.where(_LIMITS[:, None] >= most, 1.0, inside.clip(0, 1))
            self._count(now, share @ changes)

    def _count(self, now: float, counts: Any) -> None:
        self._since_begun += counts
        if not self._slices or now >= self._slices[-1][0] + _SLICE_SECONDS:
            self._slices.append((now, np.zeros(len(_LIMITS))))
        self._slices[-1][1][:] += counts

    def at(self, now: float) -> FreshnessStatus:
        """The figures at a moment."""
        while self._slices and self._slices[0][0] <= now - _FRESHNESS_SECONDS:
            self._slices.popleft()
        lately = sum((counts for _, counts in self._slices), np.zeros(len(_LIMITS)))
        buckets = zip(_BUCKETS, np.rint(self._since_begun[_MARKS]).astype(int).tolist(), strict=True)
        return FreshnessStatus(
            p50=_percentile(lately, 0.5),
            p99=_percentile(lately, 0.99),
            changes=self._changes,
            seconds=round(self._seconds, 3),
            buckets=tuple(buckets),
        )


def _percentile(counts: Any, share: float) -> float | None:
    """The seconds that this share of the changes took at most; None: there are none."""
    wanted = share * counts[-1]
    if wanted <= 0:
        return None
    place = int(np.searchsorted(counts, wanted * (1 - 1e-9)))  # counts are sums of fractions
    low, below = (_LIMITS[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    part = (wanted - below) / (counts[place] - below)
    return round(float(low + (_LIMITS[place] - low) * part), 3)


class History:
    """Lag and rate of the last ten minutes.

    :param before: what the run before has left.
    """

    def __init__(self, before: HistoryStatus) -> None:
        points = zip(before.at_us, before.lag_seconds, before.changes_per_second, strict=False)
        self._points: deque[tuple[int, float | None, float]] = deque(points, _POINTS)

    def add(self, at_us: int, lag_seconds: float | None, changes_per_second: float) -> None:
        """The lag and the rate at a moment. A point has the greatest lag and the last rate of its five seconds."""
        if self._points and self._points[-1][0] // _POINT_US >= at_us // _POINT_US:
            _, before, _ = self._points.pop()
            lag_seconds = max((lag for lag in (before, lag_seconds) if lag is not None), default=None)
        self._points.append((at_us, lag_seconds, changes_per_second))
        while self._points[0][0] <= at_us - _POINTS * _POINT_US:
            self._points.popleft()

    def status(self) -> HistoryStatus:
        """All points."""
        at_us, lag, changes = zip(*self._points, strict=True) if self._points else ((), (), ())
        return HistoryStatus(at_us=at_us, lag_seconds=lag, changes_per_second=changes)


@dataclass(frozen=True)
class _Facts:
    """What is known of a batch: rows and changes by table, and transactions; None: nobody knows."""

    transactions: int | None = None
    behind: int | None = None
    rows: Mapping[str, int] | None = None
    changes: Mapping[str, int] | None = None


class BatchUnderWay:
    """One batch, from the moment at which Spark hands it over.

    :meth:`look` may be called in another thread than the rest, which are called one at a time.
    """

    def __init__(self, batch_id: int, now: float, progress: BatchProgress | None) -> None:
        self._batch_id, self._begun, self._progress = batch_id, now, progress
        self._plan: BatchPlan | None = None
        self._seen = _Facts()  # while it is read
        self._brought: _Facts | None = None  # from then on
        self._lately: deque[tuple[float, int]] = deque([(now, 0)])
        self._tasks: tuple[int, int] | None = None
        self._tables: tuple[int, int] | None = None

    # --- what becomes known

    def look(self, now: float) -> None:
        """Find out how far the reading is."""
        if self._progress is None or self._brought is not None:
            return
        plan = self._plan = self._plan or self._progress.plan(self._batch_id)
        if plan is None:
            return
        rows, changes = self._progress.read(plan.epoch) or (None, None)
        self._seen = _Facts(plan.transactions, plan.behind, rows, changes)
        if rows is not None:
            lately = [*self._lately, (now, rows.total())]
            while len(lately) > 2 and now - lately[1][0] >= _READING_SECONDS:
                del lately[0]
            self._lately = deque(lately)

    def applies(self, batch: Batch) -> None:
        """It was read."""
        header = batch.header
        new = count_transactions(header.start, header.gtid)
        parts = [part for found in batch.parts.values() for part in found]
        rows, changes = (_counts(parts, kind) for kind in ("chunk", "rows"))
        self._brought = _Facts(new, None if new is None else header.behind, rows, changes)

    def counts_tasks(self, done: int, number: int) -> None:
        """So many of the tasks that read it are done."""
        self._tasks = done, number

    def writes(self, tables: int) -> None:
        """So many tables are written."""
        self._tables = 0, tables

    def wrote(self) -> None:
        """One of them is."""
        if self._tables is not None:
            self._tables = self._tables[0] + 1, self._tables[1]

    # --- what it means

    @property
    def _facts(self) -> _Facts:
        return self._brought or self._seen

    def behind(self) -> int | None:
        """Transactions that the lake lacks, as far as was known at planning; None: nobody can tell."""
        facts = self._facts
        return None if facts.transactions is None or facts.behind is None else facts.transactions + facts.behind

    def work(self, now: float) -> _Work:
        """What was done so far."""
        return _Work(self._begun, now, self._facts.changes or {}, sum((self._facts.rows or {}).values()))

    def activity(self, since_us: int, known: Mapping[str, TableStatus]) -> Activity:
        """What is told of it.

        :param since_us: when it began to be read, or to be applied.
        :param known: the tables as of the ledger.
        """
        facts = self._facts
        rows = None if facts.rows is None else sum(facts.rows.values())
        tables = self._readings(known, facts.rows or {})
        common: dict[str, Any] = {
            "since_us": since_us,
            "batch_id": self._batch_id,
            "tables": tables,
            "rows": rows,
            "changes": None if facts.changes is None else sum(facts.changes.values()),
            "transactions": facts.transactions,
        }
        if self._brought is not None:
            written, to_write = self._tables or (None, None)
            return Activity(phase="applying", tables_written=written, tables_to_write=to_write, **common)
        estimate = sum(table.rows_estimate for table in tables.values()) if tables else None
        done, number = self._tasks or (None, None)
        rate = self._rate()
        left = (estimate - rows) / rate if rate and estimate and rows is not None and rows < estimate else None
        return Activity(
            phase="reading",
            rows_estimate=estimate,
            rows_per_second=rate,
            seconds_left=None if left is None else round(left, 1),
            tasks_done=done,
            tasks=number,
            **common,
        )

    def _rate(self) -> float | None:
        lately = self._lately
        (first, before), (last, rows) = lately[0], lately[-1]
        return round((rows - before) / (last - first), 1) if last > first and rows > before else None

    def _readings(self, known: Mapping[str, TableStatus], rows: Mapping[str, int]) -> dict[str, TableReading]:
        found = {}
        for name, planned in (self._plan.tables if self._plan is not None else {}).items():
            before = known.get(name)
            left = planned.rows_estimate - (before.rows_read if before is not None else 0)
            found[name] = TableReading(
                first=planned.first,
                last=planned.last,
                chunks_estimate=planned.chunks_estimate,
                rows=rows.get(name, 0),
                table_rows_estimate=planned.rows_estimate or None,
                rows_estimate=min(planned.rows, left) if left > 0 else planned.rows,
            )
        return found


def _counts(parts: list[Any], kind: str) -> dict[str, int]:
    """Rows of snapshots, or changes, by table."""
    found: dict[str, int] = {}
    for part in parts:
        if part.kind == kind:
            found[part.table] = found.get(part.table, 0) + (part.images if kind == "chunk" else part.changes)
    return found


def count_transactions(start: str, end: str) -> int | None:
    """How many are in ``end`` and not in ``start``, GTID sets; None: they are places in a log without GTIDs."""
    last = GtidSet.parse(end)
    return None if end_of(last) is not None else transactions(last - GtidSet.parse(start))


def snapshot_status(tables: Mapping[str, TableStatus], rows_per_second: float) -> SnapshotStatus | None:
    """How far the reading of tables is; None: none is being read."""
    found = [table for table in tables.values() if table.state == "snapshotting"]
    if not found:
        return None
    rows = sum(table.rows_read for table in found)
    known = all(table.rows_estimate for table in found)
    estimate = sum(max(table.rows_estimate or 0, table.rows_read) for table in found) if known else None
    left = (estimate - rows) / rows_per_second if estimate and rows_per_second > 0 else None
    return SnapshotStatus(
        tables=len(found), rows=rows, rows_estimate=estimate, seconds_left=None if left is None else round(left, 1)
    )

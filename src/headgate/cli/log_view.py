"""Output of `headgate run` that is no terminal: log lines, bounded by the time rather than by the work.

- A table that changes its state has a line at once. Where that needs care, the run has warned already.
- Batches have one line a period, with their sums: the first batch at once, then every 10 seconds, later every minute.
  With it comes a line for each table whose first rows are read.
- A long activity has a line now and then, so that a period without a batch says what is waited for.

At level DEBUG each batch has its line, and each table that it changed. All data comes from the run's status; a table's
figures in a period are the differences of its totals. The records' fields are for logs in JSON.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from headgate.status import (
    BatchStatus,
    Status,
    TableStatus,
    activity_text,
    counted,
    duration,
    gtid_text,
    lag_text,
    table_text,
)

__all__ = ["LogView"]

log = logging.getLogger("headgate")

_FIRST_SECONDS: Final = 3.0
_REPEAT_SECONDS: Final = (10.0, 300.0)
"""A long activity is logged after ``_FIRST_SECONDS``, then each time a quarter longer, within these limits."""
_PERIODS: Final = (10.0, 60.0)
"""Seconds between two lines of batches: of the first ``_SHORT_PERIODS`` lines, and of later ones."""
_SHORT_PERIODS: Final = 6
_NAMED: Final = 10
"""Number of tables that enter a state in one batch and have a line each."""


class LogView:
    """Logs what a run does."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._reported: Status | None = None  # as of the last line of batches
        self._batches = 0  # since that line
        self._lines = 0
        self._doing: tuple[str, int] | None = None  # the activity, and since when
        self._due = _FIRST_SECONDS

    def spark_started(self) -> None:
        """Note that Spark has started."""
        log.info("Spark has started")

    def stop_requested(self) -> None:
        """Note that the run is to stop."""

    def update(self, status: Status) -> None:
        """Take the run's status, every second and after each batch, in order."""
        before, self._status = self._status, status
        if before is None:
            self._reported = status
        elif status.batch is not None and status.batch != before.batch:
            self._batches += 1
            self._log_states(status, before.tables)
            self._log_batch(status, status.batch, before.tables)
        if self._batches and self._is_due(status):
            self._log_period()
        self._log_activity(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = self._status
        if self._batches:
            self._log_period()
        if status is not None and error is None:
            changes, rows = (sum(getattr(t, name) for t in status.tables.values()) for name in ("changes", "rows"))
            done = _work_text(rows, changes, 0) or "nothing to do"
            fields = {"batches": status.batches, "changes": changes, "rows": rows}
            log.info("ended after %s: %s", _batches(status.batches), done, extra=fields)

    def _is_due(self, status: Status) -> bool:
        if self._lines == 0 or self._reported is None:
            return True
        period = _PERIODS[self._lines > _SHORT_PERIODS]
        return (status.updated_us - self._reported.updated_us) / 1e6 >= period

    def _log_states(self, status: Status, before: Mapping[str, TableStatus]) -> None:
        """Log tables in a new state: those that need care by name, many others of one state as a number."""
        entered: dict[str, list[str]] = {}
        for name, table in sorted(status.tables.items()):
            if name not in before or table.state != before[name].state:
                entered.setdefault(table.state, []).append(name)
        for state, names in entered.items():
            if len(names) > _NAMED and not status.tables[names[0]].is_suspended:
                log.info("%s are %s", counted(len(names), "table"), state, extra={"state": state, "tables": len(names)})
                continue
            for name in names:
                table = status.tables[name]
                fields = {"table": name, "state": state, "reason": table.reason}
                log.info("%s %s: %s", name, state, table_text(table), extra=fields)

    def _log_batch(self, status: Status, batch: BatchStatus, before: Mapping[str, TableStatus]) -> None:
        if not log.isEnabledFor(logging.DEBUG):
            return
        for name, (rows, changes) in _growth(before, status.tables).items():
            fields = {"table": name, "rows": rows, "changes": changes, "batch": batch.batch_id, "gtid": batch.gtid}
            log.debug("%s: %s", name, _work_text(rows, changes, batch.seconds), extra=fields)
        what = "it was in the ledger already" if batch.replayed else _seconds_and_work(batch)
        fields = {"batch": batch.batch_id, "gtid": batch.gtid, "seconds": batch.seconds}
        log.debug("batch %d: %s, up to %s", batch.batch_id, what, gtid_text(batch.gtid), extra=fields)

    def _log_period(self) -> None:
        status, reported, batches = self._status, self._reported, self._batches
        if status is None or reported is None or status.batch is None:
            return
        self._reported, self._batches, self._lines = status, 0, self._lines + 1
        grown = _growth(reported.tables, status.tables)
        for name in grown:
            table = status.tables[name]
            if table.state == "snapshotting":
                fields: dict[str, Any] = {"table": name, "state": table.state, "rows": table.rows}
                log.info("%s snapshotting: %s", name, table_text(table), extra=fields)
        rows, changes = (sum(each[part] for each in grown.values()) for part in (0, 1))
        batch = status.batch
        seconds = batch.seconds if batches == 1 else (status.updated_us - reported.updated_us) / 1e6
        if batches > 1:
            what = f"{_batches(batches)} in {duration(seconds)}:"
        else:
            what = f"batch {batch.batch_id}: {duration(seconds)},"
        if grown:
            done = f"{_work_text(rows, changes, seconds)} in {counted(len(grown), 'table')}"
        else:
            done = "it was in the ledger already" if batch.replayed else "nothing in these tables"
        fields = {
            "batch": batch.batch_id,
            "batches": batches,
            "seconds": round(seconds, 3),
            "rows": rows,
            "changes": changes,
            "tables": len(grown),
            "lag_seconds": status.lag.seconds,
            "gtid": batch.gtid,
        }
        log.info("%s %s, %s, up to %s", what, done, lag_text(status.lag), gtid_text(batch.gtid), extra=fields)

    def _log_activity(self, status: Status) -> None:
        activity = status.activity
        if activity is None or activity.phase in ("resting", "waiting", "retrying"):
            return
        if self._doing != (activity.phase, activity.since_us):
            self._doing, self._due = (activity.phase, activity.since_us), _FIRST_SECONDS
        seconds = (status.updated_us - activity.since_us) / 1e6
        if seconds >= self._due:
            least, most = _REPEAT_SECONDS
            self._due = seconds + min(max(least, seconds / 4), most)
            fields = {"phase": activity.phase, "seconds": round(seconds, 3)}
            log.info("%s", activity_text(activity, status.updated_us), extra=fields)


def _growth(before: Mapping[str, TableStatus], after: Mapping[str, TableStatus]) -> dict[str, tuple[int, int]]:
    """Return the rows and changes that tables got, of those that got any, in order of names."""
    grown = {}
    for name, table in sorted(after.items()):
        known = before.get(name, TableStatus(state=""))
        if (table.rows, table.changes) < (known.rows, known.changes):  # it was forgotten, and is a new one
            known = TableStatus(state="")
        rows, changes = table.rows - known.rows, table.changes - known.changes
        if rows or changes:
            grown[name] = rows, changes
    return grown


def _batches(number: int) -> str:
    return f"{number:,} batch{'' if number == 1 else 'es'}"


def _seconds_and_work(batch: BatchStatus) -> str:
    work = _work_text(batch.rows, batch.changes, batch.seconds)
    return f"{duration(batch.seconds)}{f', {work}' if work else ''}"


def _work_text(rows: int, changes: int, seconds: float) -> str:
    """Return rows and changes with their rates over a time."""
    parts = []
    for number, thing, read in ((rows, "row", " read"), (changes, "change", "")):
        if number:
            rate = f" ({number / seconds:,.1f}/s)" if seconds > 0 else ""
            parts.append(f"{counted(number, thing)}{read}{rate}")
    return ", ".join(parts)

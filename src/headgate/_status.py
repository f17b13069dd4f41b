"""Writes ``status.json`` while a pipeline runs: after each batch, and every few seconds whatever happens.

What it guarantees: the file in the inbox is whole and never older than some seconds as long as the process lives; a
run that ends says so (``stopped``, or ``failed`` with the error's line); a run that is killed leaves what it last
wrote, and readers find out by its process and the time (:mod:`headgate.lake`). It never asks MySQL or Spark anything
and never ends a run: a file that cannot be written is warned of once.

Its thread lives inside the ``with`` block only, so that the file is kept fresh while the main thread starts Spark or
waits before another try. The last batches and warnings of the run before are taken over from the file.

Lag. After a batch it is the age of the newest change when it was committed, and the number of transactions that the
server had executed at the batch's planning beyond its end (0, unless the batch's size is limited). While a batch is
under way, it is at least the time since then, and the batch's transactions count. Nothing under way for some seconds
means that the planner has found nothing new: 0. A planner that cannot reach the server says so in ``trouble.json``;
then the lag is at least the time since it could.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headgate._places import transactions
from headgate.errors import HeadgateError
from headgate.gtid import GtidSet
from headgate.lake import (
    STATUS_FILE,
    BatchStatus,
    Inbox,
    LagStatus,
    RecentBatch,
    Status,
    TableStatus,
    WarningStatus,
    pid_namespace,
    read_status,
)
from headgate.sinks import Batch, BatchReport

__all__ = ["StatusWriter", "tell_failure"]

log = logging.getLogger("headgate")

_BEAT_SECONDS = 5.0
_RATE_SECONDS = 60.0
"""Rates are averages over so long, or over the run's life if that is shorter."""
_RECOVERED_SECONDS = 15.0
"""A query that was started again has planned by then; what still fails has failed by then, or is being tried again."""
_RECENT = 50
_WARNINGS = 20
_LONGEST_GTID = 100
_LONGEST_TEXT = 2000


class StatusWriter:
    """Keeps the status of one run; all methods may be called from any thread.

    :param beat_seconds: how often the file is written when nothing happens.
    :param on_status: told what is written, in the thread that writes.
    """

    def __init__(
        self,
        inbox: Inbox,
        pipeline: str,
        *,
        beat_seconds: float = _BEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        on_status: Callable[[Status], None] | None = None,
    ) -> None:
        self._on_status = on_status
        self._inbox, self._pipeline, self._beat_seconds = inbox, pipeline, beat_seconds
        self._clock, self._wall_us = clock, wall_us
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="headgate-status", daemon=True)
        self._begun = clock()
        self._busy_since: float | None = None  # a batch is under way, or was and is to be tried again
        self._moved = clock()  # when something last happened
        self._started: float | None = None  # when the query was started again after a failure
        self._lag, self._underway = LagStatus(), 0
        self._error: str | None = None  # what the run is trying again after
        self._trouble: tuple[str, int] | None = None  # what the planner is, and since when
        self._rates: deque[tuple[float, int, int]] = deque()  # when, images, rows
        self._warned = False
        self._status = _first(None, pipeline, wall_us())

    def __enter__(self) -> Self:
        self._take_over()
        with contextlib.suppress(OSError):
            self._inbox.delete("trouble.json")
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._end(error if isinstance(error, Exception) else None)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if error is not None:
                self._warn("error", _line(error))
            state = {"state": "failed", "error": _line(error)} if error else {"state": "stopped", "error": None}
            self._status = self._status.model_copy(update=state)
        self._write()

    def starts(self) -> None:
        """A query was started: the first one, or another after a failure."""
        with self._lock:
            self._started = self._clock()

    def begins(self, batch: Batch) -> None:
        """A batch was planned and read; it is being applied from now on."""
        header = batch.header
        with self._lock:
            self._busy_since = self._busy_since or self._clock()
            self._underway = _transactions(header.start, header.gtid) + header.behind

    def ends(self, report: BatchReport) -> None:
        """A batch is in the ledger."""
        with self._lock:
            self._take(report)
        self._write()

    def tries_again(self, error: BaseException) -> None:
        """The run failed and goes on after a pause."""
        with self._lock:
            self._busy_since, self._started = self._busy_since or self._clock(), None
            self._error = _line(error)
            self._warn("error", self._error)
        self._write()

    def warns(self, text: str) -> None:
        """Something that does not end the run is wrong."""
        with self._lock:
            self._warn("warning", text)

    def _take_over(self) -> None:
        """What the run before has left there is history."""
        try:
            before = read_status(self._inbox)
        except (HeadgateError, OSError):
            before = None  # damaged, or of another version: it is written anew
        if before is not None and before.pipeline == self._pipeline:
            self._status = _first(before, self._pipeline, self._wall_us())

    def _take(self, report: BatchReport) -> None:
        now, committed = self._clock(), self._wall_us()
        images, rows = (0, 0) if report.replayed else (sum(report.images.values()), sum(report.rows.values()))
        newest = max(report.newest_us.values(), default=committed)
        self._busy_since, self._underway, self._moved, self._error = None, 0, now, None
        self._lag = LagStatus(seconds=max(0.0, (committed - newest) / 1e6), transactions=report.behind)
        self._rates.append((now, images, rows))
        for text in report.warnings:
            self._warn("warning", text)
        before = self._status
        batch = BatchStatus(
            batch_id=report.batch_id, epoch=report.epoch, gtid=report.gtid, committed_us=committed,
            rows=rows, images=images, seconds=round(report.seconds, 3),
        )  # fmt: skip
        short = RecentBatch(
            batch_id=report.batch_id, epoch=report.epoch, gtid=_end(report.gtid), committed_us=committed,
            transactions=_transactions(report.start, report.gtid), rows=rows, images=images,
            tables=len({*report.images, *report.rows}), seconds=round(report.seconds, 3),
        )  # fmt: skip
        known = any(row.epoch == report.epoch for row in before.recent)
        self._status = before.model_copy(
            update={
                "batch": before.batch if known else batch,
                "batches": before.batches + 1,
                "tables": _tables(report, before.tables),
                "recent": before.recent if known else (short, *before.recent)[:_RECENT],
            }
        )

    def _warn(self, level: str, text: str) -> None:
        found = WarningStatus.model_validate({"at_us": self._wall_us(), "level": level, "text": text[:_LONGEST_TEXT]})
        self._status = self._status.model_copy(update={"warnings": (found, *self._status.warnings)[:_WARNINGS]})

    def _now(self) -> Status:
        """The status with what changes by itself."""
        now = self._clock()
        if self._error and self._started is not None and now - self._started >= _RECOVERED_SECONDS:
            if not self._underway:
                self._busy_since = None  # the batch that failed was not planned yet, or there was none
            self._error = None
        while self._rates and now - self._rates[0][0] > _RATE_SECONDS:
            self._rates.popleft()
        span = max(1.0, min(_RATE_SECONDS, now - self._begun))
        update: dict[str, object] = {
            "updated_us": self._wall_us(),
            "changes_per_second": round(sum(images for _, images, _ in self._rates) / span, 1),
            "rows_per_second": round(sum(rows for _, _, rows in self._rates) / span, 1),
        }
        if self._status.state in ("running", "idle"):
            still = min(now - self._moved, now - (self._started or now)) >= self._beat_seconds
            quiet = still and self._busy_since is None and self._trouble is None and not self._lag.transactions
            if quiet:
                self._lag = LagStatus()
            seconds = self._lag.seconds
            if self._busy_since is not None:
                seconds = max(seconds, now - self._busy_since)
            if self._trouble is not None:
                seconds = max(seconds, (self._wall_us() - self._trouble[1]) / 1e6)
            update |= {
                "state": "idle" if quiet else "running",
                "error": self._error or (self._trouble and self._trouble[0]),
                "lag": LagStatus(seconds=round(seconds, 3), transactions=max(self._lag.transactions, self._underway)),
            }
        return self._status.model_copy(update=update)

    def _write(self) -> None:
        with self._lock:
            self._status = self._now()
            try:
                self._inbox.write(STATUS_FILE, self._status.to_dict())
            except Exception as error:  # noqa: BLE001 - each file system has its own errors, and none may end a run
                if not self._warned:
                    log.warning("the status cannot be written to %s: %s", self._inbox.path, _line(error))
                self._warned = True
            status = self._status
        if self._on_status is not None:
            self._on_status(status)

    def _beat(self) -> None:
        while not self._ending.wait(self._beat_seconds):
            self._look()
            self._write()

    def _look(self) -> None:
        """Whether the planner is in trouble; what cannot be read is none."""
        try:
            found = self._inbox.read("trouble.json")
        except (HeadgateError, OSError):
            found = None
        with self._lock:
            before, self._trouble = self._trouble, None
            if found is not None and isinstance(found.get("since_us"), int):
                self._trouble = " ".join(str(found.get("error")).split()), found["since_us"]
                if before is None or before[1] != self._trouble[1]:
                    self._warn("error", self._trouble[0])
                    log.warning("%s; trying again", self._trouble[0])
            elif before is not None:
                log.info("going on, %.0f s after this began: %s", (self._wall_us() - before[1]) / 1e6, before[0])


def tell_failure(inbox: Inbox, pipeline: str, error: BaseException) -> None:
    """A run failed before it was sure to be the only one: said only where one has run, and none runs now."""
    try:
        before = read_status(inbox)
    except (HeadgateError, OSError):
        return
    if before is not None and not before.is_alive():
        writer = StatusWriter(inbox, pipeline)
        writer._take_over()
        writer._end(error)


def _first(before: Status | None, pipeline: str, now_us: int) -> Status:
    """The status of a run that begins, after one that left ``before``."""
    tables = before.tables if before else {}
    return Status(
        pipeline=pipeline,
        pid=os.getpid(),
        host=platform.node(),
        pid_namespace=pid_namespace(),
        started_us=now_us,
        updated_us=now_us,
        state="running",
        batch=before.batch if before else None,
        tables={name: table.model_copy(update={"images": 0, "rows": 0}) for name, table in tables.items()},
        recent=before.recent if before else (),
        warnings=before.warnings if before else (),
    )


def _tables(report: BatchReport, before: dict[str, TableStatus]) -> dict[str, TableStatus]:
    found = {}
    for name, state in sorted(report.tables.items()):
        known = before.get(name)
        images, rows = (known.images, known.rows) if known else (0, 0)
        found[name] = TableStatus(
            state=state.state, version=state.version, rows_estimate=state.rows_estimate, chunks_done=state.chunks_done,
            chunks_estimate=state.chunks_estimate, reason=state.reason,
            images=images + (0 if report.replayed else report.images.get(name, 0)),
            rows=rows + (0 if report.replayed else report.rows.get(name, 0)),
        )  # fmt: skip
    return found


def _transactions(start: str, end: str) -> int:
    return transactions(GtidSet.parse(end) - GtidSet.parse(start))


def _end(gtid: str) -> str:
    return gtid if len(gtid) <= _LONGEST_GTID else f"…{gtid[1 - _LONGEST_GTID :]}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

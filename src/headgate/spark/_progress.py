"""Progress of a batch's reads, for display. No batch waits for it, and none fails because of it.

*Planned reads* are in the batch's offset, which Spark has written to the checkpoint by the time the batch runs.

*Completed reads* are reported by the tasks in files ``<control folder>/progress/<epoch>-<task>.json``: ``{rows: {table:
n}, changes: {table: n}}``, replaced whole by rename, at most twice a second. Tasks write only if the folder exists, and
only the driver creates it, for a local control folder. So tasks on machines without that folder leave nothing behind. A
task of less than half a second writes no file; an error ends the reports of its task. Rows are counted as MySQL sends
them, changes as they leave the reader of the log.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.binlog_positions import end_of, transactions
from headgate.carrier import ControlFolder
from headgate.errors import HeadgateError
from headgate.offsets import SourceOffset
from headgate.spark._notes import Notes

__all__ = ["BatchPlan", "BatchProgress", "PlannedTable", "TaskProgress"]

_FOLDER = "progress"
INTERVAL: Final = 0.5
"""Shortest time between two reports of a task, in seconds."""


class TaskProgress:
    """What one task has read so far.

    :param file: where to report it; None: nowhere.
    :param interval: shortest time between two reports, in seconds.
    """

    def __init__(
        self, file: Path | None = None, clock: Callable[[], float] = time.monotonic, *, interval: float = INTERVAL
    ) -> None:
        self._file, self._clock, self._interval = file, clock, interval
        self._written = clock()
        self._rows: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._has_written = False

    @classmethod
    @contextlib.contextmanager
    def of(
        cls, control_path: str | None, epoch: int, number: int, *, interval: float = INTERVAL
    ) -> Iterator[TaskProgress]:
        """Yield the progress of task ``number`` of a batch, around its work."""
        local = control_path is not None and "://" not in control_path
        folder = Path(control_path or "", _FOLDER)
        progress = cls(folder / f"{epoch}-{number}.json" if local and folder.is_dir() else None, interval=interval)
        yield progress
        if progress._has_written:
            progress._write()

    def rows(self, table: str, count: int) -> None:
        """Count ``count`` more received rows of a chunk of ``db.table``."""
        self._rows[table] += count
        self._write_if_due()

    def changes(self, table: str, count: int) -> None:
        """Count ``count`` more changes of ``db.table`` from the log."""
        self._changes[table] += count
        self._write_if_due()

    def _write_if_due(self) -> None:
        now = self._clock()
        if self._file is not None and now - self._written >= self._interval:
            self._written = now
            self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        part = self._file.with_name(f".{self._file.name}")
        try:
            part.write_text(json.dumps({"rows": self._rows, "changes": self._changes}))
            part.replace(self._file)
            self._has_written = True
        except OSError:
            self._file = None


@dataclass(frozen=True)
class PlannedTable:
    """Planned reads of a table in a batch: its chunks ``first`` to ``last``, counted from 1, with about ``rows`` rows.

    ``rows_estimate`` and ``chunks_estimate`` are those of the whole table.
    """

    first: int
    last: int
    rows: int
    chunks_estimate: int
    rows_estimate: int


@dataclass(frozen=True)
class BatchPlan:
    """Planned reads of a batch."""

    epoch: int
    tables: Mapping[str, PlannedTable] = field(default_factory=dict)
    transactions: int | None = None
    """None: unknown, or there are no GTIDs."""
    behind: int | None = None
    """Transactions that the server had executed at planning, beyond the batch's end; None: there are no GTIDs."""

    @classmethod
    def of(cls, start: SourceOffset | None, end: SourceOffset) -> BatchPlan:
        """Return the plan of the batch between two offsets.

        :param start: None: unknown.
        """
        notes = Notes.from_dict(end.signals)
        numbers: dict[str, list[int]] = {}
        for chunk in end.snapshot.chunks:
            numbers.setdefault(chunk.table, []).append(chunk.number + 1)
        tables = {}
        for table, chunk_numbers in numbers.items():
            progress = end.snapshot.active.get(table)
            chunks, rows = (progress.chunks_estimate, progress.rows_estimate) if progress else (0, 0)
            first, last = min(chunk_numbers), max(chunk_numbers)
            tables[table] = PlannedTable(first, last, notes.reads.get(table, 0), max(chunks, last), rows)
        has_gtids = end_of(end.gtid_set) is None
        new = transactions(end.gtid_set - start.gtid_set) if start is not None and has_gtids else None
        return cls(end.epoch, tables, new, notes.behind if has_gtids else None)

    @classmethod
    def read(cls, checkpoint: str, batch_id: int) -> BatchPlan | None:
        """Return the plan of a running batch, from Spark's checkpoint; None if it is not there."""
        folder = ControlFolder(f"{checkpoint}/offsets")
        end = _offset(folder, batch_id)
        return None if end is None else cls.of(_offset(folder, batch_id - 1), end)


def _offset(folder: ControlFolder, batch_id: int) -> SourceOffset | None:
    """Return the offset of a stream's only source: Spark's file has a version, metadata, and a JSON line per source."""
    try:
        text = folder.text(str(batch_id))
        return None if text is None else SourceOffset.from_json(text.rstrip("\n").rpartition("\n")[2])
    except (HeadgateError, OSError, ValueError):
        return None


class BatchProgress:
    """Reads the tasks' reports. The methods may be called from one thread at a time, and never fail.

    :param control_path: the control folder.
    :param checkpoint: the stream's.
    """

    def __init__(self, control_path: str, checkpoint: str) -> None:
        self._folder = None if "://" in control_path else Path(control_path, _FOLDER)
        self._checkpoint = checkpoint

    def begin(self) -> None:
        """Begin a run: from now on tasks may report what they have read."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
            self.clear()

    def plan(self, batch_id: int) -> BatchPlan | None:
        """Return what a running batch is to read, if known."""
        with contextlib.suppress(Exception):  # each file system has its own errors
            return BatchPlan.read(self._checkpoint, batch_id)
        return None

    def read(self, epoch: int) -> tuple[Counter[str], Counter[str]] | None:
        """Return the rows and changes read so far, by table; None if nothing was reported yet."""
        rows: Counter[str] = Counter()
        changes: Counter[str] = Counter()
        files = self._files(f"{epoch}-*.json")
        for file in files:
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
                report: Any = json.loads(file.read_text())
                rows.update(report["rows"])
                changes.update(report["changes"])
        return (rows, changes) if files else None

    def clear(self) -> None:
        """Remove all reports."""
        for file in self._files("*"):
            with contextlib.suppress(OSError):
                file.unlink()

    def _files(self, pattern: str) -> list[Path]:
        if self._folder is None:
            return []
        try:
            return list(self._folder.glob(pattern))
        except OSError:
            return []

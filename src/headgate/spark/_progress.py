"""How far the reading of a batch is, for people to see. No batch waits for it, and none fails by it.

*What is to be read* is in the batch's offset, which Spark has written to the checkpoint by the time the batch runs.

*What has been read* the tasks say in files ``<control folder>/progress/<epoch>-<task>.json``: ``{rows: {table: n},
changes: {table: n}}``, replaced whole by rename, twice a second at most. They write only if the folder is there, and
only the driver makes it, for a control folder that is a local path. So tasks on machines that do not share the folder
say nothing and leave nothing behind. A task that takes less than half a second writes no file; an error ends the
writing for the task. Rows are counted as MySQL sends them, changes as they leave the reader of the log.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.carrier import ControlFolder
from headgate.errors import HeadgateError
from headgate.offsets import SourceOffset
from headgate.places import end_of, transactions
from headgate.spark._notes import Notes

__all__ = ["BatchPlan", "BatchProgress", "PlannedTable", "TaskProgress"]

_FOLDER = "progress"
_EVERY_SECONDS = 0.5


class TaskProgress:
    """What one task has read so far.

    :param file: where to say it; None: nowhere.
    """

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._written = clock()
        self._rows: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._told = False

    @classmethod
    @contextlib.contextmanager
    def of(cls, control_path: str | None, epoch: int, number: int) -> Iterator[TaskProgress]:
        """The progress of task ``number`` of a batch, around its work."""
        local = control_path is not None and "://" not in control_path
        folder = Path(control_path or "", _FOLDER)
        progress = cls(folder / f"{epoch}-{number}.json" if local and folder.is_dir() else None)
        yield progress
        if progress._told:
            progress._write()

    def rows(self, table: str, count: int) -> None:
        """``count`` more rows of a chunk of ``db.table`` have come."""
        self._rows[table] += count
        self._tell()

    def changes(self, table: str, count: int) -> None:
        """``count`` more changes of ``db.table`` were read from the log."""
        self._changes[table] += count
        self._tell()

    def _tell(self) -> None:
        now = self._clock()
        if self._file is not None and now - self._written >= _EVERY_SECONDS:
            self._written = now
            self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        part = self._file.with_name(f".{self._file.name}")
        try:
            part.write_text(json.dumps({"rows": self._rows, "changes": self._changes}))
            part.replace(self._file)
            self._told = True
        except OSError:
            self._file = None


@dataclass(frozen=True)
class PlannedTable:
    """What a batch reads of a table: its chunks ``first`` to ``last``, counted from 1, with about ``rows`` rows.

    ``rows_estimate`` and ``chunks_estimate`` are those of the whole table.
    """

    first: int
    last: int
    rows: int
    chunks_estimate: int
    rows_estimate: int


@dataclass(frozen=True)
class BatchPlan:
    """What a batch reads."""

    epoch: int
    tables: Mapping[str, PlannedTable] = field(default_factory=dict)
    transactions: int | None = None
    """None: not known, or there are no GTIDs."""
    behind: int | None = None
    """Transactions that the server had executed at planning, beyond the batch's end; None: there are no GTIDs."""

    @classmethod
    def of(cls, start: SourceOffset | None, end: SourceOffset) -> BatchPlan:
        """The plan of the batch between two offsets.

        :param start: None: not known.
        """
        notes = Notes.from_dict(end.signals)
        numbers: dict[str, list[int]] = {}
        for chunk in end.snapshot.chunks:
            numbers.setdefault(chunk.table, []).append(chunk.number + 1)
        tables = {}
        for table, found in numbers.items():
            progress = end.snapshot.active.get(table)
            chunks, rows = (progress.chunks_estimate, progress.rows_estimate) if progress else (0, 0)
            first, last = min(found), max(found)
            tables[table] = PlannedTable(first, last, notes.reads.get(table, 0), max(chunks, last), rows)
        counts = end_of(end.gtid_set) is None
        new = transactions(end.gtid_set - start.gtid_set) if start is not None and counts else None
        return cls(end.epoch, tables, new, notes.behind if counts else None)

    @classmethod
    def read(cls, checkpoint: str, batch_id: int) -> BatchPlan | None:
        """The plan of a batch that runs, from Spark's checkpoint; None: it cannot be found there."""
        folder = ControlFolder(f"{checkpoint}/offsets")
        end = _offset(folder, batch_id)
        return None if end is None else cls.of(_offset(folder, batch_id - 1), end)


def _offset(folder: ControlFolder, batch_id: int) -> SourceOffset | None:
    """Of the one source of a stream: Spark's file has a version, metadata, and a line of JSON for each source."""
    try:
        text = folder.text(str(batch_id))
        return None if text is None else SourceOffset.from_json(text.rstrip("\n").rpartition("\n")[2])
    except (HeadgateError, OSError, ValueError):
        return None


class BatchProgress:
    """Reads what the tasks say. The methods may be called from one thread at a time, and never fail.

    :param control_path: the control folder.
    :param checkpoint: the stream's.
    """

    def __init__(self, control_path: str, checkpoint: str) -> None:
        self._folder = None if "://" in control_path else Path(control_path, _FOLDER)
        self._checkpoint = checkpoint

    def begin(self) -> None:
        """A run begins: from now on tasks may say what they have read."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
            self.clear()

    def plan(self, batch_id: int) -> BatchPlan | None:
        """What a batch that runs is to read, as far as can be told."""
        with contextlib.suppress(Exception):  # each file system has its own errors
            return BatchPlan.read(self._checkpoint, batch_id)
        return None

    def read(self, epoch: int) -> tuple[Counter[str], Counter[str]] | None:
        """Rows and changes read so far, by table; None: nothing was reported yet."""
        rows: Counter[str] = Counter()
        changes: Counter[str] = Counter()
        files = self._files(f"{epoch}-*.json")
        for file in files:
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
                found: Any = json.loads(file.read_text())
                rows.update(found["rows"])
                changes.update(found["changes"])
        return (rows, changes) if files else None

    def clear(self) -> None:
        """What was said is of no more interest."""
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

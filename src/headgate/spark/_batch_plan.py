"""What a batch reads, for display, and what a stream has left to read: from the offsets in Spark's checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.carrier import ControlFolder
from headgate.errors import HeadgateError
from headgate.offsets import SourceOffset
from headgate.spark._notes import Notes
from headgate.stores import folder_of

__all__ = ["BatchPlan", "PlannedTable", "TablesToRead"]


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
    """None: unknown."""
    behind: int | None = None
    """Transactions that the server had executed at planning, beyond the batch's end; None: the log does not tell."""

    @classmethod
    def of(cls, start: SourceOffset | None, end: SourceOffset) -> BatchPlan:
        """Return the plan of the batch between two offsets.

        :param start: None: unknown.
        """
        notes = Notes.from_dict(end.signals)
        numbers: dict[str, list[int]] = {}
        for chunk in end.snapshot.chunks:
            numbers.setdefault(chunk.table, []).append(chunk.number + 1)
        tables, reads = {}, end.snapshot.by_table
        for table, chunk_numbers in numbers.items():
            progress = reads[table].progress if table in reads else None
            chunks, rows = (progress.chunks_estimate, progress.rows_estimate) if progress else (0, 0)
            first, last = min(chunk_numbers), max(chunk_numbers)
            tables[table] = PlannedTable(first, last, notes.reads.get(table, 0), max(chunks, last), rows)
        new = None if start is None else (end.position - start.position).transactions()
        return cls(end.epoch, tables, new, notes.behind)

    @classmethod
    def read(cls, checkpoint: str, batch_id: int) -> BatchPlan | None:
        """Return the plan of a running batch, from Spark's checkpoint; None if it is not there. It never fails."""
        with contextlib.suppress(Exception):  # each file system has its own errors
            folder = ControlFolder(f"{checkpoint}/offsets")
            end = _offset(folder, batch_id)
            return None if end is None else cls.of(_offset(folder, batch_id - 1), end)
        return None


@dataclass(frozen=True)
class TablesToRead:
    """Tables whose chunks a stream has not handed out after its newest batch."""

    tables: tuple[str, ...] = ()
    paused: bool = False
    """Whether a signal has paused table snapshots."""

    @classmethod
    def read(cls, checkpoint: str) -> TablesToRead:
        """Return them from Spark's checkpoint.

        :raises OffsetFormatError: the newest offset is damaged; a store's errors likewise.
        """
        folder = f"{checkpoint}/offsets"
        names = [file.name.rpartition("/")[2] for file in folder_of(folder).files()]
        newest = max((int(name) for name in names if name.isdigit()), default=None)
        text = None if newest is None else ControlFolder(folder).text(str(newest))
        if text is None:
            return cls()
        offset = _parse(text)
        tables = tuple(read.table for read in offset.snapshot.tables if read.is_pending)
        return cls(tables, Notes.from_dict(offset.signals).paused)


def _parse(text: str) -> SourceOffset:
    """Parse the offset of a stream's only source: Spark's file has a version, metadata, and a JSON line per source."""
    return SourceOffset.from_json(text.rstrip("\n").rpartition("\n")[2])


def _offset(folder: ControlFolder, batch_id: int) -> SourceOffset | None:
    """Return a batch's end; None if it is not there, or cannot be read."""
    try:
        text = folder.text(str(batch_id))
        return None if text is None else _parse(text)
    except (HeadgateError, OSError, ValueError):
        return None

"""Rows of tables without a key: the copies of each content, counted by the key index, and written in one commit.

A content is identified by its ``_row_hash``, and ``_row_copy`` numbers its copies from 0 without gaps. The index of a
data file is by the hash alone, so one look-up counts a content's copies.

**Replay.** The commit carries a marker with the batch's epoch. A table that has the marker has the whole batch, so a
replay counts nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.delta import DataFile, KeyedTable, KeyLookup, Keys, Snapshot
from headgate.lake._append import Marker
from headgate.lake._form import ROW_COPY
from headgate.lake._shares import Shares

__all__ = ["CountedChanges", "Replacement", "StoredCopies", "find_copies"]


@dataclass(frozen=True)
class CountedChanges:
    """Changes of a batch to one table without a key.

    :param ddl: columns of its rows, as Spark DDL.
    :param columns: names of those columns.
    :param hashes: the contents whose number of copies changes, each once, as keys of one column.
    :param settle: returns the rows to add, and for each content how many of its last copies are removed (int64[n]).
        Argument: how many copies of each the table has (int64[n]).
    :param empties: whether all rows of the table are deleted first (a TRUNCATE).
    :param marker: of the batch.
    """

    ddl: str
    columns: Sequence[str]
    hashes: Keys
    settle: Callable[[Any], tuple[pa.Table, Any]]
    empties: bool
    marker: Marker


@dataclass(frozen=True)
class Replacement:
    """All rows of a table, in place of those that it has.

    :param ddl: columns of its rows, as Spark DDL.
    :param columns: names of those columns.
    :param rows: returns the rows, in this process; or the shares of tasks.
    :param marker: of the batch.
    """

    ddl: str
    columns: Sequence[str]
    rows: Callable[[], pa.Table] | Shares
    marker: Marker


@dataclass
class StoredCopies:
    """Live rows with some contents.

    :param counts: int64[n]: how many there are of each content.
    :param located: file, rows in it, and the number of each row's content.
    """

    counts: Any
    located: list[tuple[DataFile, Any, Any]] = field(default_factory=list)

    def remove_last(self, keyed: KeyedTable, removed: Any, lookup: KeyLookup) -> None:
        """Record the last copies of contents as deleted.

        :param removed: int64[n]: how many of each content; all of it or fewer.
        :raises OSError: a file cannot be read.
        """
        parts = [
            (file, rows[hit], numbers[hit]) for file, rows, numbers in self.located for hit in [removed[numbers] > 0]
        ]
        if not parts:
            return
        numbers = np.concatenate([numbers for _, _, numbers in parts])
        copies = np.concatenate([self._copies(keyed, removed, *part) for part in parts])
        order = np.lexsort((-copies, numbers))
        grouped = numbers[order]
        rank = np.arange(len(order)) - np.searchsorted(grouped, grouped)
        gone = np.zeros(len(order), np.bool_)
        gone[order] = rank < removed[grouped]
        first = 0
        for file, rows, _ in parts:
            keyed.remove(file, rows[gone[first : first + len(rows)]], lookup)
            first += len(rows)

    def _copies(self, keyed: KeyedTable, removed: Any, file: DataFile, rows: Any, numbers: Any) -> Any:
        """int64[m]: ``_row_copy`` of rows of a file, if some copies of their content stay; else 0."""
        copies = np.zeros(len(rows), np.int64)
        partly = removed[numbers] < self.counts[numbers]
        if partly.any():
            read = keyed.read(file, rows[partly], pa.schema([pa.field(ROW_COPY, pa.int32())]))
            copies[partly] = np.asarray(read[ROW_COPY].combine_chunks())
        return copies


def find_copies(table: Snapshot, keyed: KeyedTable, hashes: Keys) -> StoredCopies:
    """Find the live rows with these contents.

    :param keyed: the table, with the hash as its key.
    :raises OSError: a file cannot be read.
    """
    copies = StoredCopies(np.zeros(hashes.count, np.int64))
    for file, rows, numbers in keyed.locate(table, hashes, lambda _file: True):
        copies.counts += np.bincount(numbers, minlength=hashes.count)
        copies.located.append((file, rows, numbers))
    return copies

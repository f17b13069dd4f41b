"""Rows of tables without a key: copies of contents are added and deleted in one commit.

A content is identified by its ``_row_hash``, which is also the key of the index. Its copies are equal, so any of them
may be deleted.

**Replay.** The commit carries a marker with the batch's epoch. A table that has the marker has the whole batch, so a
replay adds and deletes nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.apply._shares import Shares
from headgate.delta import KeyedTable, KeyLookup, Keys, Snapshot
from headgate.lake import Marker

__all__ = ["CountedChanges", "delete_copies"]


@dataclass(frozen=True)
class CountedChanges:
    """Changes of a batch to one table without a key.

    :param ddl: columns of its rows, as Spark DDL.
    :param columns: names of those columns.
    :param rows: the rows to add, to be read once, if this process writes them; or the shares of tasks.
    :param marker: of the batch.
    :param empties: whether all rows of the table are deleted first: by a TRUNCATE, or because ``rows`` are the table.
    :param removes: the contents that lose copies, each once, as keys of one column.
    :param removed: int64[n]: how many copies each of these loses.
    :param check: raises an error if that is wrong. Argument: int64[n]: how many of them the table does not have.
    """

    ddl: str
    columns: Sequence[str]
    rows: Iterable[pa.RecordBatch] | Shares
    marker: Marker
    empties: bool = False
    removes: Keys | None = None
    removed: Any = None
    check: Callable[[Any], None] | None = None


def delete_copies(table: Snapshot, keyed: KeyedTable, changes: CountedChanges, lookup: KeyLookup) -> None:
    """Record copies of contents as deleted.

    :param keyed: the table, with the hash as its key.
    :raises OSError: a file cannot be read.
    :raises TargetError: ``check`` raised it.
    """
    if changes.removes is None or not changes.removes.count:
        return
    missing = changes.removed.copy()
    for file, rows, numbers in () if changes.empties else keyed.locate(table, changes.removes, lambda _file: True):
        order = np.argsort(numbers, kind="stable")
        grouped = numbers[order]
        chosen = order[np.arange(len(order)) - np.searchsorted(grouped, grouped) < missing[grouped]]
        missing -= np.bincount(numbers[chosen], minlength=len(missing))
        keyed.remove(file, rows[chosen], lookup)
    if changes.check is not None:
        changes.check(missing)

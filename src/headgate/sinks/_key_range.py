"""The key range that a table may hold, tracked by the writer, so that appending a chunk needs no query of the table.

A span is true of one version of the table. It begins with a new table and grows by each batch's key ranges. It ends
when another program writes the table or a batch has unknown bounds. A run has no span of tables that exist when it
starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headgate.carrier import Part, sortable

__all__ = ["KeySpan", "are_disjoint"]


@dataclass
class KeySpan:
    """Key range of a table at ``version`` (−1: nothing is known).

    Every row's first key column is from ``low`` to ``high`` (None: the table is empty), its epoch at least ``since``.
    """

    version: int = -1
    low: str | None = None
    high: str | None = None
    since: int = 0

    def begin(self, version: int, epoch: int) -> None:
        """Begin with an empty table at this version, which the batch of this epoch made."""
        self.version, self.low, self.high, self.since = version, None, None, epoch

    def excludes(self, version: int, parts: Sequence[Part]) -> bool:
        """Return whether the table cannot hold any key of these parts, all of whose record batches have bounds."""
        if not self._is_current(version):
            return False
        if self.low is None or self.high is None:
            return True
        low, high = sortable(self.low), sortable(self.high)
        bounds = [(sortable(first), sortable(last)) for part in parts for first, last in part.bounds]
        return all(last < low or high < first for first, last in bounds)

    def all_since(self, version: int, epoch: int) -> bool:
        """Return whether the table cannot hold a row of an epoch before this one."""
        return self._is_current(version) and self.since >= epoch

    def _is_current(self, version: int) -> bool:
        return 0 <= version == self.version

    def grow(self, before: int, after: int, parts: Sequence[Part]) -> None:
        """Add a batch that took the table from one version to another; ``after`` −1: others wrote meanwhile."""
        if before != self.version or after < 0 or any(part.unbounded or part.partial for part in parts):
            self.version = -1
            return
        lows = [part.low for part in parts if part.low is not None]
        highs = [part.high for part in parts if part.high is not None]
        self.low = min([*lows, *([self.low] if self.low is not None else [])], key=sortable, default=None)
        self.high = max([*highs, *([self.high] if self.high is not None else [])], key=sortable, default=None)
        self.version = after


def are_disjoint(chunks: Sequence[Part]) -> bool:
    """Return whether there are rows, and no two record batches of them can hold the same key."""
    bounds = [(sortable(low), sortable(high)) for part in chunks for low, high in part.bounds]
    known = bool(bounds) and not any(part.unbounded for part in chunks)
    return known and all(before[1] < after[0] for before, after in pairwise(sorted(bounds)))

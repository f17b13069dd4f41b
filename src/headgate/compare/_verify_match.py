"""Pairs of rows from two sides, by their digests, in any order and with repeated rows.

First, equal rows are paired, one to one. Of the remaining rows, those with the same key are paired: they differ. What
remains then is on one side only, also a second row with a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.compare._digests import Digests

__all__ = ["Pairs", "RowIndexes", "contents", "pair", "take"]

RowIndexes: TypeAlias = npt.NDArray[np.int64]
"""Indexes of rows of one side, from 0."""


@dataclass(frozen=True)
class Pairs:
    """Pairs, in the order of the source's rows."""

    source: RowIndexes
    target: RowIndexes
    """The row paired with ``source[i]``."""
    only_source: RowIndexes
    only_target: RowIndexes
    """Rows without a pair, in order."""


def take(digests: Digests, row_indexes: RowIndexes) -> Digests:
    """Return the digests of some rows."""
    return digests[0][row_indexes], digests[1][row_indexes]


def contents(*sides: Digests) -> list[RowIndexes]:
    """Number each row of each side: the same number exactly where digests are equal, from 0 without gaps."""
    low, high = (np.concatenate([side[half] for side in sides]) for half in (0, 1))
    order = np.lexsort((low, high))
    first = np.ones(len(low), np.bool_)
    first[1:] = (low[order][1:] != low[order][:-1]) | (high[order][1:] != high[order][:-1])
    numbers = np.empty(len(low), np.int64)
    numbers[order] = np.cumsum(first) - 1
    return np.split(numbers, np.cumsum([len(side[0]) for side in sides])[:-1])


def pair(source: Digests, target: Digests) -> Pairs:
    """Pair rows with equal digests, each with at most one."""
    left, right = contents(source, target)
    left_order, right_order = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
    left_has = _fewer(left[left_order], right)
    right_has = _fewer(right[right_order], left)
    ours, theirs = left_order[left_has], right_order[right_has]
    order = np.argsort(ours)
    return Pairs(ours[order], theirs[order], np.sort(left_order[~left_has]), np.sort(right_order[~right_has]))


def _fewer(numbers: RowIndexes, others: RowIndexes) -> npt.NDArray[np.bool_]:
    """Return bool[rows]: which rows are among the first of their content, as many as the other side has.

    :param numbers: contents, in order.
    """
    rank = np.arange(len(numbers)) - np.searchsorted(numbers, numbers)
    counts = np.bincount(others, minlength=int(numbers.max(initial=-1)) + 1)
    is_first: npt.NDArray[np.bool_] = rank < counts[numbers]
    return is_first

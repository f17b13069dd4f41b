"""Which rows of two sides belong together: by their digests, whatever their order and however often they are there.

First rows that are equal are paired, each with one of the other side. Of what is left over, rows with the same key
are: those are different. What is left over then is on one side only, a second row of a key too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.lake._digests import Digests

__all__ = ["Pairs", "Places", "contents", "pair", "take"]

Places: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows of one side, from 0."""


@dataclass(frozen=True)
class Pairs:
    """What belongs together, in the order of the source's rows."""

    source: Places
    target: Places
    """The row that belongs to ``source[i]``."""
    only_source: Places
    only_target: Places
    """Those to which none belongs, in order."""


def take(digests: Digests, places: Places) -> Digests:
    """The digests of some rows."""
    return digests[0][places], digests[1][places]


def contents(*sides: Digests) -> list[Places]:
    """A number for each row of each side: the same one exactly where digests are equal, from 0 without gaps."""
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


def _fewer(numbers: Places, others: Places) -> npt.NDArray[np.bool_]:
    """bool[rows]: which of these rows come among the first so many of their content as the other side has.

    :param numbers: contents, in order.
    """
    rank = np.arange(len(numbers)) - np.searchsorted(numbers, numbers)
    held = np.bincount(others, minlength=int(numbers.max(initial=-1)) + 1)
    found: npt.NDArray[np.bool_] = rank < held[numbers]
    return found

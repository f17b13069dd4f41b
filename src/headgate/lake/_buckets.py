"""Where two sides of a table may differ, found in one pass over either of them and in memory of a fixed size.

Each row falls into a bucket, by the digest of its key (of the row, where there is no key), so rows with the same key
fall into the same one. A bucket holds how many rows there were and the sum, modulo 2¹²⁸, of their digests
(:mod:`headgate.lake._digests`), and never a row. The sum does not depend on the order of rows, so the sides are read in
any order and by any number of threads, and what these have summed up is added together.

*Buckets with the same count and sum hold the same rows.* Let the sides' rows in a bucket differ. Then some row is there
cᵢ times more often on one side than on the other, cᵢ ≠ 0. To whoever does not know the key the rows' digests dᵢ are
independent numbers by chance, so whatever the other digests are, at most 2ᵛ of the 2¹²⁸ values of dᵢ make
Σ cᵢ dᵢ ≡ 0 (mod 2¹²⁸), where 2ᵛ is the greatest power of two that divides cᵢ. With a key cᵢ is ±1 in a table that is
any copy at all, and in any case no more than the number n of the table's rows: so a difference is missed with a chance
of at most n·2⁻¹²⁸, and for 10⁹ rows 3·10⁻³⁰.

What falls into other buckets is read again and compared row by row (:mod:`headgate.lake._pairs`). A bucket is *marked*
when that has to be done whatever its sum says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.lake._digests import Digests

__all__ = ["Buckets", "buckets_for"]

_ROWS = 128
"""Rows in a bucket, on an average: what is read again for one row that differs."""
_LEAST, _MOST = 1 << 6, 1 << 18
"""At most 6.5 MB each."""


def buckets_for(rows: int) -> int:
    """How many buckets a table of about so many rows gets: a power of two."""
    return min(_MOST, max(_LEAST, 1 << max(0, rows // _ROWS - 1).bit_length()))


class Buckets:
    """One side's rows, or a part of them.

    :param number: a power of two.
    """

    def __init__(self, number: int) -> None:
        self.counts = np.zeros(number, np.int64)
        self.marked = np.zeros(number, np.bool_)
        self._low, self._high = np.zeros(number, np.uint64), np.zeros(number, np.uint64)

    def add(self, keys: Digests, rows: Digests, mark: npt.NDArray[np.bool_] | None = None) -> None:
        """Take in rows.

        :param keys: what decides on the bucket.
        :param mark: bool[rows]: rows whose buckets have to be marked; None: there are none.
        """
        _add(keys[0], *rows, self.counts, self._low, self._high)
        if mark is not None:
            self.marked[self.of(keys)[mark]] = True

    def empty(self) -> Buckets:
        """As many without rows, for a part."""
        return Buckets(len(self.counts))

    def merge(self, other: Buckets) -> None:
        """Take in what another one of the same number has."""
        self.counts += other.counts
        self.marked |= other.marked
        self._low += other._low
        self._high += other._high + (self._low < other._low)

    def of(self, keys: Digests) -> npt.NDArray[np.int64]:
        """The buckets of rows."""
        return (keys[0] & np.uint64(len(self.counts) - 1)).astype(np.int64)

    def odd(self, other: Buckets) -> npt.NDArray[np.bool_]:
        """bool[number]: which buckets have to be compared row by row, between this side and the other one."""
        sums = (self._low != other._low) | (self._high != other._high)
        found: npt.NDArray[np.bool_] = (self.counts != other.counts) | sums | self.marked | other.marked
        return found


@njit(cache=True, nogil=True)
def _add(keys: Any, low: Any, high: Any, counts: Any, sum_low: Any, sum_high: Any) -> None:
    mask = np.uint64(len(counts) - 1)
    for i in range(len(keys)):
        bucket = np.int64(keys[i] & mask)
        counts[bucket] += 1
        sum_low[bucket] += low[i]
        sum_high[bucket] += high[i] + np.uint64(sum_low[bucket] < low[i])

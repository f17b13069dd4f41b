"""Where two sides of a table may differ, found in one pass over each side and in memory of a fixed size.

Each row falls into a bucket by the digest of its key, or of the row if there is no key. So rows with the same key share
a bucket. A bucket never holds rows, only their number and the sum, modulo 2¹²⁸, of their digests
(:mod:`headgate.compare._digests`). The sum does not depend on the order of rows. So the sides are read in any order and
by any number of threads, whose sums are added together.

*Buckets with the same count and sum hold the same rows.* Suppose that the sides' rows in a bucket differ. Then some row
occurs cᵢ times more often on one side than on the other, cᵢ ≠ 0. Without the key, the rows' digests dᵢ are
indistinguishable from independent random numbers. So for any values of the other digests, at most 2ᵛ of the 2¹²⁸ values
of dᵢ make Σ cᵢ dᵢ ≡ 0 (mod 2¹²⁸), where 2ᵛ is the greatest power of two that divides cᵢ. With a key, cᵢ is ±1 in a
table that is any copy at all. In any case |cᵢ| is at most the number n of the table's rows. So a difference is missed
with a chance of at most n·2⁻¹²⁸: for 10⁹ rows 3·10⁻³⁰.

Buckets that differ are read again and compared row by row (:mod:`headgate.compare._verify_match`). A *marked* bucket is
compared in this way whatever its sum is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.compare._digests import Digests

__all__ = ["Buckets", "buckets_for"]

_ROWS = 128
"""Average number of rows in a bucket: what is read again for one row that differs."""
_LEAST, _MOST = 1 << 6, 1 << 18
"""At most 6.5 MB for each side."""


def buckets_for(rows: int) -> int:
    """Return the number of buckets for a table of about ``rows`` rows: a power of two."""
    return min(_MOST, max(_LEAST, 1 << max(0, rows // _ROWS - 1).bit_length()))


class Buckets:
    """Counts and sums of one side's rows, or of a part of them.

    :param number: of buckets, a power of two.
    """

    def __init__(self, number: int) -> None:
        self.counts = np.zeros(number, np.int64)
        self.marked = np.zeros(number, np.bool_)
        self._low, self._high = np.zeros(number, np.uint64), np.zeros(number, np.uint64)

    def add(self, keys: Digests, rows: Digests, mark: npt.NDArray[np.bool_] | None = None) -> None:
        """Add rows.

        :param keys: digests that select the bucket.
        :param mark: bool[rows]: rows whose buckets to mark; None: none.
        """
        _add(keys[0], *rows, self.counts, self._low, self._high)
        if mark is not None:
            self.marked[self.of(keys)[mark]] = True

    def empty(self) -> Buckets:
        """Return as many empty buckets, for a part."""
        return Buckets(len(self.counts))

    def merge(self, other: Buckets) -> None:
        """Add the contents of as many other buckets."""
        self.counts += other.counts
        self.marked |= other.marked
        self._low += other._low
        self._high += other._high + (self._low < other._low)

    def of(self, keys: Digests) -> npt.NDArray[np.int64]:
        """Return the bucket of each row."""
        return (keys[0] & np.uint64(len(self.counts) - 1)).astype(np.int64)

    def differing(self, other: Buckets) -> npt.NDArray[np.bool_]:
        """Return bool[number]: which buckets to compare row by row between this side and the other one."""
        sums = (self._low != other._low) | (self._high != other._high)
        differing_buckets: npt.NDArray[np.bool_] = (self.counts != other.counts) | sums | self.marked | other.marked
        return differing_buckets


@njit(cache=True, nogil=True)
def _add(keys: Any, low: Any, high: Any, counts: Any, sum_low: Any, sum_high: Any) -> None:
    mask = np.uint64(len(counts) - 1)
    for i in range(len(keys)):
        bucket = np.int64(keys[i] & mask)
        counts[bucket] += 1
        sum_low[bucket] += low[i]
        sum_high[bucket] += high[i] + np.uint64(sum_low[bucket] < low[i])

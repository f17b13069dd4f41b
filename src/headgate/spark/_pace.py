"""How much of the tables the next batch may read, so that live changes are not held up for long. No clock in here.

A change waits until the batch that brings it is done, so what a snapshot adds to a batch is what it adds to the delay.
The user sets the share of a batch's time that reading chunks may take. What is known is only how long batches took,
with chunks and without:

    seconds = live + rows * cost

``live`` is the median of late batches without chunks, ``cost`` that of late ones with chunks, after ``live`` is taken
off. So chunks of a batch may have ``share / (1 - share) * live / cost`` rows. The number doubles at most from batch to
batch, because a first guess says little, and does not fall below a 64th of what a batch may hold: a chunk has a cost of
its own, and smaller ones would bring nothing. A batch with chunks that took less than ``live`` shows that ``live`` is
not true any more; it is measured again then.

Where that is too much, the share holds over several batches: what chunks took beyond it is a *debt*, which every second
of a batch pays off by ``share``; as long as there is debt, batches go without chunks. They also renew what is known of
``live``; if there is no debt for long, one goes without for that reason alone.

Without live changes no change has to wait, so then there is no limit, and no debt. The first change after that waits
for a whole batch. All of this is a cache: a new planner measures again.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

__all__ = ["Pace"]

_LATE: Final = 3
"""Batches that a median is taken of: one that was slow by chance changes nothing."""
_UNSEEN: Final = 8
"""Batches with chunks after which one without them shows what live changes take by themselves."""
_GROWTH: Final = 2
_LEAST: Final = 64
_CHEAPEST: Final = 0.01
"""Least part of a batch with chunks that is theirs: they were not free, even if it was no longer than others."""


class Pace:
    """Learns from batches and allows rows.

    :param share: of a batch's time, above 0; 1: no limit.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._live: deque[float] = deque(maxlen=_LATE)
        self._costs: deque[float] = deque(maxlen=_LATE)
        self._debt = 0.0
        self._unseen = 0
        self._rows = 0

    def observe(self, *, rows: int, seconds: float, live: bool) -> None:
        """A batch has ended.

        :param rows: of its chunks, about.
        :param seconds: it took.
        :param live: it brought changes.
        """
        alone = median(self._live) if self._live else None
        chunks = 0.0
        if rows:
            chunks = max(seconds - (alone or 0.0), _CHEAPEST * seconds)
            self._costs.append(chunks / rows)
            self._rows, self._unseen = rows, self._unseen + 1
            if live and alone is not None and seconds < alone:
                self._live.clear()
        elif live:
            self._live.append(seconds)
            self._unseen = 0
        self._debt = max(0.0, self._debt + chunks - self._share * seconds) if live else 0.0

    def allow(self, full: int, *, live: bool) -> int:
        """Rows that the next batch's chunks may have, 0 to ``full``.

        :param live: there are changes for it.
        """
        if self._share >= 1 or not live:
            return full
        if not self._live or self._debt > 0 or self._unseen >= _UNSEEN:
            return 0
        least = max(1, full // _LEAST)
        if not self._costs:
            return least
        cost = median(self._costs)
        fair = self._share / (1 - self._share) * median(self._live) / cost if cost else full
        return int(min(max(fair, least), max(self._rows, least) * _GROWTH, full))

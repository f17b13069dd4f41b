"""Limit the snapshot rows of the next batch, so that live changes are not delayed for long. No clock here.

A change waits until the batch that brings it is done, so a snapshot delays changes by the time that it adds to a batch.
The user sets the share of a batch's time that reading chunks may take. Only the duration of batches is known, with
chunks and without:

    seconds = live + rows * cost

``live`` is the median of recent batches without chunks, ``cost`` that of recent ones with chunks, less ``live``. So the
chunks of a batch may have ``share / (1 - share) * live / cost`` rows. The number at most doubles from batch to batch,
because a first guess is uncertain. It does not fall below a 64th of a batch's maximum: each chunk has a fixed cost, so
smaller ones would gain nothing. A batch with chunks that took less than ``live`` shows that ``live`` is outdated; it is
then measured again.

If that is too much, the share holds over several batches: time that chunks took beyond it is a *debt*, of which every
second of a batch pays off ``share`` seconds. While there is debt, batches have no chunks, and renew ``live``. Without
debt for long, one batch goes without chunks for that reason alone.

Without live changes no change has to wait, so there is no limit and no debt. The first change after that waits for a
whole batch. All of this is a cache: a new planner measures again.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

__all__ = ["Pace"]

_LATE: Final = 3
"""Batches in a median: a single slow one changes nothing."""
_UNSEEN: Final = 8
"""Batches with chunks after which one without them measures live changes alone."""
_GROWTH: Final = 2
_LEAST: Final = 64
_CHEAPEST: Final = 0.01
"""Least part of the time of a batch with chunks that counts as theirs, even if it was no longer than others."""


class Pace:
    """Learns from finished batches how many snapshot rows the next one may have.

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
        """Record a finished batch.

        :param rows: of its chunks, approximately.
        :param seconds: its duration.
        :param live: whether it brought changes.
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
        """Return how many rows the next batch's chunks may have, 0 to ``full``.

        :param live: whether there are changes for it.
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

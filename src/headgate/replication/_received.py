"""Transactions that one dump delivered whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headgate.binlog import Transactions
from headgate.errors import HistoryRewrittenError
from headgate.gtid import Gtid, GtidSetBuilder
from headgate.mysql import REWRITTEN
from headgate.offsets import Last
from headgate.positions import Position

__all__ = ["ReceivedTransactions", "uuid_bytes"]


class ReceivedTransactions:
    """Set of the transactions received whole, the first and the last of them, and their number.

    :param wanted: a position of the log's kind.
    """

    def __init__(self, wanted: Position) -> None:
        self._wanted = wanted
        self.count = 0
        """How many they are."""
        self.first: Last | None = None
        """The first one, in the log's order."""
        self.last: Last | None = None
        """The last one."""
        self._builder = GtidSetBuilder()
        self._highest: dict[tuple[bytes, str], int] = {}

    def gtids(self) -> Position:
        """Return the set."""
        return self._builder.build()

    def add(self, transactions: Transactions, done: Any, tags: Sequence[str]) -> None:
        """Add transactions of a scan, in log order.

        :param done: int64[n]: their indexes, at least one.
        :param tags: texts of the scan's tags.
        :raises HistoryRewrittenError: one comes again.
        """
        self.count += len(done)
        hi, lo, tag, number = (getattr(transactions, name)[done] for name in ("hi", "lo", "tag", "number"))

        def one(index: int) -> Last:
            key = Gtid(uuid_bytes(hi[index], lo[index]), tags[int(tag[index])], int(number[index]))
            return Last(str(self._wanted.only(key)), int(transactions.commit_us[done[index]]))

        self.first, self.last = self.first or one(0), one(-1)
        while len(number):
            same = (hi == hi[0]) & (lo == lo[0]) & (tag == tag[0])
            self._add_source(uuid_bytes(hi[0], lo[0]), tags[int(tag[0])], number[same])
            hi, lo, tag, number = (array[~same] for array in (hi, lo, tag, number))

    def _add_source(self, uuid: bytes, tag: str, numbers: Any) -> None:
        """Add numbers of one source. They need not grow: a group assigns them in blocks, and users choose some."""
        before = self._highest.get((uuid, tag), 0)
        if numbers[0] <= before or (numbers[1:] <= numbers[:-1]).any():
            added = GtidSetBuilder()
            added.add_arrays(uuid, tag, numbers)
            new = added.build()
            if self.gtids() & new or new.count() < len(numbers):
                raise HistoryRewrittenError(REWRITTEN.format(f"the log has some of {new} a second time"))
        self._highest[uuid, tag] = max(before, int(numbers.max()))
        self._builder.add_arrays(uuid, tag, numbers)


def uuid_bytes(hi: Any, lo: Any) -> bytes:
    """Return a UUID whose halves, little-endian, are ``hi`` and ``lo``."""
    return np.array([hi, lo], "<u8").tobytes()

"""A cache of the most recently used entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Recent"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class Recent(OrderedDict[_K, _V]):
    """The most recently used entries, the last one at the end. :meth:`find`, :meth:`keep` and :meth:`forget` are
    thread-safe.

    :param most: limit of the entries' weight, except for a single one.
    :param weigh: returns the weight of a value.
    """

    def __init__(self, most: int, weigh: Callable[[_V], int] = lambda _: 1) -> None:
        super().__init__()
        self._most, self._weigh, self._weight = most, weigh, 0
        self._lock = threading.Lock()

    def find(self, key: _K) -> _V | None:
        """Return a value; None: it is unknown, or forgotten."""
        with self._lock:
            if key in self:
                self.move_to_end(key)
            return self.get(key)

    def keep(self, key: _K, value: _V) -> _V:
        """Store a value, and return it."""
        with self._lock:
            self._remove(key)
            self[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most and len(self) > 1:
                self._remove(next(iter(self)))
        return value

    def forget(self, key: _K) -> None:
        """Drop a value, if it is known."""
        with self._lock:
            self._remove(key)

    def _remove(self, key: _K) -> None:
        if key in self:
            self._weight -= self._weigh(self.pop(key))

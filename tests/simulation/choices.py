"""The source of all choices of an episode: a small generator of numbers, fast enough for millions of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Chooser"]

_T = TypeVar("_T")
_MASK = (1 << 64) - 1


class Chooser:
    """A linear congruential generator (Knuth's MMIX constants), of which the high bits count.

    :param seed: equal seeds give equal choices.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
        self.below(2)

    def below(self, count: int) -> int:
        """Return a number from 0 to ``count - 1``."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & _MASK
        return ((self._state >> 33) * count) >> 31

    def one_in(self, count: int) -> bool:
        """Return True once in so many times."""
        return self.below(count) == 0

    def pick(self, values: Sequence[_T]) -> _T:
        """Return one of the values."""
        return values[self.below(len(values))]

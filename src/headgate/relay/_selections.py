"""Sources that a request names, resolved once for all requests that name the same ones.

A waiting consumer sends hundreds of requests a second, perhaps for a thousand sources. The meaning of its ids changes
only when a new table appears.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headgate.relay._sources import LogicalSource, SourceNames

__all__ = ["Selection", "Selections"]

_MOST_KEPT: Final = 256


@dataclass(frozen=True, eq=False)
class Selection:
    """Some sources of a relay, as known at one moment."""

    ids: tuple[int, ...]
    """The requested ids, also unknown ones."""
    sources: tuple[LogicalSource, ...]
    unknown: int | None
    """The first id without a source."""
    partitions: tuple[int, ...]
    """Ids of their physical sources, sorted."""
    whole: frozenset[int]
    """Physical sources that are selected completely."""


class Selections:
    """Selections of one relay. Thread-safe."""

    def __init__(self, names: SourceNames) -> None:
        self._names = names
        self._known = lru_cache(_MOST_KEPT)(self._select)

    def of(self, ids: tuple[int, ...]) -> Selection:
        """Return the selection of these ids now."""
        return self._known(ids, self._names.changes)

    def everything(self) -> Selection:
        """Return the selection of all current sources."""
        return self._known(None, self._names.changes)

    def _select(self, wanted: tuple[int, ...] | None, changes: int) -> Selection:
        """:param changes: the number that was known before, so that a later one has another selection."""
        del changes
        ids = tuple(one.id for one in self._names.all()) if wanted is None else wanted
        named = [(one, self._names.by_id(one)) for one in ids]
        physical = {one.id: self._names.physical_of(one.id) for one in self._names.all()}
        requested = frozenset(ids)
        left = {partition for one, partition in physical.items() if one not in requested}
        inside = {partition for _, one in named if one is not None and (partition := physical.get(one.id)) is not None}
        return Selection(
            ids,
            tuple(one for _, one in named if one is not None),
            next((number for number, one in named if one is None), None),
            tuple(sorted(inside)),
            frozenset(inside - left),
        )

"""The sources that a request asks for, worked out once for all requests that ask for the same ones.

A consumer that waits asks hundreds of times a second, perhaps for a thousand sources; what its ids mean changes only
when a table turns up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.relay._sources import LogicalSource, SourceNames

__all__ = ["Selection", "Selections"]

_MOST_KEPT: Final = 256


@dataclass(frozen=True, eq=False)
class Selection:
    """Some sources of a relay, as they were known at one moment."""

    ids: tuple[int, ...]
    """As they were asked for, also those that mean nothing."""
    sources: tuple[LogicalSource, ...]
    unknown: int | None
    """The first id that is no source's."""
    partitions: tuple[int, ...]
    """The physical sources that they are in, sorted."""
    whole: frozenset[int]
    """Physical sources of which none is left out."""


class Selections:
    """Those of one relay; to be asked from any thread."""

    def __init__(self, names: SourceNames) -> None:
        self._names = names
        self._found: dict[tuple[int, ...] | None, tuple[int, Selection]] = {}
        """With the number of the changes that were known before it was made."""

    def of(self, ids: tuple[int, ...]) -> Selection:
        """What these ids mean now."""
        return self._known(ids)

    def everything(self) -> Selection:
        """All sources that there are now."""
        return self._known(None)

    def _known(self, ids: tuple[int, ...] | None) -> Selection:
        changes = self._names.changes
        found = self._found.get(ids)
        if found is None or found[0] != changes:
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            found = changes, self._select([one.id for one in self._names.all()] if ids is None else ids)
            self._found[ids] = found
        return found[1]

    def _select(self, wanted: Iterable[int]) -> Selection:
        ids = tuple(wanted)
        found = [(one, self._names.by_id(one)) for one in ids]
        physical = {one.id: self._names.physical_of(one.id) for one in self._names.all()}
        asked = frozenset(ids)
        left = {place for one, place in physical.items() if one not in asked}
        inside = {place for _, one in found if one is not None and (place := physical.get(one.id)) is not None}
        return Selection(
            ids,
            tuple(one for _, one in found if one is not None),
            next((number for number, one in found if one is None), None),
            tuple(sorted(inside)),
            frozenset(inside - left),
        )

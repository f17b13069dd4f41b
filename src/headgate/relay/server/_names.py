"""The logical sources of a relay by table and by id, and the selections of requests.

A pattern's tables get ids from the pattern's id on, in the order in which they first appear. The state folder keeps the
mapping, so an id means the same table forever: it stays reserved if the table's physical source is no longer
configured, if no pattern matches the table any more, or if the table has another source by now.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from headgate.catalog import TablePatterns
from headgate.errors import ConfigError
from headgate.files import read_json, write_json
from headgate.relay.server._sources import LARGEST_ID, LogicalSource, PhysicalSource
from headgate.relay.server._tenants import is_named

__all__ = ["Selection", "SourceNames"]

_MOST_SELECTIONS: Final = 256
"""A waiting consumer sends hundreds of requests a second, perhaps for a thousand sources. Their meaning changes only
when a new table appears."""


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


class SourceNames:
    """The logical sources of one relay by table and by id. The threads that read the binlogs add the tables of patterns
    as they appear, while other threads read.

    :param file: keeps the ids of those; None: memory only.
    :raises ConfigError: the file cannot be read, or a source has an id that such a table already has.
    """

    def __init__(self, physical: Sequence[PhysicalSource], file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        """Held while a table gets its id: several binlogs may have new tables at the same time."""
        self._patterns: dict[int, list[tuple[TablePatterns, LogicalSource]]] = {}
        self._by_table: dict[tuple[int, str], LogicalSource] = {}
        self._by_id: dict[int, LogicalSource] = {}
        self._physical: dict[int, int] = {}
        """Of every id that was ever given; some have no source now."""
        self.changes = 0
        """Number of sources added so far; while it is the same, so are all other answers."""
        self._selected = lru_cache(_MOST_SELECTIONS)(self._select)
        self._ids_named = lru_cache(_MOST_SELECTIONS)(self._match)
        for one in physical:
            for source in one.sources:
                if source.is_pattern:
                    self._patterns.setdefault(one.id, []).append((TablePatterns([source.table]), source))
                else:
                    self._put(one.id, source)
        self._pattern_tables: list[tuple[int, LogicalSource]] = []
        for stored in (read_json(file) or {}).get("sources", []) if file is not None else []:
            self._add(int(stored["physical"]), LogicalSource(**stored["source"]))

    def _put(self, physical: int, source: LogicalSource) -> None:
        self._by_table[physical, source.table] = source
        self._physical[source.id] = physical
        self._by_id[source.id] = source
        self.changes += 1  # last: a selection made meanwhile has the number before

    def all(self) -> list[LogicalSource]:
        """Return every source with a table, by id."""
        return sorted(self._by_id.values(), key=lambda source: source.id)

    def of_physical(self, physical: int) -> list[LogicalSource]:
        """Return every source with a table of one physical source, by id."""
        return [one for one in self.all() if self._physical[one.id] == physical]

    def by_id(self, number: int) -> LogicalSource | None:
        """Return the source of an id; None: unknown."""
        return self._by_id.get(number)

    def physical_of(self, number: int) -> int:
        """Return the physical partition of a known source's events."""
        return self._physical[number]

    def select(self, ids: tuple[int, ...] | None = None) -> Selection:
        """Return the sources with these ids, as known now; None: all."""
        return self._selected(ids, self.changes)

    def select_named(self, names: tuple[str, ...] | None) -> Selection:
        """Return the sources with these names, which may be patterns, as known now; None: all."""
        changes = self.changes
        return self._selected(None if names is None else self._ids_named(names, changes), changes)

    def _match(self, names: tuple[str, ...], changes: int) -> tuple[int, ...]:
        """Return the ids of sources by name; ``changes`` as in :meth:`_select`."""
        del changes
        return tuple(one.id for one in self.all() if is_named(one.name, names))

    def _select(self, wanted: tuple[int, ...] | None, changes: int) -> Selection:
        """:param changes: the number that was known before, so that a later one has another selection."""
        del changes
        known = self.all()
        ids = tuple(one.id for one in known) if wanted is None else wanted
        requested, by_id = frozenset(ids), {one.id: one for one in known}
        return Selection(
            ids,
            tuple(by_id[one] for one in ids if one in by_id),
            next((one for one in ids if one not in by_id), None),
            tuple(sorted(inside := {self._physical[one] for one in requested & by_id.keys()})),
            frozenset(inside - {self._physical[one] for one in by_id.keys() - requested}),
        )

    def find(self, physical: int, db: str, table: str) -> LogicalSource:
        """Return the source of a followed table; create that of a pattern's table when it first appears.

        :raises ConfigError: no id is left, or the ids cannot be saved.
        """
        key = (physical, f"{db}.{table}")
        source = self._by_table.get(key)
        if source is None:
            with self._lock:
                source = self._by_table.get(key) or self._create(physical, db, table)
        return source

    def _create(self, physical: int, db: str, table: str) -> LogicalSource:
        pattern = self._pattern_of(physical, db, table)
        assert pattern is not None
        name = f"{db}.{table}"
        source = LogicalSource(self._free_id(pattern.id), f"{pattern.name}.{name}", name, pattern.partition)
        if self._file is not None:  # first: an id that is used is kept
            known = [*self._pattern_tables, (physical, source)]
            entries = [{"physical": physical_id, "source": vars(one)} for physical_id, one in known]
            write_json(self._file, {"v": 1, "sources": entries})
        self._add(physical, source)
        return source

    def _pattern_of(self, physical: int, db: str, table: str) -> LogicalSource | None:
        patterns = self._patterns.get(physical, [])
        return next((one for matches, one in patterns if matches.matches(db, table)), None)

    def _add(self, physical: int, source: LogicalSource) -> None:
        """Add a pattern's table; only reserve its id if a configured source has the table by now, or if it is no longer
        followed.
        """
        self._pattern_tables.append((physical, source))
        explicit, other = self._by_table.get((physical, source.table)), self._by_id.get(source.id)
        if other is not None and other != explicit:
            known = f"already belongs to {source.table}, a table of a pattern"
            raise ConfigError(f"the id {source.id} of {other.name} {known}: give {other.name} another id")
        if explicit is None and self._pattern_of(physical, *source.table.split(".", 1)) is not None:
            self._put(physical, source)
        self._physical[source.id] = physical

    def _free_id(self, first: int) -> int:
        number = first
        while number in self._physical:
            number += 1
        if number > LARGEST_ID:
            raise ConfigError(f"no source id is left after {first}")
        return number

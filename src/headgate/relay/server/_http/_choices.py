"""Choices of events: filters checked against the current schemas, and a cache of compiled row filters."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Final

from headgate.relay.databus import Schema
from headgate.relay.server._http._parameters import UnfitFilterError
from headgate.relay.server._http._requests import Filters
from headgate.relay.server._recent import Recent
from headgate.relay.server._relay import Relay
from headgate.relay.server.events import (
    NO_ROW_FILTERS,
    Choice,
    CompiledFilters,
    SourceFilter,
    choice_of,
    compile_filters,
    key_fields,
    ranges_of,
)

__all__ = ["Choices"]

_MOST_COMPILED: Final = 1000
"""Compiled filters in the cache, of all consumers together."""


class Choices:
    """Choices of one relay's events."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._compiled = Recent[tuple[str, tuple[int, ...]], CompiledFilters](_MOST_COMPILED)

    def of(self, command: str, sources: Collection[int], filters: Filters) -> Choice:
        """Return the events of these sources that pass the filters. Filters of others are ignored: whether they fit
        would tell a tenant what columns there are.

        :raises UnfitFilterError: a filter does not fit a schema.
        """
        self._check_keys(command, filters.rules, sources)
        row_filters = {source: one for source, one in filters.row_filters.items() if source in sources}
        return choice_of(sources, filters.rules, self._row_filters(command, row_filters))

    def _row_filters(self, command: str, filters: Mapping[int, SourceFilter]) -> CompiledFilters:
        """Return compiled row filters; compile again when a schema has a new version."""
        if not filters:
            return NO_ROW_FILTERS
        versions = {source: self._versions(source) for source in filters}
        key = (repr(sorted(filters.items())), tuple(len(schemas) for schemas in versions.values()))
        compiled = self._compiled.find(key)
        if compiled is not None:
            return compiled
        try:
            return self._compiled.keep(key, compile_filters(filters, versions.__getitem__))
        except ValueError as error:
            raise UnfitFilterError(command, "filters", error) from None

    def _check_keys(self, command: str, rules: Sequence[Sequence[int]], sources: Container[int]) -> None:
        """Check that rules can apply to the keys of sources, by the newest schemas.

        :raises UnfitFilterError: a RANGE on keys that are never numbers: of several columns, or none. Text in one
            column may be one, as with Databus; each event is checked.
        """
        for source in sorted(one for one in ranges_of(rules) if one in sources):
            versions = self._versions(source)
            key = key_fields(versions[-1].value) if versions else None
            if key is not None and len(key) != 1:
                keys = f"are made of {', '.join(key)}" if key else "are empty"
                reason = f"RANGE needs integer keys, but the keys of source {source} {keys}: use MOD or HASH"
                raise UnfitFilterError(command, "filters", reason)

    def _versions(self, source: int) -> Sequence[Schema]:
        one = self._relay.names.by_id(source)
        return [] if one is None else self._relay.registry.versions(one.name)

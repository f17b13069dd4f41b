"""Filters, held against the schemas that there are: whether they can be asked, and those of rows compiled and kept."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from headgate.databus import Schema
from headgate.relay._events._choice import ranges_of
from headgate.relay._events._schemas import key_fields
from headgate.relay._events._where import NO_ROWS_ASKED, RowFilter, Rows, compile_rows
from headgate.relay._http._parameters import UnfitFilterError
from headgate.relay._relay import Relay

__all__ = ["CompiledFilters"]

_MOST_COMPILED: Final = 1000
"""Filters that stay compiled, of all consumers together."""


class CompiledFilters:
    """Those of one relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._compiled: dict[tuple[str, tuple[int, ...]], Rows] = {}

    def rows(self, command: str, filters: Mapping[int, RowFilter]) -> Rows:
        """Compiled again when a schema has a new version.

        :raises UnfitFilterError: a filter does not fit a schema.
        """
        if not filters:
            return NO_ROWS_ASKED
        versions = {source: self._versions(source) for source in filters}
        key = (repr(sorted(filters.items())), tuple(len(found) for found in versions.values()))
        found = self._compiled.get(key)
        if found is None:
            try:
                found = compile_rows(filters, versions.__getitem__)
            except ValueError as error:
                raise UnfitFilterError(command, "filters", error) from None
            if len(self._compiled) >= _MOST_COMPILED:
                self._compiled.clear()
            self._compiled[key] = found
        return found

    def check_keys(self, command: str, rules: Sequence[Sequence[int]], sources: Container[int]) -> None:
        """Whether rules can be asked about the keys of sources, as far as the newest schemas tell.

        :raises UnfitFilterError: a RANGE where keys are never numbers: of several columns, or of none. Text in one
            column may be one, as with Databus; it is seen when it comes.
        """
        for source in sorted(one for one in ranges_of(rules) if one in sources):
            versions = self._versions(source)
            key = key_fields(versions[-1].value) if versions else None
            if key is not None and len(key) != 1:
                keys = f"are made of {', '.join(key)}" if key else "are empty"
                reason = f"RANGE for source {source}, whose keys {keys} and no numbers: take MOD or HASH"
                raise UnfitFilterError(command, "filters", reason)

    def _versions(self, source: int) -> Sequence[Schema]:
        one = self._relay.names.by_id(source)
        return [] if one is None else self._relay.registry.versions(one.name)

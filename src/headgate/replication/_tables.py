"""Tables that a dump has announced, and their walkers and codecs.

A *slot* is one table definition: its walk and, if the table is followed, its codecs. Table ids change whenever the
server reopens a table. The bytes behind the id do not, so they identify the slot.

The bytes of a map without column names (``binlog_row_metadata=MINIMAL``) do not distinguish definitions. For such a
table ``definition_of`` is called at each map whose id is unknown. The server increments ids with each change of a
definition. They restart only when the server starts, which begins a new file. So at a new file the ids of such tables
are forgotten (:attr:`TableSlots.nameless` says whether there are any).

A server that often reopens tables, or has ever-new ones, announces maps without end. So that an endless dump takes
bounded memory, a decoder that has many forgets all slots and ids together (:attr:`TableSlots.is_full`), as a reconnect
does. Each statement brings the maps of its tables, so this may happen wherever no transaction is open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from headgate.binlog import RowWalker, TableMap, parse_table_map
from headgate.catalog import TableDef, TablePatterns, table_from_table_map
from headgate.columns import TableCodec, with_chosen_key
from headgate.errors import DecodeError, SchemaAmbiguousError, UnreadableTableError
from headgate.policies import DEFAULT, Policies
from headgate.replication._meta import canonical_schema
from headgate.replication._partial import DefaultsOf
from headgate.replication._types import stop_reason

__all__ = ["DecodeOptions", "DefinitionOf", "Lookups", "Slot", "TableSlots"]

_MOST_MAPS: Final = 1 << 14
"""Maps after which the slots are full. A slot takes some KB. A server may have thousands of tables open at a time
(``table_definition_cache``), and to forget those costs a parse of each."""

DefinitionOf = Callable[[TableMap, str, int], TableDef]
"""Definition of a table at an event without column names, which begins at this position of this file.
SchemaAmbiguousError: it is unknown."""


@dataclass(frozen=True)
class DecodeOptions:
    """How followed tables are decoded."""

    tables: TablePatterns
    epoch: int = 0
    images: str = "all"
    """``all``, or ``keys``: leave out before-images whose key did not change."""
    policies: Policies = DEFAULT
    rows: Literal["filter", "mark"] = "filter"
    """Of tables with ``rows``: leave out what does not pass, or keep every image and mark which pass
    (``headgate.columns.PASSES_FIELD``, the last column)."""
    ambiguous: str = "raise"
    """Action if a followed table's columns are unknown, a key value is ambiguous, or ``rows`` cannot be decided:
    ``raise``, or ``stop``: leave its images out and report that."""
    held_bytes: int = 64 << 20
    """Bytes of images that are held of transactions prepared and not committed. Images beyond are read again."""


@dataclass(frozen=True)
class Lookups:
    """What a decoder looks up at the server, when it needs it."""

    defaults_of: DefaultsOf | None = None
    """Returns defaults of columns that partial row images of inserts leave out."""
    definition_of: DefinitionOf | None = None
    """Returns definitions of tables whose columns the log does not name."""
    lower_case: Callable[[], bool] = lambda: False
    """Returns whether the server stores names in lower case; called only if a statement has others."""


@dataclass
class Slot:
    """One table definition as a dump announced it."""

    map: TableMap
    walker: RowWalker | None
    """None if the sizes of its values are unknown (only of tables that are not followed)."""
    table: TableDef | None = None
    """As MySQL has it; None if the table is not followed."""
    codec: TableCodec | None = None
    """Its table is the one that images have: as it is written."""
    schema: pa.Schema | None = None
    stopped: str | None = None
    """Why a followed table is not decoded, or no longer decoded."""
    unknown: str | None = None
    """Why its columns are unknown, if that is the reason."""

    def stop(self, reason: str, unknown: str | None = None) -> None:
        """Decode nothing more of the table."""
        self.table = self.codec = self.schema = None
        self.stopped, self.unknown = reason, unknown

    @property
    def name(self) -> str:
        """``db.table``"""
        return f"{self.map.db}.{self.map.table}"


class TableSlots:
    """Slots of one dump.

    :param definition_of: ``None``: definitions cannot be queried.
    """

    def __init__(self, options: DecodeOptions, definition_of: DefinitionOf | None = None) -> None:
        self.nameless = False
        """Whether a followed table's map had no column names."""
        self._options = options
        self._definition_of = definition_of
        self.forget()

    def forget(self) -> None:
        """Forget all slots."""
        self.slots: list[Slot] = []
        self._known: dict[bytes, int] = {}
        self._registered = 0

    @property
    def is_full(self) -> bool:
        """Whether so many maps were registered that the table ids should be forgotten (:meth:`forget_ids`)."""
        return self._registered >= _MOST_MAPS

    def forget_ids(self) -> None:
        """Note that the scanner has forgotten the table ids. Slots stay, unless there are as many: a table that is
        opened again has a new id, and the same slot; to make one takes half a millisecond.
        """
        self._registered = 0
        if len(self.slots) >= _MOST_MAPS:
            self.forget()

    def register(self, event: bytes, file: str, pos: int) -> tuple[int, bytes, int]:
        """Return ``(table id, body behind id and flags, slot)`` of a TABLE_MAP event's body.

        :raises UnsupportedError: a followed table has a column of a type that cannot be decoded.
        :raises SchemaAmbiguousError: the columns of a followed table are unknown.
        :raises UnreadableTableError: its ``rows`` or its chosen key needs a column that it lacks.
        """
        body = event[8:]
        table_id = int.from_bytes(event[:6], "little")
        self._registered += 1
        slot = self._known.get(body)
        if slot is None or self._is_nameless(self.slots[slot]):
            slot = self._known[body] = self._find(parse_table_map(event), slot, file, pos)
        return table_id, body, slot

    def _is_nameless(self, slot: Slot) -> bool:
        return slot.map.names is None and (slot.table is not None or slot.stopped is not None)

    def _find(self, table_map: TableMap, before: int | None, file: str, pos: int) -> int:
        """Return the slot of a map. ``before``: the slot that equal bytes had when the table was last open."""
        if not self._options.tables.matches(table_map.db, table_map.table):
            return self._add(self._uncoded(table_map))
        try:
            return self._find_followed(table_map, before, file, pos)
        except (SchemaAmbiguousError, UnreadableTableError) as error:
            if self._options.ambiguous == "raise":
                raise
            slot = self._uncoded(table_map)
            if isinstance(error, UnreadableTableError):
                slot.stop(stop_reason(error, slot.name))
            else:
                slot.stop(error.message, str(error.fields["reason"]))
            return self._add(slot)

    def _find_followed(self, table_map: TableMap, before: int | None, file: str, pos: int) -> int:
        self.nameless = self.nameless or table_map.names is None
        if table_map.names is not None or self._definition_of is None:
            return self._add(self._coded(table_map, table_from_table_map(table_map)))
        table = self._definition_of(table_map, file, pos)
        table = with_chosen_key(table, self._options.policies.of(table.full_name))
        if before is not None and self.slots[before].table == table:
            return before
        return self._add(self._coded(table_map, table))

    def _add(self, slot: Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def _coded(self, table_map: TableMap, table: TableDef) -> Slot:
        codec = TableCodec(table, self._options.policies)
        table = codec.original
        keys_only = self._options.images == "keys" and codec.row_codec is None  # both images decide what an update is
        walker = RowWalker(table_map.types, table_map.metas, key=table.key, keys_only=keys_only)
        return Slot(table_map, walker, table, codec, canonical_schema(codec.table, codec.fields))

    @staticmethod
    def _uncoded(table_map: TableMap) -> Slot:
        try:
            return Slot(table_map, RowWalker(table_map.types, table_map.metas))
        except DecodeError:
            return Slot(table_map, None)

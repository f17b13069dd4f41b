"""The tables that a dump has announced, and what it takes to decode each.

A *slot* is one table definition: its walk and, if the table is followed, its codecs. Table ids change whenever the
server opens a table anew; the bytes behind the id do not, so a slot is found again by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.binlog import RowWalker, TableMap, parse_table_map
from headgate.catalog import TableDef, TablePatterns, table_from_table_map
from headgate.columns import TableCodec
from headgate.errors import DecodeError, HeadgateError
from headgate.replication._meta import canonical_schema

__all__ = ["DecodeOptions", "Slot", "TableSlots"]


@dataclass(frozen=True)
class DecodeOptions:
    """How followed tables are decoded."""

    tables: TablePatterns
    epoch: int = 0
    images: str = "all"
    """``all``, or ``keys``: without before-images whose key did not change."""
    temporals: str = "arrow"
    zero_dates: str = "error"


@dataclass
class Slot:
    """One table definition as a dump announced it."""

    map: TableMap
    walker: RowWalker | None
    """None if the sizes of its values are not known (only of tables that are not followed)."""
    table: TableDef | None = None
    """None if the table is not followed."""
    codec: TableCodec | None = None
    schema: pa.Schema | None = None

    @property
    def name(self) -> str:
        """``db.table``"""
        return f"{self.map.db}.{self.map.table}"


class TableSlots:
    """Slots of one dump.

    :param key_of: names of the key columns of a table without a primary key (from information_schema), () for none.
    """

    def __init__(self, options: DecodeOptions, key_of: Callable[[str, str], Sequence[str]]) -> None:
        self.slots: list[Slot] = []
        self._options = options
        self._key_of = key_of
        self._known: dict[bytes, int] = {}

    def register(self, event: bytes) -> tuple[int, bytes, int]:
        """``(table id, body behind id and flags, slot)`` of a TABLE_MAP event's body.

        :raises UnsupportedError: a followed table has a column of a type that cannot be decoded.
        """
        body = event[8:]
        table_id = int.from_bytes(event[:6], "little")
        slot = self._known.get(body)
        if slot is None:
            slot = self._known[body] = len(self.slots)
            self.slots.append(self._make(parse_table_map(event)))
        return table_id, body, slot

    def _make(self, table_map: TableMap) -> Slot:
        if not self._options.tables.matches(table_map.db, table_map.table):
            return self._uncoded(table_map)
        table = table_from_table_map(table_map)
        if not table.key:
            names = self._key_of(table_map.db, table_map.table)
            if names and set(names) <= {column.name for column in table.columns}:
                table = table.with_key(names)
        codec = TableCodec(table, temporals=self._options.temporals, zero_dates=self._options.zero_dates)  # type: ignore[arg-type]
        walker = RowWalker(table_map.types, table_map.metas, key=table.key, keys_only=self._options.images == "keys")
        return Slot(table_map, walker, table, codec, canonical_schema(table, codec.fields))

    @staticmethod
    def _uncoded(table_map: TableMap) -> Slot:
        try:
            return Slot(table_map, RowWalker(table_map.types, table_map.metas))
        except DecodeError:
            return Slot(table_map, None)

    def located(self, error: HeadgateError, slot: Slot, **where: Any) -> HeadgateError:
        """``error`` with the place where it happened."""
        for name, value in {"table": slot.name, **where}.items():
            error.fields.setdefault(name, value)
        return error

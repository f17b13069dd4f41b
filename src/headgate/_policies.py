"""Policies: what is done where there is more than one good answer, for all tables or for one.

One frozen value goes from the configuration, or the Spark source's options, to the place where a table's codecs are
made; there ``of(table)`` gives the policies of that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

__all__ = [
    "DEFAULT",
    "POLICY_VALUES",
    "Bit",
    "Json",
    "OddKeys",
    "Policies",
    "Temporals",
    "Time",
    "WideDecimals",
    "Window",
    "ZeroDates",
]

ZeroDates: TypeAlias = Literal["error", "null", "text"]
WideDecimals: TypeAlias = Literal["text", "error"]
Json: TypeAlias = Literal["string", "variant"]
Time: TypeAlias = Literal["text", "microseconds"]
Bit: TypeAlias = Literal["integer", "binary"]
Window: TypeAlias = Literal["rewind", "keep", "drop"]
Temporals: TypeAlias = Literal["arrow", "text"]
OddKeys: TypeAlias = Literal["error", "spell"]

POLICY_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "zero_dates": get_args(ZeroDates),
    "wide_decimals": get_args(WideDecimals),
    "json": get_args(Json),
    "time": get_args(Time),
    "bit": get_args(Bit),
    "window": get_args(Window),
}
"""The policies that users choose, and their values; the first is the default."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of all tables; of one table where ``tables`` is empty."""

    zero_dates: ZeroDates = "error"
    """Dates that Arrow cannot hold (zero, or zero in a part, or no day of the calendar): an error, null (but an error
    in a key), or ``text``: the columns are strings in MySQL's form."""
    wide_decimals: WideDecimals = "text"
    """DECIMAL of more than 38 digits: MySQL's text, or an error."""
    json: Json = "string"
    """JSON: MySQL's text; or in a pipeline's tables Spark's VARIANT, which the sinks make of that text."""
    time: Time = "text"
    """TIME: MySQL's text, or int64 microseconds."""
    bit: Bit = "integer"
    """BIT(n): a number, or (n + 7) // 8 bytes, big-endian."""
    window: Window = "rewind"
    """Rows of a chunk that change while it is read: turned back, so that it is exact as of E; kept as read; or dropped,
    because the changes that follow bring them."""
    temporals: Temporals = "arrow"
    """``text``: DATE, DATETIME, TIMESTAMP and TIME are MySQL's text, zero dates too (JSON lines)."""
    odd_keys: OddKeys = "error"
    """Values of a key that their text does not tell apart: an error, or ``spell``: spelled by their bytes
    (``headgate.columns.SPELLED``), for who keeps no table (JSON lines, the relay)."""
    tables: tuple[tuple[str, Policies], ...] = ()
    """``(db.table, its policies)`` of tables with policies of their own."""

    @classmethod
    def make(cls, given: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> Policies:
        """From values of ``POLICY_VALUES``, and for some tables others; what a table does not name is as for all."""
        default = cls(**given)
        own = {table: replace(default, **values) for table, values in sorted(tables.items())}
        return replace(default, tables=tuple((table, one) for table, one in own.items() if one != default))

    def of(self, table: str) -> Policies:
        """The policies of ``db.table``."""
        for name, own in self.tables:
            if name == table:
                return own
        return replace(self, tables=()) if self.tables else self

    def without_stream(self) -> Policies:
        """For readings that no changes follow: nothing may be left to them, so rows are turned back, not dropped."""
        alone = tuple((table, own.without_stream()) for table, own in self.tables)
        return replace(self, tables=alone, window="rewind" if self.window == "drop" else self.window)

    def as_options(self) -> dict[str, Any]:
        """Policy → its value, or ``{"*": value, "db.table": value, …}`` where tables differ."""
        found: dict[str, Any] = {}
        for name in POLICY_VALUES:
            value = getattr(self, name)
            others = {table: getattr(own, name) for table, own in self.tables if getattr(own, name) != value}
            found[name] = {"*": value, **others} if others else value
        return found


DEFAULT: Final = Policies()

assert POLICY_VALUES.keys() <= {field.name for field in fields(Policies)}

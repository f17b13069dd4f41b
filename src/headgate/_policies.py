"""Policies: the configurable choices for decoding and snapshots, for all tables or for one.

One frozen value is passed from the configuration, or from the Spark source's options, to the code that builds a table's
codecs. There ``of(table)`` returns the policies of that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

__all__ = [
    "DEFAULT",
    "POLICY_VALUES",
    "AmbiguousKeys",
    "Bit",
    "Decimals",
    "Json",
    "Policies",
    "Temporals",
    "Time",
    "UnsignedBigint",
    "WideDecimals",
    "Window",
    "ZeroDates",
]

ZeroDates: TypeAlias = Literal["error", "null", "text"]
WideDecimals: TypeAlias = Literal["text", "error"]
Decimals: TypeAlias = Literal["decimal", "text", "double"]
UnsignedBigint: TypeAlias = Literal["decimal", "bigint"]
Json: TypeAlias = Literal["string", "variant"]
Time: TypeAlias = Literal["text", "microseconds"]
Bit: TypeAlias = Literal["integer", "binary"]
Window: TypeAlias = Literal["rewind", "keep", "drop"]
Temporals: TypeAlias = Literal["arrow", "text"]
AmbiguousKeys: TypeAlias = Literal["error", "spell"]

POLICY_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "zero_dates": get_args(ZeroDates),
    "decimals": get_args(Decimals),
    "wide_decimals": get_args(WideDecimals),
    "unsigned_bigint": get_args(UnsignedBigint),
    "json": get_args(Json),
    "time": get_args(Time),
    "bit": get_args(Bit),
    "window": get_args(Window),
}
"""The policies that users can set, and their values; the first is the default."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of all tables; of a single table if ``tables`` is empty."""

    zero_dates: ZeroDates = "error"
    """Dates that Arrow cannot represent (zero, zero in a part, or not in the calendar): an error, null (but an error in
    a key), or ``text``: the columns are strings in MySQL's form."""
    decimals: Decimals = "decimal"
    """DECIMAL: Arrow's decimal128, MySQL's text, or a double, which may round. A key's column is never a double:
    different keys could become equal."""
    unsigned_bigint: UnsignedBigint = "decimal"
    """BIGINT UNSIGNED: decimal128(20,0); or int64, with an error for values above 9223372036854775807."""
    wide_decimals: WideDecimals = "text"
    """DECIMAL of more than 38 digits: MySQL's text, or an error."""
    json: Json = "string"
    """JSON: MySQL's text; or, in a pipeline's tables, Spark's VARIANT, which the sinks make from that text."""
    time: Time = "text"
    """TIME: MySQL's text, or int64 microseconds."""
    bit: Bit = "integer"
    """BIT(n): a number, or (n + 7) // 8 bytes, big-endian."""
    window: Window = "rewind"
    """Rows that change while their chunk is read: ``rewind`` restores them, so that the chunk is exact as of E;
    ``keep`` leaves them as read; ``drop`` omits them, because later changes bring them."""
    temporals: Temporals = "arrow"
    """``text``: DATE, DATETIME, TIMESTAMP and TIME are MySQL's text, including zero dates (JSON lines)."""
    ambiguous_keys: AmbiguousKeys = "error"
    """Different key values with the same text: an error, or ``spell``: written by their bytes
    (``headgate.columns.HEX_MARK``), for output without a target table (JSON lines, the relay)."""
    tables: tuple[tuple[str, Policies], ...] = ()
    """``(db.table, its policies)`` of the tables whose policies differ."""

    @classmethod
    def make(cls, common: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> Policies:
        """Build from values of ``POLICY_VALUES``; ``tables`` overrides them per table."""
        default = cls(**common)
        policies_by_table = {table: replace(default, **values) for table, values in sorted(tables.items())}
        return replace(
            default,
            tables=tuple((table, policies) for table, policies in policies_by_table.items() if policies != default),
        )

    def of(self, table: str) -> Policies:
        """Return the policies of ``db.table``."""
        for name, policies in self.tables:
            if name == table:
                return policies
        return replace(self, tables=()) if self.tables else self

    def without_stream(self) -> Policies:
        """Return the policies for a snapshot without a stream: nothing brings dropped rows later, so rewind them."""
        tables = tuple((table, policies.without_stream()) for table, policies in self.tables)
        return replace(self, tables=tables, window="rewind" if self.window == "drop" else self.window)

    def as_options(self) -> dict[str, Any]:
        """Return policy → value, or ``{"*": value, "db.table": value, …}`` if tables differ."""
        options: dict[str, Any] = {}
        for name in POLICY_VALUES:
            value = getattr(self, name)
            others = {
                table: getattr(policies, name) for table, policies in self.tables if getattr(policies, name) != value
            }
            options[name] = {"*": value, **others} if others else value
        return options


DEFAULT: Final = Policies()

assert POLICY_VALUES.keys() <= {field.name for field in fields(Policies)}

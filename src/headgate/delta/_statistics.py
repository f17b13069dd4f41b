"""The log's statistics of data files from any writer: bounds that exclude files.

Bounds may be wide, never narrow (Delta Transaction Log Protocol, "Per-file Statistics"): texts may be cut, and times
are cut to milliseconds, so an upper bound is raised before it excludes a file. ``tightBounds`` false means that deleted
rows are included; correct bounds stay correct.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headgate.parsing import parse_json

__all__ = ["INDEXED_LEAVES", "Statistics", "with_loose_bounds"]

INDEXED_LEAVES: Final = 32
"""Leaf columns with statistics, from the first: Delta's default of ``delta.dataSkippingNumIndexedCols``."""

_TEXT_CHARACTERS: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND_US: Final = 1000
_TIGHT: Final = re.compile(r'"tightBounds"\s*:\s*true')


@dataclass(frozen=True)
class Statistics:
    """Statistics of one file that the log has."""

    rows: int | None = None
    """Number of rows in the file, deleted ones included."""
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, Any] = field(default_factory=dict)
    """By column: its nulls, those of deleted rows included."""

    @classmethod
    def parse(cls, text: str | None) -> Statistics:
        """Parse an ``add`` action's ``stats``; return empty statistics if they are not JSON."""
        try:
            values = parse_json(text or "{}", parse_float=Decimal)
        except (ValueError, ArithmeticError):
            return cls()
        if not isinstance(values, dict):
            return cls()
        rows = values.get("numRecords")
        rows = rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None
        return cls(rows, values.get("minValues") or {}, values.get("maxValues") or {}, values.get("nullCount") or {})

    def bounds(self, path: tuple[str, ...], kind: pa.DataType) -> tuple[Any, Any] | None:
        """Return the least and greatest value a column may have, in a form that Python orders as Spark does; None: any.

        Numbers and decimals as numbers, dates as days, timestamps as µs, texts as UTF-8 bytes.
        """
        low, high = _at(self.least, path), _at(self.greatest, path)
        if low is None or high is None:
            return None
        try:
            return _bound(low, kind, upper=False), _bound(high, kind, upper=True)
        except (ValueError, TypeError, ArithmeticError):
            return None

    def null_count(self, path: tuple[str, ...]) -> int | None:
        """Return the number of rows, deleted ones included, in which a column is null; None: not known."""
        count = _at(self.nulls, path)
        return count if isinstance(count, int) else None


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(values, Mapping):
            return None
        values = values.get(name)
    return values


def _bound(value: Any, kind: pa.DataType, *, upper: bool) -> Any:
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(str(value))
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1) + (_MILLISECOND_US if upper else 0)
    if pa.types.is_date(kind):
        return (date.fromisoformat(str(value)) - _EPOCH.date()).days
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if not isinstance(value, str):
            raise TypeError(value)
        if upper and len(value) >= _TEXT_CHARACTERS:
            return value[: _TEXT_CHARACTERS - 1].encode() + b"\xff"
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise TypeError(value)
    return value


def with_loose_bounds(text: str | None, rows: int) -> str:
    """Return the ``stats`` of a file after rows of it were deleted.

    :param rows: number of rows in the file, for statistics that lack it.
    """
    if not text or Statistics.parse(text).rows is None:
        return json.dumps({"numRecords": rows, "tightBounds": False})
    if _TIGHT.search(text):
        return _TIGHT.sub('"tightBounds":false', text, count=1)
    return text if "tightBounds" in text else text.replace("{", '{"tightBounds":false,', 1)

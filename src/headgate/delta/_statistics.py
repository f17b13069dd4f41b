"""What the log says of a data file's rows, whoever wrote it: bounds that exclude files.

Bounds may be wide, never narrow (Delta Transaction Log Protocol, "Per-file Statistics"): texts may be cut, and times
are cut to milliseconds, so an upper bound is raised before it excludes anything. ``tightBounds`` false says that
deleted rows are counted in; bounds that were right stay so.
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

__all__ = ["Statistics", "loosened"]

_TEXT_CHARACTERS: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND_US: Final = 1000
_TIGHT: Final = re.compile(r'"tightBounds"\s*:\s*true')


@dataclass(frozen=True)
class Statistics:
    """The statistics of one file, as far as the log has them."""

    rows: int | None = None
    """How many rows stand in the file, deleted ones included."""
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Statistics:
        """From an ``add`` action's ``stats``; what cannot be read is not there."""
        try:
            found = json.loads(text or "{}", parse_float=Decimal)
        except ValueError:
            return cls()
        rows = found.get("numRecords")
        return cls(rows, found.get("minValues") or {}, found.get("maxValues") or {})

    def bounds(self, path: tuple[str, ...], kind: pa.DataType) -> tuple[Any, Any] | None:
        """The least and the greatest value a column may have, in a form that Python orders as Spark does; None: any.

        Numbers and decimals as numbers, dates as days, timestamps as µs, texts as UTF-8 bytes.
        """
        low, high = _at(self.least, path), _at(self.greatest, path)
        if low is None or high is None:
            return None
        try:
            return _bound(low, kind, upper=False), _bound(high, kind, upper=True)
        except (ValueError, TypeError, ArithmeticError):
            return None


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


def loosened(text: str | None, rows: int) -> str:
    """The ``stats`` of a file whose rows do not all count any more.

    :param rows: how many there are in the file, for statistics that do not say it.
    """
    if not text or Statistics.parse(text).rows is None:
        return json.dumps({"numRecords": rows, "tightBounds": False})
    if _TIGHT.search(text):
        return _TIGHT.sub('"tightBounds":false', text, count=1)
    return text if "tightBounds" in text else text.replace("{", '{"tightBounds":false,', 1)

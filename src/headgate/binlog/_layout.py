"""Size of a value in a row image, from the type code and metadata of its table map.

Source: MySQL source ``libs/mysql/binlog/event/binary_log_funcs.cpp`` (``calc_field_size``) and
``sql/log_event.cc`` (metadata written per type).
"""

from __future__ import annotations

from typing import Final

from headgate.binlog import codes as c
from headgate.errors import DecodeError

__all__ = ["LAYOUT_FIXED", "LAYOUT_PREFIX", "decimal_size", "log_layout", "real_type"]

LAYOUT_FIXED: Final = 0
"""The value takes a fixed number of bytes."""
LAYOUT_PREFIX: Final = 1
"""A little-endian length of 1 to 4 bytes precedes the value's bytes."""

_FIXED_SIZES: Final = {
    c.T_TINY: 1, c.T_SHORT: 2, c.T_INT24: 3, c.T_LONG: 4, c.T_LONGLONG: 8, c.T_FLOAT: 4, c.T_DOUBLE: 8, c.T_YEAR: 1,
    c.T_DATE: 3, c.T_NEWDATE: 3, c.T_TIME: 3, c.T_DATETIME: 8, c.T_TIMESTAMP: 4,
}  # fmt: skip
_FRACTION_BASE: Final = {c.T_TIME2: 3, c.T_TIMESTAMP2: 4, c.T_DATETIME2: 5}


def decimal_size(precision: int, scale: int) -> int:
    """Return the bytes of a packed DECIMAL(precision, scale)."""
    return sum(digits // 9 * 4 + (digits % 9 + 1) // 2 for digits in (precision - scale, scale))


def real_type(type_code: int, meta: int) -> tuple[int, int]:
    """Return ``(type, length)`` for MYSQL_TYPE_STRING, whose metadata hides ENUM, SET and the high bits of CHAR's
    length; for every other type, the type itself and ``meta``.
    """
    if type_code != c.T_STRING:
        return type_code, meta
    first, second = meta & 0xFF, meta >> 8
    if first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first, second


def log_layout(type_code: int, meta: int) -> tuple[int, int]:
    """Return how a walk sizes a cell: ``(LAYOUT_FIXED, bytes)`` or ``(LAYOUT_PREFIX, bytes of the length prefix)``.

    :param type_code: the column's type code in the table map.
    :param meta: its two metadata bytes as a little-endian number (one byte: that byte; none: 0).
    :raises DecodeError: for a type code that no row image can hold.
    """
    kind, length = real_type(type_code, meta)
    if kind in _FIXED_SIZES:
        return LAYOUT_FIXED, _FIXED_SIZES[kind]
    if kind in _FRACTION_BASE:
        return LAYOUT_FIXED, _FRACTION_BASE[kind] + (meta + 1) // 2
    if kind == c.T_NEWDECIMAL:
        return LAYOUT_FIXED, decimal_size(meta & 0xFF, meta >> 8)
    if kind == c.T_BIT:
        return LAYOUT_FIXED, (meta >> 8) + ((meta & 0xFF) > 0)
    if kind in (c.T_ENUM, c.T_SET):
        return LAYOUT_FIXED, length & 0xFF
    if kind in (c.T_STRING, c.T_VARCHAR, c.T_VAR_STRING):
        return LAYOUT_PREFIX, 1 if length < 256 else 2
    if kind in (c.T_BLOB, c.T_JSON, c.T_GEOMETRY, c.T_VECTOR) and 1 <= meta <= 4:
        return LAYOUT_PREFIX, meta
    raise DecodeError(f"a table map names column type {type_code} with metadata {meta}, which is not known")

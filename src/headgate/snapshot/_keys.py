"""Keys in SQL: how bounds are rendered, and how rows are compared with them.

A bound is text that MySQL made, one literal per key column, and is only ever given back to MySQL (or compared natively
where that cannot differ). So the order of rows is MySQL's own, collations included, and headgate never sorts a key.

=================  ==========================================  ================================================
key column         literal                                     why
=================  ==========================================  ================================================
integers, YEAR     digits
DECIMAL            digits and point
BIT, ENUM, SET     digits of the number behind the value       ENUM orders and is indexed by number, not by text
FLOAT, DOUBLE      digits with an exponent                     without one it would be a DECIMAL constant
DATE … TIME        quoted text, all fraction digits            compared as a temporal, zero dates too
character types    ``_charset X'bytes'``                       the column's collation decides; any byte survives
binary types       ``X'bytes'``
=================  ==========================================  ================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate.catalog import INTEGERS, Column, TableDef
from headgate.errors import SnapshotRefusedError
from headgate.names import quote_name

__all__ = ["bound_columns", "fits", "key_columns", "literal_expression", "range_condition", "readable_bound"]

NUMBERED = frozenset({"bit", "enum", "set"})
"""Types that MySQL orders by the number behind the value."""
FLOATS = frozenset({"float", "double"})
TEMPORALS = frozenset({"date", "datetime", "timestamp", "time"})
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})


def key_columns(table: TableDef) -> tuple[Column, ...]:
    """The key's columns, in key order."""
    return tuple(table.columns[index] for index in table.key)


def bound_columns(table: TableDef, surrogate: str | None) -> tuple[Column, ...]:
    """The columns that the bounds of a chunk are of: the key's, or the one named instead of it.

    :raises SnapshotRefusedError: there is no such column, or it may be NULL: then no range would have those rows.
    """
    if surrogate is None:
        return key_columns(table)
    found = next((column for column in table.columns if column.name == surrogate), None)
    if found is None or found.nullable:
        reason = "there is no column" if found is None else "NULLs have no place in the ranges of column"
        raise SnapshotRefusedError(f"{reason} {surrogate}", table=table.full_name)
    return (found,)


def literal_expression(column: Column, table: str) -> str:
    """A SELECT expression that gives the column's value as text that is itself a literal of that value.

    :raises SnapshotRefusedError: a type that cannot be a key.
    """
    name, kind = quote_name(column.name), column.type
    if kind == "year":
        return f"CAST({name} + 0 AS CHAR)"
    if kind in INTEGERS or kind == "decimal":
        return f"CAST({name} AS CHAR)"
    if kind in NUMBERED:
        return f"CAST(CAST({name} AS UNSIGNED) AS CHAR)"
    if kind in FLOATS:
        digits = f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
        return f"IF(INSTR({digits}, 'e') > 0, {digits}, CONCAT({digits}, 'e0'))"
    if kind in TEMPORALS:
        return f"QUOTE(CAST({name} AS CHAR))"
    if kind in TEXTS and column.charset is not None:
        return f"CONCAT('_{column.charset} X''', HEX({name}), '''')"
    if kind in BINARIES or kind in TEXTS:
        return f"CONCAT('X''', HEX({name}), '''')"
    raise SnapshotRefusedError(f"a key column of type {kind} has no order to read by", table=table, column=column.name)


_WHOLE = r"-?\d+"
_CLOCK = r"\d\d:\d\d(\.\d+)?"
_DAY = r"\d{4}-\d\d-\d\d"
_BYTES = r"X'([0-9A-F]{2})*'"
_SPELLED = {
    "decimal": rf"{_WHOLE}(\.\d+)?",
    "date": f"'{_DAY}'",
    "datetime": rf"'{_DAY} \d\d:{_CLOCK}'",
    "timestamp": rf"'{_DAY} \d\d:{_CLOCK}'",
    "time": rf"'-?\d+:{_CLOCK}'",
    **dict.fromkeys(FLOATS, rf"{_WHOLE}(\.\d+)?e[-+]?\d+"),
    **dict.fromkeys(BINARIES, _BYTES),
}
"""What the literals of a type look like; of all that are not here, like whole numbers."""


def fits(columns: Sequence[Column], bound: Sequence[str] | None) -> bool:
    """Whether a bound can be one of these columns.

    One that was made when the table had another key may not be: MySQL compares only some types with each other.
    """
    if bound is None:
        return True
    return len(bound) == len(columns) and all(
        re.fullmatch(_spelled(column), literal) for column, literal in zip(columns, bound, strict=True)
    )


def _spelled(column: Column) -> str:
    if column.type in TEXTS:
        return _BYTES if column.charset is None else f"_{column.charset} {_BYTES}"
    return _SPELLED.get(column.type, _WHOLE)


_PYTHON_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "ascii": "ascii", "latin1": "cp1252"}


def readable_bound(bound: Sequence[str] | None) -> str:
    """A bound for people: its values, separated by commas; what is no text that Python knows stays a literal."""
    return ",".join(_readable(literal) for literal in bound or ())


def _readable(literal: str) -> str:
    found = re.fullmatch(r"_(\w+) X'([0-9A-F]*)'", literal)
    if found and found[1] in _PYTHON_CODECS:
        try:
            return bytes.fromhex(found[2]).decode(_PYTHON_CODECS[found[1]])
        except UnicodeDecodeError:
            return literal
    return literal[1:-1] if literal.startswith("'") else literal  # a temporal: nothing in it is escaped


def range_condition(expressions: Sequence[str], lo: Sequence[str] | None, hi: Sequence[str] | None) -> str:
    """The condition ``lo < key <= hi``; ``TRUE`` if both ends are open.

    Row comparison is spelled out, ``(k1 > a) OR (k1 = a AND k2 > b)``, because MySQL uses an index range for that and
    not for ``(k1, k2) > (a, b)``.
    """
    parts = []
    if lo is not None:
        parts.append(_compare(expressions, lo, ">", ">"))
    if hi is not None:
        parts.append(_compare(expressions, hi, "<", "<="))
    return " AND ".join(parts) if parts else "TRUE"


def _compare(expressions: Sequence[str], bound: Sequence[str], sign: str, last_sign: str) -> str:
    if len(expressions) != len(bound):
        raise SnapshotRefusedError(f"a bound of {len(bound)} values for a key of {len(expressions)} columns")
    terms = []
    for i in range(len(bound)):
        equal = [f"{expressions[k]} = {bound[k]}" for k in range(i)]
        last = f"{expressions[i]} {last_sign if i == len(bound) - 1 else sign} {bound[i]}"
        terms.append("(" + " AND ".join([*equal, last]) + ")")
    return "(" + " OR ".join(terms) + ")"

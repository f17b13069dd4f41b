"""Keys in SQL: how bounds are rendered, and how rows are compared with them.

A bound is text made by MySQL, one literal per key column. It is only passed back to MySQL, or compared natively where
the result cannot differ. So the order of rows is MySQL's, collations included; headgate never sorts a key.

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

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace

from headgate.catalog import BINARIES, INTEGERS, TEMPORALS, TEXTS, Column, TableDef
from headgate.errors import SnapshotRefusedError
from headgate.names import in_utf8mb3, quote_name

__all__ = ["bound_columns", "key_columns", "key_order", "literal_expression", "range_condition", "readable_bound"]

NUMBERED = frozenset({"bit", "enum", "set"})
"""Types that MySQL orders by the number behind the value."""
FLOATS = frozenset({"float", "double"})


def key_columns(table: TableDef) -> tuple[Column, ...]:
    """Return the key's columns, in key order."""
    return tuple(table.columns[index] for index in table.key)


def bound_columns(table: TableDef, surrogate: str | None) -> tuple[Column, ...]:
    """Return the columns of a chunk's bounds: the key's, or the surrogate column.

    :param table: as MySQL has it, or as it is written.
    :param surrogate: MySQL's name of a column.
    :raises SnapshotRefusedError: the column does not exist, or is nullable: rows with NULL would be in no range.
    """
    if surrogate is None:
        return key_columns(table)
    surrogate_column = next((column for column in table.columns if column.mysql_name == surrogate), None)
    if surrogate_column is None or surrogate_column.nullable:
        reason = "there is no column" if surrogate_column is None else "a surrogate key must be NOT NULL, unlike column"
        raise SnapshotRefusedError(f"{reason} {surrogate}", table=table.full_name)
    return (surrogate_column,)


def literal_expression(column: Column, table: str) -> str:
    """Return a SELECT expression that renders the column's value as a literal of that value.

    :raises SnapshotRefusedError: the type cannot be a key.
    """
    name, kind = quote_name(column.name), column.type
    if kind == "year":
        return f"CAST({name} + 0 AS CHAR)"
    if kind in INTEGERS or kind == "decimal":
        return f"CAST({name} AS CHAR)"
    if kind in NUMBERED:
        return f"CAST(CAST({name} AS UNSIGNED) AS CHAR)"
    if kind in FLOATS:
        digits = f"CAST({name} * 1e0 AS CHAR)"  # CAST has no DOUBLE before MySQL 8.0.17
        return f"IF(INSTR({digits}, 'e') > 0, {digits}, CONCAT({digits}, 'e0'))"
    if kind in TEMPORALS:
        return f"QUOTE(CAST({name} AS CHAR))"
    if kind in TEXTS and column.charset is not None:
        return f"CONCAT('_{column.charset} X''', HEX({name}), '''')"
    if kind in BINARIES or kind in TEXTS:
        return f"CONCAT('X''', HEX({name}), '''')"
    raise SnapshotRefusedError(f"a key of type {kind} cannot be split into ranges", table=table, column=column.name)


def key_order(columns: Sequence[Column]) -> str:
    """Return a fingerprint, 16 hex digits, of the order in which MySQL has keys of these columns.

    Equal means that ranges of keys still divide the rows as they did. So it has everything that an ALTER may change of
    which range a row is in: the columns and their types, since values are cut or rounded to another one, collations,
    and the order of ENUM and SET members, whose numbers are compared.
    """
    definitions = []
    for column in columns:
        members = tuple(map(in_utf8mb3, column.members))  # as information_schema shows them
        definitions.append(
            [column.mysql_name, replace(column, members=members).mysql, column.charset, column.collation]
        )
    return hashlib.blake2b(json.dumps(definitions).encode(), digest_size=8).hexdigest()


_PYTHON_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "ascii": "ascii", "latin1": "cp1252"}


def readable_bound(bound: Sequence[str] | None) -> str:
    """Return a bound for display: its values, separated by commas. Text that Python cannot decode stays a literal."""
    return ",".join(_readable(literal) for literal in bound or ())


def _readable(literal: str) -> str:
    match = re.fullmatch(r"_(\w+) X'([0-9A-F]*)'", literal)
    if match and match[1] in _PYTHON_CODECS:
        try:
            return bytes.fromhex(match[2]).decode(_PYTHON_CODECS[match[1]])
        except UnicodeDecodeError:
            return literal
    return literal[1:-1] if literal.startswith("'") else literal  # a temporal contains no escapes


def range_condition(expressions: Sequence[str], lo: Sequence[str] | None, hi: Sequence[str] | None) -> str:
    """Return the condition ``lo < key <= hi``; ``TRUE`` if both ends are open.

    Row comparison is written as ``(k1 > a) OR (k1 = a AND k2 > b)``, because MySQL uses an index range for that and not
    for ``(k1, k2) > (a, b)``.
    """
    parts = []
    if lo is not None:
        parts.append(_compare(expressions, lo, ">", ">"))
    if hi is not None:
        parts.append(_compare(expressions, hi, "<", "<="))
    return " AND ".join(parts) if parts else "TRUE"


def _compare(expressions: Sequence[str], bound: Sequence[str], sign: str, last_sign: str) -> str:
    if len(expressions) != len(bound):
        raise SnapshotRefusedError(f"the bound has {len(bound)} values, but the key has {len(expressions)} columns")
    terms = []
    for i in range(len(bound)):
        equal = [f"{expressions[k]} = {bound[k]}" for k in range(i)]
        last = f"{expressions[i]} {last_sign if i == len(bound) - 1 else sign} {bound[i]}"
        terms.append("(" + " AND ".join([*equal, last]) + ")")
    return "(" + " OR ".join(terms) + ")"

"""MODIFY and CHANGE of a column by an ALTER: its new type, if that may keep every value.

(MySQL Reference Manual, "Numeric Types", "String Types", "ALTER TABLE".) Whether a new type keeps every value depends
on the type before: :func:`keeps_values`. Both types are texts as ``Column.mysql`` gives them.

A text type here needs a strict SQL mode. There the server refuses an ALTER that would replace characters or members,
so no value changes even if the column's collation does, because the statement does not name the old one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headgate.catalog._column_changes import ColumnChange, RedefinedColumn, literal
from headgate.catalog._cursor import TokenCursor

__all__ = ["is_text_type", "keeps_values", "redefined_column"]

_NUMBER_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("TINYINT", "INT1"), "tinyint"),
    **dict.fromkeys(("SMALLINT", "INT2"), "smallint"),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), "mediumint"),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), "int"),
    **dict.fromkeys(("BIGINT", "INT8"), "bigint"),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "FIXED"), "decimal"),
}
_BITS: Final[Mapping[str, int]] = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_SIZED: Final = ("varchar", "varbinary")
_LISTED: Final = ("enum", "set")
_FAMILIES: Final = (
    ("varchar", "text", "mediumtext", "longtext"),
    ("tinytext", "text", "mediumtext", "longtext"),
    ("varbinary", "blob", "mediumblob", "longblob"),
    ("tinyblob", "blob", "mediumblob", "longblob"),
)
"""Types, each of which has all values of those before it. The longest VARCHAR and TEXT have 65,535 bytes."""
_TEXT_TYPES: Final = frozenset({*_SIZED, *_LISTED, *(name for family in _FAMILIES for name in family)})
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def redefined_column(action: TokenCursor) -> list[ColumnChange] | None:
    """Parse MODIFY or CHANGE, with a definition of which only the type is returned.

    :returns: None if the statement may change values whatever the type was before.
    """
    renames = action.skip("CHANGE")
    if not renames:
        action.expect("MODIFY")
    action.skip("COLUMN")
    name = action.name()
    new_name = action.name() if renames else name
    mysql = _number_type(action) or _text_type(action)
    return [RedefinedColumn(name, new_name, mysql)] if mysql is not None and _is_plain_definition(action) else None


def keeps_values(old: str, new: str) -> bool:
    """Return whether every value of a type is a value of another one, unchanged: integers, decimals, text, ENUM, SET.

    Collations are not compared. A type keeps its own values.
    """
    old_name, new_name = _name(old), _name(new)
    if old_name in _LISTED and new_name == old_name:
        return new == old or new.startswith(f"{old.removesuffix(')')},")
    if any(old_name in family and new_name in family[family.index(old_name) :] for family in _FAMILIES):
        return old_name != new_name or old_name not in _SIZED or _size(old) <= _size(new)
    return _holds_numbers(old, new)


def is_text_type(mysql: str) -> bool:
    """Return whether a type is one of text, bytes, ENUM or SET that :func:`redefined_column` knows."""
    return _name(mysql) in _TEXT_TYPES


def _name(mysql: str) -> str:
    return mysql.partition("(")[0]


def _size(mysql: str) -> int:
    return int(mysql.partition("(")[2].rstrip(")"))


def _holds_numbers(old: str, new: str) -> bool:
    if old.endswith(" unsigned"):
        # An unsigned integer needs a bit more in a signed type.
        bits, is_signed = _BITS.get(old.removesuffix(" unsigned")), not new.endswith(" unsigned")
        limits = None if bits is None else (bits + is_signed, len(str((1 << bits) - 1)), 0)
    elif new.endswith(" unsigned"):
        return False
    else:
        bits = _BITS.get(old)
        limits = None if bits is None else (bits, len(str(1 << (bits - 1))), 0)
    decimal = _DECIMAL.match(old)
    if decimal is not None:
        limits = (1 << 16, int(decimal[1]) - int(decimal[2]), int(decimal[2]))
    if limits is None:
        return False
    needed_bits, digits, scale = limits
    wide = new.removesuffix(" unsigned")
    if wide in _BITS:
        return needed_bits <= _BITS[wide]
    decimal = _DECIMAL.fullmatch(wide)
    return decimal is not None and int(decimal[2]) >= scale and int(decimal[1]) - int(decimal[2]) >= digits


def _number_type(cursor: TokenCursor) -> str | None:
    """Read an integer type or DECIMAL; None, and nothing is read, for any other type."""
    kind = _NUMBER_TYPES.get(cursor.peek())
    if kind is None:
        return None
    cursor.at += 1
    sizes = _sizes(cursor)
    if sizes is None or len(sizes) > 1 + (kind == "decimal"):
        return None
    unsigned = False
    while cursor.peek() in ("UNSIGNED", "SIGNED", "ZEROFILL"):  # ZEROFILL implies UNSIGNED
        unsigned |= cursor.peek() != "SIGNED"
        cursor.at += 1
    if kind == "decimal":
        digits, scale = (*sizes, *(10, 0)[len(sizes) :])
        kind = f"decimal({digits or 10},{scale})"  # DECIMAL(0) is DECIMAL(10)
    return f"{kind} unsigned" if unsigned else kind


def _text_type(cursor: TokenCursor) -> str | None:
    kind = cursor.peek().lower()
    if kind not in _TEXT_TYPES or not cursor.strict:
        return None
    cursor.at += 1
    if kind in _LISTED:
        members = _members(cursor)
        return None if members is None else f"{kind}({','.join(members)})"
    sizes = _sizes(cursor)
    if sizes is None or len(sizes) != (kind in _SIZED):
        return None
    return f"{kind}({sizes[0]})" if sizes else kind


def _sizes(cursor: TokenCursor) -> list[int] | None:
    """Read ``(number, …)``, if that comes next."""
    sizes: list[str] = []
    if cursor.skip("("):
        sizes.append(cursor.number())
        while cursor.skip(","):
            sizes.append(cursor.number())
        cursor.expect(")")
    return [*map(int, sizes)] if all(size.isdecimal() for size in sizes) else None


def _members(cursor: TokenCursor) -> list[str] | None:
    """Read ``('member', …)``. Return the members as ``Column.mysql`` quotes them; None for unusual ones."""
    cursor.expect("(")
    members: list[str] = []
    while not cursor.ended() and cursor.tokens[cursor.at].kind == "string":
        text = cursor.tokens[cursor.at].text
        if set(text) & set("'\"\\") or text.endswith(" "):
            return None
        members.append(f"'{text}'")
        cursor.at += 1
        if cursor.skip(")"):
            return members
        cursor.expect(",")
    return None


def _is_plain_definition(cursor: TokenCursor) -> bool:
    """Read what follows a column's type; return whether it leaves existing values as they are.

    AUTO_INCREMENT, generated columns and, unless the SQL mode is strict, NOT NULL may replace values. A key may change
    what identifies a row. A collation does not change text that the server converts without loss.
    """
    while not cursor.ended():
        if cursor.skip("DEFAULT"):
            if not _skip_default(cursor):
                return False
        elif cursor.skip("COMMENT"):
            if cursor.ended() or cursor.tokens[cursor.at].kind != "string":
                return False
            cursor.at += 1
        elif cursor.skip("CHARACTER", "SET") or cursor.skip_any("CHARSET", "COLLATE"):
            cursor.at += 1  # a name, or a string
        elif cursor.skip("AFTER"):
            cursor.name()
        elif cursor.skip("NOT", "NULL"):
            if not cursor.strict:
                return False
        elif not cursor.skip_any("NULL", "FIRST", "VISIBLE", "INVISIBLE"):
            return False
    return True


def _skip_default(cursor: TokenCursor) -> bool:
    """Skip a literal, which counts for later rows only; return whether it is one."""
    if not cursor.ended() and cursor.tokens[cursor.at].kind == "string":
        cursor.at += 1
        return True
    if literal(cursor.tokens[cursor.at :]) is None:
        return False
    cursor.skip_any("+", "-")
    cursor.at += 1
    return True

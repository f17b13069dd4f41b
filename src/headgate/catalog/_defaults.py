"""Value of an added column in existing rows: its DEFAULT, if that is exact.

An ALTER that adds a column gives every row its default, and the log does not hold these values. A literal gives the
value only if MySQL stores it as written. If MySQL would round, pad, fold or read it with a session's settings, the
table must be read again. (MySQL Reference Manual, "Data Type Default Values".)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

from headgate.catalog._column_changes import AddedColumn

__all__ = ["existing_value"]

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _.,:;+/()-]*")
"""Characters that have the same code in every character set of MySQL and need no quoting anywhere."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_SPARK_DIGITS = 38


def existing_value(mysql: str, added: AddedColumn) -> str | None:
    """Return the column's value in rows older than the column, in a form that casts to its Spark type exactly.

    :param mysql: the column's type as ``Column.mysql`` gives it.
    :param added: a column that is not NULL there (:attr:`AddedColumn.is_null`).
    :returns: None if only reading the table gives the value.
    """
    if not added.known:
        return None
    name, _, rest = mysql.partition("(")
    kind = name.removesuffix(" unsigned")
    read = _KINDS.get(kind)
    return read(rest.partition(")")[0] if kind not in ("enum", "set") else rest, added) if read else None


def _integer(_: str, added: AddedColumn) -> str | None:
    text = added.default if added.default is not None else "0"
    return str(int(text)) if _INTEGER.fullmatch(text) else None


def _fixed(size: str, added: AddedColumn) -> str | None:
    digits, _, scale = size.partition(",")
    text = added.default if added.default is not None else "0"
    if not _DECIMAL.fullmatch(text) or not digits.isdigit() or int(digits) > _SPARK_DIGITS:
        return None
    value = Decimal(text)
    rounded = round(value, int(scale or 0))
    return format(abs(rounded) if rounded == 0 else rounded, "f") if rounded == value else None


def _floating(form: str) -> Callable[[str, AddedColumn], str | None]:
    def read(_: str, added: AddedColumn) -> str | None:
        text = added.default if added.default is not None else "0"
        if not _DECIMAL.fullmatch(text):
            return None
        value = Decimal(text)
        try:
            stored = struct.unpack(form, struct.pack(form, float(value)))[0]
        except OverflowError:
            return None
        return repr(stored) if value != 0 and Decimal(stored) == value else "0.0" if value == 0 else None

    return read


def _string(size: str, added: AddedColumn) -> str | None:
    text = _quoted(added)
    return text if text is not None and size.isdigit() and len(text) <= int(size) else None


def _char(size: str, added: AddedColumn) -> str | None:
    text = _string(size, added)
    return None if text is None else text.rstrip(" ")


def _quoted(added: AddedColumn) -> str | None:
    """Return a string of plain characters; the empty one if there is no DEFAULT."""
    if added.default is None:
        return ""
    return added.default if added.quoted and _PLAIN_TEXT.fullmatch(added.default) else None


def _enum(members: str, added: AddedColumn) -> str | None:
    known = [member for member in _MEMBER.findall(members) if _PLAIN_TEXT.fullmatch(member)]
    if added.default is None:  # the first member, if it is plain
        first = _MEMBER.match(members)
        return first[1] if first and known[:1] == [first[1]] else None
    text = _quoted(added)
    return text if text in known else None


def _set(members: str, added: AddedColumn) -> str | None:
    text = _quoted(added)
    return text if text == "" or text in _MEMBER.findall(members) else None


def _moment(form: str, pattern: str) -> Callable[[str, AddedColumn], str | None]:
    def read(digits: str, added: AddedColumn) -> str | None:
        text = added.default or ""
        match = re.fullmatch(pattern, text) if added.quoted else None
        if match is None or len((match[1] or "")[1:]) > int(digits or 0):
            return None
        try:
            datetime.strptime(text.removesuffix(match[1] or ""), form)  # noqa: DTZ007 - checks only that the day exists
        except ValueError:
            return None
        return text if text >= "1000" else None

    return read


_KINDS: dict[str, Callable[[str, AddedColumn], str | None]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), _integer),
    "decimal": _fixed,
    "float": _floating("f"),
    "double": _floating("d"),
    "varchar": _string,
    "char": _char,
    "enum": _enum,
    "set": _set,
    "date": _moment("%Y-%m-%d", r"[0-9]{4}-[0-9]{2}-[0-9]{2}()"),
    "datetime": _moment("%Y-%m-%d %H:%M:%S", r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"),
}

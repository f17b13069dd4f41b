"""Changes of columns by an ALTER, and what the definition of an added column says about existing rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headgate.catalog._tokens import SqlToken

__all__ = [
    "NOT_COLUMNS",
    "AddedColumn",
    "ColumnChange",
    "DroppedColumn",
    "RedefinedColumn",
    "added_column",
    "added_columns",
    "creates_if_absent",
    "literal",
]

NOT_COLUMNS = frozenset(
    ["INDEX", "KEY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "PARTITION"]
)
"""Words behind ADD or DROP that begin the definition of something else than a column."""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that an ALTER adds, and its value in existing rows as the statement defines it."""

    name: str
    nullable: bool = True
    default: str | None = None
    """A literal without its quotes; None: no DEFAULT, or DEFAULT NULL."""
    quoted: bool = False
    """Whether the literal is a string."""
    known: bool = True
    """Whether the definition tells the value in existing rows. If not, it has no ``default`` here."""

    @property
    def is_null(self) -> bool:
        """Whether existing rows hold NULL."""
        return self.known and self.nullable and self.default is None


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    """A column that an ALTER drops. Names are compared without letter case."""

    name: str


@dataclass(frozen=True, slots=True)
class RedefinedColumn:
    """A column that an ALTER renames, or whose definition it replaces."""

    name: str
    new_name: str
    """Equal to ``name``: the column keeps its name."""
    mysql: str | None = None
    """The new type as ``Column.mysql`` gives it: a number, text, ENUM or SET. None: RENAME COLUMN, which keeps the
    type."""
    source_name: str = ""
    """In statements with the target's names: the name in MySQL before, if it is another one."""
    new_source_name: str = ""
    """The same of the new name."""

    @property
    def keeps_names(self) -> bool:
        """Whether the column keeps its name, in MySQL as well."""
        return (self.name, self.source_name) == (self.new_name, self.new_source_name)


ColumnChange: TypeAlias = AddedColumn | DroppedColumn | RedefinedColumn
"""An ALTER's change of one column. All changes of a statement happen at once: names are those before it."""


def added_columns(changes: tuple[ColumnChange, ...] | None) -> tuple[AddedColumn, ...] | None:
    """Return the columns that a statement adds, if it changes nothing else in any row, and tells their values; else
    None.
    """
    if changes is None:
        return None
    added = tuple(change for change in changes if isinstance(change, AddedColumn) and change.known)
    return added if len(added) == len(changes) else None


def creates_if_absent(action: str, changes: tuple[ColumnChange, ...] | None) -> bool:
    """Return whether a statement is CREATE TABLE IF NOT EXISTS, which changes no table that exists. Servers log it all
    the same.

    :param changes: ``()`` of a ``create`` with IF NOT EXISTS, None of one without it.
    """
    return action == "create" and changes is not None


def added_column(definition: list[SqlToken]) -> AddedColumn | None:
    """Return the column of this definition; None if it may change the table's key, or is not a column's."""
    outer = _outer(definition)
    words = [token.upper for token in outer]
    if len(words) < 2 or words[0] in NOT_COLUMNS or not outer[0].text:
        return None
    later = set(words[1:])
    if {"PRIMARY", "KEY", "PARTITION"} & later:
        return None
    name, nulls = outer[0].text, [words[at - 1] != "NOT" for at in range(1, len(words)) if words[at] == "NULL"]
    default: tuple[str | None, bool] | None = (None, False)
    if "DEFAULT" in later:
        default = literal(outer[words.index("DEFAULT", 1) + 1 :])
    # A TIMESTAMP without NULL is NOT NULL on servers with explicit_defaults_for_timestamp=OFF.
    is_unclear = words[1] == "TIMESTAMP" and not any(nulls)
    if default is None or is_unclear or {"AUTO_INCREMENT", "AS", "SERIAL"} & later:
        return AddedColumn(name, all(nulls), known=False)
    # DOUBLE(10,2) rounds, and the column's type in the log does not show that.
    rounds = words[1] in ("FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8") and "(" in words
    column = AddedColumn(name, all(nulls), *default)
    if (rounds or "UNIQUE" in later) and not column.is_null:
        return AddedColumn(name, column.nullable, known=False)
    return column


def _outer(definition: list[SqlToken]) -> list[SqlToken]:
    """Return the tokens outside parentheses, and the opening parenthesis of each pair."""
    outer, depth = [], 0
    for token in definition:
        depth -= token.upper == ")"
        if depth == 0 and token.upper != ")":
            outer.append(token)
        depth += token.upper == "("
    return outer


def literal(following: list[SqlToken]) -> tuple[str | None, bool] | None:
    """Return the literal after DEFAULT, and whether it is a string; None if it is not a literal, or has an exponent."""
    if not following or (len(following) > 1 and following[1].kind == "string"):
        return None
    if following[0].kind == "string":
        text = following[0].text
        return None if set(text) & set("'\"\\") else (text, True)
    if following[0].upper in ("NULL", "TRUE", "FALSE"):
        return {"NULL": None, "TRUE": "1", "FALSE": "0"}[following[0].upper], False
    sign = following[0].text if following[0].upper in ("+", "-") else ""
    number = following[len(sign)] if len(following) > len(sign) else following[0]
    return (sign + number.text, False) if number.kind == "number" and "E" not in number.text.upper() else None

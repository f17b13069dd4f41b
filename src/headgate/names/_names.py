"""Names of databases, tables and columns: how they are compared, and quoted for SQL and Arrow.

Both MySQL and Spark quote names by backticks, with each backtick in the name doubled. Sources: MySQL Reference Manual,
"Schema Object Names", "Identifier Case Sensitivity"; Spark SQL Reference, "Identifiers" (delimited identifiers).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from headgate.errors import ConfigError
from headgate.names._letter_case_data import RUNS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["in_utf8mb3", "lower_name", "printable", "quote_name", "split_table", "with_positional_names"]


def lower_name(name: str) -> str:
    """Return a name of MySQL in lower case, as the server does it: character by character, by the table of its system
    character set.

    Two columns of a table differ in this form. So do two tables if ``lower_case_table_names`` is not 0. Python's
    ``lower`` differs in 478 characters (``İ`` and the Cherokee letters among them) and in a ``Σ`` that ends a word.
    Names in Delta and Spark are compared by ``lower`` of Java, which is that of Python.
    """
    return name.lower() if name.isascii() else name.translate(_lower_case())


@cache
def _lower_case() -> dict[int, int]:
    return {code: code - first + lower for first, last, step, lower in RUNS for code in range(first, last + 1, step)}


def in_utf8mb3(text: str) -> str:
    """Return a text as utf8mb3 holds it, the character set of MySQL's names and information_schema: with ``?`` for each
    character above U+FFFF.
    """
    return "".join(character if character <= "\uffff" else "?" for character in text)


def printable(text: str) -> str:
    """Return a text as one line for people: each control character is escaped, as are those that set the direction of
    text. MySQL allows them in names, and a terminal obeys them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quote_name(name: str) -> str:
    """Return ``name`` as a quoted identifier; any name is valid."""
    return "`" + name.replace("`", "``") + "`"


def with_positional_names(table: pa.Table) -> pa.Table:
    """Return the table with names ``0``, ``1`` … for Arrow's functions that take names: for them, a name that begins
    with a dot is a path (Apache Arrow C++, ``FieldRef::FromDotPath``).
    """
    return table.rename_columns([str(number) for number in range(table.num_columns)])


def split_table(table: str) -> tuple[str, str]:
    """Split ``db.name`` at its first dot, as everywhere in headgate, into ``(db, name)``.

    :raises ConfigError: it has no two parts.
    """
    db, dot, name = table.partition(".")
    if not (db and dot and name):
        raise ConfigError(f"{table!r} is not a table name of the form db.table")
    return db, name

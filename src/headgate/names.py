"""Names of columns, as SQL and Arrow read them.

Both MySQL and Spark quote names by backticks, with each backtick in the name doubled. Sources: MySQL Reference Manual,
"Schema Object Names"; Spark SQL Reference, "Identifiers" (delimited identifiers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["numbered", "quote_name"]


def quote_name(name: str) -> str:
    """Return ``name`` as a quoted identifier; any name is valid."""
    return "`" + name.replace("`", "``") + "`"


def numbered(table: pa.Table) -> pa.Table:
    """Return the table with names ``0``, ``1`` … for Arrow's functions that take names: for them, a name that begins
    with a dot is a path (Apache Arrow C++, ``FieldRef::FromDotPath``).
    """
    return table.rename_columns([str(number) for number in range(table.num_columns)])

"""Names in SQL, as MySQL and Spark both read them: between backticks, a backtick in the name twice.

Sources: MySQL Reference Manual, "Schema Object Names"; Spark SQL Reference, "Identifiers" (delimited identifiers).
"""

from __future__ import annotations

__all__ = ["quote_name"]


def quote_name(name: str) -> str:
    """``name`` as a quoted identifier; any name is possible."""
    return "`" + name.replace("`", "``") + "`"

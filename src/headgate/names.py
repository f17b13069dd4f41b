"""Quoted SQL names, as both MySQL and Spark read them: between backticks, with each backtick in the name doubled.

Sources: MySQL Reference Manual, "Schema Object Names"; Spark SQL Reference, "Identifiers" (delimited identifiers).
"""

from __future__ import annotations

__all__ = ["quote_name"]


def quote_name(name: str) -> str:
    """Return ``name`` as a quoted identifier; any name is valid."""
    return "`" + name.replace("`", "``") + "`"

"""Base of the file's sections."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

__all__ = ["Model", "check_variable", "is_table"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def is_table(text: str) -> bool:
    """Return whether ``text`` has the form ``db.table``."""
    db, dot, table = text.partition(".")
    return bool(db and dot and table)


def check_variable(name: str | None) -> str | None:
    """Return the name of an environment variable, or None.

    :raises ValueError: it is no name.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("expected the name of an environment variable, not its value")
    return name

"""Base of the file's sections."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Model", "is_table"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def is_table(text: str) -> bool:
    """Return whether ``text`` has the form ``db.table``."""
    db, dot, table = text.partition(".")
    return bool(db and dot and table)

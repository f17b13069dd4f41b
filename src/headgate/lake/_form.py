"""Forms of a lake's table with the rows of a source table: its further columns, and which of its rows the source has.

``_seq``, ``_gtid`` and ``_ts`` of the image that set a row follow the table's own columns in every form. The form's
columns come after them. A table's properties name its form, so readers need no configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DELETED", "Form"]

DELETED: Final = "_deleted"
"""The column of marked tables that is true for rows that the source no longer has."""

_DELETES: Final = "headgate.deletes"
"""Property: what a DELETE does to a row; ``mark`` for marked tables, else missing."""

_R = TypeVar("_R", pa.Table, pa.RecordBatch)


class Form(Enum):
    """What a table keeps of its source table."""

    PLAIN = "plain"
    """The rows of the source."""
    MARKED = "mark"
    """Also the rows that were deleted there, marked (``deletes = "mark"``)."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Form:
        """Return the form of a table with these properties."""
        return cls.MARKED if properties.get(_DELETES) == "mark" else cls.PLAIN

    @property
    def properties(self) -> dict[str, str]:
        """The properties that name the form."""
        return {_DELETES: "mark"} if self is Form.MARKED else {}

    @property
    def ddl(self) -> str:
        """The form's columns, as Spark DDL with a comma before each; "" if it has none."""
        return f", {DELETED} boolean" if self is Form.MARKED else ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the form's columns, in lower case."""
        return (DELETED,) if self is Form.MARKED else ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that :meth:`of_source` needs."""
        return (DELETED,) if self is Form.MARKED else ()

    @property
    def fills(self) -> dict[str, str]:
        """Values of the form's columns in a row that the source has, as text."""
        return {DELETED: "false"} if self is Form.MARKED else {}

    @property
    def condition(self) -> str:
        """Condition in SQL for the rows that the source has."""
        return f"NOT {DELETED}" if self is Form.MARKED else "true"

    def of_source(self, rows: _R) -> _R:
        """Return the rows that the source has.

        :param rows: with the columns :attr:`needed`.
        """
        return rows.filter(pc.invert(rows[DELETED])) if self is Form.MARKED else rows

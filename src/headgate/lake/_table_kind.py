"""Forms of a lake's table with the rows of a source table: its further columns, and which of its rows the source has.

``_seq``, ``_gtid`` and ``_ts`` of the image that set a row follow the table's own columns in every form. The form's
columns come after them. A table's properties name its form, so readers need no configuration.

| form | further columns | rows that the source has |
|---|---|---|
| ``PLAIN`` | none | all |
| ``MARKED`` | ``_deleted`` | those with ``_deleted`` false |
| ``HISTORY`` | the period of a version, see below | those with ``_is_current`` true |

**A history** has a row for each version that a row of the source had: of the SCD types (Kimball, "The Data Warehouse
Toolkit") it is type 2. ``_valid_from`` is the time of the change that began the version. ``_valid_to``, ``_end_seq``
and ``_end_gtid`` are of the change that ended it, and null while it is open. ``_is_current`` is true while it is open.
``_seen`` is the epoch of the last batch that found the open version at the source: from a change, or by reading it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import SEQ_DDL
from headgate.lake._properties import key_of

if TYPE_CHECKING:
    from headgate.delta import DataFile

__all__ = [
    "DELETED",
    "END_GTID",
    "END_SEQ",
    "IS_CURRENT",
    "ROW_HASH",
    "SEEN",
    "VALID_FROM",
    "VALID_TO",
    "Form",
    "may_end_after",
    "may_have_open",
    "measured_columns",
    "with_columns",
]

ROW_HASH: Final = "_row_hash"
"""The column of tables without a key that is a hash of the row's content."""

DELETED: Final = "_deleted"
"""The column of marked tables that is true for rows that the source no longer has."""

VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
END_SEQ, END_GTID, SEEN = "_end_seq", "_end_gtid", "_seen"

_DELETES: Final = "headgate.deletes"
"""Property: what a DELETE does to a row; ``mark`` for marked tables, else missing."""
_KEEPS: Final = "headgate.keeps"
"""Property: ``history`` for histories, else missing."""

_R = TypeVar("_R", pa.Table, pa.RecordBatch)


class Form(Enum):
    """What a table keeps of its source table."""

    PLAIN = "plain"
    """The rows of the source."""
    MARKED = "mark"
    """Also the rows that were deleted there, marked (``deletes = "mark"``)."""
    HISTORY = "history"
    """Also all earlier versions of the rows (mode ``history``)."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Form:
        """Return the form of a table with these properties."""
        named = (form for form in cls if form.properties and form.properties.items() <= properties.items())
        return next(named, cls.PLAIN)

    @property
    def properties(self) -> dict[str, str]:
        """The properties that name the form."""
        return _PROPERTIES[self]

    @property
    def ddl(self) -> str:
        """The form's columns, as Spark DDL with a comma before each; "" if it has none."""
        return "".join(f", {name} {kind}" for name, kind in _COLUMNS[self].items())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the form's columns, in lower case."""
        return tuple(_COLUMNS[self])

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that :meth:`of_source` needs."""
        return {Form.PLAIN: (), Form.MARKED: (DELETED,), Form.HISTORY: (IS_CURRENT,)}[self]

    @property
    def condition(self) -> str:
        """Condition in SQL for the rows that the source has."""
        return {Form.PLAIN: "true", Form.MARKED: f"NOT {DELETED}", Form.HISTORY: IS_CURRENT}[self]

    @property
    def divides(self) -> str | None:
        """A column that divides the table's files: those that have a value in each row are kept apart from others."""
        return VALID_TO if self is Form.HISTORY else None

    def of_source(self, rows: _R) -> _R:
        """Return the rows that the source has.

        :param rows: with the columns :attr:`needed`.
        """
        match self:
            case Form.PLAIN:
                return rows
            case Form.MARKED:
                return rows.filter(pc.invert(rows[DELETED]))
            case Form.HISTORY:
                return rows.filter(rows[IS_CURRENT])

    def begin(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Set the form's columns, which are null, in rows that were read from the source."""
        values: dict[str, pa.Array] = {}
        if self is Form.MARKED:
            values = {DELETED: pa.repeat(pa.scalar(False), rows.num_rows)}
        if self is Form.HISTORY:
            seen = pc.struct_field(rows["_seq"], "epoch")
            values = {VALID_FROM: rows["_ts"], IS_CURRENT: pa.repeat(pa.scalar(True), rows.num_rows), SEEN: seen}
        return with_columns(rows, values)


def measured_columns(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a table with these properties that have statistics in new files, at any position: by these,
    look-ups leave files out.
    """
    periods = (VALID_TO, SEEN) if Form.of(properties) is Form.HISTORY else ()
    return (*key_of(properties), "_seq", *periods)


def may_have_open(file: DataFile) -> bool:
    """Return whether a file of a history may have open versions."""
    return not file.is_whole(VALID_TO)


def may_end_after(file: DataFile, at_us: int) -> bool:
    """Return whether a file of a history may have versions that ended after a time, µs since 1970 UTC."""
    if file.is_empty(VALID_TO):
        return False
    bounds = file.bounds((VALID_TO,), pa.timestamp("us", "UTC"))
    return bounds is None or bounds[1] > at_us


def with_columns(rows: _R, values: Mapping[str, Any]) -> _R:
    """Return the rows with other values in some columns."""
    for name, column in values.items():
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows


_PROPERTIES: Final[dict[Form, dict[str, str]]] = {
    Form.PLAIN: {},
    Form.MARKED: {_DELETES: "mark"},
    Form.HISTORY: {_KEEPS: "history"},
}
_COLUMNS: Final[dict[Form, dict[str, str]]] = {
    Form.PLAIN: {},
    Form.MARKED: {DELETED: "boolean"},
    Form.HISTORY: {
        VALID_FROM: "timestamp",
        VALID_TO: "timestamp",
        IS_CURRENT: "boolean",
        END_SEQ: SEQ_DDL,
        END_GTID: "string",
        SEEN: "bigint",
    },
}

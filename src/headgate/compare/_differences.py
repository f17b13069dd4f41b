"""Results of a comparison of a table with its source: what it counts and names, and which columns it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import VARIANT
from headgate.lake import ENDED, ROW_HASH, Form, State, kept_columns

__all__ = ["MOST_UNDECIDED", "Compared", "Difference", "TableResult", "difference", "headgate_columns", "python_rows"]

MOST_UNDECIDED = 1_000_000
"""Maximum number of undecided rows that are looked up: their keys are held in memory."""
_ACCEPTED = ENDED | {State.FILTERED, State.INEXACT}
"""States of tables that are not compared because the source or the configuration does not allow it: ``condition``,
``skip``."""
_HEADGATE_COLUMNS = ("_seq", "_gtid", "_ts")
_HEADGATE_COLUMNS_KEYLESS = (*_HEADGATE_COLUMNS, ROW_HASH)


@dataclass(frozen=True)
class Difference:
    """One row that differs between the sides: the key, and for ``different`` the columns' two values.

    Of a table without a key: one content, how often the source holds it and how often the target does.
    """

    kind: str
    key: dict[str, Any]  # without a key: the whole row
    columns: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # column → (source, target)
    copies: tuple[int, int] | None = None  # without a key: in the source, in the target


@dataclass(frozen=True)
class TableResult:
    """Result of the comparison of one table; counts are rows."""

    table: str
    state: str
    """``live``: it was compared; ``undecided``: it could not be compared; else its state in the ledger, or ``new``: the
    pipeline follows it and has not begun to read it."""
    equal: int = 0
    only_source: int = 0
    only_target: int = 0
    different: int = 0
    samples: tuple[Difference, ...] = ()
    remark: str | None = None
    undecided: int = 0
    """Rows that changed with partial row images during each comparison, or share a bucket with such rows and do not fit
    into memory; not included in other counts."""
    undecided_keys: tuple[dict[str, Any], ...] = ()
    """Keys of some of them."""
    more: int = 0
    """Least number of further rows that differ, which do not fit into memory. Other counts do not include the rows of
    their buckets."""
    later: int = 0
    """Number of compared rows that were compared as of a later ledger row: ``later_gtid`` or before."""
    later_gtid: str | None = None
    removed: int = 0
    """Rows that the source no longer has, and that the configuration keeps (``skip``). They do not count as
    differences."""
    inexact: str | None = None
    """Why the table need not equal the source, by the configuration."""

    @property
    def needs_attention(self) -> bool:
        """Whether rows differ or could not be compared, or the table was not compared although it is followed and the
        configuration allows it.
        """
        if self.state == State.LIVE:
            return self.differences > 0 or self.undecided > 0
        return self.state not in _ACCEPTED

    def keeping_removed(self) -> TableResult:
        """Return the result for a table that keeps rows of which its source has none."""
        samples = tuple(one for one in self.samples if one.kind != "only in target")
        undecided = self.undecided + self.more
        return replace(self, removed=self.only_target, only_target=0, samples=samples, undecided=undecided, more=0)

    @property
    def differences(self) -> int:
        """Number of rows that differ between the sides; at least so many if there are ``more``."""
        return self.only_source + self.only_target + self.different + self.more


Compared: TypeAlias = "tuple[TableResult, pa.Table | None]"
"""A result, and the keys of the undecided rows, if there are any and at most :data:`MOST_UNDECIDED`."""


def difference(
    kind: str, key: list[str], source: dict[str, Any], target: dict[str, Any], unknown: Collection[str]
) -> Difference:
    """Return the difference of two rows with the same key.

    :param unknown: unknown columns of the source's row.
    """
    changed = {
        name: (value, target[name]) for name, value in source.items() if name not in unknown and value != target[name]
    }
    return Difference(kind, {name: source[name] for name in key}, changed)


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Spark gives them to Python; as text: VARIANTs, and dates of the year 0, which Python lacks."""
    if not rows.num_rows:
        return []
    from pyspark.sql.conversion import ArrowTableToRowsConversion
    from pyspark.sql.pandas.types import from_arrow_schema

    table = pa.table([_readable(column) for column in rows.columns], names=rows.column_names)
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    return [line.asDict() for line in ArrowTableToRowsConversion.convert(table, schema)]


def _readable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return VARIANTs as JSON, dates or moments as text if one is before the year 1; other values as they are."""
    if values.type.equals(VARIANT):
        from pyspark.sql.types import VariantVal

        documents = (one and VariantVal(one["value"], one["metadata"]).toJson() for one in values.to_pylist())
        return pa.chunked_array([list(documents)], pa.string())
    if not (pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)):
        return values
    first = pa.scalar(date.min).cast(values.type)
    return values.cast(pa.string()) if pc.any(pc.less(values, first)).as_py() else values


def headgate_columns(key: list[str], properties: Mapping[str, str], kept: Collection[str] = ()) -> tuple[str, ...]:
    """Return the columns of a current table with this key (``[]``: without one) and these properties that the source
    does not have.

    :param kept: columns that the source has dropped, by the ledger.
    """
    columns = _HEADGATE_COLUMNS if key else _HEADGATE_COLUMNS_KEYLESS
    return (*columns, *Form.of(properties).columns, *kept_columns(properties), *kept)

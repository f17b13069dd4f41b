"""Verify: the lake holds what the source held, exactly, while writers go on writing.

Two moving things cannot be compared, two fixed ones can. The newest ledger row fixes both: it names a GTID set E and,
for each table, the Delta version that holds the table as of E. The target is read at that version; the source is read
*as of E*, by the batch source that reads chunks and rewinds them to E, as the first snapshot did. So both sides are the
same moment of the source's history, whatever has been committed since on either side, and every difference is real.

Rows meet by key in one full outer join; columns are compared with null-safe equality. Rows of a table without a key are
counted: each content must be there as often on one side as on the other. A column that only the source has (added, and
no row has come since) counts as null in the target. headgate's own columns are not compared. Of JSON that became a
VARIANT, what a VARIANT keeps is compared.

The source can be read as of E only while the log still holds everything since E, and the tables have not been altered
since; after such a failure the caller tries again with a newer ledger row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate._names import quote_name
from headgate.lake._delta import DeltaPath
from headgate.lake._layout import Lake
from headgate.lake._ledger import LedgerRow, TableState

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Difference", "TableResult", "compare", "verify_table"]

_OWN = ("_seq", "_gtid", "_ts")
_OWN_KEYLESS = (*_OWN, "_row_hash", "_row_copy")
_KINDS = ("only in source", "only in target", "different")


@dataclass(frozen=True)
class Difference:
    """One row that is not the same on both sides: the key, and for ``different`` the columns' two values.

    Of a table without a key: one content, how often the source holds it and how often the target does.
    """

    kind: str
    key: dict[str, Any]  # without a key: the whole row
    columns: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # column → (source, target)
    copies: tuple[int, int] | None = None  # without a key: in the source, in the target


@dataclass(frozen=True)
class TableResult:
    """What the comparison of one table gave; counts are rows."""

    table: str
    state: str
    equal: int = 0
    only_source: int = 0
    only_target: int = 0
    different: int = 0
    samples: tuple[Difference, ...] = ()
    remark: str | None = None

    @property
    def differences(self) -> int:
        """Rows that are not the same on both sides."""
        return self.only_source + self.only_target + self.different


def verify_table(
    spark: SparkSession,
    lake: Lake,
    row: LedgerRow,
    table: str,
    read_source: Callable[[str, str], DataFrame],
    *,
    samples: int = 20,
) -> TableResult:
    """Compare one table of a ledger row with the source.

    :param read_source: ``(table, GTID set) -> DataFrame`` of the table's own columns as of that set.
    """
    state: TableState = row.tables[table]
    if state.state != "live" or state.version is None:
        why = "it has a condition" if state.state == "filtered" else "it is not complete yet"
        return TableResult(table, state.state, remark=state.reason or f"not compared: {why}")
    import json

    delta = DeltaPath(spark, lake.current(table))
    key = json.loads(delta.property("headgate.key") or "[]")
    target = delta.read(state.version).drop(*(_OWN if key else _OWN_KEYLESS))
    return compare(table, read_source(table, row.gtid), target, key, samples=samples)


def compare(table: str, source: DataFrame, target: DataFrame, key: list[str], *, samples: int = 20) -> TableResult:
    """Compare two frames by key, or as multisets if ``key`` is empty: one job, and a second one for samples if there
    are differences.
    """
    from pyspark.sql import functions

    source, target = _variants_as_text(source, target)
    if not key:
        return _compare_counts(table, source, target, samples)
    joined = _join(source, target, key)
    counted = joined.groupBy("kind").agg(functions.count(functions.lit(1)).alias("rows")).collect()
    counts = {line["kind"]: line["rows"] for line in counted}
    found: tuple[Difference, ...] = ()
    if any(counts.get(kind) for kind in _KINDS):
        rows = joined.where(joined["kind"] != "equal").limit(samples).collect()
        found = tuple(_difference(line.asDict(), key) for line in rows)
    return TableResult(
        table,
        "live",
        counts.get("equal", 0),
        counts.get("only in source", 0),
        counts.get("only in target", 0),
        counts.get("different", 0),
        found,
    )


def _variants_as_text(source: DataFrame, target: DataFrame) -> tuple[DataFrame, DataFrame]:
    """VARIANTs have no equality. The source's are text that the sinks parsed: both sides become what is kept of it."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, VariantType

    variants = {field.name for field in target.schema if isinstance(field.dataType, VariantType)}
    if not variants:
        return source, target

    def as_text(frame: DataFrame) -> DataFrame:
        columns = []
        for one in frame.schema:
            value = functions.col(quote_name(one.name))
            if one.name in variants:
                parsed = functions.parse_json(value) if isinstance(one.dataType, StringType) else value
                value = functions.to_json(parsed).alias(one.name)
            columns.append(value)
        return frame.select(*columns)

    return as_text(source), as_text(target)


def _compare_counts(table: str, source: DataFrame, target: DataFrame, samples: int) -> TableResult:
    from pyspark.sql import functions

    names = _names(source, target)
    left = _columns(source, names, target).withColumn("s", functions.lit(1)).withColumn("t", functions.lit(0))
    right = _columns(target, names, source).withColumn("s", functions.lit(0)).withColumn("t", functions.lit(1))
    counted = left.union(right).groupBy("row").agg(functions.sum("s").alias("s"), functions.sum("t").alias("t"))
    total = counted.selectExpr("sum(least(s, t))", "sum(greatest(s - t, 0))", "sum(greatest(t - s, 0))").collect()[0]
    equal, only_source, only_target = (count or 0 for count in total)
    found: tuple[Difference, ...] = ()
    if only_source or only_target:
        lines = counted.where("s <> t").limit(samples).collect()
        kinds = (_KINDS[0 if line["s"] > line["t"] else 1] for line in lines)
        found = tuple(
            Difference(kind, line["row"].asDict(), copies=(line["s"], line["t"]))
            for kind, line in zip(kinds, lines, strict=True)
        )
    return TableResult(table, "live", equal, only_source, only_target, 0, found)


def _join(source: DataFrame, target: DataFrame, key: list[str]) -> DataFrame:
    """``kind``, the source's row as struct ``s``, the target's as struct ``t``, for every key of either side."""
    from pyspark.sql import functions

    names = _names(source, target)
    left = _side(source, names, target, "s", key)
    right = _side(target, names, source, "t", key)
    on: list[Column] = [left[f"k{i}"] == right[f"k{i}"] for i in range(len(key))]
    both = left.join(right, on, "full_outer")
    same = functions.lit(True)
    for name in names:
        same = same & functions.col(f"s.{quote_name(name)}").eqNullSafe(functions.col(f"t.{quote_name(name)}"))
    kind = (
        functions.when(functions.col("t").isNull(), "only in source")
        .when(functions.col("s").isNull(), "only in target")
        .when(same, "equal")
        .otherwise("different")
    )
    return both.select(kind.alias("kind"), "s", "t")


def _names(source: DataFrame, target: DataFrame) -> list[str]:
    return [*source.columns, *(name for name in target.columns if name not in source.columns)]


def _side(frame: DataFrame, names: list[str], other: DataFrame, alias: str, key: list[str]) -> DataFrame:
    from pyspark.sql import functions

    keys = [functions.col(quote_name(name)).alias(f"k{i}") for i, name in enumerate(key)]
    return frame.select(*keys, _row(frame, names, other).alias(alias))


def _columns(frame: DataFrame, names: list[str], other: DataFrame) -> DataFrame:
    return frame.select(_row(frame, names, other).alias("row"))


def _row(frame: DataFrame, names: list[str], other: DataFrame) -> Column:
    """All columns of either side as one struct."""
    from pyspark.sql import functions

    columns = []
    for name in names:
        if name in frame.columns:
            columns.append(functions.col(quote_name(name)))
        else:
            columns.append(functions.lit(None).cast(other.schema[name].dataType).alias(name))
    return functions.struct(*columns)


def _difference(line: dict[str, Any], key: list[str]) -> Difference:
    source, target = line["s"], line["t"]
    known = (source if source is not None else target).asDict()
    changed = {}
    if source is not None and target is not None:
        right = target.asDict()
        changed = {name: (value, right[name]) for name, value in known.items() if value != right[name]}
    return Difference(line["kind"], {name: known[name] for name in key}, changed)

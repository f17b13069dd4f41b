"""Comparison with Spark: any lake that a session can read, any type, however many rows differ.

The batch source reads the source; the target is read at its version. Rows are matched in one full outer join by key. If
the target has a key twice, its rows are numbered, and the second one has no match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.carrier import ABSENT
from headgate.lake._delta import DeltaPath
from headgate.lake._form import Form
from headgate.lake._layout import Lake
from headgate.lake._ledger import LedgerRow, TableState
from headgate.lake._properties import key_of
from headgate.lake._verify import (
    MOST_UNDECIDED,
    Compared,
    Difference,
    TableResult,
    difference,
    headgate_columns,
    python_rows,
)
from headgate.lake._viewed import Key, SourceTables, viewed
from headgate.names import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["SparkComparer", "compare"]

_KINDS = ("only in source", "only in target", "different")
_UNDECIDED = "undecided"
_COPY = "copy".ljust(65, "_")
"""A column name longer than any of MySQL's."""
_IN_PARTITION = (1 << 33) - 1
"""Bits of ``monotonically_increasing_id`` that count inside a partition."""


class SparkComparer:
    """A :class:`headgate.lake._verify.Comparer` with a session."""

    def __init__(self, spark: SparkSession, lake: Lake, source: SourceTables, *, samples: int = 20) -> None:
        self.source, self.samples = source, samples
        self._spark, self._lake = spark, lake

    def compare_table(self, row: LedgerRow, state: TableState) -> Compared:
        """Compare a whole table."""
        key, target = self._target(state)
        source = viewed(self.source, state.ignored).frame(self._spark, state.table, row.gtid)
        return compare(state.table, source, target, key, self.samples)

    def compare_keys(self, row: LedgerRow, state: TableState, keys: list[Key]) -> Compared:
        """Compare the rows of a table that have one of these keys."""
        (key, target), shown = self._target(state), viewed(self.source, state.ignored)
        rows = self._frame(shown.rows(state.table, row.gtid, keys))
        wanted = self._frame(shown.key_table(state.table, keys))
        return compare(state.table, _among(rows, wanted, key), _among(target, wanted, key), key, self.samples)

    def _target(self, state: TableState) -> tuple[list[str], DataFrame]:
        """Return the key, and the rows."""
        delta = DeltaPath(self._spark, self._lake.current(state.table, state.place))
        properties = delta.snapshot().properties
        key = list(key_of(properties))
        rows = delta.read(state.version).where(Form.of(properties).condition)
        return key, rows.drop(*headgate_columns(key, properties, state.ignored.kept))

    def _frame(self, rows: pa.Table) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
        return self._spark.createDataFrame(rows.cast(to_arrow_schema(schema, timezone="UTC")), schema)


def _among(frame: DataFrame, wanted: DataFrame, key: list[str]) -> DataFrame:
    on: list[Column] = [frame[quote_name(name)] == wanted[quote_name(name)] for name in key]
    return frame.join(wanted, on, "left_semi")


def compare(table: str, source: DataFrame, target: DataFrame, key: list[str], samples: int = 20) -> Compared:
    """Compare two frames by key, or as multisets if ``key`` is empty.

    The source is read once: rows have to be counted and named from the same read.

    :param source: may have a column ``_absent``: a JSON list of a row's unknown columns.
    """
    from pyspark.sql import functions

    source, target = _variants_as_text(source, target)
    if not key:
        return _compare_counts(table, source.drop(ABSENT), target, samples), None
    rows, target = _numbered(target, key)
    unequal = _unequal_rows(_join(source, target, key), samples).persist()
    try:
        lines = unequal.groupBy("kind").agg(functions.count("kind").alias("rows"), functions.sum("held").alias("held"))
        counts = {line["kind"]: (line["rows"], line["held"]) for line in lines.collect()}
        differences = _differences(unequal, key, samples) if counts else ()
        undecided = counts.get(_UNDECIDED, (0, 0))[0]
        names = [functions.col(f"k{i}").alias(name) for i, name in enumerate(key)]
        undecided_rows = unequal.where("kind = 'undecided'").select(*names)
        few = python_rows(undecided_rows.limit(samples).toArrow()) if undecided else []
        keys = undecided_rows.toArrow() if 0 < undecided <= MOST_UNDECIDED else None
    finally:
        unequal.unpersist()
    only_source, only_target, different = (counts.get(kind, (0, 0))[0] for kind in _KINDS)
    equal = rows - sum(in_target for _, in_target in counts.values())
    result = TableResult(
        table,
        "live",
        equal,
        only_source,
        only_target,
        different,
        differences,
        undecided=undecided,
        undecided_keys=tuple(few),
    )
    return result, keys


def _variants_as_text(source: DataFrame, target: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Convert VARIANTs to text, because they have no equality. The source's text first becomes what a VARIANT keeps."""
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
    differences: tuple[Difference, ...] = ()
    if only_source or only_target:
        differing = counted.where("s <> t").limit(samples).toArrow()
        copies = zip(differing["s"].to_pylist(), differing["t"].to_pylist(), strict=True)
        differences = tuple(
            Difference(_KINDS[0 if held[0] > held[1] else 1], row, copies=held)
            for row, held in zip(_rows(differing["row"]), copies, strict=True)
        )
    return TableResult(table, "live", equal, only_source, only_target, 0, differences)


def _unequal_rows(joined: DataFrame, samples: int) -> DataFrame:
    """Return the rows that are not equal: ``kind``, the key, ``held`` (1 where the target has a row); of each
    partition's first rows also ``s`` and ``t``, enough for samples.
    """
    from pyspark.sql import functions

    unequal = joined.where("kind <> 'equal'")
    first = functions.monotonically_increasing_id().bitwiseAND(functions.lit(_IN_PARTITION)) < samples
    return (
        unequal.withColumn("held", functions.col("t").isNotNull().cast("int"))
        .withColumn("first", first)
        .withColumns({side: functions.when(functions.col("first"), functions.col(side)) for side in ("s", "t")})
    )


def _numbered(target: DataFrame, key: list[str]) -> tuple[int, DataFrame]:
    """Return the number of rows, and the rows with ``_COPY``: the number of each among those of its key, from 0."""
    from pyspark.sql import Window, functions

    keys = [functions.col(quote_name(name)) for name in key]
    counts = target.groupBy(*keys).agg(functions.count(functions.lit(1)).alias(_COPY))
    rows, most = counts.agg(functions.sum(_COPY), functions.max(_COPY)).collect()[0]
    copy: Column = functions.lit(0)
    if most is not None and most > 1:
        copy = functions.row_number().over(Window.partitionBy(*keys).orderBy(*keys)) - 1
    return rows or 0, target.withColumn(_COPY, copy)


def _join(source: DataFrame, target: DataFrame, key: list[str]) -> DataFrame:
    """Return for every key ``k0`` … of either side: ``kind``, the source's row as struct ``s``, the target's as struct
    ``t``, and ``absent``: the unknown columns of ``s``.
    """
    from pyspark.sql import functions

    absent = functions.lit(None).cast("array<string>")
    if ABSENT in source.columns:
        absent = functions.from_json(functions.col(ABSENT), "array<string>")
    names = _names(source.drop(ABSENT), target.drop(_COPY))
    left = _side(source, names, target, "s", key, absent.alias("absent"), functions.lit(0).alias("copy"))
    right = _side(target, names, source, "t", key, functions.col(_COPY).alias("copy"))
    on: list[Column] = [left[name] == right[name] for name in (*(f"k{i}" for i in range(len(key))), "copy")]
    both = left.join(right, on, "full_outer")
    same = functions.lit(True)
    for name in names:
        unknown = functions.coalesce(functions.array_contains("absent", name), functions.lit(False))
        equal = functions.col(f"s.{quote_name(name)}").eqNullSafe(functions.col(f"t.{quote_name(name)}"))
        same = same & (unknown | equal)
    kind = (
        functions.when(functions.col("t").isNull(), "only in source")
        .when(functions.col("s").isNull(), "only in target")
        .when(~same, "different")
        .when(functions.col("absent").isNotNull(), _UNDECIDED)
        .otherwise("equal")
    )
    keys = [functions.coalesce(left[f"k{i}"], right[f"k{i}"]).alias(f"k{i}") for i in range(len(key))]
    return both.select(kind.alias("kind"), *keys, "s", "t", "absent")


def _names(source: DataFrame, target: DataFrame) -> list[str]:
    return [*source.columns, *(name for name in target.columns if name not in source.columns)]


def _side(frame: DataFrame, names: list[str], other: DataFrame, alias: str, key: list[str], *more: Column) -> DataFrame:
    from pyspark.sql import functions

    keys = [functions.col(quote_name(name)).alias(f"k{i}") for i, name in enumerate(key)]
    return frame.select(*keys, _row(frame, names, other).alias(alias), *more)


def _columns(frame: DataFrame, names: list[str], other: DataFrame) -> DataFrame:
    return frame.select(_row(frame, names, other).alias("row"))


def _row(frame: DataFrame, names: list[str], other: DataFrame) -> Column:
    """Return all columns of either side as one struct."""
    from pyspark.sql import functions

    columns = []
    for name in names:
        if name in frame.columns:
            columns.append(functions.col(quote_name(name)))
        else:
            columns.append(functions.lit(None).cast(other.schema[name].dataType).alias(name))
    return functions.struct(*columns)


def _differences(unequal: DataFrame, key: list[str], samples: int) -> tuple[Difference, ...]:
    """Return samples: rows that both sides have, then the keys of the others."""
    known = unequal.where("kind <> 'undecided'")
    pairs = known.where("s IS NOT NULL AND t IS NOT NULL").limit(samples).select("s", "t", "absent").toArrow()
    differences = [
        difference(_KINDS[2], key, source, target, unknown or ())
        for source, target, unknown in zip(
            _rows(pairs["s"]), _rows(pairs["t"]), pairs["absent"].to_pylist(), strict=True
        )
    ]
    others = known.where("(s IS NULL) <> (t IS NULL)").limit(samples - len(differences))
    keys = others.select("kind", *(f"k{i}" for i in range(len(key)))).toArrow()
    lines = python_rows(keys.drop_columns("kind").rename_columns(key))
    return (*differences, *map(Difference, keys["kind"].to_pylist(), lines))


def _rows(column: pa.ChunkedArray) -> list[dict[str, Any]]:
    """Return a column of structs, none of them NULL, as rows for people."""
    import pyarrow as pa

    return python_rows(pa.Table.from_struct_array(column))

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

Rows that nobody knows
======================

A session with partial row images (``binlog_row_image`` MINIMAL or NOBLOB) that changes a row after E leaves nothing to
turn the row back with. What its image holds of the row is compared all the same, and that there was a row at all; if
nothing of that differs, the row is *undecided* as of E.

Such rows, and no others, are compared again as of the next ledger row that there is, by their keys, and so on for some
tries. That takes a moment where the first comparison had to read whole tables, so it is enough that a row rests for as
long as the pipeline is behind. A row whose key changes between two such moments is looked for at its new key: the log
names the old and the new one, in every row image. So the row that could not be compared is compared later, wherever it
is then; or it is gone from both sides, and a row that was deleted is no longer different from anything. Each key is
found equal or different as of one of the ledger's moments, and what remains undecided is said to be so, by key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from headgate._names import quote_name
from headgate.errors import SnapshotError
from headgate.lake._delta import DeltaPath
from headgate.lake._layout import Lake
from headgate.lake._ledger import LedgerRow, TableState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Difference", "SourceTables", "TableResult", "compare", "verify_table"]

_OWN = ("_seq", "_gtid", "_ts")
_OWN_KEYLESS = (*_OWN, "_row_hash", "_row_copy")
_KINDS = ("only in source", "only in target", "different")
_UNDECIDED = "undecided"
_ABSENT = "_absent"
_IN_PARTITION = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that count inside a partition."""
_COMPARED = ("live", "inexact")
_TRIES = 10
"""Later moments at which undecided rows are compared again."""
_MOST_UNDECIDED = 1_000_000
"""More undecided rows than this are not looked up: their keys are held in the driver's memory."""

Key = tuple[Any, ...]


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
    undecided: int = 0
    """Rows that changed with partial row images while they were compared, each time; not counted as anything else."""
    undecided_keys: tuple[dict[str, Any], ...] = ()
    """The keys of some of them."""
    later: int = 0
    """Of the rows compared, how many were at a later moment than the others: as of ``later_gtid`` or before."""
    later_gtid: str | None = None

    @property
    def differences(self) -> int:
        """Rows that are not the same on both sides."""
        return self.only_source + self.only_target + self.different


class SourceTables(Protocol):
    """The source's tables as of GTID sets; ``headgate.spark.PastTables``.

    Frames have the table's own columns, and ``_absent``: a JSON list of the columns that nobody knows of a row.
    """

    def __call__(self, table: str, gtid: str) -> DataFrame:
        """A whole table."""

    def keys(self, table: str, keys: pa.Table) -> list[Key]:
        """Keys out of a frame, in the form the other methods speak of."""

    def key_frame(self, table: str, keys: list[Key]) -> DataFrame:
        """And back into one."""

    def rows(self, table: str, gtid: str, keys: list[Key]) -> DataFrame:
        """The rows with these keys, perhaps others beside them."""

    def moves(self, table: str, start: str, end: str) -> Iterable[tuple[Key, Key]]:
        """The changes of keys between two sets, in order."""


def verify_table(
    spark: SparkSession,
    lake: Lake,
    row: LedgerRow,
    table: str,
    source: SourceTables,
    *,
    samples: int = 20,
    newer: Callable[[LedgerRow], LedgerRow | None] = lambda _: None,
) -> TableResult:
    """Compare one table of a ledger row with the source.

    :param newer: a newer ledger row than this one, for rows that could not be compared as of it; None: there is none.
    """
    state: TableState = row.tables[table]
    if state.state not in _COMPARED or state.version is None:
        why = "it has a condition" if state.state == "filtered" else "it is not complete yet"
        return TableResult(table, state.state, remark=state.reason or f"not compared: {why}")
    delta = DeltaPath(spark, lake.current(table))
    key = json.loads(delta.property("headgate.key") or "[]")
    target = delta.read(state.version).drop(*(_OWN if key else _OWN_KEYLESS))
    result, keys = _compare(table, source(table, row.gtid), target, key, samples)
    if keys is None:
        return result
    return _Later(lake, table, key, source, samples).compare(delta, row, result, source.keys(table, keys), newer)


class _Later:
    """Compares a table's undecided rows again, as of later moments."""

    def __init__(self, lake: Lake, table: str, key: list[str], source: SourceTables, samples: int) -> None:
        self._lake, self._table, self._key = lake, table, key
        self._source, self._samples = source, samples

    def compare(
        self,
        delta: DeltaPath,
        row: LedgerRow,
        result: TableResult,
        keys: list[Key],
        newer: Callable[[LedgerRow], LedgerRow | None],
    ) -> TableResult:
        """The result with as many of these rows decided as can be."""
        for _ in range(_TRIES):
            later = newer(row)
            state = later.tables.get(self._table) if later is not None else None
            if later is None or state is None or state.state not in _COMPARED or state.version is None:
                break
            try:
                keys = _followed(keys, self._source.moves(self._table, row.gtid, later.gtid))
                rows = self._source.rows(self._table, later.gtid, keys)
            except SnapshotError as error:  # altered meanwhile, or keys that cannot be asked for
                return replace(result, remark=error.message)
            wanted = self._source.key_frame(self._table, keys)
            target = delta.read(state.version).drop(*_OWN)
            found, left = _compare(
                self._table, _among(rows, wanted, self._key), _among(target, wanted, self._key), self._key,
                self._samples,
            )  # fmt: skip
            result = _joined(result, found, decided=len(keys) - found.undecided, gtid=later.gtid, most=self._samples)
            row = later
            if left is None:
                break
            keys = self._source.keys(self._table, left)
        return result


def _followed(keys: list[Key], moves: Iterable[tuple[Key, Key]]) -> list[Key]:
    """Where rows with these keys are after the keys of some rows have changed."""
    found = dict.fromkeys(keys)
    for old, new in moves:
        if old in found:
            del found[old]
            found[new] = None
    return list(found)


def _among(frame: DataFrame, wanted: DataFrame, key: list[str]) -> DataFrame:
    on: list[Column] = [frame[quote_name(name)] == wanted[quote_name(name)] for name in key]
    return frame.join(wanted, on, "left_semi")


def _joined(before: TableResult, found: TableResult, *, decided: int, gtid: str, most: int) -> TableResult:
    """A result, and that of its undecided rows at a later moment."""
    return replace(
        before,
        equal=before.equal + found.equal,
        only_source=before.only_source + found.only_source,
        only_target=before.only_target + found.only_target,
        different=before.different + found.different,
        samples=(*before.samples, *found.samples)[:most],
        undecided=found.undecided,
        undecided_keys=found.undecided_keys,
        later=before.later + decided,
        later_gtid=gtid,
    )


def compare(table: str, source: DataFrame, target: DataFrame, key: list[str], *, samples: int = 20) -> TableResult:
    """Compare two frames by key, or as multisets if ``key`` is empty.

    :param source: may have a column ``_absent``: a JSON list of columns that nobody knows of a row.
    """
    return _compare(table, source, target, key, samples)[0]


def _compare(
    table: str, source: DataFrame, target: DataFrame, key: list[str], samples: int
) -> tuple[TableResult, pa.Table | None]:
    """The result, and the keys of the undecided rows if there are any and they are not too many.

    The source is read once: it must be the same reading that counts rows and names them.
    """
    from pyspark.sql import functions

    source, target = _variants_as_text(source, target)
    if not key:
        return _compare_counts(table, source.drop(_ABSENT), target, samples), None
    odd = _odd_rows(_join(source, target, key), samples).persist()
    try:
        lines = odd.groupBy("kind").agg(functions.count("kind").alias("rows"), functions.sum("held").alias("held"))
        counts = {line["kind"]: (line["rows"], line["held"]) for line in lines.collect()}
        differing = odd.where("kind <> 'undecided' AND (s IS NOT NULL OR t IS NOT NULL)").limit(samples)
        found = tuple(_difference(line.asDict(), key) for line in differing.collect()) if counts else ()
        undecided = counts.get(_UNDECIDED, (0, 0))[0]
        names = [functions.col(f"k{i}").alias(name) for i, name in enumerate(key)]
        held = odd.where("kind = 'undecided'").select(*names)
        few = held.limit(samples).collect() if undecided else []
        keys = held.toArrow() if 0 < undecided <= _MOST_UNDECIDED else None
    finally:
        odd.unpersist()
    only_source, only_target, different = (counts.get(kind, (0, 0))[0] for kind in _KINDS)
    equal = target.count() - sum(in_target for _, in_target in counts.values())
    result = TableResult(
        table, "live", equal, only_source, only_target, different, found,
        undecided=undecided, undecided_keys=tuple(line.asDict() for line in few),
    )  # fmt: skip
    return result, keys


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


def _odd_rows(joined: DataFrame, samples: int) -> DataFrame:
    """The rows that are not equal: ``kind``, the key, ``held`` (1 where the target has a row); of each partition's
    first rows also ``s`` and ``t``, enough for samples.
    """
    from pyspark.sql import functions

    odd = joined.where("kind <> 'equal'")
    first = functions.monotonically_increasing_id().bitwiseAND(functions.lit(_IN_PARTITION)) < samples
    return (
        odd.withColumn("held", functions.col("t").isNotNull().cast("int"))
        .withColumn("first", first)
        .withColumns({side: functions.when(functions.col("first"), functions.col(side)) for side in ("s", "t")})
    )


def _join(source: DataFrame, target: DataFrame, key: list[str]) -> DataFrame:
    """For every key ``k0`` … of either side: ``kind``, the source's row as struct ``s``, the target's as struct ``t``,
    and ``absent``: what is not known of ``s``.
    """
    from pyspark.sql import functions

    absent = functions.lit(None).cast("array<string>")
    if _ABSENT in source.columns:
        absent = functions.from_json(functions.col(_ABSENT), "array<string>")
    names = _names(source.drop(_ABSENT), target)
    left = _side(source, names, target, "s", key, absent.alias("absent"))
    right = _side(target, names, source, "t", key)
    on: list[Column] = [left[f"k{i}"] == right[f"k{i}"] for i in range(len(key))]
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
        right, unknown = target.asDict(), line["absent"] or ()
        names = (name for name in known if name not in unknown and known[name] != right[name])
        changed = {name: (known[name], right[name]) for name in names}
    return Difference(line["kind"], {name: known[name] for name in key}, changed)

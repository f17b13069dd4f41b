"""Verify: compare the lake with the source exactly, while writers continue.

Two moving states cannot be compared, two fixed ones can. The newest ledger row fixes both: it names a GTID set E and,
for each table, the Delta version that holds the table as of E. The target is read at that version. The source is read
*as of E*, by the reader of exact chunks, which rewinds them to E, as in the first snapshot. So both sides are the same
point of the source's history, whatever was committed since on either side, and every difference is real.

Rows are matched by key; columns are compared with null-safe equality. A second row of a key is on one side only. Rows
of a table without a key are counted: each content must occur as often on one side as on the other. A column that only
the source has (added, with no row since) counts as null in the target. headgate's own columns are not compared, nor are
rows that it keeps although they were deleted (``_deleted``). Of JSON that became a VARIANT, what a VARIANT preserves is
compared. If the table ignores changes of columns, those that it has from the source are compared (``_viewed``).

There are two implementations (:class:`Comparer`) with the same results. ``_verify_arrow`` reads both sides as Arrow, in
threads, without a JVM: tables in a folder of this machine or on S3 whose files need no features beyond ``_version``'s.
``_verify_spark`` lets Spark read and join them: all others, and tables of which so many rows differ that they should be
sorted on disk.

The source can be read as of E only while the log still holds everything since E and the tables have not been altered
since. After such a failure the caller retries with a newer ledger row.

Rows with unknown columns
=========================

If a session with partial row images (``binlog_row_image`` MINIMAL or NOBLOB) changes a row after E, the row cannot be
rewound. The columns in its image are compared all the same, and whether the row exists. If these do not differ, the
row is *undecided* as of E.

Only such rows are compared again as of the next ledger row, by their keys, and so on for some tries. That takes a
moment, while the first comparison had to read whole tables. So it is enough that a row does not change for as long as
the pipeline's lag. If the key of a row changes between two such moments, the row is looked up by its new key: every row
image in the log names the old and the new one. So an undecided row is compared later, at its key of then. If it was
deleted, it is gone from both sides and no longer a difference. Each key is found equal or different as of one ledger
row, and what remains undecided is reported, by key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SnapshotError
from headgate.lake._form import Form
from headgate.lake._ledger import LedgerRow, TableState
from headgate.lake._properties import SourceMapping
from headgate.lake._viewed import Key, SourceTables, viewed

__all__ = [
    "MOST_UNDECIDED",
    "Compared",
    "Comparer",
    "Difference",
    "NeedsSparkError",
    "TableResult",
    "difference",
    "headgate_columns",
    "python_rows",
    "verify_table",
]

MOST_UNDECIDED = 1_000_000
"""Maximum number of undecided rows that are looked up: their keys are held in memory."""
_HEADGATE_COLUMNS = ("_seq", "_gtid", "_ts")
_HEADGATE_COLUMNS_KEYLESS = (*_HEADGATE_COLUMNS, "_row_hash", "_row_copy")
_COMPARED = ("live", "inexact")
_TRIES = 10
"""Number of later ledger rows as of which undecided rows are compared again."""


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
    equal: int = 0
    only_source: int = 0
    only_target: int = 0
    different: int = 0
    samples: tuple[Difference, ...] = ()
    remark: str | None = None
    undecided: int = 0
    """Rows that changed with partial row images during each comparison; not included in other counts."""
    undecided_keys: tuple[dict[str, Any], ...] = ()
    """Keys of some of them."""
    later: int = 0
    """Number of compared rows that were compared as of a later ledger row: ``later_gtid`` or before."""
    later_gtid: str | None = None
    removed: int = 0
    """Rows that the source no longer has, and that the configuration keeps (``skip``). They do not count as
    differences."""
    inexact: str | None = None
    """Why the table need not equal the source, by the configuration."""

    def keeping_removed(self) -> TableResult:
        """Return the result for a table that keeps rows of which its source has none."""
        samples = tuple(one for one in self.samples if one.kind != "only in target")
        return replace(self, removed=self.only_target, only_target=0, samples=samples)

    @property
    def differences(self) -> int:
        """Number of rows that differ between the sides."""
        return self.only_source + self.only_target + self.different


Compared: TypeAlias = "tuple[TableResult, pa.Table | None]"
"""A result, and the keys of the undecided rows, if there are any and at most :data:`MOST_UNDECIDED`."""


class NeedsSparkError(Exception):
    """A table that cannot be compared without Spark; the message has the reason."""


class Comparer(Protocol):
    """Comparison with the source of tables that are live or inexact in a ledger row.

    :raises NeedsSparkError: another comparer is required.
    """

    source: SourceTables
    samples: int
    """Maximum number of differences, and of undecided keys, that a result names."""

    def compare_table(self, row: LedgerRow, state: TableState) -> Compared:
        """Compare a whole table."""

    def compare_keys(self, row: LedgerRow, state: TableState, keys: list[Key]) -> Compared:
        """Compare the rows of a table that have one of these keys."""


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
    """Return rows as Spark gives them to Python; columns with dates of the year 0, which Python lacks, as text."""
    if not rows.num_rows:
        return []
    from pyspark.sql.conversion import ArrowTableToRowsConversion
    from pyspark.sql.pandas.types import from_arrow_schema

    table = pa.table([_readable(column) for column in rows.columns], names=rows.column_names)
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    return [line.asDict() for line in ArrowTableToRowsConversion.convert(table, schema)]


def _readable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates or moments as text if one of them is before the year 1; other values as they are."""
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
    return (*columns, *Form.of(properties).columns, *SourceMapping.of(properties).kept, *kept)


def verify_table(
    comparer: Comparer, row: LedgerRow, table: str, *, newer: Callable[[LedgerRow], LedgerRow | None] = lambda _: None
) -> TableResult:
    """Compare one table of a ledger row with the source.

    :param newer: returns a newer ledger row than this one, to compare undecided rows again; None: there is none.
    :raises NeedsSparkError: the comparer cannot compare the table.
    """
    state: TableState = row.tables[table]
    if state.state not in _COMPARED or state.version is None:
        why = "it has a condition" if state.state == "filtered" else "it is not complete yet"
        return TableResult(table, state.state, remark=state.reason or f"not compared: {why}")
    result, undecided = comparer.compare_table(row, state)
    result = replace(result, inexact=state.reason if state.state == "inexact" else None)
    if undecided is None:
        return result
    keys = viewed(comparer.source, state.ignored).keys(table, undecided)
    return _compare_later(comparer, row, result, keys, newer)


def _compare_later(
    comparer: Comparer,
    row: LedgerRow,
    result: TableResult,
    keys: list[Key],
    newer: Callable[[LedgerRow], LedgerRow | None],
) -> TableResult:
    """Compare the undecided rows of a result as of later ledger rows. Return the result with those decided."""
    for _ in range(_TRIES):
        later = newer(row)
        state = later.tables.get(result.table) if later is not None else None
        if later is None or state is None or state.state not in _COMPARED or state.version is None:
            break
        try:
            keys = _moved_keys(keys, comparer.source.moves(result.table, row.gtid, later.gtid))
            recheck, left = comparer.compare_keys(later, state, keys)
        except SnapshotError as error:  # altered meanwhile, or keys that cannot be queried
            return replace(result, remark=error.message)
        decided = len(keys) - recheck.undecided
        result = _combined(result, recheck, decided=decided, gtid=later.gtid, most=comparer.samples)
        row = later
        if left is None:
            break
        keys = viewed(comparer.source, state.ignored).keys(result.table, left)
    return result


def _moved_keys(keys: list[Key], moves: Iterable[tuple[Key, Key]]) -> list[Key]:
    """Return the keys of the same rows after key changes."""
    moved = dict.fromkeys(keys)
    for old, new in moves:
        if old in moved:
            del moved[old]
            moved[new] = None
    return list(moved)


def _combined(before: TableResult, recheck: TableResult, *, decided: int, gtid: str, most: int) -> TableResult:
    """Combine a result with that of its undecided rows as of a later ledger row."""
    return replace(
        before,
        equal=before.equal + recheck.equal,
        only_source=before.only_source + recheck.only_source,
        only_target=before.only_target + recheck.only_target,
        different=before.different + recheck.different,
        samples=(*before.samples, *recheck.samples)[:most],
        undecided=recheck.undecided,
        undecided_keys=recheck.undecided_keys,
        later=before.later + decided,
        later_gtid=gtid,
    )

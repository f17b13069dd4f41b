"""Verify: the lake holds what the source held, exactly, while writers go on writing.

Two moving things cannot be compared, two fixed ones can. The newest ledger row fixes both: it names a GTID set E and,
for each table, the Delta version that holds the table as of E. The target is read at that version; the source is read
*as of E*, by the reader of exact chunks, which rewinds them to E, as the first snapshot did. So both sides are the same
moment of the source's history, whatever has been committed since on either side, and every difference is real.

Rows meet by key; columns are compared with null-safe equality. A second row of a key is on one side only. Rows of a
table without a key are counted: each content must be there as often on one side as on the other. A column that only the
source has (added, and no row has come since) counts as null in the target. headgate's own columns are not compared. Of
JSON that became a VARIANT, what a VARIANT keeps is compared.

There are two ways to do it (:class:`Comparer`), which come to the same result. ``_verify_arrow`` reads both sides as
Arrow, in threads, without a JVM: tables in a folder of this machine whose files need no more knowledge than it has.
``_verify_spark`` has Spark read and join them: all others, and tables of which so many rows differ that they should be
sorted on disk.

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

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headgate.errors import SnapshotError
from headgate.lake._ledger import LedgerRow, TableState

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ABSENT",
    "MOST_UNDECIDED",
    "Compared",
    "Comparer",
    "Difference",
    "Key",
    "NeedsSparkError",
    "SourceTables",
    "TableResult",
    "difference",
    "own_columns",
    "verify_table",
]

ABSENT = "_absent"
"""The source's column that says what nobody knows of a row."""
MOST_UNDECIDED = 1_000_000
"""More undecided rows than this are not looked up: their keys are held in memory."""
_OWN = ("_seq", "_gtid", "_ts")
_OWN_KEYLESS = (*_OWN, "_row_hash", "_row_copy")
_COMPARED = ("live", "inexact")
_TRIES = 10
"""Later moments at which undecided rows are compared again."""

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


Compared: TypeAlias = "tuple[TableResult, pa.Table | None]"
"""A result, and the keys of the undecided rows, if there are any and they are no more than :data:`MOST_UNDECIDED`."""


class SourceTables(Protocol):
    """The source's tables as of GTID sets; ``headgate.spark.PastTables``.

    Rows have the table's own columns, and ``_absent``: a JSON list of the columns that nobody knows of a row.
    """

    def parts(self, table: str, gtid: str) -> tuple[pa.Schema, list[Callable[[], Iterator[pa.RecordBatch]]]]:
        """A whole table: its columns, and what reads its rows, each a part of them, whenever it is called."""

    def frame(self, spark: SparkSession, table: str, gtid: str) -> DataFrame:
        """The same for Spark."""

    def keys(self, table: str, keys: pa.Table) -> list[Key]:
        """Keys out of rows, in the form the other methods speak of."""

    def key_table(self, table: str, keys: list[Key]) -> pa.Table:
        """And back into columns."""

    def rows(self, table: str, gtid: str, keys: list[Key]) -> pa.Table:
        """The rows with these keys, perhaps others beside them."""

    def moves(self, table: str, start: str, end: str) -> Iterable[tuple[Key, Key]]:
        """The changes of keys between two sets, in order."""


class NeedsSparkError(Exception):
    """A table that cannot be compared without Spark; the message says why."""


class Comparer(Protocol):
    """Compares tables that are live in a ledger row with the source.

    :raises NeedsSparkError: another one has to.
    """

    source: SourceTables
    samples: int
    """How many differences and undecided keys a result names."""

    def whole(self, row: LedgerRow, state: TableState) -> Compared:
        """A whole table."""

    def some(self, row: LedgerRow, state: TableState, keys: list[Key]) -> Compared:
        """The rows of a table that have one of these keys."""


def difference(
    kind: str, key: list[str], source: dict[str, Any], target: dict[str, Any], unknown: Collection[str]
) -> Difference:
    """Of two rows with the same key.

    :param unknown: the columns that nobody knows of the source's row.
    """
    changed = {
        name: (value, target[name]) for name, value in source.items() if name not in unknown and value != target[name]
    }
    return Difference(kind, {name: source[name] for name in key}, changed)


def own_columns(key: list[str]) -> tuple[str, ...]:
    """headgate's own columns of a current table with this key; ``[]``: without one."""
    return _OWN if key else _OWN_KEYLESS


def verify_table(
    comparer: Comparer, row: LedgerRow, table: str, *, newer: Callable[[LedgerRow], LedgerRow | None] = lambda _: None
) -> TableResult:
    """Compare one table of a ledger row with the source.

    :param newer: a newer ledger row than this one, for rows that could not be compared as of it; None: there is none.
    :raises NeedsSparkError: the comparer cannot do it.
    """
    state: TableState = row.tables[table]
    if state.state not in _COMPARED or state.version is None:
        why = "it has a condition" if state.state == "filtered" else "it is not complete yet"
        return TableResult(table, state.state, remark=state.reason or f"not compared: {why}")
    result, undecided = comparer.whole(row, state)
    if undecided is None:
        return result
    return _later(comparer, row, result, comparer.source.keys(table, undecided), newer)


def _later(
    comparer: Comparer,
    row: LedgerRow,
    result: TableResult,
    keys: list[Key],
    newer: Callable[[LedgerRow], LedgerRow | None],
) -> TableResult:
    """A result with as many of its undecided rows decided, as of later moments, as can be."""
    for _ in range(_TRIES):
        later = newer(row)
        state = later.tables.get(result.table) if later is not None else None
        if later is None or state is None or state.state not in _COMPARED or state.version is None:
            break
        try:
            keys = _followed(keys, comparer.source.moves(result.table, row.gtid, later.gtid))
            found, left = comparer.some(later, state, keys)
        except SnapshotError as error:  # altered meanwhile, or keys that cannot be asked for
            return replace(result, remark=error.message)
        decided = len(keys) - found.undecided
        result = _joined(result, found, decided=decided, gtid=later.gtid, most=comparer.samples)
        row = later
        if left is None:
            break
        keys = comparer.source.keys(result.table, left)
    return result


def _followed(keys: list[Key], moves: Iterable[tuple[Key, Key]]) -> list[Key]:
    """Where rows with these keys are after the keys of some rows have changed."""
    found = dict.fromkeys(keys)
    for old, new in moves:
        if old in found:
            del found[old]
            found[new] = None
    return list(found)


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

"""Verify: compare the lake with the source exactly, while writers continue.

Two moving states cannot be compared, two fixed ones can. The newest ledger row fixes both: it names a GTID set E and,
for each table, the Delta version that holds the table as of E. The target is read at that version. The source is read
*as of E*, by the reader of exact chunks, which rewinds them to E, as in the first snapshot. So both sides are the same
point of the source's history, whatever was committed since on either side, and every difference is real.

Rows are matched by key; columns are compared with null-safe equality. A second row of a key is on one side only. Rows
of a table without a key are counted: each content must occur as often on one side as on the other. A column that only
the source has (added, with no row since) counts as null in the target. headgate's own columns are not compared, nor are
rows that it keeps although they were deleted (``_deleted``). JSON that became a VARIANT is compared in that
form: the bytes that ``parse_json`` makes of MySQL's text. If the table ignores changes of columns, those that it has
from the source are compared (``_renamed_source``). :mod:`headgate.compare._comparer` compares one table as of one row.

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

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.compare._differences import TableResult
from headgate.compare._renamed_source import Key, viewed
from headgate.errors import SnapshotError, UnsupportedError
from headgate.lake import LedgerRow, State, TableState

if TYPE_CHECKING:
    from headgate.compare._comparer import Comparer

__all__ = ["verify_table"]

_COMPARED = (State.LIVE, State.INEXACT)
_TRIES = 10
"""Number of later ledger rows as of which undecided rows are compared again."""


def verify_table(
    comparer: Comparer, row: LedgerRow, table: str, *, newer: Callable[[LedgerRow], LedgerRow | None] = lambda _: None
) -> TableResult:
    """Compare one table of a ledger row with the source.

    :param newer: returns a newer ledger row than this one, to compare undecided rows again; None: there is none.
    :raises UnsupportedError: the table cannot be compared.
    """
    state: TableState = row.tables[table]
    if state.state not in _COMPARED:
        why = "it has a condition" if state.state == State.FILTERED else "it is not complete yet"
        return TableResult(table, state.state, remark=state.reason or f"not compared: {why}")
    if state.version is None:
        return TableResult(table, "undecided", remark="not compared: the lake has its changes, but not its rows")
    result, undecided = comparer.compare_table(row, state)
    result = replace(result, inexact=state.reason if state.state == State.INEXACT else None)
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
        except (SnapshotError, UnsupportedError) as error:  # altered meanwhile, or keys that cannot be queried
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

"""Comparison of a table with its source, both read as Arrow, in threads.

*First pass.* All threads read both sides once, in parts, and keep no row. For each side there is a count and a sum of
digests for each of some thousand buckets of rows (:mod:`headgate.compare._buckets` bounds the chance to miss a
difference). In most tables all buckets agree, and the table is equal.

*Second pass.* The buckets that do not agree, and those with rows that have unknown columns, are read again on both
sides, and their rows are compared one to one (:mod:`headgate.compare._verify_match`). Each bucket is decided by one
read of the source, the first or the second, so the result is also correct if fewer rows are known by then.

**Memory.** Each thread holds a chunk of the source (as many bytes as ``headgate.spark.TablesAsOf`` configures, or all
of a table without a key), or a row group as it is in its file and some thousand rows of it. The sums take at most 7 MB
for each thread, and 13 MB for each table. The second pass holds the rows of its buckets, of all tables together at most
512 MB, and some numbers for each. If more differ, as many whole buckets are compared as fit, and each of the others
counts as one row that differs: at least so many do (``TableResult.more``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.compare._buckets import Buckets, buckets_for
from headgate.compare._differences import MOST_UNDECIDED, Compared, Difference, TableResult, difference
from headgate.compare._digests import Digests
from headgate.compare._renamed_source import Key, SourceTables, viewed
from headgate.compare._verify_match import RowIndexes, contents, pair, take
from headgate.compare._verify_rows import SideRows, Sides, one_batch, rows_with_unknown_columns
from headgate.compare._version import RowGroup, TableVersion, open_version
from headgate.errors import ChunkRetryError, HeadgateError, StorageError, TargetError, Transient, UnsupportedError
from headgate.lake import Lake, LedgerRow, StoppedError, TableState, Workers

__all__ = ["Comparer"]

_MEMORY_BYTES: Final = 512 << 20
_BATCH_ROWS: Final = 1 << 14
_UNIT_ROWS: Final = 1 << 18
"""Rows of the target that a thread reads at once: so many that the start-up is negligible, so few that the threads end
at about the same time."""
_TRIES: Final = 4
"""Tries of a part whose read fails transiently."""
_TOO_MANY: Final = (
    "more than fit into memory to be compared one by one; if the table differs, read it again with headgate run "
    "--resnapshot"
)
_PAUSE_SECONDS: Final = 0.1
"""Before the second try of a part; doubled before each next one."""

Read = Callable[[], Iterable[pa.RecordBatch]]
"""Reads a part of one side, each time it is called."""
Choose = Callable[[Digests], npt.NDArray[np.int64]]
"""Digests of keys → bucket of each row to hold, -1 of the others."""


class Comparer:
    """Comparison of tables that are live or inexact in a ledger row with the source.

    :param samples: maximum number of differences, and of undecided keys, that a result names.
    :param on_rows: called from any thread with a table and how many more of its rows, of either side, were read.
    :param memory_bytes: of rows that are compared one to one, of all tables together.
    """

    def __init__(
        self,
        lake: Lake,
        source: SourceTables,
        workers: Workers,
        *,
        samples: int = 20,
        on_rows: Callable[[str, int], None] = lambda _table, _rows: None,
        memory_bytes: int = _MEMORY_BYTES,
    ) -> None:
        self.source, self.samples = source, samples
        self._lake, self._workers, self._on_rows = lake, workers, on_rows
        self._memory = _Memory(memory_bytes)

    def compare_table(self, row: LedgerRow, state: TableState) -> Compared:
        """Compare a whole table.

        :raises UnsupportedError: it has a column or needs a feature that is not supported.
        """
        version = self._version(state)
        schema, reads = viewed(self.source, state.ignored).parts(state.table, row.gtid)
        sides = Sides(schema, version, state.ignored.kept)
        source = [partial(sides.converted, read) for read in reads]
        target = _reads(version, sides)
        ours, theirs = both = [Buckets(buckets_for(version.rows)) for _ in range(2)]
        lock = threading.Lock()

        def add(side: int, read: Read) -> None:
            part = ours.empty()
            for batch in self._batches(read):
                part.add(*sides.digests(batch), rows_with_unknown_columns(batch))
                self._on_rows(state.table, batch.num_rows)
            with lock:
                both[side].merge(part)

        self._each(add, source, target)
        differing = ours.differing(theirs)
        equal = int(theirs.counts[~differing].sum())
        if not differing.any():
            return TableResult(state.table, "live", equal), None
        with _HeldRows(self._memory, len(differing)) as gathered:
            self._gather(gathered, sides, source, target, lambda keys: _chosen(ours.of(keys), differing))
            result, undecided = self._compared(state.table, sides, *gathered.sides(sides), equal)
            left = differing.copy()
            left[: gathered.end] = False
        if not left.any():
            return result, undecided
        unknown = left & (ours.marked | theirs.marked)
        more, rows = int((left & ~unknown).sum()), int(ours.counts[unknown].sum())
        return replace(result, more=more, undecided=result.undecided + rows, remark=_TOO_MANY), None

    def compare_keys(self, row: LedgerRow, state: TableState, keys: list[Key]) -> Compared:
        """Compare the rows of a table that have one of these keys.

        :raises UnsupportedError: as :meth:`compare_table`, or there are more rows than fit into memory.
        """
        version, shown = self._version(state), viewed(self.source, state.ignored)
        rows = shown.rows(state.table, row.gtid, keys)
        sides = Sides(rows.schema, version, state.ignored.kept)
        wanted = sides.key_digests(one_batch(shown.key_table(state.table, keys)))
        lows = np.append(np.sort(wanted[0]), np.uint64(0))

        def choose(digests: Digests) -> npt.NDArray[np.int64]:
            return np.where(lows[np.searchsorted(lows[:-1], digests[0])] == digests[0], 0, -1)

        with _HeldRows(self._memory, 1) as gathered:
            source: list[Read] = [partial(sides.converted, rows.to_batches)]
            self._gather(gathered, sides, source, _reads(version, sides), choose)
            if not gathered.end:
                raise UnsupportedError(_TOO_MANY, table=state.table)
            ours, theirs = (side.among(wanted) for side in gathered.sides(sides))
            return self._compared(state.table, sides, ours, theirs, 0)

    def _version(self, state: TableState) -> TableVersion:
        try:
            return open_version(self._lake.current(state.table, state.place), int(state.version or 0))
        except TargetError as error:
            raise UnsupportedError(error.message, table=state.table) from None
        except (StorageError, OSError) as error:
            raise TargetError(f"{state.table} cannot be read: {str(error).splitlines()[0]}") from None

    # --- reading

    def _each(self, work: Callable[[int, Read], None], *sides: Sequence[Read]) -> None:
        """Run ``work`` for each part of each side, with the side's number. The sides' parts alternate, so that both are
        busy to the end.
        """
        order = sorted((i / len(parts), side, i) for side, parts in enumerate(sides) for i in range(len(parts)))
        self._workers.each(lambda at: self._with_retries(partial(work, at[1], sides[at[1]][at[2]])), order)

    def _with_retries(self, work: Callable[[], None]) -> None:
        """Run ``work``; retry after a transient failure."""
        for attempt in range(_TRIES):
            try:
                return work()
            except HeadgateError as error:
                passing = isinstance(error, Transient) and not isinstance(error, ChunkRetryError)
                if not passing or attempt == _TRIES - 1:
                    raise
                self._workers.stopped.wait(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError

    def _batches(self, read: Read) -> Iterator[pa.RecordBatch]:
        """Yield a part's batches until the workers are stopped."""
        for batch in read():
            if self._workers.stopped.is_set():
                raise StoppedError
            yield batch

    def _gather(
        self, gathered: _HeldRows, sides: Sides, source: Sequence[Read], target: Sequence[Read], choose: Choose
    ) -> None:
        """Hold the chosen rows of both sides, as far as the memory lasts."""

        def gather(side: int, read: Read) -> None:
            with gathered.part(side) as part:
                for batch in self._batches(read):
                    gathered.add(part, batch, choose(sides.key_digests(batch)))

        self._each(gather, source, target)

    # --- comparing

    def _compared(self, table: str, sides: Sides, source: SideRows, target: SideRows, equal: int) -> Compared:
        """Return the result for these rows of both sides, and ``equal`` others that are equal."""
        if not sides.key:
            return self._counted(table, sides, source, target, equal), None
        incomplete = source.has_unknown_columns
        known = np.flatnonzero(~incomplete)
        same = pair(take(source.rows, known), target.rows)
        left = np.concatenate([known[same.only_source], np.flatnonzero(incomplete)])
        by_key = pair(take(source.keys, left), take(target.keys, same.only_target))
        ours, theirs = left[by_key.source], same.only_target[by_key.target]
        open_ = _undecided(sides, source, target, ours, theirs)
        only_source, only_target = left[by_key.only_source], same.only_target[by_key.only_target]
        undecided = ours[open_]
        few = sides.lines(source, undecided[: self.samples])
        result = TableResult(
            table,
            "live",
            equal + len(same.source),
            len(only_source),
            len(only_target),
            int((~open_).sum()),
            self._samples(sides, source, target, (ours[~open_], theirs[~open_]), only_source, only_target),
            undecided=len(undecided),
            undecided_keys=tuple({name: line[name] for name in sides.key} for line in few),
        )
        if not 0 < len(undecided) <= MOST_UNDECIDED:
            return result, None
        return result, source.table.select(sides.key).take(pa.array(undecided))

    def _samples(
        self,
        sides: Sides,
        source: SideRows,
        target: SideRows,
        different: tuple[RowIndexes, RowIndexes],
        only_source: RowIndexes,
        only_target: RowIndexes,
    ) -> tuple[Difference, ...]:
        ours, theirs = (row_indexes[: self.samples] for row_indexes in different)
        unknown = {int(index): names for names, which in source.unknown_columns(ours) for index in which}
        lines = zip(sides.lines(source, ours), sides.lines(target, theirs), strict=True)
        samples = [
            difference("different", sides.key, left, right, unknown.get(i, ())) for i, (left, right) in enumerate(lines)
        ]
        for rows, row_indexes, kind in (source, only_source, "only in source"), (target, only_target, "only in target"):
            unpaired = sides.lines(rows, row_indexes[: self.samples - len(samples)])
            samples += [Difference(kind, {name: line[name] for name in sides.key}) for line in unpaired]
        return tuple(samples)

    def _counted(self, table: str, sides: Sides, source: SideRows, target: SideRows, equal: int) -> TableResult:
        """Return the result for a table without a key: how often each content occurs."""
        numbers = contents(source.rows, target.rows)
        number = 1 + max(int(side.max(initial=-1)) for side in numbers)
        ours, theirs = (np.bincount(side, minlength=number) for side in numbers)
        common = np.minimum(ours, theirs)
        samples: list[Difference] = []
        for rows, side, more, kind in (
            (source, numbers[0], ours > theirs, "only in source"),
            (target, numbers[1], theirs > ours, "only in target"),
        ):
            which, first = np.unique(side, return_index=True)
            wanted = more[which]
            which, first = which[wanted], first[wanted][: self.samples - len(samples)]
            samples += [
                Difference(kind, line, copies=(int(ours[content]), int(theirs[content])))
                for content, line in zip(which, sides.lines(rows, first), strict=False)
            ]
        return TableResult(
            table,
            "live",
            equal + int(common.sum()),
            int((ours - common).sum()),
            int((theirs - common).sum()),
            0,
            tuple(samples),
        )


def _undecided(
    sides: Sides, source: SideRows, target: SideRows, ours: RowIndexes, theirs: RowIndexes
) -> npt.NDArray[np.bool_]:
    """Return bool[pairs]: pairs with unknown columns whose known columns are equal."""
    undecided = np.zeros(len(ours), np.bool_)
    incomplete = np.flatnonzero(source.has_unknown_columns[ours])
    for names, which in source.unknown_columns(ours[incomplete]):
        pairs = incomplete[which]
        left, right = (
            sides.digests_without(side.table.take(pa.array(rows[pairs])), names)
            for side, rows in ((source, ours), (target, theirs))
        )
        undecided[pairs] = (left[0] == right[0]) & (left[1] == right[1])
    return undecided


def _reads(version: TableVersion, sides: Sides) -> list[Read]:
    """Return functions that read the target, each about ``_UNIT_ROWS`` rows."""
    units: list[list[RowGroup]] = []
    rows_left = 0
    for part in version.parts:
        if rows_left <= 0:
            units.append([])
            rows_left = _UNIT_ROWS
        units[-1].append(part)
        rows_left -= part.rows

    def read(unit: list[RowGroup]) -> Iterator[pa.RecordBatch]:
        try:
            yield from sides.fitted(version.batches(unit, sides.target.names, rows=_BATCH_ROWS))
        except (OSError, pa.ArrowException) as error:
            raise TargetError(f"{version.path} cannot be read: {str(error).splitlines()[0]}") from error

    return [partial(read, unit) for unit in units]


def _chosen(buckets: npt.NDArray[np.int64], differing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the bucket of each row in one that differs, -1 of the others."""
    return np.where(differing[buckets], buckets, -1)


class _Memory:
    """Bytes that may be held. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._left, self._lock = most, threading.Lock()

    def take(self, size: int) -> bool:
        """Take ``size`` more bytes, or give them back if it is negative. Return whether there is room for all."""
        with self._lock:
            self._left -= size
            return self._left >= 0


Held: TypeAlias = "list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]"
"""Rows, and the bucket of each."""


class _HeldRows:
    """Rows of both sides that are held to be compared one to one: all of the buckets below ``end``. If the memory is
    full, ``end`` is halved, and the rows of the other buckets are dropped.
    """

    def __init__(self, memory: _Memory, buckets: int) -> None:
        self.end = buckets
        self._memory, self._taken, self._lock = memory, 0, threading.Lock()
        self._parts: list[tuple[int, Held]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.clear()
        self._account()

    @contextmanager
    def part(self, side: int) -> Iterator[Held]:
        """Hold the rows of a part of a side (0 source, 1 target); drop them if the block fails."""
        held: Held = []
        with self._lock:
            self._parts.append((side, held))
        try:
            yield held
        except BaseException:
            with self._lock:
                self._parts = [one for one in self._parts if one[1] is not held]
                self._account()
            raise

    def add(self, part: Held, batch: pa.RecordBatch, buckets: npt.NDArray[np.int64]) -> None:
        """Hold the rows of a batch that are in a bucket (-1: in none)."""
        with self._lock:
            rows = _below(batch, buckets, self.end)
            part += rows
            size = sum(held.nbytes for held, _ in rows)
            self._taken += size
            fits = self._memory.take(size)
            while not fits and self.end:
                self.end //= 2
                for _, held in self._parts:
                    held[:] = [kept for one in held for kept in _below(*one, self.end)]
                fits = self._account()

    def sides(self, sides: Sides) -> tuple[SideRows, SideRows]:
        """Return the rows of the source, and of the target."""
        source, target = (
            [batch for side, held in self._parts for batch, _ in held if side == number] for number in (0, 1)
        )
        return sides.hold(source, sides.source), sides.hold(target, sides.target)

    def _account(self) -> bool:
        """Take the bytes of the rows, or give back those of dropped rows. Return whether there is room for all."""
        before, self._taken = self._taken, sum(batch.nbytes for _, held in self._parts for batch, _ in held)
        return self._memory.take(self._taken - before)


def _below(batch: pa.RecordBatch, buckets: npt.NDArray[np.int64], end: int) -> Held:
    """Return the rows in the buckets from 0 to ``end``, if there are any."""
    chosen = (buckets >= 0) & (buckets < end)
    return [(batch.filter(pa.array(chosen)), buckets[chosen])] if chosen.any() else []

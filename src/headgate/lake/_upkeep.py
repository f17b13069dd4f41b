"""Upkeep of a lake's tables in parallel with the batches: removes what no reader needs, folds small files.

The ledger determines which versions have to stay readable (``_kept``); for tables that it does not name (itself, the
history of schemas, notifications), the age of their versions does. ``_keeper`` removes the rest.

**The newest ledger row stays readable**, also of an idle table. Nothing that its version needs is removed here. If
another program has compacted the table (commits that change no data), the next ledger row *adopts* its version, so that
the other program's VACUUM does not break the newest row.

**On S3** each look costs requests. A table that no batch has changed is checked again when a version of it is no longer
needed, when it has been idle for long enough to be folded, and each hour, because another program may have compacted
it.

**The writer makes all commits**, between those of its batches: folds that were prepared in parallel. The ledger's
follow its row. The thread of the upkeep only reads tables, removes files, and writes checkpoints of logs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.delta import (
    CODECS,
    LOG,
    DataFile,
    FoldLayout,
    Snapshot,
    checkpointed_version,
    choose_files,
    files_of,
    unsupported_requirements,
    version_at,
    worth_checkpoint,
    write_checkpoint,
)
from headgate.errors import HeadgateError
from headgate.lake._append import table_schema
from headgate.lake._background import Background
from headgate.lake._delta import followed_log
from headgate.lake._folds import Folds
from headgate.lake._form import Form
from headgate.lake._keeper import Amount, TableKeeper, UpkeepTimes
from headgate.lake._kept import KeptVersions, ledger_spans
from headgate.lake._layout import Lake
from headgate.lake._ledger import find_newest, versions_of
from headgate.lake._properties import key_of
from headgate.lake._takeover import retire

if TYPE_CHECKING:
    from headgate.lake._ledger import Ledger, LedgerRow, TableState

__all__ = ["Upkeep", "fold_layout", "internal_tables", "load_kept", "oldest_needed", "small_files"]

log = logging.getLogger("headgate")

ROUND_SECONDS: Final = 120.0
STILL_FILES, _FILES = 4, 16
"""Number of small files of a class that are folded in an idle table, and in others."""
_COMMIT_SECONDS: Final = 0.2
"""Maximum time of a batch for folds of tables that it does not write."""


def internal_tables(lake: Lake) -> list[str]:
    """Return the existing tables that the ledger does not name; the ledger is the first."""
    folders = (lake.ledger, lake.schema_history, lake.notifications)
    return [folder for folder in folders if files_of(folder).has_folder(LOG)]


def fold_layout(table: Snapshot, codec: str) -> FoldLayout | None:
    """Return the layout of a folded file; None: the table's files are not folded here."""
    if table.version < 0 or unsupported_requirements(table) or codec not in CODECS:
        return None
    schema = table_schema(table.schema_json)
    key = key_of(table.properties)
    return None if schema is None else FoldLayout(schema, codec, key, Form.of(table.properties).divides)


def small_files(lake: Lake, folder: str, table: Snapshot, least: int) -> list[DataFile]:
    """Return the files of a table to fold next.

    Leave out the ledger's newest file, so that a reader finds the newest row in a small file.

    :param least: so many small files of a class are enough.
    """
    if folder == lake.ledger:
        newest = max(
            table.files.values(), key=lambda file: int(file.statistics.greatest.get("epoch") or 0), default=None
        )
        table = replace(table, files={path: file for path, file in table.files.items() if file is not newest})
    return choose_files(table, least, Form.of(table.properties).divides)


def oldest_needed(kept: KeptVersions, folder: str, since: float, low: int = 0, high: int | None = None) -> int:
    """Return the oldest version of a table that has to stay readable if the retention began at ``since``.

    :param low: no earlier version has to.
    :param high: the newest version, if known.
    """
    oldest = kept.oldest(folder, since)
    return version_at(folder, since, low, high) if oldest is None else oldest


def load_kept(lake: Lake, since: float, kept: KeptVersions) -> Iterator[None]:
    """Load the rows of the ledger that count if the retention began at ``since``."""
    newest = find_newest(lake)
    places = {} if newest is None else {table: state.place for table, state in newest.tables.items()}
    rows = []
    for span in ledger_spans(lake, since, places):
        if span is None:
            yield
        else:
            rows.append(span)
    kept.load(rows)


class Upkeep:
    """Upkeep of a lake while a pipeline writes to it.

    :param retention_seconds: how long ledger rows stay readable.
    :param codec: of folded files, by Spark's name.
    """

    def __init__(
        self, lake: Lake, retention_seconds: float, codec: str | None = None, times: UpkeepTimes | None = None
    ) -> None:
        self.times = times or UpkeepTimes()
        self._lake, self._retention, self._codec = lake, retention_seconds, (codec or "snappy").lower()
        self.background = Background()
        self.folds = Folds(self.background)
        self.kept = KeptVersions()
        self._is_loaded = False
        self._keepers: dict[str, TableKeeper] = {}
        self._checked: dict[str, tuple[float, int]] = {}
        """Time of the last check of a table, and the oldest version needed then."""
        self._newest: LedgerRow | None = None
        self._tables: dict[str, tuple[str, str]] = {}
        self._adoptable: dict[str, tuple[int, int]] = {}
        self._checkpoints: dict[str, int] = {}
        self._fold_attempts: dict[str, int] = {}
        self._keyed: set[str] = set()
        self._retired_at: dict[str, float] = {}

    @property
    def removed(self) -> Amount:
        """Files removed since the start."""
        return sum((keeper.removed for keeper in list(self._keepers.values())), Amount())

    def start(self) -> None:
        """Start to work in parallel with the batches."""
        self.background.repeat(self.round, ROUND_SECONDS)

    def close(self) -> None:
        """End, and remove what was prepared and not committed."""
        self.background.close()
        self.folds.close()

    def note(self, row: LedgerRow, version: int) -> None:
        """Record a committed batch, which made this version of the ledger."""
        versions: dict[str, int] = {}
        building: dict[str, int] = {}
        before = self._newest.tables if self._newest is not None else {}
        for table, state in row.tables.items():
            if state is before.get(table):
                continue
            if state.successor is not None:
                visible = self._lake.current(table, state.place)
                building[f"{visible}/{state.successor.folder}"] = state.successor.version
            for column, folder, number in versions_of(self._lake, state, state.place):
                versions[folder] = number
                self._tables[folder] = (table, column)
        self._newest = replace(row, tables=dict(row.tables))
        for merged in row.merged:
            versions |= {folder: number for _, folder, number in versions_of(self._lake, merged, merged.place)}
        self.kept.add(row.committed_at.timestamp(), versions, row.shown(self._lake))
        for path, number in (*versions.items(), *building.items(), (self._lake.ledger, version)):
            self._checkpoint(path, number)

    def _checkpoint(self, folder: str, version: int) -> None:
        """Start to write a checkpoint of the log, if it is due; the table is at this version."""
        last = self._checkpoints.get(folder)
        if last is None:
            last = self._checkpoints[folder] = checkpointed_version(folder)
        keeper = self._keepers.get(folder)
        if worth_checkpoint(version - last, None if keeper is None else keeper.history.data_files):
            self._checkpoints[folder] = version
            self.background.submit(partial(write_checkpoint, folder))

    def commit_pending(self, states: Mapping[str, TableState], written: set[str]) -> dict[str, TableState]:
        """Make the waiting commits, and adopt what other programs have compacted. Return the states after that.

        Folds of keyed tables that the batch has written wait: ``_upsert`` commits them before the table's next batch.
        """
        changed = dict(states)
        end = time.monotonic() + _COMMIT_SECONDS
        for folder, key, work in self._waiting():
            table, column = self._tables.get(folder, ("", ""))
            if table not in changed or (key and table in written) or time.monotonic() >= end:
                continue
            made = work()
            if made is not None and getattr(changed[table], column) == made - 1:
                changed[table] = _at(changed[table], column, made)
        while self._adoptable:
            folder, (known, newer) = self._adoptable.popitem()
            table, column = self._tables.get(folder, ("", ""))
            if table in changed and getattr(changed[table], column) == known:
                changed[table] = _at(changed[table], column, newer)
        return changed

    def commit_pending_internal(self, ledger: Ledger) -> None:
        """Make the waiting commits to the ledger and other tables that it does not name."""
        for folder, key, work in self._waiting():
            if folder == self._lake.ledger:
                ledger.fold(work)
            elif folder not in self._tables and not key:
                work()

    def _waiting(self) -> list[tuple[str, tuple[str, ...], Callable[[], int | None]]]:
        """Return the waiting commits: folder, key of a fold, and what makes the commit and returns its version."""
        return [(folder, key, partial(self._commit_fold, folder, key)) for folder, key in self.folds.ready()]

    def _commit_fold(self, folder: str, key: tuple[str, ...]) -> int | None:
        table = followed_log(folder).refresh()
        return table.version + 1 if self.folds.finish(folder, table, key) else None

    def round(self) -> Iterator[None]:
        """Check all tables once; pause now and then."""
        since = time.time() - self._retention
        if not self._is_loaded:
            yield from load_kept(self._lake, since, self.kept)
            self._is_loaded = True
        self.kept.forget(since)
        for folder in [*self.kept.folders(), *internal_tables(self._lake)]:
            if self._lake.is_local or not self._may_rest(folder, since):
                yield from self._maintain_table(folder, since)

    def _may_rest(self, folder: str, since: float) -> bool:
        """Return whether a table needs no work, as far as is known without a look at it."""
        newest, keeper, now = self.kept.newest(folder), self._keepers.get(folder), time.time()
        if newest is None or keeper is None or folder not in self._checked:
            return False
        (committed_at, version), (checked_at, oldest) = newest, self._checked[folder]
        stands_still_now = checked_at < committed_at + self.times.idle <= now
        is_known = version <= keeper.history.version and self.kept.oldest(folder, since) == oldest
        return is_known and not stands_still_now and now - checked_at < self.times.rest

    def _oldest(self, folder: str, since: float, keeper: TableKeeper) -> int:
        if folder not in self._checked or not keeper.history.is_continued():
            return oldest_needed(self.kept, folder, since)
        return oldest_needed(self.kept, folder, since, self._checked[folder][1], keeper.history.version)

    def _maintain_table(self, folder: str, since: float) -> Iterator[None]:
        keeper, now = self._keepers.setdefault(folder, TableKeeper(folder, self.times)), time.time()
        try:
            oldest = self._oldest(folder, since, keeper)
            yield from keeper.follow(oldest)
            self._retire(folder, keeper)
            yield from keeper.clean(oldest)
            self._checkpoint(folder, keeper.history.version)
            self._offer(folder, keeper)
            self._offer_fold(folder, keeper)
            self._checked[folder] = now, oldest
        except (HeadgateError, OSError) as error:
            log.warning("upkeep of %s failed, will retry: %s", folder, error)
        yield

    def _retire(self, folder: str, keeper: TableKeeper) -> None:
        """Retire the table's successors that the newest ledger row does not need, at most once an hour."""
        newest, now = self._newest, time.time()
        if newest is None or now - self._retired_at.get(folder, 0.0) < self.times.listing:
            return
        self._retired_at[folder] = now
        if retire(folder, newest.successors(self._tables.get(folder, ("", ""))[0]), newest.epoch):
            keeper.expect_orphans()

    def _offer(self, folder: str, keeper: TableKeeper) -> None:
        """Let the next ledger row adopt a newer version with the same rows."""
        known = self.kept.newest(folder)
        if known is not None and keeper.history.same_since <= known[1] < keeper.history.version:
            self._adoptable[folder] = (known[1], keeper.history.version)

    def _offer_fold(self, folder: str, keeper: TableKeeper) -> None:
        """Start to fold small files, unless the table's upserts fold them."""
        known = self.kept.newest(folder)
        still = known is not None and time.time() - known[0] >= self.times.idle
        least = STILL_FILES if still else _FILES
        if keeper.history.data_files < least or self._fold_attempts.get(folder) == keeper.history.version:
            return
        if folder in self._keyed and not still:  # its upserts fold it
            return
        table = followed_log(folder).refresh()
        layout = fold_layout(table, self._codec)
        if layout is not None and layout.key:
            self._keyed.add(folder)
            if not still:
                return
        self._fold_attempts[folder] = keeper.history.version
        if layout is None:
            return
        files = small_files(self._lake, folder, table, least)
        self.folds.begin_with(folder, files, layout)


def _at(state: TableState, column: str, version: int) -> TableState:
    return replace(state, version=version) if column == "version" else replace(state, changelog_version=version)

"""Upkeep of the table in one folder, shared by a run (``_upkeep``) and by ``headgate maintain`` (``_maintain``): which
versions have to stay readable, what is removed, and which small files are folded.

Generator methods yield now and then, so that the caller can pause.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.delta import (
    CODECS,
    LOG,
    DataFile,
    FoldLayout,
    Snapshot,
    choose_files,
    files_of,
    successor_log,
    successors,
    unsupported_requirements,
    version_at,
    write_checkpoint,
)
from headgate.lake import MERGED, Form, Lake, find_newest, key_of, measured_columns, table_schema
from headgate.upkeep._file_removal import FileRemover, RunningClock, UpkeepTimes
from headgate.upkeep._retained_versions import RetainedVersions, ledger_spans

if TYPE_CHECKING:
    from headgate.lake import LedgerRow

__all__ = [
    "BEHIND_VERSIONS",
    "IDLE_FILES",
    "TableFiles",
    "TableUpkeep",
    "fold_layout",
    "internal_tables",
    "load_retained",
    "small_files",
]

IDLE_FILES: Final = 4
"""Number of small files of a class that are folded in an idle table."""
BEHIND_VERSIONS: Final = 8
"""Clean a table before its turn when so many of its versions are no longer needed."""


class TableFiles(NamedTuple):
    """Files of a table: of data, of deletion vectors, of the log; the bytes of the first two."""

    data: int
    vectors: int
    log: int
    bytes: int


def internal_tables(lake: Lake) -> list[str]:
    """Return the existing tables that the ledger does not name; the ledger is the first."""
    folders = (lake.ledger, lake.schema_history, lake.notifications)
    return [folder for folder in folders if files_of(folder).has_folder(LOG)]


def fold_layout(table: Snapshot, codec: str) -> FoldLayout | None:
    """Return the layout of a folded file; None: the table's files are not folded here."""
    if table.version < 0 or unsupported_requirements(table) or codec not in CODECS:
        return None
    schema = table_schema(table.schema_json)
    if schema is None:
        return None
    return FoldLayout(
        schema,
        codec,
        key_of(table.properties),
        Form.of(table.properties).divides,
        cluster_by=table.clustering,
        measured=measured_columns(table.properties),
        leaves=table.indexed_leaves,
    )


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


def load_retained(lake: Lake, since: float, retained: RetainedVersions) -> Iterator[None]:
    """Load the rows of the ledger that count if the retention began at ``since``."""
    newest = find_newest(lake)
    places = {} if newest is None else {table: state.place for table, state in newest.tables.items()}
    rows = []
    for span in ledger_spans(lake, since, places):
        if span is None:
            yield
        else:
            rows.append(span)
    retained.load(rows)


class TableUpkeep:
    """Upkeep of the table in one folder. One thread at a time may call :meth:`clean`.

    :param source: the source table, and the ledger's column that has the folder's version; None: the ledger does not
        name the folder.
    :param dry: only count the files that would be removed.
    :param clock: of the run that writes the table.
    """

    def __init__(
        self,
        folder: str,
        retained: RetainedVersions,
        times: UpkeepTimes | None = None,
        source: tuple[str, str] | None = None,
        *,
        dry: bool = False,
        clock: RunningClock | None = None,
    ) -> None:
        self.folder, self.source = folder, source
        self.times = times or UpkeepTimes()
        self.remover = FileRemover(folder, self.times, dry=dry, clock=clock)
        self.adoptable: tuple[int, int] | None = None
        """A version that the ledger names, and a newer one with the same rows, which the next row adopts."""
        self.checkpointed: int | None = None
        """Version of the log's newest checkpoint, once it was looked for."""
        self.fold_tried: int | None = None
        """Version for which a fold was last considered."""
        self.is_keyed = False
        """Whether the table's upserts fold it, unless it is idle."""
        self._retained = retained
        self._cleaned: tuple[float, int] | None = None
        """Time of the last cleaning, and the oldest version needed then."""
        self._retired_at = 0.0

    def is_idle(self, now: float) -> bool:
        """Return whether the ledger has named no new version for :attr:`UpkeepTimes.idle` seconds."""
        newest = self._retained.newest(self.folder)
        return newest is not None and now - newest[0] >= self.times.idle

    def may_rest(self, since: float) -> bool:
        """Return whether the table needs no work, as far as is known without a request to its store.

        :param since: when the retention began.
        """
        newest, now = self._retained.newest(self.folder), time.time()
        if newest is None or self._cleaned is None:
            return False
        (committed_at, version), (cleaned_at, oldest) = newest, self._cleaned
        is_idle_now = cleaned_at < committed_at + self.times.idle <= now
        is_known = version <= self.remover.history.version and self._retained.oldest(self.folder, since) == oldest
        return is_known and not is_idle_now and now - cleaned_at < self.times.rest

    def is_behind(self, since: float) -> bool:
        """Return whether many versions are no longer needed since the last cleaning; also before the first one in this
        run, which finds out how many files the table has.

        :param since: when the retention began.
        """
        oldest = self._retained.oldest(self.folder, since)
        return oldest is not None and (self._cleaned is None or oldest - self._cleaned[1] >= BEHIND_VERSIONS)

    def checkpoint(self) -> None:
        """Write a checkpoint of the log."""
        version = write_checkpoint(self.folder)
        if version is not None:
            self.remover.log.note_checkpoint(version, time.time())

    @property
    def is_counted(self) -> bool:
        """Whether its files are known, and its own: not those of the tables that it shows."""
        return self.remover.history.version >= 0 and MERGED not in self.remover.history.properties

    def files(self) -> TableFiles:
        """Return the files that existed at the last cleaning, those included that only older versions need."""
        history = self.remover.history
        return TableFiles(
            history.existing_data_files, history.vectors, self.remover.log.count(history.version), max(0, history.bytes)
        )

    def clean(self, since: float, newest: LedgerRow | None) -> Iterator[None]:
        """Remove what no version needs that has to stay readable if the retention began at ``since``.

        :param newest: the newest ledger row, if known: successors that it does not name are retired.
        """
        now, oldest, known = time.time(), self._oldest(since), self.remover.history
        yield from self.remover.follow(oldest)
        if self.remover.history is not known:  # of another table, which perhaps took its place just now
            self._cleaned = None
            oldest = self._oldest(since)
        if newest is not None:
            yield from self._retire(newest, now)
        yield from self.remover.clean(oldest, since)
        self._cleaned = now, oldest

    def _oldest(self, since: float) -> int:
        """Return the oldest version that has to stay readable."""
        oldest = self._retained.oldest(self.folder, since)
        if oldest is not None:
            return oldest
        history = self.remover.history
        if self._cleaned is None or not history.is_continued():
            return version_at(self.folder, since)
        return version_at(self.folder, since, self._cleaned[1], history.version)

    def _retire(self, newest: LedgerRow, now: float) -> Iterator[None]:
        """Retire the table's successors that the newest ledger row does not need, at most once an hour."""
        if now - self._retired_at < self.times.listing:
            return
        in_use = () if self.source is None else newest.successors(self.source[0])
        ended = [name for name in successors(self.folder, newest.epoch) if name not in in_use]
        files = [file for name in ended for file in successor_log(self.folder, name)]
        self._retired_at = now
        yield from self.remover.retire(files)

    def offer(self) -> None:
        """Let the next ledger row adopt a newer version with the same rows."""
        known, history = self._retained.newest(self.folder), self.remover.history
        if known is not None and history.same_since <= known[1] < history.version:
            self.adoptable = (known[1], history.version)

    def take_adoptable(self) -> tuple[int, int] | None:
        """Return :attr:`adoptable`, once."""
        taken, self.adoptable = self.adoptable, None
        return taken

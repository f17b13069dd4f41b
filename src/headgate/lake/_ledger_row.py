"""A row of the ledger: a batch, and for each table what it holds after it and at which versions.

The columns of the ledger are the fields of these records (``_records``). ``_ledger`` has the ledger itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from headgate.control import Notification, OpenSnapshots
from headgate.lake._ignored import IgnoredChanges
from headgate.lake._layout import Lake
from headgate.lake._places import Place
from headgate.lake._records import JSON, ddl_of, read_record, write_record
from headgate.lake._states import SUSPENDED
from headgate.offsets import Last, SinkPosition

__all__ = ["LEDGER_DDL", "LedgerRow", "LeftOut", "MergedState", "ShownShard", "Successor", "TableState", "versions_of"]


@dataclass(frozen=True)
class Successor:
    """The table that is being built to replace a current table (``headgate.delta``)."""

    folder: str
    """Its folder, in the current table's."""
    version: int
    """Its Delta version after the batch."""


@dataclass(frozen=True)
class LeftOut:
    """Images that contradict their table and were left out since all of its rows were read."""

    reason: str
    """Why the first of them were."""
    since: str
    """GTID set up to which none were left out."""
    changes: int = 0
    """How many changes; those of unknown columns are not counted."""

    @property
    def text(self) -> str:
        """What was left out, since when, and why."""
        return f"{f'{self.changes:,} ' if self.changes else ''}changes left out since {self.since}: {self.reason}"


@dataclass(frozen=True)
class TableState:
    """One table in a ledger row.

    | ``state`` | what the current table holds |
    |---|---|
    | ``snapshotting`` | some rows only: it is being read; with ``successor`` what it held before that |
    | ``settling`` | all rows, some newer than the row's GTID set or missing, until ``settles_at`` is applied |
    | ``live`` | exactly the source's rows as of the row's GTID set, in the columns that ``ignored`` leaves it |
    | ``inexact`` | every change of the log but what the configuration skips (``unlogged``, ``left_out``); it may accept
    others, which are not in the log (``unlogged``) |
    | ``filtered`` | the rows that met the table's condition when read, and every change since |
    | ``stale`` | what it held when images stopped; waits to be read again |
    | ``stopped`` | what it held when images stopped; suspended until a user requests a re-read |
    | ``excluded`` | what it held when ``source.tables`` left it out; included again, it is read again |
    | ``dropped`` | what it held when the source dropped or renamed it; created again, it is read again |
    """

    table: str
    state: str
    version: int | None = None  # Delta version of the current table
    changelog_version: int | None = None  # Delta version of the changelog
    since_epoch: int | None = None  # first epoch of the running snapshot, if the current table gets its rows
    held_epoch: int | None = None
    """Suspended: since this epoch; a later re-read resumes it. While that re-read runs: rows from before it lack the
    changes since this epoch."""
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None
    images: int = 0  # images and snapshot rows of this batch
    reason: str | None = None  # settling, inexact, suspended: why; stopped: also the remedy
    settles_at: str | None = None
    """GTID set still to be applied before rows that were kept or dropped while they were read (window ``keep``,
    ``drop``) are exact; None: nothing."""
    unlogged: str | None = None
    """Why rows change without images, or images are skipped, by the configuration; kept until all rows are read
    without that."""
    place: Place | None = None
    """Where the table is in the lake, if a route gives it another name."""
    successor: Successor | None = None
    """Takes the batches' rows while the table is read again with other columns. ``version`` is still the current
    table's, which stays as it was before."""
    hook: str | None = None
    """``module:function@version`` of the hook that made the columns of the newest images; None: none did."""
    left_out: LeftOut | None = None
    """Images that were left out because they contradict the table; kept until all rows are read again."""
    ignored: IgnoredChanges = field(default_factory=IgnoredChanges, metadata=JSON)
    """Changes of the source's columns that the current table does not follow, by ``[schema_changes]``."""
    unmasked: tuple[str, ...] = ()
    """Columns at the source whose values a rule hid, until an ALTER gave them these names. The table is stopped until
    no row that is read shows their values without a rule that names them."""

    @property
    def name(self) -> str:
        """The table's name in the lake."""
        return self.table if self.place is None else self.place.table

    @property
    def is_suspended(self) -> bool:
        """Whether images of this table are not applied."""
        return self.state in SUSPENDED

    @property
    def is_read(self) -> bool:
        """Whether all wanted rows of the table were read."""
        return self.state in ("settling", "live", "inexact", "filtered")


@dataclass(frozen=True)
class ShownShard:
    """A source table in a merged one: the versions of its own Delta tables that the merged ones show.

    :param shard: the value of the shard column.
    """

    table: str
    shard: str
    version: int | None = None
    changelog_version: int | None = None


@dataclass(frozen=True)
class MergedState:
    """A merged table in a ledger row.

    :param table: its name in the lake.
    :param path: the folder or URI below which it is; None: the lake's.
    :param version: of the Delta table with the rows; None: there is none.
    :param reason: why the newest batches do not show; None: they do.
    """

    table: str
    path: str | None = None
    version: int | None = None
    changelog_version: int | None = None
    reason: str | None = None
    shards: tuple[ShownShard, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the lake."""
        return self.table

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.table, path=self.path)

    def shown(self, column: str) -> dict[str, int]:
        """Return the version of each shard that is shown, by source table.

        :param column: ``version`` or ``changelog_version``.
        """
        versions = {one.table: getattr(one, column) for one in self.shards}
        return {table: version for table, version in versions.items() if version is not None}


@dataclass(frozen=True)
class LedgerRow:
    """One committed batch: all tables, at their versions, are the source as of ``gtid``."""

    batch_id: int
    epoch: int
    gtid: str
    committed_at: datetime
    tables: dict[str, TableState] = field(default_factory=dict)
    snapshots: OpenSnapshots = field(default_factory=OpenSnapshots, metadata=JSON)
    """Snapshots that are open after the batch."""
    notifications: tuple[Notification, ...] = field(default=(), metadata=JSON)
    """Notifications of the batch."""
    merged: tuple[MergedState, ...] = ()
    """The merged tables that some of the tables are part of."""
    server_uuid: str = ""
    """Of the server that the batch was planned on."""
    last: Last | None = None
    """The newest transaction in ``gtid``, by which a stream that resumes knows the history again; None: unknown."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> LedgerRow:
        """Convert a row of the ledger's table."""
        return read_record(cls, value)

    @property
    def applied(self) -> SinkPosition:
        """Where a stream without its checkpoint resumes."""
        return SinkPosition(self.gtid, self.server_uuid, self.last)

    def columns(self) -> dict[str, Any]:
        """Return the ledger's columns, in the order of ``LEDGER_DDL``; structs are dictionaries."""
        return write_record(self)

    def named(self, name: str) -> list[TableState]:
        """Return the tables that have this name in the lake: several, if they are merged."""
        return [state for state in self.tables.values() if state.name == name]

    def delta_tables(self, lake: Lake, column: str) -> Iterator[tuple[str, str, int]]:
        """Yield name, folder and version of the Delta tables that users read: merged tables, and not their shards.

        :param column: ``version``: those with rows; ``changelog_version``: changelogs.
        """
        named = (one for one in self.tables.values() if one.place is None or one.place.shard is None)
        read: list[TableState | MergedState] = [*named, *self.merged]
        for one in read:
            for kind, folder, version in versions_of(lake, one, one.place):
                if kind == column:
                    yield one.name, folder, version

    def shown(self, lake: Lake) -> dict[str, int]:
        """Return by folder the versions of shards that merged tables show."""
        shards = [shard for merged in self.merged for shard in merged.shards if shard.table in self.tables]
        return {
            folder: version
            for shard in shards
            for _, folder, version in versions_of(lake, shard, self.tables[shard.table].place)
        }

    def successors(self, table: str) -> tuple[str, ...]:
        """Return the folder of a table's successor, if one is being built."""
        state = self.tables.get(table)
        return (state.successor.folder,) if state is not None and state.successor is not None else ()


def versions_of(
    lake: Lake, of: TableState | MergedState | ShownShard, place: Place | None
) -> Iterator[tuple[str, str, int]]:
    """Yield the ledger's column, folder and version of each Delta table of a source table or a merged one."""
    for column, folder in lake.delta_tables(of.table, place).items():
        version = getattr(of, column)
        if version is not None:
            yield column, folder, version


LEDGER_DDL: Final = ddl_of(LedgerRow)

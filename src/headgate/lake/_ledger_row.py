"""A row of the ledger: a batch, and for each table what it holds after it and at which versions.

The columns of the ledger are these records, as Spark's types: a record is a struct. ``_ledger`` has the ledger itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import datetime
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

from headgate.control import Notification, OpenSnapshots
from headgate.lake._ignored import IgnoredChanges
from headgate.lake._layout import Lake
from headgate.lake._places import Place
from headgate.lake._states import SUSPENDED
from headgate.offsets import Last, SinkPosition

__all__ = [
    "LEDGER_DDL",
    "LedgerRow",
    "LeftOut",
    "MergedState",
    "ShownShard",
    "Successor",
    "TableState",
    "parse_notifications",
    "versions_of",
]


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
    ignored: IgnoredChanges = field(default_factory=IgnoredChanges)
    """Changes of the source's columns that the current table does not follow, by ``[schema_changes]``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of the ledger for the table."""
        return {**asdict(self), "ignored": self.ignored.to_json()}

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

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> MergedState:
        """Convert a value of the ledger's column."""
        return cls(**{**value, "shards": tuple(ShownShard(**one) for one in value["shards"] or ())})

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
    snapshots: OpenSnapshots = field(default_factory=OpenSnapshots)
    """Snapshots that are open after the batch."""
    notifications: tuple[Notification, ...] = ()
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
        states = [_state(item) for item in value["tables"]]
        opened = value.get("snapshots")
        return cls(
            value["batch_id"],
            value["epoch"],
            value["gtid"],
            value["committed_at"],
            {state.table: state for state in states},
            OpenSnapshots.from_dict(json.loads(opened)) if opened else OpenSnapshots(),
            parse_notifications(value.get("notifications")),
            tuple(map(MergedState.of, value.get("merged") or ())),
            value.get("server_uuid") or "",
            Last(**last) if (last := value.get("last")) else None,
        )

    @property
    def applied(self) -> SinkPosition:
        """Where a stream without its checkpoint resumes."""
        return SinkPosition(self.gtid, self.server_uuid, self.last)

    def values(self) -> tuple[Any, ...]:
        """Return the values of the ledger's columns, in the order of ``LEDGER_DDL``."""
        tables = [state.to_dict() for _, state in sorted(self.tables.items())]
        opened = json.dumps(self.snapshots.to_dict()) if self.snapshots != OpenSnapshots() else None
        notifications = json.dumps([one.to_dict() for one in self.notifications]) if self.notifications else None
        merged = [asdict(one) for one in self.merged] or None
        last = asdict(self.last) if self.last is not None else None
        more = (tables, opened, notifications, merged, self.server_uuid, last)
        return (self.batch_id, self.epoch, self.gtid, self.committed_at, *more)

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


def _column_type(kind: Any) -> str:
    """Return the Spark type of a field: a record is a struct, a tuple an array; ignored changes are kept as JSON."""
    kind = next((one for one in get_args(kind) if NoneType in get_args(kind) and one is not NoneType), kind)
    if get_origin(kind) is tuple:
        return f"array<{_column_type(get_args(kind)[0])}>"
    if not is_dataclass(kind) or kind is IgnoredChanges:
        return "bigint" if kind is int else "string"
    types = get_type_hints(kind)
    return f"struct<{', '.join(f'{one.name} {_column_type(types[one.name])}' for one in fields(kind))}>"


LEDGER_DDL: Final = (
    f"batch_id bigint, epoch bigint, gtid string, committed_at timestamp, tables array<{_column_type(TableState)}>, "
    f"snapshots string, notifications string, merged array<{_column_type(MergedState)}>, "
    f"server_uuid string, last {_column_type(Last)}"
)


def _state(item: Mapping[str, Any]) -> TableState:
    successor = item.get("successor")
    built = None if successor is None else Successor(**successor)
    left_out = LeftOut(**item["left_out"]) if item.get("left_out") is not None else None
    ignored = IgnoredChanges.from_json(item.get("ignored"))
    made = {"place": Place.of(item.get("place")), "successor": built, "left_out": left_out, "ignored": ignored}
    return TableState(**{**item, "images": item.get("images") or 0, **made})


def parse_notifications(text: str | None) -> tuple[Notification, ...]:
    """Return the notifications of a row from the text of their column."""
    return tuple(Notification.from_dict(one) for one in json.loads(text)) if text else ()

"""Merged tables: one Delta table that has the rows of several source tables, its shards.

A shard is written like any other table, in a folder of its own (``_places``). After the tables of a batch have been
written, and before the ledger row, one commit makes the merged table equal to its shards (``headgate.delta``,
``_union``). If nobody else has committed to it, only files of the shards that the batch changed are compared. So every
sink, upsert, re-read and comparison works on one source table, and the merged table costs one more commit a batch,
however many rows change.

**Consistent reads.** The ledger row has the version of the merged table at which each shard of the pipeline is as of
the row's GTID set. If several pipelines share a merged table, each commits its own shards, under the marker
``headgate/<pipeline>/merged`` with the batch's epoch. So a version of the merged table says which batch of each
pipeline it shows (:func:`epochs_shown`), and that batch's row in the pipeline's ledger has the GTID set.

**Streams** of a merged changelog get each change once. Files that were only folded count as no changes: folds of a
shard are committed after the merged table has shown their rows. (If another program compacts a shard between a batch's
append and this commit, streams miss the rows of that append; the table has them.)

**On restart** the commit is repeated. It changes nothing if the merged table shows its shards already.

**Shards whose columns differ** cannot be in one table: a column has one type. Then the merged table stays as it is, and
says why, until the shards agree: in the middle of a migration it shows no mixture. Files that it needs until then are
kept: the row also has the versions of the shards that it shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.config import SHARD_COLUMN
from headgate.delta import (
    RETENTION_PROPERTIES,
    CommitPlan,
    DifferentColumnsError,
    Snapshot,
    TableLog,
    UnionLayout,
    UnionPart,
    changed_files,
    commit,
    snapshot_at,
    union_actions,
)
from headgate.errors import TargetError
from headgate.lake._delta import followed_log
from headgate.lake._layout import Lake
from headgate.lake._ledger_row import MergedState, ShownShard, TableState
from headgate.lake._marker import Marker, check_order
from headgate.lake._properties import MERGED, key_of, key_property
from headgate.lake._write_methods import check_union

__all__ = ["MergedTables", "epochs_shown"]

_START, _END = "headgate/", "/merged"
"""Of the name of a pipeline's transaction marker; the pipeline's name is in between."""
_FIRST_OF_LAST: Final = {"version": "_seq", "changelog_version": "_before"}
"""By kind of table the column before which columns of single shards come."""


class MergedTables:
    """Writer of the merged tables of one pipeline."""

    def __init__(self, lake: Lake, pipeline: str) -> None:
        self._lake, self._application = lake, f"{_START}{pipeline}{_END}"
        self._read: dict[str, Snapshot] = {}
        """The shards' tables as they were last read, by folder."""

    def check(self, shown: Iterable[MergedState]) -> None:
        """Check that headgate can write merged tables.

        :param shown: as the last row of the ledger has them.
        :raises TargetError: it cannot write one.
        """
        for merged in shown:
            for column, folder in self._lake.delta_tables(merged.table, merged.place).items():
                if getattr(merged, column) is not None:
                    check_union(folder, followed_log(folder).refresh(files=False))

    def show(
        self, states: Mapping[str, TableState], before: Iterable[MergedState], epoch: int
    ) -> tuple[MergedState, ...]:
        """Make each merged table show its shards, and return its state.

        :param states: of the source tables after the batch.
        :param before: the merged tables of the last row.
        :raises CommitConflictError: other programs changed a merged table, again and again.
        """
        known = {(one.path, one.table): one for one in before}
        groups: dict[tuple[str | None, str], list[TableState]] = {}
        for state in states.values():
            if state.place is not None and state.place.shard is not None:
                groups.setdefault((state.place.path, state.place.table), []).append(state)
        return tuple(
            self._show(known.get((path, table), MergedState(table, path)), shards, epoch)
            for (path, table), shards in sorted(groups.items(), key=str)
        )

    def _show(self, merged: MergedState, shards: Sequence[TableState], epoch: int) -> MergedState:
        values = {one.table: one.place.shard or "" for one in shards if one.place is not None}
        gone = {one.shard for one in merged.shards} - {*values.values()}
        merged = replace(merged, reason=None)
        for column in _FIRST_OF_LAST:
            try:
                merged = self._show_one(merged, column, shards, gone, epoch)
            except DifferentColumnsError as error:
                merged = replace(merged, reason=f"is as of an earlier batch, because its tables differ: {error}")
        if gone and merged.reason is None:
            kept = (one for one in merged.shards if one.table in values)
            merged = replace(merged, shards=tuple(replace(one, shard=values[one.table]) for one in kept))
        return merged

    def _show_one(
        self, merged: MergedState, column: str, shards: Sequence[TableState], gone: Collection[str], epoch: int
    ) -> MergedState:
        """Show the shards' tables of one kind.

        :param gone: values of the shard column that no table has any more.
        :raises DifferentColumnsError: their columns have no common form.
        :raises TargetError: headgate cannot write the merged table, or a later batch has written it.
        """
        marker = Marker(self._application, epoch)
        wanted = {one.table: version for one in shards if (version := getattr(one, column)) is not None}
        shown = merged.shown(column)
        if column == "version" and any(one.is_read and one.version is None and one.table in shown for one in shards):
            return replace(merged, version=None)  # target.mode left out the changes of one
        if wanted == shown and not (shown and gone) and (not wanted or getattr(merged, column) is not None):
            return merged
        parts = {one.table: self._part(one, column, shown) for one in shards if one.table in wanted}
        folder = self._lake.delta_tables(merged.table, merged.place)[column]
        shard_column = (shards[0].place and shards[0].place.column) or SHARD_COLUMN
        layout = UnionLayout(shard_column, _FIRST_OF_LAST[column], _properties(shard_column, parts.values()))
        same = [] if gone else [parts[table].value for table, version in wanted.items() if shown.get(table) == version]

        union = Snapshot()

        def plan() -> CommitPlan | None:
            nonlocal union
            union = followed_log(folder).refresh()
            if union.version >= 0 and MERGED not in union.properties:
                raise TargetError(
                    f"{folder} is a table that is not merged from others: choose another name in [routes]"
                )
            if union.version >= 0:
                check_union(folder, union)
            check_order(folder, union.transactions, marker)
            unchanged = same if union.version == getattr(merged, column) else []
            actions = union_actions(union, layout, [*parts.values()], gone, unchanged)
            about = {"outputMode": "Update", "epochId": str(epoch)}
            return CommitPlan(union, [*actions, marker.action()], "STREAMING UPDATE", about) if actions else None

        done = commit(followed_log(folder), plan)
        version = union.version if done is None else done.version
        after = {one.table: one for one in merged.shards}
        for table, part in parts.items():
            versions: dict[str, Any] = {column: part.table.version}
            after[table] = replace(after.get(table, ShownShard(table, part.value)), **versions)
        made: dict[str, Any] = {column: version}
        return replace(merged, **made, shards=tuple(after[table] for table in sorted(after)))

    def _part(self, state: TableState, column: str, shown: Mapping[str, int]) -> UnionPart:
        """Return a shard's newest version, which is that of the batch: only headgate writes it. Its log is read only if
        the batch changed it.
        """
        place = state.place
        if place is None or place.shard is None or place.folder is None:
            raise ValueError(f"{state.table} is no shard")
        folder = self._lake.delta_tables(state.table, place)[column]
        table = self._read.get(folder)
        if table is None or table.version != getattr(state, column):
            table = self._read[folder] = followed_log(folder).refresh()
        if table.version < 0:
            raise DifferentColumnsError(f"the folder of {state.table} is gone")
        known = shown.get(state.table)
        changed = {} if known is None else changed_files(folder, known, table.version)
        return UnionPart(place.shard, place.folder, table, changed)


def _properties(shard_column: str, parts: Iterable[UnionPart]) -> dict[str, str]:
    """Return the properties of a merged table; it has a key if its shards have the same one."""
    keys = {key_of(part.table.properties) for part in parts}
    key = key_property((shard_column, *keys.pop())) if len(keys) == 1 else {}
    return {MERGED: "true", **key, **RETENTION_PROPERTIES}


def epochs_shown(folder: str, version: int | None = None) -> dict[str, int]:
    """Return by pipeline the epoch of the batch that a version of a merged table shows.

    :param folder: the folder or URI of the Delta table.
    :param version: by default the newest.
    :raises TargetError: there is no such version.
    """
    table = TableLog(folder).refresh(files=False) if version is None else snapshot_at(folder, version, files=False)
    return {
        name.removeprefix(_START).removesuffix(_END): epoch
        for name, epoch in table.transactions.items()
        if name.startswith(_START) and name.endswith(_END)
    }

"""``current``: one Delta table per source table, one row per key, equal to the source as of the batch's E.

``decide.actions`` lists what a batch does to it, and why a replay is safe; for keyless tables: ``_keyless``. While the
table is made again, the batch's actions are on its successor.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from headgate.apply._complete import Completed
from headgate.apply._expand import (
    HEADGATE_COLUMNS,
    append_once,
    changed_rows,
    completed_changes,
    counted_changes,
    image_rows,
    row_columns,
    version_changes,
    whole_table,
)
from headgate.apply._keyless import ROW_DDL
from headgate.apply._proof import key_problem
from headgate.apply._rewrite import reshape
from headgate.apply._row_changes import Ending, Marking
from headgate.apply._upsert import Upserts
from headgate.carrier import TABLE_META_DDL
from headgate.decide import actions as do
from headgate.decide.actions import Action, ColumnAction, TableContent
from headgate.delta import NewColumn
from headgate.lake import (
    PIPELINE,
    ROW_HASH,
    TABLE,
    DeltaPath,
    Fill,
    Form,
    Marker,
    Successor,
    TableLayout,
    Target,
    WriteMethod,
    begin_successor,
    description_of,
    key_of,
    schema_of,
    spark_schema,
    take_over,
)
from headgate.names import quote_name

__all__ = ["Applied", "CurrentTable"]

log = logging.getLogger("headgate")


_FIRST = (0, 0, 0)
"""File, position and ordinal: the lowest of an epoch."""
# Another program that commits then writes a checkpoint of the log, which takes Spark seconds (its default: 10 commits).
_CHECKPOINT_INTERVAL = "50"


@dataclass(frozen=True)
class Applied:
    """Result of a batch's actions."""

    version: int | None  # the table's version after them; None: there is no table
    successor: Successor | None = None  # the table that takes the rows of the next batches instead, if there is one
    reread_reason: str | None = None  # why the table lacks rows and must be read again, if it does
    stop_reason: str | None = None  # why no re-read would help, if it has other rows than the source
    write_methods: frozenset[WriteMethod] = frozenset()  # how rows were written


class CurrentTable:
    """The current table of one source table.

    :param visible: the table that readers see.
    :param upserts: writes rows.
    :param form: the table's form, as its policy says. Rows are written only to a table that was made so. Removals ask
        the table: a batch without rows of it compares nothing with the policy.
    :param successor: the one that is being built, if any.
    :param layout: the table's, which each batch that writes the table follows.
    """

    def __init__(
        self,
        visible: DeltaPath,
        pipeline: str,
        table: str,
        upserts: Upserts,
        form: Form = Form.PLAIN,
        successor: Successor | None = None,
        layout: TableLayout = TableLayout(),  # noqa: B008 - a frozen value
    ) -> None:
        self.visible = visible
        self.delta = visible if successor is None else visible.inside(successor.folder)
        """The table that the batch writes: the successor while there is one."""
        self.pipeline = pipeline
        self.table = table
        self._writer = upserts
        self._form = form
        self._layout = layout
        self._planned_us = 0
        self._reread_reason: str | None = None
        self._stop_reason: str | None = None
        self._write_methods: set[WriteMethod] = set()

    def describe(self) -> Target | None:
        """Return columns and key of the table, or of its successor; None if there is none yet.

        :raises TargetError: it is not ours, or headgate cannot write it.
        """
        snapshot = self.visible.check_ours(self.pipeline, self.table, deletes=True)
        if snapshot is None:
            return None
        if self._has_successor and self.delta.exists():
            snapshot = self.delta.writable(deletes=True)
        key, form = key_of(snapshot.properties), Form.of(snapshot.properties)
        headgate_columns = (*HEADGATE_COLUMNS, *(() if key else (ROW_HASH,)), *form.columns)
        types = {
            f.name: f.dataType.simpleString() for f in schema_of(snapshot).fields if f.name not in headgate_columns
        }
        return Target.of(types, snapshot.properties)

    @property
    def has_other_layout(self) -> bool:
        """Whether the table that the batch writes has another layout than it should."""
        return self.delta.has_other_layout(self._layout)

    def apply(self, actions: Iterable[Action], epoch: int, planned_us: int = 0) -> Applied:
        """Carry out a batch's actions in order.

        :param planned_us: when the batch was planned, µs since 1970 UTC: the end of versions without a known one.
        :raises TargetError: headgate cannot write the table, or the batch removes rows of a keyless, exact table that
            the table does not have.
        """
        self._planned_us = planned_us
        for action in actions:
            if self._has_successor and not isinstance(action, do.Create) and not self.delta.exists():
                self._reread_reason = f"the rows that were read are gone, with {self.delta.path}"
                break
            self._perform(action, epoch)
            if isinstance(action, do.Reshape | do.AddColumns):
                self.delta.arrange(self._layout)  # the rows that follow have statistics of the clustering columns
        if self._reread_reason is None:
            self.delta.arrange(self._layout)
        return self._result()

    @property
    def _has_successor(self) -> bool:
        return self.delta != self.visible

    def _result(self) -> Applied:
        version, successor = self.delta.known().version, None
        if self._has_successor:
            successor = Successor(self.delta.path.rpartition("/")[2], version)
            version = self.visible.known().version
        number = version if version >= 0 else None
        return Applied(number, successor, self._reread_reason, self._stop_reason, frozenset(self._write_methods))

    def _perform(self, action: Action, epoch: int) -> None:
        """Carry out one action."""
        match action:
            case do.Create() | do.Reshape() | do.AddColumns() | do.NoteTypes() | do.FillColumns() | do.Describe():
                self._change_columns(action, epoch)
            case do.TakeOver():
                self._take_over()
            case do.Truncate() | do.DropStrays() | do.Sweep() if self.delta.exists():
                self._delete(action, epoch)
            case do.Append() | do.AppendVersions() | do.Upsert() if not any(part.images for part in action.parts):
                pass
            case do.Append():
                self._append(action, epoch)
            case do.UpsertPartial():
                self._upsert_partial(action)
            case do.Upsert():
                self._upsert(action)
            case do.AppendVersions():
                self._append_versions(action, epoch)
            case do.ProveKey():
                self._stop_reason = key_problem(self.delta, action)
            case do.Overwrite() | do.Count():
                self._count(action, epoch)

    # --- the table itself

    def _change_columns(self, action: ColumnAction, epoch: int) -> None:
        match action:
            case do.Create():
                self._create(action, epoch)
            case do.Reshape():
                definition = action.definition
                gone = action.dropped, action.kept
                reshape(self.delta, definition.types, *gone, action.renamed)
            case do.AddColumns():
                self._add_columns(action)
            case do.NoteTypes():
                self.delta.set_properties(action.target.properties)
            case do.FillColumns():
                self._fill(action, epoch)
            case do.Describe() if self.delta.known().version >= 0:
                self.delta.describe(description_of(action.definition))

    def _create(self, action: do.Create, epoch: int) -> None:
        definition = action.definition
        self.delta = begin_successor(self.visible, epoch) if action.replace else self.visible
        properties = {
            PIPELINE: self.pipeline,
            TABLE: self.table,
            "delta.enableDeletionVectors": "true",
            "delta.checkpointInterval": _CHECKPOINT_INTERVAL,
            **action.target.properties,
        }
        headgate_ddl = TABLE_META_DDL if definition.key else f"{TABLE_META_DDL}, {ROW_DDL}"
        schema = spark_schema(f"{definition.ddl}, {headgate_ddl}{action.target.form.ddl}")
        description = description_of(definition, required=definition.required)
        self.delta.create(schema, properties, self._layout, description)

    def _take_over(self) -> None:
        """Let the successor take the table's place, unless the batch found that it has other rows than the source."""
        if not self._has_successor or self._reread_reason is not None or self._stop_reason is not None:
            return
        take_over(self.visible, self.delta)
        self._writer.forget(self.delta)
        self.delta = self.visible

    def _add_columns(self, action: do.AddColumns) -> None:
        types = action.definition.types
        after = dict(zip(types, ["", *types], strict=False))
        if action.names:
            columns = [NewColumn(name, types[name], after=after[name]) for name in action.names]
            self.delta.add_columns(columns, action.target.properties)

    def _fill(self, action: do.FillColumns, epoch: int) -> None:
        ddl = ", ".join(f"{quote_name(name)} {action.definition.types[name]}" for name in action.values)
        fill = Fill(action.values, ddl, epoch, open_only=self._form is Form.HISTORY)
        self._writer.fill(self.delta, fill)

    def _delete(self, action: do.RemovalAction, epoch: int) -> None:
        properties = self.delta.snapshot().properties
        form, key = Form.of(properties), key_of(properties)
        if form is Form.HISTORY:
            self._end(action, epoch, key)
        elif form is Form.MARKED:
            self._mark(action, epoch, key)
        else:
            first, end = _epochs(action, epoch)
            bound = action.bound if isinstance(action, do.Truncate) else (end, *_FIRST)
            self._writer.clear(self.delta, bound, key, since=first)

    def _mark(self, action: do.RemovalAction, epoch: int, key: Sequence[str]) -> None:
        """Mark the rows instead; ``decide.actions`` argues why a replay may repeat it."""
        self._writer.change_rows(self.delta, Marking(*_epochs(action, epoch), (epoch, *_FIRST)), key)

    def _end(self, action: do.RemovalAction, epoch: int, key: Sequence[str]) -> None:
        """End the versions instead; ``decide.actions`` argues why a replay may repeat it."""
        ending = Ending(*_epochs(action, epoch), (epoch, *_FIRST), None, self._planned_us)
        if isinstance(action, do.Truncate):
            at_us = ending.at_us if action.at_us is None else action.at_us
            ending = replace(ending, seq=action.bound, gtid=action.gtid, at_us=at_us)
        self._writer.change_rows(self.delta, ending, key)

    # --- rows

    def _append(self, action: do.Append, epoch: int) -> None:
        columns, rows = row_columns(action.definition, self._form), image_rows(action, self._form)
        marker = Marker(f"headgate/{self.pipeline}/{self.table}", epoch)
        self._write_methods.add(WriteMethod.APPEND)
        append_once(self.delta, action.parts, rows, columns, marker)

    def _append_versions(self, action: do.AppendVersions, epoch: int) -> None:
        marker = Marker(f"headgate/{self.pipeline}/{self.table}/history", epoch)
        changes = version_changes(action, marker)
        self._write_methods.add(WriteMethod.UPSERT)
        self._writer.apply_versions(self.delta, changes)

    def _upsert(self, action: do.Upsert) -> None:
        self._write_methods.add(WriteMethod.UPSERT)
        self._writer.apply(self.delta, changed_rows(self.delta.spark, action, self._form))

    def _upsert_partial(self, action: do.UpsertPartial) -> None:
        writer, base = self._writer, action.base

        def find(keys: pa.Table) -> Iterable[tuple[pa.Table, Any]]:
            return () if base is None else writer.rows_at(self.delta, base, keys)

        self._write_methods.add(WriteMethod.UPSERT)
        writer.apply(
            self.delta, completed_changes(action, find, partial(self._note_missing, action.content), self._form)
        )

    def _note_missing(self, content: TableContent, completed: Completed) -> None:
        """Log ignored updates of missing rows; have the table read again if they prove that it lacks rows."""
        if completed.ignored:
            log.info("%s: ignored updates of %d rows that the table does not have", self.table, completed.ignored)
        self._reread_reason = self._reread_reason or completed.reread_reason(content)

    def _count(self, action: do.Overwrite | do.Count, epoch: int) -> None:
        marker = Marker(f"headgate/{self.pipeline}/{self.table}/counted", epoch)
        if isinstance(action, do.Overwrite):
            self._write_methods.add(WriteMethod.OVERWRITE)
            self._writer.apply_counts(self.delta, whole_table(self.delta.spark, action, marker))
        else:
            self._write_methods.add(WriteMethod.UPSERT)
            self._writer.apply_counts(self.delta, counted_changes(action, marker, self.table))


def _epochs(action: do.RemovalAction, epoch: int) -> tuple[int, int]:
    """Return the first epoch of the rows that an action of this epoch marks or ends, and the first one after them."""
    match action:
        case do.Truncate():
            return 0, epoch
        case do.DropStrays(first=first, end=end):
            return first, end
        case do.Sweep(epoch=end):
            return 0, end

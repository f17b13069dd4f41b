"""``current``: one Delta table per source table, one row per key, equal to the source as of the batch's E.

``_actions`` lists what a batch does to it, and why a replay is safe; for keyless tables: ``_keyless``. While the table
is made again, the batch's actions are on its successor.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.carrier import TABLE_META_DDL
from headgate.delta import NewColumn
from headgate.lake import (
    PIPELINE,
    ROW_HASH,
    TABLE,
    DeltaPath,
    Form,
    Marker,
    Successor,
    Target,
    WriteMethod,
    begin_successor,
    key_of,
    schema_of,
    spark_schema,
    take_over,
)
from headgate.names import quote_name
from headgate.sinks import _actions as do
from headgate.sinks._actions import Action, ColumnAction, TableContent
from headgate.sinks._carrier import image_frame
from headgate.sinks._expand import (
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
from headgate.sinks._key_range import KeySpan, are_disjoint
from headgate.sinks._keyless import ROW_DDL
from headgate.sinks._proof import key_problem
from headgate.sinks._rewrite import reshape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.lake import Upserts

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
    :param spans: by path the key ranges that this run knows.
    :param upserts: writes rows.
    :param form: the table's form, as its policy says. Rows are written only to a table that was made so. Removals ask
        the table: a batch without rows of it compares nothing with the policy.
    :param successor: the one that is being built, if any.
    """

    def __init__(
        self,
        visible: DeltaPath,
        pipeline: str,
        table: str,
        spans: dict[str, KeySpan],
        upserts: Upserts,
        form: Form = Form.PLAIN,
        successor: Successor | None = None,
    ) -> None:
        self.visible = visible
        self.delta = visible if successor is None else visible.inside(successor.folder)
        """The table that the batch writes: the successor while there is one."""
        self.pipeline = pipeline
        self.table = table
        self._spans = spans
        self._writer = upserts
        self._form = form
        self._planned_us = 0
        self._reread_reason: str | None = None
        self._stop_reason: str | None = None
        self._write_methods: set[WriteMethod] = set()

    @property
    def span(self) -> KeySpan:
        """Key range of the table that the batch writes."""
        return self._spans.setdefault(self.delta.path, KeySpan())

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

    def apply(self, actions: Iterable[Action], epoch: int, planned_us: int = 0) -> Applied:
        """Carry out a batch's actions in order.

        :param planned_us: when the batch was planned, µs since 1970 UTC: the end of versions without a known one.
        :raises TargetError: headgate cannot write the table, or the batch removes rows of a keyless, exact table that
            the table does not have.
        """
        self._planned_us = planned_us
        version = self.delta.version()
        for action in actions:
            if self._has_successor and version < 0 and not isinstance(action, do.Create):
                self._reread_reason = f"the rows that were read are gone, with {self.delta.path}"
                break
            commits = self._perform(action, epoch)
            before, version = version, self.delta.version()
            if isinstance(action, do.Create):
                self.span.begin(version, epoch)
            elif not isinstance(action, do.TakeOver):
                parts = action.parts if isinstance(action, do.RowAction) else ()
                self.span.grow(before, version if version - before <= commits else -1, parts)
        return self._result(version)

    @property
    def _has_successor(self) -> bool:
        return self.delta != self.visible

    def _result(self, version: int) -> Applied:
        """Return the batch's result.

        :param version: of the table that it wrote.
        """
        successor = None
        if self._has_successor:
            successor = Successor(self.delta.path.rpartition("/")[2], version)
            version = self.visible.version()
        number = version if version >= 0 else None
        return Applied(number, successor, self._reread_reason, self._stop_reason, frozenset(self._write_methods))

    def _perform(self, action: Action, epoch: int) -> int:
        """Carry out one action and return its commits. If it makes more than this, the span is forgotten."""
        match action:
            case do.Create() | do.Reshape() | do.AddColumns() | do.NoteTypes() | do.FillColumns():
                return self._change_columns(action, epoch)
            case do.TakeOver():
                self._take_over()
            case do.Truncate() | do.DropStrays() | do.Sweep():
                return self._delete(action, epoch) if self.delta.exists() else 0
            case do.Append():
                return self._append(action, epoch)
            case do.UpsertPartial():
                return self._upsert_partial(action)
            case do.Upsert():
                return self._upsert(action, epoch)
            case do.AppendVersions():
                return self._append_versions(action, epoch)
            case do.ProveKey():
                self._stop_reason = key_problem(self.delta, action)
            case do.Overwrite() | do.Count():
                return self._count(action, epoch)
        return 0

    # --- the table itself

    def _change_columns(self, action: ColumnAction, epoch: int) -> int:
        match action:
            case do.Create():
                return self._create(action, epoch)
            case do.Reshape():
                definition = action.definition
                gone = action.dropped, action.kept
                return reshape(self.delta, definition.types, *gone, action.renamed, definition.key)
            case do.AddColumns():
                return self._add_columns(action)
            case do.NoteTypes():
                self.delta.set_properties(action.target.properties)
                return 1
            case do.FillColumns():
                return self._fill(action, epoch)

    def _create(self, action: do.Create, epoch: int) -> int:
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
        self.delta.create(spark_schema(f"{definition.ddl}, {headgate_ddl}{action.target.form.ddl}"), properties)
        return 1

    def _take_over(self) -> None:
        """Let the successor take the table's place, unless the batch found that it has other rows than the source."""
        if not self._has_successor or self._reread_reason is not None or self._stop_reason is not None:
            return
        take_over(self.visible, self.delta)
        for path in (self.visible.path, self.delta.path):
            self._spans.pop(path, None)
        self._writer.forget(self.delta)
        self.delta = self.visible

    def _add_columns(self, action: do.AddColumns) -> int:
        types = action.definition.types
        after = dict(zip(types, ["", *types], strict=False))
        if action.names:
            columns = [NewColumn(name, types[name], after=after[name]) for name in action.names]
            self.delta.add_columns(columns, action.target.properties)
        return 0

    def _fill(self, action: do.FillColumns, epoch: int) -> int:
        from headgate.lake import Fill

        ddl = ", ".join(f"{quote_name(name)} {action.definition.types[name]}" for name in action.values)
        fill = Fill(action.values, ddl, epoch, open_only=self._form is Form.HISTORY)
        return self._writer.fill(self.delta, fill, action.definition.key)

    def _delete(self, action: do.RemovalAction, epoch: int) -> int:
        properties = self.delta.snapshot().properties
        form, key = Form.of(properties), key_of(properties)
        if form is Form.HISTORY:
            return self._end(action, epoch, key)
        if isinstance(action, do.Sweep) and self.span.all_since(self.delta.version(), action.epoch):
            return 0
        if form is Form.MARKED:
            return self._mark(action, epoch, key)
        first, end = _epochs(action, epoch)
        bound = action.bound if isinstance(action, do.Truncate) else (end, *_FIRST)
        return self._writer.clear(self.delta, bound, key, since=first)

    def _mark(self, action: do.RemovalAction, epoch: int, key: Sequence[str]) -> int:
        """Mark the rows instead; ``_actions`` argues why a replay may repeat it."""
        from headgate.lake import Marking

        return self._writer.change_rows(self.delta, Marking(*_epochs(action, epoch), (epoch, *_FIRST)), key)

    def _end(self, action: do.RemovalAction, epoch: int, key: Sequence[str]) -> int:
        """End the versions instead; ``_actions`` argues why a replay may repeat it."""
        from headgate.lake import Ending

        ending = Ending(*_epochs(action, epoch), (epoch, *_FIRST), None, self._planned_us)
        if isinstance(action, do.Truncate):
            at_us = ending.at_us if action.at_us is None else action.at_us
            ending = replace(ending, seq=action.bound, gtid=action.gtid, at_us=at_us)
        return self._writer.change_rows(self.delta, ending, key)

    # --- rows

    def _images(self, action: do.RowAction) -> DataFrame:
        return image_frame(self.delta.spark, action.parts)

    def _append(self, action: do.RowAction, epoch: int) -> int:
        if not any(part.images for part in action.parts):
            return 0
        columns, rows = row_columns(action.definition, self._form), image_rows(action, self._form)
        marker = Marker(f"headgate/{self.pipeline}/{self.table}", epoch)
        self._write_methods.add(WriteMethod.APPEND)
        append_once(self.delta, self._images(action), rows, columns, marker)
        return 1

    def _upsert(self, action: do.Upsert, epoch: int) -> int:
        chunks = [part for part in action.parts if part.kind == "chunk"]
        appended = do.Append(action.definition, chunks, names=action.names)
        if not self._can_append(appended):
            return self._write_over(action)
        rest = replace(action, parts=[part for part in action.parts if part.kind != "chunk"])
        return self._append(appended, epoch) + self._write_over(rest)

    def _append_versions(self, action: do.AppendVersions, epoch: int) -> int:
        if not any(part.images for part in action.parts):
            return 0
        marker = Marker(f"headgate/{self.pipeline}/{self.table}/history", epoch)
        changes = version_changes(action, marker)
        self._write_methods.add(WriteMethod.UPSERT)
        return self._writer.apply_versions(self.delta, changes)

    def _can_append(self, chunks: do.Append) -> bool:
        """Return whether this run knows that the table has no row in the key range of these chunks."""
        return are_disjoint(chunks.parts) and self.span.excludes(self.delta.version(), chunks.parts)

    def _write_over(self, action: do.Upsert) -> int:
        if not any(part.images for part in action.parts):
            return 0
        self._write_methods.add(WriteMethod.UPSERT)
        return self._writer.apply(self.delta, changed_rows(self.delta.spark, action, self._form))

    def _upsert_partial(self, action: do.UpsertPartial) -> int:
        writer, base = self._writer, action.base

        def find(keys: pa.Table) -> tuple[pa.Table, Any]:
            return (keys.slice(0, 0), np.zeros(0, np.int64)) if base is None else writer.rows_at(self.delta, base, keys)

        changes, completed = completed_changes(action, find, self._form)
        self._note_missing(action.content, completed.ignored, completed.moved)
        self._write_methods.add(WriteMethod.UPSERT)
        return writer.apply(self.delta, changes)

    def _note_missing(self, content: TableContent, ignored: int, moved: int) -> None:
        """Log ignored updates of missing rows. If one of them changed its key, the table must be read again."""
        if ignored:
            level = logging.WARNING if content is TableContent.ALL else logging.INFO
            log.log(level, "%s: ignored updates of %d rows that the table does not have", self.table, ignored)
        if moved and content is not TableContent.UNKNOWN:
            self._reread_reason = "a key was changed by a partial row image, and the table has no row at its old key"

    def _count(self, action: do.Overwrite | do.Count, epoch: int) -> int:
        marker = Marker(f"headgate/{self.pipeline}/{self.table}/counted", epoch)
        if isinstance(action, do.Overwrite):
            self._write_methods.add(WriteMethod.OVERWRITE)
            return self._writer.apply_counts(self.delta, whole_table(self.delta.spark, action, marker))
        self._write_methods.add(WriteMethod.UPSERT)
        return self._writer.apply_counts(self.delta, counted_changes(action, marker, self.table))


def _epochs(action: do.RemovalAction, epoch: int) -> tuple[int, int]:
    """Return the first epoch of the rows that an action of this epoch marks or ends, and the first one after them."""
    match action:
        case do.Truncate():
            return 0, epoch
        case do.DropStrays(first=first, end=end):
            return first, end
        case do.Sweep(epoch=end):
            return 0, end

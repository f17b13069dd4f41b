"""``changelog``: one append-only Delta table per source table, one row per change, exactly once.

Columns: ``_op`` (c, u, d, r, t), ``_seq``, ``_gtid``, ``_ts``, the table's columns (the after-image; for ``d`` the
before-image; null for ``t``), ``_before`` (for ``u`` the before-image), ``_absent`` (the columns that the row's image
leaves out, null in the row; null for whole images). ``_seq`` orders the changes. A before-image that leaves columns out
has nulls for them: if ``_absent`` is not null, ``_before`` may hold only the key.

A batch is one append under Delta's transaction marker (application, epoch), so a replay of the batch adds nothing. The
table's columns only grow: a column that the source drops or renames stays and is null from then on. A name in other
letter case is of the same column, because Delta does not distinguish them. If a column gets a type with more values,
one commit copies its files with it; a replay finds that done. If neither of two types has all values of the other, the
table is stopped (``decide._decide``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headgate.apply._expand import HEADGATE_COLUMNS, append_once, change_rows
from headgate.apply._rewrite import retype
from headgate.carrier import ABSENT, META_DDL, Definition
from headgate.decide.actions import AppendChanges, Describe, LogAction
from headgate.delta import NewColumn
from headgate.lake import PIPELINE, TABLE, DeltaPath, Marker, TableLayout, description_of, spark_schema
from headgate.names import quote_name

__all__ = ["ChangelogTable"]

_LEADING = ("_op", *HEADGATE_COLUMNS)
_TRAILING = ("_before", ABSENT)


class ChangelogTable:
    """The changelog of one source table.

    :param layout: the table's, which each batch that writes the table follows.
    """

    def __init__(
        self,
        delta: DeltaPath,
        pipeline: str,
        table: str,
        layout: TableLayout = TableLayout(),  # noqa: B008 - a frozen value
    ) -> None:
        self.delta, self._layout = delta, layout
        self.pipeline = pipeline
        self.table = table
        self._table_property = f"_changelog.{table}"

    def check(self) -> bool:
        """Return whether the table exists.

        :raises TargetError: the path is not ours, or headgate cannot write the table.
        """
        return self.delta.check_ours(self.pipeline, self._table_property) is not None

    @property
    def has_other_layout(self) -> bool:
        """Whether the table has another layout than it should."""
        return self.delta.has_other_layout(self._layout)

    def has_changes_until(self, epoch: int) -> bool:
        """Return whether the table may have changes of a batch of this epoch or an earlier one."""
        files = self.delta.snapshot(files=True).files.values()
        bounds = [file.bounds(("_seq", "epoch"), pa.int64()) for file in files]
        return any(known is None or known[0] <= epoch for known in bounds)

    def types(self) -> dict[str, str] | None:
        """Return the table's own columns, name → Spark type; None if there is no changelog yet."""
        if not self.check():
            return None
        headgate_columns = (*_LEADING, *_TRAILING)
        return {f.name: f.dataType.simpleString() for f in self.delta.schema().fields if f.name not in headgate_columns}

    def apply(self, actions: Iterable[LogAction], epoch: int) -> int | None:
        """Carry out a batch's actions and return the table's version after them (None: there is no table yet)."""
        for action in actions:
            match action:
                case AppendChanges():
                    self._append(action, epoch)
                case Describe() if self.delta.known().version >= 0:
                    self.delta.describe(description_of(action.definition))
        self.delta.arrange(self._layout)
        version = self.delta.known().version
        return None if version < 0 else version

    def _append(self, action: AppendChanges, epoch: int) -> None:
        definition, parts = action.definition, action.parts
        before = self._prepare(definition)
        if any(part.images for part in parts):
            columns = [*_LEADING, *(column.name for column in definition.columns), *_TRAILING]
            marker = Marker(f"headgate/{self.pipeline}/{self._table_property}", epoch)
            append_once(self.delta, parts, change_rows(action, before), columns, marker)

    def _prepare(self, definition: Definition) -> dict[str, str]:
        """Create the table, or give it the columns of a definition. Return the fields of ``_before``: name → type."""
        if not self.delta.exists():
            fields = ", ".join(f"{quote_name(column.name)}: {column.spark}" for column in definition.columns)
            more = f"_before struct<{fields}>, {ABSENT} array<string>"
            schema = spark_schema(f"{META_DDL}, {definition.ddl}, {more}")
            properties = {PIPELINE: self.pipeline, TABLE: self._table_property}
            self.delta.create(schema, properties, self._layout, description_of(definition))
            return definition.types
        types = self.types() or {}
        widened = {name: kind for name, kind in definition.types.items() if types.get(name, kind) != kind}
        if widened:
            retype(self.delta, widened, inside="_before")
        added: list[NewColumn] = []
        for column in definition.columns:
            if column.name not in types:
                added += [NewColumn(column.name, column.spark), NewColumn(column.name, column.spark, inside="_before")]
        if added:
            self.delta.add_columns(added)
        before: Any = self.delta.schema()["_before"].dataType
        return {field.name: field.dataType.simpleString() for field in before}

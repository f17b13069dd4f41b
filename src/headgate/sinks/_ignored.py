"""Changes of columns that a current table ignores: its columns stay as they are, and images come under their names.

``[schema_changes]`` says which kinds are ignored. That is decided for each change of a statement:

| ignored | the table's columns | images from then on |
|---|---|---|
| ADD of n | stay | n is left out |
| RENAME of a to b | stay | b comes as a |
| DROP of c | stay; rows keep their values of c | rows are written without c |

Later changes of a column that the table does not have are ignored, too. A re-read keeps all this while the setting is
``ignore`` (:meth:`ColumnView.restart`).

**A name has one meaning throughout a batch**, as in ``_alter``: images from before and after a statement are not told
apart. So :attr:`ColumnView.names` has the names before the batch and those that its statements give. If a name has two
meanings, or a column gets a name that the table has for another one, the table is read again.

The view before the batch is that of the ledger, and the statements are the batch's. So a replay makes the same view,
whatever columns the table has by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from headgate.carrier import DdlRow, Definition, Part
from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn, is_text_type
from headgate.config import SchemaChangesConfig
from headgate.lake import Form, IgnoredChanges
from headgate.names import lower_name
from headgate.sinks._alter import Alteration
from headgate.sinks._shape import Target

__all__ = ["ColumnView"]


class ColumnView:
    """The source's columns as a table shows them, while a batch's statements are followed.

    :param before: the changes that the table ignored before the batch.
    :param target: the table; None: there is none, or the batch does not need it.
    """

    def __init__(self, before: IgnoredChanges | None = None, target: Target | None = None) -> None:
        before = before or IgnoredChanges()
        self._target = target
        self._now = dict(before.names)
        self._kept = [name for name in before.kept if target is None or name in {*target.types, *target.kept}]
        self._returned: set[str] = set()
        self._met: set[str] = set()
        self.names: dict[str, str | None] = dict(before.names)
        """Column of the source, at any moment of the batch → the table's; None: the table has none."""
        self.conflict: str | None = None
        """Why images of the batch, or later ones, cannot be shown."""

    @property
    def after(self) -> IgnoredChanges:
        """The ignored changes after the statements so far."""
        return IgnoredChanges(dict(self._now), tuple(self._kept))

    # --- statements

    def follow(self, ddl: DdlRow, config: SchemaChangesConfig) -> tuple[DdlRow, list[str]]:
        """Follow an ALTER. Return it with the changes that the table does not ignore, under the table's names; and why
        it ignores the others.

        :param ddl: has changes, perhaps none.
        """
        changes = [(self._spelled(change), change) for change in ddl.changes or ()]
        before = dict(self._now)
        for change, _ in changes:  # all names before the statement, then those after it: they may be exchanged
            if not isinstance(change, AddedColumn):
                self._now.pop(change.name, None)
                is_kept = isinstance(change, DroppedColumn) and config.drop_column == "ignore"
                self._mean(change.name, None if is_kept else before.get(change.name, change.name))
        followed: list[ColumnChange] = []
        reasons: dict[str, None] = {}
        for change, as_written in changes:
            column = None if isinstance(change, AddedColumn) else before.get(change.name, change.name)
            left, reason = self._follow(change, column, config)
            followed += [as_written if one == change else one for one in left]
            reasons |= {reason: None} if reason else {}
        self._check_names([change for change in followed if not isinstance(change, DroppedColumn)])
        return replace(ddl, changes=tuple(followed)), list(reasons)

    def _spelled(self, change: ColumnChange) -> ColumnChange:
        """Return a change with the column's name as images have it: a statement may spell it in other letter case."""
        types = self._target.types if self._target is not None else {}
        known = {lower_name(name): name for name in (*types, *self._now)}
        if isinstance(change, AddedColumn) or change.name in self._now:
            return change
        name = known.get(lower_name(change.name), change.name)
        if isinstance(change, RedefinedColumn) and change.new_name == change.name:
            return replace(change, name=name, new_name=name)
        return replace(change, name=name)

    def _follow(
        self, change: ColumnChange, column: str | None, config: SchemaChangesConfig
    ) -> tuple[list[ColumnChange], str]:
        """Follow a change. Return what of it is not ignored, and why the rest is, if it is.

        :param column: the table's column that it changes; None: the table has none.
        """
        match change:
            case AddedColumn(name=name):
                is_ignored = config.add_column == "ignore"
                self._give(name, None if is_ignored else name)
                return ([], 'add_column = "ignore"') if is_ignored else ([change], "")
            case DroppedColumn(name=name):
                is_ignored = column is not None and config.drop_column == "ignore"
                if is_ignored and column is not None:
                    self._keep(column)
                if column is None:
                    return [], f"the table has no column {name}"
                return ([], 'drop_column = "ignore"') if is_ignored else ([DroppedColumn(column)], "")
            case RedefinedColumn():
                return self._redefine(change, column, config)

    def _keep(self, column: str) -> None:
        """Keep a column that the source has dropped. Rows without a key are then read without it."""
        if column not in self._kept:
            self._kept.append(column)
        if self._target is not None and not self._target.key and column in self._target.types:
            self.conflict = f"rows without a key are identified by all columns, and {column} was dropped"

    def _redefine(
        self, change: RedefinedColumn, column: str | None, config: SchemaChangesConfig
    ) -> tuple[list[ColumnChange], str]:
        is_renamed = change.name != change.new_name
        is_ignored = is_renamed and config.rename_column == "ignore"
        if column is None:
            self._give(change.new_name, None)
            return [], f"the table has no column {change.name}"
        is_shown = is_ignored or (not is_renamed and column != change.name)
        self._give(change.new_name, column if is_shown else change.new_name)
        reason = 'rename_column = "ignore"' if is_ignored else ""
        if not is_shown and column == change.name:
            return [change], reason
        name = self._target.source_names.get(column, "") if self._target is not None else ""
        if not is_shown:
            return [replace(change, name=column, source_name=name)], reason
        if change.mysql is None or self._has_type(column, change.mysql):
            return [], reason
        return [RedefinedColumn(column, column, change.mysql, name, name)], reason

    def _has_type(self, column: str, mysql: str) -> bool:
        """Return whether a column has this type, which no collation belongs to."""
        types = self._target.source_types if self._target is not None else {}
        return column in types and types[column][0] == mysql and not is_text_type(mysql)

    def _give(self, name: str, column: str | None) -> None:
        """Give a column of the source this name; the table has its values in ``column``."""
        if column != name:
            self._now[name] = column
        self._mean(name, column)

    def _mean(self, name: str, column: str | None) -> None:
        """Note that a name of the source means this column in the batch."""
        if name in self._met and self.names.get(name, name) != column:
            self.conflict = f"the name {name} was used for two columns in one batch"
        self._met.add(name)
        self.names[name] = column

    def _check_names(self, followed: Sequence[AddedColumn | RedefinedColumn]) -> None:
        """Note a conflict if a change that the table follows gives a name that it has for another column."""
        taken = {column.lower() for column in self._now.values() if column is not None}
        for change in followed:
            name = change.name if isinstance(change, AddedColumn) else change.new_name
            is_new = isinstance(change, AddedColumn) or change.name != change.new_name
            if is_new and (name.lower() in taken or name in self._kept):
                self.conflict = f"a column gets the name {name}, which the table has for another one"
                self._kept = [one for one in self._kept if one != name]

    def restart(self, config: SchemaChangesConfig, parts: Sequence[Part]) -> None:
        """Forget what the settings do not ignore any more, and what the source does not have, because all rows are
        read.

        :param parts: chunks of the batch have the source's columns.
        """
        definition = next((part.definition for part in parts if part.kind == "chunk"), None)
        before, self._now = self._now, _still_ignored(self._now, config, definition)
        # Whatever the statements gave a name to, the columns that are read have the names of the batch's end.
        known = definition.types if definition is not None else before
        self.names = {name: column for name, column in self.names.items() if name not in known} | self._now
        target = self._target
        shown = {*_shown(definition, self._now, {}).types} if definition is not None else set()
        is_history = target is not None and target.form is Form.HISTORY
        returned = {name for name in self._kept if name in shown or (config.drop_column != "ignore" and not is_history)}
        if is_history and target is not None:
            returned |= target.kept.keys() & shown
        self._returned |= returned
        self._kept = [name for name in self._kept if name not in returned]
        if all(part.kind == "chunk" for part in parts):
            self.conflict, self.names = None, dict(self._now)

    def begin_table(self) -> None:
        """Note that the table is made again with the source's columns, without those that it kept."""
        self._kept = []

    # --- what the table sees

    @property
    def target(self) -> Target | None:
        """The table without the columns that the source has dropped."""
        target = self._target
        if target is None:
            return None
        kept = {**target.kept, **{name: target.types[name] for name in self._kept if name in target.types}}
        returned = {name: kept.pop(name) for name in self._returned & kept.keys()}
        types = {name: kind for name, kind in target.types.items() if name not in kept}
        return replace(target, types={**types, **returned}, kept=kept)

    def parts(self, parts: Sequence[Part]) -> list[Part]:
        """Return images with definitions that have the table's columns; the images themselves are as they were."""
        return [replace(part, schema=self._schema(part.schema)) for part in parts] if self.names else [*parts]

    def statement(self, ddl: DdlRow) -> DdlRow:
        """Return a statement with such a definition of the table."""
        return ddl if ddl.schema is None else replace(ddl, schema=self._schema(ddl.schema))

    def image_names(self, alteration: Alteration) -> dict[str, str | None]:
        """Return where images have other names than the table after the batch: name in images → name in the table;
        None: the table has no such column.

        :param alteration: what statements do to the table.
        """
        new_names = {old: new for new, old in alteration.renamed.items()}
        shown = self.names.values()
        names = {**{name: name for name in new_names if name not in shown}, **self.names}
        after = {name: new_names.get(column, column) if column is not None else None for name, column in names.items()}
        return {name: column for name, column in after.items() if name != column}

    def _schema(self, text: str) -> str:
        source_names = self._target.source_names if self._target is not None else {}
        return _shown_text(text, tuple(self.names.items()), tuple(source_names.items()))


@lru_cache(maxsize=4096)
def _shown_text(text: str, names: tuple[tuple[str, str | None], ...], source_names: tuple[tuple[str, str], ...]) -> str:
    return _shown(Definition.from_json(text), dict(names), dict(source_names)).to_json()


def _shown(definition: Definition, names: Mapping[str, str | None], source_names: Mapping[str, str]) -> Definition:
    """Return a definition with a table's columns, under its names.

    :param source_names: the table's: a column that it shows under its old name keeps that name at the source, too.
    """
    columns = []
    for column in definition.columns:
        name = names.get(column.name, column.name)
        if name == column.name:
            columns.append(column)
        elif name is not None:
            columns.append(replace(column, name=name, source_name=source_names.get(name, "")))
    key = tuple(names.get(name) or name for name in definition.key)
    return replace(definition, columns=tuple(columns), key=key)


def _still_ignored(
    names: Mapping[str, str | None], config: SchemaChangesConfig, definition: Definition | None
) -> dict[str, str | None]:
    """Return the columns of a table that is read again whose changes stay ignored.

    :param definition: the source's columns now; None: unknown.
    """
    kept = {
        name: column
        for name, column in names.items()
        if (config.add_column if column is None else config.rename_column) == "ignore"
    }
    if definition is None or definition.hook:
        return {} if definition is not None else kept
    columns = definition.types
    kept = {
        name: column
        for name, column in kept.items()
        if name in columns and not (column is None and name in definition.key)
    }
    while True:
        others = {name.lower() for name in columns if name not in kept}
        clear = {name: column for name, column in kept.items() if column is None or column.lower() not in others}
        if len(clear) == len(kept):
            return kept
        kept = clear

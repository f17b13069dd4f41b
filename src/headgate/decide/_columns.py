"""What a batch makes of a current table's columns: policies, ALTERs and images, in this order.

**A table's columns** (``lake.Target``) have an entry each: the type in the lake, the type and the name at the source,
and the rule of their values. A definition of images has the same entries. Images fit a table that has their columns.

**What an ALTER does to them** is decided for each of its changes, by the policy of its kind in ``[schema_changes]``:

| change | ``evolve`` | ``ignore``: the table's columns stay |
|---|---|---|
| ADD of n | added; rows from before get its default, if that is exact | n is left out of images |
| RENAME of a to b | renamed, in all rows | images' b comes as a |
| DROP of c | leaves all rows, or stays in them, null (``dropped_columns``) | rows keep c; new images have none |
| a wider type | rows are cast, which is exact | – |

Later changes of a column that the table does not have are ignored, too. ``reread`` and ``stop`` suspend the table
(``_statements``), so nothing of this applies. A re-read keeps what is ignored while its setting is ``ignore``.

**A name identifies a column throughout the batch**, because images from before and after a statement are not told
apart. All are converted by name and type, and the order of images and statements does not matter. A replay begins with
the ledger's names and may find the table already changed. It plans only what is still missing: a column that the table
lacks was dropped, a new name that it has was given. So a name that is used twice in a batch, for two columns of the
source or of the table, is a conflict.

**Rows of earlier batches keep their values.** A drop, a rename and a cast change only the lake's rows, in one commit
(``Reshape``). They are exact only if all rows, and all images, have the columns that the statements explain. A wider
type is proven by the MySQL type before it, which the table's properties have: every value of that type is a value of
the new one, and the cast between their Spark types is exact. Text keeps its collation, too. A RENAME names the
columns of the source, so a column that has its values from another one (a changed rule) is not followed. Behind a hook
no row changes: statements may only change the types of columns that it gets, and not their values.

**A Misfit** is everything else: rows may have changed that the batch does not bring. This module does not know states.
``_decide`` reports a Misfit and suspends the table, which is read again or stops.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from headgate.carrier import DdlRow, Definition, Part
from headgate.catalog import AddedColumn, ColumnChange, DroppedColumn, RedefinedColumn, existing_value, is_text_type
from headgate.config import SchemaChangesConfig
from headgate.decide._alter import Alteration
from headgate.decide._definitions import definitions_of, widest, with_rows
from headgate.decide._misfits import OTHER_INPUT, Misfit, compare, gone, rekeyed, retyped, shortened
from headgate.delta import needs_mapping
from headgate.lake import Form, IgnoredChanges, Target, TargetColumn, columns_of
from headgate.names import lower_name

__all__ = ["ColumnPlan", "ColumnView"]


@dataclass(frozen=True)
class ColumnPlan:
    """Changes that give the current table the batch's columns."""

    definition: Definition | None = None  # the columns after them; None: nothing to write
    replace: bool = False  # recreate the table with these columns
    is_extended: bool = False  # statements added columns, which the target may have already
    added: tuple[str, ...] = ()  # columns that the target lacks
    fills: Mapping[str, str] = field(default_factory=dict)  # added column → its value in older rows, as text
    alteration: Alteration = field(default_factory=Alteration)  # columns that are dropped, renamed or widened
    reshapes: bool = False  # the target's rows have to be rewritten for it
    after: Target = field(default_factory=lambda: Target({}))  # the table after them
    names: Mapping[str, str | None] = field(default_factory=dict)  # in images → in ``after``, where they differ


class ColumnView:
    """The source's columns as a table shows them, while a batch's statements are followed.

    :param before: the changes that the table ignored before the batch.
    :param target: the table; None: there is none, or the batch does not need it.
    """

    def __init__(self, before: IgnoredChanges | None = None, target: Target | None = None) -> None:
        before = before or IgnoredChanges()
        self._target = target
        self._now = dict(before.names)
        self._kept = [name for name in before.kept if target is None or name in {*target.columns, *target.kept}]
        self._returned: set[str] = set()
        self._met: set[str] = set()
        self.names: dict[str, str | None] = dict(before.names)
        """Column of the source, at any moment of the batch → the table's; None: the table has none."""
        self.conflict: str | None = None
        """Why images of the batch, or later ones, cannot be shown."""
        self.alters: list[DdlRow] = []
        """The statements that change only columns of the table, in known ways, as followed."""

    @property
    def after(self) -> IgnoredChanges:
        """The ignored changes after the statements so far."""
        return IgnoredChanges(dict(self._now), tuple(self._kept))

    @property
    def target(self) -> Target | None:
        """The table without the columns that the source has dropped."""
        target = self._target
        if target is None:
            return None
        kept = {**target.kept, **{name: target.columns[name] for name in self._kept if name in target.columns}}
        returned = {name: kept.pop(name) for name in self._returned & kept.keys()}
        columns = {name: column for name, column in target.columns.items() if name not in kept}
        return replace(target, columns={**columns, **returned}, kept=kept)

    # --- 1. statements, by the policies

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
            if left is not None:
                followed.append(as_written if left == change else left)
            reasons |= {reason: None} if reason else {}
        self._check_names([change for change in followed if not isinstance(change, DroppedColumn)])
        return replace(ddl, changes=tuple(followed)), list(reasons)

    def _spelled(self, change: ColumnChange) -> ColumnChange:
        """Return a change with the column's name as images have it: a statement may spell it in other letter case."""
        types = self._target.columns if self._target is not None else {}
        known = {lower_name(name): name for name in (*types, *self._now)}
        if isinstance(change, AddedColumn) or change.name in self._now:
            return change
        name = known.get(lower_name(change.name), change.name)
        if isinstance(change, RedefinedColumn) and change.new_name == change.name:
            return replace(change, name=name, new_name=name)
        return replace(change, name=name)

    def _follow(
        self, change: ColumnChange, column: str | None, config: SchemaChangesConfig
    ) -> tuple[ColumnChange | None, str]:
        """Follow a change. Return what of it is not ignored, and why the rest is, if it is.

        :param column: the table's column that it changes; None: the table has none.
        """
        if isinstance(change, AddedColumn):
            is_ignored = config.add_column == "ignore"
            self._give(change.name, None if is_ignored else change.name)
            return (None, 'add_column = "ignore"') if is_ignored else (change, "")
        if column is None:
            if isinstance(change, RedefinedColumn):
                self._give(change.new_name, None)
            return None, f"the table has no column {change.name}"
        if isinstance(change, RedefinedColumn):
            return self._redefine(change, column, config)
        if config.drop_column != "ignore":
            return DroppedColumn(column), ""
        if column not in self._kept:
            self._kept.append(column)
        if self._target is not None and not self._target.key and column in self._target.columns:
            self.conflict = f"rows without a key are identified by all columns, and {column} was dropped"
        return None, 'drop_column = "ignore"'

    def _redefine(
        self, change: RedefinedColumn, column: str, config: SchemaChangesConfig
    ) -> tuple[ColumnChange | None, str]:
        is_renamed = change.name != change.new_name
        is_ignored = is_renamed and config.rename_column == "ignore"
        is_shown = is_ignored or (not is_renamed and column != change.name)  # under its old name
        self._give(change.new_name, column if is_shown else change.new_name)
        reason = 'rename_column = "ignore"' if is_ignored else ""
        if not is_shown and column == change.name:
            return change, reason
        known = self._target.noted.get(column) if self._target is not None else None
        name = known.source_name if known is not None else ""
        if not is_shown:
            return replace(change, name=column, source_name=name), reason
        # A type says no collation, so text is compared by its definition.
        has_type = known is not None and known.source is not None and known.source[0] == change.mysql
        if change.mysql is None or (has_type and not is_text_type(change.mysql)):
            return None, reason
        return RedefinedColumn(column, column, change.mysql, name, name), reason

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

    # --- 2. a snapshot that reads all rows

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

    # --- 3. images

    def fits(self, parts: Sequence[Part], form: Form | None) -> bool:
        """Return whether these images have exactly the table's columns and key, and it has this form. A history may
        have further columns, which the source no longer has.
        """
        target = self.target
        if target is None or target.form is not form:
            return False
        try:
            return not any(compare(one, target, form) for one in definitions_of(with_rows(self._parts(parts))))
        except Misfit:
            return False

    def plan(
        self, parts: Sequence[Part], form: Form, *, restarts: bool = False, keeps_dropped: bool = False
    ) -> ColumnPlan:
        """Return how the table gets the batch's columns.

        :param form: the form that the table must have.
        :param restarts: every row of the table is read from this batch on, so the table may be replaced.
        :param keeps_dropped: dropped columns stay, null in all rows.
        :raises Misfit: rows may have changed that the batch does not bring.
        """
        target, parts = self.target, self._parts(parts)
        alters = [ddl if ddl.schema is None else replace(ddl, schema=self._schema(ddl.schema)) for ddl in self.alters]
        if target is not None:  # without one, the columns of any image are better than none
            parts = with_rows(parts)
        alteration = Alteration.of(alters, parts)
        if target is not None:  # a killed attempt may have renamed columns and not noted that
            noted = alteration.after(target.unnoted)
            columns = {n: replace(noted.get(n, one), spark=one.spark) for n, one in target.columns.items()}
            target = replace(target, columns=columns)
        if alteration and target is not None and target.hook:
            plan = _altered_before_hook(parts, target, alters, alteration, form)
        elif alteration:
            plan = _altered(parts, target, alters, alteration, form)
        else:
            plan = _extended(parts, target, alters, alteration.added, form, restarts=restarts)
        if plan.definition is None:
            return plan
        before = (
            target
            if target is not None and not plan.replace
            else Target({}, plan.definition.key, form, rows=plan.definition.rows)
        )
        dropped = {n: one for n, one in before.columns.items() if n in alteration.dropped and keeps_dropped}
        after = replace(
            before,
            columns=alteration.after(before.columns) | columns_of(plan.definition),
            hook=plan.definition.hook,
            kept={**before.kept, **dropped},
            unnoted={},
        )
        after = after.with_source_types(alteration.source_types(before.source_types, parts, plan.definition))
        is_extended = any(ddl.adds for ddl in alters)
        return replace(plan, after=after, names=self._image_names(alteration), is_extended=is_extended)

    def described(self, chunks: Sequence[Part], statements: Sequence[DdlRow]) -> Definition | None:
        """Return the newest definition with comments, under the table's names; None: the batch brings none.

        :param statements: on the table. What was read with one may be newer than the batch.
        """
        texts = [part.schema for part in chunks]
        texts += [ddl.schema for ddl in statements if ddl.schema is not None and ddl.new_name is None]
        shown = (Definition.from_json(self._schema(text)) for text in reversed(texts))
        return next((one for one in shown if one.comment is not None), None)

    def _image_names(self, alteration: Alteration) -> dict[str, str | None]:
        """Return where images have other names than the table after the batch: name in images → name in the table;
        None: the table has no such column.
        """
        new_names = {old: new for new, old in alteration.renamed.items()}
        shown = self.names.values()
        names = {**{name: name for name in new_names if name not in shown}, **self.names}
        after = {name: new_names.get(column, column) if column is not None else None for name, column in names.items()}
        return {name: column for name, column in after.items() if name != column}

    def _parts(self, parts: Sequence[Part]) -> list[Part]:
        """Return images with definitions that have the table's columns; the images themselves are as they were."""
        return [replace(part, schema=self._schema(part.schema)) for part in parts] if self.names else [*parts]

    def _schema(self, text: str) -> str:
        columns = self._target.noted if self._target is not None else {}
        source_names = ((name, column.source_name) for name, column in columns.items() if column.source_name)
        return _shown_text(text, tuple(self.names.items()), tuple(source_names))


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
        name: one for name, one in names.items() if (config.rename_column if one else config.add_column) == "ignore"
    }
    if definition is None or definition.hook:
        return {} if definition is not None else kept
    columns, key = definition.types, definition.key
    kept = {name: one for name, one in kept.items() if name in columns and (one is not None or name not in key)}
    while True:
        others = {name.lower() for name in columns if name not in kept}
        clear = {name: column for name, column in kept.items() if column is None or column.lower() not in others}
        if len(clear) == len(kept):
            return kept
        kept = clear


# --- the three ways to a plan


def _extended(
    parts: Sequence[Part],
    target: Target | None,
    alters: Sequence[DdlRow],
    added: Mapping[str, AddedColumn],
    form: Form,
    *,
    restarts: bool,
) -> ColumnPlan:
    """Return how the target gets the batch's columns if statements only added some."""
    definition = _joined(parts)
    if target is not None and not restarts:
        _check_whole(parts, target, added)
    if target is not None and not added.keys() <= (definition.types.keys() if definition else set()):
        definition = _with_added(definition, alters[-1], target, added)
    if definition is None:
        return ColumnPlan()
    fills = _fills(definition, added)
    if target is None:
        return ColumnPlan(definition, fills=fills)
    try:
        new = compare(definition, target, form, restarts=restarts)
    except Misfit as misfit:
        if misfit.lasting or not restarts:
            raise
        return ColumnPlan(definition, replace=True, fills=fills)
    unexplained = [name for name in new if name not in added]
    if unexplained and not restarts:
        raise Misfit(f"column {unexplained[0]} is new, and no statement of the log added it", inconsistent=True)
    return ColumnPlan(definition, added=new, fills=fills)


def _altered(
    parts: Sequence[Part], target: Target | None, alters: Sequence[DdlRow], alteration: Alteration, form: Form
) -> ColumnPlan:
    """Return how the target follows statements that drop, rename or widen columns; Misfit if that is not exact."""
    statement, added = shortened(alters[-1].statement), alteration.added
    if target is None or not target.key or any(part.partial for part in parts):
        raise Misfit(f"ALTER may have changed rows: {statement}")
    if any(needs_mapping(name) for name in alteration.renamed):
        raise Misfit(f"ALTER gave a column a name that the target has to be created for: {statement}")
    if not _can_alter(target, alteration):
        raise Misfit(f"ALTER changed the key, a column with a rule, or the column of a name in use: {statement}")
    names = alteration.after(target.columns).keys()
    latest = _latest(parts, alters[-1], {*names, *added}, alteration)
    columns = columns_of(latest)
    for one in definitions_of(parts):
        if one.key != latest.key or not _becomes(columns_of(one), columns, alteration):
            raise Misfit(f"images of the batch have other columns or keys than its ALTERs explain: {statement}")
    if any(part.kind == "chunk" and part.definition.types != latest.types for part in parts):
        raise Misfit(f"a chunk has columns from before an ALTER: {statement}")
    if not _becomes(target.columns, columns, alteration):
        raise Misfit(f"ALTER may have changed values: {statement}")
    if not all(_shows_columns(ddl, names) for ddl in alters):
        raise Misfit(f"ALTER may have changed values of a generated column: {statement}")
    altered = replace(target, columns={name: columns[name] for name in names})
    new = compare(latest, altered, form)
    fills = _fills(latest, added)
    return ColumnPlan(latest, added=new, fills=fills, alteration=alteration, reshapes=target.types != altered.types)


def _altered_before_hook(
    parts: Sequence[Part], target: Target, alters: Sequence[DdlRow], alteration: Alteration, form: Form
) -> ColumnPlan:
    """Return how the target follows statements about columns that its hook gets; Misfit if it may make other rows."""
    latest = _latest(parts, alters[-1], target.columns.keys(), alteration)
    before = [target.source_types, *(one.source_types for one in definitions_of(parts))]
    keeps_input = all(alteration.keeps_input(types, latest.source_types) for types in before)
    keeps_key = not alteration.changed(target.source_types) & {*target.key}
    is_shown = all(_shows_columns(ddl, latest.source_types) for ddl in alters)
    other = [one for one in (latest, *definitions_of(parts)) if compare(one, target, form)]
    if other or not (keeps_input and keeps_key and is_shown):
        raise Misfit(f"ALTER may have changed what the hook makes of existing rows: {shortened(alters[-1].statement)}")
    return ColumnPlan(latest, alteration=alteration)


# --- what the batch's definitions and statements say


def _joined(parts: Sequence[Part]) -> Definition | None:
    """Return the definition that contains all others; Misfit if there is none."""
    whole = widest(parts)
    if whole is None:
        return None
    for other in definitions_of(parts):
        if other.key != whole.key:
            raise Misfit(rekeyed(other.key, whole.key), inconsistent=True)
        if other.hook != whole.hook:
            raise Misfit(OTHER_INPUT, inconsistent=True)
        for name, kind in other.types.items():
            if name not in whole.types:
                raise Misfit(f"the columns changed within one batch: {name} was added or dropped", inconsistent=True)
            if whole.types[name] != kind:
                raise Misfit(retyped(name, kind, whole.types[name]), inconsistent=True)
    return whole


def _check_whole(parts: Sequence[Part], target: Target, added: Collection[str]) -> None:
    """Raise Misfit if images lack a column of the target and do not come before the statement that added it."""
    for one in definitions_of([part for part in parts if not part.truncates]):
        lacking = target.seen_by(one).keys() - one.types.keys() - {*added}
        if lacking:
            raise Misfit(gone(min(lacking)), inconsistent=True)


def _with_added(
    definition: Definition | None, last: DdlRow, target: Target, added: Mapping[str, AddedColumn]
) -> Definition:
    """Return the definition after statements that added columns, if no image shows it yet.

    The definition read with the last statement may be newer than the batch. Its later columns are left out; any other
    difference is a Misfit.
    """
    if last.schema is None:
        raise Misfit(f"the table's columns after its ALTER are unknown: {shortened(last.statement)}")
    latest = Definition.from_json(last.schema)
    known = {name: column.spark for name, column in target.seen_by(latest).items()}
    wanted = {*known, *added}
    columns = tuple(column for column in latest.columns if column.name in wanted)
    expected = replace(latest, key=target.key, columns=columns)
    older = definition.types if definition is not None else {}
    agrees = all(expected.types.get(name) == kind for name, kind in {**known, **older}.items())
    if len(columns) < len(wanted) or not agrees or latest.key != target.key:
        raise Misfit(f"the table has changed again since its ALTER: {shortened(last.statement)}")
    return expected


def _latest(parts: Sequence[Part], last: DdlRow, wanted: Collection[str], alteration: Alteration) -> Definition:
    """Return the definition with exactly these columns: of images, else as read with the last statement, without later
    columns.
    """
    candidates = definitions_of(parts)
    if last.schema is not None:
        now = Definition.from_json(last.schema)
        candidates.append(replace(now, columns=tuple(column for column in now.columns if column.name in wanted)))
    for one in candidates:
        if one.types.keys() == set(wanted) and alteration.has_happened(one):
            return one
    raise Misfit(f"the table's columns after its ALTER are unknown: {shortened(last.statement)}")


def _can_alter(target: Target, alteration: Alteration) -> bool:
    """Return whether the altered columns are the target's and no others. Of the key only comments, defaults, positions
    and the name at the source may change, of columns with rules no type.
    """
    columns, types = target.columns, alteration.types
    is_replaced = any(new in columns and old in columns for new, old in alteration.renamed.items())
    after = alteration.after(columns)
    has_all = alteration.redefined.keys() <= after.keys()
    fixed = {*target.key} | {name for name, column in after.items() if column.rule and name in types}
    return has_all and not is_replaced and not alteration.changed(target.source_types) & fixed


def _becomes(columns: Mapping[str, TargetColumn], latest: Mapping[str, TargetColumn], alteration: Alteration) -> bool:
    """Return whether columns of any moment in the batch become the latest ones exactly."""
    after = alteration.after(columns)
    return latest.keys() - alteration.added.keys() <= after.keys() <= latest.keys() and all(
        alteration.converts(name, column, latest[name]) for name, column in after.items()
    )


def _shows_columns(ddl: DdlRow, columns: Collection[str]) -> bool:
    """Return whether the definition that was read with a statement still had all columns that the table has after the
    batch, if the statement changed types. Only that definition shows which columns are generated.
    """
    if not any(isinstance(change, RedefinedColumn) and change.mysql is not None for change in ddl.changes or ()):
        return True
    return ddl.schema is not None and {*columns} <= Definition.from_json(ddl.schema).source_types.keys()


def _fills(definition: Definition, added: Mapping[str, AddedColumn]) -> dict[str, str]:
    """Return the values of added columns in older rows; Misfit if one is unknown."""
    fills: dict[str, str] = {}
    for name, column in added.items():
        if column.is_null or name not in definition.types:  # in no image, and there is no target
            continue
        value = existing_value(definition.column(name).mysql, column)
        if definition.types[name] == "string" and definition.column(name).mysql.startswith("datetime"):
            value = None  # as text it has all fractional digits, which the DEFAULT may lack
        if value is None or not definition.key:  # keyless rows are identified by content
            raise Misfit(f"ALTER added column {name} whose value in existing rows is unknown")
        fills[name] = value if definition.types[name] != "boolean" else str(value != "0").lower()
    return fills

"""Compare a batch's columns with those of a table's targets, and plan the targets' changes.

This module does not know states. Columns that do not fit raise :class:`Misfit`; the caller decides what follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.carrier import ABSENT, META, TABLE_COLUMN, CarriedColumn, DdlRow, Definition, Part, SourceType
from headgate.catalog import AddedColumn, RedefinedColumn, existing_value, keeps_values
from headgate.delta import needs_mapping
from headgate.lake import ROW_HASH, Form, SourceMapping
from headgate.sinks._alter import Alteration, column_types, read_alteration

__all__ = [
    "RESERVED_ANYWHERE",
    "Misfit",
    "Shape",
    "Target",
    "fit",
    "fits",
    "hook_name",
    "names_in_log",
    "refiltered",
    "rehooked",
    "reserved",
    "shortened",
    "union",
    "widest",
]

RESERVED = frozenset({*META, TABLE_COLUMN, "_before", ABSENT})
RESERVED_KEYLESS = frozenset({ROW_HASH})
RESERVED_ANYWHERE = RESERVED | RESERVED_KEYLESS | {name for form in Form for name in form.columns}
"""Names, in lower case, that headgate uses in some table of some mode."""

_FORMS = {
    Form.PLAIN: 'deletes = "remove" (mode "current")',
    Form.MARKED: 'deletes = "mark" (mode "current")',
    Form.HISTORY: 'mode = "history"',
}
"""The setting of each form, for messages."""


class Misfit(Exception):
    """Images do not fit the target; the text becomes part of the table's reason in the ledger.

    :param lasting: a re-read does not help: the target is a history, which is never replaced.
    :param inconsistent: the images have other columns than the target, or than each other.
    """

    def __init__(self, text: str, *, lasting: bool = False, inconsistent: bool = False) -> None:
        super().__init__(text)
        self.lasting, self.inconsistent = lasting, inconsistent


@dataclass(frozen=True)
class Target:
    """Columns and key of the current table: column → Spark type, without headgate's own columns."""

    types: Mapping[str, str]
    key: tuple[str, ...]
    since_epoch: int | None = None  # first epoch of the snapshot whose chunks were appended to it
    form: Form = Form.PLAIN
    rules: Mapping[str, str] = field(default_factory=dict)  # column → rule by which its values were written
    rows: str = ""  # expression that its rows passed
    source_types: Mapping[str, SourceType] = field(default_factory=dict)  # of columns (or a hook's input), where known
    kept: Mapping[str, str] = field(default_factory=dict)  # columns that the source dropped, null: name → Spark type
    source_names: Mapping[str, str] = field(default_factory=dict)  # column → name in MySQL, where a rule renames it
    hook: str = ""  # mark of the hook that made its columns

    def seen_by(self, definition: Definition) -> Target:
        """Return the target with only the columns that should be in images of this definition."""
        names = definition.types if self.form is Form.HISTORY else self.types
        types, rules, source_names = (
            {name: value for name, value in values.items() if name in names}
            for values in (self.types, self.rules, self.source_names)
        )
        return replace(self, types=types, rules=rules, source_names=source_names)


@dataclass(frozen=True)
class Shape:
    """Changes that give the current table the batch's columns."""

    definition: Definition | None = None  # the columns after them; None: nothing to write
    replace: bool = False  # recreate the table with these columns
    added: tuple[str, ...] = ()  # columns that the target lacks
    fills: Mapping[str, str] = field(default_factory=dict)  # added column → its value in older rows, as text
    alteration: Alteration = field(default_factory=Alteration)  # columns that are dropped, renamed or widened
    reshapes: bool = False  # the target's rows have to be rewritten for it
    mapping: SourceMapping = field(default_factory=SourceMapping)  # types, names and rules after the batch, where known
    kept: Mapping[str, str] = field(default_factory=dict)  # after the batch: dropped columns that stay, null


def fit(
    parts: Sequence[Part],
    target: Target | None,
    alters: Sequence[DdlRow],
    form: Form = Form.PLAIN,
    *,
    restarts: bool,
    keeps_dropped: bool = False,
) -> Shape:
    """Compare the batch with the target.

    :param alters: the batch's statements that changed only columns.
    :param form: the form that the target must have.
    :param restarts: every row of the table is read from this batch on, so the target may be replaced.
    :param keeps_dropped: dropped columns stay, null in all rows.
    :raises Misfit: rows may have changed that the batch does not bring.
    """
    if target is not None:  # without one, the columns of any image are better than none
        parts = _with_rows(parts)
    alteration = read_alteration(alters, parts)
    if isinstance(alteration, str):
        raise Misfit(alteration)
    if alteration and target is not None and target.hook:
        shape = _altered_before_hook(parts, target, alters, alteration, form)
    elif alteration:
        shape = _altered(parts, target, alters, alteration, form)
    else:
        shape = _unaltered(parts, target, alters, form, restarts=restarts)
    if shape.definition is None:
        return shape
    if target is None or shape.replace:
        return replace(shape, mapping=SourceMapping(alteration.source_types({}, parts, shape.definition)))
    dropped = {name: kind for name, kind in target.types.items() if name in alteration.dropped and keeps_dropped}
    types = alteration.source_types(target.source_types, parts, shape.definition)
    names = _followed(alteration, target, target.source_names, shape.definition) | shape.definition.source_names
    rules = _followed(alteration, target, target.rules, shape.definition) | shape.definition.rules
    return replace(shape, mapping=SourceMapping(types, names, rules), kept={**target.kept, **dropped})


def _followed(
    alteration: Alteration, target: Target, values: Mapping[str, str], definition: Definition
) -> dict[str, str]:
    """Return values of the columns that the target has after the batch and its images lack: a history's."""
    columns = alteration.after(target.types).keys() - definition.types.keys()
    return {name: value for name, value in alteration.after(values).items() if name in columns}


def _unaltered(
    parts: Sequence[Part], target: Target | None, alters: Sequence[DdlRow], form: Form, *, restarts: bool
) -> Shape:
    """Return how the target gets the batch's columns if statements only added some."""
    definition = _joined(parts)
    added = _added(alters)
    if target is not None and not restarts:
        _check_whole(parts, target, added)
    if target is not None and not added.keys() <= (definition.types.keys() if definition else set()):
        definition = _with_added(definition, alters[-1], target, added)
    if definition is None:
        return Shape()
    fills = _fills(definition, added)
    if target is None:
        return Shape(definition, fills=fills)
    try:
        new = _compare(definition, target, form, restarts=restarts)
    except Misfit as misfit:
        if misfit.lasting or not restarts:
            raise
        return Shape(definition, replace=True, fills=fills)
    unexplained = [name for name in new if name not in added]
    if unexplained and not restarts:
        raise Misfit(f"column {unexplained[0]} is new, and no statement of the log added it", inconsistent=True)
    return Shape(definition, added=new, fills=fills)


def _check_whole(parts: Sequence[Part], target: Target, added: Collection[str]) -> None:
    """Raise Misfit if images lack a column of the target and do not come before the statement that added it."""
    for one in _definitions([part for part in parts if not part.truncates]):
        lacking = target.seen_by(one).types.keys() - one.types.keys() - {*added}
        if lacking:
            raise Misfit(_gone(min(lacking)), inconsistent=True)


def _added(alters: Sequence[DdlRow]) -> dict[str, AddedColumn]:
    return {change.name: change for ddl in alters for change in ddl.changes or () if isinstance(change, AddedColumn)}


def _altered(
    parts: Sequence[Part], target: Target | None, alters: Sequence[DdlRow], alteration: Alteration, form: Form
) -> Shape:
    """Return how the target follows statements that drop, rename or widen columns; Misfit if that is not exact."""
    statement = shortened(alters[-1].statement)
    if target is None or not target.key or any(part.partial for part in parts):
        raise Misfit(f"ALTER may have changed rows: {statement}")
    if any(needs_mapping(name) for name in alteration.renamed):
        raise Misfit(f"ALTER gave a column a name that the target has to be created for: {statement}")
    if not _can_alter(target, alteration):
        raise Misfit(f"ALTER changed the key, a column with a rule, or the column of a name in use: {statement}")
    added = _added(alters)
    columns = alteration.after(target.types)
    latest = _latest(parts, alters[-1], {*columns, *added}, alteration)
    for one in _definitions(parts):
        is_earlier = _is_earlier(one, latest, added, alteration)
        if one.key != latest.key or not is_earlier:
            raise Misfit(f"images of the batch have other columns or keys than its ALTERs explain: {statement}")
    if any(part.kind == "chunk" and part.definition.types != latest.types for part in parts):
        raise Misfit(f"a chunk has columns from before an ALTER: {statement}")
    if not _is_earlier(target, latest, added, alteration):
        raise Misfit(f"ALTER may have changed values: {statement}")
    if not all(_shows_columns(ddl, columns) for ddl in alters):
        raise Misfit(f"ALTER may have changed values of a generated column: {statement}")
    after = {name: latest.types[name] for name in columns}
    new = _compare(latest, replace(target, types=after, source_names=latest.source_names, rules=latest.rules), form)
    fills = _fills(latest, added)
    return Shape(latest, added=new, fills=fills, alteration=alteration, reshapes=dict(target.types) != after)


def _altered_before_hook(
    parts: Sequence[Part], target: Target, alters: Sequence[DdlRow], alteration: Alteration, form: Form
) -> Shape:
    """Return how the target follows statements about columns that its hook gets; Misfit if it may make other rows."""
    latest = _latest(parts, alters[-1], target.types.keys(), alteration)
    described: list[Definition | Target] = [target, *_definitions(parts)]
    keeps_input = all(alteration.keeps_input(one.source_types, latest.source_types) for one in described)
    keeps_key = all(alteration.leaves(name, target.source_types.get(name)) for name in alteration.names & {*target.key})
    is_shown = all(_shows_columns(ddl, latest.source_types) for ddl in alters)
    if not (keeps_input and keeps_key and is_shown) or not fits(parts, target, form):
        raise Misfit(f"ALTER may have changed what the hook makes of existing rows: {shortened(alters[-1].statement)}")
    _compare(latest, target, form)
    return Shape(latest, alteration=alteration)


def _can_alter(target: Target, alteration: Alteration) -> bool:
    """Return whether the altered columns are the target's and no others. Of the key only comments, defaults, positions
    and the name at the source may change, of columns with rules no type.
    """
    is_replaced = any(new in target.types and old in target.types for new, old in alteration.renamed.items())
    after = alteration.after(target.types)
    has_all = {*alteration.renamed, *alteration.types, *alteration.source_names} <= after.keys()
    changed = {name for name in alteration.names if not alteration.leaves(name, target.source_types.get(name))}
    fixed = {*target.key} | (alteration.after(target.rules).keys() & alteration.types.keys())
    return has_all and not is_replaced and not changed & fixed


def _is_earlier(one: Definition | Target, latest: Definition, added: Collection[str], alteration: Alteration) -> bool:
    """Return whether columns of any moment in the batch become those after it, exactly."""
    after = alteration.after
    columns = column_types(after(one.types), after(one.source_types), after(one.source_names), after(one.rules))
    wanted = column_types(latest.types, latest.source_types, latest.source_names, latest.rules)
    return wanted.keys() - {*added} <= columns.keys() <= wanted.keys() and all(
        alteration.converts(name, kind, wanted[name]) for name, kind in columns.items()
    )


def _shows_columns(ddl: DdlRow, columns: Collection[str]) -> bool:
    """Return whether the definition that was read with a statement still had all columns that the table has after the
    batch, if the statement changed types. Only that definition shows which columns are generated.
    """
    if not any(isinstance(change, RedefinedColumn) and change.mysql is not None for change in ddl.changes or ()):
        return True
    return ddl.schema is not None and {*columns} <= Definition.from_json(ddl.schema).source_types.keys()


def _latest(parts: Sequence[Part], last: DdlRow, wanted: Collection[str], alteration: Alteration) -> Definition:
    """Return the definition with exactly these columns: of images, else as read with the last statement, without later
    columns.
    """
    candidates = _definitions(parts)
    if last.schema is not None:
        now = Definition.from_json(last.schema)
        columns = tuple(column for column in now.columns if column.name in wanted)
        candidates.append(replace(now, columns=columns))
    for one in candidates:
        if one.types.keys() == set(wanted) and alteration.has_happened(one):
            return one
    raise Misfit(f"the table's columns after its ALTER are unknown: {shortened(last.statement)}")


def fits(parts: Sequence[Part], target: Target | None, form: Form | None = Form.PLAIN) -> bool:
    """Return whether these images have exactly the target's columns and key, and it has this form. A history may have
    further columns, which the source no longer has.
    """
    if target is None or target.form is not form:
        return False
    return all(
        (shape.types, shape.key, shape.rules, shape.source_names, shape.rows, shape.hook)
        == (wanted.types, wanted.key, wanted.rules, wanted.source_names, wanted.rows, wanted.hook)
        for shape in _definitions(_with_rows(parts))
        for wanted in [target.seen_by(shape)]
    )


def _with_rows(parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts whose definitions are those of rows."""
    return [part for part in parts if not part.only_truncates]


def widest(parts: Sequence[Part]) -> Definition | None:
    """Return the definition of these parts with the most columns."""
    return max(_definitions(parts), key=lambda definition: len(definition.columns), default=None)


def reserved(definition: Definition, form: Form | None = None) -> str | None:
    """Return why a column cannot be written if headgate reserves its name; else None.

    :param form: the form of the table.
    """
    taken = RESERVED if definition.key else RESERVED | RESERVED_KEYLESS
    taken |= {*form.columns} if form is not None else set()
    names = (column.name for column in definition.columns if column.name.lower() in taken)
    name = next(names, None)
    return (
        None
        if name is None
        else f"column {name} has a name that headgate uses itself; rename it, at the source or by [columns], or leave"
        " the table out"
    )


def union(parts: Sequence[Part], logged: Mapping[str, str] | None = None) -> Definition | None:
    """Return a definition with every column of these parts, each in a type that holds all of its values.

    :param logged: columns of a changelog, whose types count, too. Names that differ from those there, or from each
        other, only in letter case are of one column: see :func:`names_in_log`.
    :raises Misfit: a column has two types of which neither holds all values of the other.
    """
    with_rows = _with_rows(parts)
    last = widest(with_rows or parts)
    if last is None:
        return None
    columns: dict[str, CarriedColumn] = {}
    names = names_in_log(parts, logged)
    for definition in [last, *_definitions(with_rows or parts)]:
        for column in definition.columns:
            name = names.get(column.name, column.name)
            columns[name] = _wider(columns.setdefault(name, replace(column, name=name)), column.spark)
    for name in columns.keys() & (logged or {}).keys():
        kind = (logged or {})[name]
        columns[name] = _wider(columns[name], kind) if with_rows else replace(columns[name], spark=kind)
    return replace(last, columns=tuple(columns.values()), key=tuple(names.get(name, name) for name in last.key))


def names_in_log(parts: Sequence[Part], logged: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return which columns of these parts the changelog has in other letter case: name in images → name there. MySQL
    renames columns so, and columns of Delta tables do not differ by it.
    """
    known = {name.lower(): name for name in logged or {}}
    names = {}
    for definition in _definitions(parts):
        for name in definition.types:
            if known.setdefault(name.lower(), name) != name:
                names[name] = known[name.lower()]
    return names


def _wider(column: CarriedColumn, spark: str) -> CarriedColumn:
    """Return the column, in this type if it is a wider one."""
    if column.spark == spark or keeps_values(spark, column.spark):
        return column
    if keeps_values(column.spark, spark):
        return replace(column, spark=spark)
    raise Misfit(_retyped(column.name, spark, column.spark))


def shortened(statement: str) -> str:
    """Return a statement on one line, of at most 200 characters."""
    text = " ".join(statement.split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _definitions(parts: Sequence[Part]) -> list[Definition]:
    return list({part.schema: part.definition for part in parts}.values())


def _joined(parts: Sequence[Part]) -> Definition | None:
    """Return the definition that contains all others; Misfit if there is none."""
    whole = widest(parts)
    if whole is None:
        return None
    for other in _definitions(parts):
        if other.key != whole.key:
            raise Misfit(_rekeyed(other.key, whole.key), inconsistent=True)
        if other.hook != whole.hook:
            raise Misfit(_OTHER_INPUT, inconsistent=True)
        for name, kind in other.types.items():
            if name not in whole.types:
                text = f"the columns changed within one batch: {name} was added or dropped"
                raise Misfit(text, inconsistent=True)
            if whole.types[name] != kind:
                raise Misfit(_retyped(name, kind, whole.types[name]), inconsistent=True)
    return whole


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
    known = target.seen_by(latest).types
    wanted = {*known, *added}
    columns = tuple(column for column in latest.columns if column.name in wanted)
    expected = replace(latest, key=target.key, columns=columns)
    older = definition.types if definition is not None else {}
    agrees = all(expected.types.get(name) == kind for name, kind in {**known, **older}.items())
    if len(columns) < len(wanted) or not agrees or latest.key != target.key:
        raise Misfit(f"the table has changed again since its ALTER: {shortened(last.statement)}")
    return expected


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


def _compare(definition: Definition, target: Target, form: Form, *, restarts: bool = False) -> tuple[str, ...]:
    """Return the columns that the target lacks; Misfit for any other difference.

    :param restarts: every row of the table is read from this batch on.
    """
    lasting = target.form is Form.HISTORY
    setting = _changed_setting(definition, target, form)
    if setting is not None:
        raise Misfit(setting, lasting=lasting)
    difference = _difference(definition, target)
    if difference is not None:
        raise Misfit(difference, lasting=lasting, inconsistent=True)
    is_read_into_history = restarts and lasting  # rows that differ get a new version
    if definition.hook != target.hook and not is_read_into_history:
        raise Misfit(_OTHER_INPUT)
    new = tuple(name for name in definition.types if name not in target.types)
    known = {name.lower(): name for name in target.types}
    for name in new:
        if name.lower() in known:  # a history has columns that the source no longer has
            other = known[name.lower()]
            raise Misfit(f"column {name} differs from column {other} only in letter case", lasting=lasting)
    return new


def _changed_setting(definition: Definition, target: Target, form: Form) -> str | None:
    """Return which setting has changed since the target was written, if one has."""
    if target.form is not form:
        return f"{_FORMS[form]} is set, and the target was written with {_FORMS[target.form]}"
    if definition.rows != target.rows:
        return refiltered(target.rows, definition.rows)
    if hook_name(definition.hook) != hook_name(target.hook):
        return rehooked(hook_name(target.hook), hook_name(definition.hook))
    if definition.chosen_key and definition.key != target.key:
        return _rekeyed(target.key, definition.key)
    types, rules = target.seen_by(definition).types, definition.rules
    for name in types.keys() & definition.types.keys():
        if rules.get(name) != target.rules.get(name):
            return f"column {name} has another rule in [columns] than when the target was written"
        if definition.source_names.get(name) != target.source_names.get(name):
            return f"column {name} has the values of another column of the source, by [columns], than in the target"
    return None


def _difference(definition: Definition, target: Target) -> str | None:
    """Return how the target differs, except by columns that it lacks."""
    if definition.key != target.key:
        return _rekeyed(target.key, definition.key)
    types, wanted = definition.types, target.seen_by(definition).types
    if {name.lower() for name in types} & {name.lower() for name in target.kept}:
        return "a column has the name of one that was dropped and kept"
    for name in wanted:
        if name not in types:
            return _gone(name)
    for name, kind in wanted.items():
        if types[name] != kind:
            return f"column {name} changed its type from {kind} to {types[name]}"
    return None


def _gone(name: str) -> str:
    return f"column {name} of the target is no longer in the source table, or has another name by [columns]"


def refiltered(old: str, new: str) -> str:
    """Return that a table's ``rows`` changed."""
    return f"`rows` changed from {old or 'all rows'} to {new or 'all rows'}"


_OTHER_INPUT = "the hook gets other columns, so it may make other rows"


def hook_name(mark: str) -> str:
    """Return ``module:function@version`` of a hook's mark; "" of none."""
    return mark.partition("/")[0]


def rehooked(old: str, new: str) -> str:
    """Return that a table's hook changed, from and to ``module:function@version``."""
    return f"the hook changed from {old or 'none'} to {new or 'none'}"


def _rekeyed(old: Sequence[str], new: Sequence[str]) -> str:
    return f"the key changed from ({', '.join(old)}) to ({', '.join(new)})"


def _retyped(name: str, one: str, other: str) -> str:
    return f"column {name} changed its type between {one} and {other}"

"""Whether images fit a table as it is, and why not: the texts become reasons in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.carrier import ABSENT, META, TABLE_COLUMN, Definition
from headgate.lake import ROW_HASH, Form, Target, columns_of

__all__ = [
    "OTHER_INPUT",
    "RESERVED_ANYWHERE",
    "Misfit",
    "compare",
    "gone",
    "hook_name",
    "rekeyed",
    "reserved",
    "retyped",
    "shortened",
]

OTHER_INPUT: Final = "the hook gets other columns, so it may make other rows"

_RESERVED = frozenset({*META, TABLE_COLUMN, "_before", ABSENT})
_RESERVED_KEYLESS = frozenset({ROW_HASH})
RESERVED_ANYWHERE = _RESERVED | _RESERVED_KEYLESS | {name for form in Form for name in form.columns}
"""Names, in lower case, that headgate uses in some table of some mode."""

_FORMS = {
    Form.PLAIN: 'deletes = "remove" (mode "current")',
    Form.MARKED: 'deletes = "mark" (mode "current")',
    Form.HISTORY: 'mode = "history"',
}
"""The setting of each form."""


class Misfit(Exception):
    """Images do not fit the target; the text becomes part of the table's reason in the ledger.

    :param lasting: a re-read does not help: the target is a history, which is never replaced.
    :param inconsistent: the images have other columns than the target, or than each other.
    """

    def __init__(self, text: str, *, lasting: bool = False, inconsistent: bool = False) -> None:
        super().__init__(text)
        self.lasting, self.inconsistent = lasting, inconsistent


def compare(definition: Definition, target: Target, form: Form, *, restarts: bool = False) -> tuple[str, ...]:
    """Return the columns that the target lacks; Misfit for any other difference.

    :param restarts: every row of the table is read from this batch on.
    """
    lasting = target.form is Form.HISTORY
    setting = changed_setting(definition, target, form)
    if setting is not None:
        raise Misfit(setting, lasting=lasting)
    difference = _difference(definition, target)
    if difference is not None:
        raise Misfit(difference, lasting=lasting, inconsistent=True)
    is_read_into_history = restarts and lasting  # rows that differ get a new version
    if definition.hook != target.hook and not is_read_into_history:
        raise Misfit(OTHER_INPUT)
    new = tuple(name for name in definition.types if name not in target.columns)
    known = {name.lower(): name for name in target.columns}
    for name in new:
        if name.lower() in known:  # a history has columns that the source no longer has
            other = known[name.lower()]
            raise Misfit(f"column {name} differs from column {other} only in letter case", lasting=lasting)
    return new


def changed_setting(definition: Definition, target: Target, form: Form) -> str | None:
    """Return which setting has changed since the target was written, if one has."""
    if target.form is not form:
        return f"{_FORMS[form]} is set, and the target was written with {_FORMS[target.form]}"
    if definition.rows != target.rows:
        return f"`rows` changed from {target.rows or 'all rows'} to {definition.rows or 'all rows'}"
    old, new = hook_name(target.hook), hook_name(definition.hook)
    if old != new:
        return f"the hook changed from {old or 'none'} to {new or 'none'}"
    if definition.chosen_key and definition.key != target.key:
        return rekeyed(target.key, definition.key)
    for name, column in columns_of(definition).items():
        known = target.columns.get(name, column)
        if column.rule != known.rule:
            return f"column {name} has another rule in [columns] than when the target was written"
        if column.source_name != known.source_name:
            return f"column {name} has the values of another column of the source, by [columns], than in the target"
    return None


def _difference(definition: Definition, target: Target) -> str | None:
    """Return how the target differs, except by columns that it lacks."""
    if definition.key != target.key:
        return rekeyed(target.key, definition.key)
    types, wanted = definition.types, target.seen_by(definition)
    if {name.lower() for name in types} & {name.lower() for name in target.kept}:
        return "a column has the name of one that was dropped and kept"
    for name in wanted:
        if name not in types:
            return gone(name)
    for name, column in wanted.items():
        if types[name] != column.spark:
            return f"column {name} changed its type from {column.spark} to {types[name]}"
    return None


def reserved(definition: Definition, form: Form | None = None) -> str | None:
    """Return why a column cannot be written if headgate reserves its name; else None.

    :param form: the form of the table.
    """
    taken = _RESERVED if definition.key else _RESERVED | _RESERVED_KEYLESS
    taken |= {*form.columns} if form is not None else set()
    name = next((column.name for column in definition.columns if column.name.lower() in taken), None)
    if name is None:
        return None
    remedy = "rename it, at the source or by [columns], or leave the table out"
    return f"column {name} has a name that headgate uses itself; {remedy}"


def gone(name: str) -> str:
    """Return that the source does not have a column any more."""
    return f"column {name} of the target is no longer in the source table, or has another name by [columns]"


def hook_name(mark: str) -> str:
    """Return ``module:function@version`` of a hook's mark; "" of none."""
    return mark.partition("/")[0]


def rekeyed(old: Sequence[str], new: Sequence[str]) -> str:
    """Return that a table's key changed."""
    return f"the key changed from ({', '.join(old)}) to ({', '.join(new)})"


def retyped(name: str, one: str, other: str) -> str:
    """Return that images have a column in two types."""
    return f"column {name} changed its type between {one} and {other}"


def shortened(statement: str) -> str:
    """Return a statement on one line, of at most 200 characters."""
    text = " ".join(statement.split())
    return text if len(text) <= 200 else f"{text[:197]}..."

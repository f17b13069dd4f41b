"""Columns that an ALTER took out of the rule that hid their values.

The reason of their table, in the ledger, names them. No read of the table shows their values before a rule says so:
neither one that was queued before, nor one of a later start. The table stays stopped until the rows that are read have
none of these columns without a rule. A rule that names the column counts, also ``keep``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from headgate.carrier import Definition
from headgate.names import lower_name

__all__ = ["names_in_reason", "shows_unmasked", "unmasked_reason"]

_BEFORE: Final = "no rule hides any more what a rule hid in "
_AFTER: Final = '; write a rule in [columns] for each of these names, "keep" to show its values, then '


def unmasked_reason(names: str, remedy: str) -> str:
    """Return why the table of such columns is stopped.

    :param names: with commas between them.
    """
    return f"{_BEFORE}{names}{_AFTER}{remedy}"


def names_in_reason(reason: str | None) -> str:
    """Return the columns that a reason names, with commas between them; ``""``: it is another reason."""
    if reason is None or not reason.startswith(_BEFORE):
        return ""
    return reason.removeprefix(_BEFORE).rpartition(_AFTER)[0]


def shows_unmasked(names: str, named: Collection[str], read: Sequence[Definition]) -> bool:
    """Return whether rows of these definitions show values of such columns, or may; without definitions, later ones.

    :param names: the columns.
    :param named: those that a rule names, in lower case.
    """
    if not read:
        return not all(lower_name(name) in named for name in names.split(", "))
    text = f", {lower_name(names)}, "
    return any(f", {name}, " in text for one in read for name in _shown(one) if name not in named)


def _shown(definition: Definition) -> set[str]:
    """Return the source's names, in lower case, of the columns that have MySQL's values; of all that a hook gets."""
    if definition.hook:
        return {*map(lower_name, definition.source_types)}
    return {lower_name(column.source_name or column.name) for column in definition.columns if not column.rule}

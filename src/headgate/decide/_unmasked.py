"""Columns that an ALTER took out of the rule that hid their values.

The ledger has them (``TableState.unmasked``). No read of the table shows their values before a rule says so: neither
one that was queued before, nor one of a later start, nor one after the table was left out for a while. The table stays
stopped until the rows that are read have none of these columns without a rule. A rule that names the column counts,
also ``keep``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headgate.carrier import Definition
from headgate.names import lower_name

__all__ = ["shows_unmasked", "unmasked_reason"]


def unmasked_reason(names: Sequence[str], remedy: str) -> str:
    """Return why the table of such columns is stopped."""
    rules = 'write a rule in [columns] for each of these names, "keep" to show its values'
    return f"no rule hides any more what a rule hid in {', '.join(names)}; {rules}, then {remedy}"


def shows_unmasked(names: Collection[str], named: Collection[str], read: Sequence[Definition]) -> bool:
    """Return whether rows of these definitions show values of such columns, or may; without definitions, later ones.

    :param names: the columns.
    :param named: those that a rule names, in lower case.
    """
    without_rule = {*map(lower_name, names)}.difference(named)
    return bool(without_rule) if not read else any(without_rule & _shown(one) for one in read)


def _shown(definition: Definition) -> set[str]:
    """Return the source's names, in lower case, of the columns that have MySQL's values; of all that a hook gets."""
    if definition.hook:
        return {*map(lower_name, definition.source_types)}
    return {lower_name(column.source_name or column.name) for column in definition.columns if not column.rule}

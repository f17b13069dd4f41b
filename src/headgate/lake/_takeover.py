"""Give a table the content of its successor (``headgate.delta``), which was built beside it, in one commit.

headgate commits the difference of two logs. Repeating that leaves the table as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headgate.delta import CommitPlan, new_successor, retire_successor, successors
from headgate.delta import take_over as actions_of
from headgate.errors import HeadgateError
from headgate.lake._delta import DeltaPath
from headgate.lake._table_layout import TableLayout

__all__ = ["begin_successor", "retire", "take_over"]

log = logging.getLogger("headgate")


def begin_successor(visible: DeltaPath, epoch: int) -> DeltaPath:
    """Return the path of a new successor of a table, which does not exist yet.

    :param epoch: of the batch.
    """
    return visible.inside(new_successor(epoch))


def take_over(visible: DeltaPath, successor: DeltaPath) -> None:
    """Give the table its successor's columns, properties and rows. Its earlier versions stay, and properties of other
    programs.

    :raises CommitConflictError: other programs changed the table, again and again.
    :raises TargetError: headgate cannot write one of the two.
    """
    name = successor.path.removeprefix(f"{visible.path}/")

    def plan() -> CommitPlan | None:
        table, built = visible.writable(files=True), successor.writable(files=True)
        actions = actions_of(table, built, name, TableLayout.properties_of_others(table))
        return CommitPlan(table, actions, "REPLACE TABLE", {"from": name}) if actions else None

    visible.commit(plan)


def retire(folder: str, in_use: Sequence[str], epoch: int) -> bool:
    """Retire the successors of the table in ``folder`` that no batch needs. Return whether there were some.

    :param in_use: those that the newest ledger row names.
    :param epoch: of that row. Successors of later batches stay.
    """
    try:
        ended = [name for name in successors(folder, epoch) if name not in in_use]
        return sum(retire_successor(folder, name) for name in ended) > 0
    except (HeadgateError, OSError) as error:
        log.warning("%s: could not remove the log of a table that was built there, will retry: %s", folder, error)
        return False

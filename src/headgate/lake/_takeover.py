"""Give a table the content of its successor (``headgate.delta``), which was built beside it, in one commit.

headgate commits the difference of two logs. Repeating that leaves the table as it is.
"""

from __future__ import annotations

import logging

from headgate.delta import CommitPlan, new_successor
from headgate.delta import take_over as actions_of
from headgate.lake._delta import DeltaPath
from headgate.lake._table_layout import TableLayout

__all__ = ["begin_successor", "take_over"]

log = logging.getLogger("headgate")


def begin_successor(visible: DeltaPath, epoch: int) -> DeltaPath:
    """Return the path of a new successor of a table, which does not exist yet.

    :param epoch: of the batch.
    """
    return visible.inside(new_successor(epoch))


def take_over(visible: DeltaPath, successor: DeltaPath) -> None:
    """Give the table its successor's columns, properties and rows. Its earlier versions stay, and what other programs
    set: properties, and columns by which they clustered it if the configuration has none. What cannot stay is logged:
    properties of Delta, and columns that the successor lacks or has no statistics of.

    :raises CommitConflictError: other programs changed the table, again and again.
    :raises TargetError: headgate cannot write one of the two.
    """
    name = successor.path.removeprefix(f"{visible.path}/")
    lost: list[str] = []
    columns: tuple[str, ...] = ()

    def plan() -> CommitPlan | None:
        nonlocal lost, columns
        table, built = visible.writable(files=True), successor.writable(files=True)
        columns = TableLayout.clustering_of_others(table, built)
        lost = TableLayout.lost_properties(table, built)
        actions = actions_of(table, built, name, TableLayout.properties_of_others(table), columns)
        return CommitPlan(table, actions, "REPLACE TABLE", {"from": name}) if actions else None

    if visible.commit(plan) is None:
        return
    if lost:
        log.warning("%s was read again, and lost properties that another program had set: %s", visible.path, lost)
    missing = [column for column in columns if column not in visible.known().clustering]
    if missing:
        log.warning("%s was read again, and is no longer clustered by %s", visible.path, ", ".join(missing))

"""Tables that a batch removes from the ledger, because a signal forgets them (``forget-table``).

The planner has refused tables that the stream follows. The batch may still bring one back (a table of this name was
created again), and a table whose rows are part of a merged one stays as long as its rows do. Then the signal's answer
says so. The Delta tables stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.lake import ENDED, TableState

__all__ = ["forget_tables"]


def forget_tables(
    actions: Sequence[Any], states: Mapping[str, TableState]
) -> tuple[dict[str, TableState], list[Mapping[str, Any]]]:
    """Return the states without the tables to forget, and the actions with what became of them.

    :param actions: those of the batch's header.
    :param states: after the batch.
    """
    left = dict(states)
    entries = [action for action in actions if isinstance(action, dict)]
    answered = [_forget(left, action) if action.get("type") == "forget-table" else action for action in entries]
    return left, answered


def _forget(states: dict[str, TableState], action: Mapping[str, Any]) -> Mapping[str, Any]:
    forgotten, problems = [], [action["error"]] if action.get("error") else []
    for table in action["tables"]:
        problem = _problem(states.get(table))
        if problem is None:
            states.pop(table, None)
            forgotten.append(table)
        else:
            problems.append(f"{table}: {problem}")
    return {**action, "tables": forgotten, **({"error": "; ".join(problems)} if problems else {})}


def _problem(state: TableState | None) -> str | None:
    """Return why the table has to stay; None: it may go."""
    if state is None:
        return None
    if state.state not in ENDED:
        return f"it is {state.state}, not {' or '.join(sorted(ENDED))}: leave it out of source.tables first"
    if state.place is not None and state.place.shard is not None:
        return f"its rows are part of {state.place.table}"
    return None

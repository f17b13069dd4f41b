"""The states of a table, by the names in the ledger, in the status, and in metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["ENDED", "SUSPENDED", "TABLE_STATES", "TROUBLED", "State"]


class State(StrEnum):
    """A table's state; :class:`~headgate.lake.TableState` describes what the table then holds."""

    NEW = "new"  # the ledger has no such table; never stored
    SNAPSHOTTING = "snapshotting"
    SETTLING = "settling"
    LIVE = "live"
    INEXACT = "inexact"
    FILTERED = "filtered"
    STALE = "stale"
    STOPPED = "stopped"
    EXCLUDED = "excluded"
    DROPPED = "dropped"


TABLE_STATES: Final = tuple(state.value for state in State if state is not State.NEW)
"""The states that a table has in the ledger."""
TROUBLED: Final = frozenset({State.STALE, State.STOPPED})
"""Suspended tables whose rows are old although the source has the table, and the configuration includes it."""
ENDED: Final = frozenset({State.EXCLUDED, State.DROPPED})
"""Suspended tables that headgate no longer has to follow; their rows stay."""
SUSPENDED: Final = TROUBLED | ENDED
"""Suspended tables: they take no images."""

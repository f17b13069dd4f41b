"""Restore an earlier version of a table, in one commit: its columns, properties and files. No row is copied."""

from __future__ import annotations

from typing import Any

from headgate.delta._clustering import with_domains_of
from headgate.delta._log import Snapshot
from headgate.delta._nested_files import exchange

__all__ = ["restoration"]


def restoration(table: Snapshot, earlier: Snapshot) -> list[dict[str, Any]]:
    """Return the actions that restore an earlier version; empty if the table equals it. Features and transaction
    markers stay.

    :param table: the newest version. headgate supports what it requires (:func:`unsupported_requirements`).
    """
    columns = [] if earlier.metadata == table.metadata else [{"metaData": dict(earlier.metadata)}]
    adds = [{**file.action, "dataChange": True} for file in earlier.files.values()]
    return [*columns, *with_domains_of(table, earlier), *exchange(table.files.values(), adds)]

"""Restore an earlier version of a table, in one commit: its columns, properties and files. No row is copied."""

from __future__ import annotations

from typing import Any

from headgate.delta._definition import unsupported_requirements
from headgate.delta._log import Snapshot
from headgate.delta._nested_files import exchange

__all__ = ["restoration"]


def restoration(table: Snapshot, earlier: Snapshot) -> list[dict[str, Any]] | None:
    """Return the actions that restore an earlier version; empty if the table equals it. Features and transaction
    markers stay.

    :param table: the newest version.
    :return: None if the table requires more than headgate supports.
    """
    if unsupported_requirements(table):
        return None
    columns = [] if earlier.metadata == table.metadata else [{"metaData": dict(earlier.metadata)}]
    adds = [{**file.action, "dataChange": True} for file in earlier.files.values()]
    return [*columns, *exchange(table.files.values(), adds)]

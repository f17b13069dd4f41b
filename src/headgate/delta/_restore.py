"""Restore an earlier version of a table, in one commit: its columns, properties and files. No row is copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.delta._clustering import with_domains_of
from headgate.delta._files import files_of, is_inside
from headgate.delta._log import DataFile, Snapshot
from headgate.delta._nested_files import exchange
from headgate.delta.vectors import vector_file

__all__ = ["missing_files", "restoration"]


def restoration(table: Snapshot, earlier: Snapshot) -> list[dict[str, Any]]:
    """Return the actions that restore an earlier version; empty if the table equals it. Features and transaction
    markers stay.

    :param table: the newest version. headgate supports what it requires (:func:`unsupported_requirements`).
    """
    columns = [] if earlier.metadata == table.metadata else [{"metaData": dict(earlier.metadata)}]
    adds = [{**file.action, "dataChange": True} for file in earlier.files.values()]
    return [*columns, *with_domains_of(table, earlier), *exchange(table.files.values(), adds)]


def missing_files(folder: str, actions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of files in the table's folder that these actions add, and that do not exist.

    :raises OSError: the files cannot be looked at; StorageError likewise.
    """
    names: dict[str, None] = {}
    for file in (DataFile(action["add"]) for action in actions if "add" in action):
        names[file.name] = None
        if file.vector is not None and file.vector["storageType"] != "i":
            names[vector_file(file.vector)] = None
    inside = [*filter(is_inside, names)]
    identities = files_of(folder).each(files_of(folder).identity, inside)
    return [name for name, identity in zip(inside, identities, strict=True) if identity is None]

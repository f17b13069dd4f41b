"""The successor of a table: a Delta table that is built in a folder of the table's, and takes its place in one commit.

**One commit, no row copied.** The successor's data files become the table's where they are (``_nested_files``). One
commit removes the table's files and adds those, with the successor's columns, properties and transaction markers. A
reader sees the old table or the new one, and earlier versions of the table stay readable.

**Repeatable.** The commit has the differences between the table and its successor. If the successor has taken over
already, there are none. If it was written again since (the replay of a batch), only that is committed.

**Its folder** is hidden from others, so that no VACUUM of the table removes files of a successor that is being built:
``_successor_<epoch>_<8 hexadecimal digits>``. A successor that is built again gets another folder. One whose log is
gone is *retired*: files in its folder are then as any others in the table's folder, so those that no version of the
table has are orphans (``_file_history``).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.delta._clustering import clustered_by, with_domains_of
from headgate.delta._definition import protocol_of
from headgate.delta._files import SUCCESSOR, files_of
from headgate.delta._log import LOG, Snapshot
from headgate.delta._nested_files import add_below, exchange

__all__ = ["is_building", "new_successor", "successor_log", "successors", "take_over"]

_NAME: Final = re.compile(rf"{SUCCESSOR}(\d+)_[0-9a-f]{{8}}")
_OF_THE_TABLE: Final = ("id", "name", "createdTime")
"""Parts of ``metaData`` that a table keeps."""


def new_successor(epoch: int) -> str:
    """Return an unused name for the folder of a successor that is begun in the batch of this epoch."""
    return f"{SUCCESSOR}{epoch}_{uuid.uuid4().hex[:8]}"


def successors(folder: str, until: int) -> list[str]:
    """Return the folders of a table's successors that were begun in batches up to this epoch, retired ones included."""
    begun = {name: _NAME.fullmatch(name) for name in files_of(folder).folders()}
    return sorted(name for name, named in begun.items() if named is not None and int(named[1]) <= until)


def is_building(folder: str, name: str) -> bool:
    """Return whether a successor of the table is being built: whether it has a log."""
    return any(successor_log(folder, name))


def successor_log(folder: str, name: str) -> Iterator[str]:
    """Return the files of the log of a table's successor. Without them, which may go in any order, it is retired."""
    return (file.name for file in files_of(folder).below(f"{name}/{LOG}"))


def take_over(
    table: Snapshot, successor: Snapshot, name: str, kept: Mapping[str, str], cluster_by: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the actions by which a successor takes the table's place; empty if it has taken it.

    :param table: headgate supports what it requires (:func:`unsupported_requirements`); likewise the successor.
    :param name: the successor's folder, in the table's.
    :param kept: properties that the table keeps if the successor has none of the name.
    :param cluster_by: columns by which the table stays clustered, as far as the successor can be (``clusterable``).
    """
    features, built = table.features or frozenset(), successor.features or frozenset()
    metadata = {
        **{key: value for key, value in successor.metadata.items() if key not in _OF_THE_TABLE},
        "configuration": {**kept, **successor.properties},
        **{key: table.metadata[key] for key in _OF_THE_TABLE if key in table.metadata},
    }
    actions: list[dict[str, Any]] = [] if built <= features else [protocol_of(features | built)]
    if metadata != table.metadata:
        actions.append({"metaData": metadata})
    actions += with_domains_of(table, replace(successor, domains=clustered_by(successor, cluster_by)))
    for application, version in successor.transactions.items():
        if table.transactions.get(application, -1) < version:
            actions.append({"txn": {"appId": application, "version": version}})
    adds = [add_below(name, file, dataChange=True) for file in successor.files.values()]
    return [*actions, *exchange(table.files.values(), adds)]

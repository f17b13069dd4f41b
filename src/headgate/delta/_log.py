"""A table's log, replayed here: what a version asks of writers, and its data files with statistics and vectors.

The log is a commit a version (``_delta_log/<20 digits>.json``, one action a line), and from time to time a checkpoint,
which holds the actions of all versions up to its own (Delta Transaction Log Protocol). A replay takes a commit's
removes before its adds: a file whose vector changes is removed and added in one commit.

What is replayed stays in memory, so a newer version costs the commits since. Nothing is remembered that the log does
not say: a process that starts comes to the same state. If another table is put into the folder, the newest known
commit is another file then, and the whole log is replayed again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from headgate.delta._files import FileIdentity, files_of
from headgate.delta._mapping import MAPPING_FEATURE, UNMAPPED, ColumnNames, NamedFile, names_of, unmarked
from headgate.delta._statistics import Statistics
from headgate.errors import TargetError

__all__ = [
    "LAST_CHECKPOINT",
    "LOG",
    "DataFile",
    "Snapshot",
    "TableLog",
    "checkpoint_name",
    "checkpointed_version",
    "checkpoints_among",
    "commit_identity",
    "commit_name",
    "find_checkpoints",
    "read_checkpoint",
    "read_commit",
]

LOG: Final = "_delta_log"
"""The folder of the log, in the table's."""
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
"""The note that says which checkpoint is the newest."""
_DIGITS: Final = 20
_CHECKPOINT: Final = re.compile(rf"{LOG}/(\d+)\.checkpoint.*\.parquet")
_MAPS: Final = frozenset({"configuration", "options", "partitionValues", "tags"})
_OF_CHECKPOINTS: Final = frozenset({"stats_parsed", "partitionValues_parsed"})
"""What checkpoints say twice, in a form of their own."""
_CHECKPOINT_ROWS: Final = 5000
_KINDS: Final = ("metaData", "protocol", "txn")


def commit_name(version: int) -> str:
    """The file of a commit, in the table's folder."""
    return f"{LOG}/{version:0{_DIGITS}d}.json"


@dataclass(frozen=True)
class DataFile:
    """A data file of a version, with the vector that it has there. ``action`` is its ``add``, as the log has it."""

    action: Mapping[str, Any]
    names: ColumnNames = UNMAPPED
    """Those that its table's columns have in it."""

    @property
    def path(self) -> str:
        """Its path as the log has it: percent-encoded."""
        return str(self.action["path"])

    @property
    def name(self) -> str:
        """Its name in the table's folder."""
        return unquote(self.path)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.action["size"])

    @property
    def vector(self) -> Mapping[str, Any] | None:
        """Its deletion vector's descriptor."""
        found: Mapping[str, Any] | None = self.action.get("deletionVector")
        return found

    @property
    def deleted(self) -> int:
        """How many of its rows do not count."""
        return 0 if self.vector is None else int(self.vector["cardinality"])

    @cached_property
    def statistics(self) -> Statistics:
        """What the log says of its rows, deleted ones included."""
        return Statistics.parse(self.action.get("stats"))

    def bounds(self, path: tuple[str, ...], kind: pa.DataType) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column, or of a field in one, as :meth:`Statistics.bounds`."""
        return self.statistics.bounds(self.names.path(path), kind)

    def open(self, folder: str) -> AbstractContextManager[NamedFile]:
        """The file, with its table's names.

        :param folder: the table's.
        :raises OSError: it cannot be read.
        """
        return self.names.open(folder, self.name)

    def removal(self, now_ms: int, *, data_change: bool) -> dict[str, Any]:
        """The action by which it, with its vector, is no longer part of the table.

        :param data_change: whether rows go with it.
        """
        remove: dict[str, Any] = {
            "path": self.path,
            "deletionTimestamp": now_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": self.action.get("partitionValues") or {},
            "size": self.action["size"],
        }
        if self.vector is not None:
            remove["deletionVector"] = dict(self.vector)
        return {"remove": remove}


@dataclass(frozen=True)
class Snapshot:
    """A table at one version; −1: there is none."""

    version: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Application → the newest version of its transaction marker."""
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """By path; empty if the log is followed without them."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        found: Mapping[str, str] = self.metadata.get("configuration") or {}
        return found

    @property
    def _columns(self) -> str:
        return str(self.metadata.get("schemaString") or "")

    @property
    def schema_json(self) -> str:
        """Its columns, as JSON in the form of Spark's types, without their names in files."""
        return unmarked(self._columns)

    @property
    def names(self) -> ColumnNames:
        """Those that the columns have in files.

        :raises TargetError: the log does not have all.
        """
        return names_of(self._columns, self.properties)

    @property
    def features(self) -> frozenset[str] | None:
        """The table features that it asks of readers and writers; None: of a protocol that does not name them all.

        Writers below 3 have to keep to ``appendOnly`` and ``invariants`` without being asked for them by name.
        """
        writer, reader = (int(self.protocol.get(name) or 0) for name in ("minWriterVersion", "minReaderVersion"))
        if reader == 1 and writer <= 2:
            return frozenset({"appendOnly", "invariants"})
        if writer != 7 or reader not in (1, 2, 3):
            return None
        named = [*(self.protocol.get("readerFeatures") or ()), *(self.protocol.get("writerFeatures") or ())]
        return frozenset([*named, *([MAPPING_FEATURE] if reader == 2 else ())])

    def after(self, version: int, actions: Iterable[Mapping[str, Any]], *, files: bool) -> Snapshot:
        """The version that these actions make."""
        done = list(actions)
        found: dict[str, Any] = {}
        transactions: dict[str, int] = {}
        for action in done:
            if "txn" in action:
                transactions[str(action["txn"]["appId"])] = int(action["txn"]["version"])
            elif "metaData" in action:
                found["metadata"] = action["metaData"]
            elif "protocol" in action:
                found["protocol"] = action["protocol"]
        if transactions:
            found["transactions"] = {**self.transactions, **transactions}
        made = replace(self, version=version, **found)
        if files:
            names = made.names
            gone = {str(action["remove"]["path"]) for action in done if "remove" in action}
            kept = {path: file for path, file in self.files.items() if path not in gone}
            if names != self.names:
                kept = {path: replace(file, names=names) for path, file in kept.items()}
            added = [DataFile(action["add"], names) for action in done if "add" in action]
            made = replace(made, files={**kept, **{file.path: file for file in added}})
        return made


class TableLog:
    """Follows the log of the table in ``folder``. May be used by several threads.

    :param files: whether the data files are followed, too.
    """

    def __init__(self, folder: str, *, files: bool = True) -> None:
        self.folder = folder
        self._with_files = files
        self._lock = Lock()
        self._snapshot = Snapshot()
        self._newest: FileIdentity | None = None

    def refresh(self) -> Snapshot:
        """The newest version.

        :raises TargetError: the log is damaged.
        """
        with self._lock:
            if self._snapshot.version < 0 or commit_identity(self.folder, self._snapshot.version) != self._newest:
                self._snapshot = self._load()
            while (actions := read_commit(self.folder, self._snapshot.version + 1)) is not None:
                self._snapshot = self._after(self._snapshot, self._snapshot.version + 1, actions)
            self._newest = commit_identity(self.folder, self._snapshot.version)
            return self._snapshot

    def _after(self, snapshot: Snapshot, version: int, actions: Iterable[Mapping[str, Any]]) -> Snapshot:
        return snapshot.after(version, actions, files=self._with_files)

    def _load(self) -> Snapshot:
        """From the newest checkpoint of the classic kinds, if there is one."""
        noted = _noted_checkpoint(self.folder)
        found = find_checkpoints(self.folder) if noted is None else {noted: [checkpoint_name(noted)]}
        if not found:
            return Snapshot()
        newest = max(found)
        kinds = (*_KINDS, "add") if self._with_files else _KINDS
        actions = [action for name in found[newest] for action in read_checkpoint(self.folder, name, kinds)]
        return self._after(Snapshot(), newest, actions)


def read_commit(folder: str, version: int) -> list[dict[str, Any]] | None:
    """The actions of a commit; None: there is none.

    :raises TargetError: its file is damaged.
    """
    name = commit_name(version)
    try:
        return [json.loads(line) for line in files_of(folder).read(name).splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    except ValueError:
        raise TargetError(f"{folder}/{name} is damaged") from None


def checkpoint_name(version: int) -> str:
    """The file of a checkpoint that is in one file, in the table's folder."""
    return f"{LOG}/{version:0{_DIGITS}d}.checkpoint.parquet"


def checkpointed_version(folder: str) -> int:
    """The version of the newest checkpoint, by the log's own note; −1: there is none."""
    try:
        return int(json.loads(files_of(folder).read(LAST_CHECKPOINT))["version"])
    except (OSError, ValueError, KeyError):
        return -1


def _noted_checkpoint(folder: str) -> int | None:
    """The version of a checkpoint that is found without listing the log; None: look for the newest one.

    The note may be an old one. If the commit of that version is there, so are all later ones: logs are cleaned from
    their beginning.
    """
    version = checkpointed_version(folder)
    files = files_of(folder)
    if version < 0 or not files.identity(commit_name(version)) or not files.identity(checkpoint_name(version)):
        return None
    return version


def find_checkpoints(folder: str) -> dict[int, list[str]]:
    """The names of the files of each checkpoint of a classic kind that is whole, by version: lists the log."""
    return checkpoints_among(file.name for file in files_of(folder).below(LOG))


def checkpoints_among(names: Iterable[str]) -> dict[int, list[str]]:
    """Those of which these are files of the log."""
    found: dict[int, list[str]] = {}
    for name in names:
        numbered = _CHECKPOINT.fullmatch(name)
        if numbered is not None:
            found.setdefault(int(numbered[1]), []).append(name)
    return {version: sorted(names) for version, names in found.items() if _is_whole(names)}


def commit_identity(folder: str, version: int) -> FileIdentity | None:
    """Tells the file of a commit from another one of that version; None: it is gone."""
    return files_of(folder).identity(commit_name(version))


def _is_whole(names: list[str]) -> bool:
    """Whether these are all the files of a checkpoint: a single one, or ``<i>.<n>`` for i from 1 to n."""
    parts = [name.split(".") for name in names]
    if any(len(part) == 3 for part in parts):
        names[:] = [name for name, part in zip(names, parts, strict=True) if len(part) == 3]
        return True
    numbered = all(len(part) == 5 and part[2].isdigit() and part[3].isdigit() for part in parts)
    return numbered and len(names) == int(parts[0][3])


def read_checkpoint(folder: str, name: str, kinds: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The actions of these kinds in a file of a checkpoint."""
    with files_of(folder).open_parquet(name) as file:
        there = [kind for kind in kinds if kind in file.schema_arrow.names]
        for batch in file.iter_batches(_CHECKPOINT_ROWS, columns=there):
            for kind in there:
                for value in batch.column(kind).drop_null().to_pylist():
                    yield {kind: _plain(value)}


def _plain(value: Any) -> Any:
    """A value of a checkpoint in the form that commits have: maps as objects, without what is null."""
    if not isinstance(value, dict):
        return value
    return {
        name: dict(one) if name in _MAPS else _plain(one)
        for name, one in value.items()
        if one is not None and name not in _OF_CHECKPOINTS
    }

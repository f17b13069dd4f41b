"""Replay of a table's log: what a version requires of writers, and its data files with statistics and vectors.

The log has one commit per version (``_delta_log/<20 digits>.json``, one action a line), and some checkpoints, each with
the actions of all versions up to its own (Delta Transaction Log Protocol). A replay applies a commit's removes before
its adds: a file whose vector changes is removed and added in one commit.

The state stays in memory, so a newer version costs only the commits since, and our own ones cost nothing: they are
applied as they were written. It depends on the log alone: a restarted process reaches the same state. If another table
replaces this one, the file of the newest known commit differs, and the whole log is replayed again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from headgate.delta._actions import checked_action, parse_action
from headgate.delta._files import FileIdentity, files_of, is_inside, is_visible, open_parquet
from headgate.delta._mapping import MAPPING_FEATURE, UNMAPPED, ColumnNames, NamedFile, names_of, without_mapping
from headgate.delta._statistics import INDEXED_LEAVES, Statistics
from headgate.errors import HeadgateError, TargetError
from headgate.parsing import parse_json

__all__ = [
    "CLUSTERING",
    "INDEXED_COLUMNS",
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
    "indexed_leaves",
    "read_checkpoint",
    "read_commit",
    "snapshot_at",
]

LOG: Final = "_delta_log"
"""The folder of the log, in the table's folder."""
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
"""The file that names the newest checkpoint."""
_DIGITS: Final = 20
_CHECKPOINT: Final = re.compile(rf"{LOG}/(\d+)\.checkpoint.*\.parquet")
_MAPS: Final = frozenset({"configuration", "options", "partitionValues", "tags"})
_OF_CHECKPOINTS: Final = frozenset({"stats_parsed", "partitionValues_parsed"})
"""Fields that checkpoints repeat in another form."""
_CHECKPOINT_ROWS: Final = 5000
_KINDS: Final = ("metaData", "protocol", "txn", "domainMetadata")
CLUSTERING: Final = "delta.clustering"
"""The metadata domain with the clustering columns (Delta Transaction Log Protocol, "Clustered Table")."""
INDEXED_COLUMNS: Final = "delta.dataSkippingNumIndexedCols"
"""A table's property: how many leaf columns, from the first, have statistics; -1: all."""
_EVERY_LEAF: Final = (1 << 31) - 1


def commit_name(version: int) -> str:
    """Return the name of a commit's file in the table's folder."""
    return f"{LOG}/{version:0{_DIGITS}d}.json"


@dataclass(frozen=True)
class DataFile:
    """A data file of a version, with its deletion vector there. ``action`` is its ``add``, as in the log."""

    action: Mapping[str, Any]
    names: ColumnNames = UNMAPPED
    """Names of the table's columns in the file."""

    @property
    def path(self) -> str:
        """Path as in the log: percent-encoded."""
        return str(self.action["path"])

    @property
    def name(self) -> str:
        """Name in the table's folder."""
        return unquote(self.path)

    @property
    def is_inside(self) -> bool:
        """Whether it is in the table's folder."""
        return is_inside(self.name)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(self.action["size"])

    @property
    def vector(self) -> Mapping[str, Any] | None:
        """Descriptor of the deletion vector, if any."""
        descriptor: Mapping[str, Any] | None = self.action.get("deletionVector")
        return descriptor

    @property
    def deleted(self) -> int:
        """Number of deleted rows."""
        return 0 if self.vector is None else int(self.vector["cardinality"])

    @property
    def is_clustered(self) -> bool:
        """Whether a program has clustered it with other files."""
        return bool(self.action.get("clusteringProvider"))

    @cached_property
    def statistics(self) -> Statistics:
        """The log's statistics of its rows, deleted ones included."""
        return Statistics.parse(self.action.get("stats"))

    def rows(self, folder: str) -> int:
        """Return the number of rows, deleted ones included: the log's, else the file's.

        :raises OSError: it cannot be read.
        """
        if self.statistics.rows is not None:
            return self.statistics.rows
        with open_parquet(folder, self.name) as opened:
            return int(opened.metadata.num_rows)

    def bounds(self, path: tuple[str, ...], kind: pa.DataType) -> tuple[Any, Any] | None:
        """Return the least and greatest value of a column, or of a field in one, as :meth:`Statistics.bounds`."""
        return self.statistics.bounds(self.names.path(path), kind)

    def is_whole(self, column: str) -> bool:
        """Return whether each row has a value in a column, as far as is known."""
        return self.statistics.null_count(self.names.path((column,))) == 0

    @contextmanager
    def open(self, folder: str) -> Iterator[NamedFile]:
        """Open the file under the table's column names.

        :param folder: the table's.
        :raises OSError: it cannot be read.
        """
        with open_parquet(folder, self.name) as file:
            yield NamedFile(file, self.names)

    def removal(self, *, data_change: bool) -> dict[str, Any]:
        """Return the action that removes the file, with its vector, from the table.

        :param data_change: whether rows are removed with it.
        """
        remove: dict[str, Any] = {
            "path": self.path,
            "deletionTimestamp": time.time_ns() // 1_000_000,
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
    """A table at one version; −1: the table does not exist."""

    version: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Application → newest version of its transaction marker."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """Metadata domain → its configuration, as JSON (Delta Transaction Log Protocol, "Domain Metadata")."""
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """By path; empty if the log is followed without files."""
    identity: FileIdentity | None = None
    """Identity of the version's commit file, if :class:`TableLog` read it."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        configuration: Mapping[str, str] = self.metadata.get("configuration") or {}
        return configuration

    @property
    def _columns(self) -> str:
        return str(self.metadata.get("schemaString") or "")

    @property
    def schema_json(self) -> str:
        """The columns, as JSON in the form of Spark's types, without their names in files."""
        return without_mapping(self._columns)

    @property
    def names(self) -> ColumnNames:
        """Names of the columns in files.

        :raises TargetError: the log lacks one.
        """
        return names_of(self._columns, self.properties)

    @cached_property
    def clustering(self) -> tuple[str, ...]:
        """The columns by which the table is clustered, in their order. Names of columns that it lacks are left out."""
        if CLUSTERING not in self.domains:
            return ()
        columns = (str(one["name"]) for one in parse_json(self._columns)["fields"])
        known = {self.names.path((name,)): name for name in columns}
        return tuple(known[path] for path in _paths_in(self.domains[CLUSTERING]) if path in known)

    @property
    def indexed_leaves(self) -> int:
        """Number of leaf columns, from the first, that have statistics in new files."""
        return indexed_leaves(self.properties)

    @property
    def reader_features(self) -> frozenset[str] | None:
        """Table features that readers must support; None: the protocol version does not name them."""
        version = int(self.protocol.get("minReaderVersion") or 0)
        named = {1: (), 2: (MAPPING_FEATURE,), 3: self.protocol.get("readerFeatures") or ()}.get(version)
        return None if named is None else frozenset(named)

    @property
    def features(self) -> frozenset[str] | None:
        """Table features that readers and writers must support; None: the protocol version does not name them all.

        Versions below 3 require ``appendOnly`` and ``invariants`` of writers without naming them.
        """
        writer, reader = int(self.protocol.get("minWriterVersion") or 0), self.reader_features
        if reader == frozenset() and writer <= 2:
            return frozenset({"appendOnly", "invariants"})
        if writer != 7 or reader is None:
            return None
        return reader | frozenset(self.protocol.get("writerFeatures") or ())

    def after(self, version: int, actions: Iterable[Mapping[str, Any]], *, files: bool) -> Snapshot:
        """Return the version that these actions make."""
        done = list(actions)
        changes: dict[str, Any] = {"identity": None}
        transactions: dict[str, int] = {}
        for action in done:
            if "txn" in action:
                transactions[str(action["txn"]["appId"])] = int(action["txn"]["version"])
            elif "metaData" in action:
                changes["metadata"] = action["metaData"]
            elif "protocol" in action:
                changes["protocol"] = action["protocol"]
        if transactions:
            changes["transactions"] = {**self.transactions, **transactions}
        made = replace(self, version=version, domains=_domains_after(self.domains, done), **changes)
        if files:
            names = made.names
            kept = dict(self.files)
            for action in done:
                if "remove" in action:
                    kept.pop(str(action["remove"]["path"]), None)
            if names != self.names:
                kept = {path: replace(file, names=names) for path, file in kept.items()}
            kept |= {str(action["add"]["path"]): DataFile(action["add"], names) for action in done if "add" in action}
            made = replace(made, files=kept)
        return made

    def is_in(self, folder: str) -> bool:
        """Return whether the table still has this version as :class:`TableLog` read it: no other table replaced it."""
        if self.version < 0:
            return True
        return self.identity is not None and commit_identity(folder, self.version) == self.identity


def indexed_leaves(properties: Mapping[str, str]) -> int:
    """Return how many leaf columns, from the first, have statistics in new files of a table with these properties."""
    try:
        count = int(properties.get(INDEXED_COLUMNS, INDEXED_LEAVES))
    except ValueError:
        return INDEXED_LEAVES
    return count if count >= 0 else _EVERY_LEAF


def _domains_after(domains: Mapping[str, str], actions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the metadata domains after a commit."""
    after = dict(domains)
    for action in actions:
        if "domainMetadata" in action:
            changed = action["domainMetadata"]
            after.pop(str(changed["domain"]), None)
            if not changed.get("removed"):
                after[str(changed["domain"])] = str(changed["configuration"])
    return after


def _paths_in(configuration: str) -> Iterator[tuple[str, ...]]:
    """Yield the columns that a configuration of the clustering domain names, by their names in files."""
    try:
        value = parse_json(configuration)
    except ValueError:
        return
    columns = value.get("clusteringColumns") if isinstance(value, dict) else None
    for path in columns if isinstance(columns, list) else ():
        yield tuple(map(str, path)) if isinstance(path, list) else (str(path),)


class TableLog:
    """Follower of the log of the table in ``folder``. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._with_files = False
        self._lock = Lock()
        self._snapshot: Snapshot | None = None  # None: to be read

    def known(self, *, files: bool = True) -> Snapshot:
        """Return the version that this process has read or made last; without one, the newest version.

        :param files: with its data files.
        :raises TargetError: the log is damaged.
        """
        with self._lock:
            known = self._snapshot
            if known is not None and known.version >= 0 and (self._with_files or not files):
                return known
        return self.refresh(files=files)

    def transactions(self) -> Mapping[str, int]:
        """Return :attr:`Snapshot.transactions` as of the last look at the table. If there was none, look at it. In
        contrast to :meth:`known`, a table that did not exist is not looked for again.

        :raises TargetError: the log is damaged.
        """
        with self._lock:
            if self._snapshot is not None:
                return self._snapshot.transactions
        return self.refresh(files=False).transactions

    def refresh(self, *, files: bool = True) -> Snapshot:
        """Return the newest version. After an error the version that was known before stays known.

        :param files: with its data files. They are followed from the first time on that they are wanted.
        :raises TargetError: the log is damaged.
        """
        with self._lock:
            with_files = self._with_files or files
            snapshot = self._snapshot if with_files == self._with_files else None
            if snapshot is None or snapshot.version < 0 or not snapshot.is_in(self.folder):
                snapshot = self._load(files=with_files)
            while (actions := read_commit(self.folder, snapshot.version + 1)) is not None:
                snapshot = snapshot.after(snapshot.version + 1, actions, files=with_files)
            if snapshot is not self._snapshot:
                snapshot = replace(snapshot, identity=commit_identity(self.folder, snapshot.version))
            self._snapshot, self._with_files = snapshot, with_files
            return snapshot

    def advance(self, read: Snapshot, actions: Iterable[Mapping[str, Any]]) -> None:
        """Follow a commit that this process has made after the version ``read``, without reading it.

        Another thread may have read the log since: with files, or with this commit. If it knows another version, or the
        store does not answer, the log is read when it is wanted next.
        """
        with self._lock:
            known, version = self._snapshot, read.version + 1
            if known is not None and known.version >= version:
                return
            self._snapshot = None
            if known is not None and (known.version, known.identity) == (read.version, read.identity):
                made = known.after(version, actions, files=self._with_files)
                with suppress(HeadgateError, OSError):
                    self._snapshot = replace(made, identity=commit_identity(self.folder, version))

    def _load(self, *, files: bool) -> Snapshot:
        """Load the newest checkpoint of the classic kinds, if any."""
        noted = _noted_checkpoint(self.folder)
        checkpoints = find_checkpoints(self.folder) if noted is None else {noted: [checkpoint_name(noted)]}
        return _newest_of(self.folder, checkpoints, files=files)


def _newest_of(folder: str, checkpoints: Mapping[int, list[str]], *, files: bool) -> Snapshot:
    """Return the version of the newest of these checkpoints; version −1 without any."""
    if not checkpoints:
        return Snapshot()
    newest, kinds = max(checkpoints), (*_KINDS, "add") if files else _KINDS
    actions = [action for name in checkpoints[newest] for action in read_checkpoint(folder, name, kinds)]
    return Snapshot().after(newest, actions, files=files)


def snapshot_at(folder: str, version: int, *, files: bool = True) -> Snapshot:
    """Return a version of the table.

    :param files: with its data files.
    :raises TargetError: the log does not have it any more, or yet, or is damaged.
    """
    earlier = {number: names for number, names in find_checkpoints(folder).items() if number <= version}
    snapshot = _newest_of(folder, earlier, files=files)
    while snapshot.version < version:
        commit = read_commit(folder, snapshot.version + 1)
        if commit is None:
            raise TargetError(f"{folder} has no version {version}")
        snapshot = snapshot.after(snapshot.version + 1, commit, files=files)
    return snapshot


def read_commit(folder: str, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of a commit; None if it does not exist.

    :raises TargetError: its file is damaged.
    """
    name = commit_name(version)
    try:
        return [parse_action(line) for line in files_of(folder).read(name).splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise TargetError(f"{folder}/{name} is damaged: {error}") from None


def checkpoint_name(version: int) -> str:
    """Return the name of a single-file checkpoint in the table's folder."""
    return f"{LOG}/{version:0{_DIGITS}d}.checkpoint.parquet"


def checkpointed_version(folder: str) -> int:
    """Return the version of the newest checkpoint by ``_last_checkpoint``; −1 if none."""
    try:
        version = parse_json(files_of(folder).read(LAST_CHECKPOINT))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return -1
    return version if isinstance(version, int) else -1


def _noted_checkpoint(folder: str) -> int | None:
    """Return the version of a checkpoint without listing the log; None: list it for the newest one.

    ``_last_checkpoint`` may be old. If the commit of its version exists, so do all later ones: logs are cleaned from
    the start.
    """
    version = checkpointed_version(folder)
    files = files_of(folder)
    if version < 0 or not files.identity(commit_name(version)) or not files.identity(checkpoint_name(version)):
        return None
    return version


def find_checkpoints(folder: str) -> dict[int, list[str]]:
    """List the log; return the file names of each complete checkpoint of a classic kind, by version."""
    return checkpoints_among(file.name for file in files_of(folder).below(LOG, wanted=is_visible))


def checkpoints_among(names: Iterable[str]) -> dict[int, list[str]]:
    """Return the complete checkpoints among these log files, by version."""
    by_version: dict[int, list[str]] = {}
    for name in names:
        numbered = _CHECKPOINT.fullmatch(name)
        if numbered is not None:
            by_version.setdefault(int(numbered[1]), []).append(name)
    return {version: whole for version, names in by_version.items() if (whole := _whole(names))}


def commit_identity(folder: str, version: int) -> FileIdentity | None:
    """Return the identity of a commit's file, to detect a replacement; None if it does not exist."""
    return files_of(folder).identity(commit_name(version))


def _whole(names: list[str]) -> list[str]:
    """Return the files of a complete checkpoint among those of its version; none if each is incomplete.

    It is a single file, or ``<i>.<n>`` for each i from 1 to n.
    """
    by_count: dict[int, dict[int, str]] = {}
    for name in sorted(names):
        parts = name.split(".")
        if len(parts) == 3:
            return [name]
        if len(parts) == 5 and parts[2].isdigit() and parts[3].isdigit():
            by_count.setdefault(int(parts[3]), {})[int(parts[2])] = name
    complete = (
        files for count, files in by_count.items() if len(files) == count and files.keys() == set(range(1, count + 1))
    )
    return list(next(complete, {}).values())


def read_checkpoint(folder: str, name: str, kinds: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the actions of these kinds in a file of a checkpoint.

    :raises TargetError: the file is damaged.
    :raises OSError: it cannot be read.
    """
    try:
        with open_parquet(folder, name) as file:
            present = [kind for kind in kinds if kind in file.schema_arrow.names]
            for batch in file.iter_batches(_CHECKPOINT_ROWS, columns=present):
                for kind in present:
                    for value in batch.column(kind).drop_null().to_pylist():
                        yield checked_action({kind: _plain(value)})
    except (ValueError, pa.ArrowException) as error:
        raise TargetError(f"{folder}/{name} is damaged: {error}") from None


def _plain(value: Any) -> Any:
    """Convert a checkpoint's value to the form of commits: maps as objects, without nulls. The configuration of a
    metadata domain is a text.
    """
    if not isinstance(value, dict):
        return value
    return {
        name: dict(one) if name in _MAPS and not isinstance(one, str) else _plain(one)
        for name, one in value.items()
        if one is not None and name not in _OF_CHECKPOINTS
    }

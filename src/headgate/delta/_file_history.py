"""Removable files of a table: since which version each file is no longer part of the table.

A version is readable as long as its data files and the files of its deletion vectors exist. To keep all versions from
``oldest`` on, a file may be removed if the newest version does not name it and none since ``oldest`` did: a commit at
or before ``oldest`` removed it for the last time.

The log is replayed forwards, once, from the newest checkpoint that is not newer than ``oldest``. After that, only new
commits are read, and the folder need not be listed. A listing finds files of no commit (:meth:`FileHistory.orphans`).

Methods that are generators yield from time to time, so that the caller may pause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from headgate.delta._files import SUCCESSOR, FileIdentity, Listed, files_of, is_inside, is_visible
from headgate.delta._log import commit_identity, find_checkpoints, read_checkpoint, read_commit
from headgate.delta._successor import is_building
from headgate.delta.vectors import vector_file

__all__ = ["FileHistory", "data_files_in"]

_YIELD_COMMITS: Final = 50
_YIELD_ACTIONS: Final = 5000
_VECTOR: Final = ".bin"
_VECTOR_FRAME: Final = 8
"""Bytes around each vector in a file: its size and its CRC (Delta Transaction Log Protocol)."""
_ENDINGS: Final = (".parquet", _VECTOR)
_FEATURES: Final = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
        "identityColumns", "deletionVectors", "rowTracking", "timestampNtz", "domainMetadata", "clustering",
        "variantType", "variantType-preview", "typeWidening", "typeWidening-preview", "allowColumnDefaults",
        "vacuumProtocolCheck",
    }
)  # fmt: skip
"""Features of tables whose files are all named by ``add`` actions of their commits and classic checkpoints."""


class FileHistory:
    """The files of the table in ``folder``, followed through its versions. Not thread-safe.

    :param oldest: the oldest version that must stay readable.
    """

    def __init__(self, folder: str, oldest: int) -> None:
        self.folder = folder
        self.version = -1
        """The newest version that was followed."""
        self.same_since = 0
        """All versions from this one to the newest have the same rows and columns."""
        self._oldest = oldest
        self._names: dict[str, tuple[str, ...]] = {}
        self._uses: Counter[str] = Counter()
        self._gone: dict[str, int] = {}
        self.vectors = 0
        """Number of the files of deletion vectors that exist, by the log."""
        self.bytes = 0
        """Bytes of all files that exist, by the log."""
        self.properties: Mapping[str, str] = {}
        """Table properties of the newest version."""
        self._columns: str | None = None
        self._elsewhere = False
        self._features: frozenset[str] = frozenset()
        self._identity: FileIdentity | None = None

    @property
    def is_removable(self) -> bool:
        """Whether all files of its versions are known: a log names them, none is elsewhere, no other kind exists."""
        return self.version >= 0 and not self._elsewhere and self._features <= _FEATURES

    @property
    def data_files(self) -> int:
        """Number of data files of the newest version."""
        return len(self._names)

    @property
    def existing_data_files(self) -> int:
        """Number of the data files that exist, by the log: of all versions, until they are removed."""
        return len(self._uses) + len(self._gone) - self.vectors

    def is_live(self, name: str) -> bool:
        """Whether the newest version needs the file."""
        return name in self._uses

    def gone_since(self, name: str) -> int | None:
        """Return the first version without a file that an earlier one needs; None: there is no such file."""
        return self._gone.get(name)

    def is_continued(self) -> bool:
        """Whether the log still has the newest version that was followed: no other table replaced this one."""
        return self.version < 0 or commit_identity(self.folder, self.version) == self._identity

    def follow(self) -> Iterator[None]:
        """Read the commits after :attr:`version`.

        :raises TargetError: the log is damaged.
        """
        if self.version < 0:
            yield from self._begin()
        done = 0
        while (actions := read_commit(self.folder, self.version + 1)) is not None:
            self.version += 1
            self._apply(actions)
            done += 1
            if done % _YIELD_COMMITS == 0:
                yield
        self._identity = commit_identity(self.folder, self.version)

    def _begin(self) -> Iterator[None]:
        """Start at the newest checkpoint that is not newer than the oldest version; else at commit 0, or if that is
        missing at the oldest checkpoint.
        """
        checkpoints = find_checkpoints(self.folder)
        earlier = [version for version in checkpoints if version <= self._oldest]
        if not checkpoints or (not earlier and read_commit(self.folder, 0) is not None):
            return
        self.version = self.same_since = max(earlier) if earlier else min(checkpoints)
        for kinds in (("protocol", "metaData", "add"), ("remove",)):  # adds first: a file in use is not gone
            for name in checkpoints[self.version]:
                for count, action in enumerate(read_checkpoint(self.folder, name, kinds)):
                    self._apply([action], replayed=True)
                    if count % _YIELD_ACTIONS == 0:
                        yield

    def _apply(self, actions: Iterable[Mapping[str, Any]], *, replayed: bool = False) -> None:
        """Apply the actions of a commit, its removes before its adds.

        :param replayed: they are from a checkpoint, whose adds are applied before its removes.
        """
        taken: list[str] = []
        unknown = []
        added = []
        for action in actions:
            if "remove" in action:
                known = None if replayed else self._names.pop(_name(action["remove"]), None)
                taken += known or ()
                unknown += [action["remove"]] if known is None else []
            elif "add" in action:
                added.append(action["add"])
            if not replayed and self._changes(action):
                self.same_since = self.version
            self._note(action)
        self._count_new([*added, *unknown])
        for add in added:
            taken += self._names.pop(_name(add), ())
            files = self._names[_name(add)] = self._files(add)
            self._uses.update(files)
            for name in files:
                self._gone.pop(name, None)
        self._uses.subtract(taken)
        self._record_gone({*taken, *(name for remove in unknown for name in self._files(remove))})

    def _count_new(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Count the files of these ``add`` and ``remove`` of a commit that no commit before it had."""
        new = set()
        for action in actions:
            framed = (action.get("deletionVector") or {}).get("sizeInBytes", 0) + _VECTOR_FRAME
            for name, size in zip(self._files(action), (action.get("size") or 0, framed), strict=False):
                if name in new or (name not in self._uses and name not in self._gone):
                    new.add(name)
                    self.bytes += size
        vectors = sum(name.endswith(_VECTOR) for name in new)
        self.vectors += vectors
        self.bytes += vectors  # a byte for the version of the file

    def _record_gone(self, names: Iterable[str]) -> None:
        """Record those of these files that are unused as gone since this version."""
        for name in names:
            if self._uses[name] <= 0:
                del self._uses[name]
                if name not in self._gone:
                    self._gone[name] = self.version

    def _note(self, action: Mapping[str, Any]) -> None:
        if "metaData" in action:
            self._columns = action["metaData"].get("schemaString")
            self.properties = action["metaData"].get("configuration") or {}
        elif "protocol" in action:
            feature_lists = (action["protocol"].get(f"{who}Features") or () for who in ("reader", "writer"))
            self._features = frozenset(feature for features in feature_lists for feature in features)

    def _changes(self, action: Mapping[str, Any]) -> bool:
        """Whether an action adds, removes or changes rows or columns."""
        if "metaData" in action:
            return bool(action["metaData"].get("schemaString") != self._columns)
        file_action = action.get("add") or action.get("remove")
        return file_action is not None and bool(file_action.get("dataChange", True))

    def _files(self, action: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the files of an ``add`` or ``remove``, by their names in the folder."""
        vector = action.get("deletionVector")
        names = [_name(action), *([] if vector is None or vector["storageType"] == "i" else [vector_file(vector)])]
        if not all(is_inside(name) for name in names):
            self._elsewhere = True
        return tuple(names)

    def unneeded(self, oldest: int) -> list[str]:
        """Return the names of files that by the log no version from ``oldest`` on has. Files of a successor that is
        being built stay: if its take-over was undone, the table has had them.
        """
        names = []
        if self.is_removable:
            building = _Building(self.folder)
            for name, version in self._gone.items():
                if version > oldest:
                    break
                if not building.has(name):
                    names.append(name)
        return names

    def forget(self, names: Iterable[str], removed_bytes: int) -> None:
        """Forget files that were removed.

        :param removed_bytes: what they had.
        """
        self.bytes -= removed_bytes
        for name in names:
            if self._gone.pop(name, None) is not None:
                self.vectors -= name.endswith(_VECTOR)

    def orphans(self, before: float) -> Iterator[Listed | None]:
        """Yield files in the folder that no followed version has, and that were written before a moment.

        Lists the folder. A file may belong to a commit in progress, so the moment must be long ago.

        :param before: seconds since 1970 UTC.
        :return: None from time to time, for a pause.
        """
        if not self.is_removable:
            return
        for count, file in enumerate(data_files_in(self.folder)):
            known = file.name in self._uses or file.name in self._gone
            identity = None if known else file.identity()
            if identity is not None and identity.modified < before:
                yield file
            elif count % _YIELD_ACTIONS == 0:
                yield None


def data_files_in(folder: str) -> Iterator[Listed]:
    """Yield the data files and deletion vectors in a table's folder. Hidden files, and those of a successor that is
    being built, are not the table's.
    """
    building = _Building(folder)
    for file in files_of(folder).below(wanted=is_visible):
        if file.name.endswith(_ENDINGS) and not building.has(file.name):
            yield file


class _Building:
    """Successors of a table that are being built, each looked at once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._building: dict[str, bool] = {}

    def has(self, name: str) -> bool:
        """Return whether a file in the table's folder is one of theirs."""
        top = name.partition("/")[0]
        if top.startswith(SUCCESSOR) and top not in self._building:
            self._building[top] = is_building(self._folder, top)
        return self._building.get(top, False)


def _name(action: Mapping[str, Any]) -> str:
    return unquote(str(action["path"]))

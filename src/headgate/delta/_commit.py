"""Commits to a table's log: the one place that makes a version, learns what became of it, and removes files after it.

Delta's own transaction in the JVM takes some 100 ms per commit on a local disk, mostly for processes that Hadoop's
local file system starts to set permissions. In a local folder a commit is a file with an unused name: it is written
under a temporary name, synced, and linked to its name, which the operating system does for one writer only. In an
object store it is a conditional request (``headgate.stores``).

**An outcome is committed, not committed or unknown** (:class:`CommitOutcome`). No error proves that a commit failed: a
client repeats a PUT whose answer was lost, and finds its own object. ``link()`` on NFS reports EEXIST after it has
worked. A request that timed out arrives later. So after any error the version is read, and the ``txnId`` in its
``commitInfo`` decides: ours or another program's. If the version does not exist, the same bytes are put again: a late
request can then only repeat them. If that does not settle it, :class:`CommitUnknownError` is raised.

**A free version is not enough.** If another table replaced this one, or its log was shortened, the next version may be
free although the one before it is gone. So the version that was read is looked at before the commit: if it is another
one, the commit is not made, and planned again.

**New files may be gone.** Files of no commit are removed after a day (``headgate.upkeep``), also by programs of other
machines, which do not know how long this one slept. So a commit whose new files were written long ago is not tried.

**Nothing is deleted on suspicion.** Files that were written for a commit are removed only after it is known that no
version names them: another program has made that version, or ours does not name them. All other files stay, and are
removed as orphans a day later (``headgate.upkeep``).

**Power loss.** Data files are synced when they are written (``_files``), their folder before the commit, and the log's
folder after it. So what a version names is on the disk before the version is, and the version before anything that
names it, such as a row of the ledger.

Only tables that require nothing of writers except these actions may be written this way (``headgate.lake``).
"""

from __future__ import annotations

import enum
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from headgate.delta._actions import parse_action
from headgate.delta._files import discard_files, files_of
from headgate.delta._log import LOG, Snapshot, TableLog, commit_name, read_commit
from headgate.errors import CommitConflictError, CommitUnknownError, StorageError, TargetError
from headgate.files import sync
from headgate.retrying import RetryPolicy
from headgate.stores import is_remote

__all__ = ["CommitOutcome", "CommitPlan", "commit"]

_TRIES: Final = 4
"""Plans of one commit, each on a newer version."""
_NEW_SECONDS: Final = 20 * 3600.0
"""Maximum age of new files when they are committed. Clocks of machines may differ by the rest of the day."""
_RETRY: Final = RetryPolicy(0.15, tries=5, errors=CommitUnknownError)
"""Looks at the log after a commit without an answer."""


class CommitOutcome(enum.Enum):
    """What became of a commit."""

    COMMITTED = enum.auto()
    NOT_COMMITTED = enum.auto()
    """Another program has made the version, or replaced the one before it: this commit can no longer make it."""
    UNKNOWN = enum.auto()
    """The version does not exist, or cannot be read: the commit may still make it."""


@dataclass(frozen=True)
class CommitPlan:
    """A commit of the version after the one that it was planned on."""

    read: Snapshot
    """The version that it was planned on."""
    actions: Sequence[Mapping[str, Any]]
    """As in the log."""
    operation: str
    """Its name in the table's history."""
    parameters: Mapping[str, str]
    """Parameters there."""
    blind: bool = False
    """It only adds rows, independent of the table's content, so it conflicts with no other."""
    written: Collection[str] = ()
    """Files that were written for this plan alone, by name."""

    @property
    def version(self) -> int:
        """The version that it makes."""
        return self.read.version + 1

    @property
    def emptied(self) -> list[str]:
        """The files that it removes from the table, by their paths in the log."""
        added = {str(add["path"]) for add in self.of_kind("add")}
        return [str(remove["path"]) for remove in self.of_kind("remove") if remove["path"] not in added]

    @cached_property
    def lines(self) -> list[str]:
        """Its actions as JSON text."""
        return [*map(json.dumps, self.actions)]

    def of_kind(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """Return its actions of one kind, such as ``add``."""
        return (action[kind] for action in self.actions if kind in action)


def commit(
    log: TableLog,
    plan: Callable[[], CommitPlan | None],
    *,
    tries: int | None = None,
    staged: Collection[str] = (),
    marker: Mapping[str, Any] | None = None,
) -> CommitPlan | None:
    """Commit the next version of a table, or its first one. Return the plan that was committed; None: there was nothing
    to commit.

    :param log: of the table; it follows the commit without reading it.
    :param plan: plans on the newest version; None: there is nothing to commit. Called again after a conflict.
    :param tries: number of plans; None: 4.
    :param staged: names of files that were written for all plans. Those that no commit names are removed.
    :param marker: an action that the commit gets, whatever is planned.
    :raises CommitConflictError: another program committed first, each time, or ``plan`` raised it; or new files are so
        old that another program may have removed them. Nothing was committed.
    :raises TargetError: ``plan`` raised it: headgate cannot write the table. Nothing was committed.
    :raises CommitUnknownError: it is not known whether the commit was made. All files stay.
    :raises OSError: the plan or the commit's file could not be prepared; StorageError likewise. Nothing was committed.
    """
    folder, version = log.folder, -1
    for left in reversed(range(_TRIES if tries is None else tries)):
        try:
            planned = plan()
        except (CommitConflictError, TargetError, StorageError, OSError):  # so far no commit was made
            discard_files(folder, staged)
            raise
        if planned is None:
            discard_files(folder, staged)
            return None
        if marker is not None:
            planned = replace(planned, actions=[*planned.actions, marker])
        new = {*planned.written, *staged}
        try:
            _check_age(folder, planned, new)
            outcome = _make(folder, planned)
        except (CommitConflictError, StorageError, OSError):  # it was not tried
            discard_files(folder, new)
            raise
        if outcome is CommitOutcome.COMMITTED:
            log.advance(planned.read, map(parse_action, planned.lines))
            if staged:
                discard_files(folder, {*staged} - {str(add["path"]) for add in planned.of_kind("add")})
            return planned
        version = planned.version
        discard_files(folder, planned.written if left else new)
    raise CommitConflictError(f"{folder}: another program committed version {version}, or replaced the table")


def _check_age(folder: str, plan: CommitPlan, new: Collection[str]) -> None:
    """Raise ``CommitConflictError`` if a new file was written so long ago that it may have been removed."""
    if not new:
        return
    for add in plan.of_kind("add"):
        age = time.time() - int(add["modificationTime"]) / 1000
        if add["path"] in new and age > _NEW_SECONDS:
            raise CommitConflictError(
                f"{folder}: {add['path']} was written {age / 3600:.0f} hours ago, so it may have been removed meanwhile"
            )


def _make(folder: str, plan: CommitPlan) -> CommitOutcome:
    """Make a planned version, and settle the outcome.

    :raises CommitUnknownError: it cannot be settled.
    :raises OSError: it was not tried, because its file could not be prepared; StorageError likewise.
    """
    if not plan.read.is_in(folder):
        return CommitOutcome.NOT_COMMITTED
    transaction = str(uuid.uuid4())
    about = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": plan.operation,
        "operationParameters": dict(plan.parameters),
        "isolationLevel": "Serializable",
        "isBlindAppend": plan.blind,
        "engineInfo": "headgate",
        "txnId": transaction,
        **({"readVersion": plan.read.version} if plan.read.version >= 0 else {}),
    }
    text = "".join(f"{line}\n" for line in (json.dumps({"commitInfo": about}), *plan.lines))
    name, tried = commit_name(plan.version), False
    with files_of(folder).new_file(name, text.encode(), first=plan.version == 0) as create:

        def settle() -> CommitOutcome:
            nonlocal tried
            try:
                if tried and not plan.read.is_in(folder):
                    raise CommitUnknownError(
                        f"{folder}: replaced while the outcome of version {plan.version} was unknown"
                    )
                tried = True
                create()
            except CommitUnknownError:
                raise
            except Exception as error:
                outcome = _outcome(folder, plan.version, transaction)
                if outcome is not CommitOutcome.UNKNOWN:
                    return outcome
                raise CommitUnknownError(
                    f"{folder}: it is unknown whether version {plan.version} was committed: {_first_line(error)}"
                ) from error
            return CommitOutcome.COMMITTED

        outcome = _RETRY.call(settle)
    if outcome is CommitOutcome.COMMITTED and not is_remote(folder):
        try:
            sync(Path(folder, LOG))
        except OSError as error:
            raise CommitUnknownError(
                f"{folder}: version {plan.version} may not outlast a loss of power: {error}"
            ) from None
    return outcome


def _outcome(folder: str, version: int, transaction: str) -> CommitOutcome:
    """Return the outcome of a commit by the version's content."""
    try:
        actions = read_commit(folder, version)
    except Exception:  # noqa: BLE001 - each store has its own errors; the file may be incomplete
        return CommitOutcome.UNKNOWN
    if not actions:  # an empty file: NFS may show the name before the content
        return CommitOutcome.UNKNOWN
    made = any((action.get("commitInfo") or {}).get("txnId") == transaction for action in actions)
    return CommitOutcome.COMMITTED if made else CommitOutcome.NOT_COMMITTED


def _first_line(error: Exception | None) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

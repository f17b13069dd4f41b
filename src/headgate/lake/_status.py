"""``status.json`` in the inbox: how a pipeline is doing, for people and monitors to look at.

The running pipeline replaces the file whole after every batch and every few seconds between them; nothing reads it to
decide anything, so it may be removed at any time. Figures of a run that was killed stay as they were: whether the run
lives is told by its process and by ``updated_us``, never by ``state`` alone (:meth:`Status.is_alive`).
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from headgate.carrier import ControlFile, ControlFolder
from headgate.errors import TargetError

__all__ = [
    "Activity",
    "BatchStatus",
    "FreshnessStatus",
    "HistoryStatus",
    "IndexStatus",
    "LagStatus",
    "Phase",
    "RecentBatch",
    "SnapshotStatus",
    "Status",
    "TableReading",
    "TableStatus",
    "WarningStatus",
    "pid_namespace",
    "read_status",
]

_OLD_US = 60_000_000
"""A run writes every 5 s; after a minute of silence it hangs, or its machine is gone."""


class _Model(BaseModel):
    # A reader understands what a later version adds; what it takes away or changes raises ``v``.
    model_config = ConfigDict(frozen=True, extra="ignore")


_CHANGES = Field(0, validation_alias=AliasChoices("changes", "images"))
"""Version 1 counted row images, of which an update may have two."""

Phase = Literal["starting", "checking", "planning", "reading", "applying", "waiting", "retrying", "stopping"]
"""What a run does: it starts Spark; looks at the lake's tables; plans a batch; reads it from MySQL; applies it to the
tables; has found nothing to do; waits before it tries again after a failure; ends."""


_CARE = {"stopped": 0, "stale": 1, "inexact": 2, "snapshotting": 3, "settling": 3}


class TableStatus(_Model):
    """One table as of the newest ledger row; ``changes`` and ``rows`` (of snapshots) count since the run began.

    ``merged``: why the newest changes came into it by MERGE, which takes seconds; None: they did not.

    While it is snapshotting: ``rows_read`` of about ``rows_estimate`` rows are applied, also by earlier runs, in
    ``chunks_done`` of about ``chunks_estimate`` chunks; ``since_epoch`` tells one snapshot of the table from the next.
    """

    state: str
    version: int | None = None
    since_epoch: int | None = None
    rows_read: int = 0
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None
    reason: str | None = None
    merged: str | None = None
    changes: int = _CHANGES
    rows: int = 0
    changes_per_second: float = 0.0

    @property
    def care(self) -> int:
        """Lists of tables are sorted by this: what needs care comes first."""
        return _CARE.get(self.state, len(_CARE))


class BatchStatus(_Model):
    """The newest batch; times in microseconds since 1970 UTC, ``seconds`` is how long it took."""

    batch_id: int
    epoch: int
    gtid: str
    committed_us: int
    rows: int
    changes: int = _CHANGES
    seconds: float


class RecentBatch(_Model):
    """A ledger row in short; ``gtid`` is cut at its beginning if it is long; ``transactions`` is null without GTIDs."""

    batch_id: int
    epoch: int
    gtid: str
    committed_us: int
    transactions: int | None
    rows: int
    changes: int = _CHANGES
    tables: int
    seconds: float


class LagStatus(_Model):
    """How far the lake is behind the source; None: not known. ``transactions`` are the least that it lacks."""

    seconds: float | None = None
    transactions: int | None = None


class FreshnessStatus(_Model):
    """How many seconds after their commit at the source changes were in the ledger.

    ``p50`` and ``p99`` are those of the last five minutes' changes; None: there were none. The others are of all
    ``changes`` since the run began: ``seconds`` is their sum, ``buckets`` has ascending limits in seconds, and how many
    changes took at most so long.
    """

    p50: float | None = None
    p99: float | None = None
    changes: int = 0
    seconds: float = 0.0
    buckets: tuple[tuple[float, int], ...] = ()


class HistoryStatus(_Model):
    """The last ten minutes, also of the run before: a point for each five seconds, with the greatest lag in these."""

    at_us: tuple[int, ...] = ()
    lag_seconds: tuple[float | None, ...] = ()
    changes_per_second: tuple[float, ...] = ()


class IndexStatus(_Model):
    """The key indexes on this machine: for how many tables one is being built, and their bytes on disk."""

    tables_building: int = 0
    bytes_on_disk: int = 0


class TableReading(_Model):
    """What a batch reads of a table: its chunks ``first`` to ``last`` (from 1) of about ``chunks_estimate``.

    ``rows`` of about ``rows_estimate`` are read so far; the whole table has about ``table_rows_estimate``.
    """

    first: int
    last: int
    chunks_estimate: int
    rows: int = 0
    rows_estimate: int = 0
    table_rows_estimate: int | None = None


class Activity(_Model):
    """What a run does now. The figures are of the batch that is being read or applied.

    ``rows`` and ``changes`` are read so far, or are being applied; None: nobody can tell, because the tasks run on
    machines that do not share the control folder. Then ``tasks_done`` of ``tasks`` says how far it is.
    """

    phase: Phase
    since_us: int
    batch_id: int | None = None
    tables: dict[str, TableReading] = Field(default_factory=dict)
    rows: int | None = None
    rows_estimate: int | None = None
    rows_per_second: float | None = None
    seconds_left: float | None = None
    changes: int | None = None
    transactions: int | None = None
    tasks: int | None = None
    tasks_done: int | None = None
    tables_written: int | None = None
    tables_to_write: int | None = None
    paused: bool = False


class SnapshotStatus(_Model):
    """The tables that are being read, or wait for it: rows applied so far, and about how many there are.

    ``rows_estimate`` is None as long as a table waits, ``seconds_left`` also as long as nothing is known of the speed.
    """

    tables: int
    rows: int
    rows_estimate: int | None = None
    seconds_left: float | None = None


class WarningStatus(_Model):
    """A warning, or an error after which the run went on or ended."""

    at_us: int
    level: Literal["warning", "error"]
    text: str


class Status(_Model):
    """The whole file. ``error``: what ended the run, or what it is trying again after.

    ``as_of_us``: the lake has everything that the server had committed then; None: no run has found out yet.
    ``writes``: by :class:`~headgate.lake.Way`, how often a batch of this run came into a current table that way.
    """

    v: Literal[1, 2] = 2
    pipeline: str
    pid: int
    host: str
    pid_namespace: str = ""
    started_us: int
    updated_us: int
    state: Literal["running", "idle", "stopped", "failed"]
    error: str | None = None
    activity: Activity | None = None
    as_of_us: int | None = None
    batches: int = 0
    batch: BatchStatus | None = None
    lag: LagStatus = LagStatus()
    freshness: FreshnessStatus = FreshnessStatus()
    changes_per_second: float = 0.0
    rows_per_second: float = 0.0
    history: HistoryStatus = HistoryStatus()
    writes: dict[str, int] = Field(default_factory=dict)
    index: IndexStatus | None = None
    snapshot: SnapshotStatus | None = None
    tables: dict[str, TableStatus] = Field(default_factory=dict)
    recent: tuple[RecentBatch, ...] = ()
    warnings: tuple[WarningStatus, ...] = ()

    def is_alive(self, now_us: int | None = None) -> bool:
        """Whether the run that wrote this still goes on.

        False if it said that it ended, if it has not written for a minute, or if its process is gone; the process can
        be looked for only from the same host and PID namespace (a container beside it sees other numbers).
        """
        if self.state in ("stopped", "failed"):
            return False
        if (time.time_ns() // 1000 if now_us is None else now_us) - self.updated_us > _OLD_US:
            return False
        here = (platform.node(), pid_namespace()) == (self.host, self.pid_namespace)
        return not here or _exists(self.pid)

    def condition(self, now_us: int | None = None) -> str:
        """``running``, ``idle``, ``stopped``, ``failed``; ``not running`` if the run ended without a word."""
        return self.state if self.state in ("stopped", "failed") or self.is_alive(now_us) else "not running"

    def tables_now(self) -> dict[str, TableStatus]:
        """The tables of the ledger, and those that the batch under way reads for the first time; by name."""
        reads = self.activity.tables if self.activity is not None else {}
        return dict(sorted({**{name: TableStatus(state="snapshotting") for name in reads}, **self.tables}.items()))

    def reading(self, table: str) -> TableReading | None:
        """What the batch that is being read has of a table."""
        return self.activity.tables.get(table) if self.activity is not None else None

    def at_rest(self) -> Status:
        """The same of a run that is over: it does nothing, at no rate."""
        tables = {name: table.model_copy(update={"changes_per_second": 0.0}) for name, table in self.tables.items()}
        snapshot = None if self.snapshot is None else self.snapshot.model_copy(update={"seconds_left": None})
        freshness = self.freshness.model_copy(update={"p50": None, "p99": None})
        update = {"activity": None, "changes_per_second": 0.0, "rows_per_second": 0.0, "index": None}
        return self.model_copy(update={**update, "tables": tables, "snapshot": snapshot, "freshness": freshness})

    def needs_care(self, now_us: int | None = None) -> bool:
        """Whether somebody should look: the run failed or is gone, or a table takes no changes."""
        held = any(table.state in ("stale", "stopped") for table in self.tables.values())
        return held or self.condition(now_us) in ("failed", "not running")

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return self.model_dump(mode="json")


def read_status(inbox: ControlFolder, now_us: int | None = None) -> Status | None:
    """What the pipeline last said; None if it never said anything. A run that is gone is :meth:`~Status.at_rest`.

    :raises TargetError: the file is damaged, or of a newer headgate.
    """
    value = inbox.read(ControlFile.STATUS)
    if value is None:
        return None
    version = value.get("v")
    if isinstance(version, int) and version > 2:
        raise TargetError(
            f"{inbox.path}/{ControlFile.STATUS} was written by a newer headgate (v {version}): upgrade this one"
        )
    try:
        status = Status.model_validate(value)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise TargetError(
            f"{inbox.path}/{ControlFile.STATUS} is damaged at {place}; remove it, the pipeline writes it again"
        ) from None
    return status if status.activity is None or status.is_alive(now_us) else status.at_rest()


def pid_namespace() -> str:
    """What tells this process' numbering of processes from that of another container; "" where nothing does."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

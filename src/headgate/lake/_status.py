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

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headgate.errors import TargetError
from headgate.lake._inbox import Inbox

__all__ = [
    "STATUS_FILE",
    "BatchStatus",
    "LagStatus",
    "RecentBatch",
    "Status",
    "TableStatus",
    "WarningStatus",
    "duration",
    "pid_namespace",
    "read_status",
]

STATUS_FILE = "status.json"

_OLD_US = 60_000_000
"""A run writes every 5 s; after a minute of silence it hangs, or its machine is gone."""


class _Model(BaseModel):
    # A reader understands what a later version adds; what it takes away or changes raises ``v``.
    model_config = ConfigDict(frozen=True, extra="ignore")


class TableStatus(_Model):
    """One table as of the newest ledger row; ``images`` and ``rows`` count since the run began."""

    state: str
    version: int | None = None
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None
    reason: str | None = None
    images: int = 0
    rows: int = 0


class BatchStatus(_Model):
    """The newest batch; times in microseconds since 1970 UTC, ``seconds`` is how long it took."""

    batch_id: int
    epoch: int
    gtid: str
    committed_us: int
    rows: int
    images: int
    seconds: float


class RecentBatch(_Model):
    """A ledger row in short; ``gtid`` is cut at its beginning if it is long."""

    batch_id: int
    epoch: int
    gtid: str
    committed_us: int
    transactions: int
    rows: int
    images: int
    tables: int
    seconds: float


class LagStatus(_Model):
    """How far the lake is behind the source; docs/operations.md says what the figures mean when nothing happens."""

    seconds: float = 0.0
    transactions: int = 0


class WarningStatus(_Model):
    """A warning, or an error after which the run went on or ended."""

    at_us: int
    level: Literal["warning", "error"]
    text: str


class Status(_Model):
    """The whole file. ``error``: what ended the run, or what it is trying again after."""

    v: Literal[1] = 1
    pipeline: str
    pid: int
    host: str
    pid_namespace: str = ""
    started_us: int
    updated_us: int
    state: Literal["running", "idle", "stopped", "failed"]
    error: str | None = None
    batches: int = 0
    batch: BatchStatus | None = None
    lag: LagStatus = LagStatus()
    changes_per_second: float = 0.0
    rows_per_second: float = 0.0
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

    def needs_care(self, now_us: int | None = None) -> bool:
        """Whether somebody should look: the run failed or is gone, or a table takes no changes."""
        held = any(table.state in ("stale", "stopped") for table in self.tables.values())
        return held or self.condition(now_us) in ("failed", "not running")

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return self.model_dump(mode="json")


def read_status(inbox: Inbox) -> Status | None:
    """What the pipeline last said; None if it never said anything.

    :raises TargetError: the file is damaged, or of a newer headgate.
    """
    value = inbox.read(STATUS_FILE)
    if value is None:
        return None
    version = value.get("v")
    if isinstance(version, int) and version > 1:
        raise TargetError(f"{inbox.path}/{STATUS_FILE} was written by a newer headgate (v {version}): upgrade this one")
    try:
        return Status.model_validate(value)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise TargetError(
            f"{inbox.path}/{STATUS_FILE} is damaged at {place}; remove it, the pipeline writes it again"
        ) from None


def pid_namespace() -> str:
    """What tells this process' numbering of processes from that of another container; "" where nothing does."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def duration(seconds: float) -> str:
    """A time span in words, for people: ``9.4 s``, ``2 min 5 s``, ``3 h 7 min``."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

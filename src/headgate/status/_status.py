"""``status.json`` in the inbox: the state of a pipeline, for people and monitors.

The running pipeline replaces the whole file after every batch and every few seconds between batches. No decision
depends on it, so it may be removed at any time. Figures of a killed run stay as they were: whether the run is alive
follows from its process and from ``updated_us``, never from ``state`` alone (:meth:`Status.is_alive`).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headgate.carrier import SINK_SIGNALS, ControlFile, ControlFolder, sent_at, signal_id, signal_type
from headgate.control import OUTCOMES, SignalAnswer, SignalState
from headgate.errors import TargetError
from headgate.lake import SUSPENDED, TROUBLED, State
from headgate.status._noted import newest

__all__ = [
    "BATCH_PHASES",
    "Activity",
    "BatchStatus",
    "FilesStatus",
    "FreshnessStatus",
    "HistoryStatus",
    "IndexStatus",
    "KafkaStatus",
    "LagStatus",
    "Phase",
    "RequestsStatus",
    "SignalStatus",
    "SnapshotStatus",
    "Status",
    "TableReadProgress",
    "TableStatus",
    "WarningStatus",
    "pid_namespace",
    "read_status",
    "shown_signals",
]

_DAY_SECONDS: Final = 86_400
_OLD_US = 60_000_000
"""A run writes every 5 s. After a minute without a write it hangs, or its machine is gone."""


class _Model(BaseModel):
    # Readers ignore fields that a later version adds; removing or changing a field raises ``v``.
    model_config = ConfigDict(frozen=True, extra="ignore")


Phase = Literal[
    "starting",
    "compiling",
    "checking",
    "planning",
    "reading",
    "applying",
    "committing",
    "resting",
    "waiting",
    "retrying",
    "stopping",
]
"""What a run does now: starts Spark; compiles kernels, once on a machine; checks the lake's tables; plans a batch;
reads it from MySQL; applies it to the tables; commits it, with messages to Kafka and histories before the ledger's row;
rests, so that the next batch has more changes (``target.freshness_ms``); waits for changes; waits to retry after a
failure; ends."""

BATCH_PHASES: Final[tuple[Phase, ...]] = ("planning", "reading", "applying", "committing")
"""Those of a batch, in order."""


_SORT_RANKS: Final[Mapping[str, int]] = {
    State.STOPPED: 0,
    State.STALE: 1,
    State.INEXACT: 2,
    State.SNAPSHOTTING: 3,
    State.SETTLING: 3,
    State.EXCLUDED: 5,
    State.DROPPED: 5,
}
_OTHER_RANK: Final = 4


class FilesStatus(_Model):
    """Files that exist: data files, deletion vectors, log files; the bytes of the first two.

    Those that only earlier batches need are included, until the retention ends.
    """

    data: int = 0
    vectors: int = 0
    log: int = 0
    bytes: int = 0

    @property
    def number(self) -> int:
        """Number of all files."""
        return self.data + self.vectors + self.log

    def __add__(self, other: FilesStatus) -> FilesStatus:
        return FilesStatus(
            data=self.data + other.data,
            vectors=self.vectors + other.vectors,
            log=self.log + other.log,
            bytes=self.bytes + other.bytes,
        )


class TableStatus(_Model):
    """One table as of the newest ledger row; ``changes`` and ``rows`` (of snapshots) count since the run began.

    ``place``: its name in the lake, if a route gives it another one, and why a merged table lacks its newest changes.

    While it is snapshotting: ``rows_read`` of about ``rows_estimate`` rows are applied, also by earlier runs, in
    ``chunks_done`` of about ``chunks_estimate`` chunks; ``since_epoch`` identifies the snapshot. ``beside``: they are
    in a new table, and readers have the old one until it is complete.
    """

    state: str
    version: int | None = None
    since_epoch: int | None = None
    rows_read: int = 0
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None
    beside: bool = False
    reason: str | None = None
    place: str | None = None
    changes: int = 0
    rows: int = 0
    changes_per_second: float = 0.0
    hook: str | None = None
    """``module:function@version`` that makes the table's columns."""
    ignored: tuple[str, ...] = ()
    """How its columns differ from MySQL's, because changes of these were ignored."""
    files: FilesStatus | None = None
    """Its files in the lake, its changelog's included, when they were last cleaned up; None: not known yet."""

    @property
    def is_suspended(self) -> bool:
        """Whether it takes no changes."""
        return self.state in SUSPENDED

    @property
    def is_troubled(self) -> bool:
        """Whether a person should look: it takes no changes, and neither source nor configuration ended its life."""
        return self.state in TROUBLED

    @property
    def sort_rank(self) -> int:
        """Sort key for lists of tables: what needs attention comes first."""
        return _SORT_RANKS.get(self.state, _OTHER_RANK)


class BatchStatus(_Model):
    """A batch in the ledger; times in microseconds since 1970 UTC, its duration in ``seconds``.

    ``transactions`` is null without GTIDs; ``tables`` is the number of those that it brought rows or changes for.
    ``replayed``: an earlier attempt had committed it. ``phases``: seconds of each phase (``BATCH_PHASES``);
    those after planning make about ``seconds``. Empty: not known.
    """

    batch_id: int
    epoch: int
    gtid: str
    committed_us: int
    transactions: int | None = None
    rows: int = 0
    changes: int = 0
    tables: int = 0
    seconds: float
    phases: dict[str, float] = Field(default_factory=dict)
    replayed: bool = False


class LagStatus(_Model):
    """Lag of the lake behind the source; None: unknown. ``transactions`` is the least number that it lacks."""

    seconds: float | None = None
    transactions: int | None = None


class FreshnessStatus(_Model):
    """Seconds between the commit of changes at the source and in the ledger.

    ``p50`` and ``p99`` are those of the last five minutes' changes; None: there were none. The others are of all
    ``changes`` since the run began: ``seconds`` is their sum, ``buckets`` pairs ascending limits in seconds with how
    many changes took at most so long.
    """

    p50: float | None = None
    p99: float | None = None
    changes: int = 0
    seconds: float = 0.0
    buckets: tuple[tuple[float, int], ...] = ()


class HistoryStatus(_Model):
    """The last ten minutes, also of the run before: a point per five seconds, with the greatest lag in them."""

    at_us: tuple[int, ...] = ()
    lag_seconds: tuple[float | None, ...] = ()
    changes_per_second: tuple[float, ...] = ()


class IndexStatus(_Model):
    """Key indexes on this machine: number of tables whose index is being built, and bytes on disk."""

    tables_building: int = 0
    bytes_on_disk: int = 0


class KafkaStatus(_Model):
    """What Kafka has accepted since the run began: messages with tombstones, bytes of their keys and values.

    ``seconds``: how long sending took, of the batches' time.
    """

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


class RequestsStatus(_Model):
    """Requests to the lake's object store since the run began, ``seconds`` ago.

    Of the processes on this machine: the run, Spark's checkpoint, the planner, and tasks unless a cluster has them.
    """

    seconds: float = 0.0
    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0

    def a_day(self, number: int) -> int:
        """Return how many a day ``number`` of them make."""
        return round(number * _DAY_SECONDS / max(1.0, self.seconds))


class TableReadProgress(_Model):
    """A batch's read of a table: its chunks ``first`` to ``last`` (from 1) of about ``chunks_estimate``.

    These have about ``rows_estimate`` rows, the whole table has about ``table_rows_estimate``.
    """

    first: int
    last: int
    chunks_estimate: int
    rows_estimate: int = 0
    table_rows_estimate: int | None = None


class Activity(_Model):
    """Current activity of a run. The figures are of the batch that is being read or applied.

    While it is read, ``tasks_done`` of ``tasks`` shows the progress; for ``seconds_left`` the others take as long as
    these. ``rows`` and ``changes`` are known once it is read. ``phases``: seconds of those of its phases that are over,
    known once it is read.
    """

    phase: Phase
    since_us: int
    batch_id: int | None = None
    tables: dict[str, TableReadProgress] = Field(default_factory=dict)
    rows: int | None = None
    rows_estimate: int | None = None
    seconds_left: float | None = None
    changes: int | None = None
    transactions: int | None = None
    tasks: int | None = None
    tasks_done: int | None = None
    tables_written: int | None = None
    tables_to_write: int | None = None
    phases: dict[str, float] = Field(default_factory=dict)
    paused: bool = False
    waits_for: str | None = None
    """While it is stopping: what has to end before the run does."""


class SnapshotStatus(_Model):
    """Tables that are being read, or wait for it: rows applied so far, and about how many there are.

    ``rows_estimate`` is None as long as a table waits, ``seconds_left`` also as long as the speed is unknown.
    """

    tables: int
    rows: int
    rows_estimate: int | None = None
    seconds_left: float | None = None


class SignalStatus(_Model):
    """A user's signal and what became of it (``control.SignalAnswer``); times in microseconds since 1970 UTC.

    ``state``: :class:`~headgate.control.SignalState`. ``at_us``: since when it is in it. ``sent_us``: when it was sent,
    if it says so.
    """

    id: str
    type: str
    state: SignalState
    reason: str | None = None
    tables: tuple[str, ...] = ()
    sent_us: int | None = None
    at_us: int

    @property
    def is_over(self) -> bool:
        """Whether the state is the last one."""
        return self.state in OUTCOMES

    @classmethod
    def of(cls, answer: SignalAnswer) -> SignalStatus:
        """Return the status of a signal that a batch has taken."""
        values = answer.to_dict()
        return cls(at_us=1000 * values.pop("at_ms"), **values)


class WarningStatus(_Model):
    """A warning, or an error after which the run continued or ended."""

    at_us: int
    level: Literal["warning", "error"]
    text: str


class Status(_Model):
    """The whole file. ``error``: the error that ended the run, or that it is retrying after. ``transient``: whether the
    error that ended the run may be gone at the next start, without a change by a person; None: none ended it.

    ``as_of_us``: the lake has everything that the server had committed at this time; None: not known yet. ``writes``:
    by :class:`~headgate.lake.WriteMethod`, how often this run wrote a batch into a current table that way. ``batch``:
    the newest. ``paused``: a signal has paused table snapshots. ``recent``: the last ones, newest first; a long
    ``gtid`` of theirs is cut at its beginning. ``signals``: those that a batch has taken, newest first;
    :func:`read_status` adds those that none has. ``files``: of all tables, headgate's own included. ``requests``: None
    for a lake that is a folder.
    """

    v: Literal[2] = 2
    pipeline: str
    pid: int
    host: str
    pid_namespace: str = ""
    started_us: int
    updated_us: int
    state: Literal["running", "idle", "stopped", "failed"]
    error: str | None = None
    transient: bool | None = None
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
    kafka: KafkaStatus | None = None
    files: FilesStatus | None = None
    requests: RequestsStatus | None = None
    snapshot: SnapshotStatus | None = None
    tables: dict[str, TableStatus] = Field(default_factory=dict)
    paused: bool = False
    signals: tuple[SignalStatus, ...] = ()
    recent: tuple[BatchStatus, ...] = ()
    warnings: tuple[WarningStatus, ...] = ()

    def check_pipeline(self, inbox: ControlFolder, name: str) -> None:
        """Check that a pipeline with this name may take the status for its own. Before the first batch it may, because
        the lake belongs to none.

        :raises TargetError: the lake is another pipeline's.
        """
        if self.is_of_another(name):
            owners = f"pipeline {self.pipeline!r}, not to pipeline {name!r}"
            raise TargetError(f"{inbox.path} belongs to {owners}; choose another target.path or name")

    def is_of_another(self, name: str) -> bool:
        """Return whether a pipeline with another name has written the lake."""
        return self.pipeline != name and self.batch is not None

    def is_alive(self, now_us: int | None = None) -> bool:
        """Return whether the run that wrote this is still running.

        False if it recorded its end, has not written for a minute, or its process is gone. The process is checked only
        from the same host and PID namespace (another container sees other numbers).
        """
        if self.state in ("stopped", "failed"):
            return False
        if (time.time_ns() // 1000 if now_us is None else now_us) - self.updated_us > _OLD_US:
            return False
        same_host = (platform.node(), pid_namespace()) == (self.host, self.pid_namespace)
        return not same_host or _exists(self.pid)

    def condition(self, now_us: int | None = None) -> str:
        """Return ``running``, ``idle``, ``stopped``, ``failed``; ``not running`` if the run is gone unrecorded."""
        return self.state if self.state in ("stopped", "failed") or self.is_alive(now_us) else "not running"

    def tables_now(self) -> dict[str, TableStatus]:
        """Return the ledger's tables, and those that the batch under way reads for the first time, by name."""
        reads = self.activity.tables if self.activity is not None else {}
        return dict(sorted({**{name: TableStatus(state="snapshotting") for name in reads}, **self.tables}.items()))

    def read_progress(self, table: str) -> TableReadProgress | None:
        """Return the current batch's read of a table."""
        return self.activity.tables.get(table) if self.activity is not None else None

    def at_rest(self) -> Status:
        """Return the status of the same run when it is over: no activity, no rates."""
        tables = {name: table.model_copy(update={"changes_per_second": 0.0}) for name, table in self.tables.items()}
        snapshot = None if self.snapshot is None else self.snapshot.model_copy(update={"seconds_left": None})
        freshness = self.freshness.model_copy(update={"p50": None, "p99": None})
        update = {"activity": None, "changes_per_second": 0.0, "rows_per_second": 0.0, "index": None}
        return self.model_copy(update={**update, "tables": tables, "snapshot": snapshot, "freshness": freshness})

    def needs_attention(self, now_us: int | None = None) -> bool:
        """Return whether a person should look: the run failed or is gone, or a table waits or is stopped."""
        troubled = any(table.is_troubled for table in self.tables.values())
        return troubled or self.condition(now_us) in ("failed", "not running")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return self.model_dump(mode="json")


def read_status(inbox: ControlFolder, now_us: int | None = None) -> Status | None:
    """Read the pipeline's last status; None: it never wrote one. A run that is gone is :meth:`~Status.at_rest`. What a
    run on this machine could not write into the lake counts, too (:func:`note`).

    Without a status, :func:`shown_signals` has the signals.

    :raises TargetError: the file is damaged, or of a newer headgate.
    """
    value, is_readable = newest(inbox)
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
        location = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise TargetError(
            f"{inbox.path}/{ControlFile.STATUS} is damaged at {location}; remove it, the pipeline writes it again"
        ) from None
    status = status if status.activity is None or status.is_alive(now_us) else status.at_rest()
    waiting = _waiting_signals(inbox, status) if is_readable else ()
    return status.model_copy(update={"signals": (*waiting, *status.signals)})


def shown_signals(inbox: ControlFolder, status: Status | None) -> tuple[SignalStatus, ...]:
    """Return a pipeline's signals, newest first, before its first run, too.

    :param status: what :func:`read_status` returned.
    """
    return _waiting_signals(inbox, None) if status is None else status.signals


def _waiting_signals(inbox: ControlFolder, status: Status | None) -> tuple[SignalStatus, ...]:
    """Return the signals in the inbox that no batch has taken, newest first.

    :param status: what the pipeline wrote; None: it never ran.
    """
    known = {(signal.id, signal.sent_us) for signal in status.signals} if status is not None else set()
    seen_us = time.time_ns() // 1000 if status is None else status.updated_us
    waiting = []
    for name, signal in inbox.signals().items():
        sent_us, kind, identity = sent_at(signal), signal_type(signal), signal_id(name, signal)
        if kind not in SINK_SIGNALS and (identity, sent_us) not in known:
            at_us, problem = seen_us if sent_us is None else sent_us, signal.get("problem")
            reason = None if problem is None else str(problem)
            waiting.append(
                SignalStatus(
                    id=identity, type=kind, state=SignalState.SENT, reason=reason, sent_us=sent_us, at_us=at_us
                )
            )
    return tuple(waiting[::-1])


def pid_namespace() -> str:
    """Return the identity of this process' PID namespace; "" if the system has none."""
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

"""Notifications of a batch's snapshots, in Debezium's form. A pure state machine.

A *snapshot* is one request to read tables: the tables of one ``execute-snapshot`` signal, of one re-read (``run
--resnapshot``, an ALTER), or those that a pipeline reads without a request ("Initial Snapshot"). A table can be in
several open snapshots, but it has one table read at a time, which serves all of them. So a snapshot is complete when
each of its tables has been read once from its first chunk to its last, whatever started that read.

:func:`batch_notifications` turns the snapshots open before a batch into those open after it, and returns the
    notifications between. It uses only the batch: its header (what the planner took and planned), the rows, the chunks
    without a result, the suspended tables. Its result is committed in the batch's ledger row. This gives the
    guarantees:

- A batch that was not committed has sent nothing, so its replay may send something else.
- A committed batch is never evaluated again: its notifications are in its row, with their ids.
- ``event_id`` is made of the pipeline's name, the batch's epoch, the snapshot, the type and the table (or signal, or
  reason), of signals also when they were sent. It is unique, and the same however often the event is sent.

The fields are Debezium's (its documentation, "Receiving Debezium notifications"). ``id`` is that of the signal that
requested the snapshot. ``additional_data`` holds text only.

=====================  ===============================================================================================
type                   additional_data, next to ``connector_name`` (the pipeline) and ``epoch`` (the batch)
=====================  ===============================================================================================
STARTED                ``data_collections``
IN_PROGRESS            ``data_collections``, ``current_collection_in_progress``, ``maximum_key``,
                       ``last_processed_key``; once for each batch with chunks of the table, unless it is empty
TABLE_SCAN_COMPLETED   ``data_collections``, ``scanned_collection``, ``total_rows_scanned``, ``status`` (SUCCEEDED,
                       EMPTY, SKIPPED, UNKNOWN_SCHEMA, NO_PRIMARY_KEY, SQL_EXCEPTION), ``reason`` if it was not read
PAUSED, RESUMED        ``data_collections``, ``signal``: the id of the signal
ABORTED                ``data_collections``: the stopped tables, which later events do not list; ``signal``
COMPLETED              ``data_collections``
REJECTED               aggregate type "Signal", not Debezium's: ``signal_type``, ``reason``; its valid part takes effect
DONE                   likewise, of a signal about which nothing else is sent: ``signal_type``, ``reason`` if any
=====================  ===============================================================================================
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from headgate.carrier import SINK_SIGNALS, ReadingProgress
from headgate.control._outcomes import SignalAnswer, SignalAnswers, SignalKey, SignalState, signal_key

__all__ = ["INCREMENTAL", "INITIAL", "BatchFacts", "Notification", "OpenSnapshots", "batch_notifications"]

INITIAL: Final = "Initial Snapshot"
INCREMENTAL: Final = "Incremental Snapshot"
SIGNAL: Final = "Signal"

_NAMESPACE: Final = uuid.UUID("6d0f2c7e-4a0b-5f0e-9a55-1f6d3c1f7b11")
_LISTED: Final = 100
"""Tables named in a notification: a snapshot of 1,000 tables would repeat all names with every chunk."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One event. The module's docstring describes the fields."""

    event_id: str
    id: str
    aggregate_type: str
    type: str
    additional_data: Mapping[str, str]
    timestamp: int
    """Commit time of its batch, milliseconds since 1970 UTC."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Notification:
        """Create a notification from the result of :meth:`to_dict`."""
        return cls(**value)


@dataclass(frozen=True)
class BatchFacts:
    """Facts of a batch that concern snapshots."""

    pipeline: str
    epoch: int
    committed_ms: int
    """Commit time, milliseconds since 1970 UTC."""
    actions: Sequence[Mapping[str, Any]] = ()
    """Signals that the batch took; see the batch header."""
    readings: Mapping[str, ReadingProgress] = field(default_factory=dict)
    """Tables being read, and their progress."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows from chunks, by table."""
    missed: Collection[str] = ()
    """Tables with a chunk that gave no rows and is retried."""
    suspended: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Tables that take no rows after this batch: (their state, reason)."""


@dataclass(frozen=True, slots=True)
class _OpenSnapshot:
    """An open snapshot."""

    id: str
    aggregate: str
    tables: tuple[str, ...]
    left: tuple[str, ...]
    sent_us: int | None = None
    """When its signal was sent, if known."""
    is_read: bool = False
    """Whether one of its tables was read from its first chunk to its last."""
    is_request: bool = False
    """Whether the sinks or a run requested it (the type ``resnapshot``), not a user's signal."""

    @property
    def key(self) -> SignalKey:
        """The signal that requested it."""
        return self.id, self.sent_us

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> _OpenSnapshot:
        return cls(**{**value, "tables": tuple(value["tables"]), "left": tuple(value["left"])})

    def without(self, tables: Collection[str]) -> _OpenSnapshot:
        """Return it with these tables read."""
        return replace(self, left=tuple(table for table in self.left if table not in tables))

    def stopped(self, tables: Collection[str]) -> _OpenSnapshot:
        """Return it without these tables, which will not be read."""
        return replace(self.without(tables), tables=tuple(table for table in self.tables if table not in tables))

    def with_tables(self, tables: Sequence[str]) -> _OpenSnapshot:
        """Add tables."""
        return replace(
            self, tables=tuple(dict.fromkeys((*self.tables, *tables))), left=tuple(dict.fromkeys((*self.left, *tables)))
        )


@dataclass(frozen=True, slots=True)
class OpenSnapshots:
    """Open snapshots after a batch."""

    snapshots: tuple[_OpenSnapshot, ...] = ()
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By table: epoch in which its read began, rows so far."""
    missed: tuple[str, ...] = ()
    """Tables with chunks to retry, which the planner does not know yet."""
    answers: tuple[SignalAnswer, ...] = ()
    """What became of users' signals, newest first."""

    @property
    def requested(self) -> frozenset[str]:
        """Tables that a request of the sinks or of a run has read again, and that are not read yet."""
        left = (one.left for one in self.snapshots if one.is_request)
        return frozenset().union(*left)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        answers = [one.to_dict() for one in self.answers]
        return {**asdict(self), "rows": dict(sorted(self.rows.items())), "answers": answers}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> OpenSnapshots:
        """Create it from the result of :meth:`to_dict`."""
        return cls(
            tuple(map(_OpenSnapshot.from_dict, value["snapshots"])),
            {table: (int(since), int(rows)) for table, (since, rows) in value["rows"].items()},
            tuple(value["missed"]),
            tuple(map(SignalAnswer.from_dict, value["answers"])),
        )


def batch_notifications(before: OpenSnapshots, facts: BatchFacts) -> tuple[OpenSnapshots, list[Notification]]:
    """Return the snapshots that are open after a batch, and the batch's notifications."""
    builder = NotificationBuilder(before, facts)
    for action in facts.actions:
        builder.process_signal(action)
    builder.begin_initial()
    for table in list(dict.fromkeys(table for one in builder.open for table in one.left)):
        builder.follow(table)
    builder.complete()
    return builder.state(), builder.notifications


class NotificationBuilder:
    """State while one batch's notifications are built."""

    def __init__(self, before: OpenSnapshots, facts: BatchFacts) -> None:
        self.facts = facts
        self.open = list(before.snapshots)
        self.notifications: list[Notification] = []
        self._rows = dict(before.rows)
        self._missed = set(before.missed)
        self._refused: dict[str, tuple[str, str]] = {}
        self._answers = SignalAnswers(before.answers, facts.committed_ms)

    def state(self) -> OpenSnapshots:
        left = {table for one in self.open for table in one.left}
        rows = {table: counted for table, counted in self._rows.items() if table in left}
        return OpenSnapshots(tuple(self.open), rows, tuple(sorted(self._missed & left)), self._answers.kept())

    def _add(self, key: SignalKey, aggregate: str, kind: str, subject: str = "", **data: str) -> None:
        facts = self.facts
        identity = "\n".join([facts.pipeline, str(facts.epoch), aggregate, _text(key), kind, subject])
        more = {"connector_name": facts.pipeline, "epoch": str(facts.epoch), **data}
        event = str(uuid.uuid5(_NAMESPACE, identity))
        self.notifications.append(Notification(event, key[0], aggregate, kind, more, facts.committed_ms))

    def _add_for(self, one: _OpenSnapshot, kind: str, subject: str = "", **data: str) -> None:
        self._add(one.key, one.aggregate, kind, subject, **data)

    # --- signals

    def process_signal(self, action: Mapping[str, Any]) -> None:
        """Process one signal."""
        key, kind = signal_key(action), str(action.get("type"))
        tables = tuple(str(table) for table in action.get("tables") or ())
        is_users = kind not in (*SINK_SIGNALS, "snapshot-cut") and not action.get("late")
        answer = self._answers.take(action, tables) if is_users else None
        refused: Mapping[str, Sequence[str]] = action.get("refused") or {}
        self._refused |= {table: (status, reason) for table, (status, reason) in refused.items()}
        if kind == "redo":
            self._missed -= set(tables)
            return
        if action.get("error"):
            reason = str(action["error"])
            self._add(key, SIGNAL, "REJECTED", reason, signal_type=kind, reason=reason)
        if action.get("late"):
            for one in self.open:
                if one.id == key[0] and not refused.keys().isdisjoint(one.left):
                    self._answers.fail(one.key, str(action["error"]))
            return
        if kind in ("execute-snapshot", "resnapshot"):
            self._begin(key, INCREMENTAL, tables, is_request=kind == "resnapshot")
            self._report_unread(key, action, refused)
        elif kind == "stop-snapshot":
            self._stop(key, frozenset(tables))
        elif kind in ("pause-snapshot", "resume-snapshot") and not action.get("error"):
            word = "PAUSED" if kind == "pause-snapshot" else "RESUMED"
            for one in self.open or [_OpenSnapshot(key[0], INCREMENTAL, (), (), key[1])]:
                self._add_for(one, word, _text(key), data_collections=_list(one.tables), signal=key[0])
            return
        if answer is not None and answer.state is SignalState.DONE and not (kind == "stop-snapshot" and tables):
            more = {} if answer.reason is None else {"reason": answer.reason}
            self._add(key, SIGNAL, "DONE", signal_type=kind, **more)

    def _begin(self, key: SignalKey, aggregate: str, tables: tuple[str, ...], *, is_request: bool = False) -> None:
        if not tables:
            return
        self._add(key, aggregate, "STARTED", data_collections=_list(tables))
        self._missed -= set(tables)
        for index, one in enumerate(self.open):
            if one.key == key:
                self.open[index] = one.with_tables(tables)
                return
        self.open.append(_OpenSnapshot(key[0], aggregate, tables, tables, key[1], is_request=is_request))

    def _report_unread(self, key: SignalKey, action: Mapping[str, Any], refused: Mapping[str, Sequence[str]]) -> None:
        """Report tables that the signal named and that are not read for it."""
        unmatched = tuple(str(expression) for expression in action.get("unmatched") or ())
        nothing = _OpenSnapshot(key[0], INCREMENTAL, (*refused, *unmatched), (), key[1])
        requested = next((one for one in self.open if one.key == key), nothing)
        for table, (status, reason) in refused.items():
            if table not in requested.left:
                self._scanned(requested, table, 0, status, reason)
        for expression in unmatched:
            self._scanned(requested, expression, 0, "UNKNOWN_SCHEMA", "no table of this pipeline matches")

    def _stop(self, key: SignalKey, tables: frozenset[str]) -> None:
        kept, signal = [], key[0]
        for one in self.open:
            stopped = [table for table in one.left if table in tables]
            if stopped:
                self._add_for(one, "ABORTED", _text(key), data_collections=_list(stopped), signal=signal)
                self._answers.fail(one.key, f"signal {signal} stopped {_list(stopped)}")
            rest = one.stopped(stopped)
            if rest.left or not stopped:
                kept.append(rest)
            else:
                self._answers.end(one.key, is_read=one.is_read, stopped_by=signal)
        self.open = kept

    # --- table reads

    def begin_initial(self) -> None:
        """Start an initial snapshot of the tables that are read without a signal."""
        known = {table for one in self.open for table in one.left}
        new = [t for t, reading in self.facts.readings.items() if t not in known and reading.state != "done"]
        if not new:
            return
        for index, one in enumerate(self.open):
            if one.aggregate == INITIAL:
                self.open[index] = one.with_tables(new)
                return
        self._begin((f"initial-{self.facts.epoch}", None), INITIAL, tuple(new))

    def follow(self, table: str) -> None:
        """Report the progress of one table."""
        reading = self.facts.readings.get(table)
        if reading is None:
            if table not in self._missed:
                self._finish_table(table, *self._refused.get(table, ("UNKNOWN_SCHEMA", "the table no longer exists")))
            return
        state = reading.state
        if state in ("waits", "done"):
            return
        rows = self._count(table, reading.since_epoch)
        suspension, reason = self.facts.suspended.get(table, (None, None))
        is_missed = table in self.facts.missed
        # A new read of a stale table is requested already.
        is_read = state == "read" and not is_missed and suspension != "stale"
        if rows or not is_read:
            self._report_progress(table, reading)
        if is_missed or suspension == "stale":
            self._missed.add(table)
        if not is_read:
            return
        if suspension is not None:
            self._finish_table(table, "SKIPPED", reason or "the table is stopped")
        else:
            self._finish_table(table, "SUCCEEDED" if rows else "EMPTY", None)

    def _report_progress(self, table: str, reading: ReadingProgress) -> None:
        for one in self.open:
            if table in one.left:
                self._answers.read(one.key)
                self._add_for(
                    one,
                    "IN_PROGRESS",
                    table,
                    data_collections=_list(one.tables),
                    current_collection_in_progress=table,
                    maximum_key=reading.maximum_key,
                    last_processed_key=reading.last_processed_key,
                )

    def _count(self, table: str, since: int | None) -> int:
        """:param since: the epoch in which the table's read began; None: a missed chunk is read after the end."""
        began, rows = self._rows.get(table, (since or 0, 0))
        since = began if since is None else since
        rows = (rows if began == since else 0) + self.facts.rows.get(table, 0)
        self._rows[table] = (since, rows)
        return rows

    def _finish_table(self, table: str, status: str, reason: str | None) -> None:
        _, rows = self._rows.get(table, (0, 0))
        for index, one in enumerate(self.open):
            if table in one.left:
                if reason is not None:
                    self._answers.fail(one.key, f"{table}: {reason}")
                self._scanned(one, table, rows, status, reason)
                self.open[index] = replace(one.without([table]), is_read=one.is_read or reason is None)

    def _scanned(self, one: _OpenSnapshot, table: str, rows: int, status: str, reason: str | None) -> None:
        more = {} if reason is None else {"reason": reason}
        self._add_for(
            one,
            "TABLE_SCAN_COMPLETED",
            table,
            data_collections=_list(one.tables),
            scanned_collection=table,
            total_rows_scanned=str(rows),
            status=status,
            **more,
        )

    def complete(self) -> None:
        """Report and remove snapshots that have no tables left."""
        for one in self.open:
            if not one.left:
                self._answers.end(one.key, is_read=one.is_read)
                self._add_for(one, "COMPLETED", data_collections=_list(one.tables))
        self.open = [one for one in self.open if one.left]


def _text(key: SignalKey) -> str:
    name, sent_us = key
    return name if sent_us is None else f"{name} {sent_us}"


def _list(tables: Sequence[str]) -> str:
    more = [f"… and {len(tables) - _LISTED} more"] if len(tables) > _LISTED else []
    return ",".join([*tables[:_LISTED], *more])

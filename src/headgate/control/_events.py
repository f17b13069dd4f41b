"""What a batch means for the snapshots under way, told in Debezium's notifications. A pure state machine.

A *snapshot* is what somebody asked for: the tables of one ``execute-snapshot`` signal, of one re-read (``run
--resnapshot``, an ALTER), or those that a pipeline reads on its own ("Initial Snapshot"). A table is in as many open
snapshots as named it, and it has one reading at a time, which serves them all; so a snapshot is over when each of its
tables has been read once from its first chunk to its last, whatever began that reading.

:func:`tell` goes from the snapshots that were open before a batch to those open after it, and gives the notifications
between. It looks at nothing but the batch: its header (what the planner took and planned), the rows that came, the
chunks that gave nothing, the tables that were held. Its result is committed in the batch's own ledger row. That is what
the promises rest on:

- A batch that was not committed has sent nothing, so its replay may send something else.
- A batch that was committed is never told anew: its notifications are in its row, with their ids.
- ``event_id`` is made of the pipeline's name, the batch's epoch, the snapshot, the type and the table. No two events
  share one, and it is the same however often the event is sent.

The fields are Debezium's (its documentation, "Receiving Debezium notifications"): ``id`` is that of the signal which
asked for the snapshot; ``additional_data`` holds text only.

=====================  ===============================================================================================
type                   additional_data, beside ``connector_name`` (the pipeline) and ``epoch`` (the batch)
=====================  ===============================================================================================
STARTED                ``data_collections``
IN_PROGRESS            ``data_collections``, ``current_collection_in_progress``, ``maximum_key``,
                       ``last_processed_key``; once for each batch with chunks of the table
TABLE_SCAN_COMPLETED   ``scanned_collection``, ``total_rows_scanned``, ``status`` (SUCCEEDED, EMPTY, SKIPPED,
                       UNKNOWN_SCHEMA, NO_PRIMARY_KEY, SQL_EXCEPTION), ``reason`` where it was not read
PAUSED, RESUMED        ``data_collections``, ``signal``: the id of the signal that did it
ABORTED                ``data_collections``: those that were stopped; ``signal``
COMPLETED              ``data_collections``
REJECTED               of aggregate type "Signal", ours: ``signal_type``, ``reason``; what could be followed of it, was
=====================  ===============================================================================================
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.carrier import ReadingProgress

__all__ = ["INCREMENTAL", "INITIAL", "BatchFacts", "Notification", "OpenSnapshots", "tell"]

INITIAL: Final = "Initial Snapshot"
INCREMENTAL: Final = "Incremental Snapshot"
SIGNAL: Final = "Signal"

_NAMESPACE: Final = uuid.UUID("6d0f2c7e-4a0b-5f0e-9a55-1f6d3c1f7b11")
_LISTED: Final = 100
"""Tables that a notification names: one of 1,000 tables would repeat all names with every chunk."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One event; see the module's text."""

    event_id: str
    id: str
    aggregate_type: str
    type: str
    additional_data: Mapping[str, str]
    timestamp: int
    """When its batch was committed, milliseconds since 1970 UTC."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "event_id": self.event_id,
            "id": self.id,
            "aggregate_type": self.aggregate_type,
            "type": self.type,
            "additional_data": dict(self.additional_data),
            "timestamp": self.timestamp,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Notification:
        """From :meth:`to_dict`."""
        return cls(**given)


@dataclass(frozen=True)
class BatchFacts:
    """What a batch brought, as far as snapshots go."""

    pipeline: str
    epoch: int
    committed_ms: int
    """When it is committed, milliseconds since 1970 UTC."""
    actions: Sequence[Mapping[str, Any]] = ()
    """The signals that it took: see the batch header."""
    readings: Mapping[str, ReadingProgress] = field(default_factory=dict)
    """The tables being read."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows that chunks brought, by table."""
    missed: Collection[str] = ()
    """Tables of which a chunk gave nothing and is read again."""
    held: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    """Tables that take no rows after this batch: (``stale`` or ``stopped``, why)."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A snapshot that is not over."""

    id: str
    aggregate: str
    tables: tuple[str, ...]
    left: tuple[str, ...]

    def without(self, tables: Collection[str]) -> _Open:
        return replace(self, left=tuple(table for table in self.left if table not in tables))

    def more(self, tables: Sequence[str]) -> _Open:
        """With further tables."""
        return replace(
            self, tables=tuple(dict.fromkeys((*self.tables, *tables))), left=tuple(dict.fromkeys((*self.left, *tables)))
        )


@dataclass(frozen=True, slots=True)
class OpenSnapshots:
    """What is under way after a batch."""

    snapshots: tuple[_Open, ...] = ()
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By table: epoch in which its reading began, rows so far."""
    missed: tuple[str, ...] = ()
    """Tables of which chunks are to be read again, and the planner does not know it yet."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "snapshots": [
                {"id": one.id, "aggregate": one.aggregate, "tables": list(one.tables), "left": list(one.left)}
                for one in self.snapshots
            ],
            "rows": {table: list(counted) for table, counted in sorted(self.rows.items())},
            "missed": list(self.missed),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> OpenSnapshots:
        """From :meth:`to_dict`."""
        return cls(
            tuple(
                _Open(one["id"], one["aggregate"], tuple(one["tables"]), tuple(one["left"]))
                for one in given["snapshots"]
            ),
            {table: (int(since), int(rows)) for table, (since, rows) in given["rows"].items()},
            tuple(given["missed"]),
        )


def tell(before: OpenSnapshots, facts: BatchFacts) -> tuple[OpenSnapshots, list[Notification]]:
    """The snapshots that are open after a batch, and what is to be told of it."""
    teller = _Teller(before, facts)
    for action in facts.actions:
        teller.answer(action)
    teller.begin_initial()
    for table in list(dict.fromkeys(table for one in teller.open for table in one.left)):
        teller.follow(table)
    teller.complete()
    return teller.state(), teller.told


class _Teller:
    """The state while one batch is told."""

    def __init__(self, before: OpenSnapshots, facts: BatchFacts) -> None:
        self.facts = facts
        self.open = list(before.snapshots)
        self.told: list[Notification] = []
        self._rows = dict(before.rows)
        self._missed = set(before.missed)
        self._refused: dict[str, tuple[str, str]] = {}

    def state(self) -> OpenSnapshots:
        left = {table for one in self.open for table in one.left}
        rows = {table: counted for table, counted in self._rows.items() if table in left}
        return OpenSnapshots(tuple(self.open), rows, tuple(sorted(self._missed & left)))

    def _say(self, name: str, aggregate: str, kind: str, about: str = "", **data: str) -> None:
        facts = self.facts
        place = "\n".join([facts.pipeline, str(facts.epoch), aggregate, name, kind, about])
        more = {"connector_name": facts.pipeline, "epoch": str(facts.epoch), **data}
        event = str(uuid.uuid5(_NAMESPACE, place))
        self.told.append(Notification(event, name, aggregate, kind, more, facts.committed_ms))

    def _say_of(self, one: _Open, kind: str, about: str = "", **data: str) -> None:
        self._say(one.id, one.aggregate, kind, about, **data)

    # --- signals

    def answer(self, action: Mapping[str, Any]) -> None:
        """What came of one signal."""
        name, kind = str(action.get("id")), str(action.get("type"))
        tables = tuple(str(table) for table in action.get("tables") or ())
        refused: Mapping[str, Sequence[str]] = action.get("refused") or {}
        self._refused |= {table: (status, reason) for table, (status, reason) in refused.items()}
        if kind == "redo":
            self._missed -= set(tables)
            return
        if action.get("error"):
            reason = str(action["error"])
            self._say(name, SIGNAL, "REJECTED", reason, signal_type=kind, reason=reason)
        if kind in ("execute-snapshot", "resnapshot"):
            self._begin(name, INCREMENTAL, tables)
            self._never_begun(name, action, refused)
        elif kind == "stop-snapshot":
            self._stop(name, frozenset(tables))
        elif kind in ("pause-snapshot", "resume-snapshot") and not action.get("error"):
            word = "PAUSED" if kind == "pause-snapshot" else "RESUMED"
            for one in self.open or [_Open(name, INCREMENTAL, (), ())]:
                self._say_of(one, word, name, data_collections=_list(one.tables), signal=name)

    def _begin(self, name: str, aggregate: str, tables: tuple[str, ...]) -> None:
        if not tables:
            return
        self._say(name, aggregate, "STARTED", data_collections=_list(tables))
        self._missed -= set(tables)
        for place, one in enumerate(self.open):
            if one.id == name:
                self.open[place] = one.more(tables)
                return
        self.open.append(_Open(name, aggregate, tables, tables))

    def _never_begun(self, name: str, action: Mapping[str, Any], refused: Mapping[str, Sequence[str]]) -> None:
        """Tables that the signal named and that are not read for it."""
        waiting = {table for one in self.open if one.id == name for table in one.left}
        for table, (status, reason) in refused.items():
            if table not in waiting:
                self._scanned(_Open(name, INCREMENTAL, (), ()), table, 0, status, reason)
        for expression in action.get("unmatched") or ():
            nothing = "no table of this pipeline matches"
            self._scanned(_Open(name, INCREMENTAL, (), ()), str(expression), 0, "UNKNOWN_SCHEMA", nothing)

    def _stop(self, signal: str, tables: frozenset[str]) -> None:
        kept = []
        for one in self.open:
            stopped = [table for table in one.left if table in tables]
            if stopped:
                self._say_of(one, "ABORTED", signal, data_collections=_list(stopped), signal=signal)
            rest = one.without(tables)
            if rest.left or not stopped:
                kept.append(rest)
        self.open = kept

    # --- readings

    def begin_initial(self) -> None:
        """If no signal asked for a table, it is read because the pipeline has it."""
        known = {table for one in self.open for table in one.left}
        new = [t for t, reading in self.facts.readings.items() if t not in known and reading.state != "done"]
        if not new:
            return
        for place, one in enumerate(self.open):
            if one.aggregate == INITIAL:
                self.open[place] = one.more(new)
                return
        self._begin(f"initial-{self.facts.epoch}", INITIAL, tuple(new))

    def follow(self, table: str) -> None:
        """How far one table is."""
        reading = self.facts.readings.get(table)
        if reading is None:
            if table not in self._missed:
                self._over(table, *self._refused.get(table, ("UNKNOWN_SCHEMA", "the table is no longer there")))
            return
        state = reading.state
        if state in ("waits", "done"):
            return
        rows = self._count(table, reading.since_epoch)
        for one in self.open:
            if table in one.left:
                self._say_of(
                    one,
                    "IN_PROGRESS",
                    table,
                    data_collections=_list(one.tables),
                    current_collection_in_progress=table,
                    maximum_key=reading.maximum_key,
                    last_processed_key=reading.last_processed_key,
                )
        if table in self.facts.missed:
            self._missed.add(table)
            return
        held, why = self.facts.held.get(table, (None, None))
        if state == "reading" or held == "stale":  # what is stale has been asked for again
            if held == "stale":
                self._missed.add(table)
            return
        if held is not None:
            self._over(table, "SKIPPED", why or "the table is stopped")
        else:
            self._over(table, "SUCCEEDED" if rows else "EMPTY", None)

    def _count(self, table: str, since: int | None) -> int:
        """:param since: the epoch in which its reading began; None: a chunk that was missed comes after its end."""
        began, rows = self._rows.get(table, (since or 0, 0))
        since = began if since is None else since
        rows = (rows if began == since else 0) + self.facts.rows.get(table, 0)
        self._rows[table] = (since, rows)
        return rows

    def _over(self, table: str, status: str, reason: str | None) -> None:
        _, rows = self._rows.get(table, (0, 0))
        for place, one in enumerate(self.open):
            if table in one.left:
                self._scanned(one, table, rows, status, reason)
                self.open[place] = one.without([table])

    def _scanned(self, one: _Open, table: str, rows: int, status: str, reason: str | None) -> None:
        more = {} if reason is None else {"reason": reason}
        self._say_of(
            one,
            "TABLE_SCAN_COMPLETED",
            table,
            scanned_collection=table,
            total_rows_scanned=str(rows),
            status=status,
            **more,
        )

    def complete(self) -> None:
        """Snapshots of which nothing is left."""
        for one in self.open:
            if not one.left:
                self._say_of(one, "COMPLETED", data_collections=_list(one.tables))
        self.open = [one for one in self.open if one.left]


def _list(tables: Sequence[str]) -> str:
    more = [f"… and {len(tables) - _LISTED} more"] if len(tables) > _LISTED else []
    return ",".join([*tables[:_LISTED], *more])

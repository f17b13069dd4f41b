"""The simulated tables of a lake, and headgate's writer of batches on them.

The writer is :class:`headgate.sinks.BatchWriter`: order of decisions, tables, messages, requests, ledger and results.
Decisions, commits, logs of tables, the ledger's checks, and what undoes lost batches are headgate's, too. Simulated are
the actions on rows (``contents``), by what ``headgate.decide.actions`` says of each, and the brokers (``broker``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias

from headgate.apply._complete import Completed
from headgate.carrier import ControlFolder
from headgate.config import KafkaTargetConfig
from headgate.decide import Policy
from headgate.decide import actions as do
from headgate.decide.actions import Action, AppendChanges, TableContent
from headgate.delta import CommitPlan, Snapshot, snapshot_at
from headgate.errors import CommitConflictError
from headgate.kafka import KafkaTarget
from headgate.lake import PIPELINE, TABLE, DeltaPath, Form, Lake, Ledger, LedgerRow, Marker, Target
from headgate.lake._properties import BEGUN
from headgate.sinks import BatchWriter, PlannerMessages, Progress
from tests.simulation.contents import Keyed, Keyless, Versioned, content_of, until
from tests.simulation.images import RowImage, rows_of
from tests.simulation.tables import SHAPES
from tests.simulation.world import World

__all__ = ["PIPELINE_NAME", "Delivery", "Spark", "Writer", "append_ledger_row", "keep_until"]

PIPELINE_NAME: Final = "p"
Delivery: TypeAlias = Literal["at-least-once", "exactly-once"]
_SCHEMA: Final = '{"type":"struct","fields":[]}'


class _Schema:
    """Columns, as Spark has them."""

    def json(self) -> str:
        return _SCHEMA


class _Settings:
    getAll: Final[Mapping[str, str]] = {}  # noqa: N815 - Spark's name

    def get(self, name: str, default: str | None = None) -> str | None:
        del name
        return default


class Spark:
    """What :class:`DeltaPath` needs of a session."""

    conf = _Settings()
    sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815 - Spark's name


@dataclass(frozen=True)
class _Applied:
    version: int | None
    reread_reason: str | None = None
    successor: None = None
    stop_reason: None = None
    write_methods: frozenset[Any] = frozenset()


def _of(delta: DeltaPath) -> World:
    """Return the world of a table."""
    from tests.simulation.store import MemoryFolder

    return MemoryFolder.store.world


def _added(world: World, content: Any) -> dict[str, Any]:
    """Store a data file; return the action that adds it."""
    name = world.store.new_name()
    world.store.data[name] = content
    now_ms = time.time_ns() // 1_000_000
    return {"add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": now_ms, "dataChange": True}}


def _commit(delta: DeltaPath, plan: Callable[[Snapshot], Sequence[Mapping[str, Any]]], **more: Any) -> None:
    """Commit what is planned on the newest version; nothing, if that is nothing."""

    def planned() -> CommitPlan | None:
        table = delta.writable(files=True)
        actions = plan(table)
        written = [one["add"]["path"] for one in actions if "add" in one]
        return CommitPlan(table, actions, "WRITE", {}, written=written) if actions else None

    delta.commit(planned, **more)


def has_marker(table: Snapshot, marker: Marker) -> bool:
    """Return whether what has this marker was committed."""
    return table.transactions.get(marker.application, -1) >= marker.version


class CurrentTable:
    """A current table, or a history."""

    has_other_layout = False

    def __init__(self, delta: DeltaPath, table: str, form: Form) -> None:
        self.delta, self.table = delta, table
        self._store, self._shape = _of(delta).store, SHAPES[table]
        self._content = content_of(self._shape, form)
        self._reread_reason: str | None = None

    def describe(self) -> Target | None:
        snapshot = self.delta.check_ours(PIPELINE_NAME, self.table, deletes=True)
        return None if snapshot is None else Target.of(self._shape.types, snapshot.properties)

    def apply(self, actions: Iterable[Action], epoch: int, planned_us: int = 0) -> _Applied:
        for action in actions:
            self._perform(action, epoch, planned_us)
            _of(self.delta).count("action applied")
        version = self.delta.version()
        return _Applied(version if version >= 0 else None, self._reread_reason)

    def _perform(self, action: Action, epoch: int, planned_us: int) -> None:
        content = self._content
        match action, content:
            case do.Create(replace=False), _:
                properties = {
                    PIPELINE: PIPELINE_NAME,
                    TABLE: self.table,
                    "delta.enableDeletionVectors": "true",
                    **action.target.properties,
                }
                self.delta.create(_Schema(), properties)  # type: ignore[arg-type]
            case do.NoteTypes(), _:
                self.delta.set_properties(action.target.properties)
            case ((do.Truncate() | do.DropStrays() | do.Sweep()), _):
                if self.delta.exists():
                    self._change(lambda rows: content.removed(rows, action, epoch, planned_us))
            case do.Append(), (Keyed() | Versioned()):
                self._append(content.appended(action), self._marker("", epoch))
            case do.UpsertPartial(), Keyed():
                note, base = partial(self._note_missing, action.content), action.base
                self._change(lambda rows: content.completed(rows, action, lambda: self._rows_at(base), note))
            case do.Upsert(), Keyed():
                self._change(lambda rows: content.upserted(rows, action))
            case do.Overwrite(), Keyless():
                marker = self._marker("/counted", epoch)
                self._change(lambda _: content.overwritten(action, marker), marker)
            case do.Count(), Keyless():
                self._change(lambda rows: content.counted(rows, action), self._marker("/counted", epoch))
            case do.AppendVersions(), Versioned():
                marker = self._marker("/history", epoch)
                self._change(lambda rows: content.versioned(rows, action, marker), marker)
            case _:
                raise NotImplementedError(action)

    def _marker(self, kind: str, epoch: int) -> Marker:
        return Marker(f"headgate/{PIPELINE_NAME}/{self.table}{kind}", epoch)

    def _change(self, change: Callable[[Any], Any], marker: Marker | None = None) -> None:
        """Replace the rows by what ``change`` returns.

        :param marker: changes them once.
        """

        def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
            if marker is not None and has_marker(table, marker):
                return []
            before = self._joined(table)
            after = change(before)
            markers = [] if marker is None else [marker.action()]
            if len(table.files) <= 1 and self._content.same(after, before):
                return markers
            removals = [file.removal(data_change=True) for file in table.files.values()]
            return [*markers, *removals, _added(_of(self.delta), after)]

        _commit(self.delta, plan)

    def _joined(self, table: Snapshot) -> Any:
        return self._content.joined([self._store.data[file.path] for file in table.files.values()])

    def _rows_at(self, version: int | None) -> Any:
        """Return the rows at a version; None: there are none."""
        if version is None:
            return self._content.joined([])
        known = self.delta.known(files=True)
        return self._joined(known if known.version == version else snapshot_at(self.delta.path, version))

    def _note_missing(self, content: TableContent, completed: Completed) -> None:
        """Note that rows are missing, as ``headgate.apply.CurrentTable`` does."""
        self._reread_reason = self._reread_reason or completed.reread_reason(content)

    def _append(self, rows: Any, marker: Marker) -> None:
        def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
            if has_marker(table, marker) or not len(rows):
                return []
            return [marker.action(), _added(_of(self.delta), rows)]

        _commit(self.delta, plan)


class ChangelogTable:
    """A changelog: a list of images for each append."""

    has_other_layout = False

    def __init__(self, delta: DeltaPath, table: str) -> None:
        self.delta, self._property, self._types = delta, f"_changelog.{table}", SHAPES[table].types

    def check(self) -> bool:
        return self.delta.check_ours(PIPELINE_NAME, self._property) is not None

    def has_changes_until(self, epoch: int) -> bool:
        data, files = _of(self.delta).store.data, self.delta.snapshot(files=True).files.values()
        return any(until(data[file.path], epoch) for file in files)

    def types(self) -> dict[str, str] | None:
        return dict(self._types) if self.check() else None

    def apply(self, actions: Iterable[AppendChanges], epoch: int) -> int | None:
        for action in actions:
            if not self.delta.exists():
                self.delta.create(_Schema(), {PIPELINE: PIPELINE_NAME, TABLE: self._property})  # type: ignore[arg-type]
            images = list(rows_of(action.parts))
            if images:
                self._append(images, Marker(f"headgate/{PIPELINE_NAME}/{self._property}", epoch))
            _of(self.delta).count("action applied")
        version = self.delta.version()
        return None if version < 0 else version

    def _append(self, images: list[RowImage], marker: Marker) -> None:
        def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
            if has_marker(table, marker):
                return []
            return [marker.action(), _added(_of(self.delta), images)]

        _commit(self.delta, plan)


def keep_until(delta: DeltaPath, epoch: int, column: str, *, unless: Callable[[Snapshot], bool]) -> None:
    """Stand for ``headgate.lake._replace.keep_until``: delete the rows of later epochs."""
    del column
    world = _of(delta)

    def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
        actions: list[Mapping[str, Any]] = []
        for file in () if unless(table) else table.files.values():
            before = world.store.data[file.path]
            after = until(before, epoch)
            if len(after) < len(before):
                actions += [file.removal(data_change=True), _added(world, after)]
        return actions

    _commit(delta, plan)


def append_ledger_row(
    delta: DeltaPath, rows: Sequence[Sequence[Any]], ddl: str, marker: Marker | None = None, *, at: int | None = None
) -> None:
    """Stand for ``headgate.lake._append.append_rows``, with its contract: only to version ``at``."""
    del ddl, marker
    snapshot = delta.writable(files=True)
    if at is not None and snapshot.version != at:
        raise CommitConflictError(f"another program wrote {delta.path} after version {at}")
    (row,) = rows
    added = _added(_of(delta), tuple(row))
    plan = CommitPlan(snapshot, [added], "WRITE", {}, blind=True, written=[added["add"]["path"]])
    delta.commit(lambda: plan, tries=1)
    _of(delta).count("ledger row")


class _Ledger(Ledger):
    """The ledger, whose rows are Python values."""

    def __init__(self, delta: DeltaPath, lake: Lake) -> None:
        self._delta, self._lake, self._pipeline, self._version = delta, lake, PIPELINE_NAME, -1
        self.last: LedgerRow | None = None
        if self._delta.check_ours(PIPELINE_NAME, "_headgate.ledger"):
            self._version = self._delta.version()
            self.last = self._newest()

    def _newest(self) -> LedgerRow | None:
        files = self._delta.snapshot(files=True).files.values()
        rows: list[tuple[Any, ...]] = [_of(self._delta).store.data[file.path] for file in files]
        if not rows:
            return None
        newest: Sequence[Any] = max(rows, key=itemgetter(1))
        return LedgerRow.of({field.name: value for field, value in zip(fields(LedgerRow), newest, strict=True)})

    def _create(self, epoch: int) -> None:
        properties = {PIPELINE: PIPELINE_NAME, TABLE: "_headgate.ledger", BEGUN: str(epoch)}
        self._delta.create(_Schema(), properties)  # type: ignore[arg-type]


class _Nothing:
    """Upkeep, merged tables and the schema history: none of them is simulated."""

    def commit_pending(self, states: Any, tables: Any) -> Any:
        del tables
        return states

    def note(self, *about: Any) -> None:
        pass

    commit_pending_internal = check = write = undo = close = note

    def show(self, states: Any, shown: Any, epoch: int) -> Any:
        del states, epoch
        return shown


class Writer(BatchWriter):
    """The writer of one run.

    :param delivery: of messages.
    """

    def __init__(self, lake: Lake, modes: Sequence[str], delivery: Delivery) -> None:
        policy, nothing = Policy.of(modes), _Nothing()
        self.lake, self.pipeline = lake, PIPELINE_NAME
        self._policy = lambda _table: policy  # type: ignore[assignment]
        self.inbox = ControlFolder(lake.inbox)
        self.ledger = _Ledger(DeltaPath(Spark(), lake.ledger), lake)  # type: ignore[arg-type]
        self._planner_messages = PlannerMessages(self.inbox)
        self._history = self.upkeep = self._merged = nothing  # type: ignore[assignment]
        self._threads, self._checked, self.targets = 1, set(), {}
        self._has_written, self._entered, self._has_current, self._kafka = False, None, True, None
        self._other_layout, self._complete_logs = set(), set()
        self._form = policy.form or Form.PLAIN
        if "kafka" in modes:
            self._kafka = KafkaTarget(
                KafkaTargetConfig.model_validate({"bootstrap": "brokers:9092", "delivery": delivery}), PIPELINE_NAME
            )
        self.progress = Progress()
        self.unseen = self.after_tables = None

    def _current(self, spark: Any, table: str, epoch: int | None = None) -> Any:
        return CurrentTable(DeltaPath(spark, self.lake.current(table, None), self._marker(epoch)), table, self._form)

    def _changelog(self, spark: Any, table: str, epoch: int | None = None) -> Any:
        return ChangelogTable(DeltaPath(spark, self.lake.changelog(table, None), self._marker(epoch)), table)

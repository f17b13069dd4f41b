"""The simulated tables of a lake, and headgate's writer of batches on them.

The writer is :class:`headgate.sinks.BatchWriter`: order of decisions, tables, requests, ledger and results. Decisions,
commits, logs of tables, the ledger's checks, and what undoes lost batches are headgate's, too. Simulated are the
actions on rows, by what ``headgate.decide.actions`` says of each, on data files that are Python values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, Final, TypeAlias

from headgate.carrier import ControlFolder, Part
from headgate.decide import Policy
from headgate.decide import actions as do
from headgate.decide.actions import Action, AppendChanges
from headgate.delta import CommitPlan, Snapshot
from headgate.errors import CommitConflictError
from headgate.lake import PIPELINE, TABLE, DeltaPath, Lake, Ledger, LedgerRow, Marker, Target
from headgate.lake._properties import BEGUN
from headgate.sinks import BatchWriter, PlannerMessages, Progress
from tests.simulation.world import World

__all__ = ["PIPELINE_NAME", "Spark", "Writer", "append_ledger_row", "keep_until"]

PIPELINE_NAME: Final = "p"
_TYPES: Final = {"id": "bigint", "v": "bigint"}
_SCHEMA: Final = '{"type":"struct","fields":[]}'
Seq: TypeAlias = tuple[int, int, int, int]


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


@dataclass(frozen=True)
class _Applied:
    version: int | None
    successor: None = None
    reread_reason: None = None
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
    return {"add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}}


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
    """A current table: key → (value, ``_seq``)."""

    has_other_layout = False

    def __init__(self, delta: DeltaPath, table: str) -> None:
        self.delta, self.table = delta, table
        self._store = _of(delta).store

    def describe(self) -> Target | None:
        snapshot = self.delta.check_ours(PIPELINE_NAME, self.table, deletes=True)
        return None if snapshot is None else Target.of(_TYPES, snapshot.properties)

    def apply(self, actions: Iterable[Action], epoch: int, planned_us: int = 0) -> _Applied:
        del planned_us
        for action in actions:
            self._perform(action, epoch)
            _of(self.delta).count("action applied")
        version = self.delta.version()
        return _Applied(version if version >= 0 else None)

    def _perform(self, action: Action, epoch: int) -> None:
        match action:
            case do.Create(replace=False):
                properties = {
                    PIPELINE: PIPELINE_NAME,
                    TABLE: self.table,
                    "delta.enableDeletionVectors": "true",
                    **action.target.properties,
                }
                self.delta.create(_Schema(), properties)  # type: ignore[arg-type]
            case do.NoteTypes():
                self.delta.set_properties(action.target.properties)
            case do.Truncate() | do.DropStrays() | do.Sweep():
                if self.delta.exists():
                    self._change(lambda rows: _removed(rows, action))
            case do.Append():
                self._append(action, epoch)
            case do.UpsertPartial():
                raise NotImplementedError(action)
            case do.Upsert():
                images = sorted(_images(action.parts), key=lambda image: image[1])
                self._change(lambda rows: _upserted(rows, images, action.bound))
            case _:
                raise NotImplementedError(action)

    def _change(self, change: Callable[[dict[int, tuple[int, Seq]]], dict[int, tuple[int, Seq]]]) -> None:
        def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
            rows: dict[int, tuple[int, Seq]] = {}
            for file in table.files.values():
                rows |= self._store.data[file.path]
            after = change(dict(rows))
            if after == rows and len(table.files) <= 1:
                return []
            removals = [file.removal(data_change=True) for file in table.files.values()]
            return [*removals, _added(_of(self.delta), after)]

        _commit(self.delta, plan)

    def _append(self, action: do.Append, epoch: int) -> None:
        marker = Marker(f"headgate/{PIPELINE_NAME}/{self.table}", epoch)
        rows = {key: (value, seq) for _, seq, _, key, value in _images(action.parts)}

        def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
            if has_marker(table, marker) or not rows:
                return []
            return [marker.action(), _added(_of(self.delta), rows)]

        _commit(self.delta, plan)


def _images(parts: Iterable[Part]) -> Iterator[tuple[str, Seq, str | None, int, int]]:
    """Yield operation, position, GTID, key and value of each image."""
    for part in parts:
        for batch in part.record_batches():
            seqs = zip(*(field.to_pylist() for field in batch.column(1).flatten()), strict=True)
            gtids, keys, values = (batch.column(index).to_pylist() for index in (2, 4, 5))
            yield from zip(batch.column(0).to_pylist(), seqs, gtids, keys, values, strict=True)


def _removed(rows: dict[int, tuple[int, Seq]], action: Action) -> dict[int, tuple[int, Seq]]:
    match action:
        case do.Truncate(bound=bound):
            return {key: row for key, row in rows.items() if row[1] >= bound}
        case do.DropStrays(first=first, end=end):
            return {key: row for key, row in rows.items() if not first <= row[1][0] < end}
        case do.Sweep(epoch=end):
            return {key: row for key, row in rows.items() if row[1][0] >= end}
    raise NotImplementedError(action)


def _upserted(
    rows: dict[int, tuple[int, Seq]], images: Iterable[tuple[str, Seq, str | None, int, int]], bound: Seq | None
) -> dict[int, tuple[int, Seq]]:
    last: dict[int, tuple[str, Seq, int]] = {}
    for op, seq, _, key, value in images:
        if op != "t" and (bound is None or seq >= bound):
            last[key] = op, seq, value
    for key, (op, seq, value) in last.items():
        if key in rows and rows[key][1] >= seq:
            continue
        if op in ("b", "d"):
            rows.pop(key, None)
        else:
            rows[key] = value, seq
    return rows


class ChangelogTable:
    """A changelog: a list of (operation, ``_seq``, GTID, key, value) for each append."""

    has_other_layout = False

    def __init__(self, delta: DeltaPath, table: str) -> None:
        self.delta, self._property = delta, f"_changelog.{table}"

    def check(self) -> bool:
        return self.delta.check_ours(PIPELINE_NAME, self._property) is not None

    def types(self) -> dict[str, str] | None:
        return dict(_TYPES) if self.check() else None

    def apply(self, actions: Iterable[AppendChanges], epoch: int) -> int | None:
        for action in actions:
            if not self.delta.exists():
                self.delta.create(_Schema(), {PIPELINE: PIPELINE_NAME, TABLE: self._property})  # type: ignore[arg-type]
            images = list(_images(action.parts))
            if images:
                self._append(images, Marker(f"headgate/{PIPELINE_NAME}/{self._property}", epoch))
            _of(self.delta).count("action applied")
        version = self.delta.version()
        return None if version < 0 else version

    def _append(self, images: list[Any], marker: Marker) -> None:
        def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
            if has_marker(table, marker):
                return []
            return [marker.action(), _added(_of(self.delta), images)]

        _commit(self.delta, plan)


def keep_until(delta: DeltaPath, epoch: int, column: str, *, unless: Callable[[Snapshot], bool]) -> None:
    """Stand for ``headgate.lake._replace.keep_until``: delete the rows of later epochs."""
    del column
    world = _of(delta)

    def kept(content: Any) -> Any:
        if isinstance(content, list):
            return [image for image in content if image[1][0] <= epoch]
        return {key: row for key, row in content.items() if row[1][0] <= epoch}

    def plan(table: Snapshot) -> Sequence[Mapping[str, Any]]:
        actions: list[Mapping[str, Any]] = []
        for file in () if unless(table) else table.files.values():
            before = world.store.data[file.path]
            after = kept(before)
            if after != before:
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
    """The writer of one run."""

    def __init__(self, lake: Lake, modes: Sequence[str]) -> None:
        policy, nothing = Policy.of(modes), _Nothing()
        self.lake, self.pipeline = lake, PIPELINE_NAME
        self._policy = lambda _table: policy  # type: ignore[assignment]
        self.inbox = ControlFolder(lake.inbox)
        self.ledger = _Ledger(DeltaPath(Spark(), lake.ledger), lake)  # type: ignore[arg-type]
        self._planner_messages = PlannerMessages(self.inbox)
        self._history = self.upkeep = self._merged = nothing  # type: ignore[assignment]
        self._threads, self._checked, self.targets = 1, set(), {}
        self._has_written, self._has_current, self._kafka = False, True, None
        self._other_layout = set()
        self.progress = Progress()
        self.unseen = self.after_tables = None

    def _current(self, spark: Any, table: str, epoch: int | None = None) -> Any:
        return CurrentTable(DeltaPath(spark, self.lake.current(table, None), self._marker(epoch)), table)

    def _changelog(self, spark: Any, table: str, epoch: int | None = None) -> Any:
        return ChangelogTable(DeltaPath(spark, self.lake.changelog(table, None), self._marker(epoch)), table)

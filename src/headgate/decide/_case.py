"""Inputs of a decision: what is known of a table, what a batch brings for it, and its configuration."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headgate.carrier import Batch, DdlRow, HeaderTable, Part
from headgate.config import InconsistentImages, SchemaChangesConfig
from headgate.decide._unmasked import shows_unmasked
from headgate.decide.states import EventKind
from headgate.lake import Form, Place, State, Successor, TableLayout, TableState, Target
from headgate.offsets import ReadState

__all__ = ["Arrival", "Case", "Divergence", "Policy", "SnapshotInBatch", "TableBefore"]


@dataclass(frozen=True)
class Policy:
    """The configuration of a table."""

    form: Form | None = Form.PLAIN  # form of the current table; None: there is none
    changelog: bool = True  # there is a changelog
    strict: bool = False  # stop the table instead of reading it again
    kafka: bool = False  # its changes are sent to Kafka
    keeps_removed: bool = False  # the current table keeps rows that the source removed: their removal is skipped
    schema_changes: SchemaChangesConfig = field(default_factory=SchemaChangesConfig)  # by kind of change
    place: Place | None = None  # where its Delta tables are, if a route gives it another name
    folder: str = "its folder"  # of the current table, for messages
    changelog_folder: str = "the folder of its changelog"  # for messages
    inconsistent_images: InconsistentImages | None = None  # None: unknown columns stop it, else as ``strict`` says
    layout: TableLayout = field(default_factory=TableLayout)  # of the current table; its changelog has the properties
    named_columns: frozenset[str] = frozenset()  # those for whose values a rule names them, in lower case

    @classmethod
    def of(cls, modes: Collection[str], *, marks_deletes: bool = False) -> Policy:
        """Return the policy of a table in a pipeline with these modes.

        :param modes: ``current`` or ``history``, ``changelog``, ``kafka``: one or more.
        :param marks_deletes: whether deleted rows stay in the current table, marked.
        """
        form = Form.MARKED if marks_deletes else Form.PLAIN
        if "history" in modes:
            form = Form.HISTORY
        has_table = "current" in modes or "history" in modes
        return cls(form if has_table else None, "changelog" in modes, kafka="kafka" in modes)


@dataclass(frozen=True)
class TableBefore:
    """A table before the batch."""

    row: TableState | None = None  # in the last ledger row
    target: Target | None = None  # the current table or its successor, if the batch needs it
    logged: Mapping[str, str] | None = None  # the changelog's columns, if the batch needs them: name → Spark type
    reread_requested: bool = False  # a re-read was requested and has not begun
    is_log_outdated: bool = False  # the changelog has changes of the ledger's batches, and the row does not name it

    @property
    def state(self) -> State:
        return State.NEW if self.row is None else State(self.row.state)

    def lacks_rows(self, policy: Policy) -> bool:
        """Return whether the lake has no current table with the rows that the ledger counts as read, or those that a
        running snapshot has read: its folder is gone, or ``target.mode`` left it out when they came.
        """
        row = self.row
        if row is None or policy.form is None:
            return False
        if row.is_read:
            return row.version is None or self.target is None
        return row.since_epoch is not None and row.version is not None and self.target is None

    @property
    def lacks_changes(self) -> bool:
        """Whether the changelog lacks changes of rows that were read: ``target.mode`` left it out when they came."""
        row = self.row
        return self.is_log_outdated and row is not None and (row.is_read or row.since_epoch is not None)

    @property
    def is_suspended(self) -> bool:
        return self.row is not None and self.row.is_suspended

    @property
    def successor(self) -> Successor | None:
        """The table that takes the batch's rows instead of the current one."""
        return self.row.successor if self.row is not None else None

    @property
    def version(self) -> int | None:
        """Version of the table that takes the rows; None: there is none."""
        if self.successor is not None:
            return self.successor.version
        return self.row.version if self.row is not None else None


@dataclass(frozen=True)
class Divergence:
    """Rows of a table change without images in the log."""

    reason: str
    over: bool = False
    """The cause is gone, so a new snapshot reads its effects."""
    accepted: bool = False
    """The configuration follows the table anyway, as ``inexact``."""
    excluded: bool = False
    """The configuration leaves the table out, so nobody reads its changes."""


@dataclass(frozen=True)
class Arrival:
    """What a batch brings for one table."""

    table: str
    batch: Batch
    unseen: Divergence | None = None  # why its rows change without images, from this batch on or in it

    @property
    def epoch(self) -> int:
        return self.batch.header.epoch

    @property
    def header_entry(self) -> HeaderTable | None:
        return self.batch.header.tables.get(self.table)

    @property
    def parts(self) -> list[Part]:
        return self.batch.parts.get(self.table, [])

    @cached_property
    def chunks(self) -> list[Part]:
        return [part for part in self.parts if part.kind == "chunk"]

    @cached_property
    def statements(self) -> list[DdlRow]:
        return [ddl for ddl in self.batch.ddl if ddl.table == self.table]

    @property
    def truncates(self) -> list[DdlRow]:
        return [ddl for ddl in self.statements if ddl.action == "truncate"]


@dataclass(frozen=True)
class SnapshotInBatch:
    """State of a table's snapshot in the batch."""

    event: EventKind  # FOLLOWS, READS or READS_SOME
    since: int | None  # first epoch of the running full snapshot, if any
    ends: bool = False  # its last rows are in the batch, and no chunk must be read again
    ends_suspension: bool = False  # it ends the table's suspension
    unmasks: bool = False  # it would end it, but may show values that a rule hid
    begins: bool = False  # its first rows are in the batch, and no suspension makes them useless
    header_entry: HeaderTable = field(default_factory=HeaderTable)  # the header's entry of a full snapshot

    @property
    def waits(self) -> bool:
        """Whether a full snapshot has yet to begin. Nobody requested one of a table that is deferred."""
        return self.event is EventKind.READS and self.header_entry.state is ReadState.QUEUED

    @property
    def is_ahead(self) -> bool:
        """Whether no full snapshot has begun, and one waits, or may be requested later."""
        return self.event is EventKind.READS and self.since is None

    @property
    def restarts(self) -> bool:
        """Whether every row of the table is read from this batch on."""
        return self.begins or self.ends_suspension


@dataclass(frozen=True)
class Case:
    """All inputs of the decision on one table."""

    arrival: Arrival
    before: TableBefore
    policy: Policy

    @cached_property
    def snapshot(self) -> SnapshotInBatch:
        """The snapshot's state from the header, or the last known one if the header has none."""
        arrival, row = self.arrival, self.before.row
        header_entry, is_suspended = arrival.header_entry, row is not None and row.is_suspended
        if header_entry is None or header_entry.partial:
            since = row.since_epoch if row is not None and not is_suspended else None
            return SnapshotInBatch(
                EventKind.FOLLOWS if header_entry is None or not header_entry.partial else EventKind.READS_SOME, since
            )
        ends = header_entry.last and not any(redo.table == arrival.table for redo in arrival.batch.redo)
        # Only a snapshot that began after the suspension: with rows, or at its end if it has none.
        is_later = row is not None and is_suspended and (header_entry.since_epoch or 0) > (row.held_epoch or 0)
        brings_rows = is_later and (ends or bool(arrival.chunks))
        read = [chunk.definition for chunk in arrival.chunks]
        unmasks = brings_rows and shows_unmasked(row.unmasked if row else (), self.policy.named_columns, read)
        ends_suspension = brings_rows and not unmasks
        begins = header_entry.since_epoch == arrival.epoch and (ends_suspension or not is_suspended)
        return SnapshotInBatch(
            EventKind.READS, header_entry.since_epoch, ends, ends_suspension, unmasks, begins, header_entry
        )

    @property
    def unmasked(self) -> tuple[str, ...]:
        """Columns that had lost their mask before the batch, unless the snapshot ends the suspension."""
        row = self.before.row
        return row.unmasked if row is not None and not self.snapshot.ends_suspension else ()

    @property
    def lacks_rows(self) -> bool:
        """Whether the current table lacks rows that were read earlier, and that nobody reads again: the batch's rows
        would not complete it.
        """
        snapshot, row = self.snapshot, self.before.row
        if self.policy.form is None or snapshot.restarts or snapshot.is_ahead:
            return False
        is_running = snapshot.event is EventKind.READS
        if is_running and (row is None or not (row.is_read or row.since_epoch == snapshot.since)):
            return True  # its earlier ranges came when ``target.mode`` left the table out
        return bool(self.arrival.parts) and self.before.lacks_rows(self.policy)

    @property
    def lacks_changes(self) -> bool:
        """Whether the changelog lacks changes, and no snapshot appends all rows after them."""
        snapshot = self.snapshot
        if snapshot.restarts or snapshot.is_ahead:
            return False
        is_running = snapshot.event is EventKind.READS  # the rows of its earlier ranges are not in the changelog
        return self.before.lacks_changes or (is_running and self.before.is_log_outdated)

    @property
    def complete_since(self) -> int:
        """First epoch of the table's rows that lack no change; 0: all do. Rows of earlier epochs lack those that were
        left out before the running snapshot, or in its first batch. Its chunks or its end replace them.
        """
        row = self.before.row
        lacks_changes = row is not None and row.held_epoch is not None
        return (self.snapshot.since or 0) if lacks_changes else 0

    @property
    def suspension(self) -> str | None:
        """Why the table was suspended before the batch, unless the snapshot ends that."""
        row = self.before.row
        return row.reason if row is not None and row.is_suspended and not self.snapshot.ends_suspension else None

"""What a decision rests on: what is known of a table, what a batch brings for it, what the configuration wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headgate.carrier import Batch, DdlRow, HeaderTable, Part
from headgate.lake import TableState
from headgate.sinks._promises import Unseen
from headgate.sinks._shape import Target
from headgate.sinks._states import Event, State

__all__ = ["Arrival", "Case", "Known", "Policy", "Reading"]


@dataclass(frozen=True)
class Policy:
    """What the configuration wants of a table."""

    current: bool = True  # there is a current table
    changelog: bool = True  # there is a changelog
    strict: bool = False  # what would have the table read again stops it instead


@dataclass(frozen=True)
class Known:
    """A table before the batch."""

    row: TableState | None = None  # in the last ledger row
    target: Target | None = None  # the current table, if the batch needs it
    logged: Mapping[str, str] | None = None  # the changelog's columns, if the batch needs them: name → Spark type
    reread_asked: bool = False  # a re-read has been asked for and has not begun

    @property
    def state(self) -> State:
        return State.NEW if self.row is None else State(self.row.state)

    @property
    def held(self) -> bool:
        return self.row is not None and self.row.held


@dataclass(frozen=True)
class Arrival:
    """What a batch brings for one table."""

    table: str
    batch: Batch
    unseen: Unseen | None = None  # why its rows change without images, from this batch on or in it

    @property
    def epoch(self) -> int:
        return self.batch.header.epoch

    @property
    def about(self) -> HeaderTable | None:
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


@dataclass(frozen=True)
class Reading:
    """How the reading of a table's rows stands in the batch."""

    event: Event  # FOLLOWS, READS or READS_SOME
    since: int | None  # the epoch of the first rows of the reading of all rows that runs, if any
    ends: bool = False  # its last rows are here, and no chunk has to be read again
    frees: bool = False  # it ends the hold that the table had before
    begins: bool = False  # its first rows are here, and no hold makes them useless
    about: HeaderTable = field(default_factory=HeaderTable)  # the header's word on a reading of all rows

    @property
    def waits(self) -> bool:
        """Whether a reading of all rows is yet to begin."""
        return self.event is Event.READS and self.since is None

    @property
    def restarts(self) -> bool:
        """Whether every row of the table is read from this batch on."""
        return self.begins or self.frees


@dataclass(frozen=True)
class Case:
    """All that the decision on one table rests on."""

    arrival: Arrival
    known: Known
    policy: Policy

    @cached_property
    def reading(self) -> Reading:
        """What the header says, or what was last known if it says nothing."""
        arrival, row = self.arrival, self.known.row
        about, held = arrival.about, row is not None and row.held
        if about is None or about.state != State.SNAPSHOTTING or about.partial:
            since = row.since_epoch if row is not None and not held else None
            return Reading(Event.FOLLOWS if about is None or not about.partial else Event.READS_SOME, since)
        ends = about.last and not any(redo.table == arrival.table for redo in arrival.batch.redo)
        # Only a reading that began after the hold: by rows, or by its end if there are none.
        is_later = row is not None and held and (about.since_epoch or 0) > (row.held_epoch or 0)
        frees = is_later and (ends or bool(arrival.chunks))
        begins = about.since_epoch == arrival.epoch and (frees or not held)
        return Reading(Event.READS, about.since_epoch, ends, frees, begins, about)

    @property
    def reason_before(self) -> str | None:
        """The ledger's reason for the table's state, unless the reading ends that."""
        row = self.known.row
        return None if row is None or self.reading.frees else row.reason

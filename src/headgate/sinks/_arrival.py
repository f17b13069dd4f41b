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

__all__ = ["Arrival", "Known", "Policy", "Reading"]


@dataclass(frozen=True)
class Known:
    """A table before the batch.

    :param row: the table in the last ledger row, if any.
    :param target: the current table, if it exists and the batch needs it.
    :param logged: the changelog's columns, if it exists and the batch needs it: name → Spark type.
    :param reread_asked: a re-read of this table has been asked for and has not begun.
    """

    row: TableState | None = None
    target: Target | None = None
    logged: Mapping[str, str] | None = None
    reread_asked: bool = False

    @property
    def state(self) -> State:
        return State.NEW if self.row is None else State(self.row.state)

    @property
    def held(self) -> bool:
        return self.row is not None and self.row.held


@dataclass(frozen=True)
class Policy:
    """What the configuration wants of a table.

    :param current: there is a current table.
    :param changelog: there is a changelog.
    :param strict: what would have the table read again stops it instead.
    """

    current: bool = True
    changelog: bool = True
    strict: bool = False


@dataclass(frozen=True)
class Arrival:
    """What a batch brings for one table.

    :param unseen: why its rows change without images, from this batch on or in it.
    """

    table: str
    batch: Batch
    unseen: Unseen | None = None

    @property
    def epoch(self) -> int:
        return self.batch.header.epoch

    @property
    def parts(self) -> list[Part]:
        return self.batch.parts.get(self.table, [])

    @cached_property
    def chunks(self) -> list[Part]:
        return [part for part in self.parts if part.kind == "chunk"]

    @cached_property
    def statements(self) -> list[DdlRow]:
        """Those on the table, in log order."""
        return [ddl for ddl in self.batch.ddl if ddl.table == self.table]

    @property
    def about(self) -> HeaderTable | None:
        """What the header says of the table, if anything."""
        return self.batch.header.tables.get(self.table)


@dataclass(frozen=True)
class Reading:
    """How a reading of the table stands in the batch.

    :param event: ``FOLLOWS``, ``READS`` or ``READS_SOME``.
    :param since: the epoch of the batch with the first rows of the reading of all rows that runs, if any.
    :param ends: its last rows are here, and no chunk has to be read again.
    :param frees: it ends the hold that the table had before.
    :param begins: its first rows are here, and it is not one that a hold makes useless.
    :param about: the header's word; of a partial reading nothing.
    """

    event: Event
    since: int | None
    ends: bool = False
    frees: bool = False
    begins: bool = False
    about: HeaderTable = field(default_factory=HeaderTable)

    @property
    def waits(self) -> bool:
        """Whether a reading of all rows is yet to begin."""
        return self.event is Event.READS and self.since is None

    @classmethod
    def of(cls, arrival: Arrival, known: Known) -> Reading:
        """What the header says, or what was last known if it says nothing."""
        about = arrival.about
        if about is None or about.state != State.SNAPSHOTTING or about.partial:
            since = known.row.since_epoch if known.row is not None and not known.held else None
            return cls(Event.FOLLOWS if about is None or not about.partial else Event.READS_SOME, since)
        ends = about.last and not any(redo.table == arrival.table for redo in arrival.batch.redo)
        frees = _is_freed(known.row, about.since_epoch, has_rows=bool(arrival.chunks) or ends)
        begins = about.since_epoch == arrival.epoch and (frees or not known.held)
        return cls(Event.READS, about.since_epoch, ends, frees, begins, about)


def _is_freed(row: TableState | None, since: int | None, *, has_rows: bool) -> bool:
    """Whether a held table takes images again: rows of a reading that began later are here, or it ended without any."""
    if row is None or not row.held or since is None:
        return False
    return since > (row.held_epoch or 0) and has_rows

"""The actions on a current table that takes the images of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from headgate.carrier import Definition, Part
from headgate.errors import DecodeError
from headgate.sinks._actions import (
    Action,
    AddColumns,
    Append,
    Count,
    Create,
    DropStrays,
    Fill,
    Holds,
    MergePartial,
    Overwrite,
    Sweep,
    Truncate,
    Upsert,
)
from headgate.sinks._arrival import Arrival, Known, Reading
from headgate.sinks._shape import Shape
from headgate.sinks._statements import Statements
from headgate.sinks._states import Event, State

__all__ = ["CurrentPlan"]


@dataclass(frozen=True)
class CurrentPlan:
    """What the decision has found out, for a table that is not held.

    :param parts: the images that count.
    """

    arrival: Arrival
    known: Known
    reading: Reading
    statements: Statements
    shape: Shape
    parts: list[Part]

    def actions(self) -> tuple[Action, ...]:
        """In the order of ``_actions``.

        :raises DecodeError: a table without a key has images that leave columns out.
        """
        definition = self.shape.definition
        columns = self._columns(definition) if definition is not None else ()
        rows = self._rows(definition) if definition is not None else ()
        return (*columns, *self._removals(), *rows, *self._sweep())

    @cached_property
    def _appends(self) -> bool:
        """Whether chunks may be appended: no earlier reading of the table can have left rows."""
        target, since = self.known.target, self.reading.since
        is_first = target is None or target.since_epoch == since
        return self.reading.about.append and is_first and not self.shape.replace

    @property
    def _base(self) -> int | None:
        """The version of the table before the batch; None: it was empty, or nothing of it counts."""
        row = self.known.row
        return None if row is None or self.shape.replace or self.statements.truncated is not None else row.version

    @property
    def _holds(self) -> Holds:
        row = self.known.row
        if self.known.state is State.LIVE:
            is_read = self.reading.event is Event.READS or self.known.reread_asked or self.arrival.chunks
            return Holds.UNKNOWN if is_read else Holds.ALL
        has_begun = self.known.state is State.SNAPSHOTTING and row is not None and row.since_epoch is not None
        return Holds.SOME if has_begun or self.known.state is State.SETTLING else Holds.UNKNOWN

    def _columns(self, definition: Definition) -> Iterator[Action]:
        if self.known.target is None or self.shape.replace:
            since = None if self.reading.ends else self.reading.since
            yield Create(definition, 0 if since is None and self._appends else since, self.shape.replace)
            return
        if self.shape.added or any(ddl.adds for ddl in self.statements.adds):
            yield AddColumns(definition, self.shape.added)
        if self.shape.fills:
            yield Fill(definition, self.shape.fills)

    def _removals(self) -> Iterator[Action]:
        if self.statements.truncated is not None:
            yield Truncate(self.statements.truncated)
        since, epoch = self.reading.since, self.arrival.epoch
        if self.reading.frees and not self.shape.replace and since is not None and since < epoch:
            yield DropStrays(since, epoch)

    def _rows(self, definition: Definition) -> Iterator[Action]:
        chunks = [part for part in self.parts if part.kind == "chunk"]
        partial = any(part.partial for part in self.parts)
        bound, fills = self.statements.truncated, self.shape.fills
        if not definition.key:
            if partial:
                raise DecodeError("a partial row image of a table without a key", table=self.arrival.table)
            if chunks:
                yield Overwrite(definition, chunks)
            elif self.parts:
                yield Count(definition, self.parts, self._base, self._holds is Holds.ALL, bound)
            return
        rest = self.parts
        if self._appends and chunks:
            yield Append(definition, chunks)
            rest = [part for part in self.parts if part.kind != "chunk"]
        if partial:
            yield MergePartial(definition, rest, self._base, self._holds, bound, fills)
        elif rest:
            yield Upsert(definition, rest, bound, fills)

    def _sweep(self) -> Iterator[Action]:
        since = self.reading.since
        if self.reading.ends and since is not None and not self._appends and not self.shape.replace:
            yield Sweep(since)

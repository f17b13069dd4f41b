"""Plan of the actions on a current table that takes a batch's images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from headgate.carrier import Definition, Part, Seq
from headgate.decide import actions as do
from headgate.decide._case import Case
from headgate.decide._columns import ColumnPlan
from headgate.decide.actions import Action, TableContent
from headgate.decide.states import COMPLETE, EventKind
from headgate.errors import DecodeError
from headgate.lake import Form, State

__all__ = ["CurrentPlan"]


@dataclass(frozen=True)
class CurrentPlan:
    """Inputs of the plan for a table that is not suspended."""

    case: Case
    columns: ColumnPlan
    parts: list[Part]  # the images to apply
    state: State  # after the batch
    lacks_images: bool = False  # the table lacks changes, because images were left out, now or earlier
    described: Definition | None = None  # the newest definition with comments that the batch brings

    def actions(self) -> tuple[Action, ...]:
        """Return the actions, in the order of ``actions``.

        :raises DecodeError: images of a keyless table leave columns out.
        """
        definition = self.columns.definition
        columns = [*(self._column_actions(definition) if definition is not None else ()), *self._description()]
        rows = self._rows(definition) if definition is not None else ()
        if self._is_history:
            return (*columns, *rows, *self._removals(), *self._sweep())
        proof = self._proof(definition) if definition is not None else ()
        return (*columns, *self._removals(), *rows, *self._sweep(), *proof, *self._end())

    @cached_property
    def _chunks(self) -> list[Part]:
        return [part for part in self.parts if part.kind == "chunk"]

    @cached_property
    def _changes(self) -> list[Part]:
        return [part for part in self.parts if part.kind != "chunk"]

    @property
    def _is_partial(self) -> bool:
        return any(part.partial for part in self._changes)

    @property
    def _is_history(self) -> bool:
        return self.case.policy.form is Form.HISTORY

    @cached_property
    def _appends(self) -> bool:
        """Whether chunks may be appended: no earlier snapshot of the table can have left rows."""
        target, snapshot = self.case.before.target, self.case.snapshot
        is_first = target is None or target.since_epoch == snapshot.since
        return snapshot.header_entry.append and is_first and not self.columns.replace

    @property
    def _base(self) -> int | None:
        """The table's version before the batch; None: it was empty, or no image needs its rows after a TRUNCATE."""
        emptied = self._bound is not None and self.case.policy.form is Form.PLAIN
        return None if self.columns.replace or emptied else self.case.before.version

    @property
    def _bound(self) -> Seq | None:
        """The ``_seq`` of the batch's last TRUNCATE."""
        truncates = self.case.arrival.truncates
        return truncates[-1].seq if truncates else None

    @property
    def _content(self) -> TableContent:
        before, row, arrival = self.case.before, self.case.before.row, self.case.arrival
        if self.lacks_images:
            return TableContent.UNKNOWN
        match before.state:
            case State.LIVE:
                is_read = self.case.snapshot.event is EventKind.READS or before.reread_requested or arrival.chunks
                return TableContent.UNKNOWN if is_read or arrival.unseen is not None else TableContent.ALL
            case State.SETTLING:
                return TableContent.SOME
            case State.SNAPSHOTTING if row is not None and row.since_epoch is not None:
                by_surrogate = self.case.snapshot.header_entry.surrogate
                return TableContent.SOME_OF_ANY_KEY if by_surrogate else TableContent.SOME
            case _:
                return TableContent.UNKNOWN

    @property
    def _exact_since(self) -> int:
        """The epoch from which on the open versions were last seen that have the source's values: 0 if all have. A
        snapshot finds those that changed without an image, and ends them with its last chunk.
        """
        content, row = self._content, self.case.before.row
        if content in (TableContent.SOME, TableContent.SOME_OF_ANY_KEY):
            return (row.since_epoch if row is not None else None) or 0
        return 0 if content is TableContent.ALL else self.case.arrival.epoch

    def _column_actions(self, definition: Definition) -> Iterator[Action]:
        target = self.case.before.target
        if target is None or self.columns.replace:
            since = None if self.case.snapshot.ends else self.case.snapshot.since
            first = 0 if since is None and self._appends else since
            definition = definition.with_comments_of(self.described)
            yield do.Create(definition, replace(self.columns.after, since_epoch=first), self.columns.replace)
            return
        after = self.columns.after
        if self.columns.reshapes:
            alteration = self.columns.alteration
            kept = alteration.dropped & after.kept.keys()
            yield do.Reshape(definition, alteration.dropped - kept, alteration.renamed, alteration.types, kept)
        if self.columns.added or self.columns.is_extended:
            yield do.AddColumns(definition, self.columns.added, after)
        if not self.columns.added and after.properties != target.properties:
            yield do.NoteTypes(after)
        if self.columns.fills:
            yield do.FillColumns(definition, self.columns.fills)

    def _description(self) -> Iterator[Action]:
        if self.described is not None:
            yield do.Describe(self.described)

    def _removals(self) -> Iterator[Action]:
        truncates = self.case.arrival.truncates
        if truncates and not self._counts_rows:  # else one commit deletes and adds rows
            # Versions that are older than the batch have ended at its first TRUNCATE.
            truncated = truncates[0 if self._is_history else -1]
            yield do.Truncate(truncated.seq, truncated.gtid, truncated.ts)
        since, epoch = self.case.snapshot.since, self.case.arrival.epoch
        if self._drops_strays and since is not None and since < epoch:
            yield do.DropStrays(since, epoch)

    @property
    def _counts_rows(self) -> bool:
        """Whether rows of a table without a key are written."""
        return self.columns.definition is not None and not self.columns.definition.key and bool(self.parts)

    def _end(self) -> Iterator[Action]:
        if self.state in COMPLETE and (self.columns.replace or self.case.before.successor is not None):
            yield do.TakeOver()

    def _rows(self, definition: Definition) -> Iterator[Action]:
        if not definition.key:
            yield from self._counted(definition)
            return
        rest, bound, fills, names = self.parts, self._bound, self.columns.fills, self.columns.names
        if self._appends and self._chunks:
            yield do.Append(definition, self._chunks, names=names)
            rest = self._changes
        if self._is_history:
            if rest:
                yield do.AppendVersions(definition, rest, fills, self._exact_since, names=names)
        elif self._is_partial:
            content, since = self._content, self.case.complete_since
            yield do.UpsertPartial(
                definition, rest, bound, fills, base=self._base, content=content, since=since, names=names
            )
        elif rest:
            yield do.Upsert(definition, rest, bound, fills, names=names)

    def _proof(self, definition: Definition) -> Iterator[Action]:
        """Yield the proof of a chosen key, where the table's rows are known: all were read, before or in this batch."""
        if not definition.chosen_key or self.lacks_images:
            return
        if self._chunks and self.case.snapshot.ends:
            yield do.ProveKey(definition, self._chunks, names=self.columns.names)
        elif self.case.before.state is State.LIVE:
            yield do.ProveKey(definition, self._changes, self._base, self._bound, names=self.columns.names)

    def _counted(self, definition: Definition) -> Iterator[Action]:
        if self._is_partial:
            raise DecodeError("a partial row image of a table without a key", table=self.case.arrival.table)
        if self._chunks:
            yield do.Overwrite(definition, self._chunks, names=self.columns.names)
        elif self._changes:
            yield do.Count(definition, self._changes, self._bound, self._content, names=self.columns.names)

    @property
    def _drops_strays(self) -> bool:
        """Whether a killed attempt may have left rows. Where removed rows stay, so may these, which the source had."""
        return self.case.snapshot.ends_suspension and not self.columns.replace and not self.case.policy.keeps_removed

    def _sweep(self) -> Iterator[Action]:
        since = self.case.snapshot.since
        if self.case.policy.keeps_removed:
            return
        if self.case.snapshot.ends and since is not None and not self._appends and not self.columns.replace:
            yield do.Sweep(since)

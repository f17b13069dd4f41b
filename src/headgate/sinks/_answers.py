"""What the sinks tell the planner, through the control folder: requests for reading again, and what is done."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence

from headgate.carrier import Batch, ControlFolder, Resnapshot, Settle
from headgate.catalog import TablePatterns
from headgate.control import inbox_files
from headgate.gtid import GtidSet
from headgate.lake import TableState, encode_name
from headgate.sinks._decide import Decision
from headgate.sinks._states import State

__all__ = ["Answers"]


class Answers:
    """The sinks' side of a control folder."""

    def __init__(self, inbox: ControlFolder) -> None:
        self._inbox = inbox
        self._finished: list[str] | None = None

    def rereads_asked(self) -> TablePatterns | None:
        """The tables that a signal asks to read again, whose reading has not begun; None: none."""
        requests = self._inbox.requests().values()
        patterns = [table for request in requests if isinstance(request, Resnapshot) for table in request.tables]
        return TablePatterns(patterns) if patterns else None

    def ask(self, batch: Batch, decisions: Sequence[Decision], before: Mapping[str, TableState]) -> None:
        """Ask for what a batch leaves to be done; a replay writes the same files.

        :param before: the tables in the last ledger row.
        """
        epoch = batch.header.epoch
        for number, redo in enumerate(batch.redo):
            self._inbox.ask(f"redo-{epoch}-{number}", redo)
        settles = _settles(decisions, before)
        if settles:
            self._inbox.ask(f"settle-{epoch}", Settle(settles))
        for decision in decisions:
            if decision.reread is not None:
                again = Resnapshot((glob.escape(decision.table),), decision.reread)
                self._inbox.ask(f"ddl-{epoch}-{encode_name(decision.table)}", again)

    def hand_back(self, batch: Batch, states: Mapping[str, TableState]) -> None:
        """Say what rests on a batch that the ledger has.

        :param states: all tables after it.
        """
        for action in batch.header.actions:
            name = (action.get("file") or action.get("id")) if isinstance(action, dict) else action
            if name:
                self._inbox.remove_signal(name)
        for name, value in inbox_files(batch.signals):
            self._inbox.write(name, value)
        # Held tables are no news to the planner either: only a signal may have one read again.
        finished = sorted(table for table, state in states.items() if state.is_read or state.held)
        if finished != self._finished:
            self._inbox.tell_finished(finished)
            self._finished = finished
        if len(batch.ends) == 1:
            (end,) = batch.ends
            if GtidSet.parse(end.gtid) == GtidSet.parse(batch.header.gtid):
                self._inbox.tell_hint(end)


def _settles(decisions: Iterable[Decision], before: Mapping[str, TableState]) -> GtidSet:
    """What must be applied before the tables are exact whose last rows this batch brings."""
    settles = GtidSet()
    for decision in decisions:
        known = before.get(decision.table)
        if decision.state.state == State.SETTLING and (known is None or known.state != State.SETTLING):
            settles |= GtidSet.parse(decision.state.settles_at or "")
    return settles

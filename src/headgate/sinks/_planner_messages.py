"""Messages of the sinks to the planner, through the control folder: re-read requests and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.carrier import Batch, ControlFolder, End, Resnapshot, Settle, SinkTables, sent_at, signal_id
from headgate.catalog import TablePatterns, exact_pattern
from headgate.control import OpenSnapshots, SignalKey, inbox_files
from headgate.decide import Decision
from headgate.lake import State, TableState, short_name
from headgate.positions import NOTHING, Position, parse_position

__all__ = ["PlannerMessages"]

_READ_AGAIN: Final = (State.STALE, State.EXCLUDED)
"""States of tables that wait to be read again: excluded ones only if the patterns include them again."""


class PlannerMessages:
    """The sinks' side of a control folder."""

    def __init__(self, inbox: ControlFolder) -> None:
        self._inbox = inbox
        self._recorded: SinkTables | None = None
        self._over: frozenset[SignalKey] = frozenset()
        """Signals that were over at the last look into the inbox."""
        self._has_position = False

    def pending_rereads(self, batch: Batch) -> TablePatterns | None:
        """Return the tables whose requested re-read has not begun; None: none.

        :param batch: to decide. What a killed attempt at it has requested does not count.
        """
        others = {name: one for name, one in self._inbox.requests().items() if not name.startswith(_reread_name(batch))}
        patterns = [table for one in others.values() if isinstance(one, Resnapshot) for table in one.tables]
        return TablePatterns(patterns) if patterns else None

    def request(self, batch: Batch, decisions: Sequence[Decision], before: Mapping[str, TableState]) -> None:
        """Request the work that a batch leaves, and pass on its signals; a replay writes the same files.

        After a lost checkpoint, another batch may have the epoch of one that ended before its ledger row. Its requests
        have the same names, and another time.

        :param before: the tables in the last ledger row.
        """
        epoch, planned_us = batch.header.epoch, batch.header.planned_us
        for name, value in inbox_files(batch.signals):
            self._inbox.write(name, value)
        for number, redo in enumerate(batch.redo):
            self._inbox.send_request(f"redo-{epoch}-{number}", redo, planned_us)
        gtids = _settling_gtids(decisions, before)
        if gtids or batch.windows:
            self._inbox.send_request(f"settle-{epoch}", Settle(gtids, batch.windows), planned_us)
        for decision in decisions:
            if decision.reread_reason is not None:
                resnapshot = Resnapshot((exact_pattern(decision.table),), decision.reread_reason)
                self._inbox.send_request(f"{_reread_name(batch)}{short_name(decision.table)}", resnapshot, planned_us)

    def hand_back(
        self, batch: Batch, states: Mapping[str, TableState], snapshots: OpenSnapshots, slots: int = 0
    ) -> None:
        """Report the results of a batch that the ledger has, and remove the signals that are done.

        :param states: all tables after it.
        :param snapshots: open ones, and answers to users' signals, after it.
        :param slots: how many tasks Spark runs at once now; 0: unknown.
        """
        self._report_finished(states, snapshots, paused=batch.header.paused, slots=slots)
        self._remove_done(batch.header.actions, {one.key: one.is_over for one in snapshots.answers})
        if (end := self._end(batch)) is not None:
            self._inbox.record_hint(end)
            self._has_position = True

    def _remove_done(self, actions: Sequence[Mapping[str, Any]], is_over: Mapping[SignalKey, bool]) -> None:
        """Remove the signals that a batch took, and those that are over with it. One that requests tables stays until
        then: a stream that has lost its checkpoint takes it again.
        """
        over = frozenset(key for key, is_one in is_over.items() if is_one)
        if not actions and over == self._over:
            return
        taken = {one.get("file") or one["id"]: one.get("sent_us") for one in actions if not one.get("late")}
        for name, signal in self._inbox.signals().items():
            sent_us = sent_at(signal)
            is_known = is_over.get((signal_id(name, signal), sent_us)) if sent_us is not None else None
            # One that was sent at another time has replaced the signal that the batch took, and waits for a batch.
            if is_known or (is_known is None and name in taken and taken[name] == sent_us):
                self._inbox.remove_signal(name)
        self._over = over

    def _end(self, batch: Batch) -> End | None:
        """Return the position to record; None if the recorded one stays.

        A stream without its checkpoint resumes if there is one, at the ledger's. So there is one also before a batch
        has read the log.
        """
        header = batch.header
        if len(batch.ends) == 1 and parse_position(batch.ends[0].gtid) == parse_position(header.gtid):
            return batch.ends[0]
        if self._has_position or self._inbox.hint() is not None:
            self._has_position = True
            return None
        return End(header.gtid, header.server_uuid, "", 0)

    def resume(self, states: Mapping[str, TableState], snapshots: OpenSnapshots) -> None:
        """Report the results of the ledger's newest batch again: a kill may have prevented that, and a stream without
        its checkpoint does not repeat the batch. If the position was removed, too, such a stream begins again.

        :param states: the tables in the last ledger row; ``snapshots`` likewise.
        """
        if self._inbox.hint() is not None:
            self._report_finished(states, snapshots, paused=self._inbox.sink_tables().paused)

    def _report_finished(
        self, states: Mapping[str, TableState], snapshots: OpenSnapshots, *, paused: bool, slots: int = 0
    ) -> None:
        # For the planner, suspended tables are finished too: their re-read was requested. It must know which ones wait:
        # a request finds nothing to read while the account cannot see its table. A stream that has lost its checkpoint
        # has lost the requests that it took, too, the patterns that left tables out, the windows of those that
        # settle, and whether a signal has paused reading.
        tables = SinkTables(
            frozenset(table for table, state in states.items() if state.is_read or state.is_suspended),
            frozenset(table for table, state in states.items() if state.state in _READ_AGAIN),
            frozenset(table for table, state in states.items() if state.state == State.SETTLING),
            snapshots.requested,
            paused,
            slots,
        )
        if tables != self._recorded:
            self._inbox.record_tables(tables)
            self._recorded = tables


def _reread_name(batch: Batch) -> str:
    """Return how the names of a batch's requests begin that read tables again."""
    return f"ddl-{batch.header.epoch}-"


def _settling_gtids(decisions: Iterable[Decision], before: Mapping[str, TableState]) -> Position:
    """Return the GTIDs to apply before tables that settle are exact, without those that an earlier batch requested."""
    gtids = NOTHING
    for decision in decisions:
        known = before.get(decision.table)
        if decision.state.state == State.SETTLING:
            requested = known.settles_at if known is not None and known.state == State.SETTLING else None
            gtids |= parse_position(decision.state.settles_at or "") - parse_position(requested or "")
    return gtids

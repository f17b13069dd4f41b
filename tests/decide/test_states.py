"""The transition table: total over what a batch can bring, and nothing in it that no batch brings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from headgate.decide import Arrival, Policy, TableBefore, decide, suspend
from headgate.decide.states import TRANSITIONS, EventKind, follow
from headgate.lake import SUSPENDED, TABLE_STATES, State, TableState
from tests.fix_carrier import FakeBatch, FakeTable

LOG = (
    None,
    EventKind.STATEMENT,
    EventKind.ALTERS,
    EventKind.IGNORES,
    EventKind.LEAVES_OUT,
    EventKind.STOPS,
    EventKind.REMOVES,
    EventKind.EXCLUDES,
    EventKind.CHANGES,
)


def courses(start: State) -> Iterator[list[EventKind]]:
    """Every sequence of events that a batch can bring to a table in this state, up to the header's word and after."""
    for frees, log, begins, gaps in product((False, True), LOG, (False, True), LOG):
        is_free = start not in SUSPENDED or frees
        if (frees and start not in SUSPENDED) or (begins and not is_free):
            continue
        events = [EventKind.ENDS_SUSPENSION] * frees + [
            event for event in (log, EventKind.BEGINS if begins else None, gaps) if event
        ]
        if not frees and not begins:
            yield [*events, EventKind.FOLLOWS]
            yield [*events, EventKind.READS_SOME]
        yield [*events, EventKind.READS]
        yield [*events, EventKind.READS, EventKind.ENDS]
        yield [*events, EventKind.READS, EventKind.ENDS_FILTERED]


def test_every_course_leads_somewhere_and_every_transition_is_on_one() -> None:
    taken = set()
    for start in State:
        for events in courses(start):
            state = start
            for event in events:
                taken.add((event, state))
                state = follow(state, event)
            assert state is not State.NEW
            if state not in SUSPENDED:
                for event in (EventKind.IS_EXACT, EventKind.IS_EXACT_LATER, EventKind.IS_INEXACT):
                    taken.add((event, state))
                    assert follow(state, event) not in (*SUSPENDED, State.NEW)
    assert taken == {(event, state) for event, states in TRANSITIONS.items() for state in states}


def test_nothing_but_a_reading_that_began_later_ends_a_hold() -> None:
    for state, event in product(SUSPENDED, set(EventKind) - {EventKind.ENDS_SUSPENSION, EventKind.BEGINS}):
        after = TRANSITIONS[event].get(state, state)
        assert after in SUSPENDED
        assert after is state or event in (EventKind.STOPS, EventKind.REMOVES, EventKind.EXCLUDES, EventKind.CHANGES)


def test_states_are_those_of_the_ledger() -> None:
    assert {state.value for state in State} == {*TABLE_STATES, State.NEW.value}
    assert {state for state in TABLE_STATES if TableState("a.b", state).is_suspended} == SUSPENDED


def test_an_event_that_cannot_come() -> None:
    with pytest.raises(RuntimeError, match="ENDS_SUSPENSION came to a table in state live"):
        follow(State.LIVE, EventKind.ENDS_SUSPENSION)


def test_the_work_of_a_batch_grows_with_its_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog may have a TRUNCATE of each minute of a month, and a replay has them all again."""
    steps = 0

    def counted(state: State, event: EventKind) -> State:
        nonlocal steps
        steps += 1
        return follow(state, event)

    monkeypatch.setattr("headgate.decide._course.follow", counted)
    orders, batch = FakeTable(), FakeBatch(9)
    for pos in range(1000):
        batch.ddl("shop.orders", "TRUNCATE TABLE orders", "truncate", pos)
    before = TableBefore(TableState("shop.orders", "live", version=4), orders.target())
    decision = decide(Arrival("shop.orders", batch.described()), before, Policy())
    assert [outcome.done for outcome in decision.outcomes] == ["applied"] * 1000
    assert (decision.state.state, steps) == ("live", 1002), "the statements, the header, the promise"
    stopped = suspend(decision, 9, reread_reason=None, stop_reason="gone")
    assert (decision.state.state, stopped.state.state, stopped.state.reason) == ("live", "stopped", "gone")
    assert len(decision.outcomes) == 1000

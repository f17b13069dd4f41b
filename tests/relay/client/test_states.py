"""The states of clients, of members of groups and of their partitions: what follows from what."""

from __future__ import annotations

from typing import Any, Final

import pytest

from headgate.relay.client import _client
from headgate.relay.client.states import (
    ClientState,
    GroupAnswer,
    MemberEvent,
    MemberState,
    Outcome,
    PartitionState,
    Pause,
    Transition,
    decide,
    decide_member,
    decide_partition,
)
from headgate.relay.databus import StreamPosition, checkpoint_json
from tests.relay.client.story import switch
from tests.relay.client.test_mishaps import Calls, Memory, fail_once, run
from tests.relay.server.serving import served
from tests.relay.server.test_bootstrap import GENERATION, Shelf, put, serving

TABLE: Final = """
                 S     L     C     E     B
LOADED           L     .     .     .     .
KNOWN            .     C     .     .     .
KNOWN_FOR_ROWS   .     B     .     .     .
SAME_HISTORY     .     .     E     .     .
ANSWERED         .     .     .     E     B
WAITED           .     .     C     E     B
COMPLETE         .     .     .     .     E
ROLLED_BACK      S2    L2    C2    E2    B2
INTERRUPTED      S     L     C     E     B
SILENT           .     .     L>    L>    .
GONE_HERE        .     .     .     L>    L>
GONE             .     .     .     B     B2
LOST             .     .     L     L     L
FAILED           S1    L1>   L1>   L1>   L1>
"""
"""Starting, looking up, confirming, streaming (E), bootstrapping. ``1``: a pause that grows with failures, ``2``: with
setbacks; ``>``: at the next relay."""


def test_what_follows_from_each_outcome() -> None:
    states = dict(zip("SLCEB", ClientState, strict=True))
    _, *lines = TABLE.strip().splitlines()
    assert [line.split()[0] for line in lines] == [one.name for one in Outcome]
    for name, *cells in map(str.split, lines):
        for state, cell in zip(ClientState, cells, strict=True):
            if cell == ".":
                with pytest.raises(KeyError):
                    decide(state, Outcome[name])
                continue
            pause = {"1": Pause.FAILURES, "2": Pause.SETBACKS}.get(cell[1:2], Pause.NONE)
            assert decide(state, Outcome[name]) == Transition(states[cell[0]], pause, ">" in cell), (state, name)


def test_partitions_and_members() -> None:
    owned, reclaimed, lost = PartitionState
    assert [[decide_partition(state, answer) for answer in GroupAnswer] for state in PartitionState] == [
        [owned, reclaimed, lost],
        [reclaimed, reclaimed, lost],
        [lost, lost, lost],
    ]
    joined, cut_off, leaving, left = MemberState
    assert [[decide_member(state, event) for event in list(MemberEvent)[:2]] for state in list(MemberState)[:3]] == [
        [joined, cut_off],
        [joined, cut_off],
        [leaving, leaving],
    ]
    assert [decide_member(state, MemberEvent.STOPPED) for state in (joined, cut_off)] == [leaving, leaving]
    assert decide_member(leaving, MemberEvent.RELEASED) is left
    with pytest.raises(KeyError):
        decide_member(left, MemberEvent.SYNCED)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[ClientState]:
    """Those that clients come to."""
    entered: list[ClientState] = []

    def deciding(state: ClientState, outcome: Outcome) -> Transition:
        decision = decide(state, outcome)
        if decision.state is not state:
            entered.append(decision.state)
        return decision

    monkeypatch.setattr(_client, "decide", deciding)
    return entered


def test_rows_a_lost_relay_and_the_stream(states: list[ClientState], monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[int] = []
    fail_once(monkeypatch, lambda path, _: path == "bootstrap" and not lost)

    def answer(what: Any, turn: int) -> Any:
        if what == "on_error":
            lost.append(turn)
        if what == "on_stop_bootstrap":
            put(relay, 2)
        if (what, turn) == (2, 1):
            switch(consumer.client)
            put(relay, 3)
        return "stop" if what == 3 else None

    consumer = Calls(answer)
    with serving(Shelf([7])) as relay:
        put(relay, 1)
        run(relay, consumer, bootstrap=True)
    assert consumer.keys[-2:] == [2, 3]
    assert states == [
        ClientState.LOOKING_UP,
        ClientState.BOOTSTRAPPING,
        ClientState.LOOKING_UP,
        ClientState.BOOTSTRAPPING,
        ClientState.STREAMING,
        ClientState.LOOKING_UP,
        ClientState.CONFIRMING,
        ClientState.STREAMING,
    ]


def test_too_far_behind(states: list[ClientState]) -> None:
    """The first relay does not have it, nor the second: rows come first, from that one."""
    consumer = Calls(lambda what, _: "stop" if what == "on_stop_bootstrap" else None)
    with served() as first, serving(Shelf([7])) as second:
        put(first, 5)
        put(second, 5)
        run([first, second], consumer, store=Memory(checkpoint_json(StreamPosition(GENERATION + 1))), bootstrap=True)
    assert 7 in consumer.keys
    assert states == [
        ClientState.LOOKING_UP,
        ClientState.CONFIRMING,
        ClientState.STREAMING,
        ClientState.LOOKING_UP,
        ClientState.CONFIRMING,
        ClientState.STREAMING,
        ClientState.BOOTSTRAPPING,
        ClientState.STREAMING,
    ]

"""The states of clients and of members of groups, and what their tables say."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headgate.databus import StreamPosition, checkpoint_json
from headgate.relay_client import RelayClient
from headgate.relay_client._client import _NEXT, ClientState
from tests.relay.serving import served
from tests.relay.test_bootstrap import GENERATION, Shelf, put, serving
from tests.relay_client.test_mishaps import Calls, Memory, fail_once, run


def test_the_docstring_has_the_table() -> None:
    """But for what a lost relay means, which is the same for all."""
    documented = set()
    for line in (RelayClient.__doc__ or "").splitlines():
        if match := re.fullmatch(r" {8}([A-Z_]+) .*", line):
            documented |= {(match[1], one) for one in re.findall(r"[A-Z]{2,}(?:_[A-Z]+)*", line)[1:]}
    table = {
        (state.name, following.name)
        for state, follow in _NEXT.items()
        for following in follow
        if following is not state and (following is not ClientState.LOOKING_UP or state is ClientState.STARTING)
    }
    assert {pair for pair in documented if pair[0] != pair[1]} == table
    assert all(ClientState.LOOKING_UP in follow for follow in _NEXT.values())


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[ClientState]:
    """Those that clients come to."""
    entered: list[ClientState] = []
    really = RelayClient._move

    def move(self: RelayClient, state: ClientState) -> None:
        really(self, state)
        entered.append(self._state)

    monkeypatch.setattr(RelayClient, "_move", move)
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
            consumer.client._switch()
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

"""What consumers were told, and what they answer, held against the history of a modelled world."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.relay.client import Consumer, Event, RelayClient, Result, Share
from headgate.relay.client.states import Outcome
from tests.relay.client.modelled import GENERATION, ExpectedEvent, World

_VALUE: Final = re.compile(rb"v(\d+\.\d+);")
_ANSWERS: Final = {
    "error": Result.ERROR, "raise": Result.ERROR, "fatal": Result.ERROR_FATAL, "skip": Result.SKIP_CHECKPOINT,
}  # fmt: skip


def switch(client: RelayClient) -> None:
    """Let the client go on at the next relay, after what it does now."""
    really = client._act

    def act() -> Outcome:
        client._act = really  # type: ignore[method-assign]
        return Outcome.GONE_HERE

    client._act = act  # type: ignore[method-assign]


class Killed(BaseException):
    """Nothing of what comes after it happens."""


def is_in(share: Share, key: int) -> bool:
    """FNV-1a, as docs/reference/relay.md has it."""
    digest = 0xCBF29CE484222325
    for byte in (key & (2**64 - 1)).to_bytes(8, "big"):
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return (digest >> 32 ^ digest) % 2**32 % share.buckets == share.bucket


def value_of(event: Event) -> str:
    """The row's value, without what makes it large."""
    match = _VALUE.search(event.payload)
    assert match is not None
    return match[0].decode()


def _shown(value: Any) -> Any:
    """For the trace."""
    if isinstance(value, Event):
        return f"{value.opcode} {value.source[-3:]} {value.key!r} at {value.scn - GENERATION}"
    return value - GENERATION if isinstance(value, int) and value > 0 else str(value)[:60]


class Story:
    """What consumers of one client, and of those that come after it, are told; the first thing that is wrong.

    :param alone: callbacks are made in the client's own thread.
    """

    def __init__(self, world: World, sources: Sequence[str], share: Share | None, sinks: int, *, alone: bool) -> None:
        self.world, self.sources, self.share, self.alone = world, sources, share, alone
        self.stored: Mapping[str, Any] | None = None
        self.kept = -1
        """The newest checkpoint that all agreed to, of the stream; as a transaction's number."""
        self.start = -1
        """The SCN that the bootstrap began at, or the last one."""
        self.wrong: str | None = None
        self.fatal = self.dead = self.may = False
        self.partial = False
        """The relay's oldest transaction was not the first one, and its consumer was told of no other one."""
        self.highest = 0
        self._count, self._deliveries, self._held = itertools.count(), itertools.count(), 0
        self._answers: list[Result] = []
        self.client: RelayClient
        self.sinks = [Sink(self, number) for number in range(sinks)]
        self.lock = threading.RLock()

    def events(self, number: int) -> list[ExpectedEvent]:
        return [one for one in self.world.history.events[number] if self.wants(one.source, one.key)]

    def wants(self, source: str, key: int) -> bool:
        return source in self.sources and (self.share is None or is_in(self.share, key))

    def table(self, number: int) -> dict[tuple[str, int], str]:
        state = self.world.history.states[number]
        return {place: value for place, value in state.items() if self.wants(*place)}

    def begin(self) -> None:
        """Another client comes, from what is kept."""
        self.fatal, self.dead, self.may = False, False, True
        self.world.trace.append(("client", dict(self.stored or {})))
        self._answers.clear()
        online = self.stored is not None and self.stored["consumption_mode"] == "ONLINE_CONSUMPTION"
        self.kept = -1 if self.stored is None or not online else max(self.stored["windowScn"] - GENERATION, 0)
        self.sinks = [one.successor(self.kept) for one in self.sinks]

    def may_deliver(self) -> bool:
        with self.lock:
            if not self._held:
                self._held = self.world.rough.holds.pop(next(self._deliveries), 0)
                if self._held:
                    self.world.trace.append(("may not deliver", self._held))
            if self._held < 0:
                self._held, self.dead = 0, True
                raise Killed
            self.may = not self._held
            self._held -= not self.may
            return self.may

    def heard(self, sink: Sink, name: str, arguments: tuple[Any, ...]) -> Result | None:
        """A callback, and what it answers."""
        with self.lock:
            if self.wrong is not None or self.dead or sink not in self.sinks:
                return Result.ERROR_FATAL
            what = self.world.rough.callbacks.pop(next(self._count), "")
            shown = [_shown(one) for one in arguments]
            self.world.trace.append((sink.number, name, *shown, what))
            try:
                sink.check(name, arguments, fails=what in ("error", "raise", "fatal"))
            except AssertionError as error:
                self.wrong = f"{name}{tuple(shown)}: {error}"
                return Result.ERROR_FATAL
            answer = Result.SUCCESS if what == "skip" and not name.endswith("checkpoint") else _ANSWERS.get(what)
            if name == "on_checkpoint":
                self._agree(arguments[0], answer or Result.SUCCESS)
            self.fatal = self.fatal or what == "fatal"
            self.dead = what == "kill"
        if what == "kill":
            raise Killed
        if what == "raise":
            raise ValueError("the consumer's own")
        if what == "stop":
            self.client.stop()
        return answer

    def _agree(self, scn: int, answer: Result) -> None:
        self._answers.append(answer)
        if len(self._answers) == len(self.sinks):
            if max(self._answers) < Result.SKIP_CHECKPOINT:
                self.kept = scn - GENERATION
            self._answers.clear()

    # --- the store of checkpoints

    def load(self) -> Mapping[str, Any] | None:
        return self.stored

    def store(self, checkpoint: Mapping[str, Any]) -> None:
        with self.lock:
            if self.dead or self.wrong is not None:
                return
            self.world.trace.append(("stored", dict(checkpoint)))
            before = (self.stored or {}).get("bootstrap_start_scn")  # until something of another one is kept
            self.stored = json.loads(json.dumps(checkpoint))
            number, wrong = checkpoint["windowScn"] - GENERATION, None
            if checkpoint["windowOffset"] != -1 and checkpoint["windowScn"] > 0:
                wrong = "it is within a window"
            elif checkpoint["consumption_mode"] == "ONLINE_CONSUMPTION":
                if checkpoint["windowScn"] > 0 and number != self.kept:
                    wrong = f"it is not {self.kept}, the newest that was agreed to"
            elif checkpoint["bootstrap_start_scn"] not in (-1, before, self.start):
                wrong = f"it is not of the bootstrap from {self.start - GENERATION}"
            if wrong:
                self.wrong = f"a checkpoint was kept: {dict(checkpoint)}: {wrong}"


class Sink(Consumer):
    """A table that is made of what it is told, and a look at each callback: whether it may come now."""

    def __init__(self, story: Story, number: int) -> None:
        self.number, self._story = number, story
        self.rows: dict[tuple[str, int], tuple[int, str]] = {}
        """Key → SCN, value."""

        self._begin(-1)

    def successor(self, kept: int) -> Sink:
        """The same table for another client; this one may still be called."""
        sink = Sink(self._story, self.number)
        sink.rows = dict(self.rows)
        sink._begin(kept)
        return sink

    def _begin(self, kept: int) -> None:
        self._open: list[Any] = []
        self._next: int | None = kept + 1 if kept >= 0 else None
        self._first: int | None = None
        self._done = 0
        self._over = False
        self._start = -1

    def check(self, name: str, arguments: tuple[Any, ...], *, fails: bool) -> None:
        story = self._story
        if story.alone and name != "on_error":
            assert not story.fatal, "after ERROR_FATAL"
            assert story.may or "consumption" in name or "rollback" in name, "while it may not deliver"
        assert not self._over or name == "on_error", "after on_stop_consumption"
        getattr(self, f"_{name}", self._any)(*arguments)
        if name in ("on_data_event", "on_bootstrap_event") and not fails:
            self._apply(arguments[0])

    def _apply(self, event: Event) -> None:
        assert isinstance(event.key, int)
        place, value = (event.source, event.key), value_of(event)
        self._story.highest = max(self._story.highest, event.scn)
        if event.opcode == "DELETE":
            self.rows.pop(place, None)
        else:
            self.rows[place] = (event.scn, value)

    @property
    def table(self) -> dict[tuple[str, int], str]:
        return {place: value for place, (_, value) in self.rows.items()}

    def _any(self, *_: Any) -> None: ...

    def _on_stop_consumption(self) -> None:
        self._over = True

    # --- the stream

    def _at(self, scn: int) -> None:
        number = scn - GENERATION
        if self._next is None:  # the oldest that there is, but none that came before is left out
            assert self._first is None or number <= self._first, f"window {self._first} has to come again"
            self._next = self._first = number
            self._story.partial = self._story.partial or number > 1
        assert number == self._next, f"window {self._next} has to come"

    def _on_start_data_event_sequence(self, scn: int) -> None:
        assert not self._open
        self._at(scn)
        assert self._done == 0
        self._open = ["window"]

    def _on_start_source(self, source: str, schema: Any) -> None:
        assert self._open == ["window"]
        self._open.append((source, schema))

    def _on_data_event(self, event: Event) -> None:
        assert self._open[1:] == [(event.source, event.schema)]
        self._at(event.scn)
        assert self._next is not None
        events = self._story.events(self._next)
        assert self._done < len(events), "there is no such event"
        assert (event.source, event.opcode, event.key, value_of(event)) == events[self._done]
        self._done += 1

    def _on_end_source(self, source: str, schema: Any) -> None:
        assert self._open[1:] == [(source, schema)]
        self._open.pop()

    def _on_end_data_event_sequence(self, scn: int) -> None:
        assert self._open == ["window"]
        self._at(scn)
        self._open = []

    def _on_checkpoint(self, scn: int) -> None:
        assert not self._open
        self._at(scn)
        assert self._next is not None
        assert self._done == len(self._story.events(self._next)), "the window is not whole"
        self._next, self._done = self._next + 1, 0

    def _on_rollback(self, scn: int) -> None:
        kept = self._story.kept
        assert (scn - GENERATION if scn > 0 else scn) == kept, f"{kept} is kept"
        self._open, self._done, self._next = [], 0, kept + 1 if kept >= 0 else None

    # --- bootstraps

    def _on_start_bootstrap(self) -> None:
        self._open = ["bootstrap"]

    def _on_start_bootstrap_sequence(self, scn: int) -> None:
        assert self._open == ["bootstrap"]
        self._open.append("sequence")
        self._start = self._story.start = scn

    def _on_start_bootstrap_source(self, source: str, schema: Any) -> None:
        assert self._open == ["bootstrap", "sequence"]
        self._open.append((source, schema))

    def _on_bootstrap_event(self, event: Event) -> None:
        assert self._open[2:] == [(event.source, event.schema)]
        assert event.scn >= self._start
        stored = self._story.stored or {}
        assert stored.get("bootstrap_start_scn") == self._start, "its start is not kept"

    def _on_end_bootstrap_source(self, source: str, schema: Any) -> None:
        assert self._open[2:] == [(source, schema)]
        self._open.pop()

    def _on_bootstrap_checkpoint(self, scn: int) -> None:
        assert self._open == ["bootstrap", "sequence"]

    def _on_bootstrap_rollback(self, scn: int) -> None:
        self._open = ["bootstrap", "sequence"] if scn >= 0 else ["bootstrap"]

    def _on_end_bootstrap_sequence(self, scn: int) -> None:
        assert self._open == ["bootstrap", "sequence"]
        self.rows = {place: one for place, one in self.rows.items() if one[0] >= self._start}
        if self._story.highest <= scn:
            assert self.table == self._story.table(max(scn - GENERATION, 0)), "this is not what the server held"
        self._next, self._done = max(scn - GENERATION, 0) + 1, 0

    def _on_stop_bootstrap(self) -> None:
        assert self._open == ["bootstrap", "sequence"]
        self._open = []
        assert self._next is not None
        self._story.kept = self._next - 1


def _callback(name: str) -> Any:
    def call(self: Sink, *arguments: Any) -> Result | None:
        return self._story.heard(self, name, arguments)

    return call


for _name in [one for one in vars(Consumer) if one.startswith("on_")]:
    setattr(Sink, _name, _callback(_name))

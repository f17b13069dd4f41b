"""Any history, any fault, any answer: what a consumer of a relay holds in the end is what the server holds."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headgate.errors import RelayConsumerError, ScnNotFoundError
from headgate.relay.client import ClientTuning, RelayClient, Retry, Share
from headgate.relay.server import RelayTimes
from headgate.relay.server.bootstrap import Bootstrap
from tests.relay.client.modelled import KEYS, SOURCES, Board, History, Rough, World, Write, boards
from tests.relay.client.story import Killed, Story

TUNING = ClientTuning(wait=0.001, resume_check=0.0002, stalled=0.005)


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[Board]]:
    with boards(2) as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bootstrap, "_executed", lambda self: self._partition.feeder.position.now().gtid)
        yield made


SMALL = st.integers(0, 40)
LARGE = st.sampled_from([300, 1000, 5000])
WRITES = st.builds(
    Write, st.integers(0, 1), st.integers(0, KEYS - 1), st.booleans(), st.one_of(SMALL, SMALL, SMALL, LARGE)
)
TRANSACTIONS = st.lists(
    st.one_of(st.lists(WRITES, min_size=1, max_size=4), st.lists(WRITES, min_size=1, max_size=25)),
    min_size=6, max_size=24,
)  # fmt: skip
COUNTS = st.integers(0, 4)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["pass", "pass", "put", "put", "all", "all", "save", "restart", "refuse", "cut", "damage"]),
        COUNTS,
    ),
    max_size=30,
)  # fmt: skip
READS = st.lists(st.tuples(st.sampled_from(["pass", "put", "put", "put", "gone", "plan", "later"]), COUNTS), max_size=8)


def spread(gaps: st.SearchStrategy[int], what: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[dict[int, Any]]:
    """Turns, with some others in between, and what happens then."""
    return st.lists(st.tuples(gaps, what), max_size=most).map(
        lambda pairs: dict(
            zip(itertools.accumulate(1 + gap for gap, _ in pairs), (one for _, one in pairs), strict=True)
        )
    )


CALLBACKS = spread(
    st.integers(0, 30), st.sampled_from(["error", "error", "skip", "raise", "stop", "kill", "fatal"]), 12
)
HOLDS = spread(st.integers(0, 20), st.integers(-1, 3).filter(bool), 8)


def live(story: Story, urls: list[str], **more: Any) -> None:
    """Clients, one after the other, until the consumers have everything."""
    world, bootstrap = story.world, more.pop("bootstrap")
    idle = False

    def on_idle() -> None:
        nonlocal idle
        idle = True
        story.client.stop()

    world.on_idle = on_idle
    while not idle:
        story.begin()
        story.client = client = RelayClient(
            urls, story.sources, story.sinks, story, retry=Retry(first_seconds=0.0001, longest_seconds=0.0005),
            may_deliver=story.may_deliver, share=story.share, bootstrap=bootstrap, **more,
        )  # fmt: skip
        try:
            client.run()
        except Killed:
            pass
        except RelayConsumerError:
            assert story.wrong or story.fatal or story.dead  # killed in a consumer's thread, which the client notices
        except ScnNotFoundError:  # it is told so; the consumer decides what now
            assert not bootstrap
            bootstrap = True
        else:
            assert story.wrong or not story.fatal, "it went on after ERROR_FATAL"
        assert story.wrong is None, story.wrong


@settings(max_examples=50)
@given(data=st.data())
def test_whatever_happens_the_consumer_holds_what_the_server_holds(addresses: list[Board], data: st.DataObject) -> None:
    history = History(data.draw(TRANSACTIONS, "transactions"), data.draw(st.sampled_from([1 << 30, 3, 6]), "altered"))
    relays = data.draw(st.sampled_from([1, 1, 2]), "relays")
    stateful = data.draw(st.booleans(), "stateful")
    rough = Rough(
        initial=data.draw(st.integers(0 if stateful else 1, 6), "initial"), requests=data.draw(REQUESTS, "requests"),
        reads=data.draw(READS, "reads"), holds=data.draw(HOLDS, "holds"),
        pace=data.draw(st.sampled_from([1, 1, 2, 100]), "pace"),
    )  # fmt: skip
    sinks = data.draw(st.sampled_from([1, 1, 2]), "sinks")
    limit = data.draw(st.sampled_from([None, None, 600.0]), "limit")
    rough.callbacks = data.draw(CALLBACKS, "callbacks")
    alone = sinks == 1 and limit is None
    if not alone:  # a thread of its own: what is raised there is seen by nobody
        rough.callbacks = {n: "stop" if one == "kill" else one for n, one in rough.callbacks.items()}
    size = data.draw(st.sampled_from([150, 400, 1500, 100_000]), "size")
    memory = data.draw(st.sampled_from([1500, 6000, 1 << 20]), "memory")
    disk = memory * 2 if stateful and data.draw(st.booleans(), "disk") else 0
    version = data.draw(st.sampled_from([1, 2]), "version")
    befores = version == 2 and data.draw(st.booleans(), "befores")
    events = sum(map(len, history.events))
    nuisance = 3 + 5 * len(rough.requests) + len(rough.reads) + len(rough.callbacks) + len(rough.holds)
    with tempfile.TemporaryDirectory() as folder:
        together = data.draw(st.sampled_from([0.0, 3600.0]), "together")
        times = RelayTimes(bootstrap_position=0.002, bootstrap_together=together)
        world = World(
            history, rough, addresses[:relays], Path(folder) if stateful else None,
            part_keys=data.draw(st.sampled_from([1, 2, KEYS]), "part_keys"),
            most_requests=nuisance * (20 + 2 * len(history) + events), memory_bytes=memory, disk_bytes=disk,
            event_version=version, before_images=False, times=times,
        )  # fmt: skip
        sources = [one.name for one in data.draw(st.sampled_from([SOURCES, SOURCES[:1]]), "sources")]
        share = data.draw(st.sampled_from([None, None, Share(0, 2), Share(1, 3)]), "share")
        story = Story(world, sources, share, sinks, alone=alone)
        try:
            live(
                story, [f"http://127.0.0.1:{one.port}" for one in addresses[:relays]],
                bootstrap=data.draw(st.sampled_from([True, True, False]), "bootstrap"), before_images=befores,
                tuning=replace(TUNING, stream_bytes=size, rows_bytes=size + 1350), callback_seconds=limit,
                checkpoint_seconds=data.draw(st.sampled_from([0.0, 0.0, 3600.0]), "seconds"),
            )  # fmt: skip
            for one in story.sinks:
                assert story.partial or one.table == story.table(len(history))
        finally:
            for line in world.trace:
                note(str(line))
            world.close()

"""Chunks take their share of the time, whatever reading and the server's load cost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headgate.spark._pace import Pace

FULL = 500_000


@dataclass
class World:
    """A pipeline whose batches take ``live(batch)`` seconds, and with chunks ``chunk + rows * cost`` more."""

    share: float
    live: Callable[[int], float] = lambda _: 2.0
    cost: float = 1e-5
    chunk: float = 0.0
    noise: float = 0.0
    batches: list[tuple[int, float, float]] = field(default_factory=list)
    """Rows, seconds, those of chunks."""

    def run(self, count: int, *, live: bool = True) -> None:
        if not self.batches:
            self.pace = Pace(self.share)
        chance = random.Random(len(self.batches))
        for _ in range(count):
            rows = self.pace.allow(FULL, live=live)
            assert 0 <= rows <= FULL
            chunks = (self.chunk + rows * self.cost) * chance.uniform(1, 1 + self.noise) if rows else 0.0
            seconds = self.live(len(self.batches)) * chance.uniform(1, 1 + self.noise) + chunks
            self.pace.observe(rows=rows, seconds=seconds, live=live)
            self.batches.append((rows, seconds, chunks))

    def taken(self, last: int) -> float:
        """The share that chunks took of the last batches."""
        batches = self.batches[-last:]
        return sum(chunks for *_, chunks in batches) / sum(seconds for _, seconds, _ in batches)

    def longest(self, last: int) -> float:
        return max(seconds for _, seconds, _ in self.batches[-last:])


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("cost", [1e-6, 1e-5, 1e-4])
def test_chunks_take_their_share_and_most_of_it(share: float, cost: float) -> None:
    world = World(share, cost=cost)
    world.run(100)
    possible = min(share, FULL * cost / (2 + FULL * cost))
    assert 0.6 * possible <= world.taken(60) <= share + 0.01
    if share / (1 - share) * 2 >= FULL / 64 * cost:
        assert world.longest(60) <= 2 / (1 - share) * 1.05


def test_where_the_smallest_chunk_is_too_much_batches_go_without() -> None:
    world = World(0.1, live=lambda _: 0.5, chunk=3.0)
    world.run(300)
    assert 0.07 <= world.taken(200) <= 0.11
    assert sum(rows > 0 for rows, *_ in world.batches) > 3, "it gets on all the same"


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_server_that_gets_slower_or_quicker_is_followed(share: float) -> None:
    world = World(share, live=lambda batch: 1.0 if batch < 60 else 6.0 if batch < 120 else 0.5, noise=0.3)
    for _ in range(3):
        world.run(60)
        assert 0.5 * share <= world.taken(40) <= share * 1.2
    assert world.longest(40) <= 0.5 * 1.3 / (1 - share) * 1.5


def test_one_batch_that_was_slow_by_chance_changes_little() -> None:
    world = World(0.3, live=lambda batch: 60.0 if batch % 25 == 24 else 1.0)
    world.run(120)
    assert max(chunks for *_, chunks in world.batches[20:]) <= 2 * 0.3 / 0.7


def test_without_live_changes_there_is_no_limit() -> None:
    world = World(0.2)
    world.run(30)
    before = world.batches[-1][0]
    assert before < FULL
    world.run(5, live=False)
    assert [rows for rows, *_ in world.batches[-5:]] == [FULL] * 5
    world.run(30)
    assert world.taken(20) <= 0.21, "and with them the share holds again"


def test_no_limit_is_no_limit() -> None:
    world = World(1.0, noise=0.5)
    world.run(50)
    assert {rows for rows, *_ in world.batches} == {FULL}


def test_the_first_batch_shows_what_live_changes_take_and_the_rest_begins_small() -> None:
    world = World(0.5)
    world.run(5)
    rows = [rows for rows, *_ in world.batches]
    assert rows[:2] == [0, FULL // 64]
    assert all(after <= 2 * max(before, FULL // 64) for before, after in itertools.pairwise(rows))

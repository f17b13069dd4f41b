"""One episode: faults, rest, and the judge.

A kill ends the pipeline's process, and files are damaged. The next one starts, perhaps among faults, works, and is hit
by faults that it survives, until it may rest or is killed. A start takes most of the time, so other faults come several
to each process. What lacks most, of the goals' shares, comes next.
"""

from __future__ import annotations

import random
import time
from typing import Any, Final

from headgate_testing import pass_time
from tests.soak._faults import AT_REST, AT_START, ENDS, FAULTS, MEETINGS, Fault, kill_during_start
from tests.soak._world import World

__all__ = ["GOALS", "finish_world", "run_episode"]

GOALS: Final = {"kill": 300, "network": 300, "answer": 300, "file": 300, "failover": 30, "server": 20}
"""Faults of a whole run, by kind. Their shares choose the next kind."""
_BATCH_SECONDS: Final = 400.0
_FINISH_SECONDS: Final = 900.0
_START_SECONDS: Final = 90.0
"""Faults of a start that last longer hold it up for long."""
_PER_PROCESS: Final = (20, 40)
"""Least and most faults of one process, after its first batch."""


def run_episode(world: World, seed: int, faults: int) -> dict[str, Any]:
    """Run an episode in a world that others have used. Return its figures: seconds, batches, starts, faults by kind,
    kills by site, what the judge compared.

    :param faults: their least number.
    :raises AssertionError: something was lost, repeated or half applied, the pipeline got stuck, or it grew.
    """
    begun, pipeline = time.monotonic(), world.pipeline
    before = _Counts(world)
    run = _Run(world, random.Random(seed), begun)
    while sum(_Counts(world).faults.values()) < sum(before.faults.values()) + faults:
        run.live()
    world.source.rest()
    pipeline.wait_until(world.oracle.has_applied, _FINISH_SECONDS)
    resting = time.monotonic()
    world.growth.look()
    judged = world.oracle.judge()
    world.source.write()
    now = _Counts(world)
    run.print(f"at rest, and judged in {time.monotonic() - resting:.1f} s")
    world.growth.check()
    return {
        "seconds": round(time.monotonic() - begun),
        "batches": now.batches - before.batches,
        "starts": now.starts - before.starts,
        "faults": dict(now.faults - before.faults),
        "kills": dict(now.kills - before.kills),
        "judged": judged,
    }


def finish_world(world: World) -> None:
    """Judge what a last run that ends by itself (``--once``) leaves.

    :raises AssertionError: something was lost, repeated or half applied, or the run failed.
    """
    world.source.rest()
    world.pipeline.finish(_FINISH_SECONDS)
    world.oracle.judge()


class _Counts:
    """The counts of a world now."""

    def __init__(self, world: World) -> None:
        pipeline = world.pipeline
        self.batches, self.starts, self.kills = pipeline.batches, pipeline.starts, pipeline.kills.copy()
        self.faults = world.faults.copy()
        self.faults["answer"], self.faults["kill"] = pipeline.wrong_answers, self.kills.total()


class _Run:
    """The faults of an episode."""

    def __init__(self, world: World, choice: random.Random, begun: float) -> None:
        self._world, self._choice, self._begun = world, choice, begun

    def live(self) -> None:
        """Kill the process of the pipeline, and live with the next one until it may rest, or has ended."""
        world, choice, pipeline = self._world, self._choice, self._world.pipeline
        if pipeline.works():
            self._inject("kill", choice.choice(ENDS))
        if not pipeline.runs():
            for fault in choice.sample(AT_REST, choice.choice((1, 1, 2))):
                self._inject("file", fault)
            pipeline.start()
        while choice.random() < 0.3:  # a process that does not get far
            pass_time(choice.choice((choice.uniform(0, 5), choice.uniform(0, 40))))
            self._inject("kill", kill_during_start)
            self._inject("file", choice.choice(AT_REST))
            pipeline.start()
        self._start()
        for _ in range(choice.randint(*_PER_PROCESS)):
            if choice.random() < 0.2:
                pipeline.wait_for_batches(1, _BATCH_SECONDS)
            if choice.random() < 0.15:
                self._inject("kill", choice.choice(MEETINGS), "met: ")
            else:
                kind = self._lacking()
                self._inject(kind, choice.choice(FAULTS[kind]))
            if not pipeline.runs():
                world.source.proxy.restore()
                return

    def _start(self) -> None:
        """Wait for the first batch of the process, perhaps among faults that it survives."""
        choice, pipeline = self._choice, self._world.pipeline
        end = time.monotonic() + choice.choice((0, _START_SECONDS / 2, _START_SECONDS))
        pipeline.set_share_of_wrong_answers(choice.choice((0, 0, 0.02, 0.05)))
        while time.monotonic() < end and not pipeline.works():
            pass_time(choice.uniform(0, 3))
            kinds = [kind for kind in AT_START if kind != "network" or self._world.source.proxy.open_connections]
            kind = choice.choice(kinds)
            self._inject(kind, choice.choice(AT_START[kind]))
            pipeline.supervise()
        pipeline.set_share_of_wrong_answers(0)
        pipeline.wait_until(pipeline.works, _BATCH_SECONDS)

    def _lacking(self) -> str:
        """Return the kind whose count is the least share of its goal; now and then another one."""
        if self._choice.random() < 0.2:
            return self._choice.choice([*FAULTS])
        faults = _Counts(self._world).faults
        return min(GOALS, key=lambda kind: faults[kind] / GOALS[kind])

    def _inject(self, kind: str, fault: Fault, words: str = "") -> None:
        met = fault(self._world, self._choice)
        if kind not in ("kill", "answer"):  # these are counted where they happen
            self._world.faults[kind] += met
        self.print(f"{words}{kind}: {fault.__name__}{'' if met else ' (met nothing)'}")

    def print(self, text: str) -> None:
        """Print a line with the seconds since the episode began."""
        print(f"  {time.monotonic() - self._begun:6.1f} s {text}", flush=True)

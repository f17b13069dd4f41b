"""One episode: faults, rest, and the judge."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

from tests.soak._faults import FAULTS
from tests.soak._oracle import has_applied, judge
from tests.soak._world import World

__all__ = ["finish_world", "run_episode"]

_BATCH_SECONDS = 300.0
_FINISH_SECONDS = 600.0


def run_episode(world: World, seed: int, faults: int) -> dict[str, Any]:
    """Run an episode in a world that others have used. Return its figures: seconds, batches, starts, faults by kind,
    what the judge compared.

    :param faults: their number. About half of them come before a batch has ended since the one before.
    :raises AssertionError: something was lost, repeated or half applied, or the pipeline got stuck.
    """
    choice, injected, begun, pipeline = random.Random(seed), Counter[str](), time.monotonic(), world.pipeline
    batches, starts, kills, wrong = pipeline.batches, pipeline.starts, pipeline.kills, pipeline.wrong_answers
    for _ in range(faults):
        if choice.random() < 0.5:
            pipeline.wait_for_batches(1, _BATCH_SECONDS)
        kind = choice.choice([*FAULTS])
        fault = choice.choice(FAULTS[kind])
        print(f"  {time.monotonic() - begun:6.1f} s {kind}: {fault.__name__.strip('_')}", flush=True)
        fault(world, choice)
        injected[kind] += 1
        if pipeline.pid is None:
            pipeline.start()
    world.source.rest()
    pipeline.wait_until(lambda: has_applied(pipeline.lake, world.source.server), _FINISH_SECONDS)
    print(f"  {time.monotonic() - begun:6.1f} s at rest", flush=True)
    judged = judge(pipeline.lake, world.source.server)
    world.source.write()
    injected["answer"], injected["kill"] = pipeline.wrong_answers - wrong, pipeline.kills - kills
    return {
        "seconds": round(time.monotonic() - begun),
        "batches": pipeline.batches - batches,
        "starts": pipeline.starts - starts,
        "faults": dict(injected),
        "judged": judged,
        "most_megabytes": pipeline.most_bytes >> 20,
        "most_descriptors": pipeline.most_descriptors,
    }


def finish_world(world: World) -> None:
    """Judge what a last run that ends by itself (``--once``) leaves.

    :raises AssertionError: something was lost, repeated or half applied, or the run failed.
    """
    world.source.rest()
    world.pipeline.finish(_FINISH_SECONDS)
    judge(world.pipeline.lake, world.source.server)

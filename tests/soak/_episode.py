"""One episode: a world, faults, rest, and the judge."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.soak._faults import FAULTS
from tests.soak._oracle import judge
from tests.soak._world import TABLES, open_world

__all__ = ["run_episode"]

_BATCH_SECONDS = 180.0
_FINISH_SECONDS = 300.0


def run_episode(folder: Path, seed: int, faults: int) -> dict[str, Any]:
    """Run an episode. Return its figures: seconds, batches, starts, faults by kind, what the judge compared.

    :param faults: their number.
    :raises AssertionError: something was lost, repeated or half applied, or the pipeline got stuck.
    """
    choice, injected, begun = random.Random(seed), Counter[str](), time.monotonic()
    with open_world(folder, seed) as world:
        pipeline = world.pipeline
        for number in range(faults):
            # Half of the faults of the first quarter come while the tables are read.
            if number >= faults // 4 or choice.random() < 0.5:
                pipeline.wait_for_batches(choice.randrange(1, 4), _BATCH_SECONDS)
            kind = choice.choice([*FAULTS])
            fault = choice.choice(FAULTS[kind])
            print(f"  {time.monotonic() - begun:6.1f} s {kind}: {fault.__name__.strip('_')}", flush=True)
            fault(world, choice)
            injected[kind] += 1
            if pipeline.pid is None:
                pipeline.start()
        pipeline.wait_for_batches(2, _BATCH_SECONDS)
        world.source.rest()
        pipeline.finish(_FINISH_SECONDS)
        judged = judge(pipeline.lake, world.source.server)
        text = pipeline.log.read_text(errors="replace")
        injected["wrong answers"] = text.count("SOAK wrong answer")
        return {
            "seconds": round(time.monotonic() - begun),
            "batches": pipeline.batches,
            "starts": pipeline.starts,
            "faults": dict(injected),
            "judged": judged,
            "most_megabytes": pipeline.most_bytes >> 20,
            "most_descriptors": pipeline.most_descriptors,
            "tables": len(TABLES),
        }

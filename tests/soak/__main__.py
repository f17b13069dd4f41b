"""Run episodes of faults, several in one world, until the time is over. The first error ends the run.

Without --seed the first one is random. --seed repeats a run's choice of faults; how they meet the pipeline's steps
differs. If the judge finds a fault, the lake and the log stay in the folder that is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from pathlib import Path

from tests.figures import add_figures
from tests.soak._episode import finish_world, run_episode
from tests.soak._world import open_world

FIGURES = Path("benchmarks/results/soak.json")
_EPISODES = 6
"""Of one world: servers, JVM and table reads are shared, but what the judge reads grows."""


def main() -> None:
    """Run episodes by the command line's options."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no episode after them (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; by default a random one")
    parser.add_argument("--faults", type=int, default=20, help="faults of an episode (20)")
    parser.add_argument("--figures", type=Path, default=FIGURES, help=f"the file of figures ({FIGURES})")
    chosen = parser.parse_args()
    seed, end = chosen.seed or random.randrange(1, 1 << 30), time.monotonic() + chosen.minutes * 60
    while time.monotonic() < end:
        folder = Path(tempfile.mkdtemp(prefix="headgate-soak-"))
        print(f"world of seed {seed} in {folder}", flush=True)
        try:
            seed = _run_world(folder, seed, end, chosen.faults, chosen.figures)
        except AssertionError:
            add_figures(chosen.figures, {"failures": 1})
            raise
        shutil.rmtree(folder)


def _run_world(folder: Path, seed: int, end: float, faults: int, file: Path) -> int:
    """Run the episodes of one world. Return the next seed."""
    with open_world(folder, seed) as world:
        for number in range(seed, seed + _EPISODES):
            if time.monotonic() >= end:
                break
            print(f"episode of seed {number}", flush=True)
            figures = run_episode(world, number, faults)
            print(json.dumps(figures), flush=True)
            add_figures(file, {"episodes": 1, "failures": 0, **figures})
        finish_world(world)
    return seed + _EPISODES


if __name__ == "__main__":
    main()

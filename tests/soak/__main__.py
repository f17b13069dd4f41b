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
from typing import Any

from tests.figures import add_figures, this_commit
from tests.soak._episode import finish_world, run_episode
from tests.soak._page import PAGE, write_page
from tests.soak._world import open_world

FIGURES = Path("benchmarks/results/soak.json")
_WORLD_SECONDS = 6000.0
"""Of one world, in which memory, descriptors and files have to stay flat."""


def main() -> None:
    """Run episodes by the command line's options."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=75.0, help="start no episode after them (75)")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; by default a random one")
    parser.add_argument("--faults", type=int, default=60, help="least number of an episode's faults (60)")
    parser.add_argument("--figures", type=Path, default=FIGURES, help=f"the file of figures ({FIGURES})")
    parser.add_argument("--page", action="store_true", help=f"only write {PAGE} from the figures")
    chosen = parser.parse_args()
    if chosen.page:
        write_page(chosen.figures)
        return
    figures = _Figures(chosen.figures)
    seed, end = chosen.seed or random.randrange(1, 1 << 30), time.monotonic() + chosen.minutes * 60
    while time.monotonic() < end:
        folder = Path(tempfile.mkdtemp(prefix="headgate-soak-"))
        print(f"world of seed {seed} in {folder}", flush=True)
        try:
            seed = _run_world(folder, seed, end, chosen.faults, figures)
        except AssertionError:
            figures.add({"failures": 1})
            raise
        shutil.rmtree(folder)


class _Figures:
    """The file of figures, and the commit that the run is of. The page is written from the project's file."""

    def __init__(self, file: Path) -> None:
        self._file, self._commit = file, this_commit()

    def add(self, figures: dict[str, Any]) -> None:
        """Add figures, and print them."""
        print(json.dumps(figures), flush=True)
        add_figures(self._file, figures, self._commit)
        if self._file == FIGURES:
            write_page(FIGURES)


def _run_world(folder: Path, seed: int, end: float, faults: int, figures: _Figures) -> int:
    """Run the episodes of one world. Return the next seed."""
    world_end = min(end, time.monotonic() + _WORLD_SECONDS)
    with open_world(folder, seed) as world:
        while time.monotonic() < world_end:
            print(f"episode of seed {seed}", flush=True)
            figures.add({"episodes": 1, "failures": 0, **run_episode(world, seed, faults)})
            seed += 1
        finish_world(world)
        looks = world.growth.first_and_last
        print(json.dumps({"first and last": looks}), flush=True)
        figures.add({f"most_{name.replace(' ', '_')}_growth": last - first for name, (first, last) in looks.items()})
    return seed


if __name__ == "__main__":
    main()

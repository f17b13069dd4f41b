"""Run episodes until the time is over, continuing behind the last run's seeds. Print the seed of each that fails.

With --seed, one episode runs again. If it fails, steps are left out as long as it still fails. --steps runs those that
are left.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.figures import add_figures, counts_of_all_commits
from tests.simulation.episode import run_episode, seeds_of, shrink, simulated

_FIGURES = Path("benchmarks/results/simulation.json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run episodes by the command line's options. Return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="start no episode after them (60)")
    parser.add_argument("--seed", type=int, help="run this episode alone, and record no figures")
    parser.add_argument("--steps", type=json.loads, help="with --seed: a JSON list, the seeds of its steps")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(one for each processor)")
    parser.add_argument("--figures", type=Path, default=_FIGURES, help=f"the file of figures ({_FIGURES})")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        with simulated():
            return _repeat(options.seed, options.steps)
    first, began = 1 + counts_of_all_commits(options.figures, "counts")["episodes"], time.monotonic()
    work = partial(_run, end=began + options.seconds, every=options.processes)
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        parts = pool.map(work, range(first, first + options.processes), chunksize=1)
    counts, faults = sum((part[0] for part in parts), Counter[str]()), [one for part in parts for one in part[1]]
    steps, seconds = sum((part[2] for part in parts), Counter[str]()), time.monotonic() - began
    # The next run begins behind the last of these seeds.
    counts["episodes"] = options.processes * max(part[0]["episodes"] for part in parts)
    figures = {"counts": dict(counts), "steps": dict(steps), "seconds": round(seconds)}
    add_figures(options.figures, figures)
    for fault in faults:
        print(fault, flush=True)
    print(f"{counts['episodes']:,} episodes from seed {first}, {steps.total():,} steps, {len(faults)} faults")
    print(f"{steps.total() / seconds * 60:,.0f} steps a minute")
    return 1 if faults else 0


def _run(first: int, *, end: float, every: int) -> tuple[Counter[str], list[str], Counter[str]]:
    """Run every so manyth episode. Return counts, faults, and steps by kind."""
    counts, faults, steps = Counter[str](), list[str](), Counter[str]()
    seed = first
    with simulated():
        while seed == first or time.monotonic() < end:
            try:
                steps += run_episode(seed)
            except Exception as error:  # noqa: BLE001 - each is a finding
                counts["faults"] += 1
                faults.append(f"FAULT {type(error).__name__}: {str(error)[:300]}; --seed {seed}")
            counts["episodes"] += 1
            seed += every
    return counts, faults, steps


def _repeat(seed: int, steps: list[int] | None) -> int:
    """Run an episode again. Return the exit code."""
    try:
        print(json.dumps(run_episode(seed, steps), indent=1))
    except Exception as error:  # noqa: BLE001 - each is a finding
        traceback.print_exception(error)
        fewer = shrink(seed, steps or seeds_of(seed), type(error))
        print(f"fails with {len(fewer)} steps: --seed {seed} --steps '{json.dumps(fewer)}'")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

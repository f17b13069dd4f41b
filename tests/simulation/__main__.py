"""Run episodes until the time is over, continuing behind the last run's seeds. Print the seed of each that fails.

A failing episode ends nothing: its seed is printed at once, and all failing seeds again at the end. The figures are
added every minute, so that a run that is killed loses a minute of them. SIGINT and SIGTERM end a run as its time does.

With --seed, one episode runs again. If it fails, steps are left out as long as it still fails. --steps runs those that
are left.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

from tests.figures import add_figures, counts_of_all_commits
from tests.simulation.episode import run_episode, seeds_of, shrink, simulated

_FIGURES = Path("benchmarks/results/simulation.json")
_QUEUED: Final = 8
"""Episodes for each process that wait to be run: enough that none waits for the end of a long one."""
_COLLECTED: Final = 16
"""Garbage is collected before one in so many episodes."""
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: Sequence[str] | None = None, *, save_seconds: float = 60.0) -> int:
    """Run episodes by the command line's options. Return the exit code.

    :param save_seconds: time between two additions to the figures.
    """
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
    first = 1 + counts_of_all_commits(options.figures, "counts")["episodes"]
    run = _Run(options.figures, save_seconds)
    with simulated(), _stopped_by_signals() as stopped:
        try:
            for episode in _episodes(first, options.processes, time.monotonic() + options.seconds, stopped):
                run.add(episode)
        except BrokenProcessPool:
            run.faults.append(f"FAULT a process was killed; the next run begins with --seed {first + run.episodes}")
            print(run.faults[-1], flush=True)
        finally:
            run.save()
    run.print(first)
    return 1 if run.faults else 0


class _Episode(NamedTuple):
    """What an episode came to."""

    steps: Counter[str]
    fault: str | None
    most_mb: int
    """The most memory that its process has had until then, in MB."""


class _Run:
    """Figures of a run, which are added to a file's from time to time.

    :param file: of the figures.
    :param save_seconds: time between two additions.
    """

    def __init__(self, file: Path, save_seconds: float) -> None:
        self._file, self._save_seconds = file, save_seconds
        self._began = self._saved = time.monotonic()
        self._unsaved, self._unsaved_steps = Counter[str](), Counter[str]()
        self.episodes = self.steps = self.most_mb = 0
        self.faults: list[str] = []

    def add(self, episode: _Episode) -> None:
        """Count an episode. The seeds that are counted have no gap, so the next run begins behind the last of them."""
        self.episodes += 1
        self._unsaved["episodes"] += 1
        self._unsaved_steps += episode.steps
        self.steps += episode.steps.total()
        self.most_mb = max(self.most_mb, episode.most_mb)
        if episode.fault is not None:
            self._unsaved["faults"] += 1
            self.faults.append(episode.fault)
            print(episode.fault, flush=True)
        if time.monotonic() >= self._saved + self._save_seconds:
            self.save()
            print(self, flush=True)

    def save(self) -> None:
        """Add to the file what it does not have yet."""
        if self._unsaved:
            now = time.monotonic()
            seconds = round(now - self._began) - round(self._saved - self._began)
            figures = {"counts": dict(self._unsaved), "steps": dict(self._unsaved_steps), "seconds": seconds}
            add_figures(self._file, figures)
            self._saved = now
            self._unsaved, self._unsaved_steps = Counter(), Counter()

    def __str__(self) -> str:
        speed = self.steps / (time.monotonic() - self._began) * 60
        counts = f"{self.episodes:,} episodes, {self.steps:,} steps, {len(self.faults)} faults"
        return f"{counts}; {speed:,.0f} steps a minute; at most {self.most_mb} MB a process"

    def print(self, first: int) -> None:
        """Print the figures of the whole run, and all faults again.

        :param first: seed.
        """
        for fault in self.faults:
            print(fault)
        print(f"from seed {first}: {self}", flush=True)


def _episodes(first: int, processes: int, end: float, stopped: Event) -> Iterator[_Episode]:
    """Yield what became of the episodes from seed ``first`` on, in the order of their seeds.

    :param end: time (monotonic) after which none starts, but for the first of each process.
    :param stopped: set: none starts any more.
    :raises BrokenProcessPool: a process was killed.
    """
    seed, waiting, wanted = first, deque[Future[_Episode]](), processes
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, initializer=_begin_process, initargs=(os.getpid(),)) as pool:
        while True:
            for _ in range(wanted):
                waiting.append(pool.submit(_run_episode, seed))
                seed += 1
            if not waiting:
                return
            yield waiting.popleft().result()
            wanted = _QUEUED * processes - len(waiting)
            if stopped.is_set() or time.monotonic() >= end:
                # Those that have not started are the last ones, so the seeds that are run have no gap.
                waiting, wanted = deque(one for one in waiting if not one.cancel()), 0


def _begin_process(parent: int) -> None:
    """Prepare a process that runs episodes: it ends with its parent, which alone gets signals to the group."""
    os.setpgrp()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    gc.freeze()
    gc.disable()  # it takes a tenth of the time, and an episode leaves little (_COLLECTED)


def _run_episode(seed: int) -> _Episode:
    """Run an episode."""
    if seed % _COLLECTED == 0:
        gc.collect()
    steps, fault = Counter[str](), None
    try:
        steps = run_episode(seed)
    except Exception as error:  # noqa: BLE001 - each is a finding
        fault = f"FAULT {type(error).__name__}: {str(error)[:300]}; --seed {seed}"
    return _Episode(steps, fault, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    """Yield an event that the first SIGINT or SIGTERM sets. A second one ends the process."""
    stopped = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(*_: Any) -> None:
        stopped.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

"""Run the fuzzer: damaged input through the decoders, with their compiled kernels.

Each case is made of its number. Without --seed, a run continues behind the last case of all earlier runs, and adds
its figures to the file; so short runs add up. With --seed, it runs the seed's cases, and records nothing.

    scripts/fuzz --seconds 600                        # continue, and add to benchmarks/results/fuzz.json
    scripts/fuzz --seed 5 --cases 1000                # the same 1,000 cases of each target each time
    scripts/fuzz --target log --case 5000000123       # one case again, in this process

A fault is any outcome except a value or an error of headgate's: another exception, a crash, a read or write outside
the input, 64 MiB allocated, a second of processor time. Children run the cases, so a crash ends one child. Each kind of
fault is printed once, with the command that runs its case again. The exit code is 1 if there was one.
tests/fuzz/binary_targets.py and text_targets.py have the targets. A new decoder needs one there: a function under
@target that returns how a case is made (from valid input, by mutate) and how it is decoded.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.figures import add_figures, counts_of_all_commits
from tests.fuzz import binary_targets, text_targets  # noqa: F401 - they enter themselves
from tests.fuzz.memory import Guarded
from tests.fuzz.running import case_of, check
from tests.fuzz.targets import TARGETS, Target

_FIGURES = Path("benchmarks/results/fuzz.json")
_LIMIT_SECONDS = 300
"""Limit of a case: SIGALRM ends the child, in compiled code, too. The first case of a kernel may compile it."""
_CASES_PER_SEED = 1_000_000_000


class _Figures(NamedTuple):
    cases: int
    seconds: float
    faults: int


class _Progress:
    """Case that a child runs, and its number of faults: in memory that outlives the child."""

    def __init__(self, case: int) -> None:
        self._words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
        self.case = case

    @property
    def case(self) -> int:
        return self._words[0]

    @case.setter
    def case(self, number: int) -> None:
        self._words[0] = number

    @property
    def faults(self) -> int:
        return self._words[1]

    @faults.setter
    def faults(self, number: int) -> None:
        self._words[1] = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases by the command line's options. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together (60)")
    parser.add_argument("--cases", type=int, help="of each target, instead of a time")
    parser.add_argument("--seed", type=int, help="from 1 on: run this seed's cases, and record no figures")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--case", type=int, help="run one case of a target in this process")
    parser.add_argument("--figures", type=Path, default=_FIGURES, help=f"the file of figures ({_FIGURES})")
    options = parser.parse_args(arguments)
    targets = [(name, TARGETS[name]()) for name in options.target or TARGETS]
    if options.case is not None:
        return _run_one(*targets[0], options.case)
    before = Counter[str]() if options.seed else counts_of_all_commits(options.figures, "cases")
    print(f"seed {options.seed or 0}, {len(targets)} targets, {before.total():,} cases before", flush=True)
    seconds, faults = options.seconds / len(targets), 0
    print(f"{'target':20} {'cases':>10} {'a second':>9} {'faults':>7}")
    for name, target in targets:
        first = (options.seed or 0) * _CASES_PER_SEED + before[name]
        one = _run(name, target, first, seconds, options.cases)
        print(f"{name:20} {one.cases:>10,} {one.cases / max(one.seconds, 0.001):>9,.0f} {one.faults:>7}", flush=True)
        faults += one.faults
        if not options.seed:
            figures = {"cases": {name: one.cases}, "faults": {name: one.faults}, "seconds": round(one.seconds)}
            add_figures(options.figures, figures)
    return 1 if faults else 0


def _run_one(name: str, target: Target, case: int) -> int:
    faulthandler.enable()
    print(case_of(name, target, case), flush=True)
    fault = check(name, target, case, Guarded())
    print(fault)
    if fault is not None and fault.error is not None:
        traceback.print_exception(fault.error)
    return 0 if fault is None else 1


def _run(name: str, target: Target, first: int, seconds: float, cases: int | None) -> _Figures:
    """Run one target in children: ``cases``, or for a time, at least one.

    A child that ends by itself has finished. A crash is a fault; the next child continues behind its case.
    """
    progress, began = _Progress(first), time.monotonic()
    behind = first + (_CASES_PER_SEED if cases is None else cases)
    ends = began + (seconds if cases is None else float("inf"))
    while progress.case == first or (progress.case < behind and time.monotonic() < ends):
        child = os.fork()
        if child == 0:
            _work(name, target, progress, behind, ends)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        _print_fault(name, f"the process ended by {how}", progress.case)
        progress.faults += 1
        progress.case += 1
    return _Figures(progress.case - first, time.monotonic() - began, progress.faults)


def _work(name: str, target: Target, progress: _Progress, behind: int, ends: float) -> None:
    """Run cases in a child, and end it."""
    code = 1
    try:
        memory, seen, first = Guarded(), set[str](), progress.case
        while progress.case == first or (progress.case < behind and time.monotonic() < ends):
            signal.alarm(_LIMIT_SECONDS)
            fault = check(name, target, progress.case, memory)
            if fault is not None:
                progress.faults += 1
                kind = f"{fault.where} {fault.what[:25]}"
                if kind not in seen:
                    seen.add(kind)
                    _print_fault(name, f"{fault.where}: {fault.what}", progress.case)
            progress.case += 1
        code = 0
    except Exception:  # noqa: BLE001 - this process may do no more than end
        traceback.print_exc()
    finally:
        os._exit(code)


def _print_fault(name: str, what: str, case: int) -> None:
    print(f"FAULT {name}: {what}; --target {name} --case {case}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Fuzz the decoders through their compiled kernels.

    python -m tests.fuzz --seconds 60 --seed 5
    python -m tests.fuzz --target log --case 5000123

Children run the cases, one at a time, so that a crash ends a child alone. It prints each kind of fault once, with the
command that runs its case again, and then the number of cases by target. The exit code is 1 if there was a fault.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import select
import signal
import struct
import sys
import time
from typing import Any

_PATIENCE_SECONDS = 60
"""Ends a case that hangs in compiled code. The first case of a kernel compiles it."""
_SHARED = struct.Struct("<qqqd")
"""What a child is at: case, cases done, faults, and when it began the case."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--cases", type=int, help="of each target, instead of a time")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="chooses the cases")
    parser.add_argument("--target", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--case", type=int, help="run one case of a target in this process")
    options = parser.parse_args()
    if options.case is not None:
        return _one(options.target[0], options.case)
    from tests.fuzz.targets import load

    targets = list(load(options.target))
    print(f"seed {options.seed}, {len(targets)} targets", flush=True)
    figures = [_run(name, target, options, options.seconds / len(targets)) for name, target in targets]
    print(f"{'target':20} {'cases':>10} {'a second':>9} {'faults':>7}")
    for name, cases, seconds, faults in figures:
        print(f"{name:20} {cases:>10,} {cases / max(seconds, 0.001):>9,.0f} {faults:>7}")
    print(f"{'all':20} {sum(one[1] for one in figures):>10,} {'':>9} {sum(one[3] for one in figures):>7}")
    return 1 if any(one[3] for one in figures) else 0


def _one(name: str, case: int) -> int:
    import traceback

    from tests.fuzz import running
    from tests.fuzz.memory import Guarded
    from tests.fuzz.targets import load

    faulthandler.enable()
    ((_, target),) = load([name])
    data = running.case_of(name, target, case)
    print(data)
    fault = running.check(name, target, case, Guarded())
    print(fault)
    if fault is not None:
        try:
            print(target.run(data, lambda piece: running.np.frombuffer(piece, "u1").copy()))
        except Exception:
            traceback.print_exc()
    return 0 if fault is None else 1


def _run(name: str, target: Any, options: Any, seconds: float) -> tuple[str, int, float, int]:
    """Run one target in children. Return its name, and the number of its cases, seconds and faults."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    first = options.seed * 1_000_000_000
    _SHARED.pack_into(shared, 0, first, 0, 0, time.monotonic())
    began, done, faults = time.monotonic(), 0, 0
    seen: set[str] = set()
    while True:
        left = seconds - (time.monotonic() - began)
        if (done and left <= 0) if options.cases is None else done >= options.cases:
            break
        last = None if options.cases is None else first + options.cases
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _work(name, target, shared, last, left, seen)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        status = _wait(child, shared)
        case, _, child_faults, _ = _SHARED.unpack_from(shared)
        faults += child_faults
        done = case - first
        if status == 0:
            break
        faults += 1
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        print(f"FAULT {name}: the process ended by {how}; --target {name} --case {case}", flush=True)
        done = case + 1 - first
        _SHARED.pack_into(shared, 0, case + 1, 0, 0, time.monotonic())
    return name, done, time.monotonic() - began, faults


def _wait(child: int, shared: mmap.mmap) -> int:
    """Return how the child ended: 0, its exit code, or minus its signal."""
    end = os.pidfd_open(child)
    while not select.select([end], [], [], 1)[0]:
        if time.monotonic() - _SHARED.unpack_from(shared)[3] > _PATIENCE_SECONDS:
            os.kill(child, signal.SIGKILL)
    os.close(end)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _work(name: str, target: Any, shared: mmap.mmap, last: int | None, seconds: float, seen: set[str]) -> None:
    from tests.fuzz.memory import Guarded
    from tests.fuzz.running import check

    memory, ends = Guarded(), time.monotonic() + seconds
    case, _, faults, _ = _SHARED.unpack_from(shared)
    count = 0
    while (time.monotonic() < ends or not count) if last is None else case < last:
        _SHARED.pack_into(shared, 0, case, count, faults, time.monotonic())
        fault = check(name, target, case, memory)
        count += 1
        if fault is not None:
            faults += 1
            kind = f"{fault.where} {fault.what[:25]}"
            if kind not in seen:
                seen.add(kind)
                print(f"FAULT {name}: {fault.where}: {fault.what}; --target {name} --case {case}", flush=True)
        case += 1
        _SHARED.pack_into(shared, 0, case, count, faults, time.monotonic())


if __name__ == "__main__":
    sys.exit(main())

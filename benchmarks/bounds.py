"""All benchmarks that have bounds, in one table: ``python -m benchmarks.bounds [NAME …] [--output FILE]``.

Each runs in a process of its own, one after the other, so run this on a quiet machine. It takes about an hour on two
cores: the sizes are those of ``SIZES``, smaller than a benchmark's own where that takes longer than ten minutes.

A line of the table is a line of a benchmark that has a bound. The exit code is 1 if one was missed, or a benchmark
failed.

``loop`` is the time of 20 million additions in Python, in seconds, just before a benchmark. Virtual machines change:
bounds that are no ratios (rows a second, seconds) were set where it is about 1.4.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks._bench import progress, report

SIZES = {
    "decode": "",
    "snapshot": "",
    "pipeline": "--rounds 3",
    "writes": "",
    "verify": "",
    "starts": "",
    "incremental": "--debezium",
    "freshness": "",
    "tables": "--tables 200 --changing 20",
    "files": "--minutes 8 --retention-minutes 3",
    "endurance": "--batches 2000 --live-minutes 0",
    "relay": "--parts delay,tables,in,out,stall",
    "scale": "--axes backlog,history,small,changing",
    "kafka": "",
}  # fmt: skip
"""Arguments of each benchmark."""


def lines(name: str, arguments: str) -> list[dict[str, Any]]:
    """Run one benchmark: its lines that have a bound, or one that says that it failed."""
    progress(f"{name} {arguments}")
    loop = loop_seconds()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output.json")
        command = [sys.executable, "-m", f"benchmarks.{name}", *shlex.split(arguments), "--output", str(output)]
        code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        results = json.loads(output.read_text(encoding="utf-8"))["results"] if output.exists() else []
    progress(f"{name}: exit code {code} after {time.monotonic() - begun:.0f} s")
    bounded = [line(name, one, loop) for one in results if one.get("ok")]
    if code and not any(one["ok"] == "MISSED" for one in bounded):
        bounded.append(line(name, {"what": f"exit code {code}", "ok": "MISSED"}, loop))
    return bounded


def loop_seconds() -> float:
    """Return the time of 20 million additions."""
    begun, total = time.perf_counter(), 0
    for number in range(20_000_000):
        total += number
    return time.perf_counter() - begun


def line(name: str, result: dict[str, Any], loop: float) -> dict[str, Any]:
    """:param result: a benchmark's line: the texts before its first number say what it measured."""
    figures = {key: value for key, value in result.items() if key != "ok" and value != ""}
    what = []
    while figures and isinstance(next(iter(figures.values())), str):
        what.append(figures.pop(next(iter(figures))))
    return {
        "benchmark": name,
        "what": ", ".join(what),
        "figures": ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()
        ),
        "loop": round(loop, 2),
        "ok": result["ok"],
    }


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(SIZES)}")
    parser.add_argument("--output")
    args = parser.parse_args(arguments)
    unknown = [name for name in args.names if name not in SIZES]
    if unknown:
        parser.error(f"no benchmark with bounds is named {', '.join(unknown)}; there are {', '.join(SIZES)}")
    return report(
        "bounds", [one for name in args.names or SIZES for one in lines(name, SIZES[name])], output=args.output
    )


if __name__ == "__main__":
    sys.exit(main())

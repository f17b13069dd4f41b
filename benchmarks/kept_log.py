"""The log out of a relay against the server's own dump: ``python -m benchmarks.kept_log [--rows N] [--rounds N]
[--readers N] [--output FILE]``.

The bulk workload from log to Arrow on one core, as ``benchmarks.decode`` has it, once from the server and once from a
relay (a process of its own, over HTTP on loopback); rounds alternate. Then the same by several readers at once, for
whom the server makes a dump each, and the relay none. Before that, how fast a log is copied into a relay's files, on
one core. There is no bound: on a machine with few cores the sender takes from the reader, be it the server or the
relay.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._bench import DB, Timing, Workloads, median, progress, report, server
from headgate.catalog import TablePatterns
from headgate.gtid import GtidSet
from headgate.mysql import ConnectionSettings
from headgate.relay.archive import LogOfRelay, LogSpool
from headgate.replication import DecodeOptions, LogBlock, LogRead, copy_log, read_range


@contextlib.contextmanager
def relay(load: Workloads, start: GtidSet, folder: Path) -> Iterator[LogOfRelay]:
    """``headgate relay`` that keeps the log after ``start``."""
    file = folder / "relay.toml"
    file.write_text(
        f'state = "state"\nport = 0\nlog_disk_bytes = 100000000000\n[[physical]]\nid = 1\nname = "bench"\n'
        f'url = "{load.mysql.url}/?tls=disabled"\n[[physical.sources]]\nid = 1\nname = "none"\ntable = "{DB}.none"\n'
    )
    command = [sys.executable, "-m", "headgate.cli", "relay", "--sources", str(file), "--from", str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            yield LogOfRelay(process.stdout.readline().strip().rstrip("/"))
        finally:
            process.send_signal(signal.SIGTERM)


def copy(load: Workloads, start: GtidSet) -> int:
    """Copy the bulk workload, as the relay's thread does; bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with contextlib.closing(LogSpool(folder, 1 << 40, wait_seconds=20)) as spool:
            spool.begin(start)
            for item in copy_log(load.settings, start):
                spool.store(item)
                if load.end <= spool.gtid:
                    break
        return sum(file.stat().st_size for file in folder.glob("*.packets"))


def read(load: Workloads, settings: ConnectionSettings) -> int:
    """The rows of the bulk workload."""
    items = read_range(
        LogRead(settings, wanted=load.bulk, executed=load.end), DecodeOptions(TablePatterns([f"{DB}.*"]), epoch=1)
    )
    return sum(image.batch.num_rows for item in items if isinstance(item, LogBlock) for image in item.images)


def together(work: Callable[[], Any], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--readers", type=int, default=4, help="of the second part")
    parser.add_argument("--output")
    args = parser.parse_args()
    with server(args.rows, 0) as load, tempfile.TemporaryDirectory() as scratch:
        start = load.end - load.bulk
        results: list[dict[str, Any]] = []
        copies = [Timing(lambda: copy(load, start)) for _ in range(args.rounds + 1)][1:]
        progress(f"copied {copies[0].result / 1e6:,.0f} MB in {median(copies):.2f} s")
        copied = {"rows": args.rows, "wall_seconds": median(copies), "cpu_seconds": median(copies, "cpu_seconds")}
        per_second = int(args.rows / copied["wall_seconds"])
        results.append({"what": "copy", "readers": 1, **copied, "rows_per_second": per_second, "of_server": ""})
        with relay(load, start, Path(scratch)) as log:
            while not load.end <= log.head().gtid:
                time.sleep(0.02)
            roads = {"server": load.settings, "relay": replace(load.settings, log=log)}
            for readers in (1, args.readers):
                timings: dict[str, list[Timing]] = {name: [] for name in roads}
                for number in range(args.rounds + 1):
                    for name, settings in roads.items():
                        timing = Timing(partial(together, partial(read, load, settings), readers))
                        if number:  # the first round warms up
                            timings[name].append(timing)
                seconds = {name: median(rounds) for name, rounds in timings.items()}
                results += [
                    {
                        "what": f"read from the {name}", "readers": readers, "rows": args.rows,
                        "wall_seconds": seconds[name], "cpu_seconds": median(timings[name], "cpu_seconds"),
                        "rows_per_second": int(args.rows * readers / seconds[name]),
                        "of_server": round(seconds["server"] / seconds[name], 3),
                    }
                    for name in roads
                ]  # fmt: skip
    return report("kept_log", results, output=args.output)


if __name__ == "__main__":
    sys.exit(main())

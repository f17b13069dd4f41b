"""CPU seconds of the processes that this one has started, by what they do, from ``/proc`` (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["PARTS", "cpu_seconds", "descendants"]

PARTS = ("jvm", "tasks", "driver", "client", "broker")
"""Spark's JVM, or the Debezium engine; Spark's Python workers; ``headgate run`` without Kafka's client; that client's
own threads; Kafka's broker."""

_COMMANDS = {
    "kafka.Kafka": "broker",
    "org.apache.spark": "jvm",
    "DebeziumChanges": "jvm",
    "pyspark.daemon": "tasks",
    "headgate.cli": "driver",
}
"""What a command line contains → the part."""
_CLIENT_THREAD = "(rdk:"
_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES, _ENDED = 1, slice(11, 13), slice(11, 15)
"""Fields after a process's name: its parent, its CPU time, and that with what its children took that have ended."""


def cpu_seconds() -> dict[str, float]:
    """Return the CPU seconds so far of each of ``PARTS``. A process that has ended counts where its parent does, which
    has waited for it.
    """
    seconds = dict.fromkeys((*PARTS, ""), 0.0)
    for process, parent in _descendants(os.getpid()).items():
        part = _part(process)
        if part == _part(parent) == "driver":
            part = "tasks"  # forked from the driver
        seconds[part] += _seconds(_read(process / "stat"), _ENDED)
        if part == "driver":
            threads = [_read(stat) for stat in process.glob("task/*/stat")]
            client = sum(_seconds(stat, _TIMES) for stat in threads if _CLIENT_THREAD in stat)
            seconds["driver"] -= client
            seconds["client"] += client
    return seconds


def descendants(ancestor: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    return [int(process.name) for process in _descendants(ancestor)]


def _part(process: Path) -> str:
    command = _read(process / "cmdline")
    return next((part for word, part in _COMMANDS.items() if word in command), "")


def _descendants(ancestor: int) -> dict[Path, Path]:
    """Return each descendant's parent."""
    stats = [(process, _fields(_read(process / "stat"))) for process in Path("/proc").glob("[0-9]*")]
    parents = {process: Path("/proc", fields[_PARENT]) for process, fields in stats if fields}
    tree, newest = dict[Path, Path](), {Path("/proc", str(ancestor))}
    while newest:
        newest = {process for process, parent in parents.items() if parent in newest}
        tree |= {process: parents[process] for process in newest}
    return tree


def _seconds(stat: str, fields: slice) -> float:
    return sum(map(int, _fields(stat)[fields])) / _TICKS


def _fields(stat: str) -> list[str]:
    return stat.rpartition(")")[2].split()


def _read(file: Path) -> str:
    """Return a file of a process; empty if the process has ended."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""

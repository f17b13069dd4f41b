"""What must stay flat while a world lasts: memory, descriptors and files of the pipeline, looked at when it rests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from tests.soak._pipeline import Pipeline

__all__ = ["Growth"]

_BOUNDS: Final = {
    "megabytes": 500,  # Java's heap is 1 GB, and fills while it is young
    "descriptors": 30,
    "control files": 600,  # Spark keeps those of the newest 100 batches, two and their checksums each
    "data files": 1500,  # a leak of one file per table and batch is that after 300 batches
    "images": 20,
    "indexes": 200,
}
"""By how much the median of the last third of the looks may exceed that of the first."""
_LEAST_LOOKS: Final = 6


class Growth:
    """Looks at a pipeline, in order."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._looks: dict[str, list[int]] = {name: [] for name in (*_BOUNDS, "log files")}

    def look(self) -> None:
        """Note what there is now."""
        lake, inside = self._pipeline.lake, self._pipeline.lake / "_headgate"
        counts = {
            "control files": _count(inside, lambda folder: "ledger" not in folder.parts),
            "data files": _count(lake / "bank", lambda folder: "_delta_log" not in folder.parts),
            "log files": _count(lake, lambda folder: "_delta_log" in folder.parts),
            "images": _count(self._pipeline.spark, lambda folder: folder.name.startswith("headgate-images-")),
            "indexes": _count(self._pipeline.cache / "headgate" / "keys", lambda folder: True),
        }
        if (pid := self._pipeline.pid) is not None:
            with contextlib.suppress(psutil.Error):
                driver = psutil.Process(pid)
                processes = [driver, *self._pipeline.java()]
                counts["megabytes"] = sum(process.memory_info().rss for process in processes) >> 20
                counts["descriptors"] = driver.num_fds()
        for name, count in counts.items():
            self._looks[name].append(count)

    @property
    def first_and_last(self) -> dict[str, tuple[int, int]]:
        """What the first look found, and the last."""
        return {name: (looks[0], looks[-1]) for name, looks in self._looks.items() if looks}

    def check(self) -> None:
        """Compare the first looks with the last.

        :raises AssertionError: something grew beyond its bound.
        """
        for name, bound in _BOUNDS.items():
            looks = self._looks[name]
            if len(looks) >= _LEAST_LOOKS:
                third = len(looks) // 3
                growth = median(looks[-third:]) - median(looks[:third])
                assert growth <= bound, f"{name} grew by {growth}, more than {bound}: {looks}"


def _count(top: Path, counts: Callable[[Path], bool]) -> int:
    """Return the number of files in those folders of ``top`` that count."""
    return sum(len(files) for folder, _, files in os.walk(top) if counts(Path(folder)))

"""The world of some episodes: servers, writers, the lake, and the pipeline's process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate_testing import Proxy, replica_pair
from tests.soak._growth import Growth
from tests.soak._oracle import Oracle
from tests.soak._pipeline import Pipeline
from tests.soak._source import Source

__all__ = ["World", "open_world"]


class World:
    """Source, pipeline, judge. ``faults`` counts those that met the pipeline, by kind."""

    def __init__(self, source: Source, pipeline: Pipeline) -> None:
        self.source, self.pipeline = source, pipeline
        self.oracle, self.growth = Oracle(pipeline.lake, source), Growth(pipeline)
        self.faults = Counter[str]()


@contextmanager
def open_world(folder: Path, seed: int) -> Iterator[World]:
    """Open a world: tables are filled, writers write, the pipeline runs."""
    with replica_pair() as (first, second), Proxy(first.host, first.port) as proxy:
        source = Source(first, second, proxy, seed)
        source.fill()
        pipeline = Pipeline(folder, proxy.url)
        world = World(source, pipeline)
        source.write()
        pipeline.start()
        try:
            yield world
        finally:
            pipeline.kill()
            source.rest()

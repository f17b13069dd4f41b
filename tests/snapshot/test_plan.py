"""The chunk plan tiles the key space, whatever happens to the table while it is planned."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef, TableStats
from headgate.offsets import ChunkSpec, SnapshotProgress
from headgate.snapshot import advance, first_chunk_bounds, next_chunk, rows_of_chunk

TABLE = TableDef("d", "t", (Column("k", "int"),), key=(0,))


class Server:
    """Answers the planner's questions about one integer key."""

    def __init__(self, keys: set[int]) -> None:
        self.keys = keys
        self.walked = 0
        """Rows gone over to find bounds."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        low = re.search(r"`k` > (-?\d+)", sql)
        high = re.search(r"`k` <= (-?\d+)", sql)
        offset = int(re.findall(r"OFFSET (\d+)", sql)[0])
        self.walked += offset
        matching = sorted(
            (k for k in self.keys if (not low or k > int(low[1])) and (not high or k <= int(high[1]))),
            reverse="DESC" in sql,
        )
        return [(str(matching[offset]),)] if offset < len(matching) else []


def covers(chunk: ChunkSpec, key: int) -> bool:
    return (chunk.lo is None or key > int(chunk.lo[0])) and (chunk.hi is None or key <= int(chunk.hi[0]))


keys = st.sets(st.integers(-20, 20))


@given(keys, st.integers(1, 9), st.integers(0, 40), st.lists(keys, max_size=5), st.data())
def test_every_possible_key_is_in_exactly_one_chunk(
    first: set[int], rows: int, estimate: int, later: list[set[int]], data: st.DataObject
) -> None:
    server = Server(first)
    progress = first_chunk_bounds(server.query, TABLE, epoch=7, rows=rows, rows_estimate=estimate)
    chunks: list[ChunkSpec] = []
    while chunk := next_chunk(server.query, TABLE, progress, rows):
        chunks.append(chunk)
        progress = advance(progress, chunk, rows)
        if later:
            server.keys = data.draw(st.sampled_from(later))
        assert len(chunks) <= 60
    assert progress.finished
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    for key in range(-25, 26):
        assert sum(covers(chunk, key) for chunk in chunks) == 1


def planned(server: Server, rows: int, estimate: int) -> tuple[list[int], SnapshotProgress]:
    """How many rows each chunk of a still table has, and the progress at the end."""
    progress = first_chunk_bounds(server.query, TABLE, epoch=7, rows=rows, rows_estimate=estimate)
    sizes = []
    while chunk := next_chunk(server.query, TABLE, progress, rows):
        sizes.append(sum(covers(chunk, key) for key in server.keys))
        progress = advance(progress, chunk, rows)
    assert progress.since_epoch == 7
    return sizes, progress


@given(keys, st.integers(1, 9))
def test_chunks_of_sparse_keys_have_the_size_asked_for(numbers: set[int], rows: int) -> None:
    sizes, progress = planned(Server({5 * key for key in numbers}), rows, len(numbers))
    assert all(size <= rows for size in sizes)
    assert sum(sizes) == len(numbers)
    assert len(sizes) == (1 if len(numbers) <= rows else 1 + -(-len(numbers) // rows)) == progress.chunks_estimate


@given(st.sets(st.integers(-20, 20), min_size=21), st.integers(1, 9))
def test_bounds_of_dense_keys_are_calculated(numbers: set[int], rows: int) -> None:
    server = Server(numbers)
    sizes, progress = planned(server, rows, len(numbers))
    assert server.walked == 0
    assert all(size <= rows for size in sizes)
    assert sum(sizes) == len(numbers)
    assert 1 + -(-len(numbers) // rows) <= len(sizes) <= progress.chunks_estimate


@pytest.mark.parametrize("distance", [1, 5], ids=["dense", "sparse"])
def test_the_estimate_follows_chunks_that_grow(distance: int) -> None:
    """Next to live changes the first chunks are small; the estimate made then is 251 chunks."""
    server = Server({distance * key for key in range(1000)})
    progress = first_chunk_bounds(server.query, TABLE, epoch=7, rows=4, rows_estimate=1000)
    estimates, rows = [progress.chunks_estimate], 4
    while chunk := next_chunk(server.query, TABLE, progress, rows):
        progress = advance(progress, chunk, rows)
        estimates.append(progress.chunks_estimate)
        rows = min(2 * rows, 100)
    assert estimates == [251, 251, 126, 64, 34, 19, *[14] * 9]
    assert progress.chunks_done == 14


def test_an_offset_without_the_rows_left_keeps_its_estimate() -> None:
    server = Server({5 * key for key in range(100)})
    progress = first_chunk_bounds(server.query, TABLE, epoch=7, rows=10, rows_estimate=100)
    older = replace(progress, rows_left=0)
    chunk = next_chunk(server.query, TABLE, older, 50)
    assert chunk is not None
    assert advance(older, chunk, 50).chunks_estimate == progress.chunks_estimate


def test_a_gap_between_dense_keys_costs_no_chunk() -> None:
    sizes, _ = planned(Server({*range(100), *range(900, 1000)}), 50, 600)
    assert sizes == [0, 50, 50, 50, 50]


def test_a_table_without_a_key_is_one_chunk() -> None:
    table = TableDef("d", "t", (Column("k", "int"),))
    server = Server({1, 2, 3})
    progress = first_chunk_bounds(server.query, table, epoch=1, rows=1, rows_estimate=3)
    chunk = next_chunk(server.query, table, progress, 1)
    assert chunk == ChunkSpec("d.t", 0)
    assert next_chunk(server.query, table, advance(progress, chunk, 1), 1) is None


@pytest.mark.parametrize(
    ("stats", "rows"),
    [
        (None, 20_000), (TableStats("InnoDB", 0, 0), 20_000), (TableStats("InnoDB", 10**6, 10**8), 20_000),
        (TableStats("InnoDB", 1000, 1000 << 20), 32), (TableStats("InnoDB", 3, 300 << 20), 1),
        (TableStats("InnoDB", 0, 16384), 20_000), (TableStats("InnoDB", 1, 32 << 20), 20_000),
    ],
)  # fmt: skip
def test_a_chunk_of_large_rows_has_few(stats: TableStats | None, rows: int) -> None:
    """What one takes is bounded in bytes."""
    assert rows_of_chunk(stats, 20_000, 32 << 20) == rows

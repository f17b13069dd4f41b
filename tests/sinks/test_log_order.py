from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import open_images
from headgate.sinks import _log_order
from headgate.sinks._log_order import log_order, pieces
from tests.fix_carrier import FakeTable

TABLE = FakeTable()


def divided(images: pa.RecordBatch) -> list[tuple[int, int, pa.RecordBatch]]:
    """(file, slice, images) of each piece."""
    rows = [row for batch in pieces(TABLE.carried.to_json(), images) for row in batch.to_pylist()]
    return [(row["file"], row["slice"], next(open_images([pa.py_buffer(row["data"])]))) for row in rows]


@pytest.mark.parametrize("size", [1, 10, 1000])
@given(
    places=st.lists(st.tuples(st.integers(1, 3), st.integers(4, 400), st.integers(0, 3)), unique=True, max_size=40),
    updates=st.sets(st.integers(0, 39)),
)
def test_pieces_are_the_images_in_order(size: int, places: list[tuple[int, int, int]], updates: set[int]) -> None:
    batches = [
        TABLE.batch(1, [(op, (pos, ordinal), n, "x") for op in (("b", "u") if n in updates else ("c",))], file)
        for n, (file, pos, ordinal) in enumerate(sorted(places))
    ]
    images = pa.Table.from_batches(batches or [TABLE.batch(1, [])]).unify_dictionaries().combine_chunks()
    whole = images.to_batches()[0] if images.num_rows else TABLE.batch(1, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_log_order, "_SLICE_BYTES", size)
        found = divided(whole)
    order = [(file, number) for file, number, _ in found]
    assert order == sorted(set(order))
    assert [row for *_, piece in found for row in piece.to_pylist()] == whole.to_pylist()
    assert all(piece["_op"][-1].as_py() != "b" for *_, piece in found)


def test_rows_of_a_snapshot_are_divided_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_order, "_SLICE_ROWS", 3)
    found = divided(TABLE.batch(1, [("r", n, n, "x") for n in range(1, 8)]))
    assert [(number, piece["id"].to_pylist()) for _, number, piece in found] == [
        (0, [1, 2]),
        (1, [3, 4, 5]),
        (2, [6, 7]),
    ]


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=9), max_size=5))
def test_the_order_of_the_log(parts: list[list[tuple[int, int]]]) -> None:
    def record(rows: list[Any]) -> pa.RecordBatch:
        a, b = (pa.array([row[i] for row in rows], pa.int64()) for i in range(2))
        return pa.RecordBatch.from_arrays([a, b], names=["a", "b"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_log_order, "_SLICE_ROWS", 4)
        found = list(log_order([record(rows) for rows in parts], ["a", "b"]))
    assert all(batch.num_rows <= 4 for batch in found)
    rows = [(row["a"], row["b"]) for batch in found for row in batch.to_pylist()]
    assert rows == sorted(row for rows in parts for row in rows)


def test_many_messages_are_sorted_by_numbers() -> None:
    numbers = np.random.default_rng(1).permutation(200_000)
    batch = pa.RecordBatch.from_arrays([pa.array(numbers)], names=["n"])
    found = pa.Table.from_batches(log_order([batch], ["n"]))
    assert np.array_equal(found["n"].to_numpy(), np.arange(200_000))

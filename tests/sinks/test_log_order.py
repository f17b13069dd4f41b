from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import Arrival, Batch, Header, ImageFolder, Images, Message, decode, describe, encode, open_images
from headgate.errors import DecodeError
from headgate.sinks import _log_order
from headgate.sinks._log_order import TableImages, fetch_slices, log_order, most_waiting, pieces, slices_in_order
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
        numbered = divided(whole)
    order = [(file, number) for file, number, _ in numbered]
    assert order == sorted(set(order))
    assert [row for *_, piece in numbered for row in piece.to_pylist()] == whole.to_pylist()
    assert all(piece["_op"][-1].as_py() != "b" for *_, piece in numbered)


def test_rows_of_a_snapshot_are_divided_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_order, "_SLICE_ROWS", 3)
    numbered = divided(TABLE.batch(1, [("r", n, n, "x") for n in range(1, 8)]))
    assert [(number, piece["id"].to_pylist()) for _, number, piece in numbered] == [
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
        ordered = list(log_order([record(rows) for rows in parts], ["a", "b"]))
    assert all(batch.num_rows <= 4 for batch in ordered)
    rows = [(row["a"], row["b"]) for batch in ordered for row in batch.to_pylist()]
    assert rows == sorted(row for rows in parts for row in rows)


def test_many_messages_are_sorted_by_numbers() -> None:
    numbers = np.random.default_rng(1).permutation(200_000)
    batch = pa.RecordBatch.from_arrays([pa.array(numbers)], names=["n"])
    ordered = pa.Table.from_batches(log_order([batch], ["n"]))
    assert np.array_equal(ordered["n"].to_numpy(), np.arange(200_000))


# --- images as they arrive


def arrived(
    groups: list[list[tuple[int, int]]], updates: Collection[int] = ()
) -> tuple[list[TableImages], list[Arrival]]:
    """Images of places (file, pos), sorted in each group, and what the driver knows of them."""
    images, arrivals = [], []
    for number, group in enumerate(groups):
        batches = [
            TABLE.batch(1, [(op, pos, pos, "x") for op in (("b", "u") if pos in updates else ("c",))], file)
            for file, pos in sorted(group)
        ]
        whole = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]
        images.append(TableImages(TABLE.carried, whole))
        ends = (min(group), max(group))
        arrivals.append(Arrival(number, (1, *ends[0], 0), (1, *ends[1], 0), len(group)))
    return images, arrivals


def places(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return [(seq["file"], seq["pos"]) for seq in batch["_seq"].to_pylist()]


@pytest.mark.parametrize("size", [1, 3, 1000])
@given(
    owners=st.dictionaries(st.tuples(st.integers(1, 2), st.integers(1, 30)), st.integers(0, 4), max_size=40),
    updates=st.sets(st.integers(1, 30)),
)
def test_images_in_order_as_they_arrive(size: int, owners: dict[tuple[int, int], int], updates: set[int]) -> None:
    groups = [[place for place, owner in owners.items() if owner == number] for number in range(5)]
    images, arrivals = arrived([group for group in groups if group], updates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_log_order, "_SLICE_ROWS", size)
        slices = list(slices_in_order(iter(images), arrivals))
    order = []
    for one in slices:
        batches = [images.images for images in one]
        assert all(batch["_op"][-1].as_py() != "b" for batch in batches)
        assert sum(batch.num_rows for batch in batches) <= max(size, 2)
        order += sorted({place for batch in batches for place in places(batch)})
    assert order == sorted(owners)
    assert sum(images.images.num_rows for one in slices for images in one) == sum(
        images.images.num_rows for images in images
    )


def test_what_waits_is_what_others_may_come_before() -> None:
    _, in_turn = arrived([[(1, 1), (1, 2)], [(1, 3)], [(1, 4), (1, 9)]])
    assert most_waiting(in_turn) == 2
    _, side_by_side = arrived([[(1, 1), (1, 8)], [(1, 2), (1, 3)], [(1, 4), (1, 9)]])
    assert most_waiting(side_by_side) == 4  # the first, and the third; the second is gone
    _, backwards = arrived([[(1, 9)], [(1, 5)], [(1, 1)]])
    assert most_waiting(backwards) == 3
    assert most_waiting([]) == 0


def test_images_in_files_need_no_spark(tmp_path: Path) -> None:
    folder, tables = ImageFolder(tmp_path, least_bytes=1), (FakeTable("shop.a"), FakeTable("shop.b"))
    messages: list[Message] = [Header(1, "", "", "", 0)]
    for table, positions in zip(tables * 2, ([1, 5], [2, 3], [8, 9], []), strict=True):
        batch = table.batch(1, [("c", pos, pos, "x") for pos in positions])
        messages.append(Images.of("rows", table.carried, batch, folder))
    described = Batch.of(decode(pa.Table.from_batches(describe(map(encode, messages), most=0))))
    assert all(part.local_images() is None for (part,) in described.parts.values())
    slices = fetch_slices(None, described.parts)  # type: ignore[arg-type]
    contents = [[(one.definition.table, places(one.images)) for one in images] for images in slices]
    assert contents == [
        [("shop.a", [(1, 1)])],
        [("shop.a", [(1, 5)]), ("shop.b", [(1, 2), (1, 3)])],
        [("shop.a", [(1, 8), (1, 9)])],
    ]


def test_images_that_were_not_described_so() -> None:
    images, arrivals = arrived([[(1, 1)], [(1, 2)]])
    with pytest.raises(DecodeError, match="another order than described"):
        list(slices_in_order(iter(images[::-1]), arrivals))

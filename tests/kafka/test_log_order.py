from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import Batch, Header, ImageFolder, Images, Message
from headgate.kafka import _log_order
from headgate.kafka._log_order import log_order, slices_in_order
from tests.fix_carrier import FakeBatch, FakeTable


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


# --- images of several tasks


def places(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return [(seq["file"], seq["pos"]) for seq in batch["_seq"].to_pylist()]


@pytest.mark.parametrize("size", [1, 3, 1000])
@given(
    owners=st.dictionaries(st.tuples(st.integers(1, 2), st.integers(1, 30)), st.integers(0, 4), max_size=40),
    updates=st.sets(st.integers(1, 30)),
)
def test_images_of_several_tasks_in_order(size: int, owners: dict[tuple[int, int], int], updates: set[int]) -> None:
    fake, tables = FakeBatch(1), [FakeTable(f"shop.t{number % 3}") for number in range(5)]
    for number, table in enumerate(tables):  # each group is in order, and all in one file
        for file in (1, 2):
            positions = sorted(pos for (of, pos), owner in owners.items() if (of, owner) == (file, number))
            images = [(op, pos, pos, "x") for pos in positions for op in (("b", "u") if pos in updates else ("c",))]
            fake.images(table, images, file=file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_log_order, "_SLICE_ROWS", size)
        slices = list(slices_in_order(fake.described().parts))
    order = []
    for one in slices:
        batches = [images.images for images in one]
        assert all(batch["_op"][-1].as_py() != "b" for batch in batches)
        assert sum(batch.num_rows for batch in batches) <= max(size, 2)
        order += sorted({place for batch in batches for place in places(batch)})
    assert order == sorted(owners)
    assert sum(images.images.num_rows for one in slices for images in one) == sum(
        1 + (pos in updates) for _, pos in owners
    )


def test_images_in_files(tmp_path: Path) -> None:
    folder, tables = ImageFolder(tmp_path, least_bytes=1), (FakeTable("shop.a"), FakeTable("shop.b"))
    messages: list[Message] = [Header(1, "", "", "", 0)]
    for table, positions in zip(tables * 2, ([8, 9], [2, 3], [1, 5], []), strict=True):
        batch = table.batch(1, [("c", pos, pos, "x") for pos in positions])
        messages.append(Images.of("rows", table.carried, batch, folder))
    contents = [
        [(one.definition.table, places(one.images)) for one in images]
        for images in slices_in_order(Batch.of(messages).parts)
    ]
    assert contents == [
        [("shop.a", [(1, 1)])],
        [("shop.a", [(1, 5)]), ("shop.b", [(1, 2), (1, 3)])],
        [("shop.a", [(1, 8), (1, 9)])],
    ]

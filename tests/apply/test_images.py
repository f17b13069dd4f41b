from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.apply._images import align, fold, pair_updates
from headgate.errors import DecodeError
from tests.fix_carrier import SEQ, FakeTable

TABLE = FakeTable(columns=(("id", "int"), ("item", "string")))
SETS, CLEARS = "cur", "bd"


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Images in log order; some events hold several changes, updates are pairs that may change the key."""
    images: list[tuple[Any, ...]] = []
    pos = 0
    for _ in range(draw(st.integers(0, 12))):
        pos += draw(st.integers(1, 50))
        for ordinal in range(draw(st.integers(1, 3))):
            key, value = draw(st.integers(1, 4)), draw(st.sampled_from("xyz"))
            kind = draw(st.sampled_from("cdu"))
            if kind == "u":
                images.append(("b", (pos, ordinal), key, value))
                images.append(("u", (pos, ordinal), draw(st.integers(1, 4)), value + "!"))
            else:
                images.append((kind, (pos, ordinal), key, value))
    return images


def state(images: list[tuple[Any, ...]]) -> dict[int, tuple[str, str]]:
    """The brute-force model: the last image of each key, in log order."""
    return {key: (op, value) for op, _, key, value in images}


def folded(table: pa.Table) -> dict[int, tuple[str, str]]:
    rows = table.to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["_op"], row["item"]) for row in rows}


def as_table(images: list[tuple[Any, ...]]) -> pa.Table:
    schema = TABLE.batch(5, []).schema
    plain = pa.schema([f if f.name != "_gtid" else pa.field("_gtid", pa.string()) for f in schema])
    return pa.Table.from_batches([align(TABLE.batch(5, images), plain)])


@given(logs())
def test_fold_is_the_last_image_of_each_key(images: list[tuple[Any, ...]]) -> None:
    assert folded(fold(as_table(images), ["id"])) == state(images)


@given(logs(), st.randoms(use_true_random=False), st.integers(0, 30))
def test_fold_of_shuffled_parts_is_the_fold_of_all(images: list[tuple[Any, ...]], random: Any, cut: int) -> None:
    shuffled = list(images)
    random.shuffle(shuffled)
    parts = [fold(as_table(shuffled[:cut]), ["id"]), fold(as_table(shuffled[cut:]), ["id"])]
    assert folded(fold(pa.concat_tables(parts), ["id"])) == state(images)


@given(logs(), st.integers(0, 300))
def test_images_before_a_truncate_are_void(images: list[tuple[Any, ...]], pos: int) -> None:
    kept = [image for image in images if image[1] > (pos, 0)]
    with_truncate = as_table([*images, ("t", (pos, 0))])
    assert folded(fold(with_truncate, ["id"], (5, 1, pos, 0))) == state(kept)


def test_images_may_have_more_bytes_than_an_arrow_array() -> None:
    """2.25 GiB of them, in chunks that share memory."""
    seqs = [(place, {"epoch": 1, "file": 1, "pos": place, "ordinal": 0}) for place in range(9)]
    parts = {"id": [7] * 9, "_op": ["u"] * 9, "place": [place for place, _ in seqs]}
    images = pa.table({**parts, "_seq": pa.array([seq for _, seq in seqs], SEQ)})
    images = images.append_column("item", pa.chunked_array([pa.array(["x" * (1 << 28)])] * 9))
    assert fold(images, ["id"])["place"].to_pylist() == [8]


def test_an_unannounced_truncate_is_an_error() -> None:
    with pytest.raises(DecodeError, match="truncate"):
        fold(as_table([("c", 1, 1, "x"), ("t", 2)]), ["id"])


def test_snapshot_rows_come_after_the_changes_of_their_batch() -> None:
    assert folded(fold(as_table([("r", 0, 1, "read"), ("c", 9, 1, "log")]), ["id"])) == {1: ("r", "read")}


def test_both_zeros_of_a_float_key_are_one_key() -> None:
    floats = FakeTable(columns=(("id", "double"), ("item", "string")))
    batch = floats.batch(1, [("b", 1, 0.0, "x"), ("u", 1, -0.0, "y")])
    rows = fold(pa.Table.from_batches([batch]), ["id"]).to_pylist()
    assert [(row["_op"], str(row["id"])) for row in rows] == [("u", "-0.0")]


def test_keys_compare_by_bytes() -> None:
    words = FakeTable(columns=(("id", "string"), ("item", "string")))
    batch = words.batch(1, [("b", 1, "a", "x"), ("u", 1, "A", "y")])
    rows = fold(pa.Table.from_batches([batch]), ["id"]).to_pylist()
    assert [(row["_op"], row["id"]) for row in rows] == [("b", "a"), ("u", "A")]


def paired(images: list[tuple[Any, ...]], absent: list[str | None] | None = None) -> list[dict[str, Any]]:
    table = as_table(images)
    before = pa.struct([table.schema.field("id"), table.schema.field("item")])
    lists = pa.field("_absent", pa.list_(pa.field("element", pa.string())))
    schema = pa.schema([*table.schema, pa.field("_before", before), lists])
    table = table.append_column("_absent", pa.array(absent or [None] * len(images), pa.string()))
    rows: list[dict[str, Any]] = pair_updates(table.combine_chunks().to_batches()[0], schema).to_pylist()
    return rows


@given(logs().filter(bool))
def test_pairs_become_one_row_each(images: list[tuple[Any, ...]]) -> None:
    rows = paired(images)
    assert len(rows) == sum(image[0] != "b" for image in images)
    expected = [
        None if image[0] != "u" else {"id": images[i - 1][2], "item": images[i - 1][3]}
        for i, image in enumerate(images)
        if image[0] != "b"
    ]
    assert [row["_before"] for row in rows] == expected


def test_what_is_absent_is_told_of_the_image_that_the_row_shows() -> None:
    images = [("b", 1, 1, None), ("u", 1, 1, None), ("d", 2, 1, None), ("c", 3, 1, "x"), ("u", 4, 1, "y")]
    rows = paired(images, ['["item"]', '["id", "item"]', '["item"]', None, None])
    assert [row["_absent"] for row in rows] == [["id", "item"], ["item"], None, None]
    assert rows[0]["_before"] == {"id": 1, "item": None}


def test_fields_of_before_that_the_images_lack_are_null() -> None:
    """A changelog keeps the columns that its source drops, and gets new ones at its end."""
    table = as_table([("b", 1, 1, "x"), ("u", 1, 2, "y")])
    before = pa.struct([("old", pa.int32()), table.schema.field("item"), table.schema.field("id")])
    schema = pa.schema([*table.schema, ("_before", before), ("_absent", pa.list_(pa.string()))])
    table = table.append_column("_absent", pa.nulls(2, pa.string()))
    (row,) = pair_updates(table.combine_chunks().to_batches()[0], schema).to_pylist()
    assert row["_before"] == {"old": None, "item": "x", "id": 1}


@pytest.mark.parametrize("images", [[("b", 1, 1, "x")], [("b", 1, 1, "x"), ("c", 2, 1, "x")]])
def test_a_lonely_before_image_is_an_error(images: list[tuple[Any, ...]]) -> None:
    with pytest.raises(DecodeError, match="before-image"):
        paired(images)


def test_align_adds_missing_columns_as_null() -> None:
    wide = pa.schema([("id", pa.int64()), ("added", pa.date32()), ("_op", pa.string())])
    batch = align(TABLE.batch(1, [("c", 1, 7, "x")]), wide)
    assert batch.schema == wide
    assert batch.to_pylist() == [{"id": 7, "added": None, "_op": "c"}]

"""Record batches of images, and what is known of them unopened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import ImageFolder, Images, Summary, count_changes, describe, encode, open_images, serialised
from headgate.carrier._images import summary_json
from headgate.errors import DecodeError
from tests.fix_carrier import FakeTable


@given(st.lists(st.sampled_from(["c", "u", "d", "r", "t"])), st.integers(0, 5))
def test_the_two_images_of_an_update_are_one_change(changes: list[str], cut: int) -> None:
    ops = "".join(op.replace("u", "bu") for op in changes)
    batch = FakeTable().batch(5, [(op, pos, 1, "x") for pos, op in enumerate(ops)])
    assert count_changes(batch) == len(changes)
    rest = batch.slice(cut)  # a slice has the buffers of the whole
    assert count_changes(rest) == sum(op != "b" for op in ops[cut:])
    for read in open_images([serialised(rest)]):
        assert count_changes(read) == count_changes(rest)
    assert Summary.of(rest, None).changes == count_changes(rest)


def test_open_images_reads_every_stream_and_leaves_nulls_out() -> None:
    blob = serialised(FakeTable().batch(1, [("c", 1, 7, "x")])).to_pybytes()
    assert [part.num_rows for part in open_images(pa.array([blob, None, blob], pa.binary()))] == [1, 1]


def test_what_is_known_of_images() -> None:
    batch = FakeTable().batch(1, [("c", 1, 12, "x"), ("b", 2, 7, "x"), ("u", 2, 8, "x"), ("t", 3)])
    times = pa.array([2_000, 5_000, 5_000, 1_000], batch.schema.field("_ts").type)
    batch = batch.set_column(batch.schema.get_field_index("_ts"), "_ts", times)
    summary = Summary.of(batch, "id")
    counts = {"changes": 3, "growth": 1, "truncates": 1}
    known = {**counts, "oldest_us": 1_000, "oldest_seq": (1, 1, 1, 0), "size": batch.nbytes}
    assert summary == Summary("7", "12", newest_us=5_000, newest_seq=(1, 1, 3, 0), **known)
    assert Summary.from_json(summary.to_json()) == summary
    assert Summary.of(batch, "item").low is None
    assert Summary.of(batch, None).high is None
    assert Summary.of(batch.slice(0, 0), "id") == Summary()
    assert Summary.of(FakeTable().batch(1, [("u", 1, 7, ...)]), "id").partial


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("decimal(12,3)", ["1.5", "-2"], ("-2.000", "1.500")),
        ("date", ["1970-01-11", "1970-01-02"], ("1970-01-02", "1970-01-11")),
        (
            "timestamp_ntz",
            ["1970-01-01 00:00:00.000001", "1970-01-01"],
            ("1970-01-01 00:00:00.000000", "1970-01-01 00:00:00.000001"),
        ),
        ("string", ["a"], (None, None)),
        ("bigint", [None], (None, None)),
    ],
)
def test_bounds_of_keys(kind: str, values: list[Any], bounds: tuple[str | None, str | None]) -> None:
    table = FakeTable(columns=(("id", kind),))
    made = table.batch(1, [("c", number, None) for number in range(len(values))])
    place = made.schema.get_field_index("id")
    column = pa.array(values).cast(made.schema.field("id").type)
    summary = Summary.of(made.set_column(place, "id", column), "id")
    assert (summary.low, summary.high) == bounds


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_the_first_and_last_place_in_the_log_in_any_order(places: list[tuple[int, int, int]]) -> None:
    names = ("epoch", "file", "pos", "ordinal")
    batch = FakeTable().batch(1, [("c", 1, 1, "x")] * len(places))
    seqs = pa.array([dict(zip(names, (7, *place), strict=True)) for place in places], batch.schema.field("_seq").type)
    summary = Summary.of(batch.set_column(1, "_seq", seqs), "id")
    assert (summary.oldest_seq, summary.newest_seq) == ((7, *min(places)), (7, *max(places)))


def test_the_summary_is_in_what_other_readers_ignore() -> None:
    batch = FakeTable().batch(1, [("c", 1, 12, "x")])
    images = Images.of("rows", FakeTable().carried, batch.replace_schema_metadata({"mine": "stays"}))
    assert images.data is not None
    assert Summary.from_json(summary_json(images.data)) == images.summary
    (opened,) = open_images([images.data])
    assert opened.equals(batch)
    assert opened.schema.metadata[b"mine"] == b"stays"
    with pytest.raises(DecodeError, match="summary"):
        summary_json(serialised(batch))


def test_large_images_are_in_files(tmp_path: Path) -> None:
    definition, batch = FakeTable().carried, FakeTable().batch(1, [("c", pos, pos, "x" * 99) for pos in range(50)])
    folder = ImageFolder(tmp_path / "images", least_bytes=batch.nbytes)
    small, large = (Images.of("rows", definition, one, folder) for one in (batch.slice(1), batch))
    assert [one.summary for one in (small, large)] == [Summary.of(one, "id") for one in (batch.slice(1), batch)]
    assert small.data is not None
    assert large.data is not None
    assert large.data.size < 4096 < small.data.size
    assert Summary.from_json(summary_json(large.data)) == large.summary
    (file,) = folder.path.iterdir()
    (opened,) = open_images([large.data])
    folder.clear()
    assert opened.equals(batch)  # what is open stays readable
    assert next(open_images([small.data])).equals(batch.slice(1))
    with pytest.raises(DecodeError, match=f"images are in {file}, which does not exist"):
        next(open_images([large.data]))


def test_images_in_files_count_with_their_size(tmp_path: Path) -> None:
    definition, batch = FakeTable().carried, FakeTable().batch(1, [("c", pos, pos, "x" * 99) for pos in range(50)])
    rows = [encode(Images.of("rows", definition, batch, ImageFolder(tmp_path, least_bytes=1))) for _ in range(3)]
    described = pa.Table.from_batches(describe(iter(rows), 5 * batch.nbytes))
    assert described["_data"].is_valid().to_pylist() == [True, True, False]
    assert described["_stub"].is_valid().to_pylist() == [False, False, True]

"""Record batches of images, and what is known of them unopened."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.carrier import ImageFolder, Images, Summary, _image_files, decode, encode, open_images, serialised
from headgate.errors import DecodeError, EngineError, Transient
from tests.fix_carrier import FakeTable


def summary_of(images: Images) -> Summary:
    """What the driver has of images that a task encoded."""
    (message,) = decode(encode(images))
    assert isinstance(message, Images)
    return message.summary


@given(st.lists(st.sampled_from(["c", "u", "d", "r", "t"])), st.integers(0, 5))
def test_the_two_images_of_an_update_are_one_change(changes: list[str], cut: int) -> None:
    ops = "".join(op.replace("u", "bu") for op in changes)
    batch = FakeTable().batch(5, [(op, pos, 1, "x") for pos, op in enumerate(ops)])
    assert Summary.of(batch).changes == len(changes)
    rest = batch.slice(cut)  # a slice has the buffers of the whole
    assert Summary.of(rest).changes == sum(op != "b" for op in ops[cut:])
    for read in open_images([serialised(rest)]):
        assert Summary.of(read).changes == Summary.of(rest).changes


def test_open_images_reads_every_stream_and_leaves_nulls_out() -> None:
    blob = serialised(FakeTable().batch(1, [("c", 1, 7, "x")])).to_pybytes()
    assert [part.num_rows for part in open_images(pa.array([blob, None, blob], pa.binary()))] == [1, 1]


def test_what_is_known_of_images() -> None:
    batch = FakeTable().batch(1, [("c", 1, 12, "x"), ("b", 2, 7, "x"), ("u", 2, 8, "x"), ("t", 3)])
    times = pa.array([2_000, 5_000, 5_000, 1_000], batch.schema.field("_ts").type)
    batch = batch.set_column(batch.schema.get_field_index("_ts"), "_ts", times)
    summary = Summary.of(batch)
    counts = {"changes": 3, "growth": 1, "truncates": 1}
    known = {**counts, "oldest_us": 1_000, "oldest_seq": (1, 1, 1, 0), "size": batch.nbytes}
    assert summary == Summary(newest_us=5_000, newest_seq=(1, 1, 3, 0), **known)
    assert Summary.from_json(summary.to_json()) == summary
    assert Summary.of(batch.slice(0, 0)) == Summary()
    assert Summary.of(FakeTable().batch(1, [("u", 1, 7, ...)])).partial


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_the_first_and_last_place_in_the_log_in_any_order(places: list[tuple[int, int, int]]) -> None:
    names = ("epoch", "file", "pos", "ordinal")
    batch = FakeTable().batch(1, [("c", 1, 1, "x")] * len(places))
    seqs = pa.array([dict(zip(names, (7, *place), strict=True)) for place in places], batch.schema.field("_seq").type)
    summary = Summary.of(batch.set_column(1, "_seq", seqs))
    assert (summary.oldest_seq, summary.newest_seq) == ((7, *min(places)), (7, *max(places)))


def test_the_summary_is_in_what_other_readers_ignore() -> None:
    batch = FakeTable().batch(1, [("c", 1, 12, "x")])
    images = Images.of("rows", FakeTable().carried, batch.replace_schema_metadata({"mine": "stays"}))
    assert summary_of(images) == images.summary
    (opened,) = open_images([images.data])
    assert opened.equals(batch)
    assert opened.schema.metadata[b"mine"] == b"stays"
    with pytest.raises(DecodeError, match="summary"):
        summary_of(replace(images, data=serialised(batch)))


def test_large_images_are_in_files(tmp_path: Path) -> None:
    definition, batch = FakeTable().carried, FakeTable().batch(1, [("c", pos, pos, "x" * 99) for pos in range(50)])
    folder = ImageFolder(tmp_path / "images", least_bytes=batch.nbytes)
    small, large = (Images.of("rows", definition, one, folder) for one in (batch.slice(1), batch))
    assert [one.summary for one in (small, large)] == [Summary.of(one) for one in (batch.slice(1), batch)]
    assert large.data.size < 4096 < small.data.size
    assert summary_of(large) == large.summary
    (file,) = Path(folder.path).iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]
    (opened,) = open_images([large.data])
    folder.clear()
    assert opened.equals(batch)  # what is open stays readable
    assert next(open_images([small.data])).equals(batch.slice(1))
    with pytest.raises(EngineError, match=f"images cannot be read: {file}: ") as raised:
        next(open_images([large.data]))
    assert isinstance(raised.value, Transient), "the batch is evaluated again, into new files"


def test_a_file_that_was_cut_is_an_error_wherever_it_was(tmp_path: Path) -> None:
    """Arrow takes a file that ends between two messages for a whole one, without rows."""
    batch = FakeTable().batch(1, [("c", pos, pos, "x" * 9) for pos in range(5)])
    folder = ImageFolder(tmp_path / "images", least_bytes=1)
    stub = folder.serialised(batch)
    (file,) = Path(folder.path).iterdir()
    whole = file.read_bytes()
    for size in range(len(whole) - 8):  # the last 8 bytes are the stream's end, after all rows
        with file.open("r+b") as cut:
            cut.truncate(size)
        with pytest.raises(EngineError, match=f"images cannot be read: {file}: "):
            next(open_images([stub]))
        file.write_bytes(whole)
    assert next(open_images([stub])).equals(batch)


def test_a_folder_that_a_cleaner_has_removed_is_made_again(tmp_path: Path) -> None:
    batch = FakeTable().batch(1, [("c", pos, pos, "x") for pos in range(5)])
    folder = ImageFolder(tmp_path / "above" / "images", least_bytes=1)
    before = os.umask(0)
    try:
        for _ in range(2):
            stub = folder.serialised(batch)
            (file,) = Path(folder.path).iterdir()
            parts = tmp_path / "above", file.parent, file
            assert [stat.S_IMODE(path.stat().st_mode) for path in parts] == [0o700, 0o700, 0o600]
            assert next(open_images([stub])).equals(batch)
            shutil.rmtree(tmp_path / "above")
    finally:
        os.umask(before)


def test_small_images_are_in_rows_until_these_have_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = FakeTable().batch(1, [("c", pos, pos, "x" * 99) for pos in range(50)])
    monkeypatch.setattr(_image_files, "ROWS_BYTES", 10 * batch.nbytes)
    folder = ImageFolder(tmp_path, tasks=4)
    stored = [folder.serialised(batch) for _ in range(4)]
    assert [one.size > batch.nbytes for one in stored] == [True, True, False, False]
    assert len([*tmp_path.iterdir()]) == 2
    assert all(one.equals(batch) for one in open_images(stored))
    assert folder.serialised(batch.slice(0, 0)).size < 4096
    assert len([*tmp_path.iterdir()]) == 2, "an empty chunk needs no file"


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    batch = FakeTable().batch(1, [("c", pos, pos, "x" * 999) for pos in range(99)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, limits[1]))
    try:
        with pytest.raises(EngineError, match=rf"images cannot be written: {tmp_path}/\w+\.arrow: File too large"):
            ImageFolder(tmp_path, least_bytes=1).serialised(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not [*tmp_path.iterdir()]

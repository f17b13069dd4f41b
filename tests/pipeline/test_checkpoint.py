"""Spark's checkpoint: after the end of a stream, and after a loss of power."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.lake import Lake
from headgate.pipeline._checkpoint import left_to_read, remove_torn_files
from headgate.pipeline._run import _Run
from headgate.spark import TablesToRead
from headgate_testing import PowerLoss

OFFSET = 'v1\n{"batchWatermarkMs":0}\n{"v": 1, "epoch": 7}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@pytest.mark.parametrize(
    ("tables", "paused", "text"),
    [
        ((), True, ""),
        (
            ("d.a", "d.b"),
            True,
            "d.a, d.b: waiting to be read; a signal paused that: send resume-snapshot, then start again",
        ),
        (("d.a",), False, "d.a: waiting to be read; their chunks could not be read as of one position: start again"),
    ],
)
def test_a_stream_that_ends_says_why_it_left_tables_to_read(
    tables: tuple[str, ...], paused: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TablesToRead, "read", lambda _: TablesToRead(tables, paused))
    warned: list[str] = []
    assert left_to_read("/lake/_headgate/checkpoint", warned.append) == text
    assert warned == [text] * bool(text), "the status has it, too"


def written(checkpoint: Path, offsets: int, commits: int) -> Path:
    """What Spark leaves after some batches."""
    for folder, content, count in (("offsets", OFFSET, offsets), ("commits", COMMIT, commits)):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (checkpoint / folder / str(number)).write_text(content)
            (checkpoint / folder / f".{number}.crc").write_bytes(b"crc")
    (checkpoint / "metadata").write_text('{"id":"5f"}')
    return checkpoint


def numbers(checkpoint: Path, folder: str) -> list[str]:
    return sorted(file.name for file in (checkpoint / folder).iterdir())


@pytest.fixture
def power(tmp_path: Path) -> Iterator[PowerLoss]:
    (tmp_path / "all").mkdir()
    loss = PowerLoss(tmp_path / "all")
    yield loss
    loss.close()


@pytest.mark.parametrize("all_names", [False, True])
def test_the_end_of_a_batch_outlasts_what_the_batch_writes(tmp_path: Path, power: PowerLoss, all_names: bool) -> None:
    run: Any = _Run.__new__(_Run)
    run.lake = Lake.at(tmp_path / "all" / "lake")
    run._idle, run._ending, run.batches = threading.Lock(), threading.Event(), 0
    run.courier = run.names = run._on_progress = None
    run._status = SimpleNamespace(reads=lambda _: None, ends=lambda _: None)
    run.images, run._may_have_company = None, False
    seen = []

    def write(_frame: object, batch_id: int) -> SimpleNamespace:
        left = tmp_path / f"left {batch_id}"
        power.leave(left, all_names=all_names)
        seen.append((left / "lake/_headgate/checkpoint/offsets" / str(batch_id)).read_text())
        return SimpleNamespace(epoch=1, notifications=())

    run.writer = SimpleNamespace(write=write, ledger=SimpleNamespace(last=None))
    with power.recording():
        for batch_id in range(2):
            written(Path(run.lake.checkpoint), batch_id + 1, batch_id)
            run._write(None, batch_id)
    assert seen == [OFFSET] * 2


@pytest.mark.parametrize(
    ("offset", "commit"),
    [
        ("", ""),
        (OFFSET[:-1], COMMIT[:-1]),
        (OFFSET.rpartition("\n")[0], COMMIT.rpartition("\n")[0]),
        ("\0" * len(OFFSET), "\0" * len(COMMIT)),
    ],
)
def test_the_newest_files_are_removed_if_they_are_torn(tmp_path: Path, offset: str, commit: str) -> None:
    checkpoint = written(tmp_path / "checkpoint", 5, 4)
    (checkpoint / "offsets/4").write_text(offset)
    for number in (2, 3):
        (checkpoint / f"commits/{number}").write_text(commit)
    remove_torn_files(checkpoint)
    assert numbers(checkpoint, "offsets") == ["0", "1", "2", "3"]
    assert numbers(checkpoint, "commits") == ["0", "1"]
    assert json.loads((checkpoint / "metadata").read_text())
    (checkpoint / "metadata").write_text("")
    remove_torn_files(checkpoint)
    assert not (checkpoint / "metadata").exists()


def test_a_whole_checkpoint_stays(tmp_path: Path) -> None:
    remove_torn_files(tmp_path / "none")
    checkpoint = written(tmp_path / "checkpoint", 11, 10)
    remove_torn_files(checkpoint)
    assert (len(numbers(checkpoint, "offsets")), len(numbers(checkpoint, "commits"))) == (11, 10)

"""When a table's folder is listed, and what becomes of files that could not be removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headgate.delta import RETENTION_PROPERTIES, FileHistory, TableLog, files_of, write_files
from headgate.delta import _file_history as history_module
from headgate.upkeep import _file_removal as file_removal_module
from headgate.upkeep._file_removal import FileRemover
from tests.delta.commits import commit
from tests.lake.tables import make_table

ROWS = pa.table({"id": [1]})
HOUR = 3600.0


class Kept:
    """A table, its keeper, and a clock."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.now, self.slept, self.listings = path, 1e9, 0.0, 0
        make_table(path, [ROWS], ROWS.schema, RETENTION_PROPERTIES)
        self.clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now - self.slept)
        monkeypatch.setattr(file_removal_module, "time", self.clock)
        listed = history_module.data_files_in

        def counted(folder: str) -> Iterator[Any]:
            self.listings += 1
            return listed(folder)

        monkeypatch.setattr(history_module, "data_files_in", counted)
        self.keeper = FileRemover(path)

    def write(self) -> None:
        added = write_files(ROWS.to_batches(), self.path, ROWS.schema, "snappy")
        commit(self.path, TableLog(self.path).refresh(), list(added), "WRITE", {}, blind=True)

    def orphan(self, name: str) -> Path:
        """A file that a killed writer leaves now."""
        path = Path(self.path, name)
        path.write_bytes(b"x")
        os.utime(path, (self.now, self.now))
        return path

    def listings_after(self, hours: float) -> int:
        """Clean, so much later; how often the folder is listed."""
        self.now += hours * HOUR
        self.listings = 0
        for _ in (*self.keeper.follow(0), *self.keeper.clean(0, self.now)):
            pass
        return self.listings

    def sleep(self, hours: float) -> None:
        """The machine is suspended."""
        self.now += hours * HOUR
        self.slept += hours * HOUR


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(str(tmp_path / "t"), monkeypatch)


def test_a_folder_is_not_listed_again_before_its_table_changes(kept: Kept) -> None:
    orphan = kept.orphan("part-1.parquet")
    assert kept.listings_after(0) == 1
    assert [kept.listings_after(hours) for hours in (0.5, 2, 20)] == [0, 0, 0]
    assert orphan.exists()
    assert kept.listings_after(2) == 1, "what was too young may go after a day"
    assert not orphan.exists()
    assert kept.listings_after(30) == 0
    kept.write()
    assert [kept.listings_after(hours) for hours in (0.5, 0.6)] == [0, 1], "at most once an hour"


def test_a_batch_that_was_suspended_with_the_machine_keeps_its_files(kept: Kept) -> None:
    """It goes on when the machine does, and commits them."""
    assert kept.listings_after(0) == 1
    of_batch = kept.orphan("part-1.parquet")
    kept.sleep(60)
    kept.write()
    assert kept.listings_after(0.01) == 1
    assert of_batch.exists()
    assert [kept.listings_after(hours) for hours in (20, 3.9)] == [0, 0]
    kept.sleep(60)
    assert kept.listings_after(0.05) == 0
    assert of_batch.exists()
    assert kept.listings_after(1.1) == 1, "a day in which the machine ran"
    assert not of_batch.exists()


def test_what_could_not_be_removed_is_tried_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    orphan = kept.orphan("part-1.parquet")

    def refused(_files: object, _name: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(type(files_of(kept.path)), "delete", refused)
        assert kept.listings_after(30) == 1
    assert "part-1.parquet cannot be removed: Permission denied" in caplog.text
    assert kept.keeper.removed.files == 0
    assert [kept.listings_after(hours) for hours in (0.5, 0.6, 2)] == [0, 1, 0]
    assert not orphan.exists()
    assert kept.keeper.removed.files == 1


def test_files_of_a_table_whose_log_is_gone_stay(kept: Kept) -> None:
    """Its folder may be restored at the moment, or its log moved aside."""
    files = set(Path(kept.path).glob("*.parquet"))
    for path in files:
        os.utime(path, (kept.now, kept.now))
    Path(kept.path, "_delta_log").rename(Path(kept.path).with_name("aside"))
    kept.listings_after(30)
    assert set(Path(kept.path).glob("*.parquet")) == files


def test_the_log_of_a_table_that_is_followed_from_its_start_again_is_listed(kept: Kept) -> None:
    kept.listings_after(0)
    kept.keeper.history = FileHistory(kept.path, 0)
    kept.listings_after(0)
    assert kept.keeper.log.count(0) == 1


def test_a_process_that_begins_after_a_sleep_keeps_the_files_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as ``headgate maintain``: the machine may have slept at any moment since it was started."""
    kept = Kept(str(tmp_path), monkeypatch)
    kept.clock.CLOCK_BOOTTIME, kept.clock.clock_gettime = 7, lambda _: kept.now
    orphan = kept.orphan("0.parquet")
    kept.now, kept.slept = kept.now + 25 * HOUR, 25 * HOUR
    kept.keeper = FileRemover(kept.path)
    assert kept.listings_after(0) == 1
    assert orphan.exists()
    kept.listings_after(25)
    assert not orphan.exists()

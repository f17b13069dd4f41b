"""Tables on local disk: whatever becomes of their files, a table is there, and right."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.delta._index_build import Scratch
from headgate.delta._local_tables import LocalTables

TABLE = pa.table({"value": np.arange(70_000)})


class Made:
    """Counts how often the table is made; each cache begins with nothing in memory, as another process does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def get(self) -> pa.Table:
        tables: LocalTables[pa.Table] = LocalTables(self.folder, ".test", 1 << 30, lambda table: table)
        return tables.get("abcd", self._make)

    def _make(self) -> pa.Table:
        self.count += 1
        return TABLE


def test_files_that_a_cleaner_has_removed_are_made_again(tmp_path: Path) -> None:
    made = Made(tmp_path / "cache" / "keys")
    before = os.umask(0)
    try:
        for count in (1, 2):
            mapped = [made.get() for _ in range(2)]
            assert made.count == count
            (file,) = made.folder.glob("*/*.test")
            modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, *list(file.parents)[:3])]
            assert modes == [0o600, 0o700, 0o700, 0o700]
            shutil.rmtree(tmp_path / "cache")
            assert all(table.equals(TABLE) for table in mapped), "what is mapped stays readable"
    finally:
        os.umask(before)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 5_000, 300_000, -17, -16, -1])
def test_a_file_that_was_cut_is_made_again(tmp_path: Path, size: int) -> None:
    made = Made(tmp_path)
    made.get()
    (file,) = tmp_path.glob("*/*.test")
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    assert made.get().equals(TABLE)
    assert (made.count, file.read_bytes()) == (2, whole)


def test_a_full_disk_leaves_nothing_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made = Made(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert made.get().equals(TABLE)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(Scratch(tmp_path / "more").empty(9, np.int64)) == 9
    assert stat.S_IMODE((tmp_path / "more").stat().st_mode) == 0o700

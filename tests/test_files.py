from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headgate.errors import ConfigError, StorageError
from headgate.files import (
    LockedError,
    cache_folder,
    file_errors,
    lock_folder,
    read_json,
    try_lock,
    write_bytes,
    write_json,
    write_text,
)


def test_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "lock"
    with try_lock(file):
        with pytest.raises(LockedError, match=f"^process {os.getpid()}$"), try_lock(file):
            pass
        assert file.read_text() == f"process {os.getpid()}"
    file.write_text("process 123456789")  # of one that was killed
    with try_lock(file):
        assert file.read_text() == f"process {os.getpid()}"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), try_lock(tmp_path / "file" / "lock"):
        pass


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("a", "b") == tmp_path / "headgate/a/b"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says: ignore it
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home/.cache/headgate"


def test_threads_that_write_one_file(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "state.json"
    texts = [str(number) * 1000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: write_text(file, text), texts * 20)) == [None] * 160
    assert file.read_text() in texts
    assert list(tmp_path.rglob("*")) == [file.parent, file]


def test_a_write_that_fails_leaves_only_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "state.json"
    write_bytes(file, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(file, b"new")
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == b"old"


def test_folders_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is there, so the write has not failed."""
    really = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    write_bytes(tmp_path / "state.json", b"new")
    assert (tmp_path / "state.json").read_bytes() == b"new"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO])
def test_a_full_disk_is_no_fault_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "state.json"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(StorageError, match=rf"state\.json cannot be written: {os.strerror(number)}"):
            write_json(file, {})
    write_json(file, {})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", fails)
        with pytest.raises(StorageError, match=r"state\.json cannot be read"):
            read_json(file)
        patch.setattr(Path, "open", fails)
        with pytest.raises(StorageError, match="cannot be written"), lock_folder(tmp_path):
            pass
    with pytest.raises(ConfigError, match="cannot be read: No such file"), file_errors("a cannot be read"):
        (tmp_path / "none").read_text()

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest

from headgate.errors import ConfigError, StorageError, TargetError
from headgate.files import (
    LockedError,
    cache_folder,
    file_errors,
    hold_folder,
    is_temporary,
    lock_file,
    lock_folder,
    make_once,
    make_private_folder,
    open_private,
    read_json,
    sync,
    system_error,
    try_lock,
    write_all,
    write_bytes,
    write_json,
    write_text,
)
from headgate_testing import PowerLoss


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


def test_what_a_killed_writer_leaves_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ("a" * 255)
    left = list[str]()
    monkeypatch.setattr(os, "fsync", lambda _: left.extend(path.name for path in tmp_path.iterdir()))
    write_bytes(file, b"new")
    assert is_temporary(left[0])
    assert not any(map(is_temporary, [file.name, ".part", ".0.crc", "a" * 32, f".0.json.{'a' * 32}.tmp"]))


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


def test_only_a_refusal_counts_as_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.EIO, errno.ENOENT):
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", Mock(side_effect=OSError(number, os.strerror(number))))
            with pytest.raises(OSError, match=os.strerror(number)):
                sync(tmp_path)
    for number in (errno.EINVAL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTSUP):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", Mock(side_effect=OSError(number, os.strerror(number))))
            sync(tmp_path)


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
        patch.setattr(Path, "read_bytes", fails)
        with pytest.raises(StorageError, match=r"state\.json cannot be read"):
            read_json(file)
        patch.setattr(os, "open", fails)
        with pytest.raises(StorageError, match="cannot be written"), lock_folder(tmp_path):
            pass
    with pytest.raises(ConfigError, match="cannot be read: No such file"), file_errors("a cannot be read"):
        (tmp_path / "none").read_text()


def modes(root: Path) -> set[tuple[bool, int]]:
    """Whether it is a folder, and the permissions, of everything below a folder."""
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")}


def test_a_folder_that_is_made_once_is_whole_after_a_power_cut(tmp_path: Path) -> None:
    """As archives that were fetched: what is there is never made again, so it must not be empty."""
    power, left = PowerLoss(tmp_path), list[Path]()
    with TemporaryDirectory() as after:

        def cut() -> None:
            left.append(Path(after, str(len(left))))
            power.leave(left[-1])
            left.append(Path(after, str(len(left))))
            power.leave(left[-1], all_names=True)

        with power.recording(cut), make_once(tmp_path / "jars") as folder:
            assert folder is not None
            (folder / "below").mkdir()
            for file in (folder / "a.jar", folder / "below" / "b.jar"):
                file.write_bytes(b"content")
            (folder / "link").symlink_to("nowhere")
        with power.recording(cut):
            sync(tmp_path)
        there = [one / "jars" for one in left if (one / "jars").exists()]
        assert there[-1].parent == left[-1]
        for one in there:
            assert [(one / name).read_bytes() for name in ("a.jar", "below/b.jar")] == [b"content"] * 2
    power.close()


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_private_and_shared_files(tmp_path: Path, umask: int) -> None:
    private, shared = tmp_path / "private", tmp_path / "shared"
    before = os.umask(umask)
    try:
        for _ in range(2):  # the second time after a cleaner of old files
            write_json(private / "a/b/json", {})
            open_private(private / "c/d/new", "ab").close()
            with lock_file(private / "e/f/one"), lock_folder(private / "g"), try_lock(private / "h/lock"):
                pass
            make_private_folder(private / "i/j")
            write_bytes(shared / "a/bytes", b"", shared=True)
            with try_lock(shared / "b/lock", shared=True):
                pass
            made = modes(private), modes(shared)
            shutil.rmtree(private)
    finally:
        os.umask(before)
    assert made == ({(True, 0o700), (False, 0o600)}, {(True, 0o777 & ~umask), (False, 0o666 & ~umask)})


def test_what_exists_keeps_its_modes(tmp_path: Path) -> None:
    file = tmp_path / "folder/file"
    file.parent.mkdir(mode=0o755)
    file.touch(0o644)
    open_private(file, "wb").close()
    assert modes(tmp_path) == {(True, 0o755), (False, 0o644)}
    with pytest.raises(FileExistsError, match="file"):
        make_private_folder(file)


def test_a_file_that_is_replaced_may_keep_its_modes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o640)
    write_bytes(file, b"new", keep_mode=True)
    assert (file.read_bytes(), modes(tmp_path)) == (b"new", {(False, 0o640)})
    with pytest.raises(FileNotFoundError, match="none"):
        write_bytes(tmp_path / "none", b"new", keep_mode=True)
    assert [*tmp_path.iterdir()] == [file], "nothing is left behind"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_error_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The system's names none after write(2) and fsync(2)."""

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "state"
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=f"{os.strerror(number)}: '{file}'$"):
        write_bytes(file, b"x")
    with pytest.raises(OSError, match=f": '{tmp_path}'$"):
        sync(tmp_path)
    with open("/dev/full", "wb", 0) as full, pytest.raises(OSError, match=r": '/dev/full'$"):  # noqa: PTH123
        write_all(full, memoryview(b"x"))


def test_a_folder_that_is_held_is_locked_for_cleaners(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    hold_folder(tmp_path)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space", "/a/b"),
            StorageError,
            "/a/b cannot be used: No space; make room on its disk",
        ),
        (
            OSError(errno.EROFS, "Read-only", "/a"),
            TargetError,
            "/a cannot be used: Read-only; its file system is mounted",
        ),
        (OSError(errno.EMFILE, "Too many"), StorageError, "a file cannot be used: Too many; raise the limit of open"),
        (
            OSError(errno.EACCES, "Denied", "/a", None, "/b"),
            TargetError,
            "/b cannot be used: Denied; check what this user",
        ),
        (OSError(errno.ESTALE, "Stale file handle", "/a"), StorageError, "/a cannot be used: Stale file handle"),
        (OSError(errno.ETIMEDOUT, "Timed out", "/a"), StorageError, "/a cannot be used: Timed out"),
    ],
)
def test_errors_of_disks_say_what_to_do(error: OSError, kind: type[Exception], message: str) -> None:
    known = system_error(error)
    assert type(known) is kind
    assert str(known).startswith(message)


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EAGAIN])
def test_errors_of_connections_are_not_those_of_disks(number: int) -> None:
    assert system_error(OSError(number, os.strerror(number))) is None

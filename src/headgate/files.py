"""Private folders and files, atomic writes, locks, headgate's errors for the system's, the user's cache folder.

Folders and files that are made here are accessible to this user only (0700 and 0600), whatever the umask: they hold
rows, keys and state, often below ``/tmp`` or in a cache. If a cleaner of old files has removed a folder, it is made
again with the next file. *Shared* files are the exception: a lake's, which other users' programs read. They and their
folders get the umask's modes. Existing folders and files keep their modes.

Every OSError of these functions names its file, also those of write(2) and fsync(2).

Locks are advisory: they exclude only callers of these functions. The system releases them when the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from headgate.errors import ConfigError, HeadgateError, StorageError, TargetError
from headgate.parsing import parse_json

__all__ = [
    "LockedError",
    "cache_folder",
    "file_errors",
    "hold_folder",
    "is_temporary",
    "kernel_cache",
    "lock_file",
    "lock_folder",
    "make_once",
    "make_private_folder",
    "name_errors",
    "open_private",
    "read_json",
    "reason_of",
    "sync",
    "system_error",
    "temporary",
    "try_lock",
    "write_all",
    "write_bytes",
    "write_json",
    "write_text",
]

_REFUSALS: Final = frozenset({errno.EINVAL, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTSUP, errno.ENOSYS})
"""Errors of open(2) and fsync(2) for what cannot be synced. After any other, what was written may be lost."""
_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600
_PASSING: Final = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.ESTALE,
        errno.ETIMEDOUT,
    }
)  # fmt: skip
"""Errors that end without a change of the configuration."""
_PERMISSIONS: Final = "check what this user may do there, or choose another folder"
_OPEN_FILES: Final = "raise the limit of open files (ulimit -n)"
_REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room, or raise the quota",
    errno.EROFS: "its file system is mounted for reading only: change that, or choose another folder",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EIO: "check its disk",
}
"""What to do about errors of disks and permissions."""


def cache_folder(*parts: str) -> Path:
    """Return ``$XDG_CACHE_HOME/headgate`` or ``~/.cache/headgate``, or a path in it, which may not exist yet. It is for
    files that may be deleted at any time (XDG Base Directory Specification, which ignores a relative variable).
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = named if named.is_absolute() else Path.home() / ".cache"
    return root.joinpath("headgate", *parts)


def kernel_cache() -> str:
    """Return the folder of compiled kernels, and name it to numba if the user has named none.

    Without a name, numba stores them beside the code, apart from those that a run or ``headgate prefetch`` has
    compiled. numba reads the name when it is imported.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    if not named:
        named = os.environ["NUMBA_CACHE_DIR"] = str(cache_folder("numba"))
    return named


@contextlib.contextmanager
def file_errors(problem: str, kind: type[HeadgateError] = ConfigError) -> Iterator[None]:
    """Convert errors of files in the block, and text that is not UTF-8.

    :param problem: what is impossible, such as ``/a/b cannot be read``; the error adds the reason.
    :raises StorageError: the disk or quota is full, too many files are open, or the device failed.
    :raises HeadgateError: one of ``kind``, for any other reason.
    """
    try:
        yield
    except OSError as error:
        raise _converted(error, problem, kind) from None
    except UnicodeDecodeError:
        raise kind(f"{problem}: it is not UTF-8") from None


def system_error(error: OSError, problem: str | None = None) -> HeadgateError | None:
    """Return headgate's error for one of a disk or of permissions: the path, the reason, and what to do. None: it is
    another one, of a connection for instance. Some numbers are those of files and of connections: only an error that
    names a file is then one of a file.

    :param problem: what is impossible; by default that the error's file cannot be used.
    """
    if error.errno not in _REMEDIES and (error.errno not in _PASSING or error.filename is None):
        return None
    path = error.filename if error.filename2 is None else error.filename2
    return _converted(error, problem or f"{path or 'a file'} cannot be used", TargetError)


def _converted(error: OSError, problem: str, kind: type[HeadgateError]) -> HeadgateError:
    raised = StorageError if error.errno in _PASSING else kind
    return raised(f"{problem}: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    """Return why the system refused something, and what to do about it if that is known."""
    text, remedy = error.strerror or str(error), _REMEDIES.get(error.errno or 0)
    return text if remedy is None else f"{text}; {remedy}"


@contextlib.contextmanager
def name_errors(file: Path) -> Iterator[None]:
    """Add the file's name to each OSError of the block that names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user only.

    :raises OSError: it cannot be made, or is a file.
    """
    if not folder.is_dir():
        if not folder.parent.exists():
            make_private_folder(folder.parent)
        folder.mkdir(_PRIVATE_FOLDER, exist_ok=True)


def open_private(file: Path, mode: str, buffering: int = -1) -> IO[bytes]:
    """Open a file for writing. If it or its folder is missing, it is made for this user only.

    :param mode: a binary one that makes missing files, as of :func:`open`; ``buffering`` likewise.
    :raises OSError: it cannot be opened, or its folder not made.
    """
    make_private_folder(file.parent)
    return open(file, mode, buffering, opener=_opened)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags, _PRIVATE_FILE)


def _open_shared(file: Path, mode: str) -> IO[bytes]:
    file.parent.mkdir(parents=True, exist_ok=True)
    return open(file, mode)  # noqa: PTH123 - the same type as above


def hold_folder(folder: Path) -> None:
    """Keep systemd-tmpfiles from cleaning a folder as long as this process lives: it skips what is locked (systemd,
    "Using /tmp/ and /var/tmp/ Safely").

    :raises OSError: the folder cannot be opened.
    """
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)


class LockedError(Exception):
    """Another caller holds the lock; the text names its process, if known."""


@contextlib.contextmanager
def try_lock(file: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on ``file`` for the block, among all processes and threads that use this function.

    :param shared: whether the file is one of a lake.
    :raises LockedError: another caller holds it.
    :raises OSError: the file cannot be opened or written, or its folder not created.
    """
    with (_open_shared if shared else open_private)(file, "a+b") as lock:
        with name_errors(file):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise LockedError(lock.read().decode().strip() or "another process") from None
            lock.truncate(0)
            lock.write(b"process %d" % os.getpid())
            lock.flush()
        yield


@contextlib.contextmanager
def lock_file(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``file``, among all processes and threads that use this function; wait for it.

    :raises ConfigError: the lock file next to it cannot be created; StorageError likewise.
    """
    with file_errors(f"{file} cannot be locked"):
        lock = open_private(file.with_name(f"{file.name}.lock"), "wb")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``folder`` for the block, among all processes and threads that use this function; the
    system releases it when the process ends.

    :raises ConfigError: another caller holds it, or the folder cannot be written; StorageError likewise.
    """
    with contextlib.ExitStack() as stack:
        try:
            with file_errors(f"{folder} cannot be written"):
                stack.enter_context(try_lock(folder / "lock"))
        except LockedError as error:
            raise ConfigError(f"{folder} is in use by {error}: stop it, or choose another folder") from None
        yield


@contextlib.contextmanager
def make_once(target: Path) -> Iterator[Path | None]:
    """Create the folder ``target`` once, even if several processes try.

    Yields ``None`` if it exists. Otherwise yields an empty folder next to it, which becomes ``target`` if the block
    succeeds and is removed if it fails, so that no process sees half of it, also after a crash of the machine. Other
    processes wait meanwhile.

    :raises ConfigError: the folder of ``target`` cannot be written.
    """
    if target.exists():
        yield None
        return
    with lock_file(target):
        if target.exists():
            yield None
            return
        unfinished = target.with_name(target.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            yield unfinished
            for path in (*unfinished.rglob("*"), unfinished):
                if not path.is_symlink():
                    sync(path)
            unfinished.rename(target)
            sync(target.parent)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write ``value`` to ``file``; see :func:`write_text`.

    :raises ConfigError: the file cannot be written; StorageError likewise.
    """
    with file_errors(f"{file} cannot be written"):
        write_text(file, json.dumps(value))


def write_text(file: Path, text: str) -> None:
    """Write text as UTF-8; see :func:`write_bytes`."""
    write_bytes(file, text.encode())


_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}")


def temporary(file: Path) -> Path:
    """Return a new name in the folder of ``file``, for what becomes ``file`` when it is complete. It is short: the name
    of ``file`` may be as long as a name can be.
    """
    return file.with_name(f".{uuid.uuid4().hex}")


def is_temporary(name: str) -> bool:
    """Return whether :func:`temporary` makes such names. If the file is old, its writer was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def write_bytes(file: Path, content: bytes | memoryview, *, shared: bool = False, keep_mode: bool = False) -> None:
    """Write a file atomically: a crash leaves the old content or the new one, and of several writers at a time one
    has its content there. When this returns, the file survives a crash of the machine, if its file system can sync
    folders.

    :param shared: whether the file is one of a lake.
    :param keep_mode: whether it exists and its permissions stay.
    :raises OSError: the file cannot be written; the old content stays, and nothing else.
    """
    mode = stat.S_IMODE(file.stat().st_mode) if keep_mode else None
    partial = temporary(file)
    try:
        with name_errors(file), (_open_shared if shared else open_private)(partial, "xb") as out:
            out.write(content)
            out.flush()
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(file.parent)


def sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, survive a crash of the machine, if its file system can.

    :raises OSError: it may not survive. Some file systems, and folders that may only be written, refuse: that is none.
    """
    try:
        with name_errors(path):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise


def write_all(file: IO[bytes], data: memoryview) -> None:
    """Write all of the data to a file without a buffer, which may take a part of it at a time.

    :raises OSError: the file cannot be written.
    """
    with name_errors(Path(file.name)):
        while data:
            data = data[file.write(data) :]


def read_json(file: Path) -> dict[str, Any] | None:
    """Return the content of ``file``; None if it does not exist.

    :raises ConfigError: the file cannot be read, or is not a JSON object; StorageError likewise.
    """
    with file_errors(f"{file} cannot be read"):
        try:
            value = parse_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ConfigError(f"{file} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file} is not a JSON object")
    return value

"""The files of one table, in a local folder or an object store.

Names are relative to the table's folder, with ``/`` between their parts. New files get unique names, and count once a
commit names them. A killed writer leaves orphans. A new file of a local folder is synced: after a loss of power it is
there whole, once its folder is synced, too (``_commit``). A store has what it has acknowledged.

**Listings**: Arrow lists a folder of 100,000 files about as fast as ``os.scandir``, but returns all of them at once and
follows links to other folders, so it is used for stores only. There a listing is one request per 1,000 files. Removing
a file takes three (HEAD, DELETE, PUT of a marker for its folder), so several are removed at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headgate.errors import HeadgateError
from headgate.files import name_errors, write_bytes
from headgate.stores import is_remote, open_store, store_errors

__all__ = ["SUCCESSOR", "FileIdentity", "Files", "Listed", "discard_files", "files_of", "is_inside"]

_T = TypeVar("_T")
_R = TypeVar("_R")

SUCCESSOR: Final = "_successor_"
"""Beginning of the names of folders in which successors of the table are built (``_successor``)."""
_HIDDEN: Final = ("_", ".")
_LOCAL: Final = pafs.LocalFileSystem()
_Entry: TypeAlias = "tuple[str, os.DirEntry[str] | pafs.FileInfo, bool]"
"""Name, entry of a listing, whether it is a folder."""
_AT_ONCE: Final = 16
"""Parallel requests to a store, where one takes 10 to 50 ms."""


class FileIdentity(NamedTuple):
    """Identity of a file, to detect a replacement. Stores have no inodes (0), and times in whole seconds."""

    inode: int
    modified_ns: int
    size: int

    @property
    def modified(self) -> float:
        """Time of modification in seconds since 1970 UTC."""
        return self.modified_ns / 1e9


class Listed:
    """A file of a listing."""

    __slots__ = ("_entry", "name")

    def __init__(self, name: str, entry: os.DirEntry[str] | pafs.FileInfo) -> None:
        self.name = name
        self._entry = entry

    def identity(self) -> FileIdentity | None:
        """Return the file's identity; None if it was removed since. Queries the operating system for local files."""
        return _of_store(self._entry) if isinstance(self._entry, pafs.FileInfo) else _of_folder(self._entry)


class Files:
    """The files of one table, in an object store, where a file exists only once it is complete.

    A store's errors are headgate's (:func:`headgate.stores.store_errors`), a local folder's are the system's.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def _open(self, name: str = "") -> tuple[pafs.FileSystem, str]:
        """Return Arrow's file system, and a file's path in it."""
        system, root = open_store(self._path)
        return system, f"{root}/{name}".rstrip("/")

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Return a file's bytes, fewer than ``size`` at its end.

        :raises FileNotFoundError: it does not exist.
        """
        with store_errors(self._path), self._open_input(name) as source:
            if size < 0 and not offset:
                return bytes(source.read())
            return bytes(source.read_at(max(0, min(size, source.size() - offset)), offset))

    def _open_input(self, name: str) -> pa.NativeFile:
        system, path = self._open(name)
        return system.open_input_file(path)

    def identity(self, name: str) -> FileIdentity | None:
        """Return the file's identity; None if it does not exist.

        :raises OSError: it cannot be determined.
        """
        info = self._info(name)
        return _of_store(info) if info.is_file else None

    def has_folder(self, folder: str) -> bool:
        """Whether the folder exists, or in a store any file below it."""
        return bool(self._info(folder).type == pafs.FileType.Directory)

    def _info(self, name: str) -> pafs.FileInfo:
        with store_errors(self._path):
            system, path = self._open(name)
            return system.get_file_info(path)

    def below(self, folder: str = "", *, hidden: bool = False) -> Iterator[Listed]:
        """Yield the files in a folder and its subfolders; none if it does not exist.

        :param hidden: also those whose names begin with ``_`` or ``.``, and those in folders of such names other than
            those of successors.
        """
        start = f"{folder}/" if folder else ""
        for name, entry, is_folder in self._entries(folder):
            if not hidden and name.startswith(_HIDDEN) and not name.startswith(SUCCESSOR):
                continue
            if is_folder:
                yield from self.below(f"{start}{name}", hidden=hidden)
            else:
                yield Listed(f"{start}{name}", entry)

    def folders(self) -> Iterator[str]:
        """Yield the names of the folders in the table's folder, hidden ones included."""
        return (name for name, _, is_folder in self._entries("") if is_folder)

    def _entries(self, folder: str) -> Iterator[_Entry]:
        """Yield the files and folders in a folder."""
        with store_errors(self._path):
            system, path = self._open(folder)
            infos = system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        for info in infos:
            yield info.base_name, info, info.type == pafs.FileType.Directory

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Create a file to write to; it is complete when the block has ended without an error."""
        with store_errors(self._path):
            system, path = self._open(name)
            sink = system.open_output_stream(path)
            try:
                yield sink
            except BaseException:
                with suppress(OSError):  # Arrow's streams cannot be aborted: closing writes the partial file
                    sink.close()
                    system.delete_file(path)
                raise
            sink.close()

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a whole file, replacing an existing one."""
        with self.create(name) as sink:
            sink.write(data)

    def delete(self, name: str) -> None:
        """Remove a file; no error if it does not exist."""
        with suppress(FileNotFoundError), store_errors(self._path):
            system, path = self._open(name)
            system.delete_file(path)

    def each(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Return the result of ``work`` for each item, in order; in a store several run in parallel."""
        with ThreadPoolExecutor(_AT_ONCE, "headgate-files") as pool:
            return list(pool.map(work, items))

    @contextmanager
    def open_parquet(self, name: str) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file from any writer; its times are in µs.

        :raises OSError: it cannot be read.
        """
        with store_errors(self._path), self._parquet(name) as file:
            yield file

    def _parquet(self, name: str) -> pq.ParquetFile:
        system, path = self._open(name)
        return pq.ParquetFile(path, filesystem=system, pre_buffer=True, coerce_int96_timestamp_unit="us")


class _LocalFiles(Files):
    """The files of one table, in a local folder."""

    def _open(self, name: str = "") -> tuple[pafs.FileSystem, str]:
        return _LOCAL, f"{self._path}/{name}".rstrip("/")

    def identity(self, name: str) -> FileIdentity | None:
        return _of_folder(Path(self._path, name))

    def _entries(self, folder: str) -> Iterator[_Entry]:
        with suppress(FileNotFoundError), os.scandir(Path(self._path, folder)) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or entry.is_file():
                    yield entry.name, entry, is_folder

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        path = Path(self._path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with name_errors(path), path.open("xb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())

    def put(self, name: str, data: bytes | pa.Buffer) -> None:
        write_bytes(Path(self._path, name), memoryview(data), shared=True)

    def each(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        return [work(item) for item in items]

    def _parquet(self, name: str) -> pq.ParquetFile:
        return pq.ParquetFile(Path(self._path, name), coerce_int96_timestamp_unit="us")


def _of_folder(file: Path | os.DirEntry[str]) -> FileIdentity | None:
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileIdentity(status.st_ino, status.st_mtime_ns, status.st_size)


def _of_store(info: pafs.FileInfo) -> FileIdentity:
    return FileIdentity(0, info.mtime_ns or 0, info.size)


def is_inside(name: str) -> bool:
    """Return whether a name in a table's log is of a file in the table's folder."""
    return "://" not in name and not name.startswith(("/", "file:")) and ".." not in name.split("/")


@lru_cache(maxsize=10_000)
def files_of(folder: str) -> Files:
    """Return the files of the table at a local path or a URI."""
    return Files(folder) if is_remote(folder) else _LocalFiles(folder)


def discard_files(folder: str, names: Iterable[str]) -> None:
    """Remove files of ours that no version names. One that cannot be removed is left to the upkeep.

    Only files that no commit was tried with, or whose commit is known not to have been made.
    """
    for name in names:
        with suppress(HeadgateError, OSError):
            files_of(folder).delete(name)

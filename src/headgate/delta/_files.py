"""The files of one table: in a folder of this machine, or in an object store.

Names are relative to the table's folder, with ``/`` between their parts. New files get names that nobody else has, and
count once a commit names them; what a killed writer leaves is an orphan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headgate._stores import is_remote, open_store

__all__ = ["FileIdentity", "Files", "files_of"]


class FileIdentity(NamedTuple):
    """Tells a file from another one that has taken its name. In a store there are no inodes, and times are seconds."""

    inode: int
    modified_ns: int
    size: int


class Files(Protocol):
    """The files of one table."""

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """A file's bytes, fewer than ``size`` at its end.

        :raises FileNotFoundError: it is not there.
        """

    def identity(self, name: str) -> FileIdentity | None:
        """What tells this file from others; None: it is not there."""

    def names(self, folder: str) -> list[str]:
        """The names of the files directly in a folder; none if it is not there."""

    def create(self, name: str) -> AbstractContextManager[Any]:
        """A new file to write to; it is whole when the block has ended well."""

    def delete(self, name: str) -> None:
        """Remove a file; it is no error if it is gone."""

    def open_parquet(self, name: str) -> pq.ParquetFile:
        """A Parquet file, whoever wrote it; its times are in µs.

        :raises OSError: it cannot be read.
        """


class _Folder:
    """Of this machine."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        with Path(self._path, name).open("rb") as source:
            source.seek(offset)
            return source.read(size)

    def identity(self, name: str) -> FileIdentity | None:
        try:
            status = Path(self._path, name).stat()
        except OSError:
            return None
        return FileIdentity(status.st_ino, status.st_mtime_ns, status.st_size)

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(Path(self._path, folder)) as entries:
                return [f"{folder}/{entry.name}" for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        path = Path(self._path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as sink:
            yield sink

    def delete(self, name: str) -> None:
        Path(self._path, name).unlink(missing_ok=True)

    def open_parquet(self, name: str) -> pq.ParquetFile:
        return pq.ParquetFile(Path(self._path, name), coerce_int96_timestamp_unit="us")


class _Prefix:
    """Of an object store, where a file is there once it is whole."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def _open(self, name: str) -> tuple[pafs.FileSystem, str]:
        system, root = open_store(self._uri)
        return system, f"{root}/{name}"

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        system, path = self._open(name)
        with system.open_input_file(path) as source:
            if size < 0 and not offset:
                return bytes(source.read())
            return bytes(source.read_at(max(0, min(size, source.size() - offset)), offset))

    def identity(self, name: str) -> FileIdentity | None:
        system, path = self._open(name)
        info = system.get_file_info(path)
        return FileIdentity(0, info.mtime_ns or 0, info.size) if info.is_file else None

    def names(self, folder: str) -> list[str]:
        system, path = self._open(folder)
        found = system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return [f"{folder}/{info.base_name}" for info in found if info.is_file]

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        system, path = self._open(name)
        sink = system.open_output_stream(path)
        try:
            yield sink
        except BaseException:
            with suppress(OSError):  # Arrow's streams cannot be given up: what is there becomes a file
                sink.close()
                system.delete_file(path)
            raise
        sink.close()

    def delete(self, name: str) -> None:
        system, path = self._open(name)
        with suppress(FileNotFoundError):
            system.delete_file(path)

    def open_parquet(self, name: str) -> pq.ParquetFile:
        system, path = self._open(name)
        return pq.ParquetFile(path, filesystem=system, pre_buffer=True, coerce_int96_timestamp_unit="us")


@lru_cache(maxsize=10_000)
def files_of(folder: str) -> Files:
    """The files of the table at a local path or a URI."""
    return _Prefix(folder) if is_remote(folder) else _Folder(folder)

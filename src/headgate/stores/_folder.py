"""The files of one folder, on this machine or in an object store.

Names are relative to the folder, with ``/`` between their parts. A new file of a local folder is synced: after a loss
of power it is there whole, once its folder is synced, too. A store has what it has acknowledged.

**A new file** (:meth:`Folder.new_file`) is made for one writer only. In a local folder it is written under a temporary
name, synced, and linked to its name; S3, GCS and Azure have a PUT that fails if the file exists.

**Listings** of a store are one request per 1,000 files and folder. Each request is counted (``_requests``), but not
those that obstore repeats by itself.

**Reads.** A file that is opened is read from its end first, as Parquet's footer is. Up to ``_TAIL_BYTES`` come with
that one request, so a small file takes one. Large ranges are read in several requests at once.
"""

from __future__ import annotations

import errno
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headgate.errors import TargetError
from headgate.files import name_errors, sync, temporary, write_bytes
from headgate.stores._access import is_remote, open_client, store_errors
from headgate.stores._requests import Operation, count_requests

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

__all__ = ["FileIdentity", "Folder", "Listed", "folder_of"]

_T = TypeVar("_T")
_R = TypeVar("_R")

_AT_ONCE: Final = 16
"""Parallel requests to a store, where one takes 10 to 50 ms."""
_TAIL_BYTES: Final = 1 << 20
_PART_BYTES: Final = 8 << 20
_PUT_BYTES: Final = 5 << 20
_WRITER_BYTES: Final = 10 << 20
"""Largest files that obstore puts by one request, and size of the parts of larger ones: whole, and written in parts."""
_PAGE: Final = 1000
"""Files and folders of one request of a listing."""
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems without hard links. There two programs that commit at the same moment can lose one commit, as
with Delta's own writers, which check and then rename."""


class FileIdentity(NamedTuple):
    """Identity of a file, to detect a replacement. Stores have no inodes (0), and times in whole seconds, but tags."""

    inode: int
    modified_ns: int
    size: int
    tag: str = ""
    """The store's ETag, which a replacement changes, without quotes; "" for local files, and if the store has none."""

    @property
    def modified(self) -> float:
        """Time of modification in seconds since 1970 UTC."""
        return self.modified_ns / 1e9


class Listed:
    """A file of a listing."""

    __slots__ = ("_entry", "name")

    def __init__(self, name: str, entry: os.DirEntry[str] | FileIdentity) -> None:
        self.name = name
        self._entry = entry

    def identity(self) -> FileIdentity | None:
        """Return the file's identity; None if it was removed since. Queries the operating system for local files."""
        return self._entry if isinstance(self._entry, FileIdentity) else _of_folder(self._entry)


class Folder(ABC):
    """The files in one folder. In a store a file exists only once it is complete.

    A store's errors are headgate's (:func:`headgate.stores.store_errors`), a local folder's are the system's.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Return a file's bytes, fewer than ``size`` at its end.

        :raises FileNotFoundError: it does not exist.
        """

    @abstractmethod
    def open_input(self, name: str) -> Any:
        """Return what Arrow reads a file from: a path, or an open file.

        :raises FileNotFoundError: it does not exist. A path may raise it later.
        """

    @abstractmethod
    def identity(self, name: str) -> FileIdentity | None:
        """Return the file's identity; None if it does not exist.

        :raises OSError: it cannot be determined.
        """

    @abstractmethod
    def has_folder(self, folder: str) -> bool:
        """Return whether the folder exists, or in a store any file below it."""

    @abstractmethod
    def _entries(self, folder: str) -> Iterator[Listed | str]:
        """Yield the files, and the names of the folders, in a folder; nothing if it does not exist."""

    def files(self, folder: str = "") -> Iterator[Listed]:
        """Yield the files in a folder; none if it does not exist."""
        return (entry for entry in self._entries(folder) if isinstance(entry, Listed))

    def folders(self, folder: str = "") -> Iterator[str]:
        """Yield the names of the folders in a folder; none if it does not exist."""
        return (entry for entry in self._entries(folder) if isinstance(entry, str))

    def below(self, folder: str = "", *, wanted: Callable[[str], bool] | None = None) -> Iterator[Listed]:
        """Yield the files in a folder and its subfolders; none if it does not exist.

        :param wanted: returns whether files and folders of this name, without their folder's, count; None: all do.
        """
        start = f"{folder}/" if folder else ""
        for entry in self._entries(folder):
            name = entry.name.rpartition("/")[2] if isinstance(entry, Listed) else entry
            if wanted is not None and not wanted(name):
                continue
            if isinstance(entry, Listed):
                yield entry
            else:
                yield from self.below(f"{start}{entry}", wanted=wanted)

    @abstractmethod
    def create(self, name: str) -> AbstractContextManager[Any]:
        """Create a file to write to; it is complete when the block has ended without an error."""

    @abstractmethod
    def put(self, name: str, data: Any) -> None:
        """Write a whole file, replacing an existing one."""

    @abstractmethod
    def new_file(self, name: str, data: bytes, *, first: bool = False) -> AbstractContextManager[Callable[[], None]]:
        """Prepare a whole file; return what creates it if none of that name exists, and may be repeated. Of several
        writers one succeeds. It raises ``FileExistsError`` if one exists, or is being created, perhaps by an earlier
        request of the same call. After any other exception the file may exist, or be created later.

        :param first: it is the first file of its folder: the folders above are synced, too.
        :raises OSError: the file cannot be prepared.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; no error if it does not exist."""

    def each(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Return the result of ``work`` for each item, in order; in a store several run in parallel."""
        return [work(item) for item in items]


class _LocalFolder(Folder):
    def _path(self, name: str) -> Path:
        return Path(self.path, name)

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        with self._path(name).open("rb") as source:
            source.seek(offset)
            return source.read(size)

    def open_input(self, name: str) -> Any:
        return self._path(name)

    def identity(self, name: str) -> FileIdentity | None:
        return _of_folder(self._path(name))

    def has_folder(self, folder: str) -> bool:
        return self._path(folder).is_dir()

    def _entries(self, folder: str) -> Iterator[Listed | str]:
        start = f"{folder}/" if folder else ""
        with suppress(FileNotFoundError), os.scandir(self._path(folder)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name
                elif entry.is_file():
                    yield Listed(f"{start}{entry.name}", entry)

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with name_errors(path), path.open("xb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())

    def put(self, name: str, data: Any) -> None:
        write_bytes(self._path(name), memoryview(data), shared=True)

    @contextmanager
    def new_file(self, name: str, data: bytes, *, first: bool = False) -> Iterator[Callable[[], None]]:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = temporary(path)
        try:
            with name_errors(path), aside.open("xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            for above in path.parents[1:] if first else path.parents[1:2]:
                sync(above)
            yield partial(_link, aside, path)
        finally:
            with suppress(OSError):  # a second name of the file, or none of any version: the upkeep removes it, too
                aside.unlink()

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)


class _StoreFolder(Folder):
    def _open(self, name: str, request: Operation) -> tuple[ObjectStore, str]:
        """Return the client, and a file's path in the bucket, for one request."""
        client, root = open_client(self.path)
        count_requests(request)
        return client, f"{root}/{name}".strip("/")

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        with store_errors(self.path):
            client, path = self._open(name, Operation.GET)
            if size >= 0:
                return client.get_range(path, start=offset, length=size).to_bytes() if size else b""
            return client.get(path, options={"range": {"offset": offset}} if offset else {}).bytes().to_bytes()

    def open_input(self, name: str) -> Any:
        return _StoreFile(self.path, *self._open(name, Operation.GET))

    def identity(self, name: str) -> FileIdentity | None:
        with suppress(FileNotFoundError), store_errors(self.path):
            client, path = self._open(name, Operation.GET)
            return _of_store(client.head(path))
        return None

    def has_folder(self, folder: str) -> bool:
        with store_errors(self.path):
            client, path = self._open(folder, Operation.LIST)
            return any(client.list(path, chunk_size=1))

    def _entries(self, folder: str) -> Iterator[Listed | str]:
        start = f"{folder}/" if folder else ""
        with store_errors(self.path):
            client, path = self._open(folder, Operation.LIST)
            listing = client.list_with_delimiter(path)
            count_requests(Operation.LIST, (len(listing["common_prefixes"]) + len(listing["objects"])) // _PAGE)
        yield from (one.rpartition("/")[2] for one in listing["common_prefixes"])
        for one in listing["objects"]:
            if one["path"] != path:  # Hadoop's object for an empty folder
                yield Listed(f"{start}{one['path'].rpartition('/')[2]}", _of_store(one))

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        from obstore import open_writer

        with store_errors(self.path):
            upload = _Upload(self.path, open_writer(*self._open(name, Operation.PUT)))
        yield upload
        upload.complete()

    def put(self, name: str, data: Any) -> None:
        with _put_errors(self.path):
            client, path = self._open(name, Operation.PUT)
            view = memoryview(data).cast("B")
            client.put(path, view)
            _count_parts(view.nbytes, _PUT_BYTES)

    @contextmanager
    def new_file(self, name: str, data: bytes, *, first: bool = False) -> Iterator[Callable[[], None]]:
        del first
        yield partial(self._put_new, name, data)

    def _put_new(self, name: str, data: bytes) -> None:
        """Put a file by a conditional request, which the store decides."""
        from obstore.exceptions import AlreadyExistsError

        with _put_errors(self.path):
            client, path = self._open(name, Operation.PUT)
            try:
                client.put(path, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                raise FileExistsError(path) from None

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), store_errors(self.path):
            client, path = self._open(name, Operation.DELETE)
            client.delete(path)

    def each(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        with ThreadPoolExecutor(_AT_ONCE, "headgate-files") as pool:
            return list(pool.map(work, items))


def _link(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(path) from None
        aside.rename(path)


@contextmanager
def _put_errors(path: str) -> Iterator[None]:
    try:
        with store_errors(path):
            yield
    except FileNotFoundError:
        raise TargetError(f"{path}: there is no such bucket; create it, or choose another target.path") from None


class _Upload(io.RawIOBase):
    """A file that a store has once it is complete. If it is dropped before, parts of the upload may be left, which the
    store's rules remove.
    """

    def __init__(self, folder: str, writer: Any) -> None:
        self._folder, self._writer, self._size = folder, writer, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        with _put_errors(self._folder):
            self._writer.write(view)
        self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._size

    def complete(self) -> None:
        """Have the store create the file; errors are as of :func:`store_errors`."""
        with _put_errors(self._folder):
            self._writer.close()
        _count_parts(self._size, _WRITER_BYTES)


def _count_parts(size: int, part: int) -> None:
    """Count what an upload in parts takes beside its first request: the parts, and the last request."""
    if size > part:
        count_requests(Operation.PUT, -(-size // part) + 1)


class _StoreFile(io.RawIOBase):
    """A file in a store, open for reading; its errors are as of :func:`store_errors`."""

    def __init__(self, folder: str, client: ObjectStore, path: str) -> None:
        from obstore.store import AzureStore

        self._folder, self._client, self._file = folder, client, path
        with store_errors(folder):
            if isinstance(client, AzureStore):  # it has no requests for a file's end
                count_requests(Operation.GET)
                size = client.head(path)["size"]
                start = max(0, size - _TAIL_BYTES)
                tail = client.get_range(path, start=start, end=size) if size else b""
            else:
                answer = client.get(path, options={"range": {"suffix": _TAIL_BYTES}})
                size, start = answer.meta["size"], answer.range[0]
                tail = answer.bytes()
        self.size, self._tail_start, self._tail, self._at = size, start, memoryview(tail), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> Any:
        """Read up to ``size`` bytes, all that are left if it is None or negative."""
        start, left = self._at, max(0, self.size - self._at)
        end = start + (left if size is None or size < 0 else min(size, left))
        self._at = end
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        with store_errors(self._folder):
            count_requests(Operation.GET)
            if end - start <= _PART_BYTES:
                return self._client.get_range(self._file, start=start, end=end)
            starts = range(start, end, _PART_BYTES)
            count_requests(Operation.GET, len(starts) - 1)
            with ThreadPoolExecutor(min(_AT_ONCE, len(starts)), "headgate-ranges") as pool:
                return b"".join(pool.map(lambda at: self._range(at, min(at + _PART_BYTES, end)), starts))

    def _range(self, start: int, end: int) -> Any:
        """Read a range by a request of its own: ``get_ranges`` makes one of ranges that are next to each other."""
        return self._client.get_range(self._file, start=start, end=end)


def _of_folder(file: Path | os.DirEntry[str]) -> FileIdentity | None:
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileIdentity(status.st_ino, status.st_mtime_ns, status.st_size)


def _of_store(meta: ObjectMeta) -> FileIdentity:
    """Return an object's identity. Listings may have fractions of seconds, or no quotes around the ETag, unlike answers
    about one object.
    """
    tag = (meta["e_tag"] or "").strip('"')
    return FileIdentity(0, int(meta["last_modified"].timestamp()) * 1_000_000_000, meta["size"], tag)


@lru_cache(maxsize=10_000)
def folder_of(path: str) -> Folder:
    """Return the files of the folder at a local path or a URI."""
    return _StoreFolder(path) if is_remote(path) else _LocalFolder(path)

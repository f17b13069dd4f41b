"""Tables that are derived from data files: small ones in memory, others mapped from a bounded folder of this machine.

A data file never changes, so neither does a table of it. It is a cache: if it is lost, it is made again. The least
recently used files are removed. Many processes may share the folder: each file is complete, and stays readable if it
is removed while it is mapped.

A file is an Arrow IPC file with one record batch, uncompressed, and 16 more bytes: a number that identifies the boot of
the machine, and the CRC-32 of all bytes before (8 bytes each, little-endian). It is written under a temporary name and
renamed. After a failure of the machine a renamed file may contain pages that were never written, so a file from an
earlier boot is used only if its checksum is right.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Callable
from glob import iglob
from mmap import ACCESS_READ, mmap
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

import pyarrow as pa

from headgate.files import open_private, temporary

__all__ = ["LocalTables"]

_T = TypeVar("_T")

_ON_DISK_ROWS: Final = 1 << 16
"""Smaller tables are only kept in memory: making one takes no longer than reading it."""
_END: Final = struct.Struct("<QQ")


def boot_number() -> int:
    """Return a number that identifies this boot of the machine; 0 if unknown."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return 0
    return int(text.strip().replace("-", "")[:15], 16)


class LocalTables(Generic[_T]):
    """Tables of one kind, about ``most`` bytes of files at most. Thread-safe.

    :param ending: of the files' names.
    :param view: returns the form in which a table is used.
    """

    def __init__(self, folder: Path, ending: str, most: int, view: Callable[[pa.Table], _T]) -> None:
        self._folder, self._ending, self._most, self._view = folder, ending, most, view
        self._open: dict[str, _T] = {}
        self._lock = Lock()
        self._bytes: int | None = None

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files, as of the last one that was written here, else as of the first query."""
        if self._bytes is None:
            self._bytes = sum(size for _, size, _ in self._files())
        return self._bytes

    def get(self, mark: str, make: Callable[[], pa.Table]) -> _T:
        """Return the table with this mark; make it if it is missing."""
        with self._lock:
            known = self._open.get(mark)
        if known is not None:
            return known
        path = self._path(mark)
        table = _map(path)
        view = self._view(self._keep(path, make()) if table is None else table)
        with self._lock:
            self._open[mark] = view
        return view

    def forget(self, mark: str) -> None:
        """Remove a table."""
        with self._lock:
            self._open.pop(mark, None)
        with contextlib.suppress(OSError):
            self._path(mark).unlink(missing_ok=True)

    def _path(self, mark: str) -> Path:
        return self._folder / mark[:2] / f"{mark}{self._ending}"

    def _keep(self, path: Path, table: pa.Table) -> pa.Table:
        """Write a table, and return it as it is mapped; the table itself if it is small or cannot be written."""
        if table.num_rows < _ON_DISK_ROWS:
            return table
        mapped = None
        with contextlib.suppress(OSError):  # disk full or not writable
            _write(path, table)
            mapped = _map(path)
            self._trim(path)
        return table if mapped is None else mapped

    def _trim(self, kept: Path) -> None:
        """Remove the least recently used files until the rest fits, except ``kept``."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total > self._most and path != kept:
                self.forget(path.name.removesuffix(self._ending))
                total -= size
        self._bytes = total

    def _files(self) -> list[tuple[int, int, Path]]:
        """Last use (ns), bytes and path of each file."""
        files = []
        # ``Path.glob`` fails if another process removes a folder meanwhile.
        for name in iglob(f"*/*{self._ending}", root_dir=self._folder):  # noqa: PTH207
            path = self._folder / name
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        return files


def _write(path: Path, table: pa.Table) -> None:
    """Write a file. It gets its name when it is complete.

    :raises OSError: it cannot be written.
    """
    aside = temporary(path)
    try:
        with open_private(aside, "x+b") as out:
            with pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
            out.flush()
            with mmap(out.fileno(), 0, access=ACCESS_READ) as written:
                checksum = zlib.crc32(written)
            out.seek(0, os.SEEK_END)
            out.write(_END.pack(boot_number(), checksum))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _map(path: Path) -> pa.Table | None:
    """Map the table in a file, and record that it is used; None if the file is missing or damaged."""
    try:
        with pa.memory_map(str(path)) as source:
            data = source.read_buffer()
        written = data.slice(0, max(0, data.size - _END.size))
        boot, checksum = _END.unpack(data.slice(written.size))
        if (boot != boot_number() or not boot) and zlib.crc32(written) != checksum:
            return None
        table = pa.ipc.open_file(written).read_all()
    except (OSError, pa.ArrowInvalid, struct.error):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return table

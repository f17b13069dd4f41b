"""A bounded folder of files on this machine that can be made again: the least recently used are removed.

Many processes may share it: each file is complete, and stays readable if it is removed while it is mapped.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LocalFiles", "boot_number"]


def boot_number() -> int:
    """Return a number that identifies this boot of the machine; 0 if unknown."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return 0
    return int(text.strip().replace("-", "")[:15], 16)


@dataclass
class LocalFiles:
    """Files of one kind, about ``most`` bytes at most.

    :param ending: of the files' names.
    """

    folder: Path
    ending: str
    most: int
    _bytes: int | None = None  # as of the last removal

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files, as of this object's last :meth:`trim`, else as of its first query."""
        if self._bytes is None:
            self._bytes = sum(size for _, size, _ in self._files())
        return self._bytes

    def path(self, mark: str) -> Path:
        """Return the path of the file with this mark."""
        return self.folder / mark[:2] / f"{mark}{self.ending}"

    @contextlib.contextmanager
    def create(self, path: Path) -> Iterator[Any]:
        """Open a file for writing. It gets its name when it is complete, so nobody reads a part of it.

        :raises OSError: it cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with aside.open("xb") as out:
                yield out
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    @staticmethod
    def touch(path: Path) -> None:
        """Record that a file is used."""
        with contextlib.suppress(OSError):
            os.utime(path)

    def trim(self, kept: Path) -> list[str]:
        """Remove the least recently used files until the rest fits, except ``kept``. Return their marks."""
        files, removed = self._files(), []
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.most:
                break
            if path != kept:
                path.unlink(missing_ok=True)
                total -= size
                removed.append(path.name.removesuffix(self.ending))
        self._bytes = total
        return removed

    def _files(self) -> list[tuple[int, int, Path]]:
        """Last use (ns), bytes and path of each file."""
        files = []
        for path in self.folder.glob(f"*/*{self.ending}"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        return files

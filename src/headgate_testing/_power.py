"""What a loss of power leaves of a local folder: only what this process has synced.

A recorder of fsync(2): it keeps the content that a file had, and the names that a folder had, when each was synced
last. All else may be lost, so a folder made of that alone is the worst that a file system may show afterwards: a file
that was never synced is empty, a name that was not synced is missing. File systems often write names earlier than
content, so there are two such states: with the names of the moment, and with those that were synced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["PowerLoss"]


class PowerLoss:
    """Recorder of what is synced below a folder. What is there at the beginning counts as synced.

    :param folder: it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._held: list[int] = []
        for path in (folder, *folder.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self._record(descriptor)
            os.close(descriptor)

    @contextmanager
    def recording(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Record what this process syncs in the block.

        :param then: called after each sync.
        """
        fsync = os.fsync

        def record(file: Any) -> None:
            descriptor = file if isinstance(file, int) else file.fileno()
            fsync(descriptor)
            self._record(descriptor)
            then()

        os.fsync = record  # type: ignore[assignment]
        try:
            yield
        finally:
            os.fsync = fsync

    def close(self) -> None:
        """Forget what was recorded."""
        while self._held:
            os.close(self._held.pop())

    def _record(self, descriptor: int) -> None:
        self._held.append(os.dup(descriptor))  # so that no other file gets its inode number
        status, path = os.fstat(descriptor), Path(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = _names(path)
        else:
            self._content[status.st_ino] = path.read_bytes()

    def leave(self, to: Path, *, all_names: bool = False) -> None:
        """Write what is left into a new folder.

        :param all_names: the names of now, with the content that was synced; else only names that were synced.
        """
        self._leave((self._folder.stat().st_ino, True), to, self._folder if all_names else None)

    def _leave(self, one: tuple[int, bool], to: Path, now: Path | None) -> None:
        """Write what is left of a file or folder.

        :param one: its inode, and whether it is a folder.
        :param now: where it is, if the names of now are left.
        """
        inode, is_folder = one
        if not is_folder:
            to.write_bytes(self._content.get(inode, b""))
            return
        to.mkdir()
        names = self._names.get(inode, {}) if now is None else _names(now)
        for name, below in names.items():
            self._leave(below, to / name, None if now is None else now / name)


def _names(folder: Path) -> dict[str, tuple[int, bool]]:
    """Return inode and whether it is a folder, by name."""
    with os.scandir(folder) as entries:
        return {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries}

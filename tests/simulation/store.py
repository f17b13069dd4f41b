"""The simulated store: the files of lakes and control folders, with put-if-absent and answers that are wrong.

A conditional put has one of these outcomes, each an action of the scheduler:

======== =============================================================================
ok       the file exists if it did not before
lost     the same, and the client gets an error
failed   nothing happened, and the client gets an error
late     nothing happened yet, and the client gets an error; the request arrives later
repeated the client's library sends the request twice, and reports the second answer
======== =============================================================================

Data files are no files: ``data`` has their rows under the names that the log adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StorageError
from headgate.stores import FileIdentity, Folder, Listed

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["MemoryFolder", "Store"]

_T = TypeVar("_T")
_R = TypeVar("_R")


class Store:
    """All files, by their whole names."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.folders: dict[str, dict[str, bytes]] = {}
        """Folder → name in it → content."""
        self.identities: dict[tuple[str, str], FileIdentity] = {}
        self.data: dict[str, Any] = {}
        self.late: list[tuple[str, str, bytes]] = []
        """Requests that have not arrived yet."""
        self._written = 0

    def write(self, folder: str, name: str, content: bytes) -> None:
        self._written += 1
        self.folders.setdefault(folder, {})[name] = content
        self.identities[folder, name] = FileIdentity(self._written, self.world.now_us * 1000, len(content))

    def write_new(self, folder: str, name: str, content: bytes) -> bool:
        """Write a file if none of that name exists; return whether it did not."""
        if name in self.folders.get(folder, ()):
            return False
        self.write(folder, name, content)
        return True

    def new_name(self) -> str:
        """Return the name of another data file."""
        self._written += 1
        return f"part-{self._written}.parquet"

    def arrive(self) -> None:
        """Let the oldest late request arrive."""
        if self.late:
            self.write_new(*self.late.pop(0))
            self.world.count("request arrives late")

    def create(self, folder: str, name: str, content: bytes) -> None:
        """Answer a conditional put."""
        world = self.world
        world.pause()
        outcome = world.answer()
        if outcome == "failed":
            raise StorageError("the store does not answer")
        if outcome == "late":
            self.late.append((folder, name, content))
            raise StorageError("the request timed out")
        made = self.write_new(folder, name, content)
        if outcome == "lost":
            raise StorageError("the answer was lost")
        if not made or outcome == "repeated":
            raise FileExistsError(name)
        world.count("version committed")
        world.pause()


class MemoryFolder(Folder):
    """A folder of the store of the world that runs now. Files one folder below count as its files, too."""

    store: Store

    def read(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        try:
            content = self.store.folders[self.path][name]
        except KeyError:
            raise FileNotFoundError(name) from None
        return content[offset:] if size < 0 else content[offset : offset + size]

    def open_input(self, name: str) -> Any:
        raise FileNotFoundError(name)

    def identity(self, name: str) -> FileIdentity | None:
        if name.rpartition("/")[2] in self.store.data:  # a data file never changes, and is in no folder
            return FileIdentity(0, 0, 1)
        return self.store.identities.get((self.path, name))

    def has_folder(self, folder: str) -> bool:
        return any(True for _ in self._entries(folder))

    def _entries(self, folder: str) -> Iterator[Listed | str]:
        prefix, seen = f"{folder}/" if folder else "", set[str]()
        for name in list(self.store.folders.get(self.path, ())):
            if name.startswith(prefix):
                below, _, more = name.removeprefix(prefix).partition("/")
                if not more:
                    yield Listed(name, self.store.identities[self.path, name])
                elif below not in seen:
                    seen.add(below)
                    yield below

    def create(self, name: str) -> AbstractContextManager[Any]:
        raise NotImplementedError(name)

    def put(self, name: str, data: Any) -> None:
        world = self.store.world
        world.pause()
        outcome = world.answer()
        if outcome != "failed":
            self.store.write(self.path, name, bytes(data))
        if outcome in ("failed", "lost"):
            raise StorageError("the store does not answer")

    @contextmanager
    def new_file(self, name: str, data: bytes, *, first: bool = False) -> Iterator[Callable[[], None]]:
        del first
        yield partial(self.store.create, self.path, name, data)

    def delete(self, name: str) -> None:
        self.store.world.pause()
        self.store.data.pop(name, None)
        self.store.folders.get(self.path, {}).pop(name, None)
        self.store.identities.pop((self.path, name), None)

    def each(self, work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        return [work(item) for item in items]

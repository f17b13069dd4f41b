"""The files of a kept log: stretches of the packets of one file of one server, each with a header beside it.

``<number>.json`` says whose log it is, from which place on, and which transactions lie before it; ``<number>.packets``
has the packets, appended by one thread. The header is there, whole, before the first packet. What a killed process left
behind the last whole transaction is cut off when the files are opened again: where that is, the packets tell.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.errors import ConfigError, HeadgateError, TargetError
from headgate.files import read_json, write_json
from headgate.gtid import GtidSet
from headgate.replication import CopiedEvents, CopiedFile, LogCopy

__all__ = ["LogSegment", "Mark", "stored_log"]

_SUFFIX: Final = ".packets"
_MARK_BYTES: Final = 256 << 10
"""At most so much is read in vain by who begins somewhere in a segment."""

Bytes = npt.NDArray[np.uint8]


class Mark(NamedTuple):
    """A place between two transactions."""

    offset: int
    """Bytes before it in the segment."""
    pos: int
    """Its place in the server's file."""
    gtid: GtidSet
    """All transactions before it."""


@dataclass
class LogSegment:
    """A stretch of one file."""

    number: int
    folder: Path
    begin: CopiedFile
    before: GtidSet
    """All transactions before it."""
    whole: tuple[int, int] = (0, 0)
    """Bytes of whole transactions, and the place behind them in the server's file; replaced as one value while it
    grows, so that who reads meanwhile sees two numbers that belong together."""
    marks: list[Mark] | None = field(default=None, repr=False)
    """Places where a reader may begin, in order; None: they have to be found (:meth:`find_marks`)."""
    _file: Any = field(default=None, repr=False)
    _written: int = 0

    @property
    def size(self) -> int:
        """Bytes of whole transactions."""
        return self.whole[0]

    @property
    def path(self) -> Path:
        """Where the packets are."""
        return self.folder / f"{self.number:012d}{_SUFFIX}"

    @property
    def _header(self) -> Path:
        return self.folder / f"{self.number:012d}.json"

    # --- writing

    def create(self) -> None:
        """Make the files.

        :raises HeadgateError: they cannot be made.
        """
        begin = self.begin
        self.marks, self.whole = [Mark(0, begin.pos, self.before)], (0, begin.pos)
        with _target(self.path):
            self._file = self.path.open("wb", buffering=0)
        write_json(
            self._header,
            {
                "v": 1,
                "server_uuid": begin.server_uuid,
                "file": begin.file,
                "pos": begin.pos,
                "description": base64.b64encode(begin.description).decode(),
                "before": str(self.before),
            },
        )

    def append(self, data: Bytes) -> None:
        """Packets behind those that were written. They count when :meth:`commit` says so.

        :raises TargetError: the file cannot be written.
        """
        with _target(self.path):
            rest = memoryview(data.data)
            while rest:
                rest = rest[self._file.write(rest) :]
        self._written += len(data)

    def commit(self, pos: int) -> None:
        """All that was written is whole transactions, up to a place."""
        self.whole = self._written, pos

    def mark(self, gtid: GtidSet) -> None:
        """Everything committed so far is ``gtid``."""
        if self.marks is not None:
            self.marks.append(Mark(*self.whole, gtid))

    @property
    def wants_mark(self) -> bool:
        """Whether the last mark is far behind."""
        return self.marks is not None and self.size - self.marks[-1].offset >= _MARK_BYTES

    def drop_open(self) -> None:
        """Cut off what is not committed."""
        if self._written != self.size:
            with _target(self.path):
                self._file.truncate(self.size)
                self._file.seek(self.size)
            self._written = self.size

    def reopen(self) -> None:
        """Go on writing a stored one."""
        with _target(self.path):
            self._file = self.path.open("r+b", buffering=0)
            self._file.truncate(self.size)
            self._file.seek(self.size)
        self._written = self.size

    def close(self) -> None:
        """Nothing more is written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the files; who reads them keeps what he has open."""
        self.close()
        with _target(self.path):
            self.path.unlink(missing_ok=True)
            self._header.unlink(missing_ok=True)

    # --- reading

    def open(self) -> int:
        """A file descriptor to read from, the caller's to close.

        :raises FileNotFoundError: it was removed.
        """
        return os.open(self.path, os.O_RDONLY)

    def find_marks(self) -> tuple[list[Mark], GtidSet]:
        """Read it through: places where a reader may begin, and all transactions before its end.

        ``whole`` is set to the end of the last whole transaction, as far as the packets are sound.
        """
        with _target(self.path):
            data = np.fromfile(self.path, np.uint8)
        begin = self.begin
        copy = LogCopy(begin.server_uuid, self.before)
        first = np.frombuffer(begin.prologue(begin.pos, checksum=True), np.uint8)
        at = 0
        while at < len(first):
            _, at = copy.next(first, at, len(first))
        marks, at, size, end = [Mark(0, begin.pos, self.before)], 0, 0, begin.pos
        stop = 0
        with contextlib.suppress(HeadgateError):  # what is damaged counts as not written
            while stop < len(data) or at < stop:
                stop = min(len(data), max(stop, at + _MARK_BYTES))
                item, used = copy.next(data, at, stop)
                if isinstance(item, CopiedEvents) and item.whole:
                    size, end = at + item.whole, item.pos
                    if size - marks[-1].offset >= _MARK_BYTES:
                        marks.append(Mark(size, end, copy.gtid()))
                if used == at:
                    if stop == len(data):
                        break
                    stop = min(len(data), at + max(copy.needed, 2 * (stop - at)))
                at = used
        self.whole, self.marks = (size, end), marks
        return marks, copy.gtid()


def stored_log(folder: Path) -> tuple[list[LogSegment], GtidSet]:
    """What an earlier process kept, oldest first, and all transactions up to its end. The last one can be gone on with.

    :raises HeadgateError: a file cannot be read.
    """
    found = [_stored(header) for header in sorted(folder.glob("*.json")) if header.stem.isdigit()]
    known = {one.path for one in found}
    for path in folder.glob(f"*{_SUFFIX}"):
        if path not in known:  # its header was not there yet
            with _target(path):
                path.unlink()
    if not found:
        return [], GtidSet()
    gtid = found[-1].find_marks()[1]
    found[-1].reopen()
    return found, gtid


def _stored(header: Path) -> LogSegment:
    value = read_json(header) or {}
    try:
        begin = CopiedFile(
            str(value["server_uuid"]), str(value["file"]), int(value["pos"]), base64.b64decode(value["description"])
        )
        found = LogSegment(int(header.stem), header.parent, begin, GtidSet.parse(value["before"]))
        found.whole = found.path.stat().st_size, begin.pos
    except (KeyError, TypeError, ValueError, HeadgateError, OSError):
        raise ConfigError(
            f"{header} and the file beside it are not a kept log: remove the folder, and the log is kept anew"
        ) from None
    return found


@contextlib.contextmanager
def _target(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TargetError(f"the relay's log {path} cannot be used: {error.strerror or error}") from None

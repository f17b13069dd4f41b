"""The files of a binlog archive. A segment holds a range of the packets of one binlog file of one server.

``<number>.json``, its header, has the server, the start position, and the transactions before it. ``<number>.packets``
has the packets, appended by one thread. The header is on disk, whole, before the first packet, and the packets of the
segment before it are, too, so a machine failure damages the newest segment only. When the files are opened again, its
packets are parsed, and bytes after the last whole transaction are cut off.

A header also has the size of the segment before it. So a file that is missing or cut, by whatever hand, is a gap that
the next start finds: what comes before is deleted. If it is the newest one, the server's log replaces it.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.errors import BinlogPurgedError, ConfigError, HeadgateError, TargetError
from headgate.files import file_errors, open_private, read_json, write_all, write_json
from headgate.gtid import GtidSet
from headgate.offsets import Last
from headgate.replication import CopiedEvents, CopiedFile, LogCopy

__all__ = ["LogSegment", "Mark", "ParsedSegment", "SegmentSizes", "stored_log"]

log = logging.getLogger("headgate")

_SUFFIX: Final = ".packets"
_UNSYNCED_BYTES: Final = 4 << 20
"""Most bytes of a growing segment that are left to the sync at its end."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SegmentSizes:
    """Sizes of an archive's segments, in bytes."""

    smallest: int = 64 << 10
    largest: int = 64 << 20
    between_marks: int = 256 << 10
    """Most bytes that are read in vain by a reader that begins inside a segment."""


class Mark(NamedTuple):
    """A position between two transactions."""

    offset: int
    """Bytes before it in the segment."""
    pos: int
    """Position in the server's file."""
    gtid: GtidSet
    """All transactions before it."""


class ParsedSegment(NamedTuple):
    """The content of a segment's file, up to the last whole transaction before any damage."""

    whole: tuple[int, int]
    """As :attr:`LogSegment.whole`."""
    marks: list[Mark]
    """As :attr:`LogSegment.marks`."""
    gtid: GtidSet
    """All transactions before its end."""
    last: Last | None
    """The last of them that was read."""


@dataclass
class LogSegment:
    """A range of one binlog file."""

    number: int
    folder: Path
    begin: CopiedFile
    before: GtidSet
    """All transactions before it."""
    last_before: Last | None
    """The last of them that was read; None: none was."""
    between_marks: int
    previous: int = 0
    """Bytes of the segment before it."""
    whole: tuple[int, int] = (0, 0)
    """Bytes of whole transactions, and the position after them in the server's file. While it grows it is replaced as
    one value, so that concurrent readers see two numbers that belong together. -1 bytes: the stored file is missing."""
    marks: list[Mark] | None = field(default=None, repr=False)
    """Positions where a reader may begin, in order; None: not known yet (:meth:`parse`)."""
    _file: Any = field(default=None, repr=False)
    _written: int = 0
    _synced: int = 0
    _is_torn: bool = False
    """Whether the file may have a part of packets after what was written."""

    @property
    def size(self) -> int:
        """Bytes of whole transactions."""
        return self.whole[0]

    @property
    def path(self) -> Path:
        """The file with the packets."""
        return self.folder / f"{self.number:012d}{_SUFFIX}"

    def precedes(self, following: LogSegment) -> bool:
        """Whether the stored segment is whole, and nothing is missing between it and ``following``."""
        return (self.number + 1, self.size) == (following.number, following.previous)

    @property
    def _header(self) -> Path:
        return self.folder / f"{self.number:012d}.json"

    # --- writing

    def create(self) -> None:
        """Create the files.

        :raises HeadgateError: they cannot be created.
        """
        begin = self.begin
        header = {
            "v": 1,
            "server_uuid": begin.server_uuid,
            "file": begin.file,
            "pos": begin.pos,
            "description": base64.b64encode(begin.description).decode(),
            "before": str(self.before),
            "last": self.last_before and asdict(self.last_before),
            "previous": self.previous,
        }
        with contextlib.ExitStack() as undo, _target(self.path):
            file = undo.enter_context(open_private(self.path, "wb", buffering=0))
            write_json(self._header, header)
            undo.pop_all()
        self._file, self.marks, self.whole = file, [Mark(0, begin.pos, self.before)], (0, begin.pos)

    def append(self, data: Bytes) -> None:
        """Append packets. They become visible with :meth:`commit`.

        :raises HeadgateError: the file cannot be written; :meth:`drop_open` must precede another try.
        """
        self._is_torn = True
        with _target(self.path):
            write_all(self._file, data.data)
        self._is_torn = False
        self._written += len(data)

    def commit(self, pos: int) -> None:
        """Make everything appended visible: whole transactions up to a position."""
        self.whole = self._written, pos

    def mark(self, gtid: GtidSet) -> None:
        """Record ``gtid`` as the transactions up to the last commit."""
        if self.marks is not None:
            self.marks.append(Mark(*self.whole, gtid))

    @property
    def wants_mark(self) -> bool:
        """Whether the last mark is at least ``between_marks`` behind."""
        return self.marks is not None and self.size - self.marks[-1].offset >= self.between_marks

    def drop_open(self) -> None:
        """Cut off uncommitted bytes.

        :raises HeadgateError: the file cannot be written.
        """
        if self._file is not None and (self._is_torn or self._written != self.size):
            with _target(self.path):
                self._file.truncate(self.size)
                self._file.seek(self.size)
            self._written, self._is_torn = self.size, False

    def reopen(self) -> None:
        """Resume writing a stored segment."""
        with _target(self.path):
            self._file = self.path.open("r+b", buffering=0)
            self._file.truncate(self.size)
            self._file.seek(self.size)
        self._written = self.size

    def sync_parts(self) -> None:
        """Sync the file if much was appended since the last time, so that the end of the segment has little to sync.

        :raises TargetError: the file cannot be written.
        """
        if self._file is not None and self._written - self._synced > _UNSYNCED_BYTES:
            written = self._written
            with _target(self.path):
                os.fsync(self._file.fileno())
            self._synced = written

    def complete(self) -> None:
        """Cut off uncommitted bytes, and sync the file, if it is open.

        :raises HeadgateError: the file cannot be written.
        """
        if self._file is not None:
            self.drop_open()
            if self._synced != self._written:
                with _target(self.path):
                    os.fsync(self._file.fileno())
                self._synced = self._written

    def close(self) -> None:
        """Complete and close the file.

        :raises HeadgateError: the file cannot be written.
        """
        if self._file is not None:
            self.complete()
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the files; readers that have them open can continue to read. Without its header a segment is not
        part of the archive, so a kill between the two leaves packets that the next start deletes.
        """
        self.close()
        with _target(self.path):
            self._header.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    # --- reading

    def open(self) -> int:
        """Return a file descriptor for reading; the caller closes it.

        :raises BinlogPurgedError: it was removed.
        """
        try:
            return os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            raise BinlogPurgedError(f"the relay deleted a part of its log while it was read: {self.path}") from None

    def parse(self) -> ParsedSegment:
        """Parse the file. The segment stays as it is, so that the caller can compare first (:meth:`accept`).

        :raises BinlogPurgedError: it was removed.
        :raises TargetError: it cannot be read.
        """
        with _target(self.path), os.fdopen(self.open(), "rb") as file:
            data = np.fromfile(file, np.uint8)
        begin = self.begin
        copy = LogCopy(begin.server_uuid, self.before)
        first = np.frombuffer(begin.prologue(begin.pos, checksum=True), np.uint8)
        at = 0
        while at < len(first):
            _, at = copy.next(first, at, len(first))
        marks, at, stop = [Mark(0, begin.pos, self.before)], 0, 0
        size, end, gtid, last = 0, begin.pos, self.before, self.last_before
        with contextlib.suppress(HeadgateError):  # damaged bytes count as not written
            while stop < len(data) or at < stop:
                stop = min(len(data), max(stop, at + self.between_marks))
                item, used = copy.next(data, at, stop)
                if isinstance(item, CopiedEvents) and item.whole:
                    size, end, gtid, last = at + item.whole, item.pos, item.gtid, item.last or last
                    if size - marks[-1].offset >= self.between_marks:
                        marks.append(Mark(size, end, gtid))
                if used == at:
                    if stop == len(data):
                        break
                    stop = min(len(data), at + max(copy.needed, 2 * (stop - at)))
                at = used
        return ParsedSegment((size, end), marks, gtid, last)

    def accept(self, parsed: ParsedSegment) -> None:
        """Take what was parsed as the content; the rest of the file counts as not written."""
        self.whole, self.marks = parsed.whole, parsed.marks


def stored_log(folder: Path, sizes: SegmentSizes) -> tuple[list[LogSegment], GtidSet, Last | None]:
    """Return the stored segments, oldest first and without a gap, all transactions up to their end, and the last of
    these that was read. The last segment is open for writing. Delete what comes before a gap.

    :raises HeadgateError: a file cannot be read.
    """
    segments = [_stored(header, sizes) for header in sorted(folder.glob("*.json")) if header.stem.isdigit()]
    known = {one.path for one in segments}
    for path in folder.glob(f"*{_SUFFIX}"):
        if path not in known:  # the header was not written yet, or was deleted first
            with _target(path):
                path.unlink()
    while segments and segments[-1].size < 0:
        _drop(segments, len(segments) - 1, len(segments))
    for at in reversed(range(len(segments) - 1)):
        if not segments[at].precedes(segments[at + 1]):
            _drop(segments, 0, at + 1)
            break
    if not segments:
        return [], GtidSet(), None
    newest = segments[-1].parse()
    segments[-1].accept(newest)
    segments[-1].reopen()
    return segments, newest.gtid, newest.last


def _drop(segments: list[LogSegment], first: int, last: int) -> None:
    log.warning("%s is missing or cut: a part of the relay's log is dropped", segments[last - 1].path)
    for one in segments[first:last]:
        one.remove()
    del segments[first:last]


def _stored(header: Path, sizes: SegmentSizes) -> LogSegment:
    value = read_json(header) or {}
    try:
        begin = CopiedFile(
            str(value["server_uuid"]), str(value["file"]), int(value["pos"]), base64.b64decode(value["description"])
        )
        before, last = GtidSet.parse(value["before"]), value["last"] and Last.from_dict(value["last"])
        number, previous = int(header.stem), int(value["previous"])
        segment = LogSegment(number, header.parent, begin, before, last, sizes.between_marks, previous)
        segment.whole = (segment.path.stat().st_size if segment.path.exists() else -1), begin.pos
    except (KeyError, TypeError, ValueError, HeadgateError, OSError):
        raise ConfigError(
            f"{header} and its .packets file are not a binlog archive: remove the folder to start a new one"
        ) from None
    return segment


def _target(path: Path) -> contextlib.AbstractContextManager[None]:
    return file_errors(f"the relay's log {path} cannot be used", TargetError)

"""Positions in a log: one algebra, several kinds.

**What a position is.** The set of everything that was logged before some point. So the order of positions is the order
of sets, the range between two is their difference, and what two logs share is their intersection. Offsets, the ledger,
tasks and dumps use only :class:`Position`, and never ask which kind one is.

======================= ============================================ ==============================================
kind                    set of                                       text
======================= ============================================ ==============================================
:class:`GtidSet`        transactions, by the names MySQL gives them  ``uuid:1-5,uuid:tag:7``
:class:`LogPlace`       bytes of one server's files (GTIDs are off)  ``uuid@3:157``; a range ``uuid@3:157-4:200``
======================= ============================================ ==============================================

**Guarantees.** A dump of ``E - S`` asks for (:meth:`Position.request`), counts (:meth:`Position.key_of`) and ends at
(:meth:`Position.is_complete`) exactly the transactions that ``E`` contains and ``S`` does not. The text of a position
parses to the same position, so a restart continues where the stored one ends.

**Why this is safe without GTIDs.** A file only grows, so such a log has no gaps, and a byte's position is the set of
all bytes before it: the numbers ``1-n``, where n is ``file number · 2⁴⁰ + byte``. A transaction that begins at byte
n - 1 has the number n, and is in ``E - S`` exactly if it begins between both. The set names its server. Another one has
executed nothing of it, so a stream cannot fail over by file and byte, and stops. Files are at most 2⁴⁰ bytes, their
numbers below 2²³.

**Two kinds do not mix.** They have nothing in common, so a server whose ``gtid_mode`` was switched has executed nothing
of the stream's position. :func:`check_kind` says so before anything is read. A log that holds transactions of both
kinds is refused where such a transaction is met (:meth:`Position.key_of`).

**A further kind**, such as MariaDB's GTID domains, is a subclass of :class:`Position` in :data:`KINDS`, and how
:func:`read_executed` recognises its servers. No caller asks which kind a position is (``tests/domains.py`` is such a
kind). ``docs/architecture/positions.md`` lists what a kind answers, and the files that a server of it touches.
"""

from __future__ import annotations

import re
import uuid as _uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import ClassVar, Final, NamedTuple, Self

from headgate.errors import BinlogPurgedError, ConfigError, ServerSettingError
from headgate.gtid import DumpStart, Gtid, GtidSet, LogServer, Position, mixed_log_error

__all__ = [
    "KINDS",
    "NOTHING",
    "DumpStart",
    "ExecutedLog",
    "FilePosition",
    "LogPlace",
    "LogServer",
    "NamedStart",
    "Position",
    "check_kind",
    "file_number",
    "gtids_of",
    "mixed_log_error",
    "parse_position",
    "parse_start",
    "read_executed",
]

_POS_BITS: Final = 40
_TAG: Final = "_headgate_bytes"
"""Tag of a place's numbers, which no GTID has. So a decoder tells them from the GTIDs that its scan meets by itself."""


class LogPlace(Position):
    """A place in the log of a server with ``gtid_mode=OFF``: the set of all bytes before it."""

    __slots__ = ()
    gtid_mode: ClassVar[str] = "OFF"
    has_gtids: ClassVar[bool] = False
    requests_transactions: ClassVar[bool] = False
    executed_is_visible: ClassVar[bool] = False

    @classmethod
    def before(cls, server_uuid: str, file: int, pos: int) -> Self:
        """Return the place at byte ``pos`` of a file, which has this number."""
        return cls({(_uuid.UUID(server_uuid).bytes, _TAG): [(1, _number(file, pos))]})

    @property
    def server_uuid(self) -> str:
        return str(_uuid.UUID(bytes=next(self.intervals())[0]))

    @property
    def begin(self) -> FilePosition:
        """The first byte's position."""
        return _file_position(next(first for _, _, first, _ in self.intervals()) - 1)

    @property
    def end(self) -> FilePosition:
        """The position behind the last byte."""
        return _file_position([last for _, _, _, last in self.intervals()][-1])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set with this text; ConfigError for any other text."""
        place = cls()
        for piece in text.split(",") if text.strip() else ():
            match = _PLACE.fullmatch(piece.strip().lower())
            if match is None:
                raise ConfigError(f"not a position: {piece.strip()!r}; expected uuid@file:byte, as in …@3:157")
            first, last = ((0, 0), match.group(2, 3)) if match[4] is None else (match.group(2, 3), match.group(4, 5))
            numbers = _number(int(first[0]), int(first[1])) + 1, _number(int(last[0]), int(last[1]))
            place |= cls({(_uuid.UUID(match[1]).bytes, _TAG): [numbers]})
        return place

    @classmethod
    def reads(cls, text: str) -> bool:
        return "@" in text

    def __str__(self) -> str:
        texts = []
        for uuid, _, first, last in self.intervals():
            begin = "" if first == 1 else "{}:{}-".format(*_file_position(first - 1))
            texts.append(f"{_uuid.UUID(bytes=uuid)}@{begin}" + "{}:{}".format(*_file_position(last)))
        return ",".join(texts)

    def transactions(self) -> None:
        return None

    def newest(self, most: int) -> Self:
        return self

    def is_in_log_of(self, server_uuid: str) -> bool:
        return bool(self) and self.server_uuid == server_uuid

    def at(self, file: int, pos: int) -> Self:
        return self.before(self.server_uuid, file, pos)

    def purged(self, server: LogServer, gtid_purged: str) -> Self:
        return self.at(file_number(server.log_files()[0][0]), _FIRST_BYTE)

    def before_file(self, file: int, previous_gtids: Callable[[], Position]) -> Self:
        return self.at(file, _FIRST_BYTE)

    def request(self, server: LogServer, executed: Self, *, inside: bool) -> DumpStart:
        file, pos = self.begin if inside else self.end
        name = next((name for name, _ in server.log_files() if file_number(name) == file), None)
        if name is None:
            raise BinlogPurgedError(f"the server has purged the file of {self}", needed=str(self), purged="")
        return DumpStart(None, name, pos)

    def key_of(self, gtid: Gtid | None, file: int, pos: int) -> Gtid:
        if gtid is not None:
            raise mixed_log_error(with_gtid=True)
        return Gtid(next(self.intervals())[0], _TAG, _number(file, pos) + 1)

    def received(self, gtids: Callable[[], Position], reached: tuple[int, int] | None) -> Position:
        return NOTHING if reached is None else self.at(*reached)

    def is_complete(self, received: int, reached: tuple[int, int]) -> bool:
        return not self or reached >= self.end


NOTHING: Final[Position] = GtidSet()
"""The empty position, of every kind: nothing was read."""

KINDS: tuple[type[Position], ...] = (LogPlace, GtidSet)
"""The kinds, in the order in which a text is compared with them."""


def parse_position(text: str) -> Position:
    """Return the position with this text, of any kind; ConfigError if there is none."""
    return next(kind for kind in KINDS if kind.reads(text)).parse(text)


def gtids_of(position: Position, reader: str) -> GtidSet:
    """Return a position as GTIDs, for a reader that knows no other kind.

    :raises ServerSettingError: it is of another kind.
    """
    if not isinstance(position, GtidSet):
        raise ServerSettingError(
            f"{reader} needs GTIDs: SET GLOBAL gtid_mode = ON, step by step",
            setting="gtid_mode",
            expected="ON",
            actual="OFF",
        )
    return position


def check_kind(position: Position, executed: Position) -> None:
    """Check that a stream's position is of the kind that its server has. Empty ones are of every kind.

    :raises ServerSettingError: it is not.
    """
    if position and executed and type(position) is not type(executed):
        raise ServerSettingError(
            f"the stream's position is {position}, and the server's {executed}: without its gtid_mode of before the"
            " tables have to be read again, with a new checkpoint and target",
            setting="gtid_mode",
            expected=position.gtid_mode,
            actual=executed.gtid_mode,
        )


@dataclass(frozen=True)
class ExecutedLog:
    """The end of a server's log at one moment."""

    server_uuid: str
    executed: Position
    """Everything logged: all of ``gtid_executed``, or without GTIDs all bytes, not all of which need be visible to a
    SELECT yet."""
    gtid_purged: str
    """Read before ``executed``, and so a part of it."""

    def purged(self, server: LogServer) -> Position:
        """Return what the server no longer has of it."""
        return self.executed.purged(server, self.gtid_purged)


def read_executed(server: LogServer) -> ExecutedLog:
    """Return the end of a server's log, of the kind that its ``gtid_mode`` makes.

    :raises ServerSettingError: the mode is neither ON nor OFF, so the log may hold transactions of both kinds.
    """
    mode, uuid, purged, executed = (
        str(value)
        for value in server.query(
            "SELECT @@global.gtid_mode, @@global.server_uuid, @@global.gtid_purged, @@global.gtid_executed"
        )[0]
    )
    if mode.upper() == GtidSet.gtid_mode:
        return ExecutedLog(uuid, GtidSet.parse(executed), purged)
    if mode.upper() != LogPlace.gtid_mode:
        raise ServerSettingError(
            f"gtid_mode is {mode}, so some transactions in the log may have no GTID: SET GLOBAL gtid_mode = ON, or OFF",
            setting="gtid_mode",
            expected="ON or OFF",
            actual=mode,
        )
    file, pos = server.log_status()
    return ExecutedLog(uuid, LogPlace.before(uuid, file_number(file), pos), purged)


class NamedStart(Enum):
    """Start positions that depend on the server's present state."""

    CURRENT = "current"
    EARLIEST = "earliest"


class FilePosition(NamedTuple):
    """A start position in the log of a server without GTIDs."""

    file: int
    """The file's number."""
    pos: int
    """Bytes from the start of the file."""


def parse_start(text: str) -> NamedStart | datetime | FilePosition | Position:
    """Parse a start position, as commands and configurations take it: without a server and without a clock.

    :returns: a name; a time with its zone (the first transaction committed then or later is the first to read); a file
        and position; or the position before which everything counts as already read.
    :raises ConfigError: none of these, or a time without zone.
    """
    name = text.lower()
    if name in {start.value for start in NamedStart}:
        return NamedStart(name)
    if _TIME.fullmatch(text):
        return _time(text)
    match = _FILE_POSITION.fullmatch(text)
    if match is not None:
        return FilePosition(int(match[1]), int(match[2]))
    try:
        return parse_position(text)
    except ConfigError:
        raise ConfigError(
            f"the start is {text!r}; expected current, earliest, a time or a GTID set (uuid:1-5), on a server without"
            " GTIDs file:position (binlog.000003:157)"
        ) from None


def file_number(name: str) -> int:
    """Return the number of a binlog file: ``binlog.000042`` → 42 (the value of ``_seq.file``); 0 if it has none."""
    number = _NUMBERED.search(name)
    return 0 if number is None else int(number[1])


_NUMBERED: Final = re.compile(r"(?:^|\.)([0-9]{1,18})\Z")
"""The largest number is 2,147,483,647: ``MAX_LOG_UNIQUE_FN_EXT`` in MySQL's ``sql/binlog.h``."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")
_FILE_POSITION: Final = re.compile(r"\S*\.([0-9]{1,9}):([0-9]{1,13})")


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))
    except ValueError:
        raise ConfigError(f"the start is {text!r}; a time looks like 2026-11-21T10:00:00Z") from None
    if moment.tzinfo is None:
        raise ConfigError(f"the start is {text!r}: add its zone, as in {text}Z or {text}+01:00")
    return moment


_PLACE: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})@([0-9]{1,7}):([0-9]{1,13})(?:-([0-9]{1,7}):([0-9]{1,13}))?"
)
_FIRST_BYTE: Final = 4
"""Position of a file's first event, behind the magic number."""


def _number(file: int, pos: int) -> int:
    """Return how many bytes precede a position."""
    return (file << _POS_BITS) + pos


def _file_position(number: int) -> FilePosition:
    return FilePosition(number >> _POS_BITS, number & ((1 << _POS_BITS) - 1))

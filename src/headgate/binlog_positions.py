"""Positions in a binlog without GTIDs, written as sets, so that both kinds of position share one arithmetic.

On a server with ``gtid_mode=OFF`` a position is a file and a byte. Such a server's log has no gaps, so the position can
be written as the set of all positions before it. The number of a position is ``file number * 2**40 + byte``. The set of
the positions before number n is the interval ``1-n`` of a source that no server has: the server's UUID with the tag
:data:`TAG`. Then

- a later position of the same server contains an earlier one; one of another server does not. So failing over by file
  and byte is impossible, and shows as transactions that the other server lacks;
- the range between two positions is their difference, an interval. A transaction that begins at position n - 1 is
  number n of it, so it is between S and E exactly if E contains it and S does not;
- planning, offsets, ledger and tasks need no special case. Only two things differ: how a range is requested (by file
  and position, ``replication/_dump.py``) and how a decoder numbers a transaction (by its position).

Files are at most 2**40 bytes, their numbers below 2**23.
"""

from __future__ import annotations

import re
import uuid as _uuid
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from headgate.errors import ConfigError
from headgate.gtid import GtidSet

__all__ = [
    "TAG",
    "BinlogPosition",
    "FilePosition",
    "NamedStart",
    "begin_of",
    "end_of",
    "file_number",
    "number_at",
    "parse_start",
    "positions_before",
    "transactions",
]

TAG: Final = "_headgate_log_position"
"""The tag of sources that are positions, not GTIDs. Users choose the tags of real GTIDs and do not use this one."""
_POS_BITS: Final = 40


class BinlogPosition(NamedTuple):
    """A position in the log of one server."""

    server_uuid: str
    file: int
    """The file's number."""
    pos: int
    """Bytes from the start of the file."""


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


def parse_start(text: str) -> NamedStart | datetime | FilePosition | GtidSet:
    """Parse a start position, as commands and configurations take it: without a server and without a clock.

    :returns: a name; a time with its zone (the first transaction committed then or later is the first to read); a file
        and position; or the GTID set that counts as already read.
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
        return GtidSet.parse(text)
    except ConfigError:
        raise ConfigError(
            f"the start is {text!r}; expected current, earliest, a time or a GTID set (uuid:1-5), on a server without"
            " GTIDs file:position (binlog.000003:157)"
        ) from None


def file_number(name: str) -> int:
    """Return the number of a binlog file: ``binlog.000042`` → 42 (the value of ``_seq.file``); 0 if it has none."""
    number = _NUMBERED.search(name)
    return 0 if number is None else int(number[1])


def number_at(file: int, pos: int) -> int:
    """Return the number of a position: how many positions precede it."""
    return (file << _POS_BITS) + pos


def positions_before(server_uuid: str, file: int, pos: int) -> GtidSet:
    """Return the set of everything before a position."""
    return GtidSet({(_uuid.UUID(server_uuid).bytes, TAG): [(1, number_at(file, pos))]})


def end_of(gtids: GtidSet) -> BinlogPosition | None:
    """Return the position at which a set ends; None if it is a set of GTIDs."""
    ends = [(uuid, last) for uuid, tag, _, last in gtids.intervals() if tag == TAG]
    return None if not ends else _position(*ends[-1])


def begin_of(gtids: GtidSet) -> BinlogPosition | None:
    """Return the position at which a range begins; None if it is a set of GTIDs."""
    begins = [(uuid, first - 1) for uuid, tag, first, _ in gtids.intervals() if tag == TAG]
    return None if not begins else _position(*begins[0])


def transactions(gtids: GtidSet) -> int:
    """Return how many transactions a set names; positions do not count."""
    return sum(last - first + 1 for _, tag, first, last in gtids.intervals() if tag != TAG)


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


def _position(uuid: bytes, number: int) -> BinlogPosition:
    return BinlogPosition(str(_uuid.UUID(bytes=uuid)), number >> _POS_BITS, number & ((1 << _POS_BITS) - 1))

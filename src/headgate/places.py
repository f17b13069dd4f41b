"""Places in a log without GTIDs, written as sets, so that positions of both kinds obey one arithmetic.

On a server with ``gtid_mode=OFF`` a position in the log is a file and a byte. Everything that such a server logs before
it is a stretch without gaps, so the position *is* a set: of all places before it. A place is a number,
``file number * 2**40 + byte``, and the set of the places before number n is the interval ``1-n`` of a source that no
server has: the server's UUID with the tag :data:`TAG`. Then

- a position is contained in a later one, and not in one of another server: failing over by file and byte is impossible,
  and shows as transactions that the other server lacks;
- what lies between two positions is their difference, an interval; a transaction that begins at place n - 1 is number n
  of it, so it lies between S and E exactly if S does not contain it and E does;
- planning, offsets, ledger and tasks need no word about it. What differs is how such a stretch is asked of the server
  (by file and position, ``replication/_dump.py``) and how a decoder knows a transaction's number (by its place).

Files are at most 2**40 bytes, their numbers below 2**23.
"""

from __future__ import annotations

import uuid as _uuid
from typing import Final, NamedTuple

from headgate.gtid import GtidSet

__all__ = ["TAG", "LogPlace", "begin_of", "end_of", "file_number", "number_at", "places_before", "transactions"]

TAG: Final = "_headgate_log_position"
"""The tag of sources that are no GTIDs but places. Servers' own tags are made by people; nobody has this one."""
_POS_BITS: Final = 40


class LogPlace(NamedTuple):
    """A place in the log of one server."""

    server_uuid: str
    file: int
    """The file's number."""
    pos: int
    """Bytes from the file's beginning."""


def file_number(name: str) -> int:
    """The number of a binlog file: ``binlog.000042`` → 42 (what ``_seq.file`` holds); 0 if there is none."""
    digits = name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0


def number_at(file: int, pos: int) -> int:
    """How many places there are before this one."""
    return (file << _POS_BITS) + pos


def places_before(server_uuid: str, file: int, pos: int) -> GtidSet:
    """Everything before a place."""
    return GtidSet({(_uuid.UUID(server_uuid).bytes, TAG): [(1, number_at(file, pos))]})


def end_of(gtids: GtidSet) -> LogPlace | None:
    """The place at which a set of places ends; None: it is a set of GTIDs."""
    ends = [(uuid, last) for uuid, tag, _, last in gtids.intervals() if tag == TAG]
    return None if not ends else _place(*ends[-1])


def begin_of(gtids: GtidSet) -> LogPlace | None:
    """The place at which a stretch begins; None: it is a set of GTIDs."""
    begins = [(uuid, first - 1) for uuid, tag, first, _ in gtids.intervals() if tag == TAG]
    return None if not begins else _place(*begins[0])


def transactions(gtids: GtidSet) -> int:
    """How many transactions a set names; places are none."""
    return sum(last - first + 1 for _, tag, first, last in gtids.intervals() if tag != TAG)


def _place(uuid: bytes, number: int) -> LogPlace:
    return LogPlace(str(_uuid.UUID(bytes=uuid)), number >> _POS_BITS, number & ((1 << _POS_BITS) - 1))

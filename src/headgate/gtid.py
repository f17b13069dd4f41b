"""Sets of MySQL transaction identifiers (GTIDs), with exact algebra, which is that of every position in a log.

A position is such a set: everything in it was already read (``headgate.positions``). Its form is ``(uuid, tag) ->
inclusive intervals``, sorted, disjoint, adjacent intervals joined. So equal sets are equal objects, print alike and
encode alike.

Text is MySQL's (MySQL Reference Manual, "GTID Format and Storage"): ``uuid:1-5:7:tag:1-2, uuid2:9``. Bytes are the two
layouts that the server uses in COM_BINLOG_DUMP_GTID and in PREVIOUS_GTIDS events (MySQL source sql/rpl_gtid_set.cc,
``Gtid_set::encode``):

untagged
    ``u64 n``, then per UUID ``16 bytes, u64 intervals, (u64 first, u64 last + 1) …``
tagged
    ``01, n as u48, 01``, then per (UUID, tag) ``16 bytes, varint tag length, tag, u64 intervals, (u64, u64) …``

All integers are little-endian. The varint is one byte, ``length << 1``, because a tag has at most 32 characters.
"""

from __future__ import annotations

import re
import struct
import uuid as _uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.errors import ConfigError, DecodeError, ServerSettingError

__all__ = ["MAX_NUMBER", "DumpStart", "Gtid", "GtidSet", "GtidSetBuilder", "LogServer", "Position", "mixed_log_error"]

MAX_NUMBER = 2**63 - 2
"""The largest transaction number MySQL assigns: ``last + 1`` still fits a signed 64-bit integer."""

Interval: TypeAlias = tuple[int, int]
"""First and last number, both included."""
_Key: TypeAlias = tuple[bytes, str]
_Intervals: TypeAlias = tuple[Interval, ...]

_UUID = re.compile(r"\{?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\}?")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"([0-9]{1,19})(?:\s*-\s*([0-9]{1,19}))?")


def _uuid_text(uuid: bytes) -> str:
    text = uuid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Gtid(NamedTuple):
    """One transaction: 16 UUID bytes, the tag in lower case (``""`` = none), the number (≥ 1)."""

    uuid: bytes
    tag: str
    number: int

    def __str__(self) -> str:
        tag = f"{self.tag}:" if self.tag else ""
        return f"{_uuid_text(self.uuid)}:{tag}{self.number}"

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Parse ``uuid[:tag]:number``; ConfigError for anything else."""
        gtids = GtidSet.parse(text)
        if gtids.count() != 1:
            raise ConfigError(f"not one GTID: {text!r}; expected uuid:number or uuid:tag:number")
        return next(iter(gtids))


class DumpStart(NamedTuple):
    """What a dump asks for."""

    executed_before: bytes | None
    """A GTID set in the server's layout: everything outside it. None: everything from a position in a file on."""
    file: str = ""
    pos: int = 0


class LogServer(Protocol):
    """A connection to the server whose log is read."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a small query."""

    def log_status(self) -> tuple[str, int]:
        """Return the file and position of the log's current end."""

    def log_files(self) -> list[tuple[str, int]]:
        """Return names and sizes (bytes) of the log's files, oldest first."""


class Position(ABC):
    """A part of a log, mostly everything up to some point: an immutable, hashable set.

    ``|``, ``&`` and ``-`` make sets, ``<=`` tests for a subset, ``str`` and :func:`headgate.positions.parse_position`
    are inverse. Empty sets are equal, whatever their kind. Sets of two kinds have nothing in common.
    """

    __slots__ = ("_hash", "_sets")

    _sets: dict[_Key, _Intervals]
    _hash: int | None
    gtid_mode: ClassVar[str] = "ON"
    """Value of the server's setting ``gtid_mode`` that makes positions of this kind."""
    has_gtids: ClassVar[bool] = True
    """Whether each transaction in the log has a GTID, which is the ``_gtid`` of its changes; if False, none has."""
    requests_transactions: ClassVar[bool] = True
    """Whether a dump can be requested of single transactions; if False, of everything from a position on."""
    executed_is_visible: ClassVar[bool] = True
    """Whether a SELECT sees all that the server has executed; if False, only after the commit of a watermark row."""

    def __init__(self, intervals: Mapping[_Key, Iterable[Interval]] | None = None) -> None:
        """Build from ``(16 UUID bytes, tag) -> inclusive intervals`` in any order; intervals may overlap or touch."""
        self._sets = _sorted({key: _normalise(list(numbers)) for key, numbers in (intervals or {}).items()})
        self._hash = None

    @classmethod
    def _of(cls, sets: dict[_Key, _Intervals]) -> Self:
        """Build from normalised parts; empty ones are dropped."""
        position = cls.__new__(cls)
        position._sets, position._hash = _sorted(sets), None
        return position

    # -- inspection

    def __bool__(self) -> bool:
        return bool(self._sets)

    def count(self) -> int:
        """Return how many transactions the set has; without GTIDs, how many bytes."""
        return sum(b - a + 1 for intervals in self._sets.values() for a, b in intervals)

    def intervals(self) -> Iterator[tuple[bytes, str, int, int]]:
        """Yield ``(uuid bytes, tag, first, last)`` by UUID, tag (none first), number."""
        for (uuid, tag), intervals in self._sets.items():
            for first, last in intervals:
                yield uuid, tag, first, last

    def parts(self) -> Iterator[Self]:
        """Yield the intervals as sets."""
        return (self._of({(uuid, tag): ((first, last),)}) for uuid, tag, first, last in self.intervals())

    def only(self, key: Gtid) -> Self:
        """Return the set of this transaction alone."""
        return self._of({(key.uuid, key.tag): ((key.number, key.number),)})

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, Gtid):
            return False
        intervals = self._sets.get((key.uuid, key.tag), ())
        low, high = 0, len(intervals)
        while low < high:
            middle = (low + high) // 2
            if intervals[middle][1] < key.number:
                low = middle + 1
            else:
                high = middle
        return low < len(intervals) and intervals[low][0] <= key.number

    def as_arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return untagged intervals, sorted: ``sid uint8[n, 16]``, ``first int64[n]``, ``last int64[n]``."""
        untagged = [(uuid, first, last) for uuid, tag, first, last in self.intervals() if not tag]
        sid = np.frombuffer(b"".join(uuid for uuid, _, _ in untagged), dtype=np.uint8).reshape(len(untagged), 16).copy()
        first = np.array([a for _, a, _ in untagged], dtype=np.int64)
        last = np.array([b for _, _, b in untagged], dtype=np.int64)
        return sid, first, last

    # -- algebra

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self._sets == other._sets

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._sets.items()))
        return self._hash

    def __or__(self, other: Self) -> Self:
        if not other or not self:
            return self or other
        if type(self) is not type(other):
            raise ConfigError(f"positions of two kinds, {self} and {other}: give both as the server has them")
        sets = dict(self._sets)
        for key, intervals in other._sets.items():
            mine = sets.get(key)
            sets[key] = intervals if mine is None else _normalise([*mine, *intervals])
        return self._of(sets)

    def __and__(self, other: Self) -> Self:
        return self._of({key: _intersect(mine, other._sets.get(key, ())) for key, mine in self._sets.items()})

    def __sub__(self, other: Self) -> Self:
        return self._of({key: _subtract(mine, other._sets.get(key, ())) for key, mine in self._sets.items()})

    def __le__(self, other: Self) -> bool:
        return not self - other

    def __lt__(self, other: Self) -> bool:
        return self != other and self <= other

    def __ge__(self, other: Self) -> bool:
        return other <= self

    def __gt__(self, other: Self) -> bool:
        return other < self

    # -- text

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Return the set with this text; ConfigError for any other text."""

    @classmethod
    def reads(cls, text: str) -> bool:
        """Return whether a text looks like one of this kind."""
        return True

    @abstractmethod
    def __str__(self) -> str:
        pass

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).parse, (str(self),))

    # -- a log and its server; a kind whose elements are transactions needs only a request

    def transactions(self) -> int | None:
        """Return how many transactions the set has; None: unknown."""
        return self.count()

    def newest(self, most: int) -> Self:
        """Return the part whose headers in the log show its newest transaction: all of it, or of more than ``most``
        transactions the highest number of each source. (Numbers do not show which of these is the last in the log.)
        """
        if self.count() <= most:
            return self
        return self._of({key: ((numbers[-1][1], numbers[-1][1]),) for key, numbers in self._sets.items()})

    def is_in_log_of(self, server_uuid: str) -> bool:
        """Return whether only this server can ever have had it."""
        return False

    def at(self, file: int, pos: int) -> Self:
        """Return everything before a position in the files of the same server.

        :raises ConfigError: positions of this kind are not positions in files.
        """
        raise ConfigError(f"the server has GTIDs, so {file}:{pos} is no position: give a GTID set (uuid:1-5)")

    def purged(self, server: LogServer, gtid_purged: str) -> Self:
        """Return what the server has purged of its log, which has this end.

        :param gtid_purged: the variable of that name.
        """
        return self.parse(gtid_purged)

    def before_file(self, file: int, previous_gtids: Callable[[], Position]) -> Position:
        """Return everything that the server, whose log has this end, logged before a file began.

        :param previous_gtids: reads it from the event that begins the file.
        """
        return previous_gtids()

    @abstractmethod
    def request(self, server: LogServer, executed: Self, *, inside: bool) -> DumpStart:
        """Return what a dump asks for.

        :param executed: what the server has executed.
        :param inside: True: to receive this set; False: everything outside it.
        """

    def key_of(self, gtid: Gtid | None, file: int, pos: int) -> Gtid:
        """Return the key of a transaction in the log.

        :param gtid: its GTID, if it has one.
        :param file: number of the file where it begins, at ``pos``.
        :raises ServerSettingError: positions of this kind cannot count it.
        """
        if gtid is None:
            raise mixed_log_error(with_gtid=False)
        return gtid

    def received(self, gtids: Callable[[], Position], reached: tuple[int, int] | None) -> Position:
        """Return what a dump has delivered whole, as a set of this kind.

        :param gtids: returns the keys of the transactions received.
        :param reached: file number and position that the dump has reached without an open transaction.
        """
        return self._of(gtids()._sets)

    def is_complete(self, received: int, reached: tuple[int, int]) -> bool:
        """Return whether a dump of this set has delivered all of it.

        :param received: number of its transactions that came.
        :param reached: file number and position up to which the log was read.
        """
        return received >= self.count()


class GtidSet(Position):
    """An immutable, hashable set of GTIDs: a position in the log.

    ``|``, ``&`` and ``-`` make sets, ``<=`` tests for a subset, ``str`` gives MySQL's text.

    >>> had = headgate.GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7")
    >>> executed = headgate.GtidSet.parse("3E11FA47-71CA-11E1-9E33-C80AA9429562:1-9")
    >>> had <= executed, had.count()
    (True, 6)
    >>> str(executed - had)
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:6:8-9'
    """

    __slots__ = ()

    def __init__(self, intervals: Mapping[tuple[bytes, str], Iterable[Interval]] | None = None) -> None:
        """Build as every :class:`Position`; ConfigError for a source that MySQL does not have."""
        for uuid, tag in intervals or ():
            if len(uuid) != 16 or (tag and not _TAG.fullmatch(tag)):
                raise ConfigError(f"not a GTID source: {uuid!r} {tag!r}")
        super().__init__(intervals)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse MySQL's text form, with any white space and letter case; ``""`` is the empty set.

        As in MySQL, ``5-3`` names no transaction. Anything else that MySQL refuses is a ConfigError.
        """
        parts: dict[_Key, list[Interval]] = {}
        for piece in text.split(","):
            if piece.strip():
                _parse_source(piece, parts)
        return cls(parts)

    def __str__(self) -> str:
        lines: list[str] = []
        previous: bytes | None = None
        for (uuid, tag), intervals in self._sets.items():
            numbers = ":".join(str(a) if a == b else f"{a}-{b}" for a, b in intervals)
            part = f":{tag}:{numbers}" if tag else f":{numbers}"
            if uuid == previous:
                lines[-1] += part
            else:
                lines.append(_uuid_text(uuid) + part)
            previous = uuid
        return ",".join(lines)

    def sources(self) -> Mapping[tuple[bytes, str], tuple[Interval, ...]]:
        """Return ``(uuid bytes, tag) -> intervals``, a copy."""
        return dict(self._sets)

    def __iter__(self) -> Iterator[Gtid]:
        """Yield every GTID, by UUID, tag, number. Sets can be huge: prefer ``intervals``."""
        for uuid, tag, first, last in self.intervals():
            for number in range(first, last + 1):
                yield Gtid(uuid, tag, number)

    @property
    def tagged(self) -> bool:
        """Whether any transaction has a tag."""
        return any(tag for _, tag in self._sets)

    # -- bytes

    def request(self, server: LogServer, executed: Self, *, inside: bool) -> DumpStart:
        return DumpStart((executed - self if inside else self).encode())

    def encode(self) -> bytes:
        """Return the server's layout: untagged if no transaction has a tag, else tagged."""
        tagged = self.tagged
        count = len(self._sets)
        out = [bytes([1]) + count.to_bytes(6, "little") + bytes([1]) if tagged else struct.pack("<Q", count)]
        for (uuid, tag), intervals in self._sets.items():
            out.append(uuid)
            if tagged:
                out.append(bytes([len(tag) << 1]) + tag.encode("ascii"))
            out.append(struct.pack("<Q", len(intervals)))
            out.extend(struct.pack("<QQ", first, last + 1) for first, last in intervals)
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Decode either layout; DecodeError if the bytes are not exactly one set."""
        return cls(_decode(bytes(data)))


class GtidSetBuilder:
    """Cheap collector of many GTIDs; ``build`` returns the set of all that were added.

    ``build`` may be called again while numbers arrive. Runs without gaps are kept as intervals; other numbers become
    intervals at the next ``build``.
    """

    def __init__(self, start: Position | None = None) -> None:
        self._intervals: dict[_Key, list[Interval]] = {}
        self._arrays: dict[_Key, list[npt.NDArray[np.int64]]] = {}
        for uuid, tag, first, last in (start or GtidSet()).intervals():
            self.add_interval(uuid, tag, first, last)

    def add(self, gtid: Gtid) -> None:
        """Add one transaction; cheap if it follows the one added before."""
        self.add_interval(gtid.uuid, gtid.tag, gtid.number, gtid.number)

    def add_interval(self, uuid: bytes, tag: str, first: int, last: int) -> None:
        """Add ``first`` … ``last``, both included."""
        intervals = self._intervals.setdefault((uuid, tag), [])
        if intervals and intervals[-1][0] <= first <= intervals[-1][1] + 1:
            intervals[-1] = (intervals[-1][0], max(last, intervals[-1][1]))
        else:
            intervals.append((first, last))

    def add_arrays(self, uuid: bytes, tag: str, numbers: npt.NDArray[Any]) -> None:
        """Add many numbers of one source (any integer array, any order, repeats allowed)."""
        if not len(numbers):
            return
        values = np.asarray(numbers, dtype=np.int64)
        first, last = int(values[0]), int(values[-1])
        if last - first == len(values) - 1 and bool((values[1:] > values[:-1]).all()):
            self.add_interval(uuid, tag, first, last)
        else:
            self._arrays.setdefault((uuid, tag), []).append(values)

    def build(self) -> GtidSet:
        """Return the set of everything added so far."""
        for key, arrays in self._arrays.items():
            numbers = np.unique(np.concatenate(arrays))
            breaks = np.flatnonzero(np.diff(numbers) != 1)
            firsts = numbers[np.concatenate(([0], breaks + 1))].tolist()
            lasts = numbers[np.concatenate((breaks, [len(numbers) - 1]))].tolist()
            self._intervals.setdefault(key, []).extend(zip(firsts, lasts, strict=True))
        self._arrays.clear()
        built = GtidSet(self._intervals)
        self._intervals = {key: list(intervals) for key, intervals in built.sources().items()}
        return built


def mixed_log_error(*, with_gtid: bool, **where: Any) -> ServerSettingError:
    """Return the error for a transaction that the position does not count.

    :param with_gtid: whether it has a GTID.
    """
    remedy = "SET GLOBAL gtid_mode = ON (step by step, see 'Enabling GTID Transactions Online')"
    if with_gtid:
        remedy = "the position counts bytes, so the tables have to be read again, with a new checkpoint"
    return ServerSettingError(
        f"the log holds a transaction {'with' if with_gtid else 'without'} a GTID: {remedy}",
        setting="gtid_mode",
        expected="OFF" if with_gtid else "ON",
        actual="ON" if with_gtid else "OFF",
        **where,
    )


def _sorted(sets: dict[_Key, _Intervals]) -> dict[_Key, _Intervals]:
    return {key: sets[key] for key in sorted(sets) if sets[key]}


def _normalise(intervals: list[Interval]) -> _Intervals:
    """Sort and join intervals; ``first > last`` is empty. ConfigError for numbers out of range."""
    out: list[Interval] = []
    for first, last in sorted(intervals):
        if first > last:
            continue
        if first < 1 or last > MAX_NUMBER:
            raise ConfigError(f"GTID number out of range: {first}-{last}; numbers go from 1 to {MAX_NUMBER}")
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(last, out[-1][1]))
        else:
            out.append((first, last))
    return tuple(out)


def _intersect(left: _Intervals, right: _Intervals) -> _Intervals:
    out: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, last = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if first <= last:
            out.append((first, last))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def _subtract(left: _Intervals, right: _Intervals) -> _Intervals:
    out: list[Interval] = []
    j = 0
    for first, last in left:
        while j < len(right) and right[j][1] < first:
            j += 1
        begin, k = first, j
        while k < len(right) and right[k][0] <= last:
            if begin < right[k][0]:
                out.append((begin, right[k][0] - 1))
            begin = right[k][1] + 1
            k += 1
        if begin <= last:
            out.append((begin, last))
    return tuple(out)


def _parse_source(piece: str, parts: dict[_Key, list[Interval]]) -> None:
    """Parse ``uuid:1-5:7:tag:1-2`` into ``parts``."""
    head, *rest = (part.strip().lower() for part in piece.split(":"))
    if not _UUID.fullmatch(head) or head.startswith("{") != head.endswith("}") or head.count("-") not in (0, 4):
        raise ConfigError(f"not a GTID set: {piece.strip()!r} does not begin with a server UUID")
    uuid, tag, open_tag = _uuid.UUID(head).bytes, "", True
    for part in rest:
        interval = _INTERVAL.fullmatch(part)
        if interval:
            first = int(interval[1])
            last = int(interval[2]) if interval[2] is not None else first
            if first < 1 or max(first, last) > MAX_NUMBER:
                raise ConfigError(f"not a GTID set: {part!r} in {piece.strip()!r} is out of range (1 to {MAX_NUMBER})")
            parts.setdefault((uuid, tag), []).append((first, last))
            open_tag = False
        elif _TAG.fullmatch(part):
            tag, open_tag = part, True
        else:
            raise ConfigError(f"not a GTID set: {part!r} in {piece.strip()!r} is neither an interval nor a tag")
    if open_tag:
        raise ConfigError(f"not a GTID set: {piece.strip()!r} ends without an interval such as 1-5")


def _decode(data: bytes) -> dict[_Key, list[Interval]]:
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        if size > len(data) - at:
            raise DecodeError(f"GTID set ends after {len(data)} bytes, inside a field of {size} bytes at {at}")
        at += size
        return data[at - size : at]

    header = take(8)
    tagged = header[7] == 1
    count = int.from_bytes(header[1:7] if tagged else header, "little")
    sets: dict[_Key, list[Interval]] = {}
    for _ in range(count):
        uuid, tag = take(16), ""
        if tagged:
            size = take(1)[0]
            if size & 1 or size > 64:
                raise DecodeError(f"GTID set with a tag length byte of {size:#x} at {at - 1}")
            tag = take(size >> 1).decode("latin-1")
            if tag and not _TAG.fullmatch(tag):
                raise DecodeError(f"GTID set with the tag {tag!r} at {at}")
        intervals = sets.setdefault((uuid, tag), [])
        size = int.from_bytes(take(8), "little")
        if size > (len(data) - at) // 16:
            raise DecodeError(f"GTID set with {size} intervals at {at}, more than its {len(data)} bytes can hold")
        for first, end in struct.iter_unpack("<QQ", take(16 * size)):
            if not 1 <= first < end <= MAX_NUMBER + 1:
                raise DecodeError(f"GTID set with the interval {first} to {end} (excluded) at {at}")
            intervals.append((first, end - 1))
    if at != len(data):
        raise DecodeError(f"GTID set of {at} bytes is followed by {len(data) - at} more")
    return sets

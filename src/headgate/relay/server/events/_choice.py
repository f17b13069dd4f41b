"""Choose the events of a consumer: those of its sources whose keys and rows pass its filters.

Filters are Databus's (``KeyFilterConfigJSONFactory.java``, ``KeyModFilter.java``, ``KeyRangeFilter.java``)::

    {"40": {"partitionType": "MOD", "filters": [{"numBuckets": 4, "bktRange": {"start": 0, "end": 1}}]},
     "41": {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 100, "end": 200}}]},
     "42": {"partitionType": "HASH", "filters": [{"numBuckets": 4, "bktRange": {"start": 0, "end": 1}}]},
     "43": {"partitionType": "NONE", "where": "amount > 10", "columns": ["status", "amount"]}}

Several filters of one source are joined by OR. Sources without an entry pass whole, and so do control events.

- A range is ``[start, end)``. It contains no negative number. If ``start`` is greater than ``end`` it wraps around; if
  they are equal it is empty (``Range.java``).
- MOD: the bucket is the number's absolute value modulo ``numBuckets``.
- HASH, headgate's own, spreads any keys evenly: FNV-1a of 64 bits over the key's bytes (of a long key its 8, the first
  one first), its upper half xored into the lower one, modulo ``numBuckets``.
- ``where`` and ``columns`` are headgate's own, too: ``events._where``. They apply in addition to the key's filters.
- The number of a long key is the key; of a key of bytes what ``Long.parseLong`` makes of its text. Text that is not a
  number has, for MOD, Java's ``String.hashCode``; RANGE cannot decide on it, and the request is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.kernels import copy, u8
from headgate.relay.databus import (
    EOP_SOURCE,
    PART_HEAD,
    i64_at,
    key_at,
    parts_at,
    put_part_size,
    put_size,
    size_at,
    source_at,
)
from headgate.relay.server.events._rows import put_row, row_passes
from headgate.relay.server.events._where import NO_ROW_FILTERS, CompiledFilters

__all__ = [
    "KINDS",
    "RANGE",
    "Choice",
    "choice_of",
    "digest_of",
    "first_window_of",
    "gather",
    "gather_smaller",
    "ranges_of",
    "select",
]

RANGE: Final = 1
_MOD: Final = 2
_HASH: Final = 3
KINDS: Final = {"RANGE": RANGE, "MOD": _MOD, "HASH": _HASH}
"""By Databus's ``partitionType``."""
_NO_NUMBER: Final = -1
"""Count that :func:`select` returns if RANGE met a key that is not a number."""


class Choice(NamedTuple):
    """Sources and filters of a consumer."""

    sources: npt.NDArray[np.int64]
    """Ids, sorted."""
    rules: npt.NDArray[np.int64]
    """int64[rules, 5]: source, kind, buckets, start, end."""
    row_filters: CompiledFilters = NO_ROW_FILTERS


def choice_of(
    sources: Collection[int], rules: Sequence[Sequence[int]] = (), row_filters: CompiledFilters = NO_ROW_FILTERS
) -> Choice:
    """Return all events of these sources that pass rules and predicates."""
    return Choice(np.array(sorted(sources), np.int64), np.array(list(rules), np.int64).reshape(-1, 5), row_filters)


def digest_of(choice: Choice) -> bytes:
    """Return 16 bytes that identify a choice."""
    digest = blake2b(digest_size=16)
    for part in map(np.asarray, (choice.sources, choice.rules, *choice.row_filters)):
        digest.update(repr((part.dtype.str, part.shape)).encode() + part.tobytes())
    return digest.digest()


def ranges_of(rules: Sequence[Sequence[int]]) -> set[int]:
    """Return the sources with a RANGE filter that is not empty: their keys have to be numbers."""
    return {source for source, kind, _, start, end in rules if kind == RANGE and start != end}


@njit(cache=True, nogil=True)
def _parse_long(buf: Any, start: Any, count: Any) -> Any:
    """Return ``(is a number, the number)`` like ``Long.parseLong``, of ASCII digits."""
    at = start
    end = start + count
    negative = False
    if at < end and (buf[at] == 45 or buf[at] == 43):
        negative = buf[at] == 45
        at += 1
    if at == end:
        return False, np.int64(0)
    value = np.int64(0)  # counted downwards, which has room for the smallest number
    limit = np.int64(-9223372036854775808) if negative else np.int64(-9223372036854775807)
    while at < end:
        digit = np.int64(u8(buf, at)) - 48
        if digit < 0 or digit > 9 or value < -922337203685477580 or value * 10 < limit + digit:
            return False, np.int64(0)
        value = value * 10 - digit
        at += 1
    return True, value if negative else -value


@njit(cache=True, nogil=True)
def _hash_code(buf: Any, start: Any, count: Any) -> Any:
    """Return ``String.hashCode`` of UTF-8 text: 31 · hash + each UTF-16 unit, in 32 signed bits."""
    at = start
    end = start + count
    value = np.int64(0)
    while at < end:
        first = u8(buf, at)
        more = 0 if first < 0x80 else 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        if first >= 0x80 and (first < 0xC2 or first > 0xF4 or at + more >= end):
            code, more = 0xFFFD, 0
        else:
            code = first & (0x7F if more == 0 else 0x3F >> more)
            for k in range(1, more + 1):
                code = code << 6 | (u8(buf, at + k) & 0x3F)
        if code >= 0x10000:
            value = (value * 31 + 0xD800 + ((code - 0x10000) >> 10)) & 0xFFFFFFFF
            code = 0xDC00 + ((code - 0x10000) & 0x3FF)
        value = (value * 31 + code) & 0xFFFFFFFF
        at += 1 + more
    return value - (1 << 32) if value & 0x80000000 else value


@njit(cache=True, nogil=True)
def _inside(start: Any, end: Any, number: Any) -> Any:
    if number < 0 or start == end:
        return False
    if start < end:
        return start <= number < end
    return number >= start or number < end


@njit(cache=True, nogil=True)
def _bucket(number: Any, buckets: Any) -> Any:
    """Return ``Math.abs(number) % buckets`` as in Java: the smallest number's absolute value is itself."""
    if number == np.int64(-9223372036854775808):
        rest = np.int64(np.uint64(1 << 63) % np.uint64(buckets))
        return -rest
    return abs(number) % buckets


@njit(cache=True, nogil=True)
def _hash(buf: Any, start: Any, count: Any) -> Any:
    """Return FNV-1a, folded to 32 bits."""
    value = np.uint64(0xCBF29CE484222325)
    for k in range(count):
        value = (value ^ np.uint64(buf[start + k])) * np.uint64(0x100000001B3)
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def _is_id(buf: Any, at: Any, ids: Any, i: Any) -> Any:
    """Return whether the schema id ``ids[i]`` is at ``at``."""
    k = 0
    while k < 16 and ids[i, k] == buf[at + k]:
        k += 1
    return k == 16


@njit(cache=True, nogil=True)
def first_window_of(buf: Any, start: Any, end: Any, schemas: Any) -> Any:
    """Return the offset of the first window that has an event by one of these schemas; ``end`` if there is none.

    :param start: where a window begins.
    :param schemas: uint8[n, 16]: their ids.
    """
    at = start
    window = start
    while at < end:
        source = source_at(buf, at)
        if source >= 0:
            digest = parts_at(buf, at)[0]
            for i in range(schemas.shape[0]):
                if _is_id(buf, digest, schemas, i):
                    return window
        at += size_at(buf, at)
        if source == EOP_SOURCE:
            window = at
    return end


@njit(cache=True, nogil=True)
def _version_of(buf: Any, digest: Any, source: Any, filters: Any) -> Any:
    """Return the index of the event's schema among those with filters; -1: none."""
    for version in range(filters.bounds.shape[0]):
        if filters.bounds[version, 4] == source and _is_id(buf, digest, filters.digests, version):
            return version
    return -1


@njit(cache=True, nogil=True)
def _row_passes(buf: Any, at: Any, source: Any, filters: Any) -> Any:
    digest, value, before = parts_at(buf, at)
    version = _version_of(buf, digest, source, filters)
    if version < 0:
        return True
    first, last, begin, end = filters.bounds[version, :4]
    if begin == end:
        return True
    fields, program = filters.fields[first:last], filters.program[begin:end]
    if row_passes(buf, value, fields, program, filters.text, filters.floats):
        return True
    return before >= 0 and row_passes(buf, before, fields, program, filters.text, filters.floats)


@njit(cache=True, nogil=True)
def _passes(buf: Any, at: Any, source: Any, rules: Any) -> Any:
    """Return 1 if the event passes the rules, 0 if not, -1 if RANGE met a key that is not a number."""
    key, size, is_number = key_at(buf, at)
    has_rules = False
    number = np.int64(0)
    text = False
    for i in range(rules.shape[0]):
        if rules[i, 0] != source:
            continue
        if not has_rules:
            has_rules = True
            if is_number:
                number = i64_at(buf, key)
            else:
                parsed, number = _parse_long(buf, key, size)
                if not parsed:
                    text = True
                    number = _hash_code(buf, key, size)
        if rules[i, 1] == RANGE:
            if text and rules[i, 3] != rules[i, 4]:
                return -1
            if _inside(rules[i, 3], rules[i, 4], number):
                return 1
        elif rules[i, 1] == _HASH:
            if _inside(rules[i, 3], rules[i, 4], _hash(buf, key, size) % rules[i, 2]):
                return 1
        elif _inside(rules[i, 3], rules[i, 4], _bucket(number, rules[i, 2])):
            return 1
    return 0 if has_rules else 1


@njit(cache=True, nogil=True)
def select(
    buf: Any, start: Any, end: Any, budget: Any, sources: Any, rules: Any, filters: Any, drop: Any, starts: Any
) -> Any:
    """Choose the events of ``sources`` that pass ``rules`` and ``filters``, and all control events, while they fit.

    :param drop: so many of them are skipped first.
    :param starts: int64, filled with the offsets of the chosen ones; no more are chosen than it holds.
    :return: ``(chosen, bytes of them, data events of them, stop, size of the event that does not fit or 0)``; chosen is
        -1 if RANGE met a key that is not a number.
    """
    at = start
    chosen = 0
    used = np.int64(0)
    data = 0
    while at < end and chosen < starts.shape[0]:
        size = size_at(buf, at)
        source = source_at(buf, at)
        wanted = 1
        if source >= 0:
            index = np.searchsorted(sources, source)
            wanted = 0
            if index < sources.shape[0] and sources[index] == source:
                wanted = _passes(buf, at, source, rules)
                if wanted < 0:
                    return _NO_NUMBER, used, data, at, size
                if wanted and filters.bounds.shape[0] and not _row_passes(buf, at, source, filters):
                    wanted = 0
        if wanted:
            if drop > 0:
                drop -= 1
                at += size
                continue
            if used + size > budget:
                return chosen, used, data, at, size
            starts[chosen] = at
            chosen += 1
            used += size
            data += source >= 0
        at += size
    return chosen, used, data, at, np.int64(0)


@njit(cache=True, nogil=True)
def gather(buf: Any, starts: Any, count: Any, out: Any) -> None:
    """Copy the events that begin at ``starts[:count]``, one after the other."""
    at = np.int64(0)
    for i in range(count):
        size = size_at(buf, starts[i])
        copy(out, at, buf, starts[i], size)
        at += size


@njit(cache=True, nogil=True)
def gather_smaller(buf: Any, starts: Any, count: Any, filters: Any, out: Any) -> Any:
    """Copy like :func:`gather`, with nulls for unwanted columns; return the bytes written. CRCs are left wrong."""
    to = np.int64(0)
    for i in range(count):
        at, source = starts[i], source_at(buf, starts[i])
        digest, value, before = parts_at(buf, at)
        version = _version_of(buf, digest, source, filters) if source >= 0 else -1
        if version < 0:
            size = size_at(buf, at)
            copy(out, to, buf, at, size)
            to += size
            continue
        first, last = filters.bounds[version, 0], filters.bounds[version, 1]
        fields, kept = filters.fields[first:last], filters.kept[first:last]
        begin, head = to, (before if before >= 0 else value) - at
        copy(out, to, buf, at, head)
        to += head
        if before >= 0:
            end = put_row(buf, before, fields, kept, out, to)
            put_part_size(out, to, end - to)
            copy(out, end, buf, value - PART_HEAD, PART_HEAD)
            to = end + PART_HEAD
        end = put_row(buf, value, fields, kept, out, to)
        if buf[at] != 0:
            put_part_size(out, to, end - to)
        put_size(out, begin, end - begin)
        to = end
    return to

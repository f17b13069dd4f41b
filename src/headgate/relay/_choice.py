"""Which events a consumer gets: those of its sources and, of each source, those whose keys its filters let through.

Filters are Databus's (``KeyFilterConfigJSONFactory.java``, ``KeyModFilter.java``, ``KeyRangeFilter.java``)::

    {"40": {"partitionType": "MOD", "filters": [{"numBuckets": 4, "bktRange": {"start": 0, "end": 1}}]},
     "41": {"partitionType": "RANGE", "filters": [{"keyRange": {"start": 100, "end": 200}}]},
     "42": {"partitionType": "NONE"}}

Several filters of one source are joined by or; sources without an entry pass whole, and so do control events.

- A range is ``[start, end)``. A negative number is in none; where ``start`` is greater than ``end`` it wraps around,
  and where they are equal it holds nothing (``Range.java``).
- MOD: the bucket is the number's absolute value modulo ``numBuckets``.
- The number of a long key is the key; of a key of bytes what ``Long.parseLong`` makes of its text. Text that is no
  number has, for MOD, Java's ``String.hashCode``; RANGE cannot be asked about it, and the request is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate._memory import copy, u8
from headgate.relay._events import i16_at, i64_at, size_at, source_at, u32_at

__all__ = ["Choice", "choice_of", "filter_rules", "gather", "select"]

_RANGE: Final = 1
_MOD: Final = 2
_NO_NUMBER: Final = -1
"""What :func:`select` has in place of a count where RANGE met a key that is no number."""
_LARGEST: Final = 2**63 - 1


class Choice(NamedTuple):
    """What is chosen."""

    sources: npt.NDArray[np.int64]
    """Ids, sorted."""
    rules: npt.NDArray[np.int64]
    """int64[rules, 5]: source, RANGE or MOD, buckets, start, end."""


def choice_of(sources: Sequence[int], rules: Sequence[Sequence[int]] = ()) -> Choice:
    """All events of these sources, but for what rules keep back."""
    return Choice(np.array(sorted(sources), np.int64), np.array(list(rules), np.int64).reshape(-1, 5))


def filter_rules(value: Any) -> list[tuple[int, int, int, int, int]]:
    """The rules that the parameter ``filters``, parsed, means.

    :raises ValueError: it means none.
    """
    found: list[tuple[int, int, int, int, int]] = []
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one kind of error for all that is wrong
    for name, one in value.items():
        try:
            kind, filters = one["partitionType"], one.get("filters") or []
            found += _rules_of(int(name), kind, filters)
        except (KeyError, TypeError, AttributeError):
            raise ValueError("not a filter") from None
    return found


def _rules_of(source: int, kind: str, filters: Sequence[Any]) -> list[tuple[int, int, int, int, int]]:
    if kind == "NONE":
        return []
    if kind not in ("RANGE", "MOD"):
        raise ValueError("no such partition type")
    nothing = (source, _RANGE, 1, 0, 0)
    return [nothing, *(_rule(source, kind, one) for one in filters)]


def _rule(source: int, kind: str, value: Any) -> tuple[int, int, int, int, int]:
    span = value["keyRange" if kind == "RANGE" else "bktRange"]
    numbers = (span["start"], span["end"], value["numBuckets"] if kind == "MOD" else 1)
    if not all(isinstance(one, int) and not isinstance(one, bool) and abs(one) <= _LARGEST for one in numbers):
        raise ValueError("not numbers")
    start, end, buckets = numbers
    if buckets < 1:
        raise ValueError("no buckets")
    return source, _RANGE if kind == "RANGE" else _MOD, buckets, start, end


@njit(cache=True, nogil=True)
def _parse_long(buf: Any, start: Any, count: Any) -> Any:
    """``(whether it is a number, the number)`` as ``Long.parseLong`` has it, of ASCII digits."""
    at = start
    end = start + count
    negative = False
    if at < end and (buf[at] == 45 or buf[at] == 43):
        negative = buf[at] == 45
        at += 1
    if at == end:
        return False, np.int64(0)
    value = np.int64(0)  # counted downwards, where there is room for the smallest number
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
    """``String.hashCode`` of UTF-8 text: 31 · hash + each UTF-16 unit, in 32 signed bits."""
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
    """``Math.abs(number) % buckets`` as Java has it: the smallest number's absolute value is itself."""
    if number == np.int64(-9223372036854775808):
        rest = np.int64(np.uint64(1 << 63) % np.uint64(buckets))
        return -rest
    return abs(number) % buckets


@njit(cache=True, nogil=True)
def _passes(buf: Any, at: Any, source: Any, rules: Any) -> Any:
    """1: the event passes the rules, 0: it does not, -1: they cannot be asked."""
    first = buf[at] == 0
    key = at + (53 if first else 45)
    is_number = i16_at(buf, at + (9 if first else 21)) & 8 == 0
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
                count = u32_at(buf, key)
                parsed, number = _parse_long(buf, key + 4, count)
                if not parsed:
                    text = True
                    number = _hash_code(buf, key + 4, count)
        if rules[i, 1] == _RANGE:
            if text and rules[i, 3] != rules[i, 4]:
                return -1
            if _inside(rules[i, 3], rules[i, 4], number):
                return 1
        elif _inside(rules[i, 3], rules[i, 4], _bucket(number, rules[i, 2])):
            return 1
    return 0 if has_rules else 1


@njit(cache=True, nogil=True)
def select(buf: Any, start: Any, end: Any, budget: Any, sources: Any, rules: Any, drop: Any, starts: Any) -> Any:
    """Choose the events of ``sources`` that pass ``rules``, and all control events, as long as they fit.

    :param drop: so many of them are passed over first.
    :param starts: int64, filled with where the chosen ones begin; no more are chosen than it holds.
    :return: ``(chosen, bytes of them, data events of them, stop, size of the event that does not fit or 0)``; chosen is
        -1 if a rule cannot be asked about an event.
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
            place = np.searchsorted(sources, source)
            wanted = 0
            if place < sources.shape[0] and sources[place] == source:
                wanted = _passes(buf, at, source, rules)
                if wanted < 0:
                    return _NO_NUMBER, used, data, at, size
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
    """Copy the events that begin at ``starts[:count]`` behind each other."""
    at = np.int64(0)
    for i in range(count):
        size = size_at(buf, starts[i])
        copy(out, at, buf, starts[i], size)
        at += size

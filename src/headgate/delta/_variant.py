"""JSON text as VARIANT, byte for byte as Spark's ``parse_json`` encodes it.

Source: Apache Parquet's ``VariantEncoding.md``. Where it leaves a choice, the encoding follows Spark 4.2's
``VariantBuilder``. Each document has its own dictionary, with the keys in order of appearance, not marked as sorted. An
object's fields are in the order of their keys as Java compares strings (by UTF-16, where Parquet's page says UTF-8;
they differ above U+FFFF). Numbers are in :mod:`headgate.delta._variant_scalars`.

| part | bytes (numbers little-endian, of as few bytes as the largest needs) |
|---|---|
| metadata | header (version 1, width), number of keys, offset 0 and each key's end offset, the keys |
| object | header (widths), number of fields (1 byte; 4 if above 255), key numbers in the order of the keys, offsets of the values and their end, the values in the order of the text |
| array | the same without key numbers |

The kernel walks each document once, with an explicit stack. A container's header is known only after its last value:
the values are then moved up. Doubles are left blank, and filled in at the end by one call of Arrow, which rounds
correctly.

Every row has room for five times its text, and every write is checked against that: no part of a document grows by more
(an array in an array is two characters, and ten bytes at most). A row is limited to Spark's 128 MiB.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.delta._keys import bytes_of
from headgate.delta._parquet import VARIANT
from headgate.delta._variant_scalars import (
    DOUBLE,
    SCALAR_ROOM,
    measure_string,
    measured_number,
    put_literal,
    put_number,
    put_size,
    put_string,
    put_text,
)
from headgate.errors import DecodeError
from headgate.kernels import copy, same_bytes, store8, u8, u64

__all__ = ["to_variant"]

_MOST_BYTES: Final = 128 << 20
"""Maximum of one document's value, and of its metadata: Spark's ``VariantUtil.SIZE_LIMIT``."""
_DEPTH: Final = 1000
"""Jackson's ``StreamReadConstraints.DEFAULT_MAX_DEPTH``, which Spark uses. MySQL's own is 100."""
_CALL_BYTES: Final = 64 << 20
"""Approximate text per call, so that the offsets of the result fit 32 bits."""
_GROWTH, _SPARE = 5, 16

_OBJECT, _ARRAY = 2, 3
_BROKEN, _TOO_LARGE = -1, -2
_START, _FIRST, _CLOSING, _DOUBLES = 0, 1, 2, 3
"""Columns of the stack: the container's first byte, its first field, its closing character, doubles before it."""
_KEY, _OFFSET = 0, 1
"""Columns of the fields of open containers: key number (0 in arrays), offset of the value in the container."""
_SLOT = 2
"""Columns of the dictionary: start and end of a key in the keys' bytes, its slot in the hash table."""


@njit(cache=True, nogil=True)
def _width(value: int) -> int:
    """Return the bytes that a number needs."""
    return 1 if value < 1 << 8 else 2 if value < 1 << 16 else 3 if value < 1 << 24 else 4


@njit(cache=True, nogil=True)
def _skip_blanks(text: Any, at: int, end: int) -> int:
    while at < end and u8(text, at) in (32, 10, 13, 9):
        at += 1
    return at


# --- the dictionary


@njit(cache=True, nogil=True)
def _add_key(names: Any, keys: Any, table: Any, count: int, end: int) -> int:
    """Return the number of the key whose bytes follow those of the first ``count`` keys; ``count`` if it is new."""
    start = keys[count - 1, 1] if count else 0
    slot = np.uint64(0xCBF29CE484222325)
    for i in range(start, end):  # FNV-1a
        slot = (slot ^ np.uint64(u8(names, i))) * np.uint64(0x100000001B3)
    mask = np.int64(len(table) - 1)
    place = np.int64(slot ^ (slot >> np.uint64(32))) & mask
    while table[place]:
        key = table[place] - 1
        if keys[key, 1] - keys[key, 0] == end - start and same_bytes(names, keys[key, 0], names, start, end - start):
            return int(key)
        place = (place + 1) & mask
    table[place] = count + 1
    keys[count, 0], keys[count, 1], keys[count, _SLOT] = start, end, place
    return count


@njit(cache=True, nogil=True)
def _put_metadata(names: Any, keys: Any, table: Any, count: int, out: Any, to: int, limit: int) -> int:
    """Write a document's dictionary and reset it; return the next write index, or an error code."""
    size = keys[count - 1, 1] if count else 0
    width = _width(max(size, count))
    if to + 1 + width * (count + 2) + size > limit:
        return _TOO_LARGE
    out[to] = 1 | (width - 1) << 6
    to = put_size(out, to + 1, count, width)
    for i in range(count):
        to = put_size(out, to, keys[i, 0], width)
        table[keys[i, _SLOT]] = 0
    to = put_size(out, to, size, width)
    copy(out, to, names, 0, size)
    return to + size


@njit(cache=True, nogil=True)
def _utf16_order(byte: int) -> int:
    """Map a byte of UTF-8 to a number that sorts as UTF-16 does: U+10000 and up before U+E000 to U+FFFF."""
    return byte + 16 if byte in (0xEE, 0xEF) else byte


@njit(cache=True, nogil=True)
def _before(names: Any, keys: Any, one: int, other: int) -> bool:
    """Whether a key sorts before another one, as Java compares strings."""
    start, end = keys[one, 0], keys[one, 1]
    at, stop = keys[other, 0], keys[other, 1]
    for i in range(min(end - start, stop - at)):
        a, b = u8(names, start + i), u8(names, at + i)
        if a != b:
            return bool(_utf16_order(a) < _utf16_order(b))
    return bool(end - start < stop - at)


@njit(cache=True, nogil=True)
def _copy_field(fields: Any, source: int, target: int) -> None:
    fields[target, _KEY], fields[target, _OFFSET] = fields[source, _KEY], fields[source, _OFFSET]


@njit(cache=True, nogil=True)
def _sift(fields: Any, first: int, root: int, count: int, names: Any, keys: Any) -> None:
    """Move a field down the heap until none below it sorts after it."""
    key, offset = fields[first + root, _KEY], fields[first + root, _OFFSET]
    while True:
        child = 2 * root + 1
        if child >= count:
            break
        if child + 1 < count and _before(names, keys, fields[first + child, _KEY], fields[first + child + 1, _KEY]):
            child += 1
        if not _before(names, keys, key, fields[first + child, _KEY]):
            break
        _copy_field(fields, first + child, first + root)
        root = child
    fields[first + root, _KEY], fields[first + root, _OFFSET] = key, offset


@njit(cache=True, nogil=True)
def _sort(fields: Any, first: int, count: int, names: Any, keys: Any) -> None:
    """Heapsort of an object's fields by their keys."""
    for root in range(count // 2 - 1, -1, -1):
        _sift(fields, first, root, count, names, keys)
    for last in range(count - 1, 0, -1):
        key, offset = fields[first, _KEY], fields[first, _OFFSET]
        _copy_field(fields, first + last, first)
        fields[first + last, _KEY], fields[first + last, _OFFSET] = key, offset
        _sift(fields, first, 0, last, names, keys)


# --- containers


@njit(cache=True, nogil=True)
def _move(out: Any, start: int, to: int, by: int) -> None:
    """Move ``out[start:to]`` up by ``by`` bytes."""
    at = to
    while at - start >= 8:
        at -= 8
        store8(out, at + by, u64(out, at))
    while at > start:
        at -= 1
        out[at + by] = out[at]


@njit(cache=True, nogil=True)
def _most(fields: Any, first: int, count: int) -> int:
    """Return the greatest key number of an object with sorted fields; -1 if a key is repeated."""
    most = 0
    for i in range(first, first + count):
        if i > first and fields[i, _KEY] == fields[i - 1, _KEY]:
            return -1
        most = max(most, fields[i, _KEY])
    return most


@njit(cache=True, nogil=True)
def _close(out: Any, to: int, limit: int, start: int, fields: Any, first: int, count: int, most: int) -> int:
    """Insert a container's header before its values; return the next write index, or an error code.

    :param most: the greatest key number; -1: it is an array.
    """
    size = to - start
    is_large = count > 255
    count_width, width = (4 if is_large else 1), _width(size)
    key_width = 0 if most < 0 else _width(most)
    header = 1 + count_width + count * key_width + (count + 1) * width
    if to + header > limit:
        return _TOO_LARGE
    _move(out, start, to, header)
    if most < 0:
        out[start] = (is_large << 2 | (width - 1)) << 2 | _ARRAY
    else:
        out[start] = (is_large << 4 | (key_width - 1) << 2 | (width - 1)) << 2 | _OBJECT
    at = put_size(out, start + 1, count, count_width)
    if most >= 0:
        for i in range(first, first + count):
            at = put_size(out, at, fields[i, _KEY], key_width)
    for i in range(first, first + count):
        at = put_size(out, at, fields[i, _OFFSET], width)
    put_size(out, at, size, width)
    return to + header


@njit(cache=True, nogil=True)
def _put_scalar(text: Any, at: int, end: int, out: Any, to: int, limit: int) -> tuple[int, int, bool]:
    """Write a value that is not a container: ``(end of its text, next write index, whether it is a double)``.

    A negative index is an error code. A double is left blank.
    """
    first = u8(text, at)
    if first == 34:
        stop, size = measure_string(text, at + 1, end)
        if stop < 0:
            return at, _BROKEN, False
        if size + 5 > limit - to:
            return at, _TOO_LARGE, False
        return stop + 1, put_string(text, at + 1, stop, size, out, to), False
    if to + SCALAR_ROOM > limit:
        return at, _TOO_LARGE, False
    if first > 96:
        stop = put_literal(text, at, end, out, to)
        return (stop, to + 1, False) if stop >= 0 else (at, _BROKEN, False)
    stop, scale, exponent = measured_number(text, at, end)
    if stop < 0:
        return at, _BROKEN, False
    after = -1 if exponent else put_number(text, at, stop, scale, out, to)
    if after >= 0:
        return stop, after, False
    out[to] = DOUBLE
    return stop, to + 9, True


@njit(cache=True, nogil=True)
def _put_key(text: Any, at: int, end: int, names: Any, keys: Any, table: Any, count: int) -> tuple[int, int]:
    """``(start of the value, the key's number)`` of an object's next member; number -1: invalid."""
    at = _skip_blanks(text, at, end)
    if at >= end or u8(text, at) != 34:
        return at, -1
    stop, size = measure_string(text, at + 1, end)
    if stop < 0:
        return at, -1
    start = keys[count - 1, 1] if count else 0
    put_text(text, at + 1, stop, names, start)
    after = _skip_blanks(text, stop + 1, end)
    if after >= end or u8(text, after) != 58:
        return at, -1
    return after + 1, _add_key(names, keys, table, count, start + size)


@njit(cache=True, nogil=True)
def _document(
    text: Any, at: int, end: int, out: Any, to: int, limit: int, stack: Any, fields: Any, names: Any, keys: Any,
    table: Any, doubles: Any, double_count: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Write a document's value: ``(next write index or error code, keys, doubles so far)``."""
    depth: Any = np.int64(0)
    field: Any = np.int64(0)
    count: Any = np.int64(0)
    while True:
        at = _skip_blanks(text, at, end)
        if at >= end:
            return _BROKEN, count, double_count
        first = u8(text, at)
        ends = True
        if first in (123, 91):
            if depth == _DEPTH:
                return _BROKEN, count, double_count
            stack[depth, _START], stack[depth, _FIRST] = to, field
            stack[depth, _CLOSING], stack[depth, _DOUBLES] = first + 2, double_count
            depth += 1
            at = _skip_blanks(text, at + 1, end)
            ends = at < end and u8(text, at) == first + 2
        else:
            start = at
            at, after, is_double = _put_scalar(text, at, end, out, to, limit)
            if after < 0:
                return after, count, double_count
            if is_double:
                doubles[double_count, 0], doubles[double_count, 1], doubles[double_count, 2] = to + 1, start, at
                double_count += 1
            to = after
        if ends:
            at = _skip_blanks(text, at, end)
            while depth > 0 and at < end and u8(text, at) == stack[depth - 1, _CLOSING]:
                depth -= 1
                before, opened = to, stack[depth, _FIRST]
                most = -1
                if stack[depth, _CLOSING] == 125:
                    _sort(fields, opened, field - opened, names, keys)
                    most = _most(fields, opened, field - opened)
                    if most < 0:
                        return _BROKEN, count, double_count
                to = _close(out, to, limit, stack[depth, _START], fields, opened, field - opened, most)
                if to < 0:
                    return to, count, double_count
                for i in range(stack[depth, _DOUBLES], double_count):
                    doubles[i, 0] += to - before
                field = opened
                at = _skip_blanks(text, at + 1, end)
            if depth == 0:
                return (to if at == end else _BROKEN), count, double_count
            if at >= end or u8(text, at) != 44:
                return _BROKEN, count, double_count
            at += 1
        fields[field, _KEY], fields[field, _OFFSET] = 0, to - stack[depth - 1, _START]
        if stack[depth - 1, _CLOSING] == 125:
            at, key = _put_key(text, at, end, names, keys, table, count)
            if key < 0:
                return _BROKEN, count, double_count
            count = max(count, key + 1)
            fields[field, _KEY] = key
        field += 1


@njit(cache=True, nogil=True)
def _documents(
    text: Any,
    starts: Any,
    valid: Any,
    rooms: Any,
    values: Any,
    value_ends: Any,
    metadata: Any,
    metadata_ends: Any,
    doubles: Any,
    longest: int,
) -> tuple[int, int, int]:
    """Write every row: ``(doubles, the row that cannot be written or -1, its error code)``."""
    stack = np.empty((_DEPTH, 4), np.int64)
    fields = np.empty((longest // 2 + _DEPTH + 2, 2), np.int64)  # a comma needs a value before it
    keys = np.empty((longest // 4 + 2, 3), np.int64)
    names = np.empty(longest + 1, np.uint8)
    size = 16
    while size < 2 * len(keys):
        size *= 2
    table = np.zeros(size, np.int32)
    to: Any = np.int64(0)
    at: Any = np.int64(0)
    double_count: Any = np.int64(0)
    for i in range(len(valid)):
        if valid[i]:
            after, count, double_count = _document(
                text, starts[i], starts[i + 1], values, to, to + rooms[i], stack, fields, names, keys, table, doubles,
                double_count,
            )  # fmt: skip
            end = _put_metadata(names, keys, table, count, metadata, at, at + rooms[i]) if after >= 0 else after
            if end < 0:
                return double_count, i, end
            to, at = after, end
        value_ends[i + 1] = to
        metadata_ends[i + 1] = at
    return double_count, -1, 0


@njit(cache=True, nogil=True)
def _gather(text: Any, doubles: Any, count: int, ends: Any, out: Any) -> None:
    """Copy the texts of doubles to the offsets ``ends``."""
    for i in range(count):
        copy(out, ends[i], text, doubles[i, 1], doubles[i, 2] - doubles[i, 1])


@njit(cache=True, nogil=True)
def _put_doubles(values: Any, doubles: Any, numbers: Any) -> None:
    for i in range(len(numbers)):
        store8(values, doubles[i, 0], numbers[i])


def to_variant(texts: pa.Array, column: str) -> pa.StructArray:
    """Convert JSON documents to VARIANT; NULL where the text is NULL.

    :param texts: strings, as MySQL writes JSON.
    :param column: their column's name, for errors.
    :raises DecodeError: a text is not JSON, has a key twice in one object, or is too large or too deep for Spark.
    """
    parts = [_convert(part, column) for part in _parts(texts.cast(pa.string()))]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _parts(texts: pa.Array) -> Iterator[pa.Array]:
    """Split the array into parts of bounded text."""
    starts, _ = bytes_of(texts)
    first = 0
    while first < len(texts):
        end = int(np.searchsorted(starts, starts[first] + _CALL_BYTES, "right")) - 1
        end = min(max(end, first + 1), len(texts))
        yield texts.slice(first, end - first)
        first = end
    if not len(texts):
        yield texts


def _convert(texts: pa.Array, column: str) -> pa.StructArray:
    starts, text = bytes_of(texts)
    nulls = texts.is_null()
    valid = ~np.asarray(nulls)
    lengths = np.where(valid, np.diff(starts), 0)
    rooms = np.where(valid, np.minimum(_GROWTH * lengths + _SPARE, _MOST_BYTES), 0)
    # Pages that are never written use no memory, so the room may be ample.
    room, ends = int(rooms.sum()), np.zeros((2, len(texts) + 1), np.int32)
    values, metadata = np.empty(room + 8, np.uint8), np.empty(room + 8, np.uint8)
    doubles = np.empty((int(lengths.sum()) // 3 + 1, 3), np.int64)
    count, row, wrong = _documents(
        text, starts, valid, rooms, values, ends[0], metadata, ends[1], doubles, int(lengths.max(initial=0))
    )
    if row >= 0:
        what = "is too large for a VARIANT (128 MiB)" if wrong == _TOO_LARGE else "is not JSON"
        raise DecodeError(f"a document {what}: {_shortened(texts[row].as_py())}", column=column)
    _put_doubles(values, doubles, _numbers(text, doubles, count, column))
    children = [
        pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(end), pa.py_buffer(out[: end[-1]])])
        for end, out in zip(ends, (values, metadata), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(VARIANT), mask=nulls)


def _numbers(text: Any, doubles: Any, count: int, column: str) -> Any:
    """uint64[count]: the bits of the doubles that were left blank."""
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(doubles[:count, 2] - doubles[:count, 1], out=ends[1:])
    out = np.empty(int(ends[-1]) + 1, np.uint8)
    _gather(text, doubles, count, ends, out)
    texts = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(out[: ends[-1]])])
    try:
        return np.asarray(pc.cast(texts, pa.float64())).view(np.uint64)
    except pa.ArrowInvalid as error:
        raise DecodeError(f"a number in a document is not a double: {error}", column=column) from None


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."

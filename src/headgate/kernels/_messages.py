"""Messages of many rows in one pass: constants, and values of Arrow columns as JSON or Avro.

A :class:`Layout` is a list of pieces: constant bytes, values (:class:`Lane`), and groups, which a message may leave out
as a whole (``null`` in JSON, the null branch in Avro). :meth:`Layout.write` makes all messages with one compiled loop,
message by message, so each byte is written once and in order. Pieces take their values from rows that ``write`` gets,
so one column serves an update's two images.

The loop sees arrays only: lanes' numbers side by side, their texts in one buffer. It writes without checks: ``write``
adds up what each message takes at most before it begins. Forms are those of the Avro 1.12 specification, "Binary
Encoding", and of RFC 8259. Texts are UTF-8. JSON escapes as Jackson does, which Kafka Connect writes JSON with: quotes,
backslashes, control characters, and characters beyond the Basic Multilingual Plane (as two surrogates).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.kernels._avro import put_varint, zigzag
from headgate.kernels._memory import copy, u8

__all__ = ["Kind", "Lane", "Layout", "date_of", "int64_lane", "put_unsigned", "text_lane", "valid_mask"]


class Kind(IntEnum):
    """How a piece is written."""

    CONSTANT = 0
    GROUP = 1
    """A row of -1 leaves the pieces of the group out."""
    DIGITS = 2
    """JSON: an int64."""
    DECIMAL = 3
    """JSON: an int64 as a string with ``parameter`` digits after the point."""
    STRING = 4
    """JSON: a text, quoted and escaped. Its piece's parameter: most bytes that a byte of the column becomes."""
    RAW = 5
    """A text as it is."""
    CLOCK = 6
    """JSON: µs since 1970 UTC as ``"2026-01-02T03:04:05.000006Z"`` with ``parameter`` fraction digits."""
    VARINT = 7
    """Avro: an int64 as int or long."""
    BYTES = 8
    """Avro: a text as bytes or string."""
    LITTLE = 9
    """Avro: the last ``parameter`` bytes of an int64, the lowest first: float, double, boolean."""
    ROW = 10
    """The number of the row, as a byte."""


_CONSTANT: Final = int(Kind.CONSTANT)
_GROUP: Final = int(Kind.GROUP)
_DIGITS: Final = int(Kind.DIGITS)
_DECIMAL: Final = int(Kind.DECIMAL)
_STRING: Final = int(Kind.STRING)
_RAW: Final = int(Kind.RAW)
_CLOCK: Final = int(Kind.CLOCK)
_VARINT: Final = int(Kind.VARINT)
_BYTES: Final = int(Kind.BYTES)
_ROW: Final = int(Kind.ROW)

_LONGEST: Final = {
    Kind.CONSTANT: 0,
    Kind.GROUP: 4,  # null
    Kind.DIGITS: 20,
    Kind.DECIMAL: 40,  # 20 digits, or zeros up to the scale, a point, a sign, quotes
    Kind.STRING: 4,  # quotes, or null
    Kind.RAW: 4,
    Kind.CLOCK: 40,  # in any year of 64 bits
    Kind.VARINT: 10,
    Kind.BYTES: 10,
    Kind.LITTLE: 8,
    Kind.ROW: 1,
}
"""Most bytes that a piece takes, without its constant and its text. Untouched memory costs nothing."""
_PLAIN, _LONGEST_ESCAPE = 1, 6
"""Most bytes that a byte of a text becomes: without escapes, and of ``\\u001f``."""
_COMMA, _BRACE, _QUOTE, _BACKSLASH = 44, 123, 34, 92
_FOUR_BYTES: Final = 0xF0
"""From here on a byte begins a character beyond the Basic Multilingual Plane, of four bytes."""
_SHORT_ESCAPES: Final = np.zeros(93, np.uint8)
"""What follows the backslash, of the bytes that have a short escape: quote, backslash, \\b, \\t, \\n, \\f, \\r."""
_SHORT_ESCAPES[[34, 92, 8, 9, 10, 12, 13]] = np.frombuffer(b'"\\btnfr', np.uint8)
_TEXTS: Final = frozenset({Kind.STRING, Kind.RAW, Kind.BYTES})

_MOST_DIGITS: Final = 20
"""Of 64 bits."""
_ZERO, _TEN, _HUNDRED = np.uint64(48), np.uint64(10), np.uint64(100)

_FIELDS: Final = 9
"""Of a piece, int64: kind, source of rows, row in ``numbers`` or ``texts``, row in ``valid`` (-1: no nulls),
parameter, start and size of the constant before it, row in ``valid`` of presence (-1: always), pieces to leave out."""


# --- kernels ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def put_unsigned(out: Any, at: int, value: Any, least: int) -> int:
    """Write a number that is not negative with at least so many digits."""
    count, limit = 1, _TEN
    while count < _MOST_DIGITS and value >= limit:
        limit *= _TEN
        count += 1
    count = max(count, least)
    k = at + count
    while value >= _HUNDRED:  # two digits for each division of a large number
        rest = value // _HUNDRED
        pair = value - rest * _HUNDRED
        value = rest
        k -= 2
        out[k] = np.uint8(pair // _TEN + _ZERO)
        out[k + 1] = np.uint8(pair % _TEN + _ZERO)
    while k > at:
        k -= 1
        out[k] = np.uint8(value % _TEN + _ZERO)
        value //= _TEN
    return at + count


@njit(cache=True, nogil=True)
def _put_number(out: Any, at: int, value: Any) -> int:
    if value < 0:
        out[at] = 45
        return put_unsigned(out, at + 1, np.uint64(0) - np.uint64(value), 1)
    return put_unsigned(out, at, np.uint64(value), 1)


@njit(cache=True, nogil=True)
def _put_decimal(out: Any, at: int, value: Any, scale: int) -> int:
    out[at] = 34
    at += 1
    digits = np.uint64(value)
    if value < 0:
        out[at] = 45
        at += 1
        digits = np.uint64(0) - digits
    at = put_unsigned(out, at, digits, scale + 1)
    if scale:
        for k in range(at, at - scale, -1):
            out[k] = out[k - 1]
        out[at - scale] = 46
        at += 1
    out[at] = 34
    return at + 1


@njit(cache=True, nogil=True)
def _put_string(out: Any, at: int, data: Any, start: int, end: int, is_plain: bool) -> int:
    out[at] = _QUOTE
    at += 1
    if is_plain:
        copy(out, at, data, start, end - start)
        at += end - start
        start = end
    k = start
    while k < end:
        byte = u8(data, k)
        if byte >= _FOUR_BYTES:
            point = (byte & 7) << 18 | (u8(data, k + 1) & 63) << 12 | (u8(data, k + 2) & 63) << 6 | u8(data, k + 3) & 63
            at = _put_unit(out, at, 0xD7C0 + (point >> 10))
            at = _put_unit(out, at, 0xDC00 + (point & 0x3FF))
            k += 4
            continue
        k += 1
        if byte >= 32 and byte != _QUOTE and byte != _BACKSLASH:
            out[at] = byte
            at += 1
        elif _SHORT_ESCAPES[byte]:
            out[at] = _BACKSLASH
            out[at + 1] = _SHORT_ESCAPES[byte]
            at += 2
        else:
            at = _put_unit(out, at, byte)
    out[at] = _QUOTE
    return at + 1


@njit(cache=True, nogil=True)
def _put_unit(out: Any, at: int, unit: int) -> int:
    """Write a UTF-16 code unit as an escape of four digits."""
    out[at] = _BACKSLASH
    out[at + 1] = 117
    for k in range(4):
        digit = unit >> (12 - 4 * k) & 15
        out[at + 2 + k] = 48 + digit if digit < 10 else 55 + digit
    return at + 6


@njit(cache=True, nogil=True)
def date_of(days: int) -> tuple[int, int, int]:
    """Return ``(year, month, day)`` of days since 1970-01-01 (Howard Hinnant, "chrono-Compatible Low-Level Date
    Algorithms").
    """
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return year, month, of_year - (153 * shifted + 2) // 5 + 1


@njit(cache=True, nogil=True)
def _put_clock(out: Any, at: int, us: Any, fraction: int) -> int:
    """Write a time."""
    seconds, part = us // 1_000_000, us % 1_000_000
    year, month, day = date_of(seconds // 86_400)
    second = seconds % 86_400
    out[at] = 34
    at = put_unsigned(out, at + 1, np.uint64(year), 4)
    out[at] = 45
    at = put_unsigned(out, at + 1, np.uint64(month), 2)
    out[at] = 45
    at = put_unsigned(out, at + 1, np.uint64(day), 2)
    out[at] = 84
    at = put_unsigned(out, at + 1, np.uint64(second // 3600), 2)
    out[at] = 58
    at = put_unsigned(out, at + 1, np.uint64(second // 60 % 60), 2)
    out[at] = 58
    at = put_unsigned(out, at + 1, np.uint64(second % 60), 2)
    if fraction:
        for _ in range(6 - fraction):
            part //= 10
        out[at] = 46
        at = put_unsigned(out, at + 1, np.uint64(part), fraction)
    out[at] = 90
    out[at + 1] = 34
    return at + 2


@njit(cache=True, nogil=True)
def _put_null(out: Any, at: int) -> int:
    out[at] = 110
    out[at + 1] = 117
    out[at + 2] = 108
    out[at + 3] = 108
    return at + 4


@njit(cache=True, nogil=True)
def _write(
    pieces: Any, rows: Any, numbers: Any, valid: Any, texts: Any, data: Any, avro: bool, out: Any, offsets: Any
) -> None:
    at = 0
    for message in range(rows.shape[1]):
        offsets[message] = at
        p = 0
        while p < pieces.shape[0]:
            kind = pieces[p, 0]
            row = rows[pieces[p, 1], message]
            here = p
            p += 1
            if pieces[here, 7] >= 0 and not valid[pieces[here, 7], row]:
                continue
            start, size = pieces[here, 5], pieces[here, 6]
            if kind == _GROUP and row < 0:
                # Avro: the constant is the value's branch.
                p += pieces[here, 8]
                if avro:
                    out[at] = 0
                    at += 1
                else:
                    at = _put_null(out, at)
                continue
            if size and not avro and data[start] == _COMMA and at and out[at - 1] == _BRACE:
                start += 1
                size -= 1
            nulls = pieces[here, 3]
            if nulls >= 0 and not valid[nulls, row]:
                if avro:
                    out[at] = 0
                    at += 1
                else:
                    copy(out, at, data, start, size)
                    at = _put_null(out, at + size)
                continue
            copy(out, at, data, start, size)
            at += size
            if kind <= _GROUP:
                continue
            if kind == _ROW:
                out[at] = row
                at += 1
                continue
            column, parameter = pieces[here, 2], pieces[here, 4]
            if kind == _STRING:
                at = _put_string(out, at, data, texts[column, row], texts[column, row + 1], parameter == _PLAIN)
            elif kind == _RAW or kind == _BYTES:
                start = texts[column, row]
                size = texts[column, row + 1] - start
                if kind == _BYTES:
                    at = put_varint(out, at, zigzag(size))
                copy(out, at, data, start, size)
                at += size
            else:
                value = numbers[column, row]
                if kind == _DIGITS:
                    at = _put_number(out, at, value)
                elif kind == _DECIMAL:
                    at = _put_decimal(out, at, value, parameter)
                elif kind == _CLOCK:
                    at = _put_clock(out, at, value, parameter)
                elif kind == _VARINT:
                    at = put_varint(out, at, zigzag(value))
                else:
                    for k in range(parameter):
                        out[at + k] = np.uint8((value >> (8 * k)) & 255)
                    at += parameter
    offsets[rows.shape[1]] = at


@njit(cache=True, nogil=True)
def _needs_escape(data: Any, start: int, end: int) -> bool:
    escapes = 0
    for k in range(start, end):
        byte = u8(data, k)
        escapes += int(byte < 32) + int(byte == _QUOTE) + int(byte == _BACKSLASH) + int(byte >= _FOUR_BYTES)
    return escapes > 0


@njit(cache=True, nogil=True)
def _text_bytes(rows: Any, bounds: Any) -> int:
    """Return the bytes of the texts of rows; -1: none."""
    total = 0
    for row in rows:
        if row >= 0:
            total += bounds[row + 1] - bounds[row]
    return total


# --- memory -----------------------------------------------------------------------------------------------------------

_spare: Final = deque[Any](maxlen=2)
_LEAST_SPARE, _MOST_SPARE = 4 << 20, 64 << 20
"""Bytes of memory that is kept."""


def _memory(size: int) -> Any:
    """Return memory for messages: uint8[size]. What no array refers to any more is used again.

    New pages cost as much as the messages in them: the operating system clears them first.
    """
    if not _LEAST_SPARE <= size <= _MOST_SPARE:
        return np.empty(size, np.uint8)
    memory = _spare.pop() if _spare else None
    if memory is None or len(memory) < size:
        memory = np.empty(size, np.uint8)
    view = memory[:size]
    weakref.finalize(view, _spare.append, memory).atexit = False
    return view


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lane:
    """A column's values as the loop takes them.

    :param values: without nulls that count: int64[rows], or binary (of kinds that write a text).
    :param valid: bool[rows]; None: no value is null.
    :param parameter: as the kind says.
    """

    kind: Kind
    values: Any
    valid: Any = None
    parameter: int = 0

    @property
    def is_text(self) -> bool:
        """Whether the values are texts."""
        return self.kind in _TEXTS


def valid_mask(array: pa.Array) -> Any:
    """Return bool[rows]: which values are not null; None: all."""
    return np.asarray(array.is_valid()) if array.null_count else None


def int64_lane(kind: Kind, array: pa.Array, parameter: int = 0) -> Lane:
    """Return the lane of an integer column; casts it to int64."""
    whole = array.cast(pa.int64())
    values = np.asarray(whole.fill_null(0) if whole.null_count else whole)
    return Lane(kind, values, valid_mask(array), parameter)


def text_lane(kind: Kind, array: pa.Array) -> Lane:
    """Return the lane of a string or binary column."""
    return Lane(kind, array, valid_mask(array))


class Layout:
    """The pieces of a kind of messages, with the columns of one batch.

    :param rows: the number of rows of each column.
    :param avro: whether nulls and groups are Avro's unions, whose first branch is null; else they are JSON's.
    """

    def __init__(self, rows: int, *, avro: bool = False) -> None:
        self._rows, self._avro = rows, avro
        self._pieces: list[list[int]] = []
        self._constants = bytearray()
        self._pending = b""  # constant that the next piece may begin with
        self._numbers: list[Any] = []
        self._texts: list[pa.Array] = []
        self._valid: list[Any] = []
        self._known: dict[int, tuple[Lane, int, int]] = {}  # by id: lane, row in numbers or texts, row in valid

    def constant(self, text: bytes) -> None:
        """Add constant bytes."""
        self._pending += text

    def lane(self, lane: Lane, source: int = 0, before: bytes = b"", present: Any = None) -> None:
        """Add a column's values.

        :param source: which rows of ``write`` it takes its values from.
        :param before: bytes before each value: in JSON a comma, which is left out after a brace, and the name; in Avro
            the number of the value's branch, which nulls leave out.
        :param present: bool[rows]; where it is false, neither value nor ``before`` is written. None: always written.
        """
        if id(lane) not in self._known:
            self._known[id(lane)] = (lane, *self._columns(lane))
        _, number, nulls = self._known[id(lane)]
        if before or present is not None or (self._avro and nulls >= 0):
            self._end_constant()
        self._add(lane.kind, source, before, number, nulls, lane.parameter, self._mask(present))

    def _columns(self, lane: Lane) -> tuple[int, int]:
        """Add a lane's arrays."""
        columns: list[Any] = self._texts if lane.is_text else self._numbers
        columns.append(lane.values)
        return len(columns) - 1, self._mask(lane.valid)

    def row_byte(self, source: int) -> None:
        """Add a byte: the row of a source, which need not be one of a column."""
        self._add(Kind.ROW, source, b"")

    @contextmanager
    def group(self, source: int, before: bytes) -> Iterator[None]:
        """Add the pieces that follow, where the source's row is not -1; elsewhere null."""
        self._end_constant()
        self._add(Kind.GROUP, source, before)
        begin = len(self._pieces)
        yield
        self._end_constant()
        self._pieces[begin - 1][8] = len(self._pieces) - begin

    def _mask(self, mask: Any) -> int:
        if mask is None:
            return -1
        self._valid.append(mask)
        return len(self._valid) - 1

    def _end_constant(self) -> None:
        if self._pending:
            self._add(Kind.CONSTANT, 0, b"")

    def _add(
        self,
        kind: Kind,
        source: int,
        constant: bytes,
        number: int = 0,
        nulls: int = -1,
        parameter: int = 0,
        present: int = -1,
    ) -> None:
        start, constant, self._pending = len(self._constants), self._pending + constant, b""
        self._constants += constant
        self._pieces.append([int(kind), source, number, nulls, parameter, start, len(constant), present, 0])

    def write(self, rows: Sequence[npt.NDArray[np.int64]]) -> pa.Array:
        """Write the messages: large_binary.

        :param rows: for each source, the row that each message takes values from; -1 leaves groups out.
        """
        self._end_constant()
        pieces = np.array(self._pieces, np.int64).reshape(-1, _FIELDS)
        sources = np.ascontiguousarray(np.stack([np.asarray(one, np.int64) for one in rows]))
        texts, data = self._joined_texts()
        for piece in pieces:
            if piece[0] == _STRING:
                first, last = texts[piece[2], 0], texts[piece[2], -1]
                piece[4] = _LONGEST_ESCAPE if _needs_escape(data, first, last) else _PLAIN
        offsets = np.empty(sources.shape[1] + 1, np.int64)
        out = _memory(self._most_bytes(pieces, sources, texts))
        numbers = np.array(self._numbers, np.int64).reshape(len(self._numbers), self._rows)
        valid = np.array(self._valid, np.bool_).reshape(len(self._valid), self._rows)
        _write(pieces, sources, numbers, valid, texts, data, self._avro, out, offsets)
        return pa.Array.from_buffers(
            pa.large_binary(), sources.shape[1], [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        )

    def _joined_texts(self) -> tuple[Any, Any]:
        """Return the offsets of each text column, int64[columns, rows + 1], and all bytes, the constants first."""
        parts, offsets, at = [np.frombuffer(bytes(self._constants), np.uint8)], [], len(self._constants)
        for array in self._texts:
            buffers = array.buffers()
            wide = (
                np.int64 if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) else np.int32
            )
            bounds = np.zeros(1, np.int64)
            if len(array):
                bounds = np.frombuffer(buffers[1], wide)[array.offset : array.offset + len(array) + 1].astype(np.int64)
            first, last = int(bounds[0]), int(bounds[-1])
            parts.append(np.frombuffer(buffers[2], np.uint8)[first:last] if last > first else np.zeros(0, np.uint8))
            offsets.append(bounds + (at - first))
            at += last - first
        return np.array(offsets, np.int64).reshape(len(offsets), self._rows + 1), np.concatenate(parts)

    def _most_bytes(self, pieces: Any, sources: Any, texts: Any) -> int:
        """Return the most bytes that all messages may take together."""
        longest = [_LONGEST[Kind(kind)] for kind in pieces[:, 0].tolist()]
        total: int = sources.shape[1] * (int(pieces[:, 6].sum()) + sum(longest))
        for kind, source, number, _, parameter in pieces[:, :5].tolist():
            if Kind(kind) in _TEXTS and self._rows:
                size = _text_bytes(sources[source], texts[number])
                total += size * (parameter if kind == _STRING else 1)
        return total

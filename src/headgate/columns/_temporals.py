"""DATE, DATETIME, TIMESTAMP and TIME.

| type | log | text |
|---|---|---|
| DATE | 3 bytes, little-endian: day 5 bits, month 4, year 15 | ``YYYY-MM-DD`` |
| DATETIME(f) | 5 bytes, big-endian, and the fraction | ``YYYY-MM-DD HH:MM:SS[.f]`` |
| TIMESTAMP(f) | 4 bytes, big-endian, and the fraction | the same in the session's zone, which is UTC |
| TIME(f) | 3 bytes and the fraction, one big-endian number | ``[-]HH:MM:SS[.f]``, hours to 838 |

DATETIME: first bit set, year · 13 + month 17 bits, day 5, hour 5, minute 6, second 6. TIMESTAMP: seconds since
1970-01-01 UTC; all 0 is the zero date. TIME: the signed value (hour 10 bits, minute 6, second 6, fraction) plus half of
what the bytes can hold. The fraction takes (f + 1) // 2 bytes, in units of 10⁻², 10⁻⁴ or 10⁻⁶ seconds. (MySQL source
``mysys/my_time.cc``, ``my_datetime_packed_from_binary`` and similar functions.)

As Arrow: date32, timestamp[us], timestamp[us, UTC]. TIME is a string (Spark reads no durations), or with
``time="microseconds"`` int64. Arrow cannot hold a date with a zero month or day, or with a day its month does not have
(sql_mode ALLOW_INVALID_DATES). It is an error, or null (``zero_dates="null"``; in a key still an error, because keys
must stay distinct), or the column is text (``zero_dates="text"``). Text is as MySQL prints it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.catalog import Column
from headgate.columns._codec import BaseCodec
from headgate.errors import DecodeError
from headgate.kernels import Cells, date_of, u8, u16, u32, u64

__all__ = ["DateCodec", "DatetimeCodec", "TemporalTextCodec", "TimeCodec", "put_clock", "put_date", "put_digits"]

_DATE, _DATETIME, _TIMESTAMP, _TIME = 0, 1, 2, 3
_KINDS = {"date": _DATE, "datetime": _DATETIME, "timestamp": _TIMESTAMP, "time": _TIME}
_BASE_BYTES = {"date": 3, "datetime": 5, "timestamp": 4, "time": 3}

_FINE, _NO_DATE, _BROKEN = 0, 1, 2
"""Result of parsing a value: a date, a date that Arrow cannot hold, not a date."""


_DAYS_BEFORE = np.array([0, 306, 337, 0, 31, 61, 92, 122, 153, 184, 214, 245, 275], np.int64)
"""Days before each month (from 1) in a year that begins in March."""
_EPOCH_DAYS = 719468 + 146097
"""Days from 0000-03-01, less 400 years, to 1970-01-01."""


@njit(cache=True, nogil=True)
def _days(year: Any, month: Any, day: Any) -> Any:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar; year 0 to 9999, month 1 to 12."""
    shifted = year + 400 - (month <= 2)
    centuries = shifted * 5243 >> 19  # a division by 100, exact below 43,698
    return shifted * 365 + (shifted >> 2) - centuries + (centuries >> 2) + _DAYS_BEFORE[month] + day - 1 - _EPOCH_DAYS


@njit(cache=True, nogil=True)
def _is_date(year: int, month: int, day: int) -> bool:
    """Return whether the calendar has that day."""
    if month < 1 or month > 12 or day < 1 or day > 31:
        return False
    if day <= 28:
        return True
    if month == 2:
        return day == 29 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= 30 or month not in (4, 6, 9, 11)


@njit(cache=True, nogil=True)
def _fraction(buf: Any, at: int, size: int) -> Any:
    """Return the microseconds of ``size`` (0 to 3) fraction bytes."""
    if size == 0:
        return 0
    if size == 1:
        return u8(buf, at) * 10000
    if size == 2:
        return (u8(buf, at) << 8 | u8(buf, at + 1)) * 100
    return u8(buf, at) << 16 | u8(buf, at + 1) << 8 | u8(buf, at + 2)


@njit(cache=True, nogil=True)
def _be32(buf: Any, at: int) -> Any:
    value = u32(buf, at)
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8 & 0xFF00) | value >> 24


@njit(cache=True, nogil=True)
def _dates_from_log(buf: Any, offset: Any, valid: Any, nulls: Any, out: Any) -> int:
    """Write days to ``out``. If a date is invalid, set ``valid`` and ``out`` to 0 if ``nulls``, else return its row."""
    for i in range(len(valid)):
        days = 0
        if valid[i] == 1:
            packed = u16(buf, offset[i]) | u8(buf, offset[i] + 2) << 16
            year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
            if _is_date(year, month, day):
                days = _days(year, month, day)
            elif nulls:
                valid[i] = 0
            else:
                return i
        out[i] = days
    return -1


@njit(cache=True, nogil=True)
def _datetimes_from_log(buf: Any, offset: Any, valid: Any, fraction_bytes: int, nulls: Any, out: Any) -> int:
    """Write microseconds since 1970 to ``out``; nulls as :func:`_dates_from_log`."""
    for i in range(len(valid)):
        micros = 0
        if valid[i] == 1:
            at = offset[i]
            packed = (_be32(buf, at) << 8 | u8(buf, at + 4)) - 0x8000000000
            months, day = packed >> 22, packed >> 17 & 31
            hour, minute, second = packed >> 12 & 31, packed >> 6 & 63, packed & 63
            year, month = months // 13, months % 13
            if packed >= 0 and _is_date(year, month, day) and hour < 24 and minute < 60 and second < 60:
                seconds = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
                micros = seconds * 1000000 + _fraction(buf, at + 5, fraction_bytes)
            elif nulls:
                valid[i] = 0
            else:
                return i
        out[i] = micros
    return -1


@njit(cache=True, nogil=True)
def _timestamps_from_log(buf: Any, offset: Any, valid: Any, fraction_bytes: int, nulls: Any, out: Any) -> int:
    """Write microseconds since 1970 to ``out``; nulls as :func:`_dates_from_log`."""
    for i in range(len(valid)):
        micros = 0
        if valid[i] == 1:
            micros = _be32(buf, offset[i]) * 1000000 + _fraction(buf, offset[i] + 4, fraction_bytes)
            if micros == 0:
                if not nulls:
                    return i
                valid[i] = 0
        out[i] = micros
    return -1


_YEAR_MONTH = np.uint64(int.from_bytes(b"0000-00-", "little"))
_DAY_MINUTE = np.uint64(int.from_bytes(b"00 00:00", "little"))
_YEAR_MONTH_SIX = np.uint64(0x0006060006060606)
_DAY_MINUTE_SIX = np.uint64(0x0606000606000606)
_YEAR_MONTH_WRONG = np.uint64(0xFFF0F0FFF0F0F0F0)
_DAY_MINUTE_WRONG = np.uint64(0xF0F0FFF0F0FFF0F0)
"""Eight bytes of text at once: XOR with the pattern turns digits into their values and the separators into 0. Adding 6
lifts a value above 9 over the lower half of its byte. Bits left under the mask mean that the text is malformed."""


@njit(cache=True, nogil=True)
def _pair(value: Any, shift: Any) -> Any:
    """Return the number of two digit bytes in ``value``, the tens at bit ``shift``."""
    return (value >> shift & 15) * 10 + (value >> (shift + 8) & 15)


@njit(cache=True, nogil=True)
def _two(buf: Any, at: Any) -> Any:
    """Parse two digits; a large value if one is not a digit."""
    tens = u8(buf, at) - 48
    ones = u8(buf, at + 1) - 48
    return tens * 10 + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else 1000000


@njit(cache=True, nogil=True)
def _date_text(buf: Any, at: Any) -> Any:
    """Return ``(status, days)`` of ``YYYY-MM-DD``."""
    first = u64(buf, at) ^ _YEAR_MONTH
    day = _two(buf, at + 8)
    if ((first + _YEAR_MONTH_SIX) | first) & _YEAR_MONTH_WRONG or day > 99:
        return _BROKEN, 0
    digits = np.int64(first)
    year = _pair(digits, 0) * 100 + _pair(digits, 16)
    month = _pair(digits, 40)
    if not _is_date(year, month, day):
        return _NO_DATE, 0
    return _FINE, _days(year, month, day)


@njit(cache=True, nogil=True)
def _clock_text(buf: Any, at: Any, digits: Any) -> Any:
    """Return microseconds of ``DD HH:MM:SS[.f]`` since the day's begin, -1 if malformed; ``digits`` of fraction."""
    first = u64(buf, at) ^ _DAY_MINUTE
    if ((first + _DAY_MINUTE_SIX) | first) & _DAY_MINUTE_WRONG:
        return -1
    clock = np.int64(first)
    hour, minute, second = _pair(clock, 24), _pair(clock, 48), _two(buf, at + 9)
    if u8(buf, at + 8) != 58 or hour > 23 or minute > 59 or second > 59:
        return -1
    micros = 0
    if digits:
        if u8(buf, at + 11) != 46:
            return -1
        for k in range(digits):
            digit = u8(buf, at + 12 + k) - 48
            if digit < 0 or digit > 9:
                return -1
            micros = micros * 10 + digit
        for _ in range(6 - digits):
            micros *= 10
    return (hour * 3600 + minute * 60 + second) * 1000000 + micros


@njit(cache=True, nogil=True)
def _dates_from_text(buf: Any, offset: Any, length: Any, valid: Any, nulls: Any, out: Any) -> int:
    """As :func:`_dates_from_log`; return -2 - row for a value that is not a date text."""
    for i in range(len(valid)):
        days = 0
        if valid[i] == 1:
            status, days = _date_text(buf, offset[i]) if length[i] == 10 else (_BROKEN, 0)
            if status == _BROKEN:
                return -2 - i
            if status == _NO_DATE:
                if not nulls:
                    return i
                valid[i] = 0
        out[i] = days
    return -1


@njit(cache=True, nogil=True)
def _datetimes_from_text(buf: Any, offset: Any, length: Any, valid: Any, digits: int, nulls: Any, out: Any) -> int:
    """As :func:`_dates_from_text`, for DATETIME and TIMESTAMP with ``digits`` fraction digits."""
    size = 19 + digits + (digits > 0)
    for i in range(len(valid)):
        micros = 0
        if valid[i] == 1:
            at = offset[i]
            if length[i] != size:
                return -2 - i
            status, days = _date_text(buf, at)
            clock = _clock_text(buf, at + 8, digits)
            if status == _BROKEN or clock < 0:
                return -2 - i
            if status == _FINE:
                micros = days * 86_400_000_000 + clock
            elif nulls:
                valid[i] = 0
            else:
                return i
        out[i] = micros
    return -1


class _ArrowTemporalCodec(BaseCodec):
    """Base of the DATE and DATETIME codecs: zero dates."""

    def __init__(
        self, column: Column, table: str, *, nulls: bool = False, kind: type[DecodeError] = DecodeError
    ) -> None:
        super().__init__(column, table)
        self._nulls, self._kind = nulls, kind

    def _cells(self, cells: Cells) -> Cells:
        """Copy ``valid`` if zero dates become null: the kernels then write into it."""
        return cells._replace(valid=cells.valid.copy()) if self._nulls else cells

    def _finished(self, cells: Cells, out: npt.NDArray[Any], bad: int) -> pa.Array:
        if bad == -1:
            return self.array(cells, out)
        if bad < -1:
            raise self.undecodable(cells, -2 - bad, f"a {self.column.mysql}")
        raise self.error(
            f"a row holds a zero or impossible date in a {self.column.mysql} column, which Arrow cannot "
            'hold; set zero_dates = "text" to read dates as text, or "null" to read such dates as null, but not in a '
            'key (in [source] or [tables."db.table"], or as the option)',
            self._kind,
            bad,
        )


class DateCodec(_ArrowTemporalCodec):
    """DATE as date32."""

    arrow_type = pa.date32()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, 3)
        cells = self._cells(cells)
        out = np.empty(len(cells.valid), np.int32)
        bad = _dates_from_log(cells.buf, cells.offset, cells.valid, self._nulls, out)
        return self._finished(cells, out, int(bad))

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        cells = self._cells(cells)
        out = np.empty(len(cells.valid), np.int32)
        bad = _dates_from_text(cells.buf, cells.offset, cells.length, cells.valid, self._nulls, out)
        return self._finished(cells, out, int(bad))


class DatetimeCodec(_ArrowTemporalCodec):
    """DATETIME as timestamp[us], TIMESTAMP as timestamp[us, UTC]."""

    def __init__(
        self, column: Column, table: str, *, nulls: bool = False, kind: type[DecodeError] = DecodeError
    ) -> None:
        super().__init__(column, table, nulls=nulls, kind=kind)
        is_datetime = column.type == "datetime"
        self.arrow_type = pa.timestamp("us") if is_datetime else pa.timestamp("us", tz="UTC")
        self._kernel = _datetimes_from_log if is_datetime else _timestamps_from_log
        self._fraction_bytes = (column.scale + 1) // 2
        self._size = _BASE_BYTES[column.type] + self._fraction_bytes

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, self._size)
        cells = self._cells(cells)
        out = np.empty(len(cells.valid), np.int64)
        bad = self._kernel(cells.buf, cells.offset, cells.valid, self._fraction_bytes, self._nulls, out)
        return self._finished(cells, out, int(bad))

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        cells = self._cells(cells)
        out = np.empty(len(cells.valid), np.int64)
        bad = _datetimes_from_text(
            cells.buf, cells.offset, cells.length, cells.valid, self.column.scale, self._nulls, out
        )
        return self._finished(cells, out, int(bad))


_0, _2, _3, _4 = np.int64(0), np.int64(2), np.int64(3), np.int64(4)
"""numba compiles a function again for every literal argument, but only once for all numbers of a type."""


@njit(cache=True, nogil=True)
def put_digits(out: Any, at: Any, value: Any, digits: Any) -> Any:
    """Write ``digits`` decimal digits. Return the index of the next byte."""
    for k in range(digits - 1, -1, -1):
        out[at + k] = 48 + value % 10
        value //= 10
    return at + digits


@njit(cache=True, nogil=True)
def put_date(out: Any, at: Any, year: Any, month: Any, day: Any) -> Any:
    at = put_digits(out, at, year, _4)
    out[at] = 45
    at = put_digits(out, at + 1, month, _2)
    out[at] = 45
    return put_digits(out, at + 1, day, _2)


@njit(cache=True, nogil=True)
def put_clock(out: Any, at: Any, hour: Any, minute: Any, second: Any, micros: Any, digits: Any) -> Any:
    at = put_digits(out, at, hour, _3 if hour > 99 else _2)
    out[at] = 58
    at = put_digits(out, at + 1, minute, _2)
    out[at] = 58
    at = put_digits(out, at + 1, second, _2)
    if digits:
        out[at] = 46
        at = put_digits(out, at + 1, micros // 10 ** (6 - digits), digits)
    return at


@njit(cache=True, nogil=True)
def _put_datetime(buf: Any, place: int, digits: int, out: Any, at: int) -> Any:
    """Write a packed DATETIME as text."""
    packed = (_be32(buf, place) << 8 | u8(buf, place + 4)) & 0x7FFFFFFFFF
    months = packed >> 22
    at = put_date(out, at, months // 13 % 10000, months % 13, packed >> 17 & 31)
    out[at] = 32
    micros = _fraction(buf, place + 5, (digits + 1) // 2)
    return put_clock(out, at + 1, packed >> 12 & 31, packed >> 6 & 63, packed & 63, micros, digits)


@njit(cache=True, nogil=True)
def _put_timestamp(buf: Any, place: int, digits: int, out: Any, at: int) -> Any:
    """Write a packed TIMESTAMP as text in UTC."""
    seconds = _be32(buf, place)
    micros = _fraction(buf, place + 4, (digits + 1) // 2)
    year, month, day = (_0, _0, _0) if seconds == 0 and micros == 0 else date_of(seconds // 86400)
    at = put_date(out, at, year, month, day)
    out[at] = 32
    return put_clock(out, at + 1, seconds % 86400 // 3600, seconds % 3600 // 60, seconds % 60, micros, digits)


@njit(cache=True, nogil=True)
def _put_time(buf: Any, place: int, digits: int, out: Any, at: int) -> Any:
    """Write a packed TIME as text."""
    size = (digits + 1) // 2
    value: Any = np.int64(0)
    for k in range(3 + size):
        value = value << 8 | u8(buf, place + k)
    value -= np.int64(0x800000) << (8 * size)
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    clock = value >> (8 * size)
    micros = value & ((1 << (8 * size)) - 1)
    if size == 1:
        micros *= 10000
    elif size == 2:
        micros *= 100
    return put_clock(out, at, clock >> 12 & 1023, clock >> 6 & 63, clock & 63, micros, digits)


@njit(cache=True, nogil=True)
def _to_text(buf: Any, offset: Any, valid: Any, kind: int, digits: int, offsets: Any, out: Any) -> Any:
    """Write log values as MySQL prints them. Return the bytes written."""
    at: Any = np.int64(0)
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            place = offset[i]
            if kind == _DATE:
                packed = u16(buf, place) | u8(buf, place + 2) << 16
                at = put_date(out, at, (packed >> 9) % 10000, packed >> 5 & 15, packed & 31)
            elif kind == _DATETIME:
                at = _put_datetime(buf, place, digits, out, at)
            elif kind == _TIMESTAMP:
                at = _put_timestamp(buf, place, digits, out, at)
            else:
                at = _put_time(buf, place, digits, out, at)
        offsets[i + 1] = at
    return at


class TemporalTextCodec(BaseCodec):
    """DATE, DATETIME, TIMESTAMP (UTC) and TIME as MySQL's text, zero dates unchanged."""

    arrow_type = pa.string()
    _WIDEST = 26
    """``YYYY-MM-DD HH:MM:SS.ffffff``"""

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        self._kind = _KINDS[column.type]
        self._size = _BASE_BYTES[column.type] + (column.scale + 1) // 2

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, self._size)
        rows = len(cells.valid)
        self.check_total(rows * self._WIDEST)
        offsets = np.empty(rows + 1, np.int32)
        out = np.empty(rows * self._WIDEST, np.uint8)
        size = _to_text(cells.buf, cells.offset, cells.valid, self._kind, self.column.scale, offsets, out)
        return self.array(cells, offsets, out[:size])

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        return self.strings(cells, *self.gathered(cells))


@njit(cache=True, nogil=True)
def _times_from_log(buf: Any, offset: Any, valid: Any, fraction_bytes: int, out: Any) -> None:
    """Write microseconds to ``out``, negative for times below zero."""
    size = 3 + fraction_bytes
    bias = np.int64(1) << (8 * size - 1)
    unit = 1000000 if fraction_bytes == 0 else 10000 if fraction_bytes == 1 else 100 if fraction_bytes == 2 else 1
    for i in range(len(valid)):
        micros = np.int64(0)
        if valid[i] == 1:
            packed = np.int64(0)
            for k in range(size):
                packed = packed << 8 | u8(buf, offset[i] + k)
            packed -= bias
            value = abs(packed)
            clock = value >> 8 * fraction_bytes
            seconds = (clock >> 12 & 1023) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
            micros = seconds * 1000000
            if fraction_bytes:
                micros += (value & ((np.int64(1) << 8 * fraction_bytes) - 1)) * unit
            if packed < 0:
                micros = -micros
        out[i] = micros


@njit(cache=True, nogil=True)
def _times_from_text(buf: Any, offset: Any, length: Any, valid: Any, digits: int, out: Any) -> int:
    """Write microseconds of ``[-]HH[H]:MM:SS[.f]`` to ``out``. Return the first malformed row, or -1."""
    for i in range(len(valid)):
        micros = np.int64(0)
        if valid[i] == 1:
            at, end = offset[i], offset[i] + length[i]
            negative = at < end and u8(buf, at) == 45
            at += negative
            clock = end - (digits + 1 if digits else 0)
            if clock - at < 8 or clock - at > 9:
                return i
            hour = np.int64(0)
            for k in range(at, clock - 6):
                digit = u8(buf, k) - 48
                if digit < 0 or digit > 9:
                    return i
                hour = hour * 10 + digit
            minute, second = _two(buf, clock - 5), _two(buf, clock - 2)
            if minute > 59 or second > 59 or u8(buf, clock - 6) != 58 or u8(buf, clock - 3) != 58:
                return i
            part = np.int64(0)
            if digits and u8(buf, clock) != 46:
                return i
            for k in range(6):
                digit = u8(buf, clock + 1 + k) - 48 if k < digits else 0
                if digit < 0 or digit > 9:
                    return i
                part = part * 10 + digit
            micros = (hour * 3600 + minute * 60 + second) * 1000000 + part
            if negative:
                micros = -micros
        out[i] = micros
    return -1


class TimeCodec(BaseCodec):
    """TIME as int64 microseconds, at most ±3,020,399,000,000."""

    arrow_type = pa.int64()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        fraction_bytes = (self.column.scale + 1) // 2
        self.check_lengths(cells, _BASE_BYTES["time"] + fraction_bytes)
        out = np.empty(len(cells.valid), np.int64)
        _times_from_log(cells.buf, cells.offset, cells.valid, fraction_bytes, out)
        return self.array(cells, out)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        out = np.empty(len(cells.valid), np.int64)
        bad = _times_from_text(cells.buf, cells.offset, cells.length, cells.valid, self.column.scale, out)
        if bad >= 0:
            raise self.undecodable(cells, bad, f"a {self.column.mysql}")
        return self.array(cells, out)

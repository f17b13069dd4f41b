"""FLOAT and DOUBLE as text in the form of Java's ``Float.toString`` and ``Double.toString``.

Arrow's cast finds the shortest digits that give the number, as Java does since JDK 19. A compiled loop then puts them
into Java's form: a digit before the point and one after it at least, and an exponent below 0.001 and from 10 million
on. If one digit is enough for a number, Java writes the nearest number of two digits (``4.9E-324``); the two differ
only for numbers next to 0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.kernels._memory import copy, u8

__all__ = ["real_text"]

_FEW_DIGITS: Final = {pa.float32(): 1e-43, pa.float64(): 1e-322}
"""Below, the nearest number of two digits can differ from the shortest text."""
_ONE_DIGIT: Final = 5
"""Most characters of an exponent with its ``e`` (``e-324``), so a longer text has more than one digit."""
_MOST_MORE: Final = 3
"""Most characters that a text grows by: ``1e-7`` → ``1.0E-7``, ``1`` → ``1.0``, ``0.0001`` → ``1.0E-4``."""
_LEAST_POWER, _MOST_POWER = -3, 6
"""Powers of ten that are written without an exponent."""
_MINUS, _POINT, _ZERO, _E, _SMALL_E = 45, 46, 48, 69, 101


def real_text(array: pa.Array) -> pa.Array:
    """Return FLOAT or DOUBLE as Java writes them: ``1.0``, ``0.001``, ``1.0E7``, ``9.99E-4``."""
    text = array.cast(pa.string())
    values = np.abs(np.asarray(array.fill_null(0)))
    few = (values > 0) & (values < _FEW_DIGITS[array.type])
    if few.any():
        shortest = zip(text.filter(few).to_pylist(), array.filter(few).to_pylist(), strict=True)
        exact = [f"{value:.1e}" if len(one.lstrip("-")) <= 1 + _ONE_DIGIT else one for one, value in shortest]
        text = pc.replace_with_mask(text, few, pa.array(exact, pa.string()))
    if not len(text):
        return text
    valid, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    source = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    out = np.empty(int(starts[-1] - starts[0]) + _MOST_MORE * len(text), np.uint8)
    out_offsets = np.zeros(len(text) + 1, np.int32)
    _rewrite(source, starts, out, out_offsets)
    mask = None if valid is None else pc.invert(text.is_null()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(text), [mask, pa.py_buffer(out_offsets), pa.py_buffer(out)])


@njit(cache=True, nogil=True)
def _rewrite(data: Any, starts: Any, out: Any, out_offsets: Any) -> None:
    at = 0
    for row in range(starts.shape[0] - 1):
        if starts[row] < starts[row + 1]:
            at = _put_real(data, starts[row], starts[row + 1], out, at)
        out_offsets[row + 1] = at


@njit(cache=True, nogil=True)
def _put_real(data: Any, start: int, end: int, out: Any, at: int) -> int:
    """Write the number in ``data[start:end]``, ``-?digits(.digits)?(e[+-]?digits)?``. Return the next byte's index."""
    if u8(data, start) == _MINUS:
        out[at] = _MINUS
        at += 1
        start += 1
    mantissa, point, power = end, -1, 0
    for k in range(start, end):
        if u8(data, k) == _POINT:
            point = k
        elif u8(data, k) == _SMALL_E:
            mantissa, power = k, _exponent(data, k + 1, end)
            break
    if point < 0:
        point = mantissa
    first = start  # the first digit that is not 0
    while first < mantissa and (u8(data, first) == _ZERO or first == point):
        first += 1
    power += point - first - 1 if first < point else point - first
    if first < mantissa and not _LEAST_POWER <= power <= _MOST_POWER:
        return _put_scientific(data, first, mantissa, power, out, at)
    copy(out, at, data, start, mantissa - start)
    at += mantissa - start
    if point == mantissa:
        out[at] = _POINT
        out[at + 1] = _ZERO
        at += 2
    return at


@njit(cache=True, nogil=True)
def _exponent(data: Any, start: int, end: int) -> int:
    value = 0
    for k in range(start, end):
        digit = u8(data, k) - _ZERO
        if 0 <= digit <= 9:
            value = 10 * value + digit
    return -value if u8(data, start) == _MINUS else value


@njit(cache=True, nogil=True)
def _put_scientific(data: Any, first: int, end: int, power: int, out: Any, at: int) -> int:
    """Write the digits from ``first`` on with one before the point, and the exponent."""
    last = end - 1
    while last > first and (u8(data, last) == _ZERO or u8(data, last) == _POINT):
        last -= 1
    out[at] = u8(data, first)
    out[at + 1] = _POINT
    at += 2
    if last == first:
        out[at] = _ZERO
        at += 1
    for k in range(first + 1, last + 1):
        if u8(data, k) != _POINT:
            out[at] = u8(data, k)
            at += 1
    out[at] = _E
    at += 1
    if power < 0:
        out[at] = _MINUS
        at += 1
        power = -power
    divisor = 100 if power >= 100 else 10 if power >= 10 else 1
    while divisor:
        out[at] = _ZERO + power // divisor % 10
        at += 1
        divisor //= 10
    return at

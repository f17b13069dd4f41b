"""128-bit digests of the rows of Arrow columns: equal rows have equal digests, different ones practically never.

**The message of a row** holds which of its values are NULL, and then each value, column by column. So two rows have the
same message exactly if all their values are equal by Spark's ``<=>``:

=====================  ==========================================================
column                 words (of 64 bits)
=====================  ==========================================================
integers, dates        the number
timestamps             microseconds
floats                 as a double; −0.0 is 0.0, and there is one NaN
decimals               two: the unscaled number
texts, binaries        the number of bytes, then the bytes, zero-padded to words
lists of FLOAT         the same, of the floats' bytes; NULL is a NaN that no float has
other lists            the same, of the digests of their elements, each as a row of one column
structs, VARIANTs      their fields one after another
NULL                   the words of 0, or of no bytes
=====================  ==========================================================

Before all of them come words with a bit for each column and each field of a struct: whether it is NULL.

**The digest** is SipHash-2-4 with 128 bits (:mod:`headgate.compare._siphash`) under a key that is drawn at random for
each comparison. SipHash is designed as a pseudo-random function: without the key, no way is known to distinguish it
from a function that gives each message a random number of 128 bits. So no data, whatever its author intends, makes two
different rows collide with a chance above 2⁻¹²⁸. Sums of digests behave as sums of such numbers do
(:mod:`headgate.compare._buckets`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.compare._siphash import Words, absorb, absorb_texts, begin, finish
from headgate.delta import VARIANT

__all__ = ["Digests", "RowDigests", "UnknownTypeError", "draw_key", "form_of"]

_BLOCK_ROWS = 4096
"""Rows whose states stay in a core's cache from one column to the next."""

Digests: TypeAlias = tuple[Words, Words]
"""Lower and higher halves."""


class UnknownTypeError(Exception):
    """A type that has no message."""


def draw_key() -> tuple[int, int]:
    """Draw a random key."""
    return secrets.randbits(64), secrets.randbits(64)


_SIMPLE_FORMS: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_signed_integer, "integer"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "float"),
    (pa.types.is_date32, "date"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
)


_NULL_IN_LIST: Final = 0xFFFFFFFF
"""Bits of NULL in a list of FLOAT; those of a NaN are 0x7FC00000 (:func:`_canonical`)."""


def form_of(kind: pa.DataType) -> str:
    """Return a name that two types share exactly if equal values of them have the same message.

    :raises UnknownTypeError: the type has no message.
    """
    simple = next((form for is_of, form in _SIMPLE_FORMS if is_of(kind)), None)
    if simple is not None:
        return simple
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal128(kind):
        return f"decimal with {kind.scale} digits after the point"
    if pa.types.is_list(kind):
        return f"list of {'FLOAT' if pa.types.is_float32(kind.value_type) else form_of(kind.value_type)}"
    if kind.equals(VARIANT):
        return "variant"
    if pa.types.is_struct(kind):
        return f"struct of {', '.join(f'{field.name} {form_of(field.type)}' for field in kind)}"
    raise UnknownTypeError(f"{kind}")


@dataclass(frozen=True)
class _Leaf:
    """A column of some rows, or a field of a struct column."""

    words: tuple[Words, ...] = ()
    """Next words of each row."""
    data: npt.NDArray[np.uint8] | None = None
    starts: npt.NDArray[np.int64] | None = None
    lengths: npt.NDArray[np.int64] | None = None
    """The bytes that follow the words."""
    valid: npt.NDArray[np.bool_] | None = None
    """Rows that have a value; None: all."""


class RowDigests:
    """Digests of rows with columns of these types, in this order.

    :param key: from :func:`draw_key`. Digests under different keys are unrelated.
    :raises UnknownTypeError: a type has no message.
    """

    def __init__(self, types: Sequence[pa.DataType], key: tuple[int, int]) -> None:
        for kind in types:
            form_of(kind)
        self._types, self._key = list(types), key

    def __call__(self, columns: Sequence[pa.Array | None], rows: int) -> Digests:
        """Return the digests of ``rows`` rows.

        :param columns: of types with the same :func:`form_of`; None: NULL in all rows.
        """
        leaves = [
            leaf for column, kind in zip(columns, self._types, strict=True) for leaf in self._leaves(column, kind, rows)
        ]
        words = _null_words(leaves, rows)
        counts = np.full(rows, len(words) + sum(len(leaf.words) for leaf in leaves), np.int64)
        for leaf in leaves:
            if leaf.lengths is not None:
                counts += (leaf.lengths + 7) >> 3
        low, high = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
        for start in range(0, rows, _BLOCK_ROWS):
            block = slice(start, min(start + _BLOCK_ROWS, rows))
            low[block], high[block] = self._block(words, leaves, counts[block], block)
        return low, high

    def _block(self, nulls: list[Words], leaves: list[_Leaf], counts: npt.NDArray[np.int64], block: slice) -> Digests:
        state = begin(self._key, len(counts))
        for word in nulls:
            absorb(*state, word[block])
        for leaf in leaves:
            for word in leaf.words:
                absorb(*state, word[block])
            if leaf.starts is not None and leaf.lengths is not None:
                absorb_texts(*state, leaf.data, leaf.starts[block], leaf.lengths[block])
        return finish(state, counts)

    def _leaves(self, column: pa.Array | None, kind: pa.DataType, rows: int) -> Iterator[_Leaf]:
        """Yield a column's leaves: for a struct one that only marks NULL, then its fields'."""
        if pa.types.is_struct(kind):
            yield _Leaf(valid=_valid(column, rows))
            fields = [None] * kind.num_fields if column is None else column.flatten()
            for values, field in zip(fields, kind, strict=True):
                yield from self._leaves(values, field.type, rows)
            return
        valid = _valid(column, rows)
        if pa.types.is_list(kind) and column is not None:
            yield _bytes_of(column, valid, *self._elements(column.values))
        elif _is_bytes(kind):
            yield _no_bytes(valid, rows) if column is None else _bytes_of(column, valid)
        elif column is None:
            yield _Leaf((np.zeros(rows, np.uint64),) * (2 if pa.types.is_decimal(kind) else 1), valid=valid)
        else:
            words = _numbers(column)
            yield _Leaf(
                words if valid is None else tuple(np.where(valid, word, np.uint64(0)) for word in words), valid=valid
            )

    def _elements(self, values: pa.Array) -> tuple[npt.NDArray[np.uint8], int]:
        """Return bytes of a list column's elements, and how many each has."""
        if pa.types.is_float32(values.type):
            return _float_bytes(values), 4
        digests = np.column_stack(RowDigests([values.type], self._key)([values], len(values)))
        return digests.reshape(-1).view(np.uint8), 16


def _null_words(leaves: Sequence[_Leaf], rows: int) -> list[Words]:
    """Return words in which bit i is set where leaf i is NULL."""
    words = [np.zeros(rows, np.uint64) for _ in range(0, len(leaves), 64)]
    for number, leaf in enumerate(leaves):
        if leaf.valid is not None:
            words[number // 64] |= (~leaf.valid).astype(np.uint64) << np.uint64(number % 64)
    return words


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or form_of(kind) in ("string", "binary")


def _valid(column: pa.Array | None, rows: int) -> npt.NDArray[np.bool_] | None:
    if column is None:
        return np.zeros(rows, np.bool_)
    if not column.null_count:
        return None
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _buffer(column: pa.Array, index: int, dtype: Any, first: int, count: int) -> npt.NDArray[Any]:
    """Return ``count`` items of one of the column's buffers."""
    buffer = column.buffers()[index]
    if buffer is None or not count:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count, first * np.dtype(dtype).itemsize)


def _numbers(column: pa.Array) -> tuple[Words, ...]:
    """Return one word per row, for decimals two."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    kind, rows = column.type, len(column)
    if pa.types.is_decimal128(kind):
        both = _buffer(column, 1, np.uint64, 2 * column.offset, 2 * rows).reshape(rows, 2)
        return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
    if pa.types.is_floating(kind):
        values = _canonical(_buffer(column, 1, kind.to_pandas_dtype(), column.offset, rows))
        return (values.astype(np.float64).view(np.uint64),)
    dtype = np.dtype(f"int{kind.bit_width}")
    return (_buffer(column, 1, dtype, column.offset, rows).astype(np.int64).view(np.uint64),)


def _canonical(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return floats in a form in which equal ones have equal bits."""
    with np.errstate(invalid="ignore"):  # values of NULL rows are arbitrary
        canonical: npt.NDArray[Any] = values + values.dtype.type(0.0)
    canonical[np.isnan(canonical)] = np.nan
    return canonical


def _no_bytes(valid: npt.NDArray[np.bool_] | None, rows: int) -> _Leaf:
    nothing = np.zeros(rows, np.int64)
    return _Leaf((np.zeros(rows, np.uint64),), np.empty(0, np.uint8), nothing, nothing, valid)


def _bytes_of(
    column: pa.Array, valid: npt.NDArray[np.bool_] | None, data: npt.NDArray[np.uint8] | None = None, width: int = 1
) -> _Leaf:
    """Return the leaf of a column of texts or lists.

    :param data: bytes of a list's elements, ``width`` each; None: the texts' own.
    """
    kind, rows = column.type, len(column)
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    offsets = _buffer(column, 1, np.int64 if large else np.int32, column.offset, rows + 1).astype(np.int64) * width
    if data is None:
        whole = column.buffers()[2]
        data = np.empty(0, np.uint8) if whole is None else np.frombuffer(whole, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if rows and (starts[0] < 0 or offsets[-1] > len(data) or lengths.min() < 0):
        raise ValueError(f"a column of type {kind} has values that are not inside its buffers")
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    return _Leaf((lengths.astype(np.uint64),), data, starts, lengths, valid)


def _float_bytes(values: pa.Array) -> npt.NDArray[np.uint8]:
    floats = _canonical(_buffer(values, 1, np.float32, values.offset, len(values)))
    if values.null_count:
        floats.view(np.uint32)[np.asarray(values.is_null())] = _NULL_IN_LIST
    return floats.view(np.uint8)

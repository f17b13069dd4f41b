"""ENUM and SET as their text.

| type | log | text |
|---|---|---|
| ENUM | index, 1 or 2 bytes, little-endian; 0 = the empty value of a failed insert | the value |
| SET | bitmap, 1 to 8 bytes, little-endian, bit 0 = first value | the values, joined by commas |

Text is in the column's character set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.catalog import Column
from headgate.columns._codec import BaseCodec
from headgate.columns._hex_keys import ZERO, needs_hex
from headgate.columns._strings import StringConverter
from headgate.errors import AmbiguousKeyError
from headgate.kernels import NULL, Cells, copy, u8

__all__ = ["EnumCodec", "SetCodec"]


@njit(cache=True, nogil=True)
def _number(buf: Any, at: int, size: int) -> Any:
    """Return ``size`` (up to 8) little-endian bytes as uint64."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(u8(buf, at + k)) << np.uint64(8 * k)
    return value


@njit(cache=True, nogil=True)
def _measure(buf: Any, offset: Any, length: Any, valid: Any, starts: Any, is_set: Any) -> tuple[int, int]:
    """Return ``(bytes of all texts, first row with a value that the column does not have or -1)``."""
    total = 0
    count = len(starts) - 1
    for i in range(len(valid)):
        if valid[i] != 1:
            continue
        if length[i] > 8:
            return total, i
        value = _number(buf, offset[i], length[i])
        if not is_set:
            if value > np.uint64(count):
                return total, i
            if value:
                total += starts[np.int64(value)] - starts[np.int64(value) - 1]
            continue
        if count < 64 and value >> np.uint64(count):
            return total, i
        commas = -1
        for k in range(count):
            if value >> np.uint64(k) & np.uint64(1):
                total += starts[k + 1] - starts[k]
                commas += 1
        total += max(commas, 0)
    return total, -1


@njit(cache=True, nogil=True)
def _write(
    buf: Any, offset: Any, length: Any, valid: Any, starts: Any, texts: Any, is_set: Any, offsets: Any, out: Any
) -> None:
    """Write the texts that :func:`_measure` counted."""
    at = 0
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            value = _number(buf, offset[i], length[i])
            if not is_set:
                if value:
                    member = np.int64(value) - 1
                    copy(out, at, texts, starts[member], starts[member + 1] - starts[member])
                    at += starts[member + 1] - starts[member]
            else:
                first = True
                for k in range(len(starts) - 1):
                    if value >> np.uint64(k) & np.uint64(1):
                        if not first:
                            out[at] = 44
                            at += 1
                        first = False
                        copy(out, at, texts, starts[k], starts[k + 1] - starts[k])
                        at += starts[k + 1] - starts[k]
        offsets[i + 1] = at


class _MemberCodec(BaseCodec):
    """Base of the ENUM and SET codecs: the table of values."""

    arrow_type = pa.string()
    _is_set = False

    def __init__(self, column: Column, table: str, *, key: bool = False, spelled: bool = False) -> None:
        super().__init__(column, table)
        self._ambiguous_empty = (
            key and "" in column.members
        )  # then a key has two values with empty text: a member, and 0
        self._spelled = self._ambiguous_empty and spelled and needs_hex(column)
        texts = [member.encode() for member in column.members]
        self._starts: npt.NDArray[np.int64] = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        self._texts = np.frombuffer(bytearray(b"".join(texts) + b"\0"), np.uint8)
        self._strings = StringConverter(self, column.charset)

    @property
    def select(self) -> str:
        """See :class:`Codec`. If two values have the empty text, the one that is no member is a zero byte."""
        name = super().select
        return f"IF({name} = 0, X'00', {name})" if self._ambiguous_empty else name

    def _zeros(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """Return the rows with the value 0, if such a key would be ambiguous.

        :raises AmbiguousKeyError: there are such rows, and they are not spelled.
        """
        if not self._ambiguous_empty:
            return np.zeros(len(cells.valid), np.bool_)
        zero: npt.NDArray[np.bool_] = cells.valid == 1
        for k in range(8):  # a SET has no more bytes; the text of a member begins with another byte
            rows = np.flatnonzero(zero & (cells.length > k))
            zero[rows] = cells.buf[cells.offset[rows] + k] == 0
        zero &= cells.length > 0
        if zero.any() and not self._spelled:
            raise self.error(
                f"a key has the value 0 of its {self.column.type.upper()} column, with the same text as member ''",
                AmbiguousKeyError,
                int(np.argmax(zero)),
            )
        return zero

    @staticmethod
    def _with_zeros(texts: pa.Array, zeros: npt.NDArray[np.bool_]) -> pa.Array:
        return pc.if_else(pa.array(zeros), ZERO, texts) if zeros.any() else texts

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        zeros = self._zeros(cells)
        where = (cells.buf, cells.offset, cells.length, cells.valid, self._starts)
        total, bad = _measure(*where, self._is_set)
        if bad >= 0:
            raise self.undecodable(cells, bad, f"one of the values of its {self.column.type.upper()} column")
        self.check_total(total)
        offsets = np.empty(len(cells.valid) + 1, np.int32)
        out = np.empty(total, np.uint8)
        _write(*where, self._texts, self._is_set, offsets, out)
        return self._with_zeros(self.array(cells, offsets, out), zeros)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        zeros = self._zeros(cells)
        if not zeros.any():
            return self._strings(cells)
        others = cells._replace(valid=np.where(zeros, np.uint8(NULL), cells.valid))
        return self._with_zeros(self._strings(others), zeros)


class EnumCodec(_MemberCodec):
    """ENUM."""


class SetCodec(_MemberCodec):
    """SET."""

    _is_set = True

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

__all__ = ["EnumCodec", "SetCodec", "member_numbers"]

_CHARACTER = 4
"""Most bytes of a character: MySQL converts the zero byte of a ``select`` to the column's character set."""


@njit(cache=True, nogil=True)
def _number(buf: Any, at: int, size: int) -> Any:
    """Return ``size`` (up to 8) little-endian bytes as uint64."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(u8(buf, at + k)) << np.uint64(8 * k)
    return value


@njit(cache=True, nogil=True)
def _numbers(buf: Any, offset: Any, length: Any, valid: Any, out: Any) -> None:
    for i in range(len(valid)):
        out[i] = _number(buf, offset[i], min(length[i], 8)) if valid[i] == 1 else np.uint64(0)


def member_numbers(cells: Cells) -> npt.NDArray[np.uint64]:
    """Return the numbers behind log values, of at most 8 bytes each; 0 for NULL."""
    out = np.empty(len(cells.valid), np.uint64)
    _numbers(cells.buf, cells.offset, cells.length, cells.valid, out)
    return out


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
        first: dict[str, int] = {}
        self._again = [
            index
            for index, member in enumerate(column.members if key else ())
            if first.setdefault(member, index) != index and "?" not in member  # "?" may be any character
        ]
        """Indexes of members of a key that have the text of an earlier one."""
        self._has_zero = key and "" in column.members  # the text of 0, too
        self._is_ambiguous = self._has_zero or bool(self._again)
        self._spelled = self._has_zero and not self._again and spelled and needs_hex(column)
        texts = [member.encode() for member in column.members]
        self._starts: npt.NDArray[np.int64] = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        self._texts = np.frombuffer(bytearray(b"".join(texts) + b"\0"), np.uint8)
        self._strings = StringConverter(self, column.charset)

    @property
    def select(self) -> str:
        """See :class:`Codec`. A value of a key that is another one's text, too, is the character of code 0."""
        name = super().select
        number = f"CAST({name} AS UNSIGNED)"
        conditions = [f"{number} = 0"] * self._has_zero
        conditions += [f"{number} >> {at} & 1" if self._is_set else f"{number} = {at + 1}" for at in self._again]
        return f"IF({' OR '.join(conditions)}, X'00', {name})" if conditions else name

    def _with_ambiguous(self, texts: pa.Array, ambiguous: npt.NDArray[np.bool_]) -> pa.Array:
        """Return ``texts`` with the rows ``ambiguous`` spelled.

        :raises AmbiguousKeyError: there are such rows, and they are not spelled.
        """
        if not ambiguous.any():
            return texts
        if self._spelled:
            return pc.if_else(pa.array(ambiguous), ZERO, texts)
        kind = self.column.type.upper()
        what = f"the value 0 of its {kind} column, with the same text as member ''"
        if self._again:
            what = f"a value of its {kind} column whose text another value has, too"
        raise self.error(f"a key has {what}", AmbiguousKeyError, int(np.argmax(ambiguous)))

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        where = (cells.buf, cells.offset, cells.length, cells.valid, self._starts)
        total, bad = _measure(*where, self._is_set)
        if bad >= 0:
            raise self.undecodable(cells, bad, f"one of the values of its {self.column.type.upper()} column")
        self.check_total(total)
        offsets = np.empty(len(cells.valid) + 1, np.int32)
        out = np.empty(total, np.uint8)
        _write(*where, self._texts, self._is_set, offsets, out)
        texts = self.array(cells, offsets, out)
        if not self._is_ambiguous:
            return texts
        numbers = member_numbers(cells)
        ambiguous = (numbers == 0) & self._has_zero
        for at in self._again:
            ambiguous |= (numbers >> np.uint64(at) & np.uint64(1) == 1) if self._is_set else numbers == at + 1
        return self._with_ambiguous(texts, ambiguous & (cells.valid == 1))

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        if not self._is_ambiguous:
            return self._strings(cells)
        ambiguous = (cells.valid == 1) & (cells.length > 0) & (cells.length <= _CHARACTER)
        for at in range(_CHARACTER):
            rows = np.flatnonzero(ambiguous & (cells.length > at))
            ambiguous[rows] = cells.buf[cells.offset[rows] + at] == 0
        others = cells._replace(valid=np.where(ambiguous, np.uint8(NULL), cells.valid))
        return self._with_ambiguous(self._strings(others), ambiguous)


class EnumCodec(_MemberCodec):
    """ENUM."""


class SetCodec(_MemberCodec):
    """SET."""

    _is_set = True

"""Multi-byte character sets of East Asia: MySQL's own tables, unpacked at first use.

A table is an array over the codes of up to two bytes: index ``b`` for a one-byte code, ``first << 8 | second`` for one
of two bytes. Two sets need more:

* ujis and eucjpms have codes of three bytes, all of which begin with 0x8F; their table is over the other two bytes.
* gb18030 has codes of four bytes. Their numbers, ``(((b1 - 0x81) * 10 + b2 - 0x30) * 126 + b3 - 0x81) * 10 + b4 -
  0x30``, map to Unicode in runs.

A code that a column can hold but that has no character is ``?``, as in ``CONVERT(… USING utf8mb4)``. If several codes
are one character, MySQL writes it as one of them. The others are *aliases* (marked by ``ALIAS``). A text with an alias
or with a code without character does not convert back to the same bytes.

``tools/generate_charsets.py`` writes the data module: differences of neighbouring 16-bit entries (XORed with the table
of a similar set if there is one), zlib, base 85.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ALIAS", "MULTI_BYTE", "NO_CODE", "MultiByteTable", "multi_byte_table"]

MULTI_BYTE = frozenset({"gbk", "gb2312", "gb18030", "sjis", "cp932", "big5", "ujis", "eucjpms", "euckr"})
"""Character sets that have such a table."""
NO_CODE = 0xFFFFFFFF
"""Entry of an index that is not a code of the set."""
ALIAS = 1 << 31
"""Bit of an entry: MySQL writes the character as another code (or there is no character)."""

_UNMAPPED = ord("?")


class MultiByteTable(NamedTuple):
    """Codes of one character set. An entry's lower 21 bits are the character."""

    codes: npt.NDArray[np.uint32]
    """uint32[65536]: codes of one and of two bytes."""
    triples: npt.NDArray[np.uint32]
    """uint32[65536]: codes behind 0x8F; uint32[0] if there are none."""
    runs: npt.NDArray[np.int64]
    """int64[n, 3]: first number, its character, length, ascending; int64[0, 3] if there are no four-byte codes."""

    def decode(self, value: bytes) -> str | None:
        """Decode one value, None if it is not text. For names; kernels decode values of rows."""
        text = []
        at = 0
        while at < len(value):
            entry, size = self._next(value[at : at + 4])
            if entry == NO_CODE:
                return None
            text.append(chr(entry & 0x1FFFFF))
            at += size
        return "".join(text)

    def _next(self, head: bytes) -> tuple[int, int]:
        """Return ``(entry, bytes)`` of the code that ``head`` begins with."""
        entry = int(self.codes[head[0]])
        if entry != NO_CODE or len(head) < 2:
            return entry, 1
        entry = int(self.codes[int.from_bytes(head[:2], "big")])
        if entry != NO_CODE or len(head) < 3:
            return entry, 2
        if len(self.triples) and head[0] == 0x8F:
            return int(self.triples[int.from_bytes(head[1:3], "big")]), 3
        one, two, three, four = (byte - low for byte, low in zip(head.ljust(4), (0x81, 0x30, 0x81, 0x30), strict=True))
        if not len(self.runs) or not (0 <= one < 126 and 0 <= two < 10 and 0 <= three < 126 and 0 <= four < 10):
            return NO_CODE, 1
        number = ((one * 10 + two) * 126 + three) * 10 + four
        first, character, count = self.runs[np.searchsorted(self.runs[:, 0], number, "right") - 1]
        return (int(character + number - first) if number < first + count else _UNMAPPED | ALIAS), 4


@cache
def multi_byte_table(charset: str) -> MultiByteTable:
    """Return the table of a character set in ``MULTI_BYTE``."""
    from headgate.catalog import _multibyte_data as data

    codes = _entries(charset)
    triples = _entries(f"{charset}-8f") if f"{charset}-8f" in data.CODES else np.empty(0, np.uint32)
    for code in (int(text, 16) for text in data.ALIASES.get(charset, "").split()):
        (codes if code < 0x10000 else triples)[code & 0xFFFF] |= np.uint32(ALIAS)
    runs = np.array(data.GB18030_RUNS if charset == "gb18030" else (), np.int64).reshape(-1, 3)
    return MultiByteTable(codes, triples, runs)


def _entries(name: str) -> npt.NDArray[np.uint32]:
    packed = _unpacked(name)
    entries = packed.astype(np.uint32)
    entries[packed == 0xFFFF] = NO_CODE
    entries[(entries == _UNMAPPED) & (np.arange(len(entries)) != _UNMAPPED)] |= np.uint32(ALIAS)
    return entries


def _unpacked(name: str) -> npt.NDArray[np.uint16]:
    from headgate.catalog import _multibyte_data as data

    steps = np.frombuffer(zlib.decompress(base64.b85decode(data.CODES[name])), "<u2")
    codes = np.cumsum(steps, dtype=np.uint16)
    origin = data.ORIGINS.get(name)
    return codes ^ _unpacked(origin) if origin else codes

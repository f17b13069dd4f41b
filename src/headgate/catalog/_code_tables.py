"""Character sets other than UTF: Python's codecs, with the codes that MySQL reads as other characters.

A single-byte set is a text of 256 characters. A multi-byte set of East Asia is an array over the codes of up to two
bytes: index ``b`` for a one-byte code, ``first << 8 | second`` for one of two bytes. Two kinds of sets need more:

* ujis and eucjpms have codes of three bytes, all of which begin with 0x8F; their table is over the other two bytes.
* gb18030 has codes of four bytes. Their numbers, ``(((b1 - 0x81) * 10 + b2 - 0x30) * 126 + b3 - 0x81) * 10 + b4 -
  0x30``, map to Unicode in runs.

A code that a column can hold but that has no character is ``?``, as in ``CONVERT(… USING utf8mb4)``. If several codes
are one character, MySQL writes it as one of them. The others are *aliases* (marked by ``ALIAS``). A text with an alias
or with a code without character does not convert back to the same bytes.

``tools/generate_charsets.py`` compares each set with a server and writes the differences; a test compares the result
with digests, because a codec could change with Python. Source of the sets' bytes: MySQL Reference Manual, "Supported
Character Sets and Collations"; server source, ``strings/ctype-*.cc`` (``ismbchar_…``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.catalog._charset_data import ALIASES, PATCHES, RUNS

__all__ = [
    "ALIAS",
    "MULTI_BYTE",
    "NO_CODE",
    "SINGLE_BYTE",
    "MultiByteTable",
    "code_table",
    "multi_byte_table",
    "single_byte_text",
]

_SINGLE: Final = {
    "armscii8": "ascii",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "dec8": "latin_1",
    "geostd8": "cp1252",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "hp8": "hp_roman8",
    "keybcs2": "cp437",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "swe7": "ascii",
    "tis620": "tis_620",
}
"""Single-byte set -> the codec of Python that is nearest to it."""


class _Layout(NamedTuple):
    """Codes that a column of a set can hold. Each byte is in one of the ranges ``(first, last)``."""

    codec: str
    lead: tuple[tuple[int, int], ...]
    trail: tuple[tuple[int, int], ...]
    single: tuple[tuple[int, int], ...] = ((0, 0x7F),)
    katakana: bool = False
    """Whether 0x8E with a byte from 0xA1 to 0xDF is a code, and 0x8F with two trail bytes is one of three bytes."""

    def codes(self) -> Iterator[int]:
        """Yield the codes of one and two bytes."""
        yield from _bytes_of(self.single)
        for lead in _bytes_of(self.lead):
            yield from (lead << 8 | trail for trail in _bytes_of(self.trail))
        if self.katakana:
            yield from range(0x8EA1, 0x8EE0)

    def triples(self) -> Iterator[int]:
        """Yield the codes of three bytes."""
        if self.katakana:
            for second in _bytes_of(self.trail):
                yield from (0x8F << 16 | second << 8 | third for third in _bytes_of(self.trail))


def _bytes_of(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


_EUC: Final = ((0xA1, 0xFE),)
_ASCII_AND_KATAKANA: Final = ((0, 0x7F), (0xA1, 0xDF))
_SHIFTED_LEAD: Final = ((0x81, 0x9F), (0xE0, 0xFC))
_SHIFTED_TRAIL: Final = ((0x40, 0x7E), (0x80, 0xFC))
_GB_LEAD: Final = ((0x81, 0xFE),)
_GB_TRAIL: Final = ((0x40, 0x7E), (0x80, 0xFE))
_LAYOUTS: Final = {
    "big5": _Layout("big5", ((0xA1, 0xF9),), ((0x40, 0x7E), (0xA1, 0xFE))),
    "cp932": _Layout("cp932", _SHIFTED_LEAD, _SHIFTED_TRAIL, _ASCII_AND_KATAKANA),
    "eucjpms": _Layout("euc_jp", _EUC, _EUC, katakana=True),
    "euckr": _Layout("cp949", ((0x81, 0xFE),), ((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE))),
    "gb18030": _Layout("gb18030", _GB_LEAD, _GB_TRAIL),
    "gb2312": _Layout("gb2312", ((0xA1, 0xF7),), _EUC),
    "gbk": _Layout("gbk", _GB_LEAD, _GB_TRAIL),
    "sjis": _Layout("shift_jis", _SHIFTED_LEAD, _SHIFTED_TRAIL, _ASCII_AND_KATAKANA),
    "ujis": _Layout("euc_jp", _EUC, _EUC, katakana=True),
}

SINGLE_BYTE: Final = frozenset(_SINGLE)
"""Character sets of one byte a character, except ascii."""
MULTI_BYTE: Final = frozenset(_LAYOUTS)
"""Character sets that have a :class:`MultiByteTable`."""
NO_CODE = 0xFFFFFFFF
"""Entry of an index that is not a code of the set."""
ALIAS = 1 << 31
"""Bit of an entry: MySQL writes the character as another code (or there is no character)."""

_UNMAPPED: Final = ord("?")
_FOUR_BYTES: Final = 0x1000000
"""Codes from here on have four bytes."""


class MultiByteTable(NamedTuple):
    """Codes of one character set. An entry's lower 21 bits are the character."""

    codes: npt.NDArray[np.uint32]
    """uint32[65536]: codes of one and of two bytes."""
    triples: npt.NDArray[np.uint32]
    """uint32[65536]: codes behind 0x8F; uint32[0] if there are none."""
    runs: npt.NDArray[np.int64]
    """int64[n, 3]: first number, its character, length, ascending; int64[0, 3] if there are no four-byte codes."""

    def decode(self, value: bytes, *, escapes: bool = False) -> str | None:
        """Decode one value, None if it is not text. For names and statements; kernels decode values of rows.

        :param escapes: a byte that begins no code becomes a surrogate, as Python's ``surrogateescape`` makes it.
        """
        text = []
        at = 0
        while at < len(value):
            entry, size = self._next(value[at : at + 4])
            if entry != NO_CODE:
                text.append(chr(entry & 0x1FFFFF))
                at += size
            elif escapes:
                text.append(value[at : at + 1].decode("ascii", "surrogateescape"))
                at += 1
            else:
                return None
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
        number = _number(head) if len(self.runs) else None
        if number is None:
            return NO_CODE, 1
        first, character, count = self.runs[np.searchsorted(self.runs[:, 0], number, "right") - 1]
        return (int(character + number - first) if number < first + count else _UNMAPPED | ALIAS), 4


def _number(code: bytes) -> int | None:
    """Return the number of gb18030's code of four bytes, None if it is none."""
    one, two, three, four = (byte - low for byte, low in zip(code.ljust(4), (0x81, 0x30, 0x81, 0x30), strict=True))
    if not (0 <= one < 126 and 0 <= two < 10 and 0 <= three < 126 and 0 <= four < 10):
        return None
    return ((one * 10 + two) * 126 + three) * 10 + four


@cache
def single_byte_text(charset: str) -> str:
    """Return the 256 characters of a set in ``SINGLE_BYTE``, by byte."""
    table = code_table(charset)
    return "".join(chr(table[byte]) for byte in range(256))


@cache
def multi_byte_table(charset: str) -> MultiByteTable:
    """Return the table of a set in ``MULTI_BYTE``."""
    layout, characters = _LAYOUTS[charset], code_table(charset)
    tables = []
    for codes in (layout.codes(), layout.triples()):
        table = np.full(65536, NO_CODE, np.uint32)
        for code in codes:
            character = characters[code]
            table[code & 0xFFFF] = character | (ALIAS if character == _UNMAPPED != code else 0)
        tables.append(table)
    for first, count in ALIASES.get(charset, ()):
        tables[first >> 16 == 0x8F][first & 0xFFFF : (first & 0xFFFF) + count] |= np.uint32(ALIAS)
    triples = tables[1] if layout.katakana else np.empty(0, np.uint32)
    return MultiByteTable(tables[0], triples, _runs(characters))


def code_table(charset: str, *, patched: bool = True) -> dict[int, int]:
    """Return code -> character of all codes of a set; ``?`` for a code without character.

    :param patched: as MySQL reads them; else as Python's codec does.
    """
    if charset in _SINGLE:
        table = {byte: _character(bytes([byte]), _SINGLE[charset]) for byte in range(256)}
    else:
        layout = _LAYOUTS[charset]
        codes = [*layout.codes(), *layout.triples()]
        table = {
            code: _character(code.to_bytes((code.bit_length() + 7) // 8 or 1, "big"), layout.codec) for code in codes
        }
        if charset == "gb18030":
            table |= _four_byte_codes(layout.codec)
    if patched:
        table |= {
            first + k: ord(character) for first, text in PATCHES.get(charset, ()) for k, character in enumerate(text)
        }
        table |= {first + k: character + k for first, character, count in RUNS.get(charset, ()) for k in range(count)}
    return table


def _character(code: bytes, codec: str) -> int:
    try:
        text = code.decode(codec)
    except UnicodeDecodeError:
        return _UNMAPPED
    return ord(text) if len(text) == 1 else _UNMAPPED


def _four_byte_codes(codec: str) -> dict[int, int]:
    """Return code -> character of the basic plane's codes of four bytes. :func:`_runs` adds the other planes."""
    codes = ((chr(character).encode(codec), character) for character in range(0x80, 0x10000) if character >> 11 != 0x1B)
    return {int.from_bytes(code, "big"): character for code, character in codes if len(code) == 4}


def _runs(characters: dict[int, int]) -> npt.NDArray[np.int64]:
    """Return the runs of the codes of four bytes, as in :class:`MultiByteTable`."""
    numbers = sorted(
        (_number(code.to_bytes(4, "big")) or 0, character)
        for code, character in characters.items()
        if code >= _FOUR_BYTES
    )
    if not numbers:
        return np.empty((0, 3), np.int64)
    pairs = np.array(numbers, np.int64)
    begins = np.flatnonzero(np.any(np.diff(pairs, axis=0, prepend=-2) != 1, axis=1))
    lengths = np.diff(begins, append=len(pairs))
    planes = (_number(b"\x90\x30\x81\x30"), 0x10000, 0x100000)
    return np.vstack([np.column_stack([pairs[begins], lengths]), np.array([planes], np.int64)])

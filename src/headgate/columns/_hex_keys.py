"""Key values whose text is ambiguous, spelled by their bytes: ``U+10FFFF charset:hex``.

For consumers that keep no table but must distinguish every value (``Policies.ambiguous_keys = "spell"``): JSON lines,
the relay.

| value | spelled |
|---|---|
| a text that MySQL does not convert to UTF-8 and back | the mark, the character set, ``:``, the stored bytes in hex |
| a text that begins with the mark itself | the same |
| the value 0 of an ENUM or SET that has ``''`` as a member | the mark and ``0`` |

The mark is U+10FFFF, a noncharacter ("Noncharacters", The Unicode Standard). Of the character sets with codes that do
not convert back, only ``gb18030`` has it, and there a text that begins with it is also spelled. So in a key of such a
set a string that begins with the mark is always spelled, and different values give different strings. The other sets
(``utf8mb4``, ``utf16``, …) have nothing to spell.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import MULTI_BYTE, SINGLE_BYTE, Column
from headgate.kernels import Cells

__all__ = ["HEX_MARK", "ZERO", "HexKey", "needs_hex", "read_hex_key", "with_hex_keys"]

HEX_MARK: Final = "\U0010ffff"
"""Mark at the beginning of a spelled value."""
ZERO: Final = f"{HEX_MARK}0"
"""Spelling of the value 0 of an ENUM or SET."""
_HAS_THE_MARK: Final = "gb18030"


class HexKey(NamedTuple):
    """Parsed spelled string."""

    charset: str | None
    """None: the value 0 of an ENUM or SET."""
    stored: bytes


def needs_hex(column: Column) -> bool:
    """Return whether values of this column are spelled in a key."""
    if column.type in ("enum", "set"):
        return "" in column.members and not any(member.startswith(HEX_MARK) for member in column.members)
    return column.charset in SINGLE_BYTE or column.charset in MULTI_BYTE or column.charset == "ucs2"


def with_hex_keys(texts: pa.Array, cells: Cells, unconvertible: npt.NDArray[np.int64], charset: str) -> pa.Array:
    """Return ``texts`` with the rows ``unconvertible``, and rows whose text begins with the mark, spelled."""
    marked = np.zeros(len(texts), np.bool_)
    marked[unconvertible] = True
    if charset == _HAS_THE_MARK:
        marked |= np.asarray(pc.fill_null(pc.starts_with(texts, HEX_MARK), False))
    if not marked.any():
        return texts
    hex_keys = []
    for row in np.flatnonzero(marked).tolist():
        start = int(cells.offset[row])
        stored = cells.buf[start : start + int(cells.length[row])].tobytes()
        hex_keys.append(f"{HEX_MARK}{charset}:{stored.hex()}")
    return pc.replace_with_mask(texts, pa.array(marked), pa.array(hex_keys, pa.string()))


def read_hex_key(text: str | None) -> HexKey | None:
    """Parse a string of a key; None if it is not spelled."""
    if text is None or not text.startswith(HEX_MARK):
        return None
    charset, colon, stored = text.removeprefix(HEX_MARK).partition(":")
    return HexKey(charset, bytes.fromhex(stored)) if colon else HexKey(None, b"")

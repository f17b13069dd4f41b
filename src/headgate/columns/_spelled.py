"""Values of a key that their text does not tell apart, spelled by their bytes: ``U+10FFFF charset:hex``.

For who keeps no table but has to tell every value (``Policies.odd_keys = "spell"``): JSON lines, the relay.

| value | spelled |
|---|---|
| a text that MySQL does not convert to UTF-8 and back | the mark, the character set, ``:``, the stored bytes in hex |
| a text that begins with the mark itself | the same |
| the value 0 of an ENUM or SET that has ``''`` as a member | the mark and ``0`` |

The mark is U+10FFFF, which is no character ("Noncharacters", The Unicode Standard). Of the character sets with codes
that do not come back, only ``gb18030`` has it, and there a text that begins with it is spelled, too. So in a key of
such a set a string that begins with the mark is always a spelled one, and different values give different strings. The
other sets (``utf8mb4``, ``utf16``, …) have nothing to spell.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import MULTI_BYTE, SINGLE_BYTE, Column
from headgate.kernels import Cells

__all__ = ["SPELLED", "ZERO", "Spelled", "read_spelled", "spells", "with_spelled"]

SPELLED: Final = "\U0010ffff"
"""What a spelled value begins with."""
ZERO: Final = f"{SPELLED}0"
"""The value 0 of an ENUM or SET."""
_HAS_THE_MARK: Final = "gb18030"


class Spelled(NamedTuple):
    """What a spelled string says."""

    charset: str | None
    """None: the value 0 of an ENUM or SET."""
    stored: bytes


def spells(column: Column) -> bool:
    """Whether values of this column are spelled, if it is one of a key."""
    if column.type in ("enum", "set"):
        return "" in column.members and not any(member.startswith(SPELLED) for member in column.members)
    return column.charset in SINGLE_BYTE or column.charset in MULTI_BYTE or column.charset == "ucs2"


def with_spelled(texts: pa.Array, cells: Cells, odd: npt.NDArray[np.int64], charset: str) -> pa.Array:
    """``texts``, those of the rows ``odd`` spelled, and those that begin with the mark themselves."""
    marked = np.zeros(len(texts), np.bool_)
    marked[odd] = True
    if charset == _HAS_THE_MARK:
        marked |= np.asarray(pc.fill_null(pc.starts_with(texts, SPELLED), False))
    if not marked.any():
        return texts
    spelled = []
    for row in np.flatnonzero(marked).tolist():
        start = int(cells.offset[row])
        stored = cells.buf[start : start + int(cells.length[row])].tobytes()
        spelled.append(f"{SPELLED}{charset}:{stored.hex()}")
    return pc.replace_with_mask(texts, pa.array(marked), pa.array(spelled, pa.string()))


def read_spelled(text: str | None) -> Spelled | None:
    """What a string of a key says, if it is a spelled one."""
    if text is None or not text.startswith(SPELLED):
        return None
    charset, colon, stored = text.removeprefix(SPELLED).partition(":")
    return Spelled(charset, bytes.fromhex(stored)) if colon else Spelled(None, b"")

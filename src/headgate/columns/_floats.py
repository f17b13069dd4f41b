"""FLOAT and DOUBLE.

| type | log | text |
|---|---|---|
| FLOAT | IEEE 754, 4 bytes, little-endian | of ``f * 1e0``, a DOUBLE: the plain column prints only 6 digits |
| DOUBLE | IEEE 754, 8 bytes, little-endian | of ``d * 1e0``: ``DOUBLE(M,D)`` prints only D decimals |

A DOUBLE's text is the shortest digits that read back to the number. It is parsed with correct rounding (pyarrow's
cast), so both sources give the same bits, ``-0.0`` included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.catalog import Column
from headgate.columns._codec import BaseCodec
from headgate.kernels import Cells, u32, u64

__all__ = ["FloatCodec"]


@njit(cache=True, nogil=True)
def _bits(buf: Any, offset: Any, valid: Any, width: int, out: Any) -> None:
    """Copy 4 or 8 bytes of each cell unchanged to ``out`` (uint32 or uint64)."""
    for i in range(len(valid)):
        value = np.uint64(0)
        if valid[i] == 1:
            value = u64(buf, offset[i]) if width == 8 else np.uint64(u32(buf, offset[i]))
        out[i] = value


class FloatCodec(BaseCodec):
    """FLOAT as float32, DOUBLE as float64."""

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        self._width = 4 if column.type == "float" else 8
        self.arrow_type = pa.float32() if self._width == 4 else pa.float64()

    @property
    def select(self) -> str:
        """Expression that selects the value as a DOUBLE with all its digits; CAST has no DOUBLE before MySQL 8.0.17."""
        return f"({super().select} * 1e0)"

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        self.check_lengths(cells, self._width)
        out = np.empty(len(cells.valid), np.uint32 if self._width == 4 else np.uint64)
        _bits(cells.buf, cells.offset, cells.valid, self._width, out)
        return self.array(cells, out)

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        text = self.strings(cells, *self.gathered(cells))
        try:
            numbers = pc.cast(text, pa.float64())
        except pa.ArrowInvalid as error:
            raise self.error(f"a value is not a number: {error}") from error
        return numbers if self._width == 8 else pc.cast(numbers, pa.float32(), safe=False)

"""Geometry types and VECTOR.

| type | log | text |
|---|---|---|
| GEOMETRY and its subtypes | SRID, 4 bytes, little-endian, then WKB | the same |
| VECTOR | 4-byte floats, little-endian | the same |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from headgate.columns._codec import BaseCodec
from headgate.kernels import Cells, u32

__all__ = ["GeometryCodec", "VectorCodec"]


@njit(cache=True, nogil=True)
def _srids(buf: Any, offset: Any, length: Any, valid: Any, out: Any) -> int:
    """Write SRIDs to ``out``. Return the first row that is too short or whose SRID does not fit int32, or -1."""
    for i in range(len(valid)):
        value = 0
        if valid[i] == 1:
            if length[i] < 4:
                return i
            value = u32(buf, offset[i])
            if value > 0x7FFFFFFF:
                return i
        out[i] = value
    return -1


class GeometryCodec(BaseCodec):
    """Every geometry type as struct<srid: int32, wkb: binary>."""

    arrow_type = pa.struct([pa.field("srid", pa.int32()), pa.field("wkb", pa.binary())])

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        srids = np.empty(len(cells.valid), np.int32)
        bad = _srids(cells.buf, cells.offset, cells.length, cells.valid, srids)
        if bad >= 0:
            raise self.undecodable(cells, int(bad), "a geometry (SRID below 2147483648 and WKB)")
        offsets, data = self.gathered(cells, skip=4)
        srid = self.array(cells, srids, data_type=pa.int32())
        wkb = self.array(cells, offsets, data[: offsets[-1]], data_type=pa.binary())
        return self.array(cells, children=[srid, wkb])

    from_text = from_log


class VectorCodec(BaseCodec):
    """VECTOR as list<float32>."""

    arrow_type = pa.list_(pa.float32())

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        wrong = np.flatnonzero((cells.valid == 1) & (cells.length % 4 != 0))
        if len(wrong):
            raise self.undecodable(cells, int(wrong[0]), "a vector of 4-byte numbers")
        offsets, data = self.gathered(cells)
        count = int(offsets[-1]) // 4
        numbers = pa.Array.from_buffers(pa.float32(), count, [None, pa.py_buffer(data[: count * 4])], null_count=0)
        return self.array(cells, offsets // 4, children=[numbers])

    from_text = from_log

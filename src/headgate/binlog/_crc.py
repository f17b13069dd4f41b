"""CRC32 of binlog events (polynomial 0xEDB88320, initial value and final XOR all ones: zlib's), eight bytes a step.

Source of the rule: MySQL source ``libs/mysql/binlog/event/binlog_event.h`` (the checksum covers header and body and
is the event's last four bytes, little-endian). The method is "slicing by 8" (Kounavis and Berry, "A Systematic Approach
to Building High Performance Software-based CRC Generators", 2005).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from headgate.kernels import u64

__all__ = ["CRC_TABLES", "crc32", "crc_update"]


def _build_tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0xEDB88320 if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0, tables[k - 1] & 255]
    return tables


CRC_TABLES = _build_tables()
"""uint32[8, 256]: ``CRC_TABLES[k, b]`` is the effect of byte ``b`` followed by ``k`` zero bytes."""


@njit(cache=True, nogil=True)
def crc_update(crc: Any, buf: Any, start: int, end: int, t: Any) -> Any:
    """Return the register (``uint32``) after ``buf[start:end]``; ``t`` is CRC_TABLES. The caller checks the bounds."""
    low = np.uint64(255)
    p = start
    while p + 8 <= end:
        x = u64(buf, p) ^ np.uint64(crc)
        crc = (
            t[7, x & low]
            ^ t[6, (x >> np.uint64(8)) & low]
            ^ t[5, (x >> np.uint64(16)) & low]
            ^ t[4, (x >> np.uint64(24)) & low]
            ^ t[3, (x >> np.uint64(32)) & low]
            ^ t[2, (x >> np.uint64(40)) & low]
            ^ t[1, (x >> np.uint64(48)) & low]
            ^ t[0, x >> np.uint64(56)]
        )
        p += 8
    while p < end:
        crc = t[0, (np.uint64(crc) ^ np.uint64(buf[p])) & low] ^ (crc >> np.uint32(8))
        p += 1
    return crc


@njit(cache=True, nogil=True)
def crc32(buf: Any, start: int, end: int, t: Any) -> Any:
    """Return the CRC32 (``uint32``) of ``buf[start:end]``; ``t`` is CRC_TABLES. The caller checks the bounds."""
    return crc_update(np.uint32(0xFFFFFFFF), buf, start, end, t) ^ np.uint32(0xFFFFFFFF)

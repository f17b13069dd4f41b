"""Where the values of walked rows lie: the hand-over between the walks (``mysql``, ``binlog``) and ``columns``.

A walk goes over the bytes of many rows once and notes, for every cell, where its value bytes are. Every noted
``[offset, offset + length)`` lies inside ``buf``: the walk checks that against the bounds of the row's own event or
packet, so that codecs need not.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["ABSENT", "NULL", "VALUE", "Bytes", "Cells", "RowBlock"]

Bytes: TypeAlias = npt.NDArray[np.uint8]

NULL = 0
"""``valid``: the cell is SQL NULL; offset and length are 0."""
VALUE = 1
"""``valid``: the cell has a value."""
ABSENT = 2
"""``valid``: the column is not in this (partial) row image; offset and length are 0."""


class Cells(NamedTuple):
    """One column of a block: where each row's value bytes lie."""

    buf: Bytes
    """uint8[bytes]"""
    offset: npt.NDArray[np.int64]
    """int64[rows]: index into ``buf`` of the value's first byte, after any length prefix."""
    length: npt.NDArray[np.int32]
    """int32[rows]: number of value bytes."""
    valid: npt.NDArray[np.uint8]
    """uint8[rows]: NULL, VALUE or ABSENT."""


class RowBlock(NamedTuple):
    """Rows of one table definition. The arrays may be longer than ``rows``; what lies behind is not part of it."""

    buf: Bytes
    """uint8[bytes]"""
    offset: npt.NDArray[Any]
    """int64[columns, ≥ rows]"""
    length: npt.NDArray[Any]
    """int32[columns, ≥ rows]"""
    valid: npt.NDArray[Any]
    """uint8[columns, ≥ rows]"""
    rows: int

    def column(self, index: int) -> Cells:
        """The cells of one column, as views."""
        n = self.rows
        return Cells(self.buf, self.offset[index, :n], self.length[index, :n], self.valid[index, :n])

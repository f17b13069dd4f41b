"""Positions of the values of walked rows: the interface between the walks (``mysql``, ``binlog``) and ``columns``.

A walk passes over the bytes of many rows once and records, for every cell, where its value bytes are. Every recorded
``[offset, offset + length)`` is inside ``buf``: the walk checks it against the bounds of the row's event or packet, so
that codecs need not.
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
    """One column of a block: the position of each row's value bytes."""

    buf: Bytes
    """uint8[bytes]"""
    offset: npt.NDArray[np.int64]
    """int64[rows]: index into ``buf`` of the value's first byte, after any length prefix."""
    length: npt.NDArray[np.int32]
    """int32[rows]: number of value bytes."""
    valid: npt.NDArray[np.uint8]
    """uint8[rows]: NULL, VALUE or ABSENT."""


class RowBlock(NamedTuple):
    """Rows of one table definition. The arrays may be longer than ``rows``; the rest is undefined."""

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
        """Return the cells of one column, as views."""
        n = self.rows
        return Cells(self.buf, self.offset[index, :n], self.length[index, :n], self.valid[index, :n])

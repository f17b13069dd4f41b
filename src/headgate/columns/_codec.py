"""Contract of a codec, and the base class that builds Arrow arrays."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.catalog import Column
from headgate.columns._kernels import SLACK, gather, invalid_utf8, other_length, total_length
from headgate.errors import DecodeError
from headgate.kernels import VALUE, Cells
from headgate.names import quote_name

__all__ = ["MAX_ARRAY_BYTES", "BaseCodec", "Codec"]

MAX_ARRAY_BYTES = 2**31 - 1
"""Most bytes in an array: Arrow's ``string`` and ``binary`` have signed 32-bit offsets."""


class Codec(Protocol):
    """Converter of one column's wire bytes to Arrow."""

    @property
    def arrow_type(self) -> pa.DataType:
        """Type of the arrays it makes."""

    @property
    def select(self) -> str:
        """Expression for the column in a SELECT list, whose result :meth:`from_text` reads."""

    def from_log(self, cells: Cells) -> pa.Array:
        """Decode row-image bytes. NULL and ABSENT become null. A DecodeError names table and column."""

    def from_text(self, cells: Cells) -> pa.Array:
        """Decode text-protocol bytes (``character_set_results`` NULL, ``time_zone`` '+00:00')."""


class BaseCodec:
    """Base of codecs: table and column, and functions that build arrays.

    :param table: ``db.table``, for errors.
    """

    arrow_type: pa.DataType

    def __init__(self, column: Column, table: str) -> None:
        self.column = column
        self.table = table

    @property
    def select(self) -> str:
        return quote_name(self.column.name)

    def error(self, reason: str, kind: type[DecodeError] = DecodeError, row: int | None = None) -> DecodeError:
        """Return an error that names table and column, and the row of the block if given."""
        return kind(reason, table=self.table, column=self.column.name, row=row)

    def undecodable(self, cells: Cells, row: int, what: str, kind: type[DecodeError] = DecodeError) -> DecodeError:
        """Return the error for a cell whose bytes are not ``what``."""
        start = int(cells.offset[row])
        value = cells.buf[start : start + min(int(cells.length[row]), 40)].tobytes()
        return self.error(f"a value is not {what}: 0x{value.hex()} ({int(cells.length[row])} bytes)", kind, row)

    def check_lengths(self, cells: Cells, size: int) -> None:
        """Check that every value has exactly ``size`` bytes."""
        row = int(other_length(cells.length, cells.valid, size))
        if row >= 0:
            raise self.undecodable(cells, row, f"{size} bytes long")

    def array(
        self,
        cells: Cells,
        *buffers: npt.NDArray[Any],
        data_type: pa.DataType | None = None,
        children: list[pa.Array] | None = None,
    ) -> pa.Array:
        """Return an Arrow array over ``buffers``, and ``children`` if it is nested, with the cells' nulls."""
        bits, nulls = validity(cells.valid)
        return pa.Array.from_buffers(
            data_type or self.arrow_type,
            len(cells.valid),
            [bits, *map(pa.py_buffer, buffers)],
            null_count=nulls,
            children=children,
        )

    def gathered(self, cells: Cells, skip: int = 0) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Return ``(offsets, bytes)`` of all values concatenated, each without its first ``skip`` bytes."""
        total = total_length(cells.length, cells.valid)
        self.check_total(total)
        offsets = np.empty(len(cells.valid) + 1, np.int32)
        data = np.empty(total + SLACK, np.uint8)
        gather(cells.buf, cells.offset, cells.length, cells.valid, skip, offsets, data)
        return offsets, data

    def check_total(self, total: int) -> None:
        """Check that one array holds less than 2 GiB of bytes."""
        if total > MAX_ARRAY_BYTES:
            raise self.error(f"a block holds {total} bytes of this column; one Arrow array takes {MAX_ARRAY_BYTES}")

    def strings(self, cells: Cells, offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.Array:
        """Return a string array of UTF-8 bytes, which are checked."""
        row = int(invalid_utf8(data, offsets, len(cells.valid)))
        if row >= 0:
            raise self.undecodable(cells, row, "valid UTF-8 text")
        return self.array(cells, offsets, data[: offsets[-1]], data_type=pa.string())


def validity(valid: npt.NDArray[np.uint8]) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap (None if every row has a value) and the number of nulls."""
    present = valid == VALUE
    nulls = len(valid) - int(np.count_nonzero(present))
    return (pa.py_buffer(np.packbits(present, bitorder="little")), nulls) if nulls else (None, 0)

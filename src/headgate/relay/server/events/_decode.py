"""Decode rows in Avro binary to Arrow columns, a column at a time: the inverse of ``events._avro``.

Every row has a cursor. A pass over all rows reads one field of each, from the first field to the last, so compiled
loops make a column without a Python object per row. No cursor passes its row's end. If a value would, the row is
damaged (its cursor is −1 from then on), and the whole batch is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.errors import DecodeError, UnsupportedError
from headgate.kernels import copy, u8
from headgate.relay.databus import gather_ranges

__all__ = ["RowDecoder", "varint"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_LARGEST_DECIMAL: Final = 38
_DECIMAL_BYTES: Final = 16


# --- kernels ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def varint(buf: Any, at: Any, end: Any) -> Any:
    """Return ``(a zigzag number, its end)``; end −1: it does not end before ``end``, or ``at`` is negative."""
    word = np.uint64(0)
    shift = np.uint64(0 if at >= 0 else 64)
    while at < end and shift < 64:
        byte = np.uint64(u8(buf, at))
        at += 1
        word |= (byte & np.uint64(127)) << shift
        if byte < 128:
            return np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@njit(cache=True, nogil=True)
def _branches(buf: Any, cursor: Any, ends: Any, null_branch: int, branch: int, valid: Any) -> None:
    """Read the union's branch of each value; ``valid`` becomes false if it is null."""
    for i in range(cursor.shape[0]):
        if not valid[i]:
            continue
        number, at = varint(buf, cursor[i], ends[i])
        if number != branch:
            valid[i] = False
            if number != null_branch:
                at = np.int64(-1)
        cursor[i] = at


@njit(cache=True, nogil=True)
def _longs(buf: Any, cursor: Any, ends: Any, valid: Any, out: Any) -> None:
    for i in range(cursor.shape[0]):
        if valid[i]:
            out[i], cursor[i] = varint(buf, cursor[i], ends[i])


@njit(cache=True, nogil=True)
def _fixed(buf: Any, cursor: Any, ends: Any, valid: Any, width: int, out: Any) -> None:
    """Copy ``width`` bytes of each."""
    for i in range(cursor.shape[0]):
        if not valid[i]:
            continue
        at = cursor[i]
        if at < 0 or at + width > ends[i]:
            cursor[i] = -1
            continue
        copy(out, i * width, buf, at, width)
        cursor[i] = at + width


@njit(cache=True, nogil=True)
def _spans(buf: Any, cursor: Any, ends: Any, valid: Any, starts: Any, sizes: Any) -> None:
    """Find the bytes of each value; size 0 if it is null."""
    for i in range(cursor.shape[0]):
        sizes[i] = 0
        if not valid[i]:
            continue
        size, at = varint(buf, cursor[i], ends[i])
        if at < 0 or size < 0 or size > ends[i] - at:
            cursor[i] = -1
            continue
        starts[i] = at
        sizes[i] = size
        cursor[i] = at + size


@njit(cache=True, nogil=True)
def _words(buf: Any, cursor: Any, starts: Any, sizes: Any, out: Any) -> None:
    """Convert big-endian two's complement of up to 16 bytes to 16 little-endian ones."""
    for i in range(starts.shape[0]):
        size = sizes[i]
        if size > 16:
            cursor[i] = -1
            continue
        fill = np.uint8(255) if size > 0 and buf[starts[i]] & 128 else np.uint8(0)
        for k in range(16):
            out[16 * i + k] = buf[starts[i] + size - 1 - k] if k < size else fill


@njit(cache=True, nogil=True)
def _items(buf: Any, cursor: Any, ends: Any, valid: Any, counts: Any, starts: Any, width: int) -> None:
    """Find arrays of ``width`` bytes an item, in one block each, as the relay writes them."""
    for i in range(cursor.shape[0]):
        counts[i] = 0
        if not valid[i]:
            continue
        count, at = varint(buf, cursor[i], ends[i])
        if at >= 0 and count != 0:
            if count < 0 or count > (ends[i] - at) // width:
                cursor[i] = -1
                continue
            starts[i] = at
            counts[i] = count
            last, at = varint(buf, at + count * width, ends[i])
            if last != 0:
                at = np.int64(-1)
        cursor[i] = at


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass
class _RowCursors:
    """Input of the columns."""

    data: Any
    cursor: Int64s
    ends: Int64s


_Read = Callable[[_RowCursors, Bools], pa.Array]
"""Reads one field of all valid rows."""


def _bitmap(valid: Bools) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _array(kind: pa.DataType, valid: Bools, *buffers: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid), *map(pa.py_buffer, buffers)])


def _of_longs(kind: pa.DataType) -> _Read:
    width = np.dtype(f"i{kind.bit_width // 8}")

    def read(rows: _RowCursors, valid: Bools) -> pa.Array:
        out = np.zeros(len(valid), np.int64)
        _longs(rows.data, rows.cursor, rows.ends, valid, out)
        values = out.astype(width, copy=False)
        rows.cursor[values != out] = -1
        return _array(kind, valid, values)

    return read


def _of_fixed(kind: pa.DataType) -> _Read:
    width = kind.bit_width // 8

    def read(rows: _RowCursors, valid: Bools) -> pa.Array:
        out = np.zeros(len(valid) * width, np.uint8)
        _fixed(rows.data, rows.cursor, rows.ends, valid, width, out)
        return _array(kind, valid, out)

    return read


def _boolean(rows: _RowCursors, valid: Bools) -> pa.Array:
    out = np.zeros(len(valid), np.uint8)
    _fixed(rows.data, rows.cursor, rows.ends, valid, 1, out)
    return _array(pa.bool_(), valid, np.packbits(out != 0, bitorder="little"))


def _value_spans(rows: _RowCursors, valid: Bools) -> tuple[Int64s, Int64s]:
    starts, sizes = np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64)
    _spans(rows.data, rows.cursor, rows.ends, valid, starts, sizes)
    return starts, sizes


def _of_bytes(kind: pa.DataType) -> _Read:
    def read(rows: _RowCursors, valid: Bools) -> pa.Array:
        return _array(kind, valid, *gather_ranges(rows.data, *_value_spans(rows, valid)))

    return read


def _of_decimals(kind: pa.DataType) -> _Read:
    def read(rows: _RowCursors, valid: Bools) -> pa.Array:
        out = np.zeros(_DECIMAL_BYTES * len(valid), np.uint8)
        _words(rows.data, rows.cursor, *_value_spans(rows, valid), out)
        return _array(kind, valid, out)

    return read


def _floats(rows: _RowCursors, valid: Bools) -> pa.Array:
    counts, starts = np.zeros(len(valid), np.int64), np.zeros(len(valid), np.int64)
    _items(rows.data, rows.cursor, rows.ends, valid, counts, starts, 4)
    offsets, data = gather_ranges(rows.data, starts, counts * 4)
    items = pa.Array.from_buffers(pa.float32(), int(offsets[-1]) // 4, [None, pa.py_buffer(data)])
    buffers = [_bitmap(valid), pa.py_buffer(offsets // 4)]
    return pa.Array.from_buffers(pa.list_(pa.float32()), len(valid), buffers, children=[items])


def _of_record(fields: Sequence[tuple[pa.Field, _Read]]) -> _Read:
    kind = pa.struct([field for field, _ in fields])

    def read(rows: _RowCursors, valid: Bools) -> pa.Array:
        columns = [one(rows, valid) for _, one in fields]
        return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid)], children=columns)

    return read


def _in_union(one: _Read, null_branch: int, branch: int) -> _Read:
    def read(rows: _RowCursors, valid: Bools) -> pa.Array:
        present = valid.copy()
        _branches(rows.data, rows.cursor, rows.ends, null_branch, branch, present)
        return one(rows, present)

    return read


# --- from an Avro type to a column's Arrow type -----------------------------------------------------------------------

_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_PLAIN: Final[Mapping[str, tuple[pa.DataType, _Read]]] = {
    "int": (pa.int32(), _of_longs(pa.int32())),
    "long": (pa.int64(), _of_longs(pa.int64())),
    "float": (pa.float32(), _of_fixed(pa.float32())),
    "double": (pa.float64(), _of_fixed(pa.float64())),
    "boolean": (pa.bool_(), _boolean),
    "string": (pa.string(), _of_bytes(pa.string())),
    "bytes": (pa.binary(), _of_bytes(pa.binary())),
}


def _reader(avro: Any) -> tuple[pa.DataType, _Read]:
    """Return the Arrow type of an Avro type, and the function that reads its values.

    :raises UnsupportedError: a type that a relay does not write.
    """
    if isinstance(avro, list):
        others = [one for one in avro if one != "null"]
        if len(others) != 1:
            raise UnsupportedError(f"a union of several types, {avro}, has no column type")
        kind, read = _reader(others[0])
        return kind, _in_union(read, avro.index("null") if "null" in avro else -1, avro.index(others[0]))
    name = avro["type"] if isinstance(avro, dict) else avro
    if isinstance(avro, dict):
        logical = avro.get("logicalType")
        if name == "bytes" and logical == "decimal" and avro["precision"] <= _LARGEST_DECIMAL:
            exact = pa.decimal128(avro["precision"], avro.get("scale", 0))
            return exact, _of_decimals(exact)
        if (kind := _LOGICAL.get((str(name), str(logical)))) is not None:
            return kind, _of_longs(kind)
        if name == "record":
            fields = _fields(avro)
            return pa.struct([field for field, _ in fields]), _of_record(fields)
        if name == "array" and avro.get("items") == "float":
            return pa.list_(pa.float32()), _floats
    if not isinstance(name, str) or name not in _PLAIN:
        raise UnsupportedError(f"Avro's {avro} has no column type: request json or binary")
    return _PLAIN[name]


def _fields(record: Mapping[str, Any]) -> list[tuple[pa.Field, _Read]]:
    fields = []
    for one in record["fields"]:
        kind, read = _reader(one["type"])
        fields.append((pa.field(one["name"], kind), read))
    return fields


class RowDecoder:
    """Decodes rows of one schema.

    :param record: the parsed schema.
    :raises UnsupportedError: a type that a relay does not write.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._fields = _fields(record)
        self.fields: Sequence[pa.Field] = [field for field, _ in self._fields]

    def decode(self, data: Any, starts: Int64s, sizes: Int64s) -> list[pa.Array]:
        """Return the columns of the rows ``data[starts[i]:starts[i] + sizes[i]]`` (uint8[]).

        :raises DecodeError: these are not rows of the schema.
        """
        rows = _RowCursors(data, starts.astype(np.int64), (starts + sizes).astype(np.int64))
        columns = [read(rows, np.ones(len(starts), np.bool_)) for _, read in self._fields]
        if not np.array_equal(rows.cursor, rows.ends):
            raise DecodeError("a row in the buffer does not fit its schema")
        return columns

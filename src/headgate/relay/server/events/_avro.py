"""Encode rows of Arrow columns as Avro binary, a column at a time.

A row's bytes are its fields' bytes in sequence (Avro 1.12 specification, "Binary Encoding": zigzag varints, unions as
the branch's number and the value). Two passes over the columns make all rows. The first adds up each row's size. The
caller then gives each row's offset, and the second writes, column by column, each row at its own cursor. Type-specific
code is chosen once per schema (:class:`RowEncoder`) and runs in compiled loops: no Python object per row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.catalog import TableDef
from headgate.errors import DecodeError, UnsupportedError
from headgate.kernels import copy, decimal_bytes, fixed_point, float_blocks, put_varint, varint_size, zigzag
from headgate.relay.databus import Schema
from headgate.relay.server.events._schemas import field_attributes

__all__ = ["EncodedRows", "RowEncoder", "text_of"]

log = logging.getLogger("headgate")

_Branches: TypeAlias = tuple[int, int]
"""Numbers of the union's null and value branches; -1 twice: not a union."""

_LONG: Final = 0
"""A zigzag varint: ``words[i]``."""
_FIXED: Final = 1
"""``width`` bytes from ``data[i * width]`` on."""
_BYTES: Final = 2
"""A varint, and so many bytes: ``data[offsets[i]:offsets[i + 1]]``."""
_RAW: Final = 3
"""The same bytes alone."""
_NO_UNION: Final = (-1, -1)
_WIDE: Final = (pa.uint32(), pa.int64())
"""Types with numbers of more than 32 bits, signed."""


def _read_only(array: Any) -> Any:
    """Make an array read-only, as Arrow's are: otherwise kernels would be compiled again."""
    array.flags.writeable = False
    return array


_NO_WORDS: Final = _read_only(np.zeros(0, np.int64))
_NO_OFFSETS: Final = _read_only(np.zeros(0, np.int32))
_NO_DATA: Final = _read_only(np.zeros(0, np.uint8))
_ALL_VALID: Final = _read_only(np.ones(1 << 16, np.bool_))


# --- kernels ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _add_sizes(kind: int, width: int, words: Any, offsets: Any, valid: Any, branches: _Branches, sizes: Any) -> None:
    """Add the size of each value."""
    union = int(branches[1] >= 0)
    for i in range(sizes.shape[0]):
        sizes[i] += union
        if not valid[i]:
            continue
        if kind == _LONG:
            sizes[i] += varint_size(zigzag(words[i]))
        elif kind == _FIXED:
            sizes[i] += width
        else:
            count = np.int64(offsets[i + 1]) - np.int64(offsets[i])
            sizes[i] += count
            if kind == _BYTES:
                sizes[i] += varint_size(zigzag(count))


@njit(cache=True, nogil=True)
def _put(
    kind: int, width: int, words: Any, offsets: Any, data: Any, valid: Any, branches: _Branches, cursor: Any, out: Any
) -> None:
    """Write each value at its cursor, and move that behind it."""
    null_branch, branch = branches
    for i in range(cursor.shape[0]):
        at = cursor[i]
        if branch >= 0:
            out[at] = (branch if valid[i] else null_branch) * 2
            at += 1
        if valid[i]:
            if kind == _LONG:
                at = put_varint(out, at, zigzag(words[i]))
            elif kind == _FIXED:
                for k in range(width):
                    out[at + k] = data[i * width + k]
                at += width
            else:
                count = np.int64(offsets[i + 1]) - np.int64(offsets[i])
                if kind == _BYTES:
                    at = put_varint(out, at, zigzag(count))
                copy(out, at, data, np.int64(offsets[i]), count)
                at += count
        cursor[i] = at


# --- one column, ready to be written ----------------------------------------------------------------------------------


class _Lane(NamedTuple):
    """A column of one batch in the form of the kernels, which have the layouts of the kinds."""

    valid: Any
    branches: _Branches
    kind: int
    words: Any = _NO_WORDS
    offsets: Any = _NO_OFFSETS
    data: Any = _NO_DATA
    width: int = 0

    def add_sizes(self, sizes: npt.NDArray[np.int64]) -> None:
        _add_sizes(self.kind, self.width, self.words, self.offsets, self.valid, self.branches, sizes)

    def put(self, cursor: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
        _put(self.kind, self.width, self.words, self.offsets, self.data, self.valid, self.branches, cursor, out)


def _valid(array: pa.Array) -> Any:
    if not array.null_count and len(array) <= len(_ALL_VALID):
        return _ALL_VALID[: len(array)]
    return _read_only(np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_))


def _numbers(array: pa.Array, dtype: Any, per_row: int = 1) -> Any:
    """Return the values' buffer; values of nulls are undefined."""
    buffer = array.buffers()[1]
    if buffer is None:
        return _read_only(np.zeros(len(array) * per_row, dtype))
    return np.frombuffer(buffer, dtype)[array.offset * per_row : (array.offset + len(array)) * per_row]


def _offsets(array: pa.Array) -> Any:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return _NO_OFFSETS
    return _read_only(np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1])


def _data(buffer: Any) -> Any:
    return _NO_DATA if buffer is None else _read_only(np.frombuffer(buffer, np.uint8))


def _longs(array: pa.Array, valid: Any, branches: _Branches) -> list[_Lane]:
    values = _numbers(array, np.dtype(array.type.to_pandas_dtype()))
    words = values if values.dtype == np.int64 else _read_only(values.astype(np.int64))
    return [_Lane(valid, branches, _LONG, words=words)]


def _ints(array: pa.Array, valid: Any, branches: _Branches) -> list[_Lane]:
    """:raises pa.ArrowInvalid: a number of more than 32 bits, which readers would cut."""
    lanes = _longs(array, valid, branches)
    if array.type in _WIDE and (valid & (lanes[0].words != lanes[0].words.astype(np.int32))).any():
        raise pa.ArrowInvalid("it takes more than 32 bits")
    return lanes


def _fixed(array: pa.Array, valid: Any, branches: _Branches) -> list[_Lane]:
    data = _numbers(array, np.dtype(array.type.to_pandas_dtype())).view(np.uint8)
    return [_Lane(valid, branches, _FIXED, data=data, width=array.type.bit_width // 8)]


def _bytes(array: pa.Array, valid: Any, branches: _Branches, kind: int = _BYTES) -> list[_Lane]:
    return [_Lane(valid, branches, kind, offsets=_offsets(array), data=_data(array.buffers()[2]))]


def _decimals(array: pa.Array, valid: Any, branches: _Branches) -> list[_Lane]:
    return _bytes(decimal_bytes(array), valid, branches)


def _points(array: pa.Array, valid: Any, branches: _Branches) -> list[_Lane]:
    srid, wkb = (array.field(i) for i in (0, 1))
    return [*_longs(srid.cast(pa.int64()), valid, branches), *_bytes(wkb, valid, _NO_UNION)]


def _floats(array: pa.Array, valid: Any, branches: _Branches) -> list[_Lane]:
    return _bytes(float_blocks(array), valid, branches, _RAW)


# --- from a column's Arrow type to an Avro type -----------------------------------------------------------------------

_Make: TypeAlias = Callable[[pa.Array, Any, _Branches], list[_Lane]]
"""Takes an array, which of its values are valid, and the union's branches. Only the first lane writes the branch."""
_MICROS_PER_MILLI: Final = 1000


def _same(array: pa.Array) -> pa.Array:
    return array


def _cast(wanted: pa.DataType, *, safe: bool = True) -> Callable[[pa.Array], pa.Array]:
    """Return a cast to a type; it skips arrays of that type, for which Arrow's cast takes some microseconds."""
    return lambda array: array if array.type == wanted else array.cast(wanted, safe=safe)


_as_int64: Final = _cast(pa.int64())


def text_of(array: pa.Array) -> pa.Array:
    """Return values as text: decimals and dates as MySQL prints them, numbers in digits."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return fixed_point(array)
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp(kind.unit)).cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return array
    return array.cast(pa.string())


def _low_word(array: pa.Array) -> pa.Array:
    """Return the numbers' last 64 bits, signed: Databus's form of a BIGINT UNSIGNED."""
    low, high = _numbers(array, np.int64, 2).reshape(-1, 2).T
    valid = _valid(array)
    if (valid & (high != 0) & ~((high == -1) & (low < 0))).any():
        raise pa.ArrowInvalid("it takes more than 64 bits")
    return pa.array(low.copy(), mask=~valid)


def _turned_negative(array: pa.Array) -> int | None:
    """Return one of the numbers that :func:`_low_word` makes negative; None: there is none."""
    low, high = _numbers(array, np.int64, 2).reshape(-1, 2).T
    rows = np.flatnonzero(_valid(array) & (high == 0) & (low < 0))
    return int(low[rows[0]]) + (1 << 64) if len(rows) else None


def _epoch(unit_per_ms: int) -> Callable[[pa.Array], pa.Array]:
    """Return dates and times as milliseconds (1) or microseconds (1000) since 1970-01-01, rounded down."""

    def convert(array: pa.Array) -> pa.Array:
        if unit_per_ms == _MICROS_PER_MILLI and pa.types.is_timestamp(array.type) and array.type.unit == "us":
            return array.view(pa.int64())
        micros = array.cast(pa.timestamp("us", tz=getattr(array.type, "tz", None))).cast(pa.int64())
        if unit_per_ms == _MICROS_PER_MILLI:
            return micros
        return pa.array(np.floor_divide(_numbers(micros, np.int64), _MICROS_PER_MILLI), mask=~_valid(micros))

    return convert


def _lane_of(kind: pa.DataType, avro: Any) -> tuple[Callable[[pa.Array], pa.Array], _Make] | None:
    """Return how an Arrow column becomes this Avro type; None: it cannot."""
    logical = avro.get("logicalType") if isinstance(avro, dict) else None
    name = avro["type"] if isinstance(avro, dict) else avro
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if name in ("int", "long"):
        convert = _as_long(kind, logical)
        return None if convert is None else (convert, _ints if name == "int" else _longs)
    if name in ("float", "double"):
        wanted = pa.float32() if name == "float" else pa.float64()
        return (_cast(wanted, safe=False), _fixed) if number else None
    if name == "boolean":
        return (_cast(pa.uint8()), _fixed) if pa.types.is_boolean(kind) else None
    if name == "string":
        flat = not pa.types.is_nested(kind) and not pa.types.is_binary(kind)
        return (text_of, _bytes) if flat else None
    if name == "bytes" and logical == "decimal":
        wanted = pa.decimal128(avro["precision"], avro.get("scale", 0))
        return (_cast(wanted), _decimals) if number and not pa.types.is_floating(kind) else None
    if name == "bytes":
        return (_same, _bytes) if pa.types.is_binary(kind) or pa.types.is_string(kind) else None
    if name == "record" and pa.types.is_struct(kind):
        return _same, _points
    if name == "array" and pa.types.is_list(kind) and avro.get("items") == "float":
        return _same, _floats
    return None


def _as_long(kind: pa.DataType, logical: str | None) -> Callable[[pa.Array], pa.Array] | None:
    """Return how an Arrow column becomes whole numbers; None: it cannot."""
    if pa.types.is_integer(kind):
        return _cast(pa.int64()) if pa.types.is_uint64(kind) else _same
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return _low_word
    if pa.types.is_date(kind) and logical == "date":
        return _cast(pa.int32())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _epoch(_MICROS_PER_MILLI if (logical or "").endswith("micros") else 1)
    return None


@dataclass(frozen=True)
class _Field:
    name: str
    column: int
    convert: Callable[[pa.Array], pa.Array]
    make: _Make
    branches: _Branches

    @property
    def nullable(self) -> bool:
        return self.branches[0] >= 0


@dataclass(frozen=True)
class EncodedRows:
    """Rows with known sizes, to be written at the caller's offsets."""

    sizes: npt.NDArray[np.int64]
    lanes: Sequence[_Lane]

    def put(self, starts: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
        """Write row i from ``out[starts[i]]`` on; ``starts`` is not changed."""
        cursor = starts.copy()
        for lane in self.lanes:
            lane.put(cursor, out)


class RowEncoder:
    """Encodes rows of one table definition by one schema.

    :param fields: of the table's columns, in table order (a canonical batch's, without the meta columns).
    :raises UnsupportedError: a column that the schema's type cannot hold; names table, column and type.
    """

    def __init__(self, schema: Schema, table: TableDef, fields: Sequence[pa.Field]) -> None:
        self._table = table
        self._fields = [self._field(order, field, table, fields) for order, field in enumerate(schema.value["fields"])]
        self._warned: set[str] = set()

    @staticmethod
    def _field(order: int, field: Mapping[str, Any], table: TableDef, fields: Sequence[pa.Field]) -> _Field:
        column = int(field_attributes(field.get("meta")).get("dbFieldPosition", order))
        avro, branches = _value_branch(field["type"])
        conversion = _lane_of(fields[column].type, avro)
        if conversion is None:
            raise UnsupportedError(
                f"a {table.columns[column].mysql} cannot be written as Avro's {avro}",
                table=table.full_name,
                column=table.columns[column].name,
            )
        return _Field(str(field["name"]), column, *conversion, branches)

    def encode(self, columns: Sequence[pa.Array]) -> EncodedRows:
        """Run the first pass: compute each row's size.

        :raises DecodeError: NULL in a field that is not nullable, or a value beyond its type.
        """
        sizes = np.zeros(len(columns[0]) if columns else 0, np.int64)
        lanes: list[_Lane] = []
        for field in self._fields:
            column = columns[field.column]
            valid = _valid(column)
            if column.null_count and not field.nullable:
                raise self._error(field, "NULL, which the schema does not allow")
            try:
                made = field.make(field.convert(column), valid, field.branches)
            except pa.ArrowInvalid as error:
                raise self._error(field, f"a value that the schema's type cannot hold ({error})") from None
            if field.convert is _low_word:
                self._warn(field, column)
            for lane in made:
                lane.add_sizes(sizes)
            lanes += made
        return EncodedRows(sizes, lanes)

    def key_part(self, index: int, column: pa.Array) -> pa.Array:
        """Return a key column as in events: int64 if the schema has an int or long, else text or bytes."""
        field = next((one for one in self._fields if one.column == index), None)
        if field is not None and field.make in (_longs, _ints):
            return _as_int64(field.convert(column))
        return text_of(column)

    def _warn(self, field: _Field, column: pa.Array) -> None:
        """Log once per column that unsigned 64-bit numbers become negative."""
        value = None if field.name in self._warned else _turned_negative(column)
        if value is None:
            return
        self._warned.add(field.name)
        log.warning(
            "%s.%s holds %d, more than Avro's long does: consumers get %d, the same 64 bits signed, as from "
            'Databus; a schema made with types = "exact" keeps the number',
            self._table.full_name,
            self._table.columns[field.column].name,
            value,
            value - (1 << 64),
        )

    def _error(self, field: _Field, what: str) -> DecodeError:
        column = self._table.columns[field.column].name
        return DecodeError(f"a column holds {what}", table=self._table.full_name, column=column)


def _value_branch(avro: Any) -> tuple[Any, _Branches]:
    """Return the type of the values, and the numbers of the union's branches."""
    if not isinstance(avro, list):
        return avro, _NO_UNION
    values = [branch for branch, one in enumerate(avro) if one != "null"]
    if len(values) != 1:
        return "union", _NO_UNION
    return avro[values[0]], (avro.index("null") if "null" in avro else -1, values[0])

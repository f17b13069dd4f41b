"""Parquet files for a Delta table, written from Arrow: no row passes through the JVM.

A file belongs to the table only when a commit names it (``headgate.lake``). A writer that dies leaves only an orphan,
as Spark's own writers do; VACUUM removes it. This module returns what the commit needs: the file's ``add`` action with
statistics, by which Delta skips files (Delta Transaction Log Protocol, "Add File and Remove File" and "Per-file
Statistics").

**Statistics** are the least and greatest value and the nulls of the first leaf columns, 32 unless the table's property
``delta.dataSkippingNumIndexedCols`` says otherwise, and of those that the caller names, at any position. Bounds may be
wide, never narrow: texts are cut to 32 characters, and U+10FFFF is appended to a greatest one that was cut. Times are
cut to milliseconds, which readers allow for. Types without an order that Spark and Arrow share (booleans, binaries,
lists, VARIANTs) have no bounds, nor have columns with a date of the year 0 or a NaN, which Spark orders above all
numbers. Columns with a NaN have no bounds in Parquet's own statistics either.

**Numbers that hardly repeat** (keys, positions, amounts, times) are stored as differences (``DELTA_BINARY_PACKED``,
Apache Parquet, "Encodings"), all else with a dictionary, which is the default of Parquet's writers. If a column has too
many values for a dictionary, its writer stores plain numbers after having searched one for nothing. A table of 500,000
rows with a key, an amount and a ``_seq`` takes 7.7 MB instead of 13.0 MB, half the time to write, and is read by
delta-rs in 39 ms instead of 56 ms of processor time, by DuckDB in a third of the time.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.delta._files import discard_files, files_of
from headgate.delta._mapping import UNMAPPED, ColumnNames
from headgate.delta._statistics import INDEXED_LEAVES
from headgate.errors import DecodeError

__all__ = ["CODECS", "VARIANT", "as_column", "as_rows", "grouped", "is_ordered", "is_plain", "write_files"]

CODECS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "none": "none", "uncompressed": "none"}
"""Spark's name of a codec → Arrow's."""

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""Spark's VARIANT. Spark recognises it in Arrow by the metadata (``ArrowUtils.isVariantField``), which files lack."""

_TEXT_CHARACTERS = 32
_GROUP_BYTES = 64 << 20
_FILE_BYTES = 512 << 20
_INTEGER_DIGITS = 18
"""A decimal of so many digits is an integer in a file."""
_SAMPLE_ROWS = 1 << 16
_DISTINCT_SHARE = 0.8
"""If more of the values in a sample are distinct, nulls apart, the column has at least some 140,000 values, or few
rows. A dictionary has at most 1 MB, which are 131,072 numbers of 8 bytes."""
_CALENDAR = {b"org.apache.spark.version": b"4.0.0"}
"""Readers take dates and times in files of Spark 3.0 and later as proleptic Gregorian. For files of unknown writers
a setting decides (Spark's ``DataSourceUtils.datetimeRebaseSpec``)."""


def is_plain(kind: pa.DataType) -> bool:
    """Whether Spark reads a column of this type from our file as from its own."""
    if pa.types.is_struct(kind):
        return all(is_plain(field.type) for field in kind)
    if pa.types.is_list(kind):
        return is_plain(kind.value_type)
    if pa.types.is_map(kind):
        return all(is_plain(one) and not pa.types.is_nested(one) for one in (kind.key_type, kind.item_type))
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and kind.tz in (None, "UTC")
    if pa.types.is_decimal128(kind):
        return bool(kind.precision <= 38)
    simple = (pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean)
    texts = (pa.types.is_string, pa.types.is_binary, pa.types.is_date32)
    return any(fits(kind) for fits in (*simple, *texts))


def as_column(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Cast a column to a table's type, if it has another one: a file's writer may have used another unit or width. A
    cast, even to the same type, refuses a VARIANT that is NULL.

    :raises DecodeError: it has shredded VARIANTs, which a table must declare.
    """
    if _is_shredded(values.type, kind):
        raise DecodeError("a data file has shredded VARIANTs, but its table does not declare them")
    return values if values.type.equals(kind) else values.cast(kind)


def as_rows(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> Any:
    """Return a file's rows with the columns of the table; those that the file lacks are null.

    :raises DecodeError: as :func:`as_column`.
    """
    present = {*rows.schema.names}
    columns = [
        as_column(rows[one.name], one.type) if one.name in present else pa.nulls(rows.num_rows, one.type)
        for one in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


def _is_shredded(file_type: pa.DataType, kind: pa.DataType) -> bool:
    if kind.equals(VARIANT):
        return bool(file_type.num_fields != VARIANT.num_fields)
    if not (pa.types.is_struct(kind) and pa.types.is_struct(file_type)):
        return False
    both = (field for field in kind if file_type.get_field_index(field.name) >= 0)
    return any(_is_shredded(file_type.field(field.name).type, field.type) for field in both)


class FileStatistics:
    """Statistics of the rows of one file, gathered part by part.

    :param always: columns that have statistics at any position.
    :param leaves: so many leaf columns, from the first, have them, too.
    """

    def __init__(self, schema: pa.Schema, always: Collection[str] = (), leaves: int = INDEXED_LEAVES) -> None:
        self._leaves = [path for i, path in enumerate(_leaves(schema)) if i < leaves or path[0] in always]
        self._nulls = [0] * len(self._leaves)
        self._least: list[Any] = [None] * len(self._leaves)
        self._greatest: list[Any] = [None] * len(self._leaves)
        self._unbounded: set[int] = set()
        self.rows = 0

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self.rows += table.num_rows
        for i, path in enumerate(self._leaves):
            values = _leaf(table, path)
            self._nulls[i] += values.null_count
            if _has_nan(values):
                self._unbounded.add(i)
                continue
            if not is_ordered(values.type) or values.null_count == len(values):
                continue
            bounds = pc.min_max(values)
            try:
                least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
            except OverflowError:  # MySQL has dates of the year 0, Python has none
                self._unbounded.add(i)
                continue
            self._least[i] = least if self._least[i] is None else min(self._least[i], least)
            self._greatest[i] = greatest if self._greatest[i] is None else max(self._greatest[i], greatest)

    def to_json(self) -> str:
        """Return the ``stats`` of an ``add`` action."""
        least: dict[str, Any] = {}
        greatest: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for i, path in enumerate(self._leaves):
            _put(nulls, path, str(self._nulls[i]))
            if self._least[i] is not None and i not in self._unbounded:
                low, high = _least_text(self._least[i]), _greatest_text(self._greatest[i])
                if low is not None and high is not None:
                    _put(least, path, low)
                    _put(greatest, path, high)
        parts = {"minValues": least, "maxValues": greatest, "nullCount": nulls}
        return _object({"numRecords": str(self.rows), "tightBounds": "true", **parts})


def write_files(
    batches: Iterable[pa.RecordBatch],
    folder: str,
    schema: pa.Schema,
    codec: str,
    always: Collection[str] = (),
    names: ColumnNames = UNMAPPED,
    leaves: int = INDEXED_LEAVES,
) -> Iterator[str]:
    """Write the rows into new files of the folder; yield each file's ``add`` action, as JSON, when all are written.

    :param batches: of exactly this schema.
    :param folder: the table's; created if it is missing.
    :param codec: one of :data:`CODECS`.
    :param always: columns that have statistics at any position.
    :param names: names of the table's columns in files.
    :param leaves: so many leaf columns, from the first, have statistics, too.
    :raises OSError: a file cannot be written. All files are removed.
    :raises TargetError: the table has no such column.
    """
    rows, inside = names.for_files(batches, schema), names.in_files(schema)
    bounded = {names.path((name,))[0] for name in always}
    done: list[str] = []
    files: list[str] = []
    try:
        source = grouped(rows, inside, _GROUP_BYTES)
        group = next(source, None)
        while group is not None:
            files.append(f"part-{len(files):05d}-{uuid.uuid4()}-c000.{codec}.parquet")
            statistics = FileStatistics(inside, bounded, leaves)
            with files_of(folder).create(files[-1]) as sink:
                group = _write_groups(sink, group, source, inside, codec, statistics)
                done.append(_add_action(files[-1], sink.tell(), statistics))
    except BaseException:
        discard_files(folder, files)
        raise
    yield from done


def grouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema, least_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of so many bytes or more; the last one may be smaller. There is none without rows."""
    buffered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        buffered.append(batch)
        size += batch.nbytes
        if size >= least_bytes:
            yield pa.Table.from_batches(buffered, schema)
            buffered, size = [], 0
    if buffered:
        yield pa.Table.from_batches(buffered, schema)


def _write_groups(
    sink: Any, first: pa.Table, more: Iterator[pa.Table], schema: pa.Schema, codec: str, statistics: FileStatistics
) -> pa.Table | None:
    """Write one file: ``first`` and the groups after it, up to the size of a file. Return the next group, if any."""
    group: pa.Table | None = first
    unbounded = _nan_columns(first)
    names = [".".join(path) for path in _file_columns(schema)]
    with pq.ParquetWriter(
        sink,
        schema.with_metadata(_CALENDAR),
        compression=CODECS[codec],
        store_schema=False,
        store_decimal_as_integer=True,
        write_statistics=[name for name in names if name not in unbounded] if unbounded else True,
        **_encodings(first),
    ) as writer:
        while group is not None and (
            group is first or (sink.tell() < _FILE_BYTES and _nan_columns(group) <= unbounded)
        ):
            columns = [_without_inner_nulls(column) for column in group.columns]
            whole = pa.table(columns, schema=schema.with_metadata(_CALENDAR))
            writer.write_table(whole, row_group_size=group.num_rows)
            statistics.add(group)
            group = next(more, None)
    return group


def _encodings(table: pa.Table) -> dict[str, Any]:
    """Return the arguments of Parquet's writer that choose each column's encoding, by its first rows."""
    step = -(-table.num_rows // _SAMPLE_ROWS)
    sample = pa.array(np.arange(0, table.num_rows, step))
    columns = [".".join(path) for path in _file_columns(table.schema)]
    packed = {
        column
        for path in _leaves(table.schema)
        if columns.count(column := ".".join(path)) == 1 and _hardly_repeats(_leaf(table, path), sample)
    }
    return {
        "use_dictionary": [column for column in columns if column not in packed],
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
    }


def _hardly_repeats(values: pa.ChunkedArray, sample: pa.Array) -> bool:
    """Return whether a file stores the values as integers, most of which are distinct."""
    kind = values.type
    is_number = pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    if not (is_number or (pa.types.is_decimal128(kind) and kind.precision <= _INTEGER_DIGITS)):
        return False
    chosen = values.take(sample)
    return bool(pc.count_distinct(chosen).as_py() > _DISTINCT_SHARE * (len(chosen) - chosen.null_count))


def _nan_columns(table: pa.Table) -> set[str]:
    """Return the columns of a file that have a NaN, as Parquet names them."""
    return {".".join(path) for path in _leaves(table.schema) if _has_nan(_leaf(table, path))}


def _has_nan(values: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _file_columns(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each column of a file, as Parquet names it."""
    for field in fields:
        path = (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _file_columns(field.type, path)
        elif pa.types.is_list(field.type):
            yield from _file_columns([pa.field("element", field.type.value_type)], (*path, "list"))
        elif pa.types.is_map(field.type):
            yield from _file_columns([field.type.key_field, field.type.item_field], (*path, "key_value"))
        else:
            yield path


def _leaf(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    """Return a column, or a part of a structure."""
    values = table.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, [name])  # a list: a text that begins with a dot would be a path
    return values


def _without_inner_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace the parts of each NULL VARIANT by an empty value: in files these parts are never null."""
    if not _has_variants(column.type):
        return column
    return pa.chunked_array([_filled(chunk) for chunk in column.chunks], column.type)


def _has_variants(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and (kind.equals(VARIANT) or any(_has_variants(field.type) for field in kind))


def _filled(values: pa.Array) -> pa.Array:
    if not pa.types.is_struct(values.type):
        return values
    parts = [_filled(values.field(i)) for i in range(values.type.num_fields)]
    if values.type.equals(VARIANT):  # in Arrow, a null has no bytes: without the validity bitmap it is an empty value
        parts = [
            pa.Array.from_buffers(part.type, len(part), [None, *part.buffers()[1:]], 0, part.offset) for part in parts
        ]
    return pa.StructArray.from_arrays(parts, fields=list(values.type), mask=values.is_null())


def _add_action(name: str, size: int, statistics: FileStatistics) -> str:
    add = {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": True,
        "stats": statistics.to_json(),
    }
    return json.dumps({"add": add})


def _leaves(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if pa.types.is_struct(field.type) and not field.type.equals(VARIANT):
            yield from _leaves(field.type, (*above, field.name))
        else:
            yield (*above, field.name)


def is_ordered(kind: pa.DataType) -> bool:
    """Return whether columns of a type have bounds in statistics: Spark and Arrow order its values alike."""
    without = (pa.types.is_boolean, pa.types.is_binary, pa.types.is_list, pa.types.is_map, pa.types.is_struct)
    return not any(fits(kind) for fits in without)


def _least_text(value: Any) -> str | None:
    return _json(value[:_TEXT_CHARACTERS] if isinstance(value, str) else value)


def _greatest_text(value: Any) -> str | None:
    if isinstance(value, str) and len(value) > _TEXT_CHARACTERS:
        if value[_TEXT_CHARACTERS] == "\U0010ffff":
            return None  # nothing is greater
        value = value[:_TEXT_CHARACTERS] + "\U0010ffff"
    return _json(value + 0.0 if isinstance(value, float) else value)  # many readers order -0.0 before 0.0


def _json(value: Any) -> str | None:
    """Convert a value to the form of statistics; None if it has none."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, datetime):
        return f'"{value.isoformat(timespec="milliseconds").replace("+00:00", "Z")}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    return str(value)


def _put(target: dict[str, Any], path: tuple[str, ...], text: str) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = text


def _object(values: Mapping[str, Any]) -> str:
    """Return a JSON object of values that are JSON texts already: decimals keep their digits."""
    members = (
        f"{json.dumps(name)}:{_object(value) if isinstance(value, dict) else value}" for name, value in values.items()
    )
    return "{" + ",".join(members) + "}"

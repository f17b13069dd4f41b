"""Decide whether a key is in ``(lo, hi]``: natively if Arrow's order is MySQL's, else in MySQL.

Native: integers, YEAR, BIT, DECIMAL up to 38 digits, FLOAT, DOUBLE, ENUM and SET by number, DATE, DATETIME, TIMESTAMP,
TIME as microseconds, binary strings. Not native: character types (their collation decides), TIME as text, longer
decimals, bounds with a zero date.

MySQL decides alike, because a JSON_TABLE has the key's types and collations, and the condition is the chunk SELECT's.
Values with a fraction or an exponent are strings in its JSON: the JSON parser of MySQL 8.0 rounds such numbers
(RapidJSON without ``kParseFullPrecisionFlag``: ``1.0000000200408773e+20`` is one unit off), while a string is converted
as by CAST (``my_strtod``, correctly rounded).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import BINARIES, INTEGERS, TEMPORALS, TEXTS, Column, TableDef
from headgate.columns import ZERO, microseconds_of, read_hex_key, time_micros_of
from headgate.errors import SnapshotRefusedError
from headgate.names import quote_name
from headgate.offsets import ChunkSpec
from headgate.snapshot._window import InRange, Mask
from headgate.snapshot.keys import FLOATS, bound_columns, key_columns, range_condition

__all__ = ["Query", "documents", "in_range", "json_values", "key_conditions", "row_indexes"]

Query = Callable[[str], list[tuple[Any, ...]]]

_QUERY_ROWS = 2000
_QUERY_BYTES = 1 << 20
"""Limits of one query: well below the smallest max_allowed_packet in use (4 MiB), also when written in hex."""


def in_range(query: Query, table: TableDef, chunk: ChunkSpec) -> InRange:
    """Return a function from the columns of the bounds (Arrow) to a mask: which keys are in the chunk's range.

    :param table: as it is written.
    """

    def decide(keys: pa.Table) -> Mask:
        if chunk.lo is None and chunk.hi is None:
            return np.ones(keys.num_rows, np.bool_)
        mask = _native(table, chunk, keys)
        return _evaluate_in_mysql(query, table, chunk, keys) if mask is None else mask

    return decide


# --- natively


def _native(table: TableDef, chunk: ChunkSpec, keys: pa.Table) -> Mask | None:
    """Decide natively; None if a column or bound cannot be compared here."""
    columns = bound_columns(table, chunk.surrogate)
    values = [_ordered(column, keys.column(column.name)) for column in columns]
    mask = np.ones(keys.num_rows, np.bool_)
    for bound, upper in ((chunk.lo, False), (chunk.hi, True)):
        if bound is None:
            continue
        inside = np.full(keys.num_rows, upper)
        for column, value, literal in reversed(list(zip(columns, values, bound, strict=True))):
            limit = None if value is None else _scalar(column, literal, value.type)
            if value is None or limit is None:
                return None
            beyond = pc.less(value, limit) if upper else pc.greater(value, limit)
            inside = _numpy(beyond) | (_numpy(pc.equal(value, limit)) & inside)
        mask &= inside
    return mask


def _numpy(values: Any) -> Mask:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.asarray(flat.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _ordered(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the values in a form whose Arrow order is MySQL's; None if there is no such form."""
    kind = column.type
    if kind in ("enum", "set"):
        return pa.chunked_array([_numbers(column, values)])
    if kind in INTEGERS or kind in FLOATS or kind in BINARIES or kind in ("year", "bit"):
        return values
    if kind in ("date", "datetime", "timestamp") or (kind == "time" and pa.types.is_integer(values.type)):
        return values
    if kind == "decimal" and pa.types.is_decimal(values.type):
        return values
    return None


def _numbers(column: Column, values: pa.ChunkedArray) -> pa.Array:
    """Return the numbers behind ENUM and SET values; 0 is the empty value of a failed insert.

    :raises SnapshotRefusedError: a value does not match exactly one member.
    """
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    positions = {member: index for index, member in enumerate(column.members)}
    texts = encoded.dictionary.to_pylist()
    parts = texts if column.type == "enum" else [part for text in texts for part in text.split(",")]
    for member in {*parts} - {"", ZERO}:
        if column.members.count(member) != 1:  # characters above U+FFFF are "?" in information_schema
            raise SnapshotRefusedError(
                f"key value {member!r} does not match exactly one member in information_schema: rename the member, or "
                "leave the table out",
                column=column.name,
            )
    if column.type == "enum":
        numbers = [positions.get(text, -1) + 1 for text in texts]
    else:
        numbers = [sum(1 << positions[m] for m in text.split(",") if m in positions) for text in texts]
    return pa.array(np.array(numbers, np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)])


def _scalar(column: Column, literal: str, kind: pa.DataType) -> pa.Scalar | None:
    """Return the value of a bound's literal; None if Arrow has no such value, or the column no longer has its type."""
    try:
        if column.type in BINARIES:
            return pa.scalar(bytes.fromhex(literal[2:-1]), kind)
        if column.type in FLOATS:
            return pa.scalar(float(literal), kind)
        if column.type in TEMPORALS:
            return _moment(column, literal[1:-1], kind)
        if pa.types.is_binary(kind):
            return pa.scalar(int(literal).to_bytes((column.precision + 7) // 8, "big"), kind)
        return pa.scalar(Decimal(literal) if pa.types.is_decimal(kind) else int(literal), kind)
    except (OverflowError, ValueError):
        return None


def _moment(column: Column, text: str, kind: pa.DataType) -> pa.Scalar:
    if column.type == "time" and pa.types.is_integer(kind):
        return pa.scalar(time_micros_of(text), kind)
    if pa.types.is_string(kind):
        return pa.scalar(text, kind)
    if column.type == "date":
        return pa.scalar(date.fromisoformat(text), kind)
    return pa.scalar(microseconds_of(text), pa.int64()).cast(kind)


# --- by MySQL


def _evaluate_in_mysql(query: Query, table: TableDef, chunk: ChunkSpec, keys: pa.Table) -> Mask:
    mask = np.zeros(keys.num_rows, np.bool_)
    for start, expressions, key_table in _key_tables(bound_columns(table, chunk.surrogate), keys):
        matches = query(f"SELECT t.i FROM {key_table} WHERE {range_condition(expressions, chunk.lo, chunk.hi)}")
        mask[row_indexes(matches) + start] = True
    return mask


def key_conditions(table: TableDef, keys: pa.Table) -> Iterator[str]:
    """Yield conditions that together select the rows with these keys, and rows with keys equal to them by collation.

    :param table: as it is written.
    :param keys: the table's key columns, as its codecs produce them.
    """
    columns = key_columns(table)
    names = ", ".join(quote_name(column.mysql_name) for column in columns)
    for _, expressions, key_table in _key_tables(columns, keys):
        yield f"({names}) IN (SELECT {', '.join(expressions)} FROM {key_table})"


def _key_tables(columns: Sequence[Column], keys: pa.Table) -> Iterator[tuple[int, list[str], str]]:
    """Yield some keys at a time: the index of the first, the expressions of the key's values, an SQL table ``t``."""
    specs, expressions = [], []
    values = [json_values(column, keys.column(column.name)) for column in columns]
    for index, column in enumerate(columns):
        kind, expression = _json_column(column, f"k{index}")
        specs.append(f"k{index} {kind} PATH '$[{index}]' ERROR ON ERROR")
        if column.type in TEXTS and (stored := _stored(values[index])):
            specs.append(f"h{index} LONGTEXT CHARACTER SET latin1 PATH '$[{len(values)}]' ERROR ON ERROR")
            values.append(stored)
            expression = f"COALESCE({expression}, {_of_bytes(column, f'UNHEX(h{index})')})"
        expressions.append(expression)
    for start, document in documents(values):
        text = f"_utf8mb4 X'{document.encode().hex()}'"
        table = f"JSON_TABLE({text}, '$[*]' COLUMNS (i FOR ORDINALITY, {', '.join(specs)})) AS t"
        yield start, expressions, table


def _stored(values: list[Any]) -> list[str | None] | None:
    """Replace values that are spelled by their bytes by None and return those bytes in hex; None if there are none."""
    stored = [key and key.stored.hex() for key in map(read_hex_key, values)]
    if not any(text is not None for text in stored):
        return None
    values[:] = [value if text is None else None for value, text in zip(values, stored, strict=True)]
    return stored


def _of_bytes(column: Column, expression: str) -> str:
    """Return an expression that decodes bytes in the column's character set."""
    collate = f" COLLATE {column.collation}" if column.collation else ""
    return f"CONVERT({expression} USING {column.charset}){collate}"


def row_indexes(rows: Sequence[tuple[Any, ...]]) -> npt.NDArray[np.int64]:
    """Return indexes from the first column of a result, which counts from 1."""
    return np.array([int(row[0]) - 1 for row in rows], np.int64)


def _json_column(column: Column, name: str) -> tuple[str, str]:
    """Return the column's type in the JSON_TABLE, and the expression with the key column's value and order."""
    kind = column.type
    if kind in INTEGERS:
        return f"BIGINT{' UNSIGNED' if column.unsigned else ''}", name
    if kind == "year":
        return "INT", name
    if kind in ("bit", "enum", "set"):
        return "BIGINT UNSIGNED", name
    if kind in FLOATS:
        return "DOUBLE", name
    if kind == "decimal":
        return f"DECIMAL({column.precision},{column.scale})", name
    if kind == "date":
        return "DATE", name
    if kind in TEMPORALS:
        return ("TIME(6)" if kind == "time" else "DATETIME(6)"), name
    if kind in TEXTS and column.charset is not None:
        collate = f" COLLATE {column.collation}" if column.collation else ""
        return f"LONGTEXT CHARACTER SET {column.charset}{collate}", name
    return "LONGTEXT CHARACTER SET latin1", f"UNHEX({name})"


def json_values(column: Column, values: pa.ChunkedArray) -> list[Any]:
    """Return the values in the form that a JSON_TABLE reads; NULL is None."""
    kind = column.type
    if kind in ("enum", "set"):
        return list(_numbers(column, values).to_pylist())
    if pa.types.is_temporal(values.type):
        values = _temporal_texts(values)
    plain_values: list[Any] = values.to_pylist()
    if kind in BINARIES:
        return [None if value is None else value.hex() for value in plain_values]
    if kind == "bit" and pa.types.is_binary(values.type):
        return [None if value is None else int.from_bytes(value, "big") for value in plain_values]
    if kind == "time" and pa.types.is_integer(values.type):
        return [None if value is None else _time_text(value) for value in plain_values]
    if kind == "decimal" and pa.types.is_floating(values.type):
        raise SnapshotRefusedError(
            'a double does not tell which chunk its row belongs to: set decimals = "decimal" or "text" for this table',
            column=column.name,
        )
    if kind == "decimal" or kind in TEMPORALS or kind in FLOATS:
        return [None if value is None else str(value) for value in plain_values]
    return [int(value) if isinstance(value, Decimal) else value for value in plain_values]


def _temporal_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates or moments as text: Python's have no year 0."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    return pc.replace_substring_regex(values.cast(pa.string()), r"\.000000$", "")


def _time_text(micros: int) -> str:
    """Return MySQL's text form of a TIME, with six digits of fraction."""
    seconds, part = divmod(abs(micros), 1_000_000)
    minutes, second = divmod(seconds, 60)
    return f"{'-' if micros < 0 else ''}{minutes // 60:02}:{minutes % 60:02}:{second:02}.{part:06}"


def documents(values: list[list[Any]]) -> Iterator[tuple[int, str]]:
    """Yield JSON arrays of keys, each with the index of its first key."""
    start, size = 0, 0
    parts: list[str] = []
    for index, key in enumerate(zip(*values, strict=True)):
        text = json.dumps(key, ensure_ascii=False)
        length = len(text.encode())
        if parts and (len(parts) >= _QUERY_ROWS or size + length > _QUERY_BYTES):
            yield start, "[" + ",".join(parts) + "]"
            start, parts, size = index, [], 0
        parts.append(text)
        size += length
    if parts:
        yield start, "[" + ",".join(parts) + "]"

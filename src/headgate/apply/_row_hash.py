"""Hashes of whole rows: equal for equal rows, different for different ones.

The hash covers the columns that are not NULL: SHA-256, cut to 128 bits, of each one's name and value, each preceded by
its length, in order of the names. So neither a column's position nor a new column that is NULL in all old rows changes
it. Numbers, dates and times are hashed as the bytes that Arrow has for them, lists as their elements, each preceded by
its length.

**One call of hashlib for each row**: the only Python objects per row on the way into a table. A million rows of 165
bytes take a second of a core here, of it 0.7 s in hashlib: a quarter of what applying inserts takes. Rows of equal hash
count as equal, and users choose their content, so the hash must resist collisions. No library hashes the values of a
column so: Arrow has no such function, xxHash and MurmurHash do not resist. SHA-256 compiled by numba uses no SHA
instructions, so it is no faster. Nor are BLAKE2 and MD5 of hashlib.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.delta import bytes_of
from headgate.errors import DecodeError

__all__ = ["HASH_BYTES", "row_hashes"]

HASH_BYTES: Final = 16
"""128 bits: among 10⁹ different rows the chance of a collision is below 10⁻²⁰; constructing one takes 2⁶⁴ hashes."""
_BYTES: Final = pa.large_binary()
_NOTHING: Final = pa.scalar(b"", _BYTES)
_NULL: Final = pa.scalar(None, _BYTES)


def row_hashes(rows: pa.RecordBatch, columns: Sequence[str]) -> Any:
    """Return the hash of each row's ``columns``: uint8[rows, 16].

    :raises DecodeError: a column is of a type that no table of ours has.
    """
    framed = [_framed(name, rows[name]) for name in sorted(columns)]
    contents = _concatenated(framed)
    offsets, data = bytes_of(contents)
    view, ends = memoryview(data), offsets.tolist()
    hashes = b"".join([hashlib.sha256(view[start:end]).digest()[:HASH_BYTES] for start, end in pairwise(ends)])
    return np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES)


def _framed(name: str, values: pa.Array) -> pa.Array:
    """Return name and value as bytes that no other name or value gives; NULL for NULL."""
    content = _content(values)
    label = pa.scalar(f"{len(name.encode())}:{name}".encode(), _BYTES)
    size = pc.binary_length(content).cast(pa.string()).cast(_BYTES)
    return pc.binary_join_element_wise(label, size, pa.scalar(b":", _BYTES), content, _NOTHING)


def _concatenated(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of each row's parts, without those that are NULL. Arrow's ``skip`` loses rows of NULLs."""
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement="")


def _content(values: pa.Array) -> pa.Array:
    """Return values as bytes: equal for equal values of a type, different for different ones; NULL for NULL."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = [_framed(field.name, pc.struct_field(values, index)) for index, field in enumerate(kind)]
        return pc.if_else(values.is_valid(), _concatenated(fields), _NULL)
    if pa.types.is_list(kind):
        return pc.if_else(values.is_valid(), _elements(values), _NULL)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if pa.types.is_primitive(values.type) or pa.types.is_decimal(kind):
        values = values.view(pa.binary(values.type.bit_width // 8))
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise DecodeError(f"a row with a column of type {kind} cannot be hashed")
    return values.cast(_BYTES)


def _elements(lists: pa.Array) -> pa.Array:
    """Return the framed elements of each list, one after the other."""
    elements = pc.fill_null(_framed("", lists.flatten()), b"-").cast(pa.binary())
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0))
    starts = pa.concat_arrays([pa.array([0], ends.type), ends])
    return pc.binary_join(pa.ListArray.from_arrays(starts, elements), pa.scalar(b"", pa.binary())).cast(_BYTES)

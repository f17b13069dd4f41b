"""Row identity: integer codes that are equal exactly where keys are equal.

Keys are compared as the Arrow values of both paths (log and SELECT), that is, by stored value. This is finer than
MySQL's collation: 'a' and 'Á' may be one key to a UNIQUE index, but are two here. The rewind needs this, because the
log's images name exactly the stored values between which a row moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["key_codes"]


def key_codes(parts: Sequence[pa.Table], names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return one code per row over all ``parts`` in order, from 0; equal codes mean equal values in all ``names``.

    A null equals a null.
    """
    codes: npt.NDArray[np.int64] | None = None
    for name in names:
        chunks = [chunk for part in parts for chunk in part.column(name).chunks]
        for values in _encodable(pa.chunked_array(chunks, type=parts[0].schema.field(name).type)):
            column = _dense(values)
            if codes is None:
                codes = column
            else:
                width = int(column.max(initial=0)) + 1
                codes = _dense(pa.chunked_array([pa.array(codes * width + column)]))
    if codes is None:
        raise ValueError("a key without columns")
    return codes


def _encodable(values: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """Yield columns that Arrow can encode as a dictionary, which are all equal exactly where the values are.

    :param values: a struct (GEOMETRY), a list of numbers (VECTOR), or any type without parts.
    """
    if pa.types.is_struct(values.type):
        yield pc.is_valid(values)
        for field in values.flatten():
            yield from _encodable(field)
    elif pa.types.is_list(values.type):
        yield pa.chunked_array([_list_bytes(chunk) for chunk in values.chunks], pa.large_binary())
    else:
        yield values


def _list_bytes(lists: pa.ListArray) -> pa.LargeBinaryArray:
    """Return the bytes of each list of numbers; NULL stays."""
    size = lists.type.value_type.bit_width // 8
    offsets = (np.asarray(lists.offsets).astype(np.int64) + lists.values.offset) * size
    buffers = [None, pa.py_buffer(offsets), lists.values.buffers()[1]]
    return pc.if_else(lists.is_valid(), pa.Array.from_buffers(pa.large_binary(), len(lists), buffers), None)


def _dense(values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    encoded: Any = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(encoded, pa.ChunkedArray):  # more bytes than one array can address
        encoded = encoded.dictionary_encode("encode").unify_dictionaries()
        chunk_indices = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
        return np.concatenate(chunk_indices).astype(np.int64)
    indices = encoded.dictionary_encode("encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)

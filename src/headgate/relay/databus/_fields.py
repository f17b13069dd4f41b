"""Fields of many events at once, as arrays, for JSON and the client."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.kernels import copy
from headgate.relay.databus._binary import (
    PART_HEAD,
    attributes_at,
    i16_at,
    i64_at,
    key_at,
    parts_at,
    size_at,
    source_at,
    u32_at,
)

__all__ = ["EventFields", "byte_ranges", "event_fields", "gather_ranges", "without_schema_ids"]

Int64s = npt.NDArray[np.int64]

_COLUMNS: Final = 20


class EventFields(NamedTuple):
    """Each is int64[events]; offsets are in the parsed bytes."""

    size: Int64s
    attributes: Int64s
    scn: Int64s
    physical: Int64s
    logical: Int64s
    stamp: Int64s
    """ns since 1970."""
    source: Int64s
    digest: Int64s
    """Offset of the schema's id; -1: the event has none."""
    schema_version: Int64s
    """0 in version 1, which does not have it."""
    header_crc: Int64s
    body_crc: Int64s
    long_key: Int64s
    """0 if the key is bytes."""
    key: Int64s
    """Offset of a key of bytes; -1: it is a number."""
    key_size: Int64s
    value: Int64s
    value_size: Int64s
    version: Int64s
    before: Int64s
    """Offset of the before image, 16 bytes after its schema's id; -1: the event has none."""
    before_size: Int64s
    before_version: Int64s
    """Of its schema."""


@njit(cache=True, nogil=True)
def _parse(buf: Any, end: Any, out: Any) -> Any:
    at = np.int64(0)
    n = 0
    while at < end:
        size = size_at(buf, at)
        first = buf[at] == 0
        key, key_size, is_long = key_at(buf, at)
        out[0, n] = size
        out[1, n] = attributes_at(buf, at)
        out[2, n] = i64_at(buf, at + (11 if first else 37))
        out[3, n] = i16_at(buf, at + (19 if first else 35))
        out[4, n] = i16_at(buf, at + (21 if first else 35))
        out[5, n] = i64_at(buf, at + 23)
        out[6, n] = source_at(buf, at)
        out[9, n] = u32_at(buf, at + (1 if first else 9))
        out[10, n] = u32_at(buf, at + (49 if first else 13))
        out[11, n] = i64_at(buf, key) if is_long else 0
        out[12, n] = -1 if is_long else key
        out[13, n] = key_size
        digest, value, before = parts_at(buf, at)
        out[7, n] = digest
        out[8, n] = 0 if first or digest < 0 else i16_at(buf, digest - 2) >> 2
        out[14, n] = value
        out[15, n] = at + size - value
        out[16, n] = 1 if first else 2
        out[17, n] = before
        out[18, n] = 0 if before < 0 else u32_at(buf, before - PART_HEAD)
        out[19, n] = 0 if before < 0 else i16_at(buf, before - PART_HEAD + 4) >> 2
        at += size
        n += 1
    return n


@njit(cache=True, nogil=True)
def _count(buf: Any, end: Any) -> Any:
    at = np.int64(0)
    n = 0
    while at < end:
        at += size_at(buf, at)
        n += 1
    return n


def event_fields(data: Any) -> EventFields:
    """Return the fields of whole, undamaged events (uint8[])."""
    out = np.empty((_COLUMNS, int(_count(data, len(data)))), np.int64)
    _parse(data, len(data), out)
    return EventFields(*out)


@njit(cache=True, nogil=True)
def _gather(buf: Any, starts: Any, sizes: Any, offsets: Any, out: Any) -> None:
    for i in range(starts.shape[0]):
        copy(out, np.int64(offsets[i]), buf, starts[i], sizes[i])


def gather_ranges(data: Any, starts: Int64s, sizes: Int64s) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return ranges of the bytes (uint8[]) one after the other, with offsets; together less than 2 GiB."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    gathered = np.empty(int(offsets[-1]), np.uint8)
    _gather(data, starts, sizes, offsets, gathered)
    return offsets, gathered


def byte_ranges(data: Any, starts: Int64s, sizes: Int64s) -> pa.Array:
    """Return ranges of the bytes as :func:`gather_ranges`, as a binary array."""
    offsets, gathered = gather_ranges(data, starts, sizes)
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(gathered)])


def without_schema_ids(body: bytes, fields: EventFields | None = None) -> bytes:
    """Return whole, undamaged events with zeros for the ids and versions of their schemas, and for the checksums that
    cover these: what relays that number the versions of a schema differently send of the same transaction.

    :param fields: those of the events, if they are known.
    """
    out = np.frombuffer(body, np.uint8).copy()
    fields = event_fields(out) if fields is None else fields
    begins = np.cumsum(fields.size) - fields.size
    is_first, digests, befores = fields.version == 1, fields.digest, fields.before
    for starts, count in (
        (begins[is_first] + 1, 4),
        (begins[~is_first] + 9, 8),
        (digests[(digests >= 0) & is_first], 16),
        (digests[(digests >= 0) & ~is_first] - 2, 18),
        (befores[befores >= 0] - 18, 18),
    ):
        out[(starts[:, np.newaxis] + np.arange(count)).ravel()] = 0
    return out.tobytes()

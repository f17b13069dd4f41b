"""Databus events: the two binary layouts, written and read by compiled loops.

All integers are big-endian. A window (the events of one transaction) ends with an *end-of-period* event (EOP).

Version 1 (Databus, ``DbusEventV1.java``; its version byte is 0)::

     0  version 0                    23  timestamp, ns since 1970 (8)
     1  CRC of the header (4)        31  source id (2)
     5  length of the event (4)      33  schema id (16): MD5
     9  attributes (2)               49  CRC of the value (4)
    11  sequence: the SCN (8)        53  long key (8), value at 61
    19  physical partition (2)       53  or length of the key (4), key at 57, value behind it
    21  logical partition (2)

    attributes: 1 upsert, 2 delete, 4 trace, 8 the key is bytes, 0x100 replicated from elsewhere
    header CRC: bytes 5 to 60 with a long key, 5 to 56 otherwise; value CRC: the value, with a byte key key and value

Version 2 (``DbusEventV2.java``, ``DbusEventPart.java``)::

     0  version 2                    21  attributes (2)
     1  magic 0xCAFEDEED             23  timestamp, ns since 1970 (8)
     5  length of the header (4)     31  source id (4)
     9  CRC of the header (4)        35  partition (2)
    13  CRC of the body (4)          37  sequence: the SCN (8)
    17  length of the event (4)      45  key: 8 bytes, or its length (4) and the key

    then the metadata part and the payload part, each if its flag is set:
     0  length of the data (4), 4 attributes (2) = version << 2 | 0 (MD5), 6 digest (16), 22 data

    attributes: bits 0-1 0 control, 1 upsert, 2 delete; bits 2-3 key 1 long, 2 bytes; 0x10 replicated, 0x20 trace,
                0x40 metadata, 0x80 payload
    header CRC: byte 13 to the header's end (so it covers the body's CRC); body CRC: the rest

The metadata part of an update is headgate's own, if the relay writes before images: the before image in Avro, by the
schema that the part names. It is that of the payload, under its version as a schema of metadata (``_schemas.py``).

The CRC is CRC-32's polynomial with a register that begins at 0 and is not inverted at the end (Databus,
``ByteBufferCRC32.java``).

Control events have negative source ids: −2 EOP, −3 checkpoint. An EOP has key 0, no value, schema id 0, the physical
partition and the timestamp of its window's newest event; in version 1 attributes 0 and logical partition 0.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from headgate.binlog import CRC_TABLES, crc_update
from headgate.errors import DecodeError
from headgate.kernels import copy, u8

__all__ = [
    "EOP_SIZE",
    "EOP_SOURCE",
    "PART_HEAD",
    "attributes_at",
    "convert_to_v1",
    "event_sizes",
    "fit",
    "i16_at",
    "i64_at",
    "is_intact",
    "key_at",
    "parts_at",
    "put_eops",
    "put_events",
    "put_number",
    "put_part_size",
    "put_size",
    "scan_windows",
    "seal",
    "size_at",
    "skip",
    "source_at",
    "u32_at",
]

EOP_SOURCE: Final = -2
EOP_SIZE: Final = {1: 61, 2: 53}
"""Bytes of an end-of-period event, by event version."""
PART_HEAD: Final = 22
"""Bytes in front of a part's data, in version 2."""
_MAGIC: Final = 0xCAFEDEED
_UPSERT: Final = 1
_DELETE: Final = 2


# --- bytes ------------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def put_number(out: Any, at: Any, size: int, value: Any) -> None:
    """Write a big-endian integer of ``size`` bytes."""
    for k in range(size - 1, -1, -1):
        out[at + k] = np.uint8(value & 255)
        value >>= 8


@njit(cache=True, nogil=True)
def u32_at(buf: Any, at: Any) -> Any:
    return u8(buf, at) << 24 | u8(buf, at + 1) << 16 | u8(buf, at + 2) << 8 | u8(buf, at + 3)


@njit(cache=True, nogil=True)
def i16_at(buf: Any, at: Any) -> Any:
    value = u8(buf, at) << 8 | u8(buf, at + 1)
    return value - 65536 if value & 0x8000 else value


@njit(cache=True, nogil=True)
def i64_at(buf: Any, at: Any) -> Any:
    return u32_at(buf, at) << 32 | u32_at(buf, at + 4)


@njit(cache=True, nogil=True)
def size_at(buf: Any, at: Any) -> Any:
    """Return the length of the event at ``at``."""
    return u32_at(buf, at + 5) if buf[at] == 0 else u32_at(buf, at + 17)


@njit(cache=True, nogil=True)
def put_size(buf: Any, at: Any, size: Any) -> None:
    """Write the length of the event at ``at``."""
    put_number(buf, at + (5 if buf[at] == 0 else 17), 4, size)


@njit(cache=True, nogil=True)
def put_part_size(buf: Any, at: Any, size: Any) -> None:
    """Write the length of the data at ``at``, which a part's head precedes."""
    put_number(buf, at - PART_HEAD, 4, size)


@njit(cache=True, nogil=True)
def attributes_at(buf: Any, at: Any) -> Any:
    return i16_at(buf, at + (9 if buf[at] == 0 else 21))


@njit(cache=True, nogil=True)
def key_at(buf: Any, at: Any) -> Any:
    """Return the offset and the length of an event's key, and whether it is a long key."""
    key = at + (53 if buf[at] == 0 else 45)
    if attributes_at(buf, at) & 8:
        return key + 4, np.int64(u32_at(buf, key)), False
    return key, np.int64(8), True


@njit(cache=True, nogil=True)
def source_at(buf: Any, at: Any) -> Any:
    if buf[at] == 0:
        return i16_at(buf, at + 31)
    value = u32_at(buf, at + 31)
    return value - (1 << 32) if value & 0x80000000 else value


@njit(cache=True, nogil=True)
def parts_at(buf: Any, at: Any) -> Any:
    """Return the offsets of an event's schema id (-1: none), its value and its before image (-1: none)."""
    if buf[at] == 0:
        key, count, _ = key_at(buf, at)
        return at + 33, key + count, np.int64(-1)
    attributes = attributes_at(buf, at)
    part = at + u32_at(buf, at + 5)
    before = np.int64(-1)
    if attributes & 0x40:
        before = part + PART_HEAD
        part = before + u32_at(buf, part)
    if not attributes & 0x80:
        return np.int64(-1), part, before
    return part + 6, part + PART_HEAD, before


# --- writing ----------------------------------------------------------------------------------------------------------


def event_sizes(version: int, values: Any, key_sizes: Any | None) -> Any:
    """Return the bytes of whole events (int64[n]) from those of their values, and of their keys (None: long keys)."""
    key = 8 if key_sizes is None else key_sizes + 4
    return values + key + (53 if version == 1 else 45 + 22)


@njit(cache=True, nogil=True)
def _put_head(out: Any, at: Any, version: int, size: Any, header: Any, attributes: Any, stamp: Any, source: Any,
              partition: int, logical: int, sequence: Any) -> None:  # fmt: skip
    """Write everything before the key; CRCs and schema id are 0."""
    if version == 1:
        put_number(out, at, 5, 0)
        put_number(out, at + 5, 4, size)
        put_number(out, at + 9, 2, attributes)
        put_number(out, at + 11, 8, sequence)
        put_number(out, at + 19, 2, partition)
        put_number(out, at + 21, 2, logical)
        put_number(out, at + 23, 8, stamp)
        put_number(out, at + 31, 2, source)
        put_number(out, at + 33, 20, 0)
    else:
        out[at] = 2
        put_number(out, at + 1, 4, _MAGIC)
        put_number(out, at + 5, 4, header)
        put_number(out, at + 9, 8, 0)
        put_number(out, at + 17, 4, size)
        put_number(out, at + 21, 2, attributes)
        put_number(out, at + 23, 8, stamp)
        put_number(out, at + 31, 4, source)
        put_number(out, at + 35, 2, partition)
        put_number(out, at + 37, 8, sequence)


@njit(cache=True, nogil=True)
def _put_part_head(out: Any, at: Any, size: Any, schema_version: int, digest: Any) -> None:
    put_number(out, at, 4, size)
    put_number(out, at + 4, 2, schema_version << 2)
    copy(out, at + 6, digest, 0, 16)


@njit(cache=True, nogil=True)
def put_events(out: Any, at: Any, sizes: Any, version: int, deletes: Any, stamps: Any, sequences: Any, source: int,
               partition: int, logical: int, digest: Any, schema_version: int, long_keys: Any, key_offsets: Any,
               key_data: Any, values: Any, before_images: Any, before_version: int) -> None:  # fmt: skip
    """Write each event except its value and CRCs.

    :param at: int64[n]: offsets of the events; ``sizes``: their lengths.
    :param deletes: bool[n]; ``stamps``: int64[n] ns; ``sequences``: int64[n].
    :param long_keys: int64[n], or empty: then the keys are ``key_data[key_offsets[i]:key_offsets[i + 1]]``.
    :param values: int64[n], filled with the offsets of the values.
    :param before_images: int64[n]: lengths of the before images (-1: none), replaced by their offsets. Empty: there
        are none.
    :param before_version: of its schema, as one of metadata.
    """
    has_long = long_keys.shape[0] > 0
    for i in range(at.shape[0]):
        p = at[i]
        count = np.int64(8) if has_long else np.int64(key_offsets[i + 1]) - np.int64(key_offsets[i])
        key = 53 if version == 1 else 45
        behind = key + count + (0 if has_long else 4)
        opcode = _DELETE if deletes[i] else _UPSERT
        kind = 8 if not has_long else 0 if version == 1 else 4
        attributes = opcode | kind | (0 if version == 1 else 0x80)
        _put_head(out, p, version, sizes[i], behind, attributes, stamps[i], source, partition, logical, sequences[i])
        if has_long:
            put_number(out, p + key, 8, long_keys[i])
        else:
            put_number(out, p + key, 4, count)
            copy(out, p + key + 4, key_data, np.int64(key_offsets[i]), count)
        if version == 1:
            copy(out, p + 33, digest, 0, 16)
            values[i] = p + behind
        else:
            if before_images.shape[0] > 0 and before_images[i] >= 0:
                before = before_images[i]
                put_number(out, p + 21, 2, attributes | 0x40)
                _put_part_head(out, p + behind, before, before_version, digest)
                before_images[i] = p + behind + 22
                behind += 22 + before
            _put_part_head(out, p + behind, sizes[i] - behind - 22, schema_version, digest)
            values[i] = p + behind + 22


@njit(cache=True, nogil=True)
def put_eops(out: Any, at: Any, version: int, stamps: Any, sequences: Any, partition: int) -> None:
    """Write end-of-period events; ``at``, ``stamps`` and ``sequences`` are int64[n]."""
    for i in range(at.shape[0]):
        size, attributes = (61, 0) if version == 1 else (53, 4)
        _put_head(out, at[i], version, size, size, attributes, stamps[i], EOP_SOURCE, partition, 0, sequences[i])
        put_number(out, at[i] + size - 8, 8, 0)


@njit(cache=True, nogil=True)
def _crc(buf: Any, start: Any, end: Any, tables: Any) -> Any:
    return crc_update(np.uint32(0), buf, start, end, tables)


@njit(cache=True, nogil=True)
def _crcs(buf: Any, at: Any, tables: Any) -> Any:
    """Return the body's CRC offset and CRC, and the header's CRC offset and covered range; write the body's first."""
    size = size_at(buf, at)
    if buf[at] == 0:
        end = at + (57 if buf[at + 10] & 8 else 61)
        return at + 49, _crc(buf, end, at + size, tables), at + 1, at + 5, end
    end = at + u32_at(buf, at + 5)
    return at + 13, _crc(buf, end, at + size, tables), at + 9, at + 13, end


@njit(cache=True, nogil=True)
def _seal(out: Any, start: Any, end: Any, tables: Any) -> None:
    at = start
    while at < end:
        body, crc, head, first, last = _crcs(out, at, tables)
        put_number(out, body, 4, np.int64(crc))
        put_number(out, head, 4, np.int64(_crc(out, first, last, tables)))
        at += size_at(out, at)


def seal(out: Any, start: int, end: int) -> None:
    """Write the CRCs of all events in ``out[start:end]``."""
    _seal(out, start, end, CRC_TABLES)


# --- reading ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _parts_fit(buf: Any, at: Any, behind: Any, end: Any) -> Any:
    """Whether an event is exactly its header with the key, and its parts or value.

    :param behind: index behind its header; ``end``: behind the event.
    """
    first = buf[at] == 0
    key, count, _ = key_at(buf, at)
    if key > behind:
        return False
    if first:
        return key + count <= end
    if key + count != behind:
        return False
    part = behind
    for flag in (0x40, 0x80):
        if attributes_at(buf, at) & flag:
            if part + PART_HEAD > end or part + PART_HEAD + u32_at(buf, part) > end:
                return False
            part += PART_HEAD + u32_at(buf, part)
    return part == end


@njit(cache=True, nogil=True)
def _is_whole(buf: Any, at: Any, end: Any) -> Any:
    """Whether a whole event is at ``at``, whatever its CRCs."""
    if at + 45 > end or (buf[at] != 0 and buf[at] != 2):
        return False
    size = size_at(buf, at)
    if size < 53 or at + size > end:
        return False
    if buf[at] == 0:
        header = 57 if buf[at + 10] & 8 else 61
    else:
        header = u32_at(buf, at + 5)
        if header < 45 or u32_at(buf, at + 1) != _MAGIC:
            return False
    return header <= size and _parts_fit(buf, at, at + header, at + size)


@njit(cache=True, nogil=True)
def _is_intact(buf: Any, at: Any, end: Any, tables: Any) -> Any:
    """Whether a whole, undamaged event is at ``at``."""
    if not _is_whole(buf, at, end):
        return False
    body, crc, head, first, last = _crcs(buf, at, tables)
    return u32_at(buf, body) == np.int64(crc) and u32_at(buf, head) == np.int64(_crc(buf, first, last, tables))


@njit(cache=True, nogil=True)
def _all_intact(buf: Any, end: Any, tables: Any) -> Any:
    at = np.int64(0)
    while at < end:
        if not _is_intact(buf, at, end, tables):
            return False
        at += size_at(buf, at)
    return True


def is_intact(data: Any) -> bool:
    """Whether these bytes (uint8[]) are only whole, undamaged events."""
    return bool(_all_intact(data, len(data), CRC_TABLES))


@njit(cache=True, nogil=True)
def _scan(buf: Any, end: Any, tables: Any, scns: Any, ends: Any, stamps: Any) -> Any:
    at = np.int64(0)
    windows = 0
    while at < end and windows < scns.shape[0] and _is_intact(buf, at, end, tables):
        eop = source_at(buf, at) == EOP_SOURCE
        sequence = i64_at(buf, at + (11 if buf[at] == 0 else 37))
        stamp = i64_at(buf, at + 23)
        at += size_at(buf, at)
        if eop:
            scns[windows] = sequence
            ends[windows] = at
            stamps[windows] = stamp
            windows += 1
    return windows


def scan_windows(buf: Any) -> tuple[Any, Any, Any]:
    """Return ``(SCN, end, timestamp)`` of the whole, undamaged windows at the start of ``buf`` (int64[n])."""
    most = len(buf) // EOP_SIZE[2] + 1
    scns, ends, stamps = (np.empty(most, np.int64) for _ in range(3))
    count = int(_scan(buf, len(buf), CRC_TABLES, scns, ends, stamps))
    return tuple(array[:count].copy() for array in (scns, ends, stamps))  # type: ignore[return-value]


@njit(cache=True, nogil=True)
def skip(buf: Any, start: Any, end: Any, count: Any) -> Any:
    """Return the offset of the event ``count`` events after the one at ``start``; at most ``end``."""
    at = start
    while count > 0 and at < end:
        at += size_at(buf, at)
        count -= 1
    return at


@njit(cache=True, nogil=True)
def fit(buf: Any, start: Any, end: Any, budget: Any) -> Any:
    """Return ``(stop, data events, control events, size of the event that does not fit or 0)`` for ``budget`` bytes."""
    at = start
    data = 0
    control = 0
    while at < end:
        size = size_at(buf, at)
        if at + size - start > budget:
            return at, data, control, size
        if source_at(buf, at) < 0:
            control += 1
        else:
            data += 1
        at += size
    return at, data, control, np.int64(0)


@njit(cache=True, nogil=True)
def count_sources(buf: Any, counts: Any, now: Any) -> None:
    """For the source of each data event: add one to ``counts[0]``, add the event's bytes to ``counts[1]``, and put
    ``now`` into ``counts[2]``.
    """
    at = np.int64(0)
    while at < buf.shape[0]:
        size = np.int64(size_at(buf, at))
        source = np.int64(source_at(buf, at))
        if 0 <= source < counts.shape[1]:
            counts[0, source] += 1
            counts[1, source] += size
            counts[2, source] = now
        at += size


@njit(cache=True, nogil=True)
def _size_as_v1(buf: Any, at: Any) -> Any:
    """Return the length of the event at ``at`` in version 1."""
    if buf[at] == 0:
        return np.int64(size_at(buf, at))
    _, value, _ = parts_at(buf, at)
    return np.int64(u32_at(buf, at + 5) + 8 + at + size_at(buf, at) - value)


@njit(cache=True, nogil=True)
def _sizes_as_v1(buf: Any, end: Any) -> Any:
    """Return the length of all events in version 1 (-1: a damaged one is among them), and whether all have it."""
    at = np.int64(0)
    size = np.int64(0)
    first = True
    while at < end:
        if not _is_whole(buf, at, end):
            return np.int64(-1), False
        first &= buf[at] == 0
        size += _size_as_v1(buf, at)
        at += size_at(buf, at)
    return size, first


@njit(cache=True, nogil=True)
def _to_v1(buf: Any, end: Any, out: Any) -> Any:
    at = np.int64(0)
    q = np.int64(0)
    while at < end:
        size = _size_as_v1(buf, at)
        behind = at + size_at(buf, at)
        if buf[at] == 0:
            copy(out, q, buf, at, size)
            q += size
            at = behind
            continue
        digest, value, _ = parts_at(buf, at)
        header = u32_at(buf, at + 5)
        attributes = attributes_at(buf, at)
        source = source_at(buf, at)
        new = attributes & 3 | attributes & 8
        partition = i16_at(buf, at + 35)
        logical = 0 if source < 0 else partition
        _put_head(out, q, 1, size, 0, new, i64_at(buf, at + 23), source, partition, logical, i64_at(buf, at + 37))
        if digest >= 0:
            copy(out, q + 33, buf, digest, 16)
        copy(out, q + 53, buf, at + 45, header - 45)
        copy(out, q + header + 8, buf, value, behind - value)
        q += size
        at = behind


def convert_to_v1(data: Any) -> Any:
    """Convert events of version 2 (uint8[]) to version 1, without metadata parts and with one partition as both. Those
    of version 1 stay as they are.

    :raises DecodeError: they are not whole events.
    """
    size, first = _sizes_as_v1(data, len(data))
    if size < 0:
        raise DecodeError("the relay's buffer has bytes that are no event")
    if first:
        return data
    out = np.empty(int(size), np.uint8)
    _to_v1(data, len(data), out)
    seal(out, 0, len(out))
    return out

"""Deletion vectors: the deleted rows of a data file.

A vector has row positions, counted from 0 in the order of the Parquet file. Its descriptor's ``storageType`` says where
it is stored (Delta Transaction Log Protocol, "Deletion Vectors"):

| type | ``pathOrInlineDv`` | where |
|---|---|---|
| ``u`` | a prefix, then a UUID in Z85 (20 characters) | ``<prefix>/deletion_vector_<uuid>.bin``, at ``offset`` |
| ``i`` | Z85 of the data | in the log itself |
| ``p`` | absolute path | that file, at ``offset``; not read here |

| a ``.bin`` file | bytes |
|---|---|
| version, 1 | 1 |
| for each vector, at its ``offset``: the data's length | 4, big-endian |
| the data | ``sizeInBytes`` |
| their CRC-32 | 4, big-endian |

The data are a magic number (little-endian) and a 64-bit roaring bitmap in its portable form: the number of 32-bit
bitmaps (8 bytes), and for each its high half (4 bytes, little-endian) and the bitmap ("Roaring Bitmap Format
Specification"). Our files have fewer than 2³² rows, so the high half is 0. A vector of a larger file is refused.
"""

from __future__ import annotations

import array
import base64
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from pyroaring import BitMap

from headgate.delta._files import files_of
from headgate.delta._statistics import with_loose_bounds
from headgate.errors import DecodeError

__all__ = [
    "Descriptor",
    "Positions",
    "VectorFile",
    "deleted_rows",
    "positions_of",
    "read_vector",
    "rows_of",
    "vector_below",
    "vector_file",
    "vectors_of",
]

Positions: TypeAlias = "BitMap"
Descriptor: TypeAlias = Mapping[str, Any]
"""A vector's descriptor, as in the log."""

_MAGIC: Final = 1681511377
_HEAD: Final = struct.Struct("<iQ")
_KEY: Final = struct.Struct("<I")
_FILE_VERSION: Final = b"\x01"
_UUID_DIGITS: Final = 20
_UUID_BYTES: Final = 16
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The digits of Z85 (ZeroMQ RFC 32) and of Python's ``base64.b85encode``: the same code with other letters."""
_TO_Z85, _FROM_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


def positions_of(rows: Any) -> Positions:
    """Return the set of positions in an array of integers from 0 to 2³²−1, in any order."""
    values = array.array("I")
    values.frombytes(np.ascontiguousarray(rows, np.uint32).tobytes())
    return BitMap(values)


def rows_of(positions: Positions) -> Any:
    """int64[n]: the positions, ascending."""
    return np.frombuffer(positions.to_array(), np.uint32).astype(np.int64)


def encode(positions: Positions) -> bytes:
    """Return the data of a vector."""
    if not positions:
        return _HEAD.pack(_MAGIC, 0)
    positions.run_optimize()
    return _HEAD.pack(_MAGIC, 1) + _KEY.pack(0) + bytes(positions.serialize())


def decode(data: bytes, where: str) -> Positions:
    """Return the positions in a vector's data.

    :param where: the table's path, for errors.
    :raises DecodeError: it is not a vector, or one of a file with 2³² rows or more.
    """
    if len(data) < _HEAD.size:
        raise DecodeError(f"{where}: a deletion vector has only {len(data)} bytes")
    magic, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise DecodeError(f"{where}: a deletion vector has another format (magic {magic})")
    if count == 0:
        return BitMap()
    start = _HEAD.size + _KEY.size
    if count > 1 or len(data) < start or _KEY.unpack_from(data, _HEAD.size)[0]:
        raise DecodeError(f"{where}: a deletion vector is for a file with more than 4,294,967,295 rows, or damaged")
    try:
        return BitMap.deserialize(data[start:])
    except (ValueError, IndexError):  # IndexError: there is no byte
        raise DecodeError(f"{where}: a deletion vector's bitmap is damaged") from None


def read_vector(folder: str, descriptor: Descriptor | None) -> Positions:
    """Read the vector of a descriptor in the log of the table in ``folder``; without a descriptor it is empty.

    :raises DecodeError: it is damaged, of another storage type than ``u`` and ``i``, or its size is not the log's.
    :raises FileNotFoundError: its file is missing.
    """
    if descriptor is None:
        return BitMap()
    positions = decode(_data(folder, descriptor), folder)
    if len(positions) != int(descriptor["cardinality"]):
        raise DecodeError(
            f"{folder}: a deletion vector has {len(positions)} positions, {descriptor['cardinality']} by the log"
        )
    return positions


def deleted_rows(folder: str, descriptor: Descriptor | None) -> Any:
    """int64[n]: the rows in a vector, ascending; see :func:`read_vector`."""
    return rows_of(read_vector(folder, descriptor))


def _data(folder: str, descriptor: Descriptor) -> bytes:
    kind, text, size = descriptor["storageType"], str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
    if kind == "i":
        return _unpack(text)[:size]
    if kind != "u":
        raise DecodeError(f"{folder}: a deletion vector has storage type {kind!r}, which is not supported")
    name = vector_file(descriptor)
    offset = int(descriptor.get("offset") or 0)
    data = files_of(folder).read(name, offset, size + 8)
    if len(data) != size + 8 or int.from_bytes(data[:4], "big") != size:
        raise DecodeError(f"{folder}/{name}: no deletion vector of {size} bytes at {offset}")
    if zlib.crc32(data[4:-4]) != int.from_bytes(data[-4:], "big"):
        raise DecodeError(f"{folder}/{name}: a deletion vector has a wrong checksum")
    return data[4:-4]


def vector_below(folder: str, descriptor: Descriptor) -> dict[str, Any]:
    """Return the descriptor of a vector as seen from a table above.

    :param folder: the path from that table's folder to that of the vector's table: no ``%``.
    """
    if descriptor["storageType"] != "u":
        return dict(descriptor)
    text = str(descriptor["pathOrInlineDv"])
    prefix, name = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    return {**descriptor, "pathOrInlineDv": f"{folder}/{prefix}{name}" if prefix else f"{folder}{name}"}


def vector_file(descriptor: Descriptor) -> str:
    """Return the file of a vector that is not in the log: its name in the table's folder, or its absolute path."""
    text = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] != "u":
        return text
    prefix, digits = text[:-_UUID_DIGITS], _unpack(text[-_UUID_DIGITS:])
    if len(digits) != _UUID_BYTES:
        raise DecodeError(f"a deletion vector's file has no UUID in its name: {text[:80]!r}")
    name = f"deletion_vector_{uuid.UUID(bytes=digits)}.bin"
    return f"{prefix}/{name}" if prefix else name


def vectors_of(actions: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the files of the vectors in actions that add files, by name in the table's folder."""
    vectors = [vector for action in actions if (vector := (action.get("add") or {}).get("deletionVector"))]
    return {vector_file(vector) for vector in vectors if vector["storageType"] == "u"}


class VectorFile:
    """Vectors of one commit, stored in one file.

    None is stored in the log, although a small file costs more: Delta's VACUUM ends with an error at one
    (``VacuumCommand.scala`` of 4.4, ``getDeletionVectorRelativePathAndSize``).
    """

    def __init__(self) -> None:
        self._uuid = uuid.uuid4()
        self._data = bytearray(_FILE_VERSION)

    def add(self, positions: Positions) -> dict[str, Any]:
        """Add a vector; return its descriptor."""
        data = encode(positions)
        descriptor: dict[str, Any] = {"sizeInBytes": len(data), "cardinality": len(positions)}
        offset = len(self._data)
        self._data += len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
        return {"storageType": "u", "pathOrInlineDv": _pack(self._uuid.bytes), "offset": offset, **descriptor}

    def mark(self, add: Mapping[str, Any], rows: int, deleted: Positions) -> dict[str, Any]:
        """Return the action that adds a file with these deleted rows.

        :param add: its ``add`` without them.
        :param rows: number of all its rows.
        """
        stats = with_loose_bounds(add.get("stats"), rows)
        return {"add": {**add, "deletionVector": self.add(deleted), "stats": stats}}

    def write(self, folder: str) -> None:
        """Write the file, if a vector needs it."""
        if len(self._data) > len(_FILE_VERSION):
            with files_of(folder).create(f"deletion_vector_{self._uuid}.bin") as out:
                out.write(self._data)


def _pack(data: bytes) -> str:
    """Encode as Z85, padded with zero bytes to a multiple of 4."""
    return base64.b85encode(data + bytes(-len(data) % 4)).translate(_TO_Z85).decode()


def _unpack(text: str) -> bytes:
    try:
        return base64.b85decode(text.encode().translate(_FROM_Z85))
    except ValueError:
        raise DecodeError(f"a deletion vector is not Z85: {text[:40]!r}") from None

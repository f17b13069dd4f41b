"""Divide a table's images by key, so that this process folds a batch of any size in pieces, one after the other.

A fold holds several copies of its images. Each piece has all images of its keys, so it is folded by itself. TRUNCATEs
(``t`` images) are in each piece.

**Moved keys.** A partial image takes values from the row at the key that its update changed. So all keys that were
changed, and what they were changed to, are in one piece.

**Memory.** Images in files are mapped (``carrier``): a pass reads the keys of all images and copies the images of one
piece, about ``PIECE_BYTES`` of them. Only the images of one key, and those of moved keys, make a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._images import align
from headgate.carrier import Part
from headgate.decide.actions import AppendVersions, UpsertPartial
from headgate.delta import keys_of

__all__ = ["all_images", "pieces"]

PIECE_BYTES: Final = 64 << 20
"""Bytes of images in a piece, about. A fold to versions takes ten times as much, one of partial images five times."""
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_HIGH: Final = np.uint64(32)


def all_images(parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """Yield the images of some parts."""
    return chain.from_iterable(part.record_batches() for part in parts)


def pieces(action: AppendVersions | UpsertPartial, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield an action's images, aligned to ``schema``, each with all images of its keys.

    :raises DecodeError: a key column holds NULL.
    :raises EngineError: the file of some images cannot be read.
    """
    count = -(-sum(part.size for part in action.parts) // PIECE_BYTES) or 1
    division = _Division(action, schema, count) if count > 1 else None
    for number in range(count):
        images = all_images(action.parts)
        chosen = images if division is None else (division.chosen(batch, number) for batch in images)
        aligned = (align(batch, schema, action.fills, action.names) for batch in chosen)
        yield pa.Table.from_batches(aligned, schema)


class _Division:
    """Division of images into pieces."""

    def __init__(self, action: AppendVersions | UpsertPartial, schema: pa.Schema, count: int) -> None:
        self._schema = pa.schema([schema.field(name) for name in action.definition.key])
        self._names, self._count = action.names, np.uint64(count)
        self._moved = np.empty(0, np.uint64)
        """Hashes of the keys that partial images link, sorted."""
        if isinstance(action, UpsertPartial):
            self._moved = np.unique(np.concatenate([self._moved, *map(self._moves, all_images(action.parts))]))

    def chosen(self, images: pa.RecordBatch, number: int) -> pa.RecordBatch:
        """Return the images of one piece."""
        is_truncate, hashes = self._hashes(images)
        at = (hashes * _MIXER >> _HIGH) % self._count
        at[np.isin(hashes, self._moved)] = 0
        return images.filter(pa.array((at == number) | is_truncate))

    def _moves(self, images: pa.RecordBatch) -> Any:
        """uint64[n]: the hashes of the keys that updates change, and of those that they become."""
        hashes = self._hashes(images)[1]
        first = np.flatnonzero(np.asarray(pc.equal(images["_op"], "b"))[:-1])
        moves = first[hashes[first] != hashes[first + 1]]
        return np.concatenate([hashes[moves], hashes[moves + 1]])

    def _hashes(self, images: pa.RecordBatch) -> tuple[Any, Any]:
        """Return which images are TRUNCATEs, bool[n], and uint64[n]: equal numbers for the others with equal keys."""
        is_truncate, hashes = np.asarray(pc.equal(images["_op"], "t")), np.zeros(images.num_rows, np.uint64)
        rows = align(images, self._schema, names=self._names).filter(pa.array(~is_truncate))
        keys = keys_of(rows.columns)
        hashes[~is_truncate] = (keys.exact if keys.is_exact else keys.hashes).view(np.uint64)
        return is_truncate, hashes

"""Divide a table's images by key, so that this process folds a batch of any size in pieces, one after the other.

A fold holds several copies of its images. Each piece has all images of its keys, so it is folded by itself. TRUNCATEs
(``t`` images) are in each piece.

**Moved keys.** A partial image takes values from the row at the key that its update changed. So all keys that were
changed, and what they were changed to, are in one piece.

**Cost.** The images are read once, and written to a file on this machine by pieces, so time grows as the batch does; a
pass over all images for each piece would make it grow as its square, and fetch images from an object store again and
again. The file has no name, so nothing is left of it, whatever ends the process.

**Memory.** Images in files are mapped (``carrier``), and some ``PIECE_BYTES`` of them are divided at a time. A piece
has about as many. Only the images of one key, and those of moved keys, make a larger one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._images import align
from headgate.carrier import Part
from headgate.decide.actions import AppendVersions, UpsertPartial
from headgate.delta import grouped, keys_of
from headgate.errors import EngineError

__all__ = ["all_images", "pieces"]

PIECE_BYTES: Final = 64 << 20
"""Bytes of images in a piece, about. A fold to versions takes ten times as much, one of partial images five times."""
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
_HIGH: Final = np.uint64(32)


def all_images(parts: Sequence[Part]) -> Iterator[pa.RecordBatch]:
    """Yield the images of some parts."""
    return chain.from_iterable(part.record_batches() for part in parts)


def pieces(action: AppendVersions | UpsertPartial, schema: pa.Schema, folder: Path | None = None) -> Iterator[pa.Table]:
    """Yield an action's images, aligned to ``schema``, each with all images of its keys.

    :param folder: on this machine, for a file while there are several pieces; None: the system's for such files.
    :raises DecodeError: a key column holds NULL.
    :raises EngineError: the file of some images cannot be read, or the file of the pieces not be written.
    """
    count = -(-sum(part.size for part in action.parts) // PIECE_BYTES) or 1
    aligned = (align(batch, schema, action.fills, action.names) for batch in all_images(action.parts))
    if count == 1:
        yield pa.Table.from_batches(aligned, schema)
        return
    division = _Division(action, schema, count)
    with _file_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
        records = _write(aligned, division, file)
        with pa.ipc.open_file(file) as reader:
            for numbers in records:
                yield pa.Table.from_batches(map(reader.get_batch, numbers), schema)


def _write(aligned: Iterable[pa.RecordBatch], division: _Division, file: Any) -> list[list[int]]:
    """Write images by pieces; return the numbers of each piece's record batches."""
    records: list[list[int]] = [[] for _ in range(division.count)]
    options = pa.ipc.IpcWriteOptions(compression="lz4")  # of rows that are much alike, such as their GTIDs
    with pa.ipc.new_file(file, division.schema, options=options) as writer:
        written = 0
        groups = (group.combine_chunks() for group in grouped(aligned, division.schema, PIECE_BYTES))
        for group in chain.from_iterable(group.to_batches() for group in groups):
            rows, ends = division.divide(group)
            begin = 0
            for number, end in enumerate(ends):
                if end > begin:
                    writer.write_batch(rows.slice(begin, end - begin))
                    records[number].append(written)
                    written += 1
                begin = end
    return records


@contextmanager
def _file_errors(folder: Path | None) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise EngineError(f"images cannot be divided by key: {folder or tempfile.gettempdir()}: {reason}") from None


class _Division:
    """Division of images into pieces."""

    def __init__(self, action: AppendVersions | UpsertPartial, schema: pa.Schema, count: int) -> None:
        self.schema, self.count = schema, count
        self._key = pa.schema([schema.field(name) for name in action.definition.key])
        self._names = action.names
        self._moved = np.empty(0, np.uint64)
        """Hashes of the keys that partial images link, sorted."""
        if isinstance(action, UpsertPartial):
            self._moved = np.unique(np.concatenate([self._moved, *map(self._moves, all_images(action.parts))]))

    def divide(self, aligned: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """Return the images in the order of their pieces, in each as they were, and int64[count]: where each piece
        ends.
        """
        is_truncate, hashes = self._hashes(aligned, {})
        at = (hashes * _MIXER >> _HIGH) % np.uint64(self.count)
        at[np.isin(hashes, self._moved)] = 0
        once, everywhere = np.flatnonzero(~is_truncate), np.flatnonzero(is_truncate)
        rows = np.concatenate([once, np.tile(everywhere, self.count)])
        numbers = np.concatenate([at[once].astype(np.int64), np.repeat(np.arange(self.count), len(everywhere))])
        order = np.lexsort((rows, numbers))
        ends = np.searchsorted(numbers[order], np.arange(self.count), "right")
        return aligned.take(pa.array(rows[order])), ends

    def _moves(self, images: pa.RecordBatch) -> Any:
        """uint64[n]: the hashes of the keys that updates change, and of those that they become."""
        hashes = self._hashes(images, self._names)[1]
        first = np.flatnonzero(np.asarray(pc.equal(images["_op"], "b"))[:-1])
        moves = first[hashes[first] != hashes[first + 1]]
        return np.concatenate([hashes[moves], hashes[moves + 1]])

    def _hashes(self, images: pa.RecordBatch, names: Mapping[str, str | None]) -> tuple[Any, Any]:
        """Return which images are TRUNCATEs, bool[n], and uint64[n]: equal numbers for the others with equal keys.

        :param names: of :func:`align`.
        """
        is_truncate, hashes = np.asarray(pc.equal(images["_op"], "t")), np.zeros(images.num_rows, np.uint64)
        rows = align(images, self._key, names=names).filter(pa.array(~is_truncate))
        keys = keys_of(rows.columns)
        hashes[~is_truncate] = (keys.exact if keys.is_exact else keys.hashes).view(np.uint64)
        return is_truncate, hashes

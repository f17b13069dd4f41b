"""Keyless tables in ``current``: equal rows are counted, so the target is the same multiset as the source.

An image of such a table gives a row's content, not which of several equal rows it means; the source cannot distinguish
these either. So content identifies a row: ``_row_hash``, a column of the current table, is a hash of all its columns
(module ``_row_hash``).

**A batch of changes.** ``c`` and ``u`` images add one row of their content, ``b`` and ``d`` images remove one (an
update always has its ``b`` here). Only the sum over the batch, ``net``, matters, in any order. If it is above zero, so
many of the images that set the content are appended: the last ones. If it is below, so many of the rows with this
content are deleted, whichever. A TRUNCATE deletes all rows in the same commit, and only the images after it count.

**Memory.** Two passes over the images' files: the first keeps 37 bytes of each image, the second writes the appended
ones as it reads them.

**Why a replay is safe.** The commit carries a marker with the batch's epoch, and is made once.

**A chunk** of such a table is the whole table as of the batch's end, so it includes all changes of its batch. The table
is overwritten with it.

**Too few rows to delete** means that the target had lost some. That is an error while the table counts as equal to the
source. During a re-read (rows may have changed unseen) all of them are deleted: the next chunk brings the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.apply._row_hash import HASH_BYTES, row_hashes
from headgate.delta import Keys, Sequences, keys_of
from headgate.errors import TargetError
from headgate.lake import ROW_HASH

__all__ = ["ROW_DDL", "Contents", "hashed", "with_hashes"]

ROW_DDL: Final = f"{ROW_HASH} binary"
_SETS: Final = pa.array(["c", "u", "r"])
_SHOWN: Final = 300
"""Most characters of a row in a message."""


@dataclass(frozen=True)
class Contents:
    """Effect of a batch's images on the number of copies of each content.

    :param images: returns the images, the same ones in the same order each time.
    :param hashes: uint8[images, 16]: the hash of each image's content.
    :param is_added: bool[images]: whether a row is added that has its values.
    :param removes: int64[n]: an image of each content that loses copies.
    :param removed: int64[n]: how many; 1 or more.
    """

    images: Callable[[], Iterable[pa.RecordBatch]]
    hashes: Any
    is_added: Any
    removes: Any
    removed: Any

    @classmethod
    def of(cls, images: Callable[[], Iterable[pa.RecordBatch]], columns: Sequence[str]) -> Contents:
        """Sum up the images of each content.

        :param images: as in the class, in canonical columns and in any order, all of one epoch.
        :param columns: the table's own columns.
        """
        parts = [_Part.of(batch, columns) for batch in images()]
        hashes = np.concatenate([np.empty((0, HASH_BYTES), np.uint8), *(part.hashes for part in parts)])
        sets = np.concatenate([np.empty(0, np.bool_), *(part.sets for part in parts)])
        words = np.ascontiguousarray(hashes).view(np.uint64)
        order = np.lexsort((words[:, 1], words[:, 0]))
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
        starts = np.flatnonzero(is_first)
        changes = np.where(sets[order], np.int64(1), np.int64(-1))
        net = np.add.reduceat(changes, starts) if len(starts) else changes
        contents = np.cumsum(is_first) - 1
        chosen = np.flatnonzero(sets[order] & (net[contents] > 0))
        added = _last(parts, order[chosen], contents[chosen], net)
        is_added = np.zeros(len(order), np.bool_)
        is_added[added] = True
        loses = np.flatnonzero(net < 0)
        return cls(images, hashes, is_added, order[starts[loses]], -net[loses])

    @property
    def removed_keys(self) -> Keys:
        """The contents that lose copies, as keys."""
        return keys_of([_binary(self.hashes[self.removes])])

    def added(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows to add, with ``_row_hash``."""
        first = 0
        for batch in self.images():
            end = first + batch.num_rows
            rows = np.flatnonzero(self.is_added[first:end])
            if len(rows):
                yield with_hashes(batch.take(pa.array(rows)), self.hashes[first:end][rows])
            first = end

    def check(self, missing: Any, columns: Sequence[str], table: str) -> None:
        """Raise ``TargetError`` if more copies of a content are removed than the table has.

        :param missing: int64[n]: how many more of each content that loses copies.
        """
        wrong = np.flatnonzero(missing)
        if not len(wrong):
            return
        content = int(wrong[0])
        values = self._image(int(self.removes[content])).select(list(columns)).to_pylist()[0]
        row = ", ".join(f"{name}={value!r}" for name, value in values.items())
        row = row if len(row) <= _SHOWN else f"{row[: _SHOWN - 3]}..."
        removed = int(self.removed[content])
        raise TargetError(
            f"the log deletes {removed} rows ({row}), but the target has {removed - int(missing[content])}, so it is "
            f"not exact; read the table again with: headgate run --resnapshot '{table}'",
            table=table,
        )

    def _image(self, number: int) -> pa.RecordBatch:
        """Return one image."""
        for batch in self.images():
            if number < batch.num_rows:
                return batch.slice(number, 1)
            number -= batch.num_rows
        raise IndexError(number)


@dataclass(frozen=True)
class _Part:
    """What is kept of some images.

    :param hashes: uint8[n, 16].
    :param sets: bool[n]: whether an image sets its content; else it removes it.
    :param file: int32[n]; with ``pos`` and ``ordinal`` the image's ``_seq`` in its epoch.
    :param pos: int64[n].
    :param ordinal: int64[n]; of chunks it exceeds 32 bits.
    """

    hashes: Any
    sets: Any
    file: Any
    pos: Any
    ordinal: Any

    @classmethod
    def of(cls, images: pa.RecordBatch, columns: Sequence[str]) -> _Part:
        seq = Sequences.of(images["_seq"])
        sets = np.asarray(pc.is_in(images["_op"], _SETS))
        return cls(row_hashes(images, columns), sets, seq.file.astype(np.int32), seq.pos, seq.ordinal)


def _last(parts: Sequence[_Part], images: Any, contents: Any, net: Any) -> Any:
    """int64[m]: of each content the last ``net`` of these images, in the order of ``_seq``.

    :param images: int64[k].
    :param contents: int64[k]: the number of each image's content, ascending.
    """
    if not len(images):
        return images
    file, pos, ordinal = (
        np.concatenate([getattr(part, name) for part in parts])[images] for name in ("file", "pos", "ordinal")
    )
    order = np.lexsort((ordinal, pos, file, contents))
    rest = np.searchsorted(contents, contents, "right") - np.arange(len(contents))  # ``order`` keeps ``contents``
    return images[order[rest <= net[contents]]]


def hashed(images: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return images with ``_row_hash``.

    :param columns: the table's own columns.
    """
    return with_hashes(images, row_hashes(images, columns))


def with_hashes(images: pa.RecordBatch, hashes: Any) -> pa.RecordBatch:
    """Return images with these values of ``_row_hash``.

    :param hashes: uint8[n, 16].
    """
    return images.append_column(ROW_HASH, _binary(hashes).cast(pa.binary()))


def _binary(hashes: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(hashes))]
    return pa.Array.from_buffers(pa.binary(HASH_BYTES), len(hashes), buffers).cast(pa.large_binary())

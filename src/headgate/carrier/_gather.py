"""Joins record batches until they are worth a row of the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.carrier._images import ABSENT, Images, ImagesKind
from headgate.carrier._messages import Definition

if TYPE_CHECKING:
    from headgate.replication import ImageBatch

__all__ = ["Gatherer"]

_ROWS = 1 << 17
_BYTES = 16 << 20
_ALL_BYTES = 128 << 20
"""Over all tables: bounds a task's memory."""


class Gatherer:
    """Gathers the images of each table definition, in their order; those with partial images apart.

    :param define: the definition of a record batch's table.
    """

    def __init__(self, kind: ImagesKind, define: Callable[[ImageBatch], Definition]) -> None:
        self._kind = kind
        self._define = define
        self._waiting: dict[tuple[str, str, bool], list[ImageBatch]] = {}
        self._sizes: dict[tuple[str, str, bool], tuple[int, int]] = {}  # rows and bytes

    def add(self, image: ImageBatch) -> Iterator[Images]:
        """Take images; give out what is enough for a row."""
        if not image.table.columns:
            return
        name = (image.table.full_name, image.table.fingerprint, ABSENT in image.batch.schema.names)
        self._waiting.setdefault(name, []).append(image)
        rows, size = self._sizes.get(name, (0, 0))
        self._sizes[name] = rows, size = rows + image.batch.num_rows, size + image.batch.nbytes
        if rows >= _ROWS or size >= _BYTES:
            yield self._take(name)
        elif sum(held for _, held in self._sizes.values()) >= _ALL_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Images]:
        """Give out what is left."""
        for name in list(self._waiting):
            yield self._take(name)

    def _take(self, name: tuple[str, str, bool]) -> Images:
        images = self._waiting.pop(name)
        del self._sizes[name]
        whole = pa.Table.from_batches([image.batch for image in images]).unify_dictionaries().combine_chunks()
        (batch,) = whole.to_batches() or [images[0].batch]
        return Images.of(self._kind, self._define(images[0]), batch)

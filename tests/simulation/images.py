"""Row images as Python values, in place of serialised record batches; as Arrow where headgate's code wants them so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from headgate.carrier import Images, Part, Seq, Summary
from headgate.replication import ABSENT_FIELD, META_FIELDS, ImageBatch
from tests.simulation.tables import SHAPES, Row, Shape

__all__ = ["RowImage", "RowImages", "images_message", "open_images", "rows_of"]

_US: Final = pa.timestamp("us", "UTC")
_SEQ: Final = list(META_FIELDS[1].type)


class RowImage(NamedTuple):
    """An image in a batch."""

    op: str
    seq: Seq
    gtid: str | None
    us: int
    row: Row
    absent: str | None = None


class RowImages:
    """Images of one table, in log order: what a message carries."""

    def __init__(self, shape: Shape, images: Sequence[RowImage]) -> None:
        self.shape, self.images = shape, images
        self._batch: pa.RecordBatch | None = None

    @property
    def is_partial(self) -> bool:
        return any(one.absent is not None for one in self.images)

    @property
    def batch(self) -> pa.RecordBatch:
        """The images, as headgate's decoder gives them."""
        if self._batch is None:
            self._batch = _batch(self.shape, self.images, partial=self.is_partial)
        return self._batch

    @property
    def image_batch(self) -> ImageBatch:
        return ImageBatch(self.shape.definition, self.batch)

    @classmethod
    def of(cls, images: ImageBatch) -> RowImages:
        """Convert what headgate's code returned."""
        batch, shape = images.batch, SHAPES[images.table.full_name]
        meta = [batch[name].to_pylist() for name in ("_op", "_gtid")]
        seqs = zip(*(part.to_pylist() for part in batch["_seq"].flatten()), strict=True)
        times = batch["_ts"].cast(pa.int64()).to_pylist()
        rows = zip(*(batch[name].to_pylist() for name in shape.columns), strict=True)
        name = ABSENT_FIELD.name
        absent = batch[name].to_pylist() if name in batch.schema.names else [None] * batch.num_rows
        made = [
            RowImage(op, seq, gtid, us, row, left_out)
            for op, gtid, seq, us, row, left_out in zip(*meta, seqs, times, rows, absent, strict=True)
        ]
        return cls(shape, made)


def _batch(shape: Shape, images: Sequence[RowImage], *, partial: bool) -> pa.RecordBatch:
    ops, seqs, gtids, times, rows, absent = zip(*images, strict=True) if images else ((),) * 6
    schema = shape.partial_schema if partial else shape.schema
    numbers = [*zip(*seqs, strict=True)] if seqs else [()] * len(_SEQ)
    arrays = [
        pa.array(ops, pa.string()),
        pa.StructArray.from_arrays(
            [pa.array(lane, field.type) for lane, field in zip(numbers, _SEQ, strict=True)], fields=_SEQ
        ),
        pa.array(gtids, pa.string()).dictionary_encode(),
        pa.array(times, _US),
    ]
    if partial:
        arrays.append(pa.array(absent, pa.string()).dictionary_encode())
    arrays += [pa.array([row[index] for row in rows], pa.int64()) for index in range(len(shape.columns))]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def images_message(kind: Literal["rows", "chunk"], images: RowImages) -> Images:
    """Stand for ``Images.of``: images with their summary."""
    shape, all_images = images.shape, images.images
    if not all_images:
        return Images(shape.table, kind, shape.carried_json, 0, Summary(), images)
    ops, times, seqs = [one.op for one in all_images], [one.us for one in all_images], [one.seq for one in all_images]
    summary = Summary(
        min(times),
        max(times),
        min(seqs),
        max(seqs),
        changes=len(ops) - ops.count("b"),
        growth=ops.count("c") - ops.count("d"),
        truncates=ops.count("t"),
        partial=images.is_partial,
        size=100 * len(ops),
    )
    return Images(shape.table, kind, shape.carried_json, len(ops), summary, images)


def open_images(stored: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Stand for ``headgate.carrier.open_images``."""
    for one in stored:
        yield one.batch


def rows_of(parts: Iterable[Part]) -> Iterator[RowImage]:
    """Yield the images of some parts."""
    for part in parts:
        for stored in part.stored:
            yield from stored.data.images

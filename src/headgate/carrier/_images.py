"""Record batches of row images, and a summary of each that is read without opening it.

A carrier row has images of one table definition, in log order, an update's ``b`` row directly before its ``u`` row.
Everything here works on whole columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier._image_files import ImageFolder, serialised
from headgate.carrier._messages import Definition, Seq
from headgate.errors import DecodeError

if TYPE_CHECKING:
    from headgate.replication import ImageBatch

__all__ = [
    "ABSENT",
    "META",
    "META_DDL",
    "SEQ_DDL",
    "TABLE_META_DDL",
    "Gatherer",
    "Images",
    "ImagesKind",
    "Summary",
    "op_letters",
]

META = ("_op", "_seq", "_gtid", "_ts")
"""Canonical columns before a table's own."""

SEQ_DDL = "struct<epoch:bigint,file:int,pos:bigint,ordinal:bigint>"
TABLE_META_DDL = f"_seq {SEQ_DDL}, _gtid string, _ts timestamp"
"""Canonical columns except ``_op``, as Spark DDL."""
META_DDL = f"_op string, {TABLE_META_DDL}"
"""All of ``META``, as Spark DDL."""

ABSENT = "_absent"
"""Canonical column that names the columns an image lacks."""

ImagesKind: TypeAlias = Literal["rows", "chunk"]
"""Images of the log, or a chunk's rows."""

_GATHER_ROWS = 1 << 17
_GATHER_BYTES = 16 << 20
"""Limits of a carrier row."""
_ALL_BYTES = 128 << 20
"""Limit over all tables: bounds a task's memory."""
_SUMMARY = b"headgate.summary"
"""Key in the Arrow schema's metadata. Other readers may ignore it."""


@dataclass(frozen=True)
class Summary:
    """Summary of a record batch of images."""

    oldest_us: int | None = None
    """Oldest commit time, µs since 1970 UTC; None: there are no images."""
    newest_us: int | None = None
    oldest_seq: Seq | None = None
    newest_seq: Seq | None = None
    changes: int = 0
    """An update with two images is one."""
    growth: int = 0
    """Rows that the changes add to the table, minus those that they remove."""
    truncates: int = 0
    """Number of ``t`` images."""
    partial: bool = False
    """Whether some image lacks columns."""
    size: int = 0
    """Bytes of the images in memory, about."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Summary:
        """Summarise images."""
        if not batch.num_rows:
            return cls()
        absent, ops = batch.schema.get_field_index(ABSENT), op_letters(batch)
        commits = pc.min_max(batch["_ts"].cast(pa.int64()))
        return cls(
            oldest_us=commits["min"].as_py(),
            newest_us=commits["max"].as_py(),
            oldest_seq=_extreme(batch["_seq"], np.min),
            newest_seq=_extreme(batch["_seq"], np.max),
            changes=batch.num_rows - ops.count(b"b"),
            growth=ops.count(b"c") - ops.count(b"d"),
            truncates=ops.count(b"t"),
            partial=absent >= 0 and batch.column(absent).null_count < batch.num_rows,
            size=batch.nbytes,
        )

    def to_json(self) -> str:
        """Return the summary as JSON."""
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Parse the JSON of :meth:`to_json`."""
        value = json.loads(text)
        for name in ("newest_seq", "oldest_seq"):
            if name in value:
                value[name] = tuple(value[name])
        return cls(**value)


@dataclass(frozen=True)
class Images:
    """A record batch of images of one table definition."""

    table: str
    """``db.table``"""
    kind: ImagesKind
    schema: str
    """The definition, as JSON."""
    count: int
    summary: Summary
    data: pa.Buffer
    """One record batch, serialised by ``_image_files``, perhaps into a file; its schema has the summary."""

    @property
    def definition(self) -> Definition:
        """Definition of all these images."""
        return Definition.from_json(self.schema)

    @classmethod
    def of(
        cls, kind: ImagesKind, definition: Definition, batch: pa.RecordBatch, folder: ImageFolder | None = None
    ) -> Images:
        """Serialise images of the log, or a chunk's rows.

        :param folder: gets those that are large, or beyond what may be in rows.
        """
        summary = Summary.of(batch)
        metadata = {**(batch.schema.metadata or {}), _SUMMARY: summary.to_json()}
        batch = batch.replace_schema_metadata(metadata)
        data = serialised(batch) if folder is None else folder.serialised(batch)
        return cls(definition.table, kind, definition.to_json(), batch.num_rows, summary, data)


def summary_json(data: pa.Buffer) -> str:
    """Return the summary of serialised images without reading these.

    :raises DecodeError: they have none.
    """
    metadata = pa.ipc.read_schema(data).metadata or {}
    if _SUMMARY not in metadata:
        raise DecodeError("images have no summary")
    text: bytes = metadata[_SUMMARY]
    return text.decode()


def op_letters(batch: pa.RecordBatch) -> bytes:
    """Return column ``_op`` (string, one ASCII letter each, no nulls)."""
    _, offsets, letters = batch["_op"].buffers()
    if not batch.num_rows:
        return b""
    first = int(np.frombuffer(offsets, np.int32)[batch["_op"].offset])
    return bytes(letters[first : first + batch.num_rows])


def _extreme(seqs: pa.StructArray, choose: Callable[[Any], Any]) -> Seq:
    """Return the greatest or the least position, by ``np.max`` or ``np.min``."""
    parts = [np.asarray(part) for part in seqs.flatten()]
    position: list[int] = []
    for number, part in enumerate(parts):
        one = choose(part)
        position.append(int(one))
        mask = part == one
        if not mask.all():
            parts[number + 1 :] = [later[mask] for later in parts[number + 1 :]]
    return position[0], position[1], position[2], position[3]


class _Shape(NamedTuple):
    """What the images of one carrier row have in common."""

    table: str
    fingerprint: str
    partial: bool


@dataclass
class _Gathered:
    """Images of one shape that wait for more."""

    definition: Definition
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0  # bytes

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes

    def joined(self) -> pa.RecordBatch:
        first = self.batches[0]
        if len(self.batches) == 1:
            return first
        whole = pa.Table.from_batches(self.batches).unify_dictionaries().combine_chunks()
        (batch,) = whole.to_batches() or [first]
        return batch


class Gatherer:
    """Buffer that joins the images of each table definition, in order; partial images separately.

    :param folder: gets record batches, as for :meth:`Images.of`; None: all are in rows.
    """

    def __init__(self, kind: ImagesKind, folder: ImageFolder | None = None) -> None:
        self._kind = kind
        self._folder = folder
        self._waiting: dict[_Shape, _Gathered] = {}
        self._size = 0  # bytes of all that wait

    def add(self, images: ImageBatch, definition: Definition) -> Iterator[Images]:
        """Add images of a table with this definition; yield those that suffice for a carrier row."""
        if not images.table.columns:
            return
        shape = _Shape(images.table.full_name, images.table.fingerprint, ABSENT in images.batch.schema.names)
        gathered = self._waiting.setdefault(shape, _Gathered(definition))
        gathered.add(images.batch)
        self._size += images.batch.nbytes
        if gathered.rows >= _GATHER_ROWS or gathered.size >= _GATHER_BYTES:
            yield self._take(shape)
        elif self._size >= _ALL_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[Images]:
        """Yield the remaining images."""
        for shape in list(self._waiting):
            yield self._take(shape)

    def _take(self, shape: _Shape) -> Images:
        gathered = self._waiting.pop(shape)
        self._size -= gathered.size
        return Images.of(self._kind, gathered.definition, gathered.joined(), self._folder)

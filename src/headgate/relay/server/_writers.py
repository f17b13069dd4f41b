"""Write rows of one table definition as Databus events: keys, sizes, bytes. Binlog changes and snapshots are written
alike, so that a consumer cannot tell where a row came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import TableDef
from headgate.relay.databus import PART_HEAD, Schema, event_sizes, put_events
from headgate.relay.server._sources import LogicalSource
from headgate.relay.server.events import EncodedRows, Registry, RowEncoder

__all__ = ["BeforeImages", "EncodedEvents", "RowWriter", "RowWriters", "SourceOf"]

Int64s = npt.NDArray[np.int64]

_MOST_USED: Final = 4096
"""Most definitions cached by object identity."""
_NO_NUMBERS: Final = np.zeros(0, np.int64)
_NO_OFFSETS: Final = np.zeros(1, np.int32)
_NO_BYTES: Final = np.zeros(0, np.uint8)


SourceOf: TypeAlias = Callable[[str, str], LogicalSource]
"""Returns the logical source of a followed table, given its database and name."""


class EventKeys(NamedTuple):
    """Keys of some rows: numbers, or byte strings."""

    numbers: Any
    """int64[n]; empty if the keys are bytes."""
    offsets: Any
    """int32[n + 1] into ``data``, if the keys are bytes."""
    data: Any


@dataclass(frozen=True)
class BeforeImages:
    """Before images of some of the events, in version 2."""

    rows: EncodedRows
    events: Int64s
    """Index of each one's event."""

    @property
    def sizes(self) -> Int64s:
        """Bytes that each adds to its event."""
        return self.rows.sizes + PART_HEAD


@dataclass(frozen=True)
class RowWriter:
    """Writer of events of one definition."""

    source: LogicalSource
    schema: Schema
    encoder: RowEncoder
    key: tuple[int, ...]
    metadata_version: int
    """Of the schema, if before images are written."""

    def _key_column(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the rows' keys: int64 of one integer, else bytes, of several columns joined by tabs."""
        parts = [self.encoder.key_part(index, columns[index]) for index in self.key]
        if len(parts) == 1 and pa.types.is_int64(parts[0].type):
            return parts[0]
        texts = [part.cast(pa.string()) if pa.types.is_integer(part.type) else part for part in parts]
        return pc.binary_join_element_wise(*(text.cast(pa.binary()) for text in texts), b"\t")

    def _keys(self, columns: Sequence[pa.Array]) -> EventKeys:
        if not self.key:  # each is empty
            return EventKeys(_NO_NUMBERS, np.zeros(len(columns[0]) + 1, np.int32), _NO_BYTES)
        keys = self._key_column(columns)
        if pa.types.is_int64(keys.type):
            return EventKeys(np.asarray(keys), _NO_OFFSETS, _NO_BYTES)
        _, offsets, data = keys.buffers()
        starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
        return EventKeys(_NO_NUMBERS, starts, _NO_BYTES if data is None else np.frombuffer(data, np.uint8))

    def repeats(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Return bool[n]: whether the next row has the same key; False for the last row, and if there is no key."""
        rows = len(columns[0])
        if not self.key or not rows:
            return np.zeros(rows, np.bool_)
        keys = self._key_column(columns)
        return np.append(np.asarray(pc.equal(keys[:-1], keys[1:])), False)

    def encode(
        self,
        columns: Sequence[pa.Array],
        version: int,
        *,
        deletes: npt.NDArray[np.bool_],
        stamps: Int64s,
        before_images: BeforeImages | None = None,
    ) -> EncodedEvents:
        """Return rows as events of a version, without SCNs.

        :param deletes: whether each is a DELETE.
        :param stamps: commit times, ns since 1970.
        :raises DecodeError: as :meth:`RowEncoder.encode`.
        """
        rows, keys = self.encoder.encode(columns), self._keys(columns)
        key_sizes = None if len(keys.numbers) else np.diff(keys.offsets).astype(np.int64)
        sizes: Int64s = event_sizes(version, rows.sizes, key_sizes)
        if before_images is not None:
            sizes[before_images.events] += before_images.sizes
        return EncodedEvents(self, version, keys, rows, sizes, deletes, stamps, before_images)


@dataclass(frozen=True)
class EncodedEvents:
    """Events of one definition with known sizes, to be written at the caller's offsets."""

    writer: RowWriter
    version: int
    keys: EventKeys
    rows: EncodedRows
    sizes: Int64s
    deletes: npt.NDArray[np.bool_]
    stamps: Int64s
    before_images: BeforeImages | None

    def put(self, out: Any, at: Int64s, scns: Int64s, partition: int) -> None:
        """Write the events except their CRCs.

        :param at: their offsets in ``out``.
        :param partition: the physical one.
        """
        writer, befores = self.writer, self.before_images
        values = np.empty(len(at), np.int64)
        before_at = _NO_NUMBERS
        if befores is not None:
            before_at = np.full(len(at), -1, np.int64)
            before_at[befores.events] = befores.rows.sizes
        put_events(
            out, at, self.sizes, self.version, self.deletes, self.stamps, scns, writer.source.id, partition,
            writer.source.partition, np.frombuffer(writer.schema.digest, np.uint8), writer.schema.version, *self.keys,
            values, before_at, writer.metadata_version,
        )  # fmt: skip
        self.rows.put(values, out)
        if befores is not None:
            befores.rows.put(before_at[befores.events], out)


class RowWriters:
    """Writers of one binlog's tables, each made once."""

    def __init__(self, source_of: SourceOf, registry: Registry) -> None:
        self._source_of, self._registry = source_of, registry
        self._writers: dict[tuple[str, str], RowWriter] = {}
        self._used: dict[int, tuple[TableDef, RowWriter]] = {}
        """By the definition's object identity: finding an equal one needs a fingerprint, which is slow."""

    def of(self, table: TableDef, schema: pa.Schema) -> RowWriter:
        """Return the writer of a definition.

        :param schema: Arrow's, which ends with the definition's columns.
        :raises UnsupportedError: a column that the schema's type cannot hold.
        """
        used = self._used.get(id(table))
        if used is not None and used[0] is table:
            return used[1]
        key = (table.full_name, table.fingerprint)
        writer = self._writers.get(key)
        if writer is None:
            source = self._source_of(table.db, table.name)
            avro, fields = self._registry.schema_of(source.name, table), list(schema)[-len(table.columns) :]
            encoder, metadata_version = RowEncoder(avro, table, fields), self._registry.metadata_version(avro)
            writer = self._writers[key] = RowWriter(source, avro, encoder, table.key, metadata_version)
        if len(self._used) >= _MOST_USED:
            self._used.clear()
        self._used[id(table)] = (table, writer)
        return writer

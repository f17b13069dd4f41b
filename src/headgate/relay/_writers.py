"""Rows of one table definition as Databus events: keys, sizes, bytes; for the log's changes and for snapshots alike, so
that a consumer cannot tell where a row came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from headgate.catalog import TableDef
from headgate.databus import PART_HEAD, Schema, event_sizes, put_events
from headgate.relay._events._avro import EncodedRows, RowEncoder
from headgate.relay._events._schemas import Registry
from headgate.relay._sources import LogicalSource

__all__ = ["Befores", "EventKeys", "RowWriter", "RowWriters", "SourceOf"]

Int64s = npt.NDArray[np.int64]

_MOST_USED: Final = 4096
"""Definitions that are known as objects, too."""
_NO_BEFORES: Final = np.zeros(0, np.int64)
_NO_KEYS: Final = np.zeros(0, np.int64)
_NO_OFFSETS: Final = np.zeros(1, np.int32)
_NO_BYTES: Final = np.zeros(0, np.uint8)


@njit(cache=True, nogil=True)
def _repeats(offsets: Any, data: Any, found: Any) -> None:
    for i in range(found.shape[0] - 1):
        first, second, size = offsets[i], offsets[i + 1], offsets[i + 1] - offsets[i]
        same = offsets[i + 2] - second == size
        k = 0
        while same and k < size:
            same = data[first + k] == data[second + k]
            k += 1
        found[i] = same


class SourceOf(Protocol):
    """Finds the logical source of a table."""

    def source_of(self, db: str, table: str) -> LogicalSource:
        """The source of a table that is followed."""


class EventKeys(NamedTuple):
    """The keys of some rows: numbers, or stretches of bytes."""

    numbers: Any
    """int64[n]; empty where the keys are bytes."""
    offsets: Any
    """int32[n + 1] into ``data``, where the keys are bytes."""
    data: Any


@dataclass(frozen=True)
class Befores:
    """Rows as they were before some of the events, in version 2."""

    rows: EncodedRows
    of: Int64s
    """The number of each one's event."""

    @property
    def sizes(self) -> Int64s:
        """Bytes that each adds to its event."""
        return self.rows.sizes + PART_HEAD


@dataclass(frozen=True)
class RowWriter:
    """What it takes to write events of one definition."""

    source: LogicalSource
    schema: Schema
    encoder: RowEncoder
    key: tuple[int, ...]
    metadata_version: int
    """Of the schema, where rows before updates are written."""

    def keys(self, columns: Sequence[pa.Array]) -> EventKeys:
        """One integer is a number; several columns are joined by tabs; without a key they are empty."""
        parts = [self.encoder.key_part(index, columns[index]) for index in self.key]
        if len(parts) == 1 and pa.types.is_int64(parts[0].type):
            return EventKeys(np.asarray(parts[0]), _NO_OFFSETS, _NO_BYTES)
        if not parts:
            return EventKeys(_NO_KEYS, np.zeros(len(columns[0]) + 1, np.int32), _NO_BYTES)
        texts = [part.cast(pa.string()) if pa.types.is_integer(part.type) else part for part in parts]
        joined = pc.binary_join_element_wise(*(text.cast(pa.binary()) for text in texts), b"\t")
        _, offsets, data = joined.buffers()
        starts = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
        return EventKeys(_NO_KEYS, starts, _NO_BYTES if data is None else np.frombuffer(data, np.uint8))

    @staticmethod
    def repeats(keys: EventKeys) -> npt.NDArray[np.bool_]:
        """bool[n]: whether the next row has the same key; False for the last one."""
        if len(keys.numbers):
            return np.append(keys.numbers[:-1] == keys.numbers[1:], False)
        found = np.zeros(len(keys.offsets) - 1, np.bool_)
        _repeats(keys.offsets, keys.data, found)
        return found

    @staticmethod
    def sizes(rows: EncodedRows, keys: EventKeys, version: int) -> Int64s:
        """Bytes of each row's event."""
        has_numbers = len(keys.numbers) > 0
        sizes: Int64s = event_sizes(
            version, rows.sizes, None if has_numbers else np.diff(keys.offsets).astype(np.int64)
        )
        return sizes

    def put(
        self, out: Any, at: Int64s, sizes: Int64s, keys: EventKeys, rows: EncodedRows, *,
        version: int, deletes: Any, stamps: Int64s, scns: Int64s, partition: int, befores: Befores | None = None,
    ) -> None:  # fmt: skip
        """Write the events, all but their CRCs.

        :param at: where in ``out`` they begin; the others as in :func:`headgate.databus._binary.put_events`.
        """
        values = np.empty(len(at), np.int64)
        places = _NO_BEFORES
        if befores is not None:
            places = np.full(len(at), -1, np.int64)
            places[befores.of] = befores.rows.sizes
        put_events(
            out, at, sizes, version, deletes, stamps, scns, self.source.id, partition, self.source.partition,
            np.frombuffer(self.schema.digest, np.uint8), self.schema.version, *keys, values, places,
            self.metadata_version,
        )  # fmt: skip
        rows.put(values, out)
        if befores is not None:
            befores.rows.put(places[befores.of], out)


class RowWriters:
    """The writers of one log's tables, each made once."""

    def __init__(self, sources: SourceOf, registry: Registry) -> None:
        self._sources, self._registry = sources, registry
        self._writers: dict[tuple[str, str], RowWriter] = {}
        self._used: dict[int, tuple[TableDef, RowWriter]] = {}
        """By the definition's identity as an object: to find an equal one takes a fingerprint, which takes long."""

    def of(self, table: TableDef, fields: Sequence[pa.Field]) -> RowWriter:
        """The writer of a definition.

        :param fields: of its columns in Arrow, in table order.
        :raises UnsupportedError: a column that the schema's type cannot hold.
        """
        used = self._used.get(id(table))
        if used is not None and used[0] is table:
            return used[1]
        place = (table.full_name, table.fingerprint)
        writer = self._writers.get(place)
        if writer is None:
            source = self._sources.source_of(table.db, table.name)
            schema = self._registry.schema_of(source.name, table)
            encoder, named = RowEncoder(schema, table, fields), self._registry.metadata_version(schema)
            writer = self._writers[place] = RowWriter(source, schema, encoder, table.key, named)
        if len(self._used) >= _MOST_USED:
            self._used.clear()
        self._used[id(table)] = (table, writer)
        return writer

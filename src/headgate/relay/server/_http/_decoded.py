"""Events with their rows decoded: as Arrow tables, or as JSON lines for people and browsers.

The events of one answer are parsed once, into arrays (``databus._fields``); the rows of each schema become columns
together (``events._decode``). JSON lines are also built column by column with Arrow, so an answer costs no Python
object per row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import DecodeError
from headgate.kernels import json_objects, json_string, json_values
from headgate.relay.databus import EOP_SOURCE, EventFields, Schema, StreamPosition, byte_ranges
from headgate.relay.server._names import SourceNames
from headgate.relay.server.events import Registry, RowDecoder

__all__ = ["DecodedRows", "Decoders", "arrow_streams", "decode_rows", "positions_after", "row_lines", "window_offsets"]

_DIGEST_BYTES: Final = 16
_DELETE: Final = 2


@dataclass(frozen=True)
class DecodedRows:
    """The rows of one schema among the events of an answer."""

    source: int
    schema: Schema
    events: npt.NDArray[np.int64]
    """Indexes of the events in the answer, from 0."""
    meta: Sequence[pa.Array]
    """The columns of :data:`META`, and the key."""
    fields: Sequence[pa.Field]
    columns: Sequence[pa.Array]
    before_images: pa.StructArray | None = None
    """The rows before updates; null for other events. None: not requested."""


META: Final = (
    pa.field("_scn", pa.int64(), nullable=False),
    pa.field("_event", pa.int64(), nullable=False),
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_ts", pa.timestamp("ns", tz="UTC"), nullable=False),
)
"""Columns before the key and the rows' columns: the transaction; the event's index in the answer, which is the order of
the log over all sources; ``UPSERT`` or ``DELETE``; the commit's time."""


class Decoders:
    """Row decoders by schema, each created once."""

    def __init__(self, names: SourceNames, registry: Registry) -> None:
        self._names, self._registry = names, registry
        self._known: dict[tuple[int, bytes], tuple[Schema, RowDecoder]] = {}

    def of(self, source: int, digest: bytes) -> tuple[Schema, RowDecoder]:
        """Return the decoder of a source's events with this schema id.

        :raises DecodeError: the registry has no such schema.
        :raises UnsupportedError: a type that has no column type.
        """
        entry = self._known.get((source, digest))
        if entry is None:
            named = self._names.by_id(source)
            versions = () if named is None else self._registry.versions(named.name)
            schema = next((one for one in versions if one.digest == digest), None)
            if schema is None:
                raise DecodeError(f"the registry has no schema {digest.hex()} of source {source}")
            entry = self._known[source, digest] = (schema, RowDecoder(schema.value))
        return entry


def decode_rows(
    data: Any, fields: EventFields, decoders: Decoders, *, with_before_images: bool = False
) -> list[DecodedRows]:
    """Decode the rows of whole events (uint8[]), by schema, each in the order of the events.

    :param with_before_images: also those before updates, which have the schema of the rows after them.
    :raises DecodeError: a row does not fit its schema, or the registry lacks the schema.
    :raises UnsupportedError: a type that has no column type.
    """
    events = np.flatnonzero((fields.source >= 0) & (fields.digest >= 0))
    if not len(events):
        return []
    decoded = []
    while len(events):
        first = int(events[0])
        source, digest = int(fields.source[first]), data[fields.digest[first] :][:_DIGEST_BYTES]
        ids = data[fields.digest[events, None] + np.arange(_DIGEST_BYTES)]
        same = (fields.source[events] == source) & (ids == digest).all(axis=1)
        chosen, events = events[same], events[~same]
        schema, decoder = decoders.of(source, digest.tobytes())
        columns = decoder.decode(data, fields.value[chosen], fields.value_size[chosen])
        before_images = _decode_before_images(data, fields, chosen, decoder) if with_before_images else None
        decoded.append(
            DecodedRows(source, schema, chosen, _meta(data, fields, chosen), decoder.fields, columns, before_images)
        )
    return decoded


def _decode_before_images(
    data: Any, fields: EventFields, events: npt.NDArray[np.int64], decoder: RowDecoder
) -> pa.StructArray:
    has_before = fields.before[events] >= 0
    updates = events[has_before]
    columns = decoder.decode(data, fields.before[updates], fields.before_size[updates])
    rows = pa.StructArray.from_arrays(columns, fields=list(decoder.fields))
    return rows.take(pa.array(np.cumsum(has_before) - 1, mask=~has_before))


def _meta(data: Any, fields: EventFields, events: npt.NDArray[np.int64]) -> list[pa.Array]:
    return [
        pa.array(fields.scn[events]),
        pa.array(events),
        pa.array(["UPSERT", "DELETE"]).take(pa.array((fields.attributes[events] & 3) // _DELETE)),
        pa.array(fields.stamp[events]).cast(pa.timestamp("ns", tz="UTC")),
        _keys(data, fields, events),
    ]


def _keys(data: Any, fields: EventFields, events: npt.NDArray[np.int64]) -> pa.Array:
    """Return keys as int64 or bytes; the events of one schema have keys of one kind."""
    if fields.key[events[0]] < 0:
        return pa.array(fields.long_key[events])
    return byte_ranges(data, fields.key[events], fields.key_size[events])


# --- Arrow ------------------------------------------------------------------------------------------------------------


def arrow_streams(decoded: Sequence[DecodedRows]) -> bytes:
    """Return concatenated Arrow IPC streams, one for each schema, each of one record batch."""
    out = pa.BufferOutputStream()
    for one in decoded:
        about = {"source": one.schema.source, "source_id": str(one.source), "version": str(one.schema.version)}
        key = pa.field("_key", one.meta[-1].type, nullable=False)
        schema, columns = pa.schema([*META, key, *one.fields], metadata=about), [*one.meta, *one.columns]
        if one.before_images is not None:
            schema, columns = schema.append(pa.field("_before", one.before_images.type)), [*columns, one.before_images]
        with pa.ipc.new_stream(out, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(out.getvalue())


# --- JSON -------------------------------------------------------------------------------------------------------------


def row_lines(decoded: Sequence[DecodedRows]) -> pa.Array:
    """Return JSON objects as ``headgate consume`` prints them, in the order of the events."""
    if not decoded:
        return pa.array([], pa.string())
    order = np.argsort(np.concatenate([one.events for one in decoded]))
    return pa.concat_arrays([_lines(one) for one in decoded]).take(pa.array(order))


def _lines(rows: DecodedRows) -> pa.Array:
    scn, events, op, stamp, key = rows.meta
    time = pc.replace_substring(stamp.cast(pa.timestamp("us"), safe=False).cast(pa.string()), " ", "T")
    names, texts = [field.name for field in rows.fields], [json_values(column) for column in rows.columns]
    before: list[Any] = [] if rows.before_images is None else [',"before":', json_values(rows.before_images)]
    parts: list[Any] = [
        f'{{"source":{json_string(rows.schema.source)},"scn":',
        scn.cast(pa.string()),
        ',"opcode":"',
        op,
        '","key":',
        json_values(key if pa.types.is_integer(key.type) else _text(key)),
        ',"ts":"',
        time,
        'Z","row":',
        json_objects(names, texts, len(events)),
        *before,
        "}",
    ]
    return pc.binary_join_element_wise(*parts, "")


def _text(key: pa.Array) -> pa.Array:
    """Decode bytes as text; if some are not UTF-8, value by value, with replacements."""
    try:
        return key.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", "replace") for one in key.to_pylist()], pa.string())


# --- positions --------------------------------------------------------------------------------------------------------


def window_offsets(fields: EventFields, position: StreamPosition) -> npt.NDArray[np.int64]:
    """Return how many events of its window a reader has after each event, counted as in a checkpoint. After a window's
    end it is −1. The events are of one physical source and begin at ``position``.
    """
    ends = fields.source == EOP_SOURCE
    numbers = np.arange(len(ends))
    begins = np.zeros(len(ends), np.int64)
    begins[1:] = np.where(ends[:-1], numbers[1:], 0)
    offsets = numbers - np.maximum.accumulate(begins) + 1
    if len(ends) and position.offset > 0 and position.scn == fields.scn[0]:
        first = int(np.argmax(ends)) + 1 if ends.any() else len(ends)
        offsets[:first] += position.offset
    offsets[ends] = -1
    return offsets


def positions_after(fields: EventFields, positions: Mapping[int, StreamPosition]) -> dict[int, StreamPosition]:
    """Return the position of each physical source's reader after these events, which began at ``positions``."""
    after = dict(positions)
    for number, position in positions.items():
        events = np.flatnonzero(fields.physical == number)
        if len(events):
            part = EventFields(*(column[events] for column in fields))
            after[number] = StreamPosition(int(part.scn[-1]), int(window_offsets(part, position)[-1]))
    return after

"""Keys and values in Avro, with their schemas in a registry: as Debezium with Confluent's ``AvroConverter``.

A table's schemas are registered when its first message with them is written, under the subjects ``<topic>-key`` and
``<topic>-value`` (Confluent's ``TopicNameStrategy``). A definition that changes gets schemas of its own; whether they
may follow the older ones is the registry's decision.

Columns that a partial row image leaves out are null: an Avro record has all its fields.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headgate.carrier import Definition
from headgate.kafka.debezium.connect_avro import VALUE_BRANCH, avro_schema, binary, value_branch, wire_head
from headgate.kafka.debezium.envelope import MessageNumbers, Messages, columns_present
from headgate.kafka.debezium.schema import SOURCE, envelope_schema, is_required, key_schema
from headgate.kafka.debezium.source import Source, events_of
from headgate.kafka.debezium.values import avro_lane
from headgate.kernels import Kind, Lane, Layout, int64_lane, text_lane
from headgate.names import split_table

__all__ = ["AvroForm", "SchemaStore"]

_IMAGE, _BEFORE, _AFTER, _OP = range(4)
"""Sources of rows, in the order of ``write``."""
_NULL: Final = b"\x00"
_LONG: Final = {"type": "int64", "optional": True}
_TEXT: Final = {"type": "string", "optional": False}


class SchemaStore(Protocol):
    """A store of schemas."""

    def schema_id(self, subject: str, schema: str) -> int:
        """Return the number of an Avro schema; register it if the subject does not have it."""


@dataclass(frozen=True)
class AvroForm:
    """Avro of a batch's messages: a :class:`~headgate.kafka.debezium.envelope.MessageForm`."""

    source: Source
    registry: SchemaStore
    topic: Callable[[str], str]  # of ``db.table``

    def check(self, definition: Definition) -> None:
        avro_schema(json.loads(envelope_schema(definition, self.source.server, avro=True)))

    def keys(self, definition: Definition, images: pa.RecordBatch) -> pa.Array:
        layout = Layout(images.num_rows, avro=True)
        layout.constant(self._head(definition, "key", key_schema(definition, self.source.server, avro=True)))
        for column in map(definition.column, definition.key):
            branch = b"" if is_required(definition, column) else VALUE_BRANCH
            layout.lane(avro_lane(column, images[column.name]), before=branch)
        return layout.write([np.arange(images.num_rows)])

    def values(self, definition: Definition, images: pa.RecordBatch, messages: Messages) -> pa.Array:
        layout = Layout(images.num_rows, avro=True)
        layout.constant(self._head(definition, "value", envelope_schema(definition, self.source.server, avro=True)))
        lanes = self._lanes(definition, images)
        for source in (_BEFORE, _AFTER):
            with layout.group(source, VALUE_BRANCH):
                for lane, branch in lanes:
                    layout.lane(lane, source, branch)
        self._add_source(layout, definition, images)
        layout.constant(_NULL + binary(_TEXT, "c")[:1])
        layout.row_byte(_OP)
        layout.constant(self._tail())
        return layout.write([messages.image, messages.before, messages.after, messages.op])

    def transactions(self, places: MessageNumbers) -> pa.Array:
        rows = np.arange(len(places.total))
        layout = Layout(len(rows), avro=True)
        layout.constant(VALUE_BRANCH)
        layout.lane(text_lane(Kind.BYTES, places.gtid))
        layout.lane(Lane(Kind.VARINT, places.total))
        layout.lane(Lane(Kind.VARINT, places.in_table))
        return layout.write([rows])

    @property
    def around_transaction(self) -> tuple[int, int]:
        after = len(binary(_TEXT, "c")) + len(self._tail())
        return after + len(_NULL), after

    def message(self, subject: str, schema: str, payload: Any) -> bytes:
        connect = json.loads(schema)
        return wire_head(self.registry.schema_id(subject, avro_schema(connect))) + binary(connect, payload)

    def _head(self, definition: Definition, part: str, schema: str) -> bytes:
        subject = f"{self.topic(definition.table)}-{part}"
        return wire_head(self.registry.schema_id(subject, avro_schema(json.loads(schema))))

    @staticmethod
    def _lanes(definition: Definition, images: pa.RecordBatch) -> list[tuple[Lane, bytes]]:
        """Return the columns' values, in the schema's order, and what precedes each that is not null."""
        held = {column.name: present for column, present in columns_present(definition, images)}
        lanes, rows = [], images.num_rows
        for column in definition.columns:
            if column.name in held:
                lane, present = avro_lane(column, images[column.name]), held[column.name]
            else:
                lane, present = Lane(Kind.VARINT, np.zeros(rows, np.int64)), np.zeros(rows, np.bool_)
            if present is not None:
                lane = replace(lane, valid=present if lane.valid is None else present & lane.valid)
            lanes.append((lane, b"" if is_required(definition, column) else VALUE_BRANCH))
        return lanes

    @staticmethod
    def _tail() -> bytes:
        """Return what follows the letter of the operation; its size is the same for centuries."""
        now = time.time_ns()
        return b"".join(binary(_LONG, now // divisor) for divisor in (1_000_000, 1000, 1))

    def _add_source(self, layout: Layout, definition: Definition, images: pa.RecordBatch) -> None:
        """Add the block ``source`` of each image."""
        fields = self.source.block(*split_table(definition.table), events_of(images, self.source.log_base))
        for schema in SOURCE["fields"]:
            value = fields[schema["field"]]
            if isinstance(value, pa.Array):
                is_text = pa.types.is_string(value.type)
                lane = text_lane(Kind.BYTES, value) if is_text else int64_lane(Kind.VARINT, value)
                layout.lane(lane, _IMAGE, value_branch(schema))
            else:
                layout.constant(binary(schema, value))

"""Keys and values in the JSON of Kafka Connect's ``JsonConverter``, with and without schemas (``schemas.enable``)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.carrier import Definition
from headgate.kafka.debezium.envelope import MessageNumbers, Messages, columns_present
from headgate.kafka.debezium.schema import envelope_schema, key_schema
from headgate.kafka.debezium.source import Source, events_of
from headgate.kafka.debezium.values import json_lane
from headgate.kernels import Kind, Lane, Layout, connect_json, connect_message, int64_lane, schema_opening, text_lane
from headgate.names import split_table

__all__ = ["JsonForm"]

_IMAGE, _BEFORE, _AFTER, _OP = range(4)
"""Sources of rows, in the order of ``_rows``."""
_NO_TRANSACTION = b"null"


@dataclass(frozen=True)
class JsonForm:
    """JSON of a batch's messages: a :class:`~headgate.kafka.debezium.envelope.MessageForm`."""

    source: Source
    schemas: bool = False  # put Connect's schema into each key and value

    def check(self, definition: Definition) -> None:
        envelope_schema(definition, self.source.server)

    def keys(self, definition: Definition, images: pa.RecordBatch) -> pa.Array:
        layout = Layout(images.num_rows)
        layout.constant(self._opening(key_schema(definition, self.source.server)) + b"{")
        for name in definition.key:
            layout.lane(json_lane(definition.column(name), images[name]), before=_name(name))
        layout.constant(b"}" + self._closing)
        return layout.write([np.arange(images.num_rows)])

    def values(self, definition: Definition, images: pa.RecordBatch, messages: Messages) -> pa.Array:
        layout = Layout(images.num_rows)
        columns = [
            (json_lane(column, images[column.name]), _name(column.name), present)
            for column, present in columns_present(definition, images)
        ]
        before = self._opening(envelope_schema(definition, self.source.server)) + b'{"before":'
        for source in (_BEFORE, _AFTER):
            layout.constant(before)
            with layout.group(source, b"{"):
                for lane, name, present in columns:
                    layout.lane(lane, source, name, present)
                layout.constant(b"}")
            before = b',"after":'
        layout.constant(b',"source":')
        self._add_source(layout, definition, images)
        layout.constant(b',"transaction":' + _NO_TRANSACTION + b',"op":"')
        layout.row_byte(_OP)
        layout.constant(self._tail())
        return layout.write([messages.image, messages.before, messages.after, messages.op])

    def transactions(self, places: MessageNumbers) -> pa.Array:
        rows = np.arange(len(places.total))
        layout = Layout(len(rows))
        layout.constant(b'{"id":')
        layout.lane(text_lane(Kind.STRING, places.gtid))
        layout.constant(b',"total_order":')
        layout.lane(Lane(Kind.DIGITS, places.total))
        layout.constant(b',"data_collection_order":')
        layout.lane(Lane(Kind.DIGITS, places.in_table))
        layout.constant(b"}")
        return layout.write([rows])

    @property
    def around_transaction(self) -> tuple[int, int]:
        after = len(b',"op":"c') + len(self._tail())
        return after + len(_NO_TRANSACTION), after

    def message(self, subject: str, schema: str, payload: Any) -> bytes:
        del subject
        return connect_message(schema, payload) if self.schemas else connect_json(payload)

    def _opening(self, schema: str) -> bytes:
        return schema_opening(schema) if self.schemas else b""

    @property
    def _closing(self) -> bytes:
        return b"}" * self.schemas

    def _tail(self) -> bytes:
        """Return what follows the letter of the operation; until the year 2286 it has always the same size."""
        now = time.time_ns()
        return f'","ts_ms":{now // 1_000_000},"ts_us":{now // 1000},"ts_ns":{now}}}'.encode() + self._closing

    def _add_source(self, layout: Layout, definition: Definition, images: pa.RecordBatch) -> None:
        """Add the block ``source`` of each image."""
        fields = self.source.block(*split_table(definition.table), events_of(images, self.source.log_base))
        separator = b"{"
        for name, value in fields.items():
            layout.constant(separator + connect_json(name) + b":")
            if isinstance(value, pa.Array):
                is_text = pa.types.is_string(value.type)
                layout.lane(text_lane(Kind.STRING, value) if is_text else int64_lane(Kind.DIGITS, value), _IMAGE)
            else:
                layout.constant(connect_json(value))
            separator = b","
        layout.constant(b"}")


def _name(column: str) -> bytes:
    return b"," + connect_json(column) + b":"

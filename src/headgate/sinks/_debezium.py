"""Changes as messages in Debezium's format: keys and envelopes as JSON, built with Arrow's string functions.

The format is that of Debezium's MySQL connector with Kafka Connect's ``JsonConverter`` (documentation of Debezium 3,
"MySQL connector", "Data change events" and "Data type mappings"), with ``decimal.handling.mode=string``,
``time.precision.mode=adaptive_time_microseconds``, ``binary.handling.mode=bytes`` (base64 in JSON). BIGINT UNSIGNED is
its number, also above 2⁶³. docs/kafka.md lists the differences.

A change gives one message or more, in this order:

=================  =================================================================================
insert, snapshot   ``c`` or ``r``
update             ``u``; if the key changed: ``d`` of the old row, a tombstone, ``c`` of the new row
delete             ``d``, and a tombstone
truncate           ``t`` without a key
=================  =================================================================================

Tables without a key have neither message keys nor tombstones. Columns that a partial row image leaves out are missing
in ``before`` and ``after``.

A message's value is split where its transaction's numbers go, because these are known only in the order of the log:
``head``, the transaction or ``null``, ``tail``. A tombstone has neither.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, Definition
from headgate.errors import DecodeError
from headgate.kernels import json_objects, json_string, quoted
from headgate.lake import split_table
from headgate.replication import SNAPSHOT_FILE
from headgate.sinks._debezium_schema import envelope_schema, key_schema, opening
from headgate.sinks._debezium_values import json_values

__all__ = ["ORDER", "RECORDS", "Envelope"]

RECORDS: Final = pa.schema(
    {
        "table": pa.string(),
        "file": pa.int32(),
        "pos": pa.int64(),
        "ordinal": pa.int64(),
        "part": pa.int8(),  # number of the message within its change
        "gtid": pa.string(),
        "ts_us": pa.int64(),  # commit time, µs since 1970 UTC
        "key": pa.string(),  # null: none
        "head": pa.string(),  # null: a tombstone
        "tail": pa.string(),
        "header": pa.string(),  # name of a header: of the messages of an update that changed the key
        "other_key": pa.string(),  # its value
    }
)
"""Messages."""

ORDER: Final = ("file", "pos", "ordinal", "part")
"""Columns that order the messages of a batch."""

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers of the ``d`` and the ``c`` of an update that changed the key; the value is the other key."""

_C, _U, _D, _B, _T = (ord(letter) for letter in "cudbt")


@dataclass(frozen=True)
class Envelope:
    """Converter of one batch's images. It is sent to Spark's tasks."""

    server: str  # the name of the source: the prefix of topics
    version: str  # headgate's
    log_base: str  # name of the log files before their number, with the dot
    tombstones: bool = True
    truncates: bool = False
    schemas: bool = False  # put Connect's schema into each key and value

    def records(self, definition: Definition, images: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of images in log order, in the columns of ``RECORDS``.

        :raises DecodeError: a before-image without its after-image.
        """
        ops = _letters(images["_op"])
        rows = _Rows.of(ops, images, definition, self)
        objects = _objects(definition, images)
        now = time.time_ns()
        tail = f',"ts_ms":{now // 1_000_000},"ts_us":{now // 1000},"ts_ns":{now}}}' + "}" * self.schemas
        head = _join(
            opening(envelope_schema(definition, self.server)) if self.schemas else "",
            '{"before":',
            _pick(objects, rows.before),
            ',"after":',
            _pick(objects, rows.after),
            ',"source":',
            self._source(definition, images).take(pa.array(rows.image)),
            ',"transaction":',
        )
        is_message = pa.array(rows.op != 0)
        letters = pa.array([chr(op) for op in range(128)]).take(pa.array(rows.op.astype(np.int32)))
        seq = images["_seq"]
        columns = {
            "table": pa.repeat(pa.scalar(definition.table), len(rows.op)),
            **{name: seq.field(name).take(pa.array(rows.image)) for name in ("file", "pos", "ordinal")},
            "part": pa.array(rows.part),
            "gtid": images["_gtid"].cast(pa.string()).take(pa.array(rows.image)),
            "ts_us": images["_ts"].cast(pa.int64()).take(pa.array(rows.image)),
            "key": rows.keys.take(pa.array(rows.key, mask=rows.key < 0)),
            "head": pc.if_else(is_message, head, None),
            "tail": pc.if_else(is_message, _join(',"op":"', letters, '"', tail), None),
            "header": pa.array([NEW_KEY, OLD_KEY]).take(pa.array(rows.header, mask=rows.header < 0)),
            "other_key": rows.keys.take(pa.array(rows.other, mask=rows.other < 0)),
        }
        return pa.RecordBatch.from_arrays([*columns.values()], schema=RECORDS)

    def _source(self, definition: Definition, images: pa.RecordBatch) -> pa.Array:
        """Return the block ``source`` of each image."""
        db, table = split_table(definition.table)
        seq, us = images["_seq"], images["_ts"].cast(pa.int64())
        is_read = pc.equal(seq.field("file"), SNAPSHOT_FILE)
        number = pc.utf8_lpad(seq.field("file").cast(pa.string()), 6, "0")
        text = us.cast(pa.string())
        gtid = pc.fill_null(quoted(images["_gtid"].cast(pa.string())), "null")
        return _join(
            f'{{"version":{json_string(self.version)},"connector":"mysql","name":{json_string(self.server)},"ts_ms":',
            pc.divide(us, 1000).cast(pa.string()),
            ',"snapshot":"',
            pc.if_else(is_read, "incremental", "false"),
            f'","db":{json_string(db)},"sequence":null,"ts_us":',
            text,
            ',"ts_ns":',
            text,
            f'000,"table":{json_string(table)},"server_id":0,"gtid":',
            gtid,
            ',"file":"',
            pc.if_else(is_read, "", _join(json_string(self.log_base)[1:-1], number)),
            '","pos":',
            pc.if_else(is_read, "0", seq.field("pos").cast(pa.string())),
            ',"row":',
            pc.if_else(is_read, "0", seq.field("ordinal").cast(pa.string())),
            ',"thread":null,"query":null}',
        )


@dataclass(frozen=True)
class _Rows:
    """Messages as indexes of images; -1: none."""

    op: Any  # 0: a tombstone
    image: Any  # the image of its position
    before: Any
    after: Any
    key: Any
    part: Any
    header: Any  # 0: the new key, 1: the old key
    other: Any
    keys: pa.Array  # of all images

    @classmethod
    def of(cls, ops: Any, images: pa.RecordBatch, definition: Definition, envelope: Envelope) -> _Rows:
        kept = np.flatnonzero((ops != _B) & (envelope.truncates | (ops != _T)))
        paired = (ops[kept] == _U) & (kept > 0) & (ops[np.maximum(kept - 1, 0)] == _B)
        if int(paired.sum()) != int((ops == _B).sum()):
            raise DecodeError("a before-image that no after-image follows", table=definition.table)
        keys = _key_texts(definition, images)
        moved = paired & _differ(keys, kept - 1, kept)
        if envelope.schemas and definition.key:
            keys = _join(opening(key_schema(definition, envelope.server)), keys, "}")
        op, stays = ops[kept], ~moved
        none = np.full(len(kept), -1)
        before = np.where(paired, kept - 1, np.where(op == _D, kept, none))
        after = np.where((op == _D) | (op == _T), none, kept)
        has_key = bool(definition.key)
        key = np.where(op == _T, none, kept) if has_key else none
        groups = [
            (op[stays], kept[stays], before[stays], after[stays], key[stays], 0, -1, none[stays]),
            (_letters_of(_D, moved), kept[moved], before[moved], none[moved], before[moved], 0, 0, kept[moved]),
            (_letters_of(_C, moved), kept[moved], none[moved], after[moved], kept[moved], 2, 1, before[moved]),
        ]
        if envelope.tombstones and has_key:
            gone = moved | (op == _D)
            old = before[gone]
            groups.append((_letters_of(0, gone), kept[gone], none[gone], none[gone], old, 1, -1, none[gone]))
        columns = zip(*groups, strict=True)
        sizes = [len(group[0]) for group in groups]
        whole = [
            np.concatenate(
                [
                    np.full(size, one, np.int64) if isinstance(one, int) else one
                    for one, size in zip(column, sizes, strict=True)
                ]
            )
            for column in columns
        ]
        op, image, before, after, key, part, header, other = whole
        return cls(op, image, before, after, key, part.astype(np.int8), header, other, keys)


def _letters_of(letter: int, mask: Any) -> Any:
    return np.full(int(mask.sum()), letter)


def _letters(op: pa.Array) -> Any:
    """Return column ``_op`` as ASCII codes: int64[rows]."""
    return np.asarray(pc.index_in(op, pa.array([chr(code) for code in range(128)]))).astype(np.int64)


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


def _pick(objects: pa.Array, rows: Any) -> pa.Array:
    return objects.take(pa.array(rows, mask=rows < 0)).fill_null("null")


def _differ(keys: pa.Array, one: Any, other: Any) -> Any:
    """Return whether the keys of two images differ; tables without a key have none."""
    equal = pc.equal(keys.take(pa.array(np.maximum(one, 0))), keys.take(pa.array(other)))
    return ~np.asarray(equal.fill_null(True)).astype(bool)


def _key_texts(definition: Definition, images: pa.RecordBatch) -> pa.Array:
    if not definition.key:
        return pa.nulls(images.num_rows, pa.string())
    texts = [
        json_values(definition.column(name), images[name]) for name in definition.key if name in images.schema.names
    ]
    if len(texts) < len(definition.key):  # truncates have no columns
        return pa.nulls(images.num_rows, pa.string())
    return json_objects(definition.key, texts, images.num_rows)


def _objects(definition: Definition, images: pa.RecordBatch) -> pa.Array:
    """Return each image's row as one JSON object."""
    columns = [column for column in definition.columns if column.name in images.schema.names]
    texts = [json_values(column, images[column.name]) for column in columns]
    absent = images[ABSENT] if ABSENT in images.schema.names else None
    return json_objects([column.name for column in columns], texts, images.num_rows, absent)

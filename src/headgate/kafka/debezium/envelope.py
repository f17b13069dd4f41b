"""Changes as messages in Debezium's format: which messages a change gives, and what they have in common.

The format is that of Debezium's MySQL connector (documentation of Debezium 3, "MySQL connector", "Data change events").
A :class:`MessageForm` writes keys and values: ``json`` as Kafka Connect's ``JsonConverter``. docs/reference/kafka.md
lists the differences.

A change gives one message or more, in this order:

=================  =================================================================================
insert, snapshot   ``c`` or ``r``
update             ``u``; if the key changed: ``d`` of the old row, a tombstone, ``c`` of the new row
delete             ``d``, and a tombstone
truncate           ``t`` without a key
=================  =================================================================================

Tables without a key have neither message keys nor tombstones. Columns that a partial row image leaves out are missing
in ``before`` and ``after``.

The number of a message in its transaction is known only in the order of the log. So a value is written without it, and
:meth:`Envelope.numbered` puts it in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, CarriedColumn, Definition, op_letters
from headgate.errors import DecodeError
from headgate.kafka.debezium.values import header_lane
from headgate.kernels import Layout, header_name

__all__ = ["ORDER", "RECORDS", "Envelope", "MessageForm", "MessageNumbers", "Messages", "columns_present"]

RECORDS: Final = pa.schema(
    {
        "table": pa.string(),
        "file": pa.int32(),
        "pos": pa.int64(),
        "ordinal": pa.int64(),
        "part": pa.int8(),  # number of the message within its change
        "gtid": pa.string(),
        "ts_us": pa.int64(),  # commit time, µs since 1970 UTC
        "key": pa.large_binary(),  # null: none
        "value": pa.large_binary(),  # without a transaction; null: a tombstone
        "header": pa.string(),  # name of a header: of the messages of an update that changed the key
        "other_key": pa.large_binary(),  # its value
    }
)
"""Messages."""

ORDER: Final = ("file", "pos", "ordinal", "part")
"""Columns that order the messages of a batch."""

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
"""Headers of an update that changed the key: its ``d`` and tombstone have the new key, its ``c`` the old one."""

_C, _U, _D, _B, _T = (ord(letter) for letter in "cudbt")


class MessageNumbers(NamedTuple):
    """Numbers of messages in their transactions, from 1."""

    gtid: pa.Array
    total: Any  # int64[messages]
    in_table: Any


class MessageForm(Protocol):
    """How keys and values are written."""

    def check(self, definition: Definition) -> None:
        """Check that a table's rows have a form.

        :raises TargetError: two columns would have one name.
        :raises UnsupportedError: a column has a type without a form.
        """

    def keys(self, definition: Definition, images: pa.RecordBatch) -> pa.Array:
        """Return the key of each image of a table that has one: large_binary."""

    def values(self, definition: Definition, images: pa.RecordBatch, messages: Messages) -> pa.Array:
        """Return the value of each message, with no transaction: large_binary."""

    def transactions(self, places: MessageNumbers) -> pa.Array:
        """Return the block ``transaction`` of messages: large_binary."""

    def message(self, subject: str, schema: str, payload: Any) -> bytes:
        """Return a key or value that is not a row's.

        :param subject: the name of its schema in a registry: the topic, and ``-key`` or ``-value``.
        :param schema: Connect's, as JSON.
        """

    @property
    def around_transaction(self) -> tuple[int, int]:
        """Bytes of a value from the block ``transaction`` to the end, if there is none, and those after the block."""


@dataclass(frozen=True)
class Envelope:
    """Converter of one batch's images."""

    form: MessageForm
    tombstones: bool = True
    truncates: bool = False

    def records(self, definition: Definition, images: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of images in log order, in the columns of ``RECORDS``.

        :raises DecodeError: a before-image without its after-image.
        """
        has_key = all(name in images.schema.names for name in definition.key)  # truncates have no columns
        keys = self.form.keys(definition, images) if definition.key and has_key else None
        rows = Messages.of(np.frombuffer(op_letters(images), np.uint8).astype(np.int64), keys, definition, self)
        if keys is None:
            keys = pa.nulls(images.num_rows, pa.large_binary())
        seq = images["_seq"]
        columns = {
            "table": pa.repeat(pa.scalar(definition.table), len(rows.op)),
            **{name: _taken(seq.field(name), rows.image) for name in ("file", "pos", "ordinal")},
            "part": pa.array(rows.part),
            "gtid": _taken(images["_gtid"].cast(pa.string()), rows.image),
            "ts_us": _taken(images["_ts"].cast(pa.int64()), rows.image),
            "key": _taken(keys, rows.key),
            "value": _masked(self.form.values(definition, images, rows), rows.op != 0),
            "header": _taken(pa.array([NEW_KEY, OLD_KEY]), rows.header),
            "other_key": _header_values(definition, images, rows.other),
        }
        return pa.RecordBatch.from_arrays([*columns.values()], schema=RECORDS)

    def numbered(self, values: pa.Array, places: MessageNumbers) -> pa.Array:
        """Return values with their transactions; tombstones stay null."""
        before, after = self.form.around_transaction
        parts = pc.binary_slice(values, 0, -before), self.form.transactions(places), pc.binary_slice(values, -after)
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _taken(column: pa.Array, rows: Any) -> pa.Array:
    """Return rows of a column; null for -1. A copy costs more than to see that none is needed."""
    is_none = rows < 0
    if is_none.all():
        return pa.nulls(len(rows), column.type)
    if len(rows) == len(column) and (rows == np.arange(len(rows))).all():
        return column
    return column.take(pa.array(rows, mask=is_none))


def _masked(values: pa.Array, valid: Any) -> pa.Array:
    """Return values with null where ``valid`` is false, without a copy."""
    if valid.all():
        return values
    _, offsets, data = values.buffers()
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(values.type, len(values), [bits, offsets, data])


@dataclass(frozen=True)
class Messages:
    """Messages as indexes of images; -1: none."""

    op: Any  # 0: a tombstone
    image: Any  # the image of its position
    before: Any
    after: Any
    key: Any
    part: Any
    header: Any  # 0: the new key, 1: the old key
    other: Any

    @classmethod
    def of(cls, ops: Any, keys: pa.Array | None, definition: Definition, envelope: Envelope) -> Messages:
        """Return the messages of images in log order.

        :param ops: the ASCII codes of ``_op``.
        :param keys: the key of each image; None: there are none.
        :raises DecodeError: a before-image without its after-image.
        """
        kept = np.flatnonzero((ops != _B) & (envelope.truncates | (ops != _T)))
        paired = (ops[kept] == _U) & (kept > 0) & (ops[np.maximum(kept - 1, 0)] == _B)
        if int(paired.sum()) != int((ops == _B).sum()):
            raise DecodeError("a before-image that no after-image follows", table=definition.table)
        moved = paired & _differ(keys, kept)
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
            new_key, header = np.where(moved, kept, none)[gone], np.where(moved, 0, -1)[gone]
            groups.append((_letters_of(0, gone), kept[gone], none[gone], none[gone], old, 1, header, new_key))
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
        return cls(op, image, before, after, key, part.astype(np.int8), header, other)


def _header_values(definition: Definition, images: pa.RecordBatch, rows: Any) -> pa.Array:
    """Return the keys of images as a worker's default ``header.converter`` writes them; null for -1: large_binary.

    They are JSON, without a schema and whatever the format of keys and values is (``SimpleHeaderConverter``).
    """
    used = np.flatnonzero(rows >= 0)
    if not len(used):
        return pa.nulls(len(rows), pa.large_binary())
    layout, images_of = Layout(len(used)), pa.array(rows[used])
    layout.constant(b"{")
    for column in map(definition.column, definition.key):
        layout.lane(header_lane(column, images[column.name].take(images_of)), before=header_name(column.name))
    layout.constant(b"}")
    positions = np.full(len(rows), -1)
    positions[used] = np.arange(len(used))
    return _taken(layout.write([np.arange(len(used))]), positions)


def columns_present(definition: Definition, images: pa.RecordBatch) -> Iterator[tuple[CarriedColumn, Any]]:
    """Yield a table's columns that the images have, each with bool[images]: which images hold it; None: all."""
    columns = [column for column in definition.columns if column.name in images.schema.names]
    if ABSENT not in images.schema.names:
        yield from ((column, None) for column in columns)
        return
    absent = images[ABSENT]
    code = np.asarray(absent.indices.fill_null(-1))
    left_out = [set(json.loads(names)) for names in absent.dictionary.to_pylist()]
    for column in columns:
        codes = [k for k, names in enumerate(left_out) if column.name in names]
        yield column, ~np.isin(code, codes) if codes else None


def _letters_of(letter: int, mask: Any) -> Any:
    return np.full(int(mask.sum()), letter)


def _differ(keys: pa.Array | None, kept: Any) -> Any:
    """Return whether the key of each of these images differs from that of the image before."""
    if keys is None or len(keys) < 2:
        return np.zeros(len(kept), np.bool_)
    differs = np.zeros(len(keys), np.bool_)
    differs[1:] = np.asarray(pc.not_equal(keys[1:], keys[:-1]))
    return differs[kept]

"""Align, fold and pair row images in Arrow. Spark's workers call this module; it does not use Spark.

Images come in log order, an update's ``b`` row directly before its ``u`` row. Everything here works on whole columns.

**Folding.** The state of a key after a batch is its last image (order ``_seq``, ``b`` before ``u``): ``c``, ``u``,
``r`` set it, ``b``, ``d`` clear it. "Last" is associative: folding each part and then the results equals folding all at
once. So parts may be folded where they are.

**Truncation.** A TRUNCATE clears every key at once. The caller knows it from the log's DDL and passes its ``_seq``;
images before it are ignored. (If deleted rows stay, these images bring their last values.) A ``t`` image without such
a ``_seq`` is an error, never a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, Seq
from headgate.delta import VARIANT, Sequences, as_column, keys_of, to_variant
from headgate.errors import DecodeError
from headgate.lake import DELETED, absent_columns, with_columns

__all__ = [
    "absent_lists",
    "align",
    "drop_before",
    "fold",
    "fold_marked",
    "image_order",
    "pair_updates",
    "without_truncates",
]

_R = TypeVar("_R", pa.Table, pa.RecordBatch)


def align(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    fills: Mapping[str, str] | None = None,
    names: Mapping[str, str | None] | None = None,
) -> pa.RecordBatch:
    """Return ``batch`` with exactly the columns and types of ``schema``, matched by name; missing columns are null.

    :param schema: for a VARIANT in it the batch has JSON text.
    :param fills: values of missing columns, as text.
    :param names: name in the batch → name in the schema, where they differ; None: the column is left out.
    """
    names = names or {}
    indexes = {names.get(name, name): index for index, name in enumerate(batch.schema.names)}
    arrays = []
    for field in schema:
        index = indexes.get(field.name)
        if index is None:
            text = fills.get(field.name) if fills else None
            if text is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                arrays.append(pa.repeat(pa.scalar(text).cast(field.type), batch.num_rows))
            continue
        column = batch.column(index)
        if names and field.name == ABSENT:
            column = absent_columns(column, names)
        if field.type.equals(VARIANT):
            column = to_variant(column, field.name)
        arrays.append(as_column(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def drop_before(table: _R, truncated: Seq | None) -> _R:
    """Return the images after ``truncated`` (the ``_seq`` of the batch's last TRUNCATE), without ``t`` images."""
    table = without_truncates(table, truncated)
    return table if truncated is None else table.filter(_after(table, truncated))


def without_truncates(table: _R, truncated: Seq | None) -> _R:
    """Return the images without ``t`` images, which must have their statement in the batch."""
    is_truncate = pc.equal(table["_op"], "t")
    if not pc.any(is_truncate).as_py():
        return table
    if truncated is None:
        raise DecodeError("a truncate image without its statement in the batch")
    return table.filter(pc.invert(is_truncate))


def fold_marked(table: pa.Table, key: Sequence[str], truncated: Seq | None = None) -> pa.Table:
    """Return the last image of each key as a row to set: ``_op`` is ``u`` instead of ``b`` and ``d``; ``_deleted`` is
    true for these, and for images up to ``truncated``.

    :param table: as for :func:`fold`, with a column ``_deleted`` of any values.
    """
    last = fold(without_truncates(table, truncated), key)
    deleted = pc.is_in(last["_op"], pa.array(["b", "d"]))
    op = pc.if_else(deleted, "u", last["_op"])
    if truncated is not None:
        deleted = pc.or_(deleted, pc.invert(_after(last, truncated)))
    return with_columns(last, {DELETED: deleted, "_op": op})


def fold(table: pa.Table, key: Sequence[str], truncated: Seq | None = None) -> pa.Table:
    """Return the last image of each key.

    :param table: images in canonical columns, in any order, all of one epoch.
    :param key: the key's columns.
    :param truncated: see :func:`drop_before`.
    """
    table = drop_before(table, truncated)
    if table.num_rows < 2:
        return table
    keys = keys_of([table[name] for name in key])
    if keys.are_distinct:
        return table
    order, ranks = image_order(table), np.empty(table.num_rows, np.int64)
    ranks[order] = np.arange(table.num_rows)
    last = np.zeros(int(keys.numbers.max()) + 1, np.int64)
    np.maximum.at(last, keys.numbers, ranks)
    is_last = np.zeros(table.num_rows, np.bool_)
    is_last[order[last]] = True
    return table.filter(pa.array(is_last))  # ``take`` joins chunks, which together may have 2 GiB of texts


def absent_lists(absent: pa.Array) -> pa.Array:
    """Return ``_absent`` as lists of names: list<string>, null for whole images."""
    encoded = absent if pa.types.is_dictionary(absent.type) else absent.dictionary_encode()
    lists = [None if text is None else json.loads(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(lists, pa.list_(pa.string())).take(encoded.indices)


def pair_updates(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Merge each ``b``/``u`` pair into one ``u`` row whose ``_before`` struct holds the before-image; keep other rows.

    :param batch: images in log order, aligned to ``schema`` without ``_before``; ``_absent`` is text.
    :param schema: the result's: the canonical columns, the table's, then ``_before`` and ``_absent`` (of the image that
        the row shows: an update's after-image). Fields of ``_before`` that ``batch`` lacks are null.
    """
    op = np.asarray(pc.index_in(batch["_op"], pa.array(["b", "u"])).fill_null(-1))
    if len(op) and op[-1] == 0:
        raise DecodeError("a before-image without its after-image at the end of a record batch")
    keep = np.nonzero(op != 0)[0]
    paired = (op[keep] == 1) & (keep > 0) & (op[np.maximum(keep - 1, 0)] == 0)
    if int(paired.sum()) != int((op == 0).sum()):
        raise DecodeError("a before-image that no after-image follows")
    rows = batch.take(pa.array(keep))
    before = pa.array(np.maximum(keep - 1, 0), mask=~paired)
    field = schema.field("_before")
    present = {*batch.schema.names}
    values = [
        batch[child.name].take(before) if child.name in present else pa.nulls(len(before), child.type)
        for child in field.type
    ]
    struct = pa.StructArray.from_arrays(values, fields=list(field.type), mask=pa.array(~paired))
    absent = absent_lists(rows.column(rows.num_columns - 1)).cast(schema.field(ABSENT).type)
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], struct, absent], schema=schema)


def _after(images: pa.Table | pa.RecordBatch, bound: Seq) -> pa.Array:
    """bool[rows]: whether the ``_seq`` of each image is above a bound."""
    epoch, file, pos, ordinal = bound
    return pa.array(~Sequences.of(images["_seq"]).below_bound((epoch, file, pos, ordinal + 1)))


def image_order(images: pa.Table) -> Any:
    """int64[rows]: the rows in the order of ``_seq``, ``b`` before the rest."""
    seq, is_second = Sequences.of(images["_seq"]), np.asarray(pc.not_equal(images["_op"], "b"))
    return np.lexsort((is_second, seq.ordinal, seq.pos, seq.file, seq.epoch))

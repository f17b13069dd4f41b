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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import ABSENT, Seq
from headgate.delta import VARIANT, keys_of
from headgate.errors import DecodeError
from headgate.lake import DELETED, absent_columns

__all__ = [
    "absent_lists",
    "align",
    "drop_before",
    "fold",
    "fold_marked",
    "pair_updates",
    "rank_images",
    "typed",
    "without_truncates",
]


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
            from headgate.delta import to_variant  # loads numba, only if needed

            column = to_variant(column, field.name)
        arrays.append(typed(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def typed(column: Any, kind: pa.DataType) -> Any:
    """Return a column with this type. A cast, even to the same type, refuses a VARIANT that is NULL."""
    return column if column.type.equals(kind) else column.cast(kind)


def drop_before(table: pa.Table, truncated: Seq | None) -> pa.Table:
    """Return the images after ``truncated`` (the ``_seq`` of the batch's last TRUNCATE), without ``t`` images."""
    table = without_truncates(table, truncated)
    return table if truncated is None else table.filter(_after(table["_seq"], truncated))


def without_truncates(table: pa.Table, truncated: Seq | None) -> pa.Table:
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
        deleted = pc.or_(deleted, pc.invert(_after(last["_seq"], truncated)))
    last = last.set_column(last.column_names.index(DELETED), DELETED, deleted)
    return last.set_column(last.column_names.index("_op"), "_op", op)


def fold(table: pa.Table, key: Sequence[str], truncated: Seq | None = None) -> pa.Table:
    """Return the last image of each key.

    :param table: images in canonical columns, in any order, all of one epoch.
    :param key: the key's columns.
    :param truncated: see :func:`drop_before`.
    """
    table = drop_before(table, truncated)
    if table.num_rows < 2 or keys_of([table[name] for name in key]).are_distinct:
        return table
    rank = rank_images(table)
    numbered = pa.table([table[name] for name in key], names=[f"k{i}" for i in range(len(key))]).append_column(
        "rank", rank
    )
    # Floats compare as MySQL's unique keys do: -0.0 and 0.0 are one key. Arrow keeps them apart; the MERGE joins them,
    # so they must be folded into one here.
    for i, column in enumerate(numbered.columns[:-1]):
        if pa.types.is_floating(column.type):
            numbered = numbered.set_column(i, f"k{i}", pc.add(column, pa.scalar(0.0, column.type)))
    last = numbered.group_by(numbered.column_names[:-1], use_threads=False).aggregate([("rank", "max")])["rank_max"]
    row_by_rank = np.empty(table.num_rows, np.int64)
    row_by_rank[rank.to_numpy()] = np.arange(table.num_rows)
    return table.take(pa.array(np.sort(row_by_rank[last.to_numpy()])))


def absent_lists(absent: pa.Array) -> pa.Array:
    """Return ``_absent`` as lists of names: list<string>, null for whole images."""
    encoded = absent if pa.types.is_dictionary(absent.type) else absent.dictionary_encode()
    lists = [None if text is None else json.loads(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(lists, pa.list_(pa.string())).take(encoded.indices)


def pair_updates(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Merge each ``b``/``u`` pair into one ``u`` row whose ``_before`` struct holds the before-image; keep other rows.

    :param batch: images in log order, aligned to ``schema`` without ``_before``; ``_absent`` is text.
    :param schema: the result's: the canonical columns, the table's, then ``_before`` and ``_absent`` (of the image that
        the row shows: an update's after-image).
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
    values = [batch.column(batch.schema.get_field_index(child.name)).take(before) for child in field.type]
    struct = pa.StructArray.from_arrays(values, fields=list(field.type), mask=pa.array(~paired))
    absent = absent_lists(rows.column(rows.num_columns - 1)).cast(schema.field(ABSENT).type)
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], struct, absent], schema=schema)


def _flat(seq: pa.ChunkedArray) -> list[np.ndarray[Any, Any]]:
    whole = seq.combine_chunks() if isinstance(seq, pa.ChunkedArray) else seq
    if isinstance(whole, pa.ChunkedArray):  # no rows
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], seq.type)
    return [np.asarray(part) for part in whole.flatten()]


def _after(seq: pa.ChunkedArray, bound: Seq) -> pa.Array:
    parts = _flat(seq)
    later = np.zeros(len(parts[0]), bool)
    equal = np.ones(len(parts[0]), bool)
    for part, limit in zip(parts, bound, strict=True):
        later |= equal & (part > limit)
        equal &= part == limit
    return pa.array(later)


def rank_images(table: pa.Table) -> pa.Array:
    """Return each row's rank in the order (``_seq``, ``b`` before the rest): int64[rows], a permutation."""
    epoch, file, pos, ordinal = _flat(table["_seq"])
    second = np.asarray(pc.not_equal(table["_op"], "b").combine_chunks()).astype(np.int8)
    order = np.lexsort((second, ordinal, pos, file, epoch))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return pa.array(rank)

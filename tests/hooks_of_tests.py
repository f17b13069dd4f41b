"""Hooks that the tests' pipelines use; Spark's workers import them from here."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["counted", "doubled", "nested", "refusing", "reserved", "tripled"]


def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Replace ``v`` by twice its value and by a text, and add the number of the row's columns."""
    return _multiplied(rows, 2)


def tripled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same columns with other values."""
    return _multiplied(rows, 3)


def counted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add the number of columns."""
    return rows.append_column("count", pa.repeat(pa.scalar(rows.num_columns, pa.int64()), rows.num_rows))


def nested(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Replace ``v`` by a list of what is between its 4s, and a structure with it, both null where it is null."""
    text = rows["v"].cast(pa.string())
    parts = pc.split_pattern(text, "4")
    pair = pc.make_struct(text, parts, pc.equal(rows["v"], 7), field_names=["text", "parts", "is_seven"])
    pair = pc.if_else(pc.is_valid(rows["v"]), pair, pa.scalar(None, pair.type))
    return rows.drop_columns(["v"]).append_column("parts", parts).append_column("a Pair", pair)


def refusing(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows, unless one has 13 in ``v``."""
    if pc.any(pc.equal(rows["v"], 13)).as_py():
        raise ValueError("13 in\nv")
    return rows


def reserved(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a column with a name that no table can have."""
    return rows.append_column("_seq", rows["v"])


def _multiplied(rows: pa.RecordBatch, factor: int) -> pa.RecordBatch:
    product = pc.multiply(rows["v"].cast(pa.int64()), pa.scalar(factor, pa.int64()))
    text = pc.binary_join_element_wise("v", rows["v"].cast(pa.string()), "=")
    count = pa.repeat(pa.scalar(rows.num_columns, pa.int32()), rows.num_rows)
    others = rows.drop_columns(["v"])
    return others.append_column("product", product).append_column("text", text).append_column("columns", count)

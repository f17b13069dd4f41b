"""Undoing changes of a table without a key, against a model that counts."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import SchemaChangedError, SnapshotRefusedError, UnsupportedError
from headgate.snapshot import undo

Row: TypeAlias = tuple[int | None, str | None]

SCHEMA = pa.schema([("n", pa.int32()), ("s", pa.string())])
rows = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["", "a", "A"]))
steps = st.lists(st.tuples(st.sampled_from(["c", "u", "d"]), rows), max_size=30)


def table(values: list[Row]) -> pa.Table:
    return pa.table([pa.array([row[i] for row in values], SCHEMA.types[i]) for i in range(2)], SCHEMA)


def batch(images: list[tuple[str, Row]]) -> pa.RecordBatch:
    content = table([row for _, row in images]).combine_chunks()
    ops = pa.array([op for op, _ in images], pa.string())
    columns = [column.combine_chunks() for column in content.columns]
    arrays = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return pa.RecordBatch.from_arrays([ops, *arrays], names=["_op", *SCHEMA.names])


def counted(content: pa.Table) -> Counter[Row]:
    return Counter(zip(content["n"].to_pylist(), content["s"].to_pylist(), strict=True))


@given(st.lists(rows, max_size=12), steps, st.integers(1, 9))
def test_the_rows_before_any_changes(start: list[Row], changes: list[tuple[str, Row]], size: int) -> None:
    before, state = Counter(start), Counter(start)
    images: list[tuple[str, Row]] = []
    for op, row in changes:
        if op != "c":
            if not state:
                continue
            old = min(state, key=repr)
            images.append(("b" if op == "u" else "d", old))
            state -= Counter([old])
        if op != "d":
            images.append((op, row))
            state[row] += 1
    parts = [batch(images[at : at + size]) for at in range(0, len(images), size)]
    assert counted(undo(table(list(state.elements())), parts, "d.t")) == before


def test_changes_that_do_not_lead_here_are_refused() -> None:
    with pytest.raises(SnapshotRefusedError, match=r"table=d\.t"):
        undo(table([(1, "a")]), [batch([("c", (1, "a")), ("c", (1, "a"))])], "d.t")


def test_partial_images_and_other_columns_are_refused() -> None:
    whole = batch([("c", (1, "a"))])
    partial = whole.append_column("_absent", pa.array(['["s"]']))
    with pytest.raises(UnsupportedError, match="binlog_row_image"):
        undo(table([(1, "a")]), [partial], "d.t")
    assert not undo(table([(1, "a")]), [whole.append_column("_absent", pa.array([None], pa.string()))], "d.t").num_rows
    with pytest.raises(SchemaChangedError):
        undo(table([(1, "a")]), [whole.drop_columns(["s"])], "d.t")
    with pytest.raises(SchemaChangedError):
        undo(table([(1, "a")]), [whole.set_column(1, "n", pa.array([1], pa.int64()))], "d.t")


def test_values_with_parts() -> None:
    """GEOMETRY and VECTOR: NULL and empty ones, and slices."""
    point = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])
    schema = pa.schema([("g", point), ("v", pa.list_(pa.float32()))])
    geometries = [None, {"srid": 0, "wkb": b"a"}, {"srid": 1, "wkb": b"a"}, {"srid": 0, "wkb": None}]
    vectors = [None, [], [1.0], [1.0, 2.0], [2.0]]
    values = [(geometry, vector) for geometry in geometries for vector in vectors]
    content = pa.table(
        [pa.array(column, kind) for column, kind in zip(zip(*values, strict=True), schema.types, strict=True)], schema
    )
    gone = content.slice(7, 3).combine_chunks().to_batches()[0]
    removed = pa.RecordBatch.from_arrays([pa.array(["d"] * 3), *gone.columns], names=["_op", *schema.names])
    kept = pa.concat_tables([content.slice(0, 7), content.slice(10)])
    before = undo(kept, [removed], "d.t")
    assert sorted(map(repr, before.to_pylist())) == sorted(map(repr, content.to_pylist()))
    created = removed.set_column(0, "_op", pa.array(["c"] * 3))
    with pytest.raises(SnapshotRefusedError):
        undo(kept, [created], "d.t")

"""The rewind against a brute-force model: any log, any E, any read view after it, any window behind that.

The model is a table whose key has two columns, the second compared without regard to case, so that two keys can be one
to the table and two to the log. It applies random transactions to a dict and keeps the state after each of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.errors import SchemaChangedError, SnapshotRefusedError, UnsupportedError
from headgate.replication import SEQ_TYPE
from headgate.snapshot import Window

Key = tuple[int, str]
Row = tuple[int, int, str]
Image = tuple[str, Row]
Order = tuple[int, str]

TABLE = TableDef(
    "d", "t", (Column("v", "int"), Column("n", "int"), Column("s", "varchar", length=40, charset="utf8mb4")), key=(1, 2)
)
SCHEMA = pa.schema([("v", pa.int32()), ("n", pa.int32()), ("s", pa.string())])


def order(key: Key) -> Order:
    return key[0], key[1].casefold()


@dataclass
class Model:
    """The table and its log."""

    rows: dict[Key, int] = field(default_factory=dict)
    states: list[dict[Key, int]] = field(default_factory=lambda: [{}])
    log: list[list[Image]] = field(default_factory=list)

    def transaction(self, steps: list[tuple[str, Key, Key, int]]) -> None:
        images: list[Image] = []
        for kind, key, other, value in steps:
            self._step(images, kind, key, other, value)
        self.log.append(images)
        self.states.append(dict(self.rows))

    def _step(self, images: list[Image], kind: str, key: Key, other: Key, value: int) -> None:
        taken = {order(k): k for k in self.rows}
        stored = taken.get(order(key))
        if kind == "insert" and stored is None:
            self._put(images, "c", key, value)
        elif kind == "delete" and stored is not None:
            self._take(images, "d", stored)
        elif kind == "replace":
            if stored is not None:
                self._take(images, "d", stored)
            self._put(images, "c", key, value)
        elif kind == "update" and stored is not None and taken.get(order(other), stored) == stored:
            self._take(images, "b", stored)
            self._put(images, "u", other, value)
        elif kind == "swap" and stored is not None and taken.get(order(other), stored) != stored:
            first, second, spare = stored, taken[order(other)], (-1, "spare")
            for old, new in ((first, spare), (second, first), (spare, second)):
                kept = self.rows[old]
                self._take(images, "b", old)
                self._put(images, "u", new, kept)

    def _put(self, images: list[Image], op: str, key: Key, value: int) -> None:
        self.rows[key] = value
        images.append((op, (value, *key)))

    def _take(self, images: list[Image], op: str, key: Key) -> None:
        images.append((op, (self.rows.pop(key), *key)))


keys = st.tuples(st.integers(0, 2), st.sampled_from(["a", "A", "b", "B", "ß", "ss"]))
steps = st.tuples(st.sampled_from(["insert", "delete", "replace", "update", "swap"]), keys, keys, st.integers(0, 99))
logs = st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=14)
bounds = st.none() | keys


def table(rows: list[Row]) -> pa.Table:
    columns = [[row[i] for row in rows] for i in range(3)]
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], SCHEMA)


def batches(images: list[Image], cuts: list[int]) -> list[pa.RecordBatch]:
    whole = table([row for _, row in images]).add_column(0, "_op", pa.array([op for op, _ in images], pa.string()))
    parts = []
    edges = sorted({0, len(images), *(cut % (len(images) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        parts.extend(whole.slice(start, end - start).combine_chunks().to_batches())
    return parts


def inside(key: Key, lo: Key | None, hi: Key | None) -> bool:
    return (lo is None or order(lo) < order(key)) and (hi is None or order(key) <= order(hi))


def chunk(state: dict[Key, int], lo: Key | None, hi: Key | None) -> list[Row]:
    return [(value, *key) for key, value in state.items() if inside(key, lo, hi)]


def rows_of(rows: pa.Table) -> list[Row]:
    return sorted(zip(*(rows.column(name).to_pylist() for name in SCHEMA.names), strict=True))


@settings(max_examples=300)
@given(logs, st.data())
def test_a_rewound_chunk_is_the_state_at_e(log: list[list[tuple[str, Key, Key, int]]], data: st.DataObject) -> None:
    model = Model()
    for transaction in log:
        model.transaction(transaction)
    position = st.integers(0, len(log))
    e = at = data.draw(position)
    window = Window(TABLE, SCHEMA)
    for _ in range(data.draw(st.integers(1, 3))):  # chunks of one task share the window, which only grows
        r = max(e, data.draw(position))
        end = max(at, r, data.draw(position))
        images = [image for transaction in model.log[at:end] for image in transaction]
        for batch in batches(images, data.draw(st.lists(st.integers(0, 50), max_size=3))):
            window.add(batch)
        at = end
        lo, hi = data.draw(bounds), data.draw(bounds)
        read = chunk(model.states[r], lo, hi)

        def in_range(keys: pa.Table, lo: Key | None = lo, hi: Key | None = hi, read: list[Row] = read) -> Any:
            pairs = list(zip(keys["n"].to_pylist(), keys["s"].to_pylist(), strict=True))
            assert not {(n, s) for _, n, s in read}.intersection(pairs)
            return np.array([inside(key, lo, hi) for key in pairs], np.bool_)

        assert rows_of(window.rewind(table(read), in_range)) == sorted(chunk(model.states[e], lo, hi))


@given(logs, st.data())
def test_what_a_window_drops_comes_with_the_log(
    log: list[list[tuple[str, Key, Key, int]]], data: st.DataObject
) -> None:
    """DBLog's rule: what is left was so at E, and the changes up to the window's end make the range whole."""
    model = Model()
    for transaction in log:
        model.transaction(transaction)
    position = st.integers(0, len(log))
    e, r, end = sorted(data.draw(st.tuples(position, position, position)))
    lo, hi = data.draw(bounds), data.draw(bounds)
    images = [image for transaction in model.log[e:end] for image in transaction]
    window = Window(TABLE, SCHEMA)
    for batch in batches(images, data.draw(st.lists(st.integers(0, 50), max_size=3))):
        window.add(batch)
    left = {(n, s): v for v, n, s in rows_of(window.drop(table(chunk(model.states[r], lo, hi))))}
    assert left.items() <= model.states[e].items()
    assert not left.keys() & {(row[1], row[2]) for _, row in images}
    for op, (v, n, s) in images:
        left.pop((n, s), None)
        if op in ("c", "u"):
            left[n, s] = v
    assert {key: v for key, v in left.items() if inside(key, lo, hi)} == {
        key: v for key, v in model.states[end].items() if inside(key, lo, hi)
    }


def everywhere(keys: pa.Table) -> Any:
    return np.ones(keys.num_rows, np.bool_)


def rewound(read: list[Row], images: list[Image]) -> list[Row]:
    window = Window(TABLE, SCHEMA)
    for batch in batches(images, []):
        window.add(batch)
    return rows_of(window.rewind(table(read), everywhere))


@pytest.mark.parametrize(
    ("images", "read", "expected"),
    [
        ([], [(1, 1, "a")], [(1, 1, "a")]),
        ([("c", (1, 1, "a"))], [(1, 1, "a")], []),
        ([("c", (1, 1, "a"))], [], []),
        ([("d", (1, 1, "a"))], [], [(1, 1, "a")]),
        ([("d", (1, 1, "a"))], [(1, 1, "a")], [(1, 1, "a")]),
        ([("b", (1, 1, "a")), ("u", (2, 1, "a"))], [(2, 1, "a")], [(1, 1, "a")]),
        ([("b", (1, 1, "a")), ("u", (1, 2, "a"))], [(1, 2, "a")], [(1, 1, "a")]),
        ([("b", (1, 1, "a")), ("u", (1, 1, "A"))], [(1, 1, "A")], [(1, 1, "a")]),
        ([("d", (1, 1, "a")), ("c", (2, 1, "a"))], [(2, 1, "a")], [(1, 1, "a")]),
        ([("c", (1, 1, "a")), ("d", (1, 1, "a")), ("c", (3, 1, "a"))], [(3, 1, "a")], []),
    ],
)
def test_first_touch_decides(images: list[Image], read: list[Row], expected: list[Row]) -> None:
    assert rewound(read, images) == expected


def test_only_the_first_image_of_a_key_is_kept() -> None:
    window = Window(TABLE, SCHEMA)
    for number in range(40):
        images: list[Image] = [("b", (number, key, "k")) for key in range(5000)]
        for batch in batches(images, []):
            window.add(batch)
    assert rows_of(window.rewind(table([]), everywhere)) == [(0, key, "k") for key in range(5000)]
    assert len(window._first) == 5000


@pytest.mark.parametrize("op", ["b", "d"])
def test_a_partial_first_image_cannot_be_turned_back(op: str) -> None:
    window = Window(TABLE, SCHEMA)
    images: list[Image] = [("c", (0, 1, "a")), (op, (0, 2, "a")), (op, (0, 1, "a"))]
    window.add(with_absent(images, [None, '["v"]', '["v"]']))
    with pytest.raises(UnsupportedError, match=r'binlog_row_image = .*window = "keep"') as caught:
        window.rewind(table([(5, 1, "a"), (5, 2, "a")]), everywhere)
    assert (caught.value.table, caught.value.file, caught.value.pos) == ("d.t", 7, 101)
    outside = window.rewind(table([(5, 1, "a")]), lambda keys: np.zeros(keys.num_rows, np.bool_))
    assert rows_of(outside) == []


def with_absent(images: list[Image], absent: list[str | None]) -> pa.RecordBatch:
    (batch,) = batches(images, [])
    seq = pa.array([{"epoch": 0, "file": 7, "pos": 100 + i, "ordinal": 0} for i in range(len(images))], SEQ_TYPE)
    partial = pa.array(absent, pa.string()).dictionary_encode()
    return batch.add_column(1, "_seq", seq).add_column(2, "_absent", partial)


@pytest.mark.parametrize(
    ("images", "absent", "refused"),
    [
        ([("b", (0, 1, "a")), ("u", (1, 1, "a"))], ['["v"]', None], False),
        ([("b", (0, 1, "a")), ("u", (1, 1, "a"))], [None, '["v"]'], True),
        ([("b", (0, 2, "a")), ("u", (1, 1, "a"))], ['["v"]', '["v"]'], True),
        ([("d", (0, 1, "a")), ("c", (1, 1, "a"))], ['["v"]', None], False),
    ],
)
def test_a_row_is_dropped_only_for_changes_that_bring_it(
    images: list[Image], absent: list[str | None], refused: bool
) -> None:
    window = Window(TABLE, SCHEMA)
    window.add(with_absent(images, absent))
    assert rows_of(window.drop(table([(5, 3, "a")]))) == [(5, 3, "a")]
    if not refused:
        assert rows_of(window.drop(table([(5, 1, "a"), (5, 3, "a")]))) == [(5, 3, "a")]
        return
    with pytest.raises(UnsupportedError, match=r"do not hold the whole row.*binlog_row_image = ") as caught:
        window.drop(table([(5, 1, "a")]))
    assert (caught.value.table, caught.value.file) == ("d.t", 7)


def test_what_nobody_knows_of_a_row_is_told() -> None:
    """The row is there, with what its image holds; rows that no image touched first are whole."""
    window = Window(TABLE, SCHEMA)
    (batch,) = batches([("c", (0, 1, "a")), ("d", (0, 2, "a")), ("b", (7, 3, "a")), ("u", (8, 3, "b"))], [])
    absent = pa.array([None, '["v"]', None, '["s"]'], pa.string()).dictionary_encode()
    window.add(batch.add_column(1, "_absent", absent))
    result = window.rewind(table([(5, 1, "a"), (8, 3, "b"), (9, 4, "a")]), everywhere, report_absent=True)
    rows = {(row["n"], row["s"]): (row["v"], row["_absent"]) for row in result.to_pylist()}
    assert rows == {(2, "a"): (0, '["v"]'), (3, "a"): (7, None), (4, "a"): (9, None)}
    assert window.rewind(table([]), lambda keys: np.zeros(keys.num_rows, np.bool_), report_absent=True).num_rows == 0


def test_columns_with_the_names_of_notes() -> None:
    named = TableDef("d", "t", (Column("id", "int"), Column("_file", "int"), Column("_pos", "int")), key=(0,))
    window = Window(named, pa.schema([(column.name, pa.int32()) for column in named.columns]))
    window.add(pa.record_batch({"_op": ["d"], **{name: pa.array([1], pa.int32()) for name in ("id", "_file", "_pos")}}))
    nothing = pa.schema([("id", pa.int32()), ("_file", pa.int32()), ("_pos", pa.int32())]).empty_table()
    assert window.rewind(nothing, everywhere).to_pylist() == [{"id": 1, "_file": 1, "_pos": 1}]


def test_other_columns_are_refused() -> None:
    window = Window(TABLE, SCHEMA)
    batch = batches([("c", (1, 1, "a"))], [])[0]
    with pytest.raises(SchemaChangedError):
        window.add(batch.drop_columns(["v"]))
    with pytest.raises(SchemaChangedError):
        window.add(batch.set_column(1, "v", pa.array([1], pa.int64())))
    window.add(batch.append_column("_extra", pa.array([1])))


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(SnapshotRefusedError):
        Window(TableDef("d", "t", TABLE.columns), SCHEMA)
    nothing = pa.table([pa.array([1], pa.int32()), pa.array([None], pa.int32()), pa.array(["a"])], SCHEMA)
    with pytest.raises(SnapshotRefusedError, match="column=n"):
        Window(TABLE, SCHEMA).rewind(nothing, everywhere)

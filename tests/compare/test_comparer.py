"""Comparison of a table with its source, against a model that looks at every row: random sources and copies."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType, VariantType
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.compare import Comparer, Difference, TableResult, verify_table
from headgate.delta import to_variant
from headgate.errors import ChunkRetryError, ConnectionLostError, HeadgateError, TargetError, UnsupportedError
from headgate.lake import IgnoredChanges, Lake, LedgerRow, StoppedError, TableState, Workers
from tests.lake.tables import make_table

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string()), ("x", pa.float64())])
ADDED_COLUMNS = pa.schema([("_ts", pa.timestamp("us", "UTC"))])
ROW = LedgerRow(0, 1, "u:1-5", datetime.now(UTC), {"s.t": TableState("s.t", "live", 0)})
Row = tuple[Any, ...]


@dataclass
class Source:
    """The source's rows in parts."""

    rows: list[list[Row]]
    schema: pa.Schema = SCHEMA
    absent: dict[Any, list[str]] = field(default_factory=dict)
    """By the first column's value."""
    fails: list[HeadgateError] = field(default_factory=list)
    """Errors of the next readings, in turn."""
    reads: int = 0

    def parts(self, table: str, gtid: str) -> tuple[pa.Schema, list[Callable[[], Iterator[pa.RecordBatch]]]]:
        assert (table, gtid) == ("s.t", ROW.gtid)
        return self._table([]).schema, [lambda rows=rows: self._read(rows) for rows in self.rows]  # type: ignore[misc]

    def _read(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        yield from self._table(rows[:2]).to_batches()
        if self.fails:
            raise self.fails.pop(0)
        yield from self._table(rows[2:]).to_batches()

    def _table(self, rows: list[Row]) -> pa.Table:
        columns = [pa.array([row[i] for row in rows], one.type) for i, one in enumerate(self.schema)]
        absent = [json.dumps(self.absent[row[0]]) if row[0] in self.absent else None for row in rows]
        names = [*self.schema.names, "_absent"]
        return pa.table([*columns, pa.array(absent, pa.string())], names=names)

    def keys(self, table: str, keys: pa.Table) -> list[tuple[Any, ...]]:
        return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))

    def key_table(self, *_: Any) -> Any:
        raise AssertionError("later")

    rows_of = moves = key_table


def compared(source: Any, lake: Lake, samples: int = 1000, row: LedgerRow = ROW, **more: Any) -> TableResult:
    with Workers(2) as workers:
        return verify_table(Comparer(lake, source, workers, samples=samples, **more), row, "s.t")


def copy(
    place: Path | Lake, files: list[list[Row]], key: list[str], schema: pa.Schema = SCHEMA, **protocol: Any
) -> Lake:
    """A lake with the copy; each file has the columns that its rows are long."""
    lake = place if isinstance(place, Lake) else Lake.at(place)
    tables = []
    for rows in files:
        fields = list(schema)[: len(rows[0])] if rows else list(schema)
        columns = [pa.array([row[i] for row in rows], one.type) for i, one in enumerate(fields)]
        stamp = pa.nulls(len(rows), ADDED_COLUMNS.field(0).type)
        tables.append(pa.table([*columns, stamp], schema=pa.schema([*fields, *ADDED_COLUMNS])))
    make_table(
        lake.current("s.t"), tables, pa.schema([*schema, *ADDED_COLUMNS]), {"headgate.key": json.dumps(key)}, **protocol
    )
    return lake


values = st.tuples(st.integers(0, 25), st.sampled_from([None, "", "a", "b"]), st.sampled_from([None, 0.0, -0.0, 1.5]))
sides = st.lists(st.lists(values, max_size=12), max_size=3)


def model(source: list[Row], target: list[Row], absent: dict[Any, list[str]]) -> Counter[str]:
    """How many rows are what, with a key that the source has once."""
    left: dict[Any, list[Row]] = {}
    for row in target:
        left.setdefault(row[0], []).append(row)
    totals: Counter[str] = Counter()
    for row in source:
        mine, unknown = left.get(row[0], []), absent.get(row[0])
        if unknown is not None and mine:
            other = mine.pop(0)
            same = all(a == b for name, a, b in zip(SCHEMA.names, row, other, strict=True) if name not in unknown)
            totals["undecided" if same else "different"] += 1
        elif row in mine:
            mine.remove(row)
            totals["equal"] += 1
        elif mine:
            mine.pop(0)
            totals["different"] += 1
        else:
            totals["only_source"] += 1
    totals["only_target"] = sum(len(rows) for rows in left.values())
    return +totals


def counts(result: TableResult) -> Counter[str]:
    names = ("equal", "different", "only_source", "only_target", "undecided")
    return +Counter({name: getattr(result, name) for name in names})


@settings(max_examples=60)
@given(source=sides, target=sides, like=st.booleans(), unknown=st.sets(st.integers(0, 25), max_size=3))
def test_with_a_key(
    source: list[list[Row]], target: list[list[Row]], like: bool, unknown: set[int], tmp_path_factory: Any
) -> None:
    """Rows of which something is not known, too; a key that the copy has twice is one row too many."""
    known: dict[Any, Row] = {row[0]: row for part in source for row in part}
    source = [[row for row in part if known[row[0]] is row] for part in source]
    rows = [*known.values()]
    if like:
        target = [rows[::2], *target[:1], rows[1::2]]
    absent = {key: ["v"] for key in unknown}
    for key in unknown & known.keys():
        known[key] = (key, None, known[key][2])
    source = [[known[row[0]] for row in part] for part in source]
    lake = copy(tmp_path_factory.mktemp("lake"), target, ["id"])
    result = compared(Source(source, absent=absent), lake)
    copies = Counter(row[0] for part in target for row in part)
    if not any(copies[key] > 1 for key in unknown):  # which of two rows it is compared with is not known
        assert counts(result) == model([*known.values()], [row for part in target for row in part], absent)
    assert len(result.samples) == result.differences
    assert len(result.undecided_keys) == result.undecided
    for sample in result.samples:
        assert (sample.kind == "only in target") or sample.key["id"] in known


@settings(max_examples=40)
@given(source=sides, target=sides, like=st.booleans())
def test_without_a_key(source: list[list[Row]], target: list[list[Row]], like: bool, tmp_path_factory: Any) -> None:
    ours = [row for part in source for row in part]
    if like:
        target = [ours[::2], *target[:1], ours[1::2]]
    theirs = [row for part in target for row in part]
    lake = copy(tmp_path_factory.mktemp("lake"), target, [])
    result = compared(Source(source), lake)
    left, right = Counter(ours), Counter(theirs)
    assert counts(result) == +Counter(
        equal=(left & right).total(), only_source=(left - right).total(), only_target=(right - left).total()
    )
    named = {tuple(one.key.values()): one.copies for one in result.samples}
    assert named == {row: (left[row], right[row]) for row in left | right if left[row] != right[row]}


def test_what_is_said_of_differences(tmp_path: Path) -> None:
    source = Source([[(1, "a", 1.0), (2, None, 2.0)], [(3, "c", 3.0), (5, "e", None)]])
    lake = copy(tmp_path, [[(1, "a", 1.0), (2, "b", 2.0)], [(4, "d", 4.0), (3, "c", None), (3, "c", 3.0)]], ["id"])
    result = compared(source, lake)
    assert counts(result) == Counter(equal=2, different=1, only_source=1, only_target=2)
    assert result.samples == (
        Difference("different", {"id": 2}, {"v": (None, "b")}),
        Difference("only in source", {"id": 5}),
        Difference("only in target", {"id": 4}),
        Difference("only in target", {"id": 3}),
    )
    assert compared(source, lake, samples=2).samples == result.samples[:2]
    assert compared(source, lake, samples=0).samples == ()


def test_dates_of_the_year_0_are_told(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("d", pa.date32()), ("t", pa.timestamp("us"))])
    year_0, moment = -719_528, -62_167_219_200_000_000  # 0000-01-01
    source = Source([[(1, year_0, moment), (2, None, None)]], schema)
    lake = copy(tmp_path, [[(1, year_0 + 800, moment + 1_500_000), (2, 0, moment)]], ["id"], schema)
    assert compared(source, lake).samples == (
        Difference(
            "different",
            {"id": 1},
            {"d": ("0000-01-01", date(2, 3, 11)), "t": ("0000-01-01 00:00:00.000000", "0000-01-01 00:00:01.500000")},
        ),
        Difference("different", {"id": 2}, {"d": (None, date(1970, 1, 1)), "t": (None, "0000-01-01 00:00:00.000000")}),
    )


def test_changes_of_columns_that_the_table_ignores(tmp_path: Path) -> None:
    """The source has the key as ``nr`` and ``v`` as ``w``, dropped ``x``, and added another ``v``."""
    schema = pa.schema([("nr", pa.int32()), ("w", pa.string()), ("v", pa.int64())])
    source = Source([[(1, "a", 7), (2, "b", 8), (3, None, 9), (4, "d", 9)]], schema, absent={3: ["w", "v"], 4: ["v"]})
    lake = copy(tmp_path, [[(1, "a", 1.0), (2, "B", None), (3, "c", None), (4, "d", 1.5)]], ["id"])
    ignored = IgnoredChanges({"nr": "id", "w": "v", "v": None}, ("x",))
    row = replace(ROW, tables={"s.t": TableState("s.t", "live", 0, ignored=ignored)})
    result = compared(source, lake, row=row)
    assert counts(result) == Counter(equal=2, different=1, undecided=1)
    assert result.samples == (Difference("different", {"id": 2}, {"v": ("b", "B")}),)
    assert result.undecided_keys == ({"id": 3},)


def test_rows_of_which_something_is_not_known(tmp_path: Path) -> None:
    """What is known of them is compared; if it is equal, nobody knows."""
    rows: list[Row] = [(1, None, 1.0), (2, None, 2.0), (3, "c", None), (4, None, None), (5, None, None), (6, "f", 6.0)]
    source = Source([rows], absent={1: ["v"], 2: ["v"], 3: ["x"], 4: ["v", "x"], 5: ["v", "x"]})
    lake = copy(tmp_path, [[(1, "a", 1.0), (2, "b", 2.5), (3, "C", 3.0), (4, "d", 4.0), (6, "f", 6.0)]], ["id"])
    result = compared(source, lake)
    assert counts(result) == Counter(equal=1, different=2, only_source=1, undecided=2)
    assert result.samples == (
        Difference("different", {"id": 2}, {"x": (2.0, 2.5)}),
        Difference("different", {"id": 3}, {"v": ("c", "C")}),
        Difference("only in source", {"id": 5}),
    )
    assert result.undecided_keys == ({"id": 1}, {"id": 4})


def test_columns_that_one_side_lacks_are_null(tmp_path: Path) -> None:
    """In the copy as a whole, or in a file that is older than they are."""
    more = SCHEMA.append(pa.field("added", pa.int8()))
    rows = [(1, "a", 1.0, None), (2, "b", 2.0, 7)]
    assert counts(compared(Source([rows], more), copy(tmp_path / "a", [[row[:3] for row in rows]], ["id"]))) == Counter(
        equal=1, different=1
    )
    older = copy(tmp_path / "b", [[(1, "a", 1.0)], [(2, "b", 2.0, 7)]], ["id"], more)
    assert counts(compared(Source([rows], more), older)) == Counter(equal=2)
    assert counts(compared(Source([[row[:3] for row in rows]]), older)) == Counter(equal=1, different=1)
    twice = [(1, "a", 1.0, None)] * 2
    bag = copy(tmp_path / "c", [[row[:3] for row in twice]], [])
    assert counts(compared(Source([twice], more), bag)) == Counter(equal=2)


def test_a_lake_at_a_uri(tmp_path: Path) -> None:
    lake = copy(Lake(f"file://{tmp_path}"), [[(1, "a", 1.0), (2, "b", 2.0)]], ["id"])
    assert counts(compared(Source([[(1, "a", 1.0), (2, "c", 2.0)]]), lake)) == Counter(equal=1, different=1)


def test_empty_sides(tmp_path: Path) -> None:
    nothing, one = copy(tmp_path / "a", [], ["id"]), copy(tmp_path / "b", [[(1, "a", 1.0)]], ["id"])
    assert counts(compared(Source([]), nothing)) == Counter()
    assert counts(compared(Source([[]]), one)) == Counter(only_target=1)
    assert counts(compared(Source([[(1, "a", 1.0)]]), nothing)) == Counter(only_source=1)


def test_a_large_table_with_one_row_that_differs(tmp_path: Path) -> None:
    """Only what is near to it is looked at a second time, and held."""
    rows = [(n, f"row {n}", float(n)) for n in range(60_000)]
    parts = [rows[at : at + 7_000] for at in range(0, len(rows), 7_000)]
    progress: Counter[str] = Counter()
    lock = threading.Lock()

    def on_rows(table: str, number: int) -> None:
        with lock:
            progress[table] += number

    lake = copy(
        tmp_path, [[*rows[30_000:], (31, "other", 31.0)], [row for row in rows[:30_000] if row[0] != 31]], ["id"]
    )
    result = compared(Source(parts), lake, on_rows=on_rows, memory_bytes=100_000)
    assert counts(result) == Counter(equal=59_999, different=1)
    assert result.samples == (Difference("different", {"id": 31}, {"v": ("row 31", "other")}),)
    assert progress == {"s.t": 120_000}


def test_memory_does_not_grow_with_the_parts(tmp_path: Path) -> None:
    """Sums of parts are added up as they come: of each side's there is one, and one for each thread."""
    most, alone = 0, threading.Lock()

    def sums() -> list[object]:
        return [one for one in gc.get_objects() if type(one).__name__ == "Buckets"]

    others = sums()  # of tests before this one

    class Counting(Source):
        def _read(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
            nonlocal most
            with alone:  # who counts keeps what there is from going away meanwhile
                most = max(most, len(sums()) - len(others))
            yield from super()._read(rows)

    rows = [(n, "a", None) for n in range(20)]
    lake = copy(tmp_path, [rows], ["id"])
    assert counts(compared(Counting([[row] for row in rows]), lake)) == Counter(equal=20)
    assert 0 < most <= 2 + 2


@pytest.mark.parametrize("key", [["id"], []])
def test_more_differences_than_fit_into_memory(tmp_path: Path, key: list[str]) -> None:
    """Whole buckets are compared as far as the memory lasts. Each other bucket is one row that differs, at least."""
    rows = [(n, "a", None) for n in range(5_000)]
    lake = copy(tmp_path, [rows[2_500:], rows[:2_500]], key)
    other = Source([[(n, "b", None) for n in range(start, start + 1_000)] for start in range(0, 5_000, 1_000)])
    with Workers(2) as workers:
        comparer = Comparer(lake, other, workers, memory_bytes=75_000)  # type: ignore[arg-type]
        for _ in range(2):
            result = verify_table(comparer, ROW, "s.t")
            one_by_one = result.only_source + result.only_target + result.different
            assert 200 < one_by_one < one_by_one + result.more == result.differences < 5_000
            assert (result.equal, result.undecided, len(result.samples)) == (0, 0, 20)
            assert result.remark is not None
        other.rows[0][1:], other.rows[1:] = rows[1:1_000], [rows[1_000:]]
        assert verify_table(comparer, ROW, "s.t").differences == (1 if key else 2), "the memory is free again"


def test_memory_for_no_bucket(tmp_path: Path) -> None:
    """Buckets with unknown columns may be equal: their rows are undecided."""
    rows = [(n, "a", None) for n in range(1_000)]
    lake = copy(tmp_path, [rows], ["id"])
    other = [(n, "b" if n < 10 else "a", None) for n in range(1_000)]
    result = compared(Source([other]), lake, memory_bytes=1)
    assert 1 <= result.more == result.differences <= 10
    unknown = Source([[(n, None, None) for n in range(1_000)]], absent={n: ["v"] for n in range(1_000)})
    result = compared(unknown, lake, memory_bytes=1)
    assert (result.undecided, result.differences, result.equal) == (1_000, 0, 0)
    assert result.remark is not None


def test_json_that_is_a_variant(tmp_path: Path) -> None:
    """The source's text becomes a VARIANT, too; differences show text. ``null`` is not NULL."""
    columns = pa.schema([("id", pa.int32()), ("j", pa.string())])
    documents = ['{"b": 1.50, "a": "ü"}', "null", None, "[1]", "7"]
    source = Source([[(n, one) for n, one in enumerate(documents)]], columns)
    lake = Lake.at(tmp_path)
    copied = pa.array([*documents[:2], None, "[2]", None])
    files = [pa.table([pa.array(range(5), pa.int32()), to_variant(copied, "j")], names=["id", "j"])]
    schema = Schema([Field("id", PrimitiveType("integer")), Field("j", VariantType())])
    features = {name: ["variantType"] for name in ("readerFeatures", "writerFeatures")}
    make_table(lake.current("s.t"), files, schema, {"headgate.key": '["id"]'}, **features)
    result = compared(source, lake)
    assert counts(result) == Counter(equal=3, different=2)
    assert {one.key["id"]: one.columns for one in result.samples} == {3: {"j": ("[1]", "[2]")}, 4: {"j": ("7", None)}}


@pytest.mark.parametrize(
    ("schema", "protocol", "reason"),
    [
        (
            pa.schema([("id", pa.int32()), ("v", pa.int32()), ("x", pa.float64())]),
            {},
            "column v is string in the source",
        ),
        (SCHEMA, {"readerFeatures": ["typeWidening"], "writerFeatures": ["typeWidening"]}, "typeWidening"),
        (SCHEMA.append(pa.field("b", pa.map_(pa.int32(), pa.int32()))), {}, "map"),
    ],
)
def test_incomparable_tables(tmp_path: Path, schema: pa.Schema, protocol: dict[str, Any], reason: str) -> None:
    lake = copy(tmp_path, [[(1,)]], ["id"], schema, **protocol)
    with pytest.raises(UnsupportedError, match=reason):
        compared(Source([]), lake)


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 2, "minWriterVersion": 5, "readerFeatures": None, "writerFeatures": None},
        {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]},
    ],
)
def test_column_mapping(tmp_path: Path, protocol: dict[str, Any], mode: str) -> None:
    """By name, also where the protocol does not name its features; not by id."""
    lake = Lake.at(tmp_path)
    names = {"id": "v", "v": "col-1", "x": "col-2"}  # as after a column was dropped and another one renamed
    kinds = {"id": "integer", "v": "string", "x": "double"}
    fields = [
        Field(
            name, PrimitiveType(kinds[name]),
            metadata={"delta.columnMapping.id": i, "delta.columnMapping.physicalName": physical},
        )
        for i, (name, physical) in enumerate(names.items())
    ]  # fmt: skip
    properties = {"headgate.key": '["id"]', "delta.columnMapping.mode": mode}
    files = [pa.table({"v": pa.array([1, 2], pa.int32()), "col-1": ["a", "b"], "x": ["dropped", ""], "id": ["", ""]})]
    make_table(lake.current("s.t"), files, Schema(fields), properties, **protocol)
    source = Source([[(1, "a", None), (2, "c", None)]])
    if mode == "id":
        with pytest.raises(UnsupportedError, match="column mapping by id"):
            compared(source, lake)
    else:
        result = compared(source, lake)
        assert counts(result) == Counter(equal=1, different=1)
        assert result.samples == (Difference("different", {"id": 2}, {"v": ("c", "b")}),)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """Before the comparison begins, or meanwhile."""
    lake = copy(tmp_path, [[(1, "a", 1.0)]], ["id"])
    (file,) = Path(lake.current("s.t")).glob("*.parquet")

    class Removing(Source):
        def parts(self, table: str, gtid: str) -> Any:
            file.unlink(missing_ok=True)
            return super().parts(table, gtid)

    with pytest.raises(TargetError, match="cannot be read"):
        compared(Removing([]), lake)
    with pytest.raises(TargetError, match="No such file"):
        compared(Source([]), lake)


def test_failures_that_pass(tmp_path: Path) -> None:
    """A part is read again, and what its first reading gave does not count."""
    rows: list[Row] = [(n, "a", None) for n in range(5)]
    lake = copy(tmp_path, [rows], ["id"])
    lost: list[HeadgateError] = [ConnectionLostError("lost") for _ in range(3)]
    source = Source([rows], fails=lost)
    assert counts(compared(source, lake)) == Counter(equal=5)
    assert source.reads == 4
    for error, reads in ((ConnectionLostError("lost"), 4), (ChunkRetryError("DDL"), 1)):
        source = Source([rows], fails=[error] * 9)
        with pytest.raises(type(error)):
            compared(source, lake)
        assert source.reads == reads


def test_nothing_goes_on_after_the_end(tmp_path: Path) -> None:
    """Who is stopped in the middle of it leaves the rest."""
    lake = copy(tmp_path, [[(1, "a", 1.0)]], ["id"])
    rows: list[Row] = [(n, "a", None) for n in range(5)]
    begun, go = threading.Event(), threading.Event()

    class Slow(Source):
        def _read(self, part: list[Row]) -> Iterator[pa.RecordBatch]:
            begun.set()
            assert go.wait(60)
            yield from super()._read(part)

    source = Slow([rows] * 9)
    with Workers(1) as flows:
        with Workers(1) as workers:
            future = flows.submit(lambda: verify_table(Comparer(lake, source, workers), ROW, "s.t"))  # type: ignore[arg-type]
            assert begun.wait(60)
            workers.stopped.set()
            go.set()
        with pytest.raises(StoppedError):
            future.result(60)
    assert source.reads == 1

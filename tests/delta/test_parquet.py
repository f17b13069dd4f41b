from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delta import VARIANT, _parquet, as_column, is_plain, to_variant, write_files
from headgate.errors import DecodeError

SEQ = pa.struct([("epoch", pa.int64()), ("pos", pa.int64())])
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(20, 4)), ("_seq", SEQ)])


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    values = [{"id": n, "name": f"name {n}", "price": Decimal(n) / 4, "_seq": {"epoch": 3, "pos": n}} for n in numbers]
    return pa.RecordBatch.from_pylist(values, schema=SCHEMA)


def added(texts: Iterator[str]) -> list[dict[str, Any]]:
    return [json.loads(text)["add"] for text in texts]


def stats(table: pa.Table) -> dict[str, Any]:
    with TemporaryDirectory() as path:
        (add,) = added(write_files(table.to_batches(), path, table.schema, "snappy"))
    value: dict[str, Any] = json.loads(add["stats"], parse_float=Decimal)
    return value


def test_a_file_holds_all_rows_and_its_action_describes_it(tmp_path: Path) -> None:
    (add,) = added(write_files([rows(0, 5), rows(5, 0), rows(5, 7)], str(tmp_path / "t"), SCHEMA, "zstd"))
    path = tmp_path / "t" / add["path"]
    assert path.name.endswith("-c000.zstd.parquet")
    assert add["size"] == path.stat().st_size
    assert add["dataChange"] is True
    assert add["partitionValues"] == {}
    read = pq.read_table(path)
    assert read.to_pylist() == pa.Table.from_batches([rows(0, 12)]).to_pylist()
    assert pq.ParquetFile(path).num_row_groups == 1
    assert json.loads(add["stats"], parse_float=Decimal) == {
        "numRecords": 12,
        "tightBounds": True,
        "minValues": {"id": 0, "name": "name 0", "price": Decimal("0.0000"), "_seq": {"epoch": 3, "pos": 0}},
        "maxValues": {"id": 11, "name": "name 9", "price": Decimal("2.7500"), "_seq": {"epoch": 3, "pos": 11}},
        "nullCount": {"id": 0, "name": 0, "price": 0, "_seq": {"epoch": 0, "pos": 0}},
    }


def test_the_parts_of_a_variant_are_never_null_in_a_file(tmp_path: Path) -> None:
    """However it came to be NULL; and it has no bounds, as one column."""
    pair = pa.struct([("id", pa.int64()), pa.field("v", VARIANT)])
    schema = pa.schema([pa.field("v", VARIANT), ("pair", pair)])
    made = to_variant(pa.array(['{"a": 1}', None, "null", "2"]), "v")
    taken = made.take(pa.array([0, None, 3, 1]))
    ids = pa.array([1, 2, 3, 4])
    pairs = pa.StructArray.from_arrays([ids, taken], fields=list(pair), mask=pa.array([True, False, False, False]))
    batches = [
        pa.RecordBatch.from_arrays(columns, schema=schema)
        for columns in ([made, pairs], [taken.slice(1), pairs.slice(1)], [pa.nulls(2, VARIANT), pa.nulls(2, pair)])
    ]
    (add,) = added(write_files(batches, str(tmp_path), schema, "snappy"))
    file = pq.ParquetFile(tmp_path / add["path"])
    assert {file.schema.column(i).max_definition_level for i in range(2)} == {1}, "their group alone is optional"
    read = file.read()
    assert read.to_pylist() == pa.Table.from_batches(batches).to_pylist()
    assert json.loads(add["stats"])["nullCount"] == {"v": 5, "pair": {"id": 3, "v": 7}}
    assert json.loads(add["stats"])["minValues"] == {"pair": {"id": 2}}


def test_shredded_variants_are_not_taken_for_whole_ones() -> None:
    parts = pa.struct([pa.field("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    with pytest.raises(DecodeError, match="shredded"):
        as_column(pa.nulls(1, parts), VARIANT)
    with pytest.raises(DecodeError, match="shredded"):
        as_column(pa.nulls(1, pa.struct([("v", parts)])), pa.struct([pa.field("v", VARIANT), ("w", pa.int64())]))
    other = pa.array(
        [{"metadata": b"m", "value": b"v"}], pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    )
    assert as_column(other, VARIANT).to_pylist() == [{"value": b"v", "metadata": b"m"}]


@pytest.mark.parametrize("values", [[-5.0, -0.0], [-0.0, 0.0]])
def test_a_greatest_value_of_zero_has_no_sign(values: list[float]) -> None:
    """delta-rs and DuckDB order -0.0 before 0.0, so ``f >= 0`` would skip the file."""
    for kind in (pa.float32(), pa.float64()):
        text = str(stats(pa.table({"f": pa.array(values, kind)}))["maxValues"]["f"])
        assert text == "0.0"


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    assert not list(write_files([rows(0, 0)], str(tmp_path), SCHEMA, "snappy"))
    assert not list(tmp_path.iterdir())


def test_large_data_becomes_row_groups_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parquet, "_GROUP_BYTES", 4000)
    monkeypatch.setattr(_parquet, "_FILE_BYTES", 9000)
    batches = [rows(n * 50, 50) for n in range(20)]
    adds = added(write_files(batches, str(tmp_path), SCHEMA, "none"))
    files = [pq.ParquetFile(tmp_path / add["path"]) for add in adds]
    assert len(files) > 1
    assert all(file.num_row_groups > 1 for file in files[:-1])
    ids = [n for file in files for n in file.read(["id"])["id"].to_pylist()]
    assert ids == list(range(1000))
    for add, file in zip(adds, files, strict=True):
        statistics, values = json.loads(add["stats"]), file.read(["id"])["id"].to_pylist()
        assert (statistics["numRecords"], statistics["minValues"]["id"], statistics["maxValues"]["id"]) == (
            len(values), values[0], values[-1],
        )  # fmt: skip


def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parquet, "_GROUP_BYTES", 1)
    monkeypatch.setattr(_parquet, "_FILE_BYTES", 1)

    def fails() -> Iterator[pa.RecordBatch]:
        yield rows(0, 3)
        yield rows(3, 3)
        raise ValueError("the source is gone")

    with pytest.raises(ValueError, match="the source is gone"):
        list(write_files(fails(), str(tmp_path), SCHEMA, "snappy"))
    assert not list(tmp_path.iterdir())


def test_times_are_cut_to_milliseconds() -> None:
    moment = datetime(2026, 3, 1, 1, 2, 3, 456789)
    table = pa.table(
        {
            "plain": pa.array([moment], pa.timestamp("us")),
            "zoned": pa.array([moment.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "day": pa.array([date(7, 1, 2)], pa.date32()),
        }
    )
    assert stats(table)["minValues"] == {
        "plain": "2026-03-01T01:02:03.456",
        "zoned": "2026-03-01T01:02:03.456Z",
        "day": "0007-01-02",
    }


def test_what_has_no_order_has_only_its_nulls() -> None:
    table = pa.table(
        {
            "flag": pa.array([True, None]),
            "bytes": pa.array([b"x", b"y"]),
            "names": pa.array([["a"], None], pa.list_(pa.string())),
            "none": pa.nulls(2, pa.int32()),
            "huge": pa.array([float("inf"), 1.0]),
        }
    )
    statistics = stats(table)
    assert statistics["minValues"] == statistics["maxValues"] == {}
    assert statistics["nullCount"] == {"flag": 1, "bytes": 0, "names": 1, "none": 2, "huge": 0}


def test_only_the_first_leaves_have_statistics() -> None:
    table = pa.table({f"c{n}": pa.array([n]) for n in range(40)})
    assert list(stats(table)["minValues"]) == [f"c{n}" for n in range(32)]


@given(st.lists(st.text(alphabet="ab\uffff\U0010ffff", max_size=40) | st.none(), min_size=1, max_size=5))
def test_bounds_of_texts_are_bounds(texts: list[str | None]) -> None:
    statistics = stats(pa.table({"t": pa.array(texts, pa.string())}))
    given_texts = [text for text in texts if text is not None]
    assert statistics["nullCount"]["t"] == len(texts) - len(given_texts)
    if "t" in statistics["minValues"]:
        low, high = statistics["minValues"]["t"], statistics["maxValues"]["t"]
        assert all(low.encode() <= text.encode() <= high.encode() for text in given_texts)
        assert max(len(low), len(high)) <= 33
    else:
        assert not given_texts or max(given_texts)[:33].endswith("\U0010ffff")


DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27)


@given(st.lists(DECIMALS, min_size=1))
def test_decimals_keep_their_digits(values: list[Decimal]) -> None:
    statistics = stats(pa.table({"d": pa.array(values, pa.decimal128(38, 10))}))
    assert (statistics["minValues"], statistics["maxValues"]) == ({"d": min(values)}, {"d": max(values)})


def test_only_types_that_spark_writes_the_same_are_plain() -> None:
    plain = [pa.int8(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
             pa.decimal128(38, 5), pa.list_(pa.string()), SEQ, pa.float32(), pa.bool_(),
             pa.map_(pa.string(), pa.int64())]  # fmt: skip
    other = [pa.uint64(), pa.duration("us"), pa.timestamp("ns"), pa.timestamp("us", "Europe/Rome"), pa.large_string(),
             pa.map_(pa.string(), SEQ), pa.struct([("a", pa.time64("us"))]), pa.decimal256(50, 2)]  # fmt: skip
    assert all(is_plain(kind) for kind in plain)
    assert not any(is_plain(kind) for kind in other)


def encodings(path: Path) -> dict[str, bool]:
    """Of each column of a file: whether its values are stored as differences."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    for column in columns:
        assert column.has_dictionary_page != ("DELTA_BINARY_PACKED" in column.encodings)
    return {column.path_in_schema: not column.has_dictionary_page for column in columns}


def test_numbers_that_hardly_repeat_are_stored_as_differences(tmp_path: Path) -> None:
    count = 1000
    numbers = pa.array(range(count), pa.int64())
    few, text = pa.array([n % 7 for n in range(count)], pa.int32()), pa.array([f"text {n}" for n in range(count)])
    parts = [pa.field("unlike", pa.int64()), pa.field("like", pa.int32())]
    table = pa.table(
        {
            "key": numbers,
            "few": few,
            "text": text,
            "price": numbers.cast(pa.decimal128(19)).cast(pa.decimal128(18)),
            "large": numbers.cast(pa.decimal128(19)),
            "at": numbers.cast(pa.timestamp("us")),
            "day": pa.array(range(count), pa.int32()).cast(pa.date32()),
            "ratio": numbers.cast(pa.float64()),
            "small": pa.array([n % 100 for n in range(count)], pa.int8()),
            "lists": pa.array([[n, n] for n in range(count)], pa.list_(pa.int64())),
            "s": pa.StructArray.from_arrays([numbers, few], fields=parts),
            "nulls": pa.array([n if n % 2 else None for n in range(count)], pa.int64()),
            "null": pa.nulls(count, pa.int64()),
            "a.b": numbers,
        }
    )
    (add,) = added(write_files(table.to_batches(), str(tmp_path), table.schema, "snappy"))
    assert pq.read_table(tmp_path / add["path"]).equals(table)
    columns = encodings(tmp_path / add["path"])
    assert {name for name, packed in columns.items() if packed} == {
        "key", "price", "at", "day", "s.unlike", "nulls", "a.b",
    }  # fmt: skip
    assert {name for name, packed in columns.items() if not packed} == {
        "few", "text", "large", "ratio", "small", "lists.list.element", "s.like", "null",
    }  # fmt: skip


def test_a_name_that_two_columns_have_in_a_file_keeps_the_default(tmp_path: Path) -> None:
    """``a.b`` is a column, and a part of ``a``."""
    part = pa.StructArray.from_arrays([pa.array(["x", "y", "z"])], names=["b"])
    table = pa.table({"a.b": pa.array([1, 2, 3]), "a": part})
    (add,) = added(write_files(table.to_batches(), str(tmp_path), table.schema, "snappy"))
    assert pq.read_table(tmp_path / add["path"]).equals(table)
    assert encodings(tmp_path / add["path"]) == {"a.b": False}


def test_a_sample_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_parquet, "_SAMPLE_ROWS", 100)
    table = pa.table({"sorted": pa.array(range(1050)), "pairs": pa.array([n // 2 for n in range(1050)])})
    (add,) = added(write_files(table.to_batches(), str(tmp_path), table.schema, "snappy"))
    assert pq.read_table(tmp_path / add["path"]).equals(table)
    assert encodings(tmp_path / add["path"]) == {"sorted": True, "pairs": True}, "no value is in the sample twice"


WHOLE = {
    "byte": (pa.int8(), st.integers(-(1 << 7), (1 << 7) - 1)),
    "int": (pa.int32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "at": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "day": (pa.date32(), st.dates()),
    "price": (pa.decimal128(18, 2), st.decimals(places=2, min_value=-(10**16) + 1, max_value=10**16 - 1)),
}


@pytest.mark.parametrize("kind", WHOLE)
@given(st.data())
def test_whole_numbers_are_read_as_written(kind: str, data: st.DataObject) -> None:
    arrow, values = WHOLE[kind]
    column = pa.array(data.draw(st.lists(st.none() | values, min_size=1, max_size=300, unique=True)), arrow)
    with tempfile.TemporaryDirectory() as folder:
        (add,) = added(write_files([pa.record_batch({"c": column})], folder, pa.schema([("c", arrow)]), "snappy"))
        assert pq.read_table(Path(folder, add["path"]))["c"].combine_chunks().equals(column)


def test_names_that_begin_with_a_dot(tmp_path: Path) -> None:
    """Arrow takes them for paths."""
    inside = pa.array([{".n": 1, "n": "a"}, {".n": 5, "n": "b"}], pa.struct([(".n", pa.int64()), ("n", pa.string())]))
    table = pa.table({"_before": inside, ".n": pa.array([3, 4])})
    (add,) = added(write_files(table.to_batches(), str(tmp_path), table.schema, "snappy"))
    assert json.loads(add["stats"])["maxValues"] == {"_before": {".n": 5, "n": "b"}, ".n": 4}
    assert pq.read_table(tmp_path / add["path"]).equals(table)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_dates_of_the_year_0_have_no_bounds_in_their_file(kind: pa.DataType) -> None:
    year_0, later = (pa.scalar(days, pa.int32()).cast(pa.date32()) for days in (-719528, 20000))
    schema = pa.schema([("id", pa.int64()), ("d", kind)])
    days = pa.array([moment.value for moment in (later, year_0, later)], pa.int32()).view(pa.date32())
    value = stats(pa.table([[0, 1, 2], days.cast(kind)], schema))
    assert (value["minValues"], value["maxValues"]) == ({"id": 0}, {"id": 2})
    assert value["nullCount"] == {"id": 0, "d": 0}


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_column_with_a_nan_has_no_bounds(tmp_path: Path, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark orders NaN above all numbers, so bounds that ignore it would exclude its row from ``f > 100``."""
    monkeypatch.setattr("headgate.delta._parquet._GROUP_BYTES", 1)
    inside = pa.struct([("f", kind)])
    schema = pa.schema([("id", pa.int64()), ("f", kind), ("in", inside), ("g", kind)])

    def batch(number: int, f: float, inner: float) -> pa.RecordBatch:
        rows = [{"id": number, "f": 1.0, "in": {"f": 1.0}, "g": 1.0}, {"id": number, "f": f, "in": {"f": inner}}]
        return pa.RecordBatch.from_pylist(rows, schema)

    nan = float("nan")
    batches = [batch(0, nan, 1.0), batch(1, 1.0, 1.0), batch(2, 1.0, nan), batch(3, nan, nan)]
    files = added(write_files(batches, str(tmp_path), schema, "snappy"))
    described = [json.loads(file["stats"]) for file in files]
    assert [one["maxValues"] for one in described] == [
        {"id": 1, "in": {"f": 1.0}, "g": 1.0},
        {"id": 2, "f": 1.0, "g": 1.0},
        {"id": 3, "g": 1.0},
    ]
    for file, wanted in zip(files, described, strict=True):
        metadata = pq.read_metadata(tmp_path / file["path"])
        for group in range(metadata.num_row_groups):
            columns = [metadata.row_group(group).column(i) for i in range(metadata.num_columns)]
            bounded = {one.path_in_schema for one in columns if one.is_stats_set and one.statistics.has_min_max}
            flat = {"in.f" if name == "in" else name for name in wanted["maxValues"]}
            assert bounded == flat

"""Keys: equal where Spark calls them equal, and found in the index of a data file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delta import IndexCache, Keys, keys_of
from headgate.delta import _local_tables as local_tables
from headgate.delta._index import KeyIndex
from headgate.delta._index_build import Scratch, index_of
from headgate.delta._keys import whole
from headgate.delta._mapping import UNMAPPED, NamedFile
from headgate.errors import DecodeError

NUMBERS = st.integers(-(2**63), 2**63 - 1)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), NUMBERS),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "unsigned": (pa.decimal128(20), st.integers(0, 2**64 - 1).map(Decimal)),
    "digits": (
        pa.decimal128(20),
        (st.integers(0, 9) | st.sampled_from([-1, -(2**64), 2**64 - 1, 2**64, 2**64 + 9, 10**20 - 1])).map(Decimal),
    ),
    "decimal": (pa.decimal128(18, 4), st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4))),
    "large": (pa.decimal128(38, 2), st.integers(-(10**25), 10**25).map(lambda n: Decimal(n).scaleb(-2))),
    "day": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "moment": (pa.timestamp("us"), st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=12)),
    "bytes": (pa.binary(), st.binary(max_size=12)),
    "float": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
}


def same(value: Any) -> Any:
    """What stands for a value in Python's ``==``."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def keys(kinds: Sequence[pa.DataType], rows: Sequence[tuple[Any, ...]]) -> Keys:
    return keys_of([pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)])


@given(st.data())
@pytest.mark.parametrize(
    "names", [*((name,) for name in COLUMNS), ("int", "text"), ("bytes", "bytes"), ("bool", "day")]
)
def test_the_index_finds_the_rows_of_equal_keys_and_no_others(names: tuple[str, ...], data: st.DataObject) -> None:
    kinds = [COLUMNS[name][0] for name in names]
    few = st.lists(st.tuples(*(COLUMNS[name][1] for name in names)), max_size=12)
    stored = data.draw(few)
    sought = list({tuple(map(same, row)): row for row in data.draw(few) + stored[::2]}.values())
    sought_rows, stored_rows = build_index(keys(kinds, stored)).find(keys(kinds, sought))
    expected = {
        (i, j)
        for i, mine in enumerate(sought)
        for j, theirs in enumerate(stored)
        if tuple(map(same, mine)) == tuple(map(same, theirs))
    }
    pairs = list(zip(sought_rows.tolist(), stored_rows.tolist(), strict=True))
    assert set(pairs) == expected
    assert len(pairs) == len(expected)


@given(st.lists(NUMBERS, min_size=1, max_size=50))
def test_exact_keys_sort_as_their_values(values: list[int]) -> None:
    whole = keys_of([pa.array(values, pa.int64())])
    assert whole.ascending.tolist() == sorted(values)
    unsigned = [Decimal(value % 2**64) for value in values]
    order = keys_of([pa.array(unsigned, pa.decimal128(20))]).order
    assert [unsigned[i] for i in order] == sorted(unsigned)


@given(st.data())
@pytest.mark.parametrize("names", [*((name,) for name in COLUMNS), ("int", "text"), ("digits", "digits")])
def test_equal_keys_have_equal_numbers(names: tuple[str, ...], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*(COLUMNS[name][1] for name in names)), max_size=12))
    rows += rows[::3]
    made = keys([COLUMNS[name][0] for name in names], rows)
    values = [tuple(map(same, row)) for row in rows]
    expected = dict(zip(values, made.numbers.tolist(), strict=True))
    assert [expected[value] for value in values] == made.numbers.tolist()
    assert sorted(expected.values()) == [*range(len(expected))]
    assert made.are_distinct <= (len(expected) == len(rows))


def test_keys_with_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, sought = (keys([pa.string()], [(text,) for text in texts]) for texts in ("abcde", "cx"))
    for one in (stored, sought):
        one.hashes[:] = 7
    sought_rows, stored_rows = build_index(stored).find(sought)
    assert (sought_rows.tolist(), stored_rows.tolist()) == ([0], [2])


def test_parts_of_many_chunks_and_slices() -> None:
    column = pa.chunked_array([pa.array(["x", "a", "b"])[1:], pa.array(["c"])])
    sought_rows, stored_rows = build_index(keys_of([column])).find(keys([pa.string()], [("b",), ("x",), ("c",)]))
    assert sorted(zip(sought_rows.tolist(), stored_rows.tolist(), strict=True)) == [(0, 1), (2, 2)]


@pytest.mark.parametrize(("kind", "wide"), [(pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())])
def test_chunks_are_joined_to_an_array_that_may_have_more_than_2_gib(kind: pa.DataType, wide: pa.DataType) -> None:
    one, none = pa.array([b"a"], kind), pa.chunked_array([], kind)
    assert whole(pa.chunked_array([one, one])) == pa.array([b"a", b"a"], wide)
    assert whole(pa.chunked_array([one])).buffers()[2].address == one.buffers()[2].address
    assert len(whole(none)) == 0


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(DecodeError, match="NULL"):
        keys_of([pa.array([1, None])])
    with pytest.raises(DecodeError, match="a key column of type"):
        keys_of([pa.array([[1]])])
    with pytest.raises(DecodeError, match="another kind"):
        build_index(keys_of([pa.array([1])])).find(keys_of([pa.array(["1"])]))


def test_a_file_of_mixed_keys_is_refused() -> None:
    exact, other = (keys([pa.decimal128(20)], [(Decimal(number),)]) for number in (1, -1))
    assert (exact.is_exact, other.is_exact) == (True, False)
    with pytest.raises(DecodeError, match="some of the keys"):
        index_of([exact, other], Scratch(Path("/dev/null")))


def build_index(stored: Keys) -> KeyIndex:
    return KeyIndex.of(index_of([stored], Scratch(Path("/dev/null"))))


PARTS = st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=7)


@given(PARTS, st.booleans(), st.booleans())
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_an_index_made_of_parts_is_the_one_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, kind: pa.DataType, parts: list[list[int]], ascending: bool, on_disk: bool
) -> None:
    """In the keys' order or not, with parts without rows, on disk or in memory."""
    rows = [number for part in parts for number in part]
    if ascending:
        rows.sort()
    ends = np.cumsum([0, *map(len, parts)])
    columns = [pa.array(rows[start:end], pa.int64()).cast(kind) for start, end in pairwise(ends)]
    folder = tmp_path_factory.mktemp("scratch") / "keys"
    if not on_disk:
        folder.write_text("no folder")
    index = index_of((keys_of([column]) for column in columns), Scratch(folder))
    assert index == index_of([keys_of([pa.concat_arrays(columns)])], Scratch(folder))
    assert list(folder.glob("*")) == []


def test_the_arrays_of_many_parts_are_mapped_from_disk(tmp_path: Path) -> None:
    """A file of any size takes memory for one part."""
    made: list[int] = []

    class Counted(Scratch):
        def empty(self, count: int, kind: Any) -> Any:
            array = super().empty(count, kind)
            if count:
                assert isinstance(array.base, memoryview | mmap)
                made.append(array.nbytes)
            return array

    numbers = np.random.default_rng(5).permutation(9000)
    parts = [keys_of([pa.array(numbers[at : at + 1000])]) for at in range(0, 9000, 1000)]
    index = index_of(parts, Counted(tmp_path))
    assert index["value"].to_pylist() == [*range(9000)]
    assert made.count(9000 * 8) == made.count(9000 * 4) == 1


def refill(number: int) -> Callable[[], list[Keys]]:
    return lambda: [keys_of([pa.array([f"k{i}" for i in range(number)])])]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_an_index_on_disk_is_the_one_in_memory(tmp_path: Path, kind: pa.DataType) -> None:
    def part(numbers: Sequence[int]) -> Keys:
        return keys_of([pa.array([n * 7919 % 10_007 for n in numbers]).cast(kind)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_tables, "_ON_DISK_ROWS", 1)
        cache = IndexCache(tmp_path, 1 << 20)
        made = cache.get("/t", "a", ["id"], lambda: [part(range(4000)), part(range(4000, 9000))])
    reopened = IndexCache(tmp_path, 1 << 20).get("/t", "a", ["id"], fails)
    sought = keys_of([pa.array([0, 7919, 10_006, 20_000, 5]).cast(kind)])
    expected = [rows.tolist() for rows in build_index(part(range(9000))).find(sought)]
    assert (
        [rows.tolist() for rows in reopened.find(sought)] == [rows.tolist() for rows in made.find(sought)] == expected
    )


def test_a_damaged_index_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tables, "_ON_DISK_ROWS", 1)

    def is_stored() -> bool:
        """Whether another process takes the file as it is."""
        try:
            IndexCache(tmp_path, 1 << 20).get("/t", "a", ["id"], fails)
        except OSError:
            return False
        return True

    IndexCache(tmp_path, 1 << 20).get("/t", "a", ["id"], refill(100))
    (file,) = tmp_path.rglob("*.keys")
    kept = file.read_bytes()
    earlier = b"HDGIDX01" + bytes(range(1, 200))  # the layout of before
    for data in (b"", kept[:20], kept[:-8], b"\0" * len(kept), earlier):
        file.write_bytes(data)
        assert not is_stored()
    file.write_bytes(kept[:200] + b"?" + kept[201:])
    monkeypatch.setattr(local_tables, "boot_number", lambda: 5)  # it was written before the machine failed
    assert not is_stored()
    file.write_bytes(kept)
    assert is_stored()


def test_the_cache_keeps_what_fits_and_loses_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tables, "_ON_DISK_ROWS", 10)
    made: list[str] = []

    def get(cache: IndexCache, file: str, rows: int) -> int:
        def parts() -> list[Keys]:
            made.append(file)
            return refill(rows)()

        index = cache.get("/lake/t", file, ["id"], parts)
        assert len(index.find(refill(rows)()[0])[0]) == rows
        return len(list(tmp_path.glob("*/*.keys")))

    cache = IndexCache(tmp_path, 10_000)
    assert get(cache, "small", 9) == 0
    assert get(cache, "a", 100) == 1
    assert get(IndexCache(tmp_path, 10_000), "a", 100) == 1
    assert made == ["small", "a"], "another process finds it"
    for number in range(8):
        assert get(cache, f"more {number}", 100) <= 4
    assert get(cache, "a", 100) <= 4
    assert made.count("a") == 2, "it was the least used one"
    cache.forget("/lake/t", "a", ["id"])
    cache.forget("/lake/t", "small", ["id"])
    get(cache, "a", 100)
    assert made.count("a") == 3


def test_the_cache_tells_what_it_builds_and_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.delta._local_tables._ON_DISK_ROWS", 1)
    cache = IndexCache(tmp_path, 10**6)
    assert (cache.tables_building, cache.files.bytes_on_disk) == (0, 0)
    seen = []

    def keys() -> list[Keys]:
        seen.append(cache.tables_building)
        if len(seen) == 1:
            cache.get("/t", "b", ["id"], keys)
            cache.get("/u", "c", ["id"], keys)
        return [keys_of([pa.array(range(100))])]

    cache.get("/t", "a", ["id"], keys)
    assert (seen, cache.tables_building) == ([1, 1, 2], 0)
    assert cache.files.bytes_on_disk == sum(path.stat().st_size for path in tmp_path.rglob("*.keys"))
    assert IndexCache(tmp_path, 10**6).files.bytes_on_disk == cache.files.bytes_on_disk > 0, "those of other runs count"
    with pytest.raises(OSError, match="gone"):
        cache.get("/t", "d", ["id"], fails)
    assert cache.tables_building == 0


def fails() -> list[Keys]:
    raise OSError("gone")


def test_a_folder_that_cannot_be_written_keeps_the_index_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_tables, "_ON_DISK_ROWS", 10)
    (tmp_path / "file").write_text("")
    index = IndexCache(tmp_path / "file", 1000).get("/t", "a", ["id"], refill(50))
    assert isinstance(index.row_numbers, np.ndarray)
    assert len(index.row_numbers) == 50


def test_a_row_group_may_have_more_bytes_than_an_arrow_array() -> None:
    """2.25 GiB of text, in chunks that share memory, as Arrow reads such a group; another program has written it."""
    text = pa.chunked_array([pa.array(["x" * (1 << 28)])] * 9)
    groups = [pa.table({"id": list(range(9 * number, 9 * number + 9)), "text": text}) for number in range(2)]

    def row_group(number: int) -> Any:
        return SimpleNamespace(num_rows=groups[number].num_rows)

    file: Any = SimpleNamespace(
        schema_arrow=groups[0].schema,
        metadata=SimpleNamespace(num_row_groups=2, row_group=row_group),
        read_row_group=lambda number, columns: groups[number].select(columns),
    )
    parts = NamedFile(file, UNMAPPED).rows(np.array([0, 8, 12]), ["id", "text"])
    rows = [(part["id"].to_pylist(), len(part["text"])) for part in parts if len(part)]
    assert rows == [([0], 1), ([8], 1), ([12], 1)]

"""Keys of several columns: which rows a look-up finds, and which files it reads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delta import IndexCache, KeyedTable, TableLog, keys_of
from tests.lake.tables import make_table

KINDS: list[tuple[pa.DataType, Callable[[int], Any]]] = [
    (pa.int64(), lambda number: number - 3),
    (pa.decimal128(20, 0), lambda number: Decimal(2**63 - 3 + number)),
    (pa.decimal128(12, 2), lambda number: Decimal(number - 3) / 4),
    (pa.date32(), lambda number: date(1969, 12, 29) + timedelta(days=number)),
    (pa.timestamp("us"), lambda number: datetime(1969, 12, 31, 23, 59, 57) + timedelta(seconds=number)),
    (pa.timestamp("us", "UTC"), lambda number: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)),
    (pa.string(), str),
]
Pairs = set[tuple[int, int]]


def rows_of(pairs: Pairs, kind: pa.DataType, value: Callable[[int], Any]) -> pa.Table:
    first = pa.array([value(one) for one, _ in sorted(pairs)], kind)
    return pa.table({"a": first, "b": pa.array([two for _, two in sorted(pairs)], pa.int64())})


def lookup(folder: Path, files: list[Pairs], wanted: Pairs, kind: int) -> tuple[Pairs, int]:
    """The keys found, and in how many files a row was looked for."""
    made = [rows_of(pairs, *KINDS[kind]) for pairs in files]
    path = str(folder / "table")
    make_table(path, made, made[0].schema, {})
    table = TableLog(path).refresh()
    keyed = KeyedTable(path, ("a", "b"), [KINDS[kind][0], pa.int64()], IndexCache(folder / "keys", 1 << 20))
    order = sorted(wanted)
    located = list(keyed.locate(table, keys_of(rows_of(wanted, *KINDS[kind]).columns), lambda _file: True))
    return {order[number] for _, _, numbers in located for number in np.asarray(numbers)}, len(keyed._known)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, len(KINDS) - 1))
def test_a_lookup_finds_the_rows_that_have_the_keys(data: st.DataObject, kind: int) -> None:
    pair = st.tuples(st.integers(0, 9), st.integers(0, 2))
    files = data.draw(st.lists(st.sets(pair, min_size=1, max_size=5), min_size=1, max_size=3))
    wanted = data.draw(st.sets(pair, min_size=1, max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        located, _ = lookup(Path(folder), files, wanted, kind)
    assert located == wanted & set().union(*files)


@pytest.mark.parametrize("kind", range(len(KINDS) - 1))
def test_files_whose_first_column_lies_elsewhere_are_left_out(tmp_path: Path, kind: int) -> None:
    """As in a first snapshot by chunks: else each chunk would read an index of each earlier file."""
    scale = 10  # the statistics have milliseconds
    files = [{(scale * (3 * part + one), one) for one in range(3)} for part in range(4)]
    assert lookup(tmp_path, files, files[2], kind) == (files[2], 1)

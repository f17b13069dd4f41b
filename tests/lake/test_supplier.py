"""Versions of a lake's tables without Spark: their files, and which of the rows are there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.errors import TargetError
from headgate.lake import Lake
from headgate.lake._supplier import _kept, _opened, _Version

ROWS = pa.table({"id": range(10), "v": [f"v{n}" for n in range(10)]})


@pytest.mark.parametrize("table", ["d.plain", "d.dots.and spaces", "d.100%2E", "d.é~\U0001f600"])
def test_a_table_of_any_name(tmp_path: Path, table: str) -> None:
    """Whatever delta-rs makes of the folder's name."""
    made = tmp_path / "made"
    write_deltalake(str(made), ROWS)
    write_deltalake(str(made), ROWS, mode="append")
    path = Path(Lake.at(tmp_path / "lake").current(table))
    path.parent.mkdir(parents=True)
    made.rename(path)
    old, new = _opened(str(path), 0), _opened(str(path), 1)
    assert len(old.parts) == 1
    assert old.read(0, ["v", "id"]).equals(ROWS.select(["v", "id"]))
    assert len(new.parts) == 2
    with pytest.raises(TargetError, match="cannot be read"):
        _opened(str(path), 2)


def test_partitions_are_not_a_pipelines(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROWS, partition_by=["v"])
    assert DeltaTable(str(tmp_path)).version() == 0
    with pytest.raises(TargetError, match="elsewhere"):
        _opened(str(tmp_path), 0)


@pytest.mark.parametrize("length", [4, 7, 10])
def test_rows_that_a_deletion_vector_takes_away(tmp_path: Path, length: int) -> None:
    """In row groups of four, whether or not the vector says something of the rows behind the last one it takes."""
    pq.write_table(ROWS, tmp_path / "one.parquet", row_group_size=4)
    vectors = pa.table(
        {"filepath": ["file:///x%20y/one.parquet"], "selection_vector": [[n not in (0, 2, 3) for n in range(length)]]}
    )
    kept = _kept("t", frozenset({"one.parquet", "two.parquet"}), vectors)
    version = _Version(str(tmp_path), [("one.parquet", number, 4 * number) for number in range(3)], kept)
    found = [version.read(number, ["id"])["id"].to_pylist() for number in range(3)]
    assert found == [[1], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("uris", [["/t/two.parquet"], ["/t/one.parquet", "/t/other/one.parquet"]])
def test_a_deletion_vector_of_an_unknown_file_is_refused(uris: list[str]) -> None:
    vectors = pa.table({"filepath": uris, "selection_vector": [[True, False]] * len(uris)})
    with pytest.raises(TargetError, match="not among its own"):
        _kept("t", frozenset({"one.parquet"}), vectors)

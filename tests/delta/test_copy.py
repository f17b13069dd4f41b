"""Copies of data files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.delta import DataFile, VectorFile, copy_file, positions_of, write_files

OLD = pa.schema([("id", pa.int64())])
NEW = pa.schema([("added", pa.string()), ("id", pa.int64())])


@given(deleted=st.sets(st.integers(0, 29)), batch=st.integers(1, 40))
def test_the_rows_that_count_are_copied_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, deleted: set[int], batch: int
) -> None:
    """However many are read at once, and with a column that the file does not have."""
    folder = tmp_path_factory.mktemp("copy")
    rows = pa.RecordBatch.from_pydict({"id": list(range(30))}, schema=OLD)
    (added,) = write_files([rows], str(folder), OLD, "zstd")
    action = json.loads(added)["add"]
    if deleted:
        vectors = VectorFile()
        action["deletionVector"] = vectors.add(positions_of(sorted(deleted)))
        vectors.write(str(folder))

    def change(records: pa.RecordBatch) -> pa.RecordBatch:
        return records.set_column(0, NEW.field(0), pc.cast(records["id"], pa.string()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.delta._copy._BATCH_ROWS", batch)
        copies = copy_file(str(folder), DataFile(action), NEW, "zstd", change, ["id"])
    actual = [row for copy in copies for row in pq.read_table(_path(folder, copy)).to_pylist()]
    assert actual == [{"added": str(n), "id": n} for n in range(30) if n not in deleted]


def _path(folder: Path, action: str) -> Path:
    return Path(folder, json.loads(action)["add"]["path"])

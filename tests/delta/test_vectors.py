"""Deletion vectors in Delta's format: written and read back, inline and in files; what is damaged is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from headgate.delta import VectorFile, positions_of
from headgate.delta.vectors import decode, encode, read_vector, rows_of, vector_file
from headgate.errors import DecodeError
from tests.delta.inline_vectors import store_inline


@given(st.sets(st.integers(0, 2**32 - 1), max_size=300))
def test_what_is_encoded_is_decoded(rows: set[int]) -> None:
    positions = positions_of(np.array(sorted(rows, reverse=True), np.uint32))
    assert rows_of(decode(encode(positions), "t")).tolist() == sorted(rows)


@pytest.mark.parametrize(("inline", "kinds"), [(False, ["u", "u", "u"]), (True, ["i", "u", "i"])])
def test_vectors_of_a_commit_stand_in_one_file_and_are_read_from_the_log_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool, kinds: list[str]
) -> None:
    """Other writers put small ones into the log; a run takes some bytes."""
    if inline:
        store_inline(monkeypatch)
    file = VectorFile()
    small, large, runs = [1, 5, 2**32 - 1], list(range(0, 40_000, 7)), list(range(10_000, 90_000))
    descriptors = [file.add(positions_of(np.array(rows, np.uint32))) for rows in (small, large, runs)]
    file.write(str(tmp_path))
    assert [one["storageType"] for one in descriptors] == kinds
    assert [one["cardinality"] for one in descriptors] == [3, len(large), 80_000]
    assert [rows_of(read_vector(str(tmp_path), one)).tolist() for one in descriptors] == [small, large, runs]
    assert len(list(tmp_path.iterdir())) == 1


def test_no_file_is_written_if_no_vector_needs_it(tmp_path: Path) -> None:
    VectorFile().write(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_damage_is_refused(tmp_path: Path) -> None:
    file = VectorFile()
    vector = file.add(positions_of(np.arange(0, 40_000, 7, dtype=np.uint32)))
    file.write(str(tmp_path))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()

    def refused(match: str, descriptor: dict[str, Any] = vector, data: bytes = whole) -> None:
        path.write_bytes(data)
        with pytest.raises(DecodeError, match=match):
            read_vector(str(tmp_path), descriptor)

    refused("checksum", data=whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    refused("no deletion vector", data=whole[:-1])
    refused("by the log", {**vector, "cardinality": 5})
    refused("storage type 'p'", {**vector, "storageType": "p"})
    for data, match in (b"", "0 bytes"), (b"\x00" * 12, "another format"), (whole[5:30], "bitmap is damaged"):
        with pytest.raises(DecodeError, match=match):
            decode(data, "t")


def test_a_reader_that_is_not_ours_leaves_the_rows_out(tmp_path: Path) -> None:
    """Of a table that delta-rs made; the actions are put into its log by hand."""
    import json

    path = str(tmp_path / "t")
    rows = pa.table({"id": pa.array(range(5000), pa.int64())})
    write_deltalake(path, rows, configuration={"delta.enableDeletionVectors": "true"})
    add = next(
        json.loads(line)["add"]
        for line in Path(path, "_delta_log", f"{0:020d}.json").read_text().splitlines()
        if '"add"' in line
    )
    file = VectorFile()
    gone = sorted({0, 4999, *range(1, 5000, 3)})
    descriptor = file.add(positions_of(np.array(gone, np.uint32)))
    file.write(path)
    assert descriptor["storageType"] == "u"
    stats = json.loads(add["stats"]) | {"tightBounds": False}
    actions = [
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "stats": json.dumps(stats), "deletionVector": descriptor}},
    ]
    Path(path, "_delta_log", f"{1:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    result = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id FROM t").read_all())
    assert sorted(result["id"].to_pylist()) == sorted({*range(5000)} - {*gone})


def test_a_vector_without_a_bitmap_and_a_file_without_a_uuid() -> None:
    with pytest.raises(DecodeError, match="damaged"):
        decode(bytes.fromhex("d1d33964") + b"\1" + bytes(11), "/t")
    with pytest.raises(DecodeError, match="no UUID"):
        vector_file({"storageType": "u", "pathOrInlineDv": "abcde"})

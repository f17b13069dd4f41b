"""Copies of columns of data files on local disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.delta import ColumnCopies, DataFile, write_files

SCHEMA = pa.schema(
    [("id", pa.int64()), ("text", pa.string()), ("seq", pa.struct([("epoch", pa.int64()), ("file", pa.int32())]))]
)
WANTED = pa.schema([SCHEMA.field("text"), SCHEMA.field("seq"), pa.field("new", pa.timestamp("us", "UTC"))])


def data_file(folder: Path, count: int, name: str = "x") -> DataFile:
    rows = [
        {"id": n, "text": None if n % 7 == 0 else f"{name} {n % 5}", "seq": {"epoch": n, "file": n % 3}}
        for n in range(count)
    ]
    (action,) = write_files(pa.Table.from_pylist(rows, schema=SCHEMA).to_batches(), str(folder), SCHEMA, "snappy")
    return DataFile(json.loads(action)["add"])


def values(copies: ColumnCopies, folder: Path, file: DataFile, rows: list[int]) -> list[Any]:
    table = copies.rows(str(folder), file, np.array(rows, np.int64), WANTED)
    assert table.schema == WANTED
    return [(row["text"], row["seq"]["epoch"], row["new"]) for row in table.to_pylist()]


def test_single_rows_are_read_also_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.delta._local_tables._ON_DISK_ROWS", 10)
    file = data_file(tmp_path / "t", 1000)
    copies = ColumnCopies(tmp_path / "cache", 1 << 20)
    assert values(copies, tmp_path / "t", file, [3, 7, 999]) == [("x 3", 3, None), (None, 7, None), ("x 4", 999, None)]
    assert values(copies, tmp_path / "t", file, []) == []
    (kept,) = (tmp_path / "cache").rglob("*.columns")
    Path(tmp_path / "t", file.name).unlink()
    assert values(ColumnCopies(tmp_path / "cache", 1 << 20), tmp_path / "t", file, [8]) == [("x 3", 8, None)]
    copies.forget(str(tmp_path / "t"), file.path)
    assert not kept.exists()
    with pytest.raises(FileNotFoundError):
        values(copies, tmp_path / "t", file, [8])


def test_a_damaged_copy_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.delta._local_tables._ON_DISK_ROWS", 10)
    file = data_file(tmp_path / "t", 100)
    values(ColumnCopies(tmp_path / "cache", 1 << 20), tmp_path / "t", file, [8])
    (kept,) = (tmp_path / "cache").rglob("*.columns")
    kept.write_bytes(b"")
    assert values(ColumnCopies(tmp_path / "cache", 1 << 20), tmp_path / "t", file, [8]) == [("x 3", 8, None)]
    monkeypatch.setattr("headgate.delta._local_tables.boot_number", lambda: 5)
    whole = kept.read_bytes()
    kept.write_bytes(whole.replace(b"x 3", b"x ?"))
    assert kept.read_bytes() != whole
    assert values(ColumnCopies(tmp_path / "cache", 1 << 20), tmp_path / "t", file, [8]) == [("x 3", 8, None)]


def test_the_least_used_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.delta._local_tables._ON_DISK_ROWS", 10)
    copies = ColumnCopies(tmp_path / "cache", 60_000)
    files = [data_file(tmp_path / "t", 500, f"f{number}") for number in range(6)]
    for number, file in enumerate(files):
        assert values(copies, tmp_path / "t", file, [1]) == [(f"f{number} 1", 1, None)]
        assert copies.files.bytes_on_disk <= 60_000
    assert values(copies, tmp_path / "t", files[0], [1]) == [("f0 1", 1, None)]


def test_without_a_folder_to_write_to_copies_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.delta._local_tables._ON_DISK_ROWS", 10)
    (tmp_path / "cache").write_text("")
    file = data_file(tmp_path / "t", 100)
    assert values(ColumnCopies(tmp_path / "cache", 1 << 20), tmp_path / "t", file, [8]) == [("x 3", 8, None)]

"""The replay of a table's log, beside delta-rs; which files bounds exclude."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from headgate.delta import DataFile, Snapshot, TableLog, VectorFile, _log, checkpoints_among, positions_of
from headgate.errors import StorageError, TargetError


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part of": pa.array([f"é {n}" for n in ids])})


def names(table: Snapshot) -> list[str]:
    return sorted(Path(file.name).name for file in table.files.values())


def version_and_names(log: TableLog) -> tuple[int, list[str]]:
    snapshot = log.refresh()
    return snapshot.version, names(snapshot)


def theirs(path: str) -> list[str]:
    return sorted(Path(uri).name for uri in DeltaTable(path).file_uris())


def test_the_files_are_those_that_delta_rs_names(tmp_path: Path) -> None:
    path = str(tmp_path / "a table")
    write_deltalake(path, rows(1, 2))
    log = TableLog(path)
    assert version_and_names(log) == (0, theirs(path))
    for number in range(3, 9):
        write_deltalake(path, rows(number), mode="append")
    DeltaTable(path).delete("id = 2")
    assert version_and_names(log) == (7, theirs(path))
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, rows(9), mode="append")
    for old in range(8):
        Path(path, "_delta_log", f"{old:020d}.json").unlink()  # as Delta removes what a checkpoint has
    assert version_and_names(log) == (9, theirs(path))
    anew = TableLog(path)
    assert version_and_names(anew) == (9, theirs(path))
    assert all(file.statistics.rows for file in anew.refresh().files.values())
    assert all(json.dumps(file.action) for file in anew.refresh().files.values()), "as a commit may have it"


def test_another_table_in_the_same_folder_is_replayed_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(1))
    write_deltalake(path, rows(2), mode="append")
    log, bare = TableLog(path), TableLog(path)
    assert (version_and_names(log), bare.refresh(files=False).files) == ((1, theirs(path)), {})
    before = bare.refresh(files=False).metadata["id"]
    shutil.rmtree(path)
    for number in range(5):
        write_deltalake(path, rows(number), mode="append")
    assert version_and_names(log) == (4, theirs(path))
    assert bare.refresh(files=False).metadata["id"] == log.refresh().metadata["id"] != before
    assert bare.refresh().files.keys() == log.refresh().files.keys(), "from now on it follows them, too"


@pytest.mark.parametrize(
    ("protocol", "features"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, {"appendOnly", "invariants"}),
        ({"minReaderVersion": 1, "minWriterVersion": 4}, None),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, None),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}, {"domainMetadata"}),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}, {"x"}),
        ({"minReaderVersion": 3, "minWriterVersion": 8}, None),
        ({}, None),
    ],
)
def test_what_a_protocol_asks_for(protocol: dict[str, Any], features: set[str] | None) -> None:
    assert Snapshot(protocol=protocol).features == features


def test_a_checkpoint_in_parts_counts_when_it_is_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(1))
    write_deltalake(path, rows(2), mode="append")
    DeltaTable(path).create_checkpoint()
    folder = Path(path, "_delta_log")
    (whole,) = folder.glob("*.checkpoint.parquet")
    expected = theirs(path)
    first, second = (folder / f"{1:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2))
    whole.rename(first)
    log = TableLog(path)
    assert version_and_names(log) == (1, expected), "from the commits"
    second.write_bytes(first.read_bytes())
    for commit in folder.glob("*.json"):
        commit.unlink()
    anew = TableLog(path)
    assert version_and_names(anew) == (1, expected)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["1.2", "2.2"], ["1.2", "2.2"]),
        (["1.2", "2.3"], []),
        (["1.2", "1.3"], []),
        (["1.2", "3.2"], []),
        (["1.3", "1.2", "2.2"], ["1.2", "2.2"]),
        (["0.0"], []),
    ],
)
def test_the_parts_of_a_checkpoint_are_those_of_one_writer(parts: list[str], whole: list[str]) -> None:
    def named(some: list[str]) -> list[str]:
        numbers = [part.split(".") for part in some]
        return [f"_delta_log/{4:020d}.checkpoint.{int(one):010d}.{int(of):010d}.parquet" for one, of in numbers]

    assert checkpoints_among(named(parts)) == ({4: named(whole)} if whole else {})


def test_a_look_that_fails_leaves_what_was_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upkeep reads the log with files for the first time, while batches rely on its transaction markers."""
    path = str(tmp_path / "t")
    write_deltalake(path, rows(1), commit_properties=CommitProperties(app_transactions=[Transaction("a", 7)]))
    log = TableLog(path)
    log.refresh(files=False)

    def refuse(*_which: object) -> None:
        raise StorageError("503")

    monkeypatch.setattr(_log, "read_commit", refuse)
    with pytest.raises(StorageError):
        log.refresh()
    assert (log.known(files=False).version, log.transactions()) == (0, {"a": 7})
    with pytest.raises(StorageError):
        log.known()
    monkeypatch.undo()
    assert log.known().files.keys() == TableLog(path).refresh().files.keys() != set()


def test_transactions_of_a_table_that_was_not_looked_at(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    log, late = TableLog(path), TableLog(path)
    assert log.transactions() == {}
    write_deltalake(path, rows(1), commit_properties=CommitProperties(app_transactions=[Transaction("a", 7)]))
    assert late.transactions() == {"a": 7}
    assert log.transactions() == {}, "as of the last look"
    assert log.known().transactions == {"a": 7}


def test_no_table_and_a_damaged_one(tmp_path: Path) -> None:
    assert TableLog(str(tmp_path / "none")).refresh().version == -1
    path = str(tmp_path / "t")
    write_deltalake(path, rows(1))
    Path(path, "_delta_log", f"{1:020d}.json").write_text("{")
    with pytest.raises(TargetError, match="is damaged"):
        TableLog(path).refresh()


@pytest.mark.parametrize("data", [b"", b"PAR1", bytes(99)])
def test_a_damaged_checkpoint(tmp_path: Path, data: bytes) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(1))
    DeltaTable(path).create_checkpoint()
    (checkpoint,) = Path(path, "_delta_log").glob("*.checkpoint.parquet")
    checkpoint.write_bytes(data)
    with pytest.raises(TargetError, match=f"{checkpoint.name} is damaged"):
        TableLog(path).refresh()


def data_file(stats: str | None) -> DataFile:
    return DataFile({"path": "a.parquet", "size": 1, "stats": stats})


@pytest.mark.parametrize(
    ("kind", "low", "high", "expected"),
    [
        (pa.int64(), "-5", "9223372036854775807", (-5, 2**63 - 1)),
        (
            pa.decimal128(38, 2),
            "-1.50",
            "99999999999999999999.99",
            (Decimal("-1.50"), Decimal("99999999999999999999.99")),
        ),
        (pa.date32(), '"1969-12-31"', '"1970-01-02"', (-1, 1)),
        (pa.timestamp("us"), '"1970-01-01T00:00:00.001"', '"1970-01-01T00:00:00.002"', (1000, 3000)),
        (pa.timestamp("us", "UTC"), '"1969-12-31T23:59:59.999Z"', '"1970-01-01T00:00:00.000Z"', (-1000, 1000)),
        (pa.int64(), '"x"', "5", None),
        (pa.int64(), "null", "5", None),
        (pa.int64(), "true", "5", None),
        (pa.date32(), '"-5"', '"1970-01-02"', None),
    ],
)
def test_bounds_are_those_of_the_values_or_wider(kind: pa.DataType, low: str, high: str, expected: object) -> None:
    text = f'{{"numRecords":3,"minValues":{{"s":{{"a":{low}}}}},"maxValues":{{"s":{{"a":{high}}}}}}}'
    statistics = data_file(text).statistics
    assert statistics.rows == 3
    assert statistics.bounds(("s", "a"), kind) == expected
    assert statistics.bounds(("s", "b"), kind) is None
    assert statistics.bounds(("s", "a", "c"), kind) is None


def loosened(text: str | None, rows: int) -> str:
    """The statistics of a file of which rows are deleted."""
    stats: str = VectorFile().mark(data_file(text).action, rows, positions_of(np.array([0], np.uint32)))["add"]["stats"]
    return stats


def test_statistics_that_nobody_can_read_are_none() -> None:
    for text in (None, "", "{", "{}"):
        assert data_file(text).statistics.rows is None
        assert json.loads(loosened(text, 4)) == {"numRecords": 4, "tightBounds": False}


def test_loosened_statistics_keep_their_digits() -> None:
    text = '{"numRecords":3,"minValues":{"a":12345678901234567890.12},"tightBounds": true}'
    assert loosened(text, 3) == text.replace('"tightBounds": true', '"tightBounds":false')
    assert loosened('{"numRecords":3}', 3) == '{"tightBounds":false,"numRecords":3}'
    assert loosened('{"numRecords":3,"tightBounds":false}', 3) == '{"numRecords":3,"tightBounds":false}'


_SCHEMA = '{"type": "struct", "fields": []}'
DAMAGED: list[Any] = [
    5, [], {"add": None}, {"add": {}}, {"add": {"path": 5}}, {"add": {"path": "a", "size": "5"}},
    {"add": {"path": "a", "size": -1}}, {"add": {"path": "a", "stats": {}}},
    {"add": {"path": "a", "deletionVector": []}},
    {"add": {"path": "a", "deletionVector": {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 1}}},
    {"remove": {}}, {"txn": 5}, {"txn": {"version": 5}}, {"txn": {"appId": "a"}},
    {"txn": {"appId": "a", "version": None}}, {"txn": {"appId": "a", "version": float("inf")}},
    {"txn": {"appId": "a", "version": 2**63}}, {"metaData": 1.5}, {"metaData": {}},
    {"metaData": {"schemaString": "{"}}, {"metaData": {"schemaString": '{"type": "struct"}'}},
    {"metaData": {"schemaString": '{"type": "struct", "fields": [{"name": "a"}]}'}},
    {"metaData": {"schemaString": _SCHEMA, "configuration": {"a": 1}}}, {"protocol": {"minReaderVersion": "x"}},
    {"protocol": {"minWriterVersion": 7, "writerFeatures": 5}},
]  # fmt: skip


@pytest.mark.parametrize("text", [*map(json.dumps, DAMAGED), "[" * 100_000], ids=lambda text: text[:60])
def test_a_commit_with_an_action_of_another_form_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text(text)
    with pytest.raises(TargetError, match="is damaged"):
        TableLog(str(tmp_path)).refresh()


@pytest.mark.parametrize("text", ["[]", "5", "[" * 100_000, '{"numRecords": "5"}'], ids=lambda text: text[:20])
def test_statistics_of_another_form_are_none(text: str) -> None:
    assert data_file(text).statistics == data_file(None).statistics

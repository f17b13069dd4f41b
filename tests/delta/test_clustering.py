"""Clustered tables: their columns in the log, through commits, checkpoints and restorations; statistics of these."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.delta import (
    RETENTION_PROPERTIES,
    FoldLayout,
    Snapshot,
    TableLog,
    UnionLayout,
    UnionPart,
    choose_files,
    clusterable,
    clustered,
    creation,
    kept_clustering,
    leaves_to,
    open_parquet,
    prepare_fold,
    restoration,
    snapshot_at,
    take_over,
    union_actions,
    unsupported_requirements,
    write_checkpoint,
    write_files,
)
from tests.delta.commits import commit
from tests.delta.test_definition import NTZ, schema

ROWS = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("note", pa.string())])
COLUMNS = schema(id="long", day="date", note="string")


def made(folder: Path, *cluster_by: str, columns: str = COLUMNS, **properties: str) -> TableLog:
    actions = creation(columns, {**RETENTION_PROPERTIES, **properties}, cluster_by=cluster_by)
    commit(str(folder), Snapshot(), actions, "CREATE TABLE", {}, blind=True)
    return TableLog(str(folder))


def put(log: TableLog, actions: list[Any]) -> Snapshot:
    assert actions
    commit(log.folder, log.refresh(), actions, "WRITE", {}, blind=False)
    return log.refresh()


def names_in_log(table: Snapshot) -> list[list[str]]:
    names: list[list[str]] = json.loads(table.domains["delta.clustering"])["clusteringColumns"]
    return names


def test_a_clustered_table_asks_nothing_of_readers(tmp_path: Path) -> None:
    table = made(tmp_path, "day", "id").refresh()
    assert table.clustering == ("day", "id")
    assert (table.protocol["minReaderVersion"], table.protocol["minWriterVersion"]) == (1, 7)
    assert table.reader_features == frozenset()
    assert table.features == frozenset({"appendOnly", "invariants", "clustering", "domainMetadata"})
    assert unsupported_requirements(table) == []
    assert unsupported_requirements(table, partitioned=True) == ["clustering", "domainMetadata"]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 0


def test_other_columns_are_one_action_and_none_if_the_table_has_them(tmp_path: Path) -> None:
    log = made(tmp_path)
    table = put(log, clustered(log.refresh(), ["note"]))
    assert table.clustering == ("note",)
    assert table.features == frozenset({"appendOnly", "invariants", "clustering", "domainMetadata"})
    assert clustered(table, ["note"]) == []
    actions = clustered(table, ["id", "note"])
    assert [list(action) for action in actions] == [["domainMetadata"]]
    assert put(log, actions).clustering == ("id", "note")
    table = put(log, clustered(log.refresh(), []))
    assert (table.clustering, names_in_log(table)) == ((), [])
    assert clustered(table, []) == []


def test_names_in_files_count_where_they_differ(tmp_path: Path) -> None:
    log = made(tmp_path, "unit price", columns=schema(**{"id": "long", "unit price": "integer"}))
    table = log.refresh()
    assert table.clustering == ("unit price",)
    assert names_in_log(table) == [[table.names.path(("unit price",))[0]]] != [["unit price"]]
    assert clusterable(table, ["unit price", "id"]) == ("unit price", "id")


@pytest.mark.parametrize("text", ["[]", "{", '{"clusteringColumns": 1}', '{"clusteringColumns": ["day", ["id", "x"]]}'])
def test_what_others_write_is_read_as_far_as_it_is_known(tmp_path: Path, text: str) -> None:
    log = made(tmp_path, "id")
    domain = {"domain": "delta.clustering", "configuration": text, "removed": False}
    assert put(log, [{"domainMetadata": domain}]).clustering == (("day",) if "day" in text else ())
    assert put(log, [{"domainMetadata": {**domain, "removed": True}}]).domains == {}


def test_only_columns_with_an_order_and_statistics_count(tmp_path: Path) -> None:
    columns = schema(id="long", flag="boolean", data="binary", at=NTZ, amount="decimal(10,2)")
    log = made(tmp_path, columns=columns, **{"delta.dataSkippingNumIndexedCols": "1"})
    assert clusterable(log.refresh(), ["flag", "data", "at", "gone", "amount", "id"]) == ("amount", "id")
    rows = pa.table({"id": [1], "amount": pa.array([1], pa.decimal128(10, 2))})
    put(
        log,
        list(write_files(rows.to_batches(), log.folder, rows.schema, "snappy", leaves=log.refresh().indexed_leaves)),
    )
    table = log.refresh()
    assert clusterable(table, ["amount", "id"]) == ("id",), "a file has no statistics of the other"
    (file,) = table.files.values()
    assert json.loads(file.action["stats"])["maxValues"] == {"id": 1}


@pytest.mark.parametrize(("text", "leaves"), [("7", 7), ("-1", 2**31 - 1), ("0", 0), ("x", 32), (None, 32)])
def test_how_many_columns_have_statistics(text: str | None, leaves: int) -> None:
    properties = {} if text is None else {"delta.dataSkippingNumIndexedCols": text}
    assert Snapshot(metadata={"configuration": properties}).indexed_leaves == leaves


def test_leaves_are_counted_up_to_the_last_column() -> None:
    columns = schema(id="long", at=NTZ, tags={"type": "array", "elementType": "string", "containsNull": True}, n="long")
    assert [leaves_to(columns, names) for names in ([], ["id"], ["at"], ["n", "id"])] == [0, 1, 2, 4]


def test_checkpoints_have_the_domains_and_who_clustered_a_file(tmp_path: Path) -> None:
    log = made(tmp_path, "day")
    rows = pa.table({"id": [1], "day": [None], "note": ["x"]}, ROWS)
    (added,) = write_files(rows.to_batches(), log.folder, ROWS, "snappy")
    add = {**json.loads(added)["add"], "clusteringProvider": "liquid"}
    put(log, [{"add": add}, {"domainMetadata": {"domain": "x", "configuration": "{}", "removed": False}}])
    write_checkpoint(log.folder)
    Path(tmp_path, "_delta_log", f"{0:020}.json").unlink()
    table = TableLog(log.folder).refresh()
    assert (table.version, table.clustering, [*table.domains]) == (1, ("day",), ["delta.clustering", "x"])
    assert [file.action["clusteringProvider"] for file in table.files.values()] == ["liquid"]
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 1


def test_a_column_that_goes_is_no_clustering_column(tmp_path: Path) -> None:
    table = made(tmp_path, "day", "id").refresh()
    assert kept_clustering(table, COLUMNS) == []
    (action,) = kept_clustering(table, schema(id="long", note="string"))
    assert json.loads(action["domainMetadata"]["configuration"]) == {"clusteringColumns": [["id"]]}


def test_restored_and_replaced_tables_get_the_columns_of_the_other_one(tmp_path: Path) -> None:
    log = made(tmp_path)
    put(log, clustered(log.refresh(), ["day"]))
    other = made(tmp_path / "_successor_1_00000000", "id", "note")
    table = put(log, take_over(log.refresh(), other.refresh(), "_successor_1_00000000", {}))
    assert table.clustering == ("id", "note")
    assert take_over(table, other.refresh(), "_successor_1_00000000", {}) == []
    assert put(log, restoration(table, snapshot_at(log.folder, 1))).clustering == ("day",)
    table = put(log, restoration(log.refresh(), snapshot_at(log.folder, 0)))
    assert (table.clustering, restoration(table, snapshot_at(log.folder, 0))) == ((), [])


def test_a_merged_table_is_partitioned_so_it_is_not_clustered(tmp_path: Path) -> None:
    part = made(tmp_path / "_shards", "day").refresh()
    actions = union_actions(Snapshot(), UnionLayout("_shard", "note"), [UnionPart("a", "_shards", part)])
    protocol = next(action["protocol"] for action in actions if "protocol" in action)
    assert protocol == {"minReaderVersion": 1, "minWriterVersion": 2}


def test_folded_rows_are_in_the_order_of_the_clustering_columns(tmp_path: Path) -> None:
    log = made(tmp_path, "day")
    days = [date.fromordinal(730_000 + n) for n in (3, 1, 2, 1)]
    for number, day in enumerate(days):
        rows = pa.table({"id": [10 - number], "day": [day], "note": [None]}, ROWS)
        put(log, list(write_files(rows.to_batches(), log.folder, ROWS, "snappy")))
    table = log.refresh()
    layout = FoldLayout(ROWS, "snappy", ("id",), cluster_by=table.clustering)
    fold = prepare_fold(log.folder, [*table.files.values()], layout)
    assert fold is not None
    put(log, fold.actions(table, ()) or [])
    (file,) = log.refresh().files.values()
    with open_parquet(log.folder, file.name) as opened:
        read = opened.read()
    assert read["day"].to_pylist() == sorted(days)
    assert read["id"].to_pylist()[:2] == [7, 9], "then in key order"
    assert "clusteringProvider" not in file.action, "OPTIMIZE may cluster it"


def test_a_fold_without_statistics_that_the_table_wants_since_is_void(tmp_path: Path) -> None:
    log = made(tmp_path, **{"delta.dataSkippingNumIndexedCols": "1"})
    for number in range(2):
        rows = pa.table({"id": [number], "day": [None], "note": [None]}, ROWS)
        put(log, list(write_files(rows.to_batches(), log.folder, ROWS, "snappy", leaves=1)))
    table = log.refresh()
    fold = prepare_fold(log.folder, [*table.files.values()], FoldLayout(ROWS, "snappy", ("id",), leaves=1))
    assert fold is not None
    assert fold.actions(table, ())
    more = {**table.properties, "delta.dataSkippingNumIndexedCols": "2"}
    assert fold.actions(put(log, [{"metaData": {**table.metadata, "configuration": more}}]), ()) is None


def test_files_that_others_have_clustered_are_folded_only_if_rows_were_deleted(tmp_path: Path) -> None:
    def file(number: int, size: int, deleted: int = 0, **more: str) -> dict[str, Any]:
        vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": deleted}
        stats = json.dumps({"numRecords": 100})
        rest = {"deletionVector": vector} if deleted else {}
        return {"add": {"path": f"{number}", "size": size, "stats": stats, **rest, **more}}

    small = [file(number, 1 << 14, clusteringProvider="liquid") for number in range(8)]
    table = Snapshot().after(0, small, files=True)
    assert choose_files(table) == []
    mixed = table.after(1, [file(number, 1 << 14) for number in range(8, 16)], files=True)
    assert {one.path for one in choose_files(mixed)} == {str(number) for number in range(8, 16)}
    worn = table.after(1, [file(9, 2 << 20, 11, clusteringProvider="liquid")], files=True)
    assert [one.path for one in choose_files(worn)] == ["9"]

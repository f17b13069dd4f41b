"""Tables whose columns have other names in their files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.delta import (
    ColumnNames,
    FoldLayout,
    NewColumn,
    Snapshot,
    TableLog,
    addition,
    copy_file,
    creation,
    prepare_fold,
    unsupported_requirements,
    write_files,
)
from headgate.errors import TargetError
from tests.delta.checkpoints import make_checkpoint
from tests.delta.commits import commit

MAPPED = {"delta.columnMapping.mode": "name"}
FEATURES = frozenset({"appendOnly", "invariants", "deletionVectors", "columnMapping"})
VECTORS = {"delta.enableDeletionVectors": "true"}
NAMES = st.text("ab ,;{}()=.\n\t", min_size=1, max_size=4)
KINDS = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.float64()]),
    lambda inside: st.one_of(
        st.dictionaries(NAMES, inside, min_size=1, max_size=3).map(lambda children: pa.struct([*children.items()])),
        inside.map(pa.list_),
    ),
    max_leaves=4,
)

SCHEMAS = st.dictionaries(NAMES, KINDS, min_size=1, max_size=4).map(lambda columns: pa.schema([*columns.items()]))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_string(kind):
        return st.none() | st.sampled_from(["", "x", "text"])
    return st.none() | st.integers(-9, 9).map(float if pa.types.is_floating(kind) else int)


def made(folder: Path, schema: pa.Schema, properties: dict[str, str]) -> Snapshot:
    """A table of these columns."""
    actions = creation(Schema.from_arrow(schema).to_json(), properties)
    return committed(folder, Snapshot(), actions)


def committed(folder: Path, read: Snapshot, actions: list[Any]) -> Snapshot:
    commit(str(folder), read, actions, "TEST", {}, blind=False)
    return TableLog(str(folder)).refresh()


def append(folder: Path, table: Snapshot, rows: pa.Table, **options: Any) -> Snapshot:
    """In one file."""
    added = list(write_files(rows.to_batches(), str(folder), rows.schema, "snappy", names=table.names, **options))
    assert len(added) == 1
    return committed(folder, table, added)


def read(folder: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    """Of all files as they are opened here, in any order."""
    lines: list[tuple[Any, ...]] = []
    for file in TableLog(str(folder)).refresh().files.values():
        with file.open(str(folder)) as opened:
            rows = opened.read(columns)
        lines += [tuple(row.get(name) for name in columns) for row in rows.to_pylist()]
    return sorted(lines, key=repr)


def by_delta_rs(folder: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    chosen = ", ".join(f'"{name}"' for name in columns)
    result = pa.table(QueryBuilder().register("t", DeltaTable(folder)).execute(f"SELECT {chosen} FROM t").read_all())
    return sorted((tuple(row.values()) for row in result.to_pylist()), key=repr)


def leaves(kind: Any, above: str = "") -> Iterator[tuple[str, int]]:
    """Of a file: each field's path and id."""
    for field in kind:
        path = f"{above}{field.name}"
        yield path, int((field.metadata or {}).get(b"PARQUET:field_id", -1))
        if pa.types.is_struct(field.type):
            yield from leaves(field.type, f"{path}/")


def fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Of a table's JSON, at all depths."""
    for one in kind.get("fields", ()) if isinstance(kind, dict) else ():
        yield one
        yield from fields(one["type"])
    if isinstance(kind, dict) and "elementType" in kind:
        yield from fields(kind["elementType"])


@settings(max_examples=60, deadline=None)
@given(schema=SCHEMAS, data=st.data())
def test_rows_have_the_tables_names_before_and_after_a_file(
    tmp_path_factory: pytest.TempPathFactory, schema: pa.Schema, data: st.DataObject
) -> None:
    """Of whatever name and depth a column is; a file has the physical names and the ids alone."""
    folder = tmp_path_factory.mktemp("mapped")
    table = made(folder, schema, MAPPED)
    rows = data.draw(st.lists(st.fixed_dictionaries({one.name: values(one.type) for one in schema}), max_size=9))
    whole = pa.Table.from_pylist([*rows, *rows], schema=schema)
    batch = whole.slice(len(rows)).combine_chunks()  # whose arrays do not begin at 0
    names, inside = table.names, table.names.in_files(schema)
    assert names.of_table(inside).equals(schema)
    known = {
        one["metadata"]["delta.columnMapping.physicalName"]
        for one in fields(json.loads(table.metadata["schemaString"]))
    }
    assert all(re.fullmatch(r"col-[0-9a-f-]{36}", name) for name in known)
    if rows:
        table = append(folder, table, batch)
        (file,) = table.files.values()
        stored = pq.read_schema(folder / file.name)
        assert [*leaves(stored)] == [*leaves(inside)]
        with file.open(str(folder)) as opened:
            assert opened.read([*schema.names, "none"]).to_pylist() == rows
            (part,) = opened.rows(np.arange(len(rows)), schema.names)
            assert part.to_pylist() == rows
            batches = [*opened.batches(2, schema.names, threads=False)]
        assert [row for batch in batches for row in batch.to_pylist()] == rows


def test_a_table_is_mapped_if_a_name_asks_for_it(tmp_path: Path) -> None:
    before = pa.struct([("the id", pa.int64()), ("v", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("_before", before), ("l", pa.list_(pa.string()))])
    table = made(tmp_path, schema, VECTORS)
    assert unsupported_requirements(table) == []
    assert table.features == FEATURES
    assert table.properties == {**VECTORS, **MAPPED, "delta.columnMapping.maxColumnId": "5"}
    marks = [one["metadata"] for one in fields(json.loads(table.metadata["schemaString"]))]
    assert [mark["delta.columnMapping.id"] for mark in marks] == [1, 2, 3, 4, 5]
    assert Schema.from_json(table.schema_json) == Schema.from_arrow(schema), "what is seen of it has no marks"
    plain = made(tmp_path / "plain", pa.schema([("id", pa.int64())]), VECTORS)
    assert plain.names == ColumnNames()
    assert plain.properties == VECTORS
    assert plain.features == FEATURES - {"columnMapping"}
    legacy = made(tmp_path / "legacy", pa.schema([("a b", pa.int64())]), {})
    assert legacy.protocol["minReaderVersion"] == 2
    assert unsupported_requirements(legacy) == []


@pytest.mark.parametrize("first", ["a", "a b"])
def test_columns_that_are_added(tmp_path: Path, first: str) -> None:
    """If the table was not mapped, its files have their columns under the same names as before."""
    before, after = pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "c=d": pa.string()})
    schema = pa.schema([(first, pa.int64()), ("_before", before)])
    table = append(
        tmp_path,
        made(tmp_path, schema, VECTORS),
        pa.Table.from_pylist([{first: 1, "_before": {"a": 2}}], schema=schema),
    )
    new = [NewColumn("c=d", "string", after=""), NewColumn("c=d", "string", inside="_before"), NewColumn("e", "long")]
    actions = addition(table, new, str)
    assert ("protocol" in actions[0]) == (first == "a")
    table = committed(tmp_path, table, actions)
    assert unsupported_requirements(table) == []
    assert table.features == FEATURES
    assert table.properties["delta.columnMapping.maxColumnId"] == "6"
    marks = {one["name"]: one["metadata"] for one in json.loads(table.metadata["schemaString"])["fields"]}
    assert [*marks] == ["c=d", first, "_before", "e"]
    assert (marks[first]["delta.columnMapping.physicalName"] == first) == (first == "a")
    assert marks["e"]["delta.columnMapping.physicalName"].startswith("col-")
    schema = pa.schema({"c=d": pa.string(), first: pa.int64(), "_before": after, "e": pa.int64()})
    row = {"c=d": "x", first: 3, "_before": {"a": 4, "c=d": "y"}, "e": 5}
    table = append(tmp_path, table, pa.Table.from_pylist([row], schema=schema))
    more = addition(table, [NewColumn("f", "long")], str)
    assert [*more[0]] == ["metaData"]
    table = committed(tmp_path, table, more)
    assert table.properties["delta.columnMapping.maxColumnId"] == "7"
    assert read(tmp_path, ["c=d", first, "e"]) == [("x", 3, 5), (None, 1, None)]
    assert by_delta_rs(tmp_path, ["c=d", first, "e", "f"]) == [("x", 3, 5, None), (None, 1, None, None)]
    make_checkpoint(str(tmp_path))
    assert TableLog(str(tmp_path)).refresh().names == table.names
    assert by_delta_rs(tmp_path, ["c=d", first, "e", "f"]) == [("x", 3, 5, None), (None, 1, None, None)]


def test_bounds_are_found_by_the_tables_names(tmp_path: Path) -> None:
    """Those that were asked for, too, and after a column was renamed; a name that the table had before has none."""
    many = [(f"c {i}", pa.int64()) for i in range(40)]
    schema = pa.schema([*many, ("s t", pa.struct([("a b", pa.int64())])), ("k", pa.string())])
    rows = [{**{name: i for name, _ in many}, "s t": {"a b": i}, "k": "abc"[i]} for i in range(3)]
    log = TableLog(str(tmp_path))
    table = made(tmp_path, schema, VECTORS)
    append(tmp_path, table, pa.Table.from_pylist(rows, schema=schema), always=["s t"])
    (file,) = log.refresh().files.values()
    assert file.bounds(("c 1",), pa.int64()) == (0, 2)
    assert file.bounds(("s t", "a b"), pa.int64()) == (0, 2)
    assert file.bounds(("k",), pa.string()) is None, "it has no statistics"
    assert "c 1" not in file.action["stats"]
    table = log.refresh()
    text = table.metadata["schemaString"].replace('"c 1"', '"new name"')
    committed(tmp_path, table, [{"metaData": {**table.metadata, "schemaString": text}}])
    (file,) = log.refresh().files.values()
    assert file.bounds(("new name",), pa.int64()) == (0, 2)
    assert file.bounds(("c 1",), pa.int64()) is None
    assert read(tmp_path, ["new name", "c 1"]) == [(0, None), (1, None), (2, None)]


def test_copies_and_folds_of_files_with_fields_that_are_gone(tmp_path: Path) -> None:
    """A name that was dropped and came again is that of another column, at any depth."""
    inside = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", inside), ("v", pa.string())])
    table = made(tmp_path, schema, VECTORS)
    actions = addition(table, [NewColumn("x y", "long")], str)
    table = committed(tmp_path, table, actions)  # files have the columns of before under the same names
    schema = schema.append(pa.field("x y", pa.int64()))
    for i in (2, 1):
        rows = [{"id": i, "s": {"a": i, "b": 10 * i}, "v": "old", "x y": i}]
        table = append(tmp_path, table, pa.Table.from_pylist(rows, schema=schema))
    described = json.loads(table.metadata["schemaString"])
    for i, one in enumerate(fields(described), 90):
        if one["name"] in ("a", "v"):
            one["metadata"] = {"delta.columnMapping.id": i, "delta.columnMapping.physicalName": f"col-{one['name']}"}
    table = committed(tmp_path, table, [{"metaData": {**table.metadata, "schemaString": json.dumps(described)}}])
    folder, sources = str(tmp_path), [*table.files.values()]
    fold = prepare_fold(folder, sources, FoldLayout(schema, "snappy", ("id",)))
    assert fold is not None
    folded = fold.actions(table, ())
    assert folded is not None
    table = committed(tmp_path, table, folded)
    expected = [(1, {"a": None, "b": 10}, None, 1), (2, {"a": None, "b": 20}, None, 2)]
    assert len(table.files) == 1
    assert read(tmp_path, schema.names) == by_delta_rs(tmp_path, schema.names) == expected
    (file,) = table.files.values()
    (added,) = copy_file(folder, file, schema, "snappy", lambda batch: batch, ["id"])
    table = committed(tmp_path, table, [file.removal(data_change=True), added])
    assert read(tmp_path, schema.names) == by_delta_rs(tmp_path, schema.names) == expected
    (file,) = table.files.values()
    assert file.bounds(("id",), pa.int64()) == (1, 2)


def test_rows_of_other_columns_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("a b", pa.int64())])
    table = made(tmp_path, schema, {})
    other = pa.schema([("a b", pa.float64())])
    rows = pa.Table.from_pylist([{"a b": 1.0}], schema=other).to_batches()
    with pytest.raises(pa.ArrowInvalid, match="another schema"):
        list(write_files(rows, str(tmp_path), schema, "snappy", names=table.names))
    gone = pa.schema([("c", pa.int64())])
    with pytest.raises(TargetError, match="no longer has a column c"):
        list(write_files([], str(tmp_path), gone, "snappy", names=table.names))
    assert not list(tmp_path.glob("*.parquet"))


def test_a_log_without_names(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64())])).to_json()
    for number, properties in enumerate(({}, {"delta.columnMapping.mode": "none"}, MAPPED)):
        folder = tmp_path / str(number)
        (folder / "_delta_log").mkdir(parents=True)
        metadata = {"id": "t", "format": {"provider": "parquet"}, "schemaString": schema, "partitionColumns": []}
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {**metadata, "configuration": properties}},
        ]
        (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
        if properties is MAPPED:
            with pytest.raises(TargetError, match="damaged"):
                print(TableLog(str(folder)).refresh().names)
        else:
            assert TableLog(str(folder)).refresh().names == ColumnNames()

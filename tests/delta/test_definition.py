"""How a table is made, and gets columns, in its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headgate.delta import (
    Description,
    NewColumn,
    Snapshot,
    TableLog,
    addition,
    creation,
    describing,
    needs_mapping,
    unsupported_requirements,
)
from headgate.errors import TargetError
from tests.delta.commits import commit


def schema(**kinds: Any) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields})


def made(folder: Path, text: str, **properties: str) -> Snapshot:
    """A table of these columns."""
    actions = creation(text, properties)
    commit(str(folder), Snapshot(), actions, "CREATE TABLE", {}, blind=True)
    return TableLog(str(folder)).refresh()


def add(table: Snapshot, columns: list[NewColumn]) -> list[dict[str, Any]]:
    """Of columns whose types are names."""
    return addition(table, columns, str)


def names(table: Snapshot) -> list[str]:
    return [field["name"] for field in json.loads(table.schema_json)["fields"]]


NTZ = {"type": "struct", "fields": json.loads(schema(at="timestamp_ntz"))["fields"]}
VARIANT = {"type": "struct", "fields": json.loads(schema(v="variant"))["fields"]}


@pytest.mark.parametrize(
    ("kinds", "vectors", "features"),
    [
        ({"a": "long"}, "false", {"appendOnly", "invariants"}),
        ({"a": "long"}, "true", {"appendOnly", "invariants", "deletionVectors"}),
        ({"a": "long", "b": NTZ}, "false", {"appendOnly", "invariants", "timestampNtz"}),
        ({"a": "long", "b": VARIANT}, "false", {"appendOnly", "invariants", "variantType"}),
        (
            {"a": {"type": "array", "elementType": "timestamp_ntz", "containsNull": True}},
            "true",
            {"appendOnly", "invariants", "timestampNtz", "deletionVectors"},
        ),
    ],
)
def test_a_table_has_the_features_that_its_columns_ask_for(
    tmp_path: Path, kinds: dict[str, Any], vectors: str, features: set[str]
) -> None:
    table = made(tmp_path, schema(**kinds), **{"delta.enableDeletionVectors": vectors, "headgate.table": "t"})
    assert table.features == frozenset(features)
    assert unsupported_requirements(table) == []
    assert table.properties["headgate.table"] == "t"
    assert json.loads(DeltaTable(tmp_path).schema().to_json())["fields"][0]["name"] == "a"


def test_what_needs_mapping() -> None:
    assert needs_mapping("a=b")
    assert not needs_mapping("größe")


def test_columns_come_where_they_are_asked_for(tmp_path: Path) -> None:
    before = {"type": "struct", "fields": json.loads(schema(a="long"))["fields"]}
    table = made(tmp_path, schema(a="long", b="string", _before=before))
    new = [
        NewColumn("first", "string", after=""),
        NewColumn("second", "string", after="first"),
        NewColumn("last", "timestamp_ntz"),
        NewColumn("b", "string", inside="_before"),
    ]
    actions = add(table, new)
    commit(str(tmp_path), table, actions, "ADD COLUMNS", {}, blind=False)
    table = TableLog(str(tmp_path)).refresh()
    assert names(table) == ["first", "second", "a", "b", "_before", "last"]
    assert table.features == frozenset({"appendOnly", "invariants", "timestampNtz"})
    columns = json.loads(DeltaTable(tmp_path).schema().to_json())["fields"]
    assert [field["name"] for field in columns[4]["type"]["fields"]] == ["a", "b"]


def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path, schema(a="long"))
    for column, message in (
        (NewColumn("A", "long"), "cannot add column A: the table has one of this name"),
        (NewColumn("b", "long", after="c"), "cannot add column b after c, which the table lacks"),
        (NewColumn("b", "long", inside="a"), "cannot add column b: the table has no struct a"),
    ):
        with pytest.raises(TargetError, match=message):
            add(table, [column])
    mapped = Snapshot(0, table.protocol, {**table.metadata, "configuration": {"delta.columnMapping.mode": "id"}})
    assert unsupported_requirements(mapped) == ["delta.columnMapping.mode"]


def test_a_table_is_created_with_comments_and_columns_that_are_never_null(tmp_path: Path) -> None:
    about = Description("All orders", {"id": "the number", "item": ""}, {"id"})
    actions = creation(schema(id="long", item="string"), {}, about)
    commit(str(tmp_path), Snapshot(), actions, "CREATE TABLE", {}, blind=True)
    table = DeltaTable(tmp_path)
    fields = {field.name: (field.nullable, field.metadata) for field in table.schema().fields}
    assert fields == {"id": (False, {"comment": "the number"}), "item": (True, {})}
    assert table.metadata().description == "All orders"
    assert describing(TableLog(str(tmp_path)).refresh(), about) == [], "it has them"


@pytest.mark.parametrize(
    ("about", "description", "comments"),
    [
        (Description(None, {"Item": "what"}), "All orders", {"id": "the number", "item": "what"}),
        (Description("", {"id": ""}), None, {}),
        (Description("Orders", {"unknown": "x"}), "Orders", {"id": "the number"}),
    ],
)
def test_comments_change_and_go(
    tmp_path: Path, about: Description, description: str | None, comments: dict[str, str]
) -> None:
    actions = creation(schema(id="long", item="string"), {}, Description("All orders", {"id": "the number"}))
    commit(str(tmp_path), Snapshot(), actions, "CREATE TABLE", {}, blind=True)
    log = TableLog(str(tmp_path))
    commit(str(tmp_path), log.refresh(), describing(log.refresh(), about), "CHANGE COLUMNS", {}, blind=False)
    table = DeltaTable(tmp_path)
    assert table.metadata().description == description
    fields = table.schema().fields
    assert {field.name: field.metadata["comment"] for field in fields if "comment" in field.metadata} == comments
    assert describing(log.refresh(), about) == []

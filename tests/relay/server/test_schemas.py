"""Schemas: made from definitions, read from Databus's registry, numbered for ever."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import fastavro
import pytest

from headgate.catalog import Column, TableDef
from headgate.errors import ConfigError, StorageError
from headgate.relay.databus import avro_text
from headgate.relay.server import LogicalSource, SourceNames, _names
from headgate.relay.server.events import METADATA, Registry, field_attributes, generate
from tests.relay.server.rows import PERSON
from tests.relay.server.serving import physical

SOURCE = "com.linkedin.events.example.or_test.Person"


def field(name: str, kind: str, db_name: str, position: int) -> dict[str, object]:
    return {"name": name, "type": [kind, "null"], "meta": f"dbFieldName={db_name};dbFieldPosition={position};"}


DATABUS = {  # the form of the schema that comes with Databus's example
    "name": "Person_V1", "doc": "made by hand", "type": "record", "meta": "dbFieldName=person;pk=id;",
    "namespace": "com.linkedin.events.example.or_test",
    "fields": [
        field("id", "long", "ID", 0), field("firstName", "string", "FIRST_NAME", 1),
        field("lastName", "string", "LAST_NAME", 2), field("birthDate", "long", "BIRTH_DATE", 3),
        field("deleted", "string", "DELETED", 4),
    ],
}  # fmt: skip


def test_a_schema_is_made_from_a_definition() -> None:
    schema = generate(SOURCE, 1, PERSON, "exact")
    assert schema["name"] == "Person_V1"
    assert schema["namespace"] == "com.linkedin.events.example.or_test"
    assert schema["meta"] == "dbFieldName=person;pk=id;"
    assert schema["fields"][1] == {
        "name": "firstName", "type": ["null", "string"], "default": None,
        "meta": "dbFieldName=first_name;dbFieldPosition=1;dbFieldType=VARCHAR;",
    }  # fmt: skip
    assert field_attributes(schema["fields"][0]["meta"]) == {
        "dbFieldName": "id", "dbFieldPosition": "0", "dbFieldType": "BIGINT",
    }  # fmt: skip
    fastavro.parse_schema(schema)


def test_the_types_of_databus() -> None:
    columns = (
        Column("a", "decimal", precision=10, scale=2), Column("b", "date"), Column("c", "datetime"),
        Column("d", "bigint", unsigned=True), Column("e", "mediumint", unsigned=True), Column("f", "int"),
    )  # fmt: skip
    table = TableDef("d", "t", columns, (3, 5))
    schema = generate("T", 1, table, "databus")
    assert [one["type"][1] for one in schema["fields"]] == ["double", "long", "long", "long", "int", "long"]
    assert "BIGINT UNSIGNED;" in schema["fields"][3]["meta"]
    assert schema["meta"] == "dbFieldName=t;pk=d,f;"
    assert "namespace" not in schema


def test_names_that_avro_does_not_take() -> None:
    odd = ("first name", "firstName", "1st", "ÄÖ", "ID", "ab_CD")
    table = TableDef("d", "t-1", tuple(Column(name, "int") for name in odd))
    schema = generate("a.t-1", 3, table, "exact")
    assert [one["name"] for one in schema["fields"]] == ["firstName", "firstName_1", "_1st", "column", "id", "abCD"]
    assert schema["name"] == "t_1_V3"
    fastavro.parse_schema(schema)


ODD = {
    "type": "record", "name": "shop.Order", "namespace": "not.used", "doc": "of a shop", "meta": "dbFieldName=t;",
    "number": 7, "fields": [
        {
            "name": "amount", "doc": "with VAT", "default": None, "order": "ignore", "meta": "m;", "pos": 3,
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
        },
        {
            "name": "state", "order": "ascending",
            "type": {"type": "enum", "name": "State", "symbols": ["A", "B"], "doc": "or", "aliases": ["Old"]},
        },
        {"name": "before", "type": ["null", "shop.State"]},
        {
            "name": "place", "type": {
                "type": "record", "name": "Place", "namespace": "geo", "doc": "there",
                "fields": [{"name": "srid", "type": {"type": "int"}}],
            },
        },
        {"name": "there", "type": ["null", "geo.Place"]},
        {"name": "v", "type": {"type": "array", "items": "float", "dims": 3}},
        {"name": "m", "type": {"type": "map", "values": {"type": "fixed", "name": "Id", "size": 16}}},
    ],
}  # fmt: skip


def test_text_and_identity_are_those_of_avros_java_library() -> None:
    """What Avro 1.4.0 printed of these, the version that Databus's client has."""
    text = avro_text(DATABUS)
    assert text.startswith(
        '{"type":"record","name":"Person_V1","namespace":"com.linkedin.events.example.or_test",'
        '"fields":[{"name":"id","type":["long","null"],"meta":"dbFieldName=ID;dbFieldPosition=0;"},'
    )
    assert text.endswith('],"meta":"dbFieldName=person;pk=id;"}')
    assert avro_text(json.loads(text)) == text
    assert avro_text({"type": "string"}) == '"string"'
    assert avro_text(ODD) == (
        '{"type":"record","name":"Order","namespace":"shop","fields":['
        '{"name":"amount","type":["null",{"type":"bytes","logicalType":"decimal"}],"doc":"with VAT","default":null,'
        '"order":"ignore","meta":"m;"},'
        '{"name":"state","type":{"type":"enum","name":"State","symbols":["A","B"],"aliases":["Old"]}},'
        '{"name":"before","type":["null","State"]},'
        '{"name":"place","type":{"type":"record","name":"Place","namespace":"geo","fields":['
        '{"name":"srid","type":"int"}]}},'
        '{"name":"there","type":["null","geo.Place"]},'
        '{"name":"v","type":{"type":"array","items":"float"}},'
        '{"name":"m","type":{"type":"map","values":{"type":"fixed","name":"Id","size":16}}}],'
        '"meta":"dbFieldName=t;"}'
    )


def test_the_identity_of_decimals_is_the_one_that_databuss_client_computes() -> None:
    """By Avro 1.4.0 and Java's MD5 of what the relay makes of these columns."""
    columns = (Column("id", "bigint", nullable=False), Column("c", "decimal", precision=10, scale=2))
    schema = Registry(None).schema_of("a.b.T", TableDef("d", "t", columns, (0,)))
    assert schema.digest.hex() == "09942ecb3ec8b6302b4da136e2bcf144"


def test_schemas_that_no_id_can_tell_apart(tmp_path: Path) -> None:
    def of(name: str, scale: int) -> str:
        kind = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": scale}
        fields = [{"name": "p", "type": ["null", kind], "meta": "dbFieldName=p;dbFieldPosition=0;"}]
        return json.dumps({"type": "record", "name": name, "fields": fields, "meta": "pk=;"})

    for version, text in enumerate((of("T", 2), of("T_2", 3), of("T", 2)), 1):
        (tmp_path / f"x.T.{version}.avsc").write_text(text)
    assert [one.version for one in Registry(tmp_path).versions("x.T")] == [1, 2, 3]
    (tmp_path / "y.T.1.avsc").write_text(of("T", 4))  # another source: its events say which one they are of
    (tmp_path / "x.T.4.avsc").write_text(of("T", 3))
    with pytest.raises(ConfigError, match=r"x\.T\.1\.avsc and x\.T\.4\.avsc have the same id"):
        Registry(tmp_path)


def test_schemas_of_rows_before_updates_have_one_name(tmp_path: Path) -> None:
    """Their versions are of all sources together, and stay what they are."""
    assert not Registry(None).metadata_version(Registry(None).schema_of(SOURCE, PERSON))
    wider = replace(PERSON, columns=(*PERSON.columns, Column("age", "int")))
    first = Registry(tmp_path / "plain").schema_of(SOURCE, PERSON)
    assert [file.name for file in (tmp_path / "plain").iterdir()] == [f"{SOURCE}.1.avsc"]
    registry = Registry(tmp_path / "plain", before_images=True)  # there was a schema before this was asked for
    assert registry.metadata_version(first) == 1
    other = registry.schema_of("a.Other", PERSON)
    second = registry.schema_of(SOURCE, wider)
    assert [registry.metadata_version(one) for one in (first, other, second)] == [1, 2, 3]
    assert [one.text for one in registry.versions(METADATA)] == [one.text for one in (first, other, second)]
    again = Registry(tmp_path / "plain", before_images=True)
    assert [again.metadata_version(one) for one in (second, other, first)] == [3, 2, 1]
    assert again.metadata_version(again.schema_of("a.Other", wider)) == 4
    assert (tmp_path / "plain" / f"{METADATA}.4.avsc").is_file()


def test_databuss_own_schema_is_used(tmp_path: Path) -> None:
    file = tmp_path / f"{SOURCE}.1.avsc"
    file.write_text(json.dumps(DATABUS, indent=2))
    (tmp_path / "index.schemas_registry").write_text(f"{file.name}\n")
    registry = Registry(tmp_path)
    schema = registry.schema_of(SOURCE, PERSON)
    assert (schema.version, schema.text) == (1, file.read_text())
    assert schema.digest == hashlib.md5(avro_text(DATABUS).encode()).digest()


def test_a_changed_definition_is_a_new_version_for_ever(tmp_path: Path) -> None:
    (tmp_path / f"{SOURCE}.1.avsc").write_text(json.dumps(DATABUS))
    wider = replace(PERSON, columns=(*PERSON.columns, Column("age", "int")))
    retyped = replace(wider, columns=(*PERSON.columns, Column("age", "bigint")))
    registry = Registry(tmp_path)
    assert [registry.schema_of(SOURCE, one).version for one in (PERSON, wider, retyped, wider, PERSON)] == [
        1,
        2,
        3,
        2,
        1,
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"{SOURCE}.{n}.avsc" for n in (1, 2, 3)]
    again = Registry(tmp_path)
    assert [one.version for one in again.versions(SOURCE)] == [1, 2, 3]
    assert again.schema_of(SOURCE, retyped).digest == registry.schema_of(SOURCE, retyped).digest
    assert [again.schema_of(SOURCE, one).version for one in (wider, PERSON)] == [2, 1]


def test_names_of_any_characters_keep_their_versions(tmp_path: Path) -> None:
    """Those of tables make no folders, and lead to none; those of columns do not end their attribute."""
    folder = tmp_path / "outer" / "schemas"
    columns = tuple(Column(name, "int") for name in ("a;b", " c", "d\u3000", "50%", "%3B", "e=f", "ä"))
    tables = [TableDef("x", name, columns, (0,)) for name in ("a/b", "../../b", "50%", "%2F", "t;pk=d", "ä b")]
    for _ in range(2):
        registry = Registry(folder)
        for table in tables:
            schema = registry.schema_of(f"x.{table.name}", table)
            assert schema.version == 1
            fields = [field_attributes(one["meta"])["dbFieldName"] for one in schema.value["fields"]]
            assert fields == [one.name for one in columns]
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == [
        "x.%252F.1.avsc", "x...%2F..%2Fb.1.avsc", "x.50%25.1.avsc", "x.a%2Fb.1.avsc", "x.t;pk=d.1.avsc",
        "x.ä b.1.avsc",
    ]  # fmt: skip
    assert len(list(folder.iterdir())) == len(tables)


@pytest.mark.parametrize(
    "other",
    [
        replace(PERSON, key=()),
        replace(PERSON, key=(0, 1)),
        replace(PERSON, columns=PERSON.columns[:-1]),
        replace(PERSON, columns=(*PERSON.columns[1:], PERSON.columns[0]), key=(4,)),
        replace(PERSON, columns=(Column("nr", "bigint"), *PERSON.columns[1:])),
    ],
)
def test_what_a_schema_does_not_describe(other: TableDef) -> None:
    registry = Registry(None)
    assert registry.schema_of(SOURCE, PERSON).version == 1
    assert registry.schema_of(SOURCE, other).version == 2


def test_a_decimal_that_grew_is_a_new_version() -> None:
    registry = Registry(None)
    for version, precision in enumerate((10, 12), 1):
        table = TableDef("d", "t", (Column("p", "decimal", precision=precision, scale=2),))
        assert registry.schema_of("T", table).version == version


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"type": "record"}', '{"type": "record", "fields": [1]}', "\xff",
        '{"type": "record", "name": "T", "fields": [{"name": "a"}]}', '{"type": "record", "fields": []}',
        '{"type": "record", "name": "T", "fields": [{"name": "a", "type": {"type": "array"}}]}',
        '{"type": "record", "name": "T", "fields": [{"name": "a", "type": 7}]}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_schema(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.T.1.avsc").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"x\.T\.1\.avsc"):
        Registry(tmp_path)


def test_names_of_any_length(tmp_path: Path) -> None:
    """Two names of 64 characters that take three bytes each, as MySQL allows for a database and its table."""
    (tmp_path / "of the user").mkdir()
    (tmp_path / "of the user" / "x.T.1.avsc").write_text("no schema")
    names = [f"com.example.{'数' * 64}.{'表' * 64}", f"x.{'/' * 64}{'%' * 128}", "é" * 1000, "x" * 200, "x" * 201]
    registry = Registry(tmp_path)
    schemas = {name: registry.schema_of(name, PERSON) for name in names}
    again = Registry(tmp_path)
    assert {name: again.schema_of(name, PERSON) for name in names} == schemas
    assert again.versions("x.T") == []
    assert (tmp_path / f"{'x' * 200}.1.avsc").is_file()


def test_an_id_is_kept_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    source = physical(1, "p", LogicalSource(40, "x", "d.*"))
    names = SourceNames([source], tmp_path / "sources.json")
    with monkeypatch.context() as patch:
        patch.setattr(_names, "write_json", full)
        for _ in range(2):
            with pytest.raises(StorageError):
                names.find(1, "d", "a")
    assert names.find(1, "d", "b").id == 40
    assert SourceNames([source], tmp_path / "sources.json").by_id(40) == names.by_id(40)

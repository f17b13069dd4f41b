"""Tasks as messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headgate._policies import DEFAULT, Policies, parse_rules
from headgate.catalog import AddedColumn, Column, ColumnChange, DroppedColumn, RedefinedColumn, TableDef
from headgate.columns import TableCodec
from headgate.replication import Ddl, canonical_schema
from headgate.spark._carried import _ruled_changes, definition_of
from tests.spark.model import batch_of


def test_the_definition_of_images() -> None:
    image = batch_of("d.t", [("c", 1, 0, 1)])
    found = definition_of(image.table, image.batch.schema)
    assert (found.table, found.key, found.types) == ("d.t", ("id",), {"id": "int", "v": "int"})
    assert found.fingerprint == image.table.common_fingerprint
    assert [(column.mysql, column.nullable) for column in found.columns] == [("int", True)] * 2


def test_json_becomes_a_variant_where_the_policy_says_so() -> None:
    table = TableDef("d", "t", (Column("id", "int"), Column("j", "json")), (0,))
    schema = canonical_schema(table, [pa.field("id", pa.int32()), pa.field("j", pa.string())])
    policies = Policies.make({}, {"d.t": {"json": "variant"}})
    for chosen, expected in ((policies, "variant"), (DEFAULT, "string"), (policies, "variant")):
        assert list(definition_of(table, schema, chosen).types.values()) == ["int", expected]


def test_the_definition_of_renamed_columns() -> None:
    rules = parse_rules({"d.t": {"id": {"rename": "nr"}, "v": {"rename": "id", "rule": {"text": "-"}}}})
    table = TableDef("d", "t", (Column("id", "int"), Column("v", "int"), Column("w", "int")), (0,))
    codec = TableCodec(table, Policies(columns=rules))
    found = definition_of(codec.table, canonical_schema(codec.table, codec.fields), Policies(columns=rules))
    assert (found.key, found.types) == (("nr",), {"nr": "int", "id": "string", "w": "int"})
    assert (found.source_names, found.rules) == ({"nr": "id", "id": "v"}, {"id": "text:-"})
    plain = definition_of(table, canonical_schema(table, [pa.field(one.name, pa.int32()) for one in table.columns]))
    assert (plain.source_names, plain.rules) == ({}, {})


RULES = {"d.t": {"Mail": {"rename": "email"}, "born": {"rename": "b", "rule": "null"}, "x": "exclude"}}
WIDER = RedefinedColumn("mail", "mail", "bigint")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (AddedColumn("mail", default="7"), [AddedColumn("email", default="7")]),
        (AddedColumn("born", default="7"), [AddedColumn("b")]),
        (DroppedColumn("mail"), [DroppedColumn("email")]),
        (DroppedColumn("BORN"), [DroppedColumn("b")]),
        (WIDER, [RedefinedColumn("email", "email", "bigint")]),
        (RedefinedColumn("a", "b2"), [RedefinedColumn("a", "b2")]),
        (RedefinedColumn("mail", "other"), None),
        (RedefinedColumn("other", "mail"), None),
        (RedefinedColumn("mail", "MAIL"), None),
        (RedefinedColumn("born", "born", "bigint"), None),
        (RedefinedColumn("x", "other"), None),
        (RedefinedColumn("x", "x", "bigint"), []),
        (DroppedColumn("x"), []),
    ],
)
def test_names_of_statements_become_those_of_the_target(
    change: ColumnChange, expected: list[ColumnChange] | None
) -> None:
    ddl = Ddl("ALTER", "alter", "d", "t", None, 0, "f.1", 1, 4, changes=(change,))
    changes = _ruled_changes(ddl, Policies(columns=parse_rules(RULES)))
    assert changes == (None if expected is None else tuple(expected))

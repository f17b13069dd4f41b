"""Tasks as messages."""

from __future__ import annotations

import pyarrow as pa

from headgate._policies import DEFAULT, Policies
from headgate.catalog import Column, TableDef
from headgate.replication import canonical_schema
from headgate.spark._carried import definition_of
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

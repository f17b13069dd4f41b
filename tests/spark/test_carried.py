"""Tasks as messages, and as typed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headgate.carrier import Redo
from headgate.catalog import AddedColumn, Column, ColumnChange, DroppedColumn, RedefinedColumn, TableDef
from headgate.columns import TableCodec, hooked_table
from headgate.errors import ChunkRetryError, SchemaChangedError
from headgate.mysql import ConnectionSettings
from headgate.offsets import ChunkSpec
from headgate.policies import DEFAULT, Hook, Policies, parse_rules
from headgate.replication import Ddl, ImageBatch, canonical_schema
from headgate.snapshot import ChunkOptions
from headgate.spark import MySQLCDCDataSource, Task
from headgate.spark._carried import _changes, _ddl, _ruled_changes, _schema_json, _truncate, definition_of
from headgate.spark._typed import typed_fields, typed_rows
from tests.spark.model import UUID, batch_of, definition


def test_the_definition_of_images() -> None:
    image = batch_of("d.t", [("c", 1, 0, 1)])
    definition = definition_of(image.table, image.batch.schema)
    assert (definition.table, definition.key, definition.types) == ("d.t", ("id",), {"id": "int", "v": "int"})
    assert [(column.mysql, column.nullable) for column in definition.columns] == [("int", True)] * 2


def test_a_definition_has_the_comments_of_the_table_if_they_are_known() -> None:
    columns = (Column("id", "int", nullable=False, comment="the number"), Column("v", "int", comment="a value"))
    rules = Policies(columns=parse_rules({"d.t": {"v": {"rename": "w"}}}))
    for comment, comments in (
        ("All", {"id": "the number", "w": "a value"}),
        ("", {"id": "the number", "w": "a value"}),
    ):
        codec = TableCodec(TableDef("d", "t", columns, (0,), comment=comment), rules)
        definition = definition_of(codec.table, canonical_schema(codec.table, codec.fields), rules)
        assert (definition.comment, definition.comments, [*definition.required]) == (comment, comments, ["id"])
        assert definition == type(definition).from_json(definition.to_json())
    codec = TableCodec(TableDef("d", "t", columns, (0,)), rules)
    logged = definition_of(codec.table, canonical_schema(codec.table, codec.fields), rules)
    assert (logged.comment, logged.comments) == (None, {}), "the log has none"
    assert logged.with_comments_of(definition) == definition
    assert definition.with_comments_of(logged) == definition.with_comments_of(None) == definition


def test_a_hook_keeps_the_comments_of_columns_that_come_through() -> None:
    """Although it was called first for an equal definition from the log."""
    policies = Policies.make({}, {"d.t": {"hook": Hook("tests.hooks_of_tests:counted", "9")}})
    for comment, expected in ((None, {}), ("All", {"id": "the number", "count": ""})):
        table = TableDef("d", "t", (Column("id", "int", nullable=False, comment="the number"),), (0,), comment=comment)
        codec = TableCodec(table, policies)
        hook = hooked_table(codec.table, codec.fields, policies)
        assert definition_of(codec.table, pa.schema([]), policies, hook).comments == expected


def test_a_chosen_key_may_be_null_at_the_source() -> None:
    columns = (Column("id", "int"), Column("n", "int", nullable=False))
    table = TableDef("d", "t", columns, (0, 1), has_chosen_key=True)
    schema = canonical_schema(table, [pa.field("id", pa.int32()), pa.field("n", pa.int32())])
    assert definition_of(table, schema).required == {"n"}


def test_a_truncation_is_a_statement() -> None:
    images = batch_of("d.t", [("t", 0, 0, 1)])
    ddl = _truncate(ImageBatch(TableDef("d", "t", (), ()), images.batch))
    assert (ddl.table, ddl.action, ddl.seq, ddl.ts) == ("d.t", "truncate", (1, 1, 1, 1), 1)


def test_a_table_with_a_column_named_like_ours_is_refused() -> None:
    table = TableDef("d", "t", (Column("id", "int"), Column("_SEQ", "int")), key=(0,))
    with pytest.raises(SchemaChangedError, match="_SEQ"):
        typed_fields(table, DEFAULT, meta=True)
    assert [field.name for field in typed_fields(definition("d.t"), DEFAULT, meta=False)] == ["id", "v"]


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
    definition = definition_of(codec.table, canonical_schema(codec.table, codec.fields), Policies(columns=rules))
    assert (definition.key, definition.types) == (("nr",), {"nr": "int", "id": "string", "w": "int"})
    assert (definition.source_names, definition.rules) == ({"nr": "id", "id": "v"}, {"id": "text:-"})
    plain = definition_of(table, canonical_schema(table, [pa.field(one.name, pa.int32()) for one in table.columns]))
    assert (plain.source_names, plain.rules) == ({}, {})


@pytest.mark.parametrize("key", [("v",), ("gone",)])
def test_a_table_that_can_no_longer_be_read_has_no_definition(key: tuple[str, ...]) -> None:
    table = TableDef("d", "t", (Column("id", "int"), Column("v", "int")), ())
    definition = _schema_json(table, Policies.make({}, {"d.t": {"key": key}}))
    assert (definition is None) == (key == ("gone",))


RULES = {
    "d.t": {
        "Mail": {"rename": "email"},
        "born": {"rename": "b", "rule": "null"},
        "x": "exclude",
        "masked": {"text": "-"},
        "mail2": {"rename": "email"},
        "date": {"rename": "d", "rule": "null"},
    }
}
WIDER = RedefinedColumn("mail", "mail", "bigint")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (AddedColumn("mail", default="7"), [AddedColumn("email", default="7")]),
        (AddedColumn("born", default="7"), [AddedColumn("b")]),
        (AddedColumn("born", known=False), [AddedColumn("b")]),
        (AddedColumn("masked", default="7"), [AddedColumn("masked", known=False)]),
        (AddedColumn("masked", nullable=True), [AddedColumn("masked")]),
        (AddedColumn("x", known=False), []),
        (DroppedColumn("mail"), [DroppedColumn("email")]),
        (DroppedColumn("BORN"), [DroppedColumn("b")]),
        (WIDER, [RedefinedColumn("email", "email", "bigint", "mail", "mail")]),
        (RedefinedColumn("a", "b2"), [RedefinedColumn("a", "b2")]),
        (RedefinedColumn("mail", "other"), [RedefinedColumn("email", "other", None, "mail", "")]),
        (RedefinedColumn("other", "mail"), [RedefinedColumn("other", "email", None, "", "mail")]),
        (RedefinedColumn("mail", "mail2"), [RedefinedColumn("email", "email", None, "mail", "mail2")]),
        (RedefinedColumn("mail", "MAIL", "int"), [RedefinedColumn("email", "email", "int", "mail", "MAIL")]),
        (RedefinedColumn("born", "born", "bigint"), None),
        (RedefinedColumn("born", "date"), [RedefinedColumn("b", "d", None, "born", "date")]),
        (RedefinedColumn("born", "other"), None),
        (RedefinedColumn("other", "born"), None),
        (RedefinedColumn("x", "other"), [AddedColumn("other", known=False)]),
        (RedefinedColumn("x", "born"), [AddedColumn("b")]),
        (RedefinedColumn("born", "x"), [DroppedColumn("b")]),
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


@pytest.mark.parametrize(("new_name", "unmasks"), [("d.u", ("masked", "x")), (None, ())])
def test_the_statement_that_takes_columns_out_of_rules_with_their_table(
    monkeypatch: pytest.MonkeyPatch, new_name: str | None, unmasks: tuple[str, ...]
) -> None:
    columns = tuple(Column(name, "int") for name in ("id", "masked", "x", "Mail"))
    monkeypatch.setattr("headgate.spark._carried.table_now", lambda *_: TableDef("d", "u", columns, (0,)))
    ddl = Ddl("RENAME TABLE …", "rename", "d", "t", None, 0, "f.1", 1, 4, new_name=new_name)
    row = _ddl(ConnectionSettings("nobody"), ddl, 1, Policies(columns=parse_rules(RULES)))
    assert row.unmasks == unmasks


def test_the_definition_of_what_a_hook_makes() -> None:
    """Its own columns have types of their Arrow types; those that came through keep MySQL's, as VARIANT does."""
    text = Column("j", "json")
    table = TableDef("d", "t", (Column("id", "int", nullable=False), Column("v", "datetime", scale=2), text), (0,))
    policies = Policies.make({}, {"d.t": {"json": "variant", "hook": Hook("tests.hooks_of_tests:counted", "7")}})
    codec = TableCodec(table, policies)
    definition = definition_of(codec.table, pa.schema([]), policies, hooked_table(codec.table, codec.fields, policies))
    assert [(one.name, one.spark, one.mysql, one.nullable) for one in definition.columns] == [
        ("id", "int", "int", False), ("v", "timestamp_ntz", "datetime(2)", True), ("j", "variant", "json", True),
        ("count", "bigint", "bigint", True),
    ]  # fmt: skip
    assert definition.hook.startswith("tests.hooks_of_tests:counted@7/")
    assert definition == type(definition).from_json(definition.to_json())
    other = Policies.make({"json": "variant"}, {"d.t": {"hook": Hook("tests.hooks_of_tests:counted")}})
    made = definition_of(codec.table, pa.schema([]), other, hooked_table(codec.table, codec.fields, other))
    assert made == replace(definition, hook=definition.hook.replace("@7", "@1"))


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        (AddedColumn("n"), False),
        (DroppedColumn("n"), False),
        (RedefinedColumn("n", "m"), False),
        (RedefinedColumn("a", "b"), False),
        (RedefinedColumn("n", "n", "text"), True),
        (RedefinedColumn("a", "a", "text"), True),
    ],
)
def test_an_alter_of_the_columns_that_a_hook_gets_may_change_every_row(change: ColumnChange, *, is_known: bool) -> None:
    def changes(*made: ColumnChange, hook: Hook | None) -> Sequence[ColumnChange] | None:
        ddl = Ddl("ALTER TABLE t …", "alter", "d", "t", None, 1, "binlog.000001", 1, 4, changes=made)
        rules = {"d.t": {"a": {"rename": "c"}, "b": {"rename": "c"}, "x": "exclude"}}
        return _changes(ddl, Policies.make({"columns": parse_rules(rules)}, {"d.t": {"hook": hook}}))

    ruled = changes(change, hook=None)
    assert ruled
    assert changes(change, hook=Hook("m:f")) == (ruled if is_known else None)
    assert changes(hook=Hook("m:f")) == changes(AddedColumn("x", default="1"), hook=Hook("m:f")) == ()


def test_only_a_query_is_told_to_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who compares tables, which reads rows of the past in the same way."""
    redo = Redo(ChunkSpec("d.t", 0, None, None), "the table was altered")
    monkeypatch.setattr("headgate.spark._typed.read_task", lambda *_: [redo])
    settings, task = ConnectionSettings("h"), Task(UUID, f"{UUID}:1", 1, 0, ("d.t",))
    with pytest.raises(ChunkRetryError) as caught:
        list(typed_rows(settings, task, "d.t", pa.schema([]), "all", ChunkOptions(DEFAULT)))
    assert caught.value.message == "a chunk cannot be read exactly: the table was altered"
    source = MySQLCDCDataSource({"url": "mysql://u@h", "table": "d.t"})
    with pytest.raises(
        ChunkRetryError, match="altered; start the query again: a stream with a new checkpoint"
    ) as caught:
        list(source.streamReader(StructType([])).read(InputPartition(task)))
    assert caught.value.fields["table"] == "d.t"

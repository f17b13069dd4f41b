"""A relay's rules for columns: in its file, in schemas, in events and in predicates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec, rules_mark
from headgate.errors import ConfigError
from headgate.policies import MaskKey, Policies, parse_rules
from headgate.relay.server import RelayConfig, load_relay
from headgate.relay.server.events import Registry, RowDecoder, RowEncoder, SourceFilter, compile_filters
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import served
from tests.relay.server.test_sources import TOML
from tests.relay.server.test_where import passes

RULES: dict[str, Any] = {
    "d.t": {
        "id": {"rename": "nr"}, "n": "hash", "price": {"text": "-"}, "done": "boolean", "kind": "number",
        "born": "null", "gone": "exclude", "name": {"rename": "first_name", "rule": {"truncate": 1}},
    }
}  # fmt: skip
TABLE = TableDef(
    "d",
    "t",
    (
        Column("gone", "json"),
        Column("id", "bigint", nullable=False),
        Column("n", "int", unsigned=True),
        Column("price", "decimal", precision=6, scale=2),
        Column("done", "tinyint"),
        Column("kind", "enum", members=("a", "b")),
        Column("born", "date"),
        Column("name", "varchar", length=40, charset="utf8mb4"),
    ),
    (1,),
)


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> Policies:
    monkeypatch.setenv("KEY_OF_RELAY_RULES", "a key of 16 bytes or more")
    return Policies(columns=parse_rules(RULES), mask_key=MaskKey(env="KEY_OF_RELAY_RULES"))


@pytest.mark.parametrize("types", ["exact", "databus"])
def test_schemas_have_names_and_types_of_what_is_served(policies: Policies, types: Any) -> None:
    registry = Registry(None, types)
    schema = registry.schema_of("test.T", TableCodec(TABLE, policies).table)
    fields = {one["name"]: (one["type"][1], one["meta"]) for one in schema.value["fields"]}
    born = {"type": "int", "logicalType": "date"} if types == "exact" else "long"
    assert {name: kind for name, (kind, _) in fields.items()} == {
        "nr": "long", "n": "string", "price": "string", "done": "boolean", "kind": "long", "born": born,
        "firstName": "string",
    }  # fmt: skip
    assert fields["n"][1] == "dbFieldName=n;dbFieldPosition=1;dbFieldType=VARCHAR;"
    assert schema.value["meta"] == "dbFieldName=t;pk=nr;"
    assert registry.schema_of("test.T", TableCodec(TABLE, policies).table) is schema
    plain = registry.schema_of("test.T", TABLE)
    assert (plain.version, len(plain.value["fields"])) == (2, 8)


def test_rows_are_written_and_read_and_compared(policies: Policies) -> None:
    codec, registry = TableCodec(TABLE, policies), Registry(None)
    schema = registry.schema_of("test.T", codec.table)
    columns = [
        pa.array([1, 2, 3]), pa.array(["x", None, "y"]), pa.array(["-", None, "-"]), pa.array([True, False, None]),
        pa.array([1, 0, None], pa.int32()), pa.nulls(3, pa.date32()), pa.array(["A", "B", None]),
    ]  # fmt: skip
    assert [one.type for one in columns] == [one.type for one in codec.fields]
    rows = RowEncoder(schema, codec.table, codec.fields).encode(columns)
    starts = np.cumsum(rows.sizes) - rows.sizes
    data = np.zeros(int(rows.sizes.sum()), np.uint8)
    rows.put(starts, data)
    decoded = RowDecoder(schema.value).decode(data, starts, rows.sizes)
    assert [column.to_pylist() for column in decoded] == [column.to_pylist() for column in columns]
    again = RowEncoder(schema, codec.table, codec.fields).encode([one.slice(1) for one in columns])  # not on a byte
    shorter = np.zeros(int(again.sizes.sum()), np.uint8)
    again.put(np.cumsum(again.sizes) - again.sizes, shorter)
    assert shorter.tobytes() == data[starts[1] :].tobytes()

    for where, expected in (
        ("done = TRUE", [True, False, False]),
        ("done <> 1", [False, True, False]),
        ("done IN (FALSE, TRUE)", [True, True, False]),
        ("done IS NULL", [False, False, True]),
        ("first_name = 'A' AND kind = 1", [True, False, False]),
        ("price = '-'", [True, False, True]),
    ):
        assert [passes(one.tobytes(), schema, where) for one in np.split(data, starts[1:])] == expected, where
    for where, message in (
        ("done > 0", "compare boolean columns"),
        ("done = 2", "compare boolean columns"),
        ("done = '1'", "compare boolean columns"),
        ("name = 'Anna'", "there is no column name"),
        ("gone = 'x'", "there is no column gone"),
        ("n = 5", "compare n with a text"),
    ):
        with pytest.raises(ValueError, match=message):
            compile_filters({1: SourceFilter(where)}, lambda _: [schema])


def test_rules_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    more = 'mask_key_file = "mask.key"\n' + TOML + '[columns."shop.*"]\n"*mail" = "hash"\n'
    file.write_text(more)
    config = load_relay([file])
    assert config.policies.columns == parse_rules({"shop.*": {"*mail": "hash"}})
    assert config.policies.mask_key == MaskKey(file=str(tmp_path / "mask.key"))
    for old, new, message in (
        ('"hash"', '"rot13"', "is not a rule for a column"),
        ('mask_key_file = "mask.key"', 'mask_key_file = "a"\nmask_key_env = "b"', "keep one"),
        ('mask_key_file = "mask.key"', 'mask_key_env = "the secret"', "mask_key_env: expected the name of an"),
        ("disk_bytes = ", "log_disk_bytes = 2000000\ndisk_bytes = ", "the binlog archive has every value"),
    ):
        file.write_text(more.replace(old, new))
        with pytest.raises(ConfigError, match=message):
            load_relay([file])
    file.write_text("log_disk_bytes = 2000000\n" + more.replace('"hash"', '"boolean"'))
    assert load_relay([file]).log_disk_bytes == 2_000_000, "nothing is hidden"
    assert RelayConfig(physical=config.physical).policies.columns == ()


def test_marks_of_rules(policies: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    others = Policies(columns=parse_rules({"d.t": {"n": "null"}}))
    monkeypatch.setenv("OTHER", "another key of 16 bytes")
    other_key = Policies(columns=policies.columns, mask_key=MaskKey(env="OTHER"))
    assert rules_mark(Policies()) == ""
    assert len({"", rules_mark(policies), rules_mark(others), rules_mark(other_key)}) == 4
    monkeypatch.setenv("SAME", "a key of 16 bytes or more")
    assert rules_mark(Policies(columns=policies.columns, mask_key=MaskKey(env="SAME"))) == rules_mark(policies)


def test_a_buffer_made_by_other_rules_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mark, kept = tmp_path / "partition-1.mark.json", list[bool]()
    for hides in (False, False, True, True):
        rules = {"or_test.person": {"deleted": "null"}} if hides else {}
        with served(state=tmp_path, disk_bytes=1 << 20, memory_bytes=256 << 10, columns=rules) as relay:
            kept.append(relay.relay.partitions[1].buffer.info().max_scn > 0)
            relay.put(block(people([1], gtids=[f"{UUID}:{len(kept)}"], pos=[100])))
            relay.relay.partitions[1].feeder._file.save()
        assert bool(json.loads(mark.read_text())["rules"]) == bool(rules)
    assert kept == [False, True, False, True]
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning == "person: the rules in [columns] changed, so the buffer's files are dropped"

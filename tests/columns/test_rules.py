from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column, TableDef
from headgate.columns import TableCodec, column_rules, hash_mark
from headgate.errors import ConfigError, DecodeError, UnsupportedError
from headgate.policies import KEEP, ColumnRule, Decimals, MaskKey, Policies, parse_rules
from tests.columns.cells import block

KEY = "a key of 16 bytes or more"
TABLE = TableDef(
    "d",
    "t",
    (
        Column("id", "bigint", nullable=False),
        Column("secret", "varchar", length=40, charset="utf8mb4"),
        Column("note", "varchar", length=40, charset="utf8mb4"),
        Column("done", "tinyint"),
        Column("kind", "enum", members=("a", "b", "c"), charset="utf8mb4"),
        Column("price", "decimal", precision=6, scale=2),
    ),
    (0,),
)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> MaskKey:
    monkeypatch.setenv("MASKS", KEY)
    return MaskKey(env="MASKS")


def policies(rules: object, key: MaskKey | None = None) -> Policies:
    return Policies(columns=parse_rules(rules), mask_key=key)


def test_the_last_rule_that_matches_counts() -> None:
    rules = {"*.*": {"SECRET": "null", "n*": "exclude"}, "d.*": {"note": "keep"}, "e.*": {"secret": "keep"}}
    table_rules = column_rules(policies(rules), TABLE)
    assert [rule.kind for rule in table_rules] == ["keep", "null", "keep", "keep", "keep", "keep"]
    assert column_rules(Policies(), TABLE) == (KEEP,) * 6


def test_excluded_columns_are_neither_selected_nor_decoded() -> None:
    codec = TableCodec(TABLE, policies({"d.t": {"secret": "exclude", "done": "exclude"}}))
    assert [field.name for field in codec.fields] == [column.name for column in codec.table.columns]
    assert (codec.places, codec.table.key_names) == ((0, 2, 4, 5), ("id",))
    assert codec.select_list == "`id`, `note`, `kind`, `price`"
    arrays = codec.from_text(block([(b"1", b"n", b"a", b"1.50")]))
    assert [array.to_pylist() for array in arrays[:3]] == [[1], ["n"], ["a"]]
    row = (b"\1" + bytes(7), b"\xff not text", b"n", b"too long for a tinyint", b"\2", bytes(4))
    ids, notes, kinds = codec.from_log(block([row]), columns=[0, 1, 2])
    assert (ids.to_pylist(), notes.to_pylist(), kinds.to_pylist()) == ([1], ["n"], ["b"])


def test_masks(key: MaskKey) -> None:
    rules = {"d.t": {"secret": "hash", "note": {"truncate": 2}, "price": {"text": "***"}, "kind": "null"}}
    codec = TableCodec(TABLE, policies(rules, key))
    assert codec.select_list == "`id`, `secret`, `note`, `done`, NULL, IF(`price` IS NULL, NULL, 1)"
    rows = [(b"1", b"me@x.org", "añb".encode(), b"1", None, b"1"), (b"2", None, b"", None, None, None)]
    arrays = codec.from_text(block(rows))
    hashed = hmac.new(KEY.encode(), b"me@x.org", hashlib.sha256).hexdigest()
    assert [array.to_pylist() for array in arrays] == [
        [1, 2], [hashed, None], ["añ", ""], [1, None], [None, None], ["***", None]
    ]  # fmt: skip
    assert [array.type for array in arrays] == [field.type for field in codec.fields]
    assert tuple(column.rule for column in codec.table.columns[1:]) == (
        "hash:" + hmac.new(KEY.encode(), b"headgate", hashlib.sha256).hexdigest()[:8],
        "truncate:2", "", "null", "text:***",
    )  # fmt: skip


@given(
    st.lists(st.none() | st.binary(max_size=200) | st.integers(50, 70).map(bytes), min_size=1, max_size=20),
    st.text("aé", min_size=16, max_size=150),
)
def test_hashes_are_those_of_python(values: list[bytes | None], key: str) -> None:
    """Around the lengths of SHA-256's blocks, too, of values and of keys."""
    table = TableDef("d", "t", (Column("data", "longblob"),))
    name = f"MASKS_{key.encode().hex()}"  # a codec is made once for the same policies
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, key)
        codec = TableCodec(table, policies({"d.t": {"data": "hash"}}, MaskKey(env=name)))
    (hashes,) = codec.from_text(block([[value] for value in values]))
    hashes.validate(full=True)
    assert hashes.to_pylist() == [
        None if value is None else hmac.new(key.encode(), value, hashlib.sha256).hexdigest() for value in values
    ]


def test_a_process_that_finds_another_key_than_the_run_began_with_makes_no_hashes(tmp_path: Path) -> None:
    file, rules = tmp_path / "key", {"d.t": {"secret": "hash"}}
    file.write_text(KEY)
    began = hash_mark(policies(rules, MaskKey(file=str(file))))
    TableCodec(TABLE, policies(rules, MaskKey(file=str(file), mark=began)))
    assert hash_mark(policies({"d.t": {"secret": "null"}})) == ""
    file.write_text(KEY + "!")
    (tmp_path / "link").symlink_to(file)  # as another process reads it
    with pytest.raises(ConfigError, match=r"link is another one than when the run began: start the run again"):
        TableCodec(TABLE, policies(rules, MaskKey(file=str(tmp_path / "link"), mark=began)))


def test_numbers_are_hashed_as_their_text(key: MaskKey) -> None:
    codec = TableCodec(TABLE, policies({"d.t": {"done": "hash", "price": "hash", "kind": "hash"}}, key))
    arrays = codec.from_text(block([(b"1", None, None, b"-7", b"b", b"12.50")]))
    expected = [hmac.new(KEY.encode(), text, hashlib.sha256).hexdigest() for text in (b"-7", b"b", b"12.50")]
    assert [array.to_pylist() for array in arrays[3:]] == [[one] for one in expected]


@pytest.mark.parametrize("decimals", ["decimal", "double", "text"])
@pytest.mark.parametrize("precision", [10, 65])
def test_a_decimal_is_hashed_as_its_digits(key: MaskKey, decimals: Decimals, precision: int) -> None:
    """In no other form, not ``1E-7``: whatever type it would have without the rule."""
    column = Column("rate", "decimal", precision=precision, scale=8)
    table = TableDef("d", "t", (*TABLE.columns[:1], column), (0,))
    codec = TableCodec(table, replace(policies({"d.t": {"rate": "hash"}}, key), decimals=decimals))
    texts = [b"0.00000000", b"0.00000012", b"-1.50000000"]
    expected = [hmac.new(KEY.encode(), text, hashlib.sha256).hexdigest() for text in texts]
    assert codec.from_text(block([(b"1", text) for text in texts]))[1].to_pylist() == expected
    if precision == 10:
        logged = [b"\x80\0\0\0\0", b"\x80\0\0\0\x0c", bytes(255 - byte for byte in b"\x81\x02\xfa\xf0\x80")]
        assert codec.from_log(block([(bytes(8), one) for one in logged]))[1].to_pylist() == expected


def test_types_on_request() -> None:
    table = TableDef("d", "t", (*TABLE.columns, Column("flag", "bit", precision=1)), (0,))
    codec = TableCodec(table, policies({"*.*": {"done": "boolean", "flag": "boolean", "kind": "number"}}))
    assert [field.type for field in codec.fields[3:5]] == [pa.bool_(), pa.int32()]
    assert "CAST(`kind` AS UNSIGNED)" in codec.select_list
    texts = codec.from_text(block([(b"1", None, None, d, k, None, f) for d, k, f in READ]), columns=[3, 4, 6])
    logged = codec.from_log(block([(bytes(8), None, None, d, k, None, f) for d, k, f in LOGGED]), columns=[3, 4, 6])
    for arrays in (texts, logged):
        assert [array.to_pylist() for array in arrays] == [
            [False, True, True, None], [1, 3, 0, None], [False, True, True, None]
        ]  # fmt: skip


READ = [(b"0", b"1", b"\0"), (b"1", b"3", b"\1"), (b"-1", b"0", b"\1"), (None, None, None)]
LOGGED = [(b"\0", b"\1", b"\0"), (b"\1", b"\3", b"\1"), (b"\xff", b"\0", b"\1"), (None, None, None)]


def test_an_unknown_member_is_an_error() -> None:
    codec = TableCodec(TABLE, policies({"d.t": {"kind": "number"}}))
    with pytest.raises(DecodeError, match="number of one of the values"):
        codec.from_log(block([(bytes(8), None, None, None, b"\4", None)]), columns=[4])


@pytest.mark.parametrize("rule", ["exclude", "null", "hash", {"text": "x"}, {"truncate": 1}])
def test_values_of_a_key_are_not_hidden(rule: object) -> None:
    with pytest.raises(UnsupportedError, match="a column of the key") as caught:
        TableCodec(TABLE, policies({"d.t": {"id": rule}}))
    assert caught.value.fields["column"] == "id"


def test_a_key_keeps_its_type() -> None:
    table = TableDef("d", "t", (Column("on", "tinyint"), Column("kind", "enum", members=("a",))), (0, 1))
    codec = TableCodec(table, policies({"*.*": {"on": "boolean", "kind": "number"}}))
    assert [field.type for field in codec.fields] == [pa.int8(), pa.string()]
    assert [column.rule for column in codec.table.columns] == ["", ""]


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        ("note", "boolean"),
        ("price", "boolean"),
        ("note", "number"),
        ("price", {"truncate": 3}),
        ("done", {"truncate": 1}),
    ],
)
def test_a_rule_for_another_type(column: str, rule: object) -> None:
    with pytest.raises(UnsupportedError, match="which it is not for"):
        TableCodec(TABLE, policies({"d.t": {column: rule}}))


def test_an_error_does_not_show_a_masked_value(key: MaskKey) -> None:
    codec = TableCodec(TABLE, policies({"d.t": {"secret": "hash"}}, key))
    with pytest.raises(DecodeError, match="masked column") as caught:
        codec.from_text(block([(b"1", b"ok", b"", b"1", b"a", b"1"), (b"2", b"\xffsecret", b"", b"1", b"a", b"1")]))
    assert (caught.value.fields["row"], "736563726574" in str(caught.value)) == (1, False)


def test_the_key_of_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n", encoding="utf-8")
    monkeypatch.setenv("SHORT", "short")
    monkeypatch.setenv("MASKS", KEY)
    row = (b"1", b"ok", b"", b"1", b"a", b"1.50")
    hashes = [
        TableCodec(TABLE, policies({"d.t": {"secret": "hash"}}, source)).from_text(block([row]))[1].to_pylist()
        for source in (MaskKey(file=str(file)), MaskKey(env="MASKS"))
    ]
    assert hashes[0] == hashes[1] == [hmac.new(KEY.encode(), b"ok", hashlib.sha256).hexdigest()]
    for source, reason in (
        (None, "needs a key"), (MaskKey(env="SHORT"), "shorter than 16"), (MaskKey(env="ABSENT_"), "missing"),
        (MaskKey(file=str(tmp_path / "none")), "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=reason):
            TableCodec(TABLE, policies({"d.t": {"secret": "hash"}}, source))


@pytest.mark.parametrize(
    "rules",
    [[], {"d.t": "hash"}, {"d": {"a": "hash"}}, {"!d.t": {}}, {"d.t": {"a": "rot13"}}, {"d.t": {"a": {"truncate": -1}}},
     {"d.t": {"a": {"truncate": True}}}, {"d.t": {"a": {"text": "x", "truncate": 1}}}, {"d.t": {"a": 5}},
     {"d.t": {"a": {"rename": "b", "truncate": 1}}}, {"d.t": {"a": {"rename": 5}}},
     {"d.t": {"a": {"rename": "b", "rule": "rot13"}}}],
)  # fmt: skip
def test_what_is_not_a_rule(rules: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_rules(rules)


def test_rules_are_spelled_as_they_are_read() -> None:
    renamed = [{"rename": "b"}, {"rename": "b", "rule": "keep"}, {"rename": "é b", "rule": {"truncate": 2}}]
    for value in ("keep", "exclude", "null", "hash", "boolean", "number", {"text": "x"}, {"truncate": 0}, *renamed):
        assert ColumnRule.parse(value).spelled() == value
    rules = {"d.*": {"a": "hash", "b": {"text": "-"}}}
    masking = Policies(columns=parse_rules(rules))
    assert json.loads(masking.as_options()["columns"]) == rules
    assert masking.of("d.t").columns == masking.columns

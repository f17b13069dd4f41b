"""Signals in Debezium's JSON: what is understood, and what is said of the rest."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.control import Condition, Signal, parse_signal, sending_us, signal_file, submit
from headgate.errors import ConfigError

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
EXECUTE = {"data-collections": [r"shop\.orders"]}


def test_the_documented_example() -> None:
    signal = parse_signal(
        {
            "id": "d139b9b7",
            "type": "execute-snapshot",
            "data": {
                "data-collections": [r"shop\.orders", r"shop\.item.*", r"shop\.orders"],
                "type": "incremental",
                "additional-conditions": [{"data-collection": r"shop\.orders", "filter": "status = 'a;b'"}],
                "surrogate-key": "code",
            },
        }
    )
    assert signal == Signal(
        "d139b9b7", "execute-snapshot", (r"shop\.orders", r"shop\.item.*"), "INCREMENTAL",
        (Condition(r"shop\.orders", "status = 'a;b'"),), "code",
    )  # fmt: skip
    assert [signal.names(table) for table in ("shop.orders", "shop.orders2", "shop.items", "xshop.items")] == [
        True, False, True, False,
    ]  # fmt: skip
    assert signal.unmatched(["shop.orders", "a.b"]) == [r"shop\.item.*"]
    assert signal.filter_of("shop.orders") == "status = 'a;b'"
    assert signal.filter_of("shop.items") is None
    assert signal.idle_conditions(["shop.orders", "shop.items"]) == []
    assert signal.idle_conditions(["shop.orders2", "shop.items"]) == [r"shop\.orders"]


def test_data_as_text_and_without_id() -> None:
    signal = parse_signal({"id": "", "type": "stop-snapshot", "data": ""}, name="row-7")
    assert signal == Signal("row-7", "stop-snapshot")
    assert signal.names("any.table")
    assert parse_signal('{"type": "log", "data": "{\\"message\\": \\"at {}\\"}"}').message == "at {}"
    ids = {parse_signal({"type": "pause-snapshot"}).id for _ in range(3)}
    assert len(ids) == 3
    old = parse_signal({"type": "execute-snapshot", "data": {**EXECUTE, "additional-condition": "a = 1"}})
    assert old.filter_of("shop.orders") == "a = 1"


def blocking(text: str, collection: str = r"shop\.orders", kind: str = "BLOCKING") -> Signal:
    conditions = [{"data-collection": collection, "filter": text}]
    data = {"data-collections": [r"shop\..*"], "type": kind, "additional-conditions": conditions}
    return parse_signal({"type": "execute-snapshot", "data": data})


@pytest.mark.parametrize(
    ("select", "condition"),
    [
        ("SELECT * FROM shop.orders WHERE a > 1", "a > 1"),
        ("select *\nfrom `shop` . `orders`\nwhere(`limit` = ' ORDER BY x') and b in (1, 2);", None),
        ("SELECT * FROM shop.orders WHERE SUBSTRING(a FROM 1 FOR 2) = 'x' OR `group` = 1", None),
        ("a > 1", "a > 1"),
    ],
)
def test_a_blocking_snapshot_s_select_is_a_condition(select: str, condition: str | None) -> None:
    signal = blocking(select)
    expected = condition or re.split("where", select, maxsplit=1, flags=re.IGNORECASE)[1].strip().rstrip(";")
    assert signal.filter_of("shop.orders") == expected
    assert signal.filter_of("shop.orders2") is None
    assert parse_signal(signal.to_dict()) == signal
    assert blocking("SELECT * FROM shop.orders").conditions == ()


@pytest.mark.parametrize(
    ("select", "collection", "message"),
    [
        ("SELECT id FROM shop.orders", r"shop\.orders", "must be SELECT * FROM db.table"),
        ("SELECT * FROM orders WHERE a = 1", r"shop\.orders", "must be SELECT * FROM db.table"),
        ("SELECT * FROM shop.orders o WHERE o.a = 1", r"shop\.orders", "must be SELECT * FROM db.table"),
        ("SELECT * FROM shop.orders, shop.items WHERE a = 1", r"shop\.orders", "must be SELECT * FROM db.table"),
        ("SELECT * FROM shop.orders LIMIT 5", r"shop\.orders", "must be SELECT * FROM db.table"),
        ("SELECT * FROM shop.orders WHERE a > 1 ORDER BY a", r"shop\.orders", "it has ORDER"),
        ("SELECT * FROM shop.orders WHERE (a > 1) limit 5", r"shop\.orders", "it has LIMIT"),
        ("SELECT * FROM shop.orders WHERE a = 1 UNION SELECT 1", r"shop\.orders", "it has UNION"),
        ("SELECT * FROM shop.orders WHERE a IN (SELECT 1)", r"shop\.orders", "read other tables"),
        ("SELECT * FROM shop.orders WHERE a = 1 -- x", r"shop\.orders", "comments"),
        ("SELECT * FROM shop.orders WHERE a = 1; DROP TABLE x", r"shop\.orders", "semicolons"),
        ("SELECT * FROM shop.orders WHERE", r"shop\.orders", "not a condition"),
        ("SELECT * FROM shop.orders WHERE a = 1", r"shop\..*", "belongs to the one table that it names"),
        ("SELECT * FROM shop.orders WHERE a = 1", r"shop[.]items", "selects from shop.orders"),
    ],
)
def test_selects_that_are_more_than_a_condition(select: str, collection: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        blocking(select, collection)


def test_an_incremental_snapshot_takes_no_select() -> None:
    with pytest.raises(ConfigError, match="write the condition alone"):
        blocking("SELECT * FROM shop.orders WHERE a > 1", kind="INCREMENTAL")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "a signal is not JSON"),
        ({"type": "schema-changes", "data": {"database": "d"}}, "no schema history"),
        ({"type": "set-binlog-position", "data": {"gtid_set": "x:1"}}, "all tables are read again"),
        ([], "a signal is not a JSON object"),
        ({}, "unknown signal type None: expected execute-snapshot"),
        ({"type": "execute_snapshot"}, "did you mean execute-snapshot?"),
        ({"type": "log", "id": 7, "data": {"message": "x"}}, "the id of a signal is 7, not text"),
        ({"type": "log", "id": "x" * 200, "data": {"message": "x"}}, "too long"),
        ({"type": "log"}, 'no "message"'),
        ({"type": "log", "data": "["}, "the data of a signal is not JSON"),
        ({"type": "log", "date": {}}, "unknown key 'date' in a signal"),
        ({"type": "execute-snapshot"}, 'no "data-collections"'),
        ({"type": "execute-snapshot", "data": {"data-collections": []}}, 'no "data-collections"'),
        ({"type": "execute-snapshot", "data": {"data-collections": "shop.a"}}, "expected a list"),
        ({"type": "execute-snapshot", "data": {"data-collections": ["*.a"]}}, "not a regular expression"),
        ({"type": "execute-snapshot", "data": {"data-collections": ["a{9999999999}"]}}, "not a regular expression"),
        ({"type": "execute-snapshot", "data": {"data-collections": ["(" * 9999]}}, "not a regular expression"),
        ({"type": "execute-snapshot", "data": {"data-collections": ["s.[[a]b]"]}}, "has a set in a set"),
        ({"type": "execute-snapshot", "data": {"data-collections": ["s.[a&&[b]]"]}}, "an operation on sets"),
        ({"type": "execute-snapshot", "data": {"data-collections": ["s.[[a"]}}, "has a set in a set"),
        ({"type": "log", "data": '{"message": "cut \\ud83d"}'}, "the data of a signal is not JSON"),
        ({"type": "log", "data": "[" * 100_000}, "the data of a signal is not JSON"),
        ({"type": "execute-snapshot", "data": {**EXECUTE, "type": "full"}}, "expected INCREMENTAL or BLOCKING"),
        ({"type": "execute-snapshot", "data": {**EXECUTE, "surogate-key": "x"}}, "did you mean surrogate-key?"),
        ({"type": "execute-snapshot", "data": {**EXECUTE, "surrogate-key": 1}}, "surrogate-key is '1'"),
        ({"type": "execute-snapshot", "data": {**EXECUTE, "additional-conditions": "x"}}, "list of objects"),
        ({"type": "execute-snapshot", "data": {**EXECUTE, "additional-conditions": [{"filter": "x"}]}}, "expected"),
        ({"type": "pause-snapshot", "data": {"message": "x"}}, "unknown key 'message' in the data of pause-snapshot"),
    ],
)
def test_what_makes_no_sense_is_said(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_signal(value)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "not a condition"),
        ("a = 'x", "a quote is not closed"),
        ("a = 1; DROP TABLE t", "semicolons"),
        ("a = 1 -- b", "comments"),
        ("a = 1 /* b */", "comments"),
        ("a = 1) OR (1 = 1", "parentheses"),
        ("(a = 1", "parentheses"),
        ("id IN (select id from x)", "the condition alone"),
        ("id IN (TABLE x)", "the condition alone"),
    ],
)
def test_filters_that_are_more_than_a_condition(condition: str, message: str) -> None:
    conditions = [{"data-collection": ".*", "filter": condition}]
    with pytest.raises(ConfigError, match=message):
        parse_signal({"type": "execute-snapshot", "data": {**EXECUTE, "additional-conditions": conditions}})


@pytest.mark.parametrize(
    "condition", ["a = ')' AND (b = \"it''s\")", "`select` = x.table", "a = '\\'' OR b LIKE '%;--%'"]
)
def test_filters_with_quotes(condition: str) -> None:
    conditions = [{"data-collection": ".*", "filter": condition}]
    signal = parse_signal({"type": "execute-snapshot", "data": {**EXECUTE, "additional-conditions": conditions}})
    assert signal.filter_of("shop.orders") == condition


class Folder:
    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}

    def write(self, name: str, value: dict[str, Any]) -> None:
        self.files[name] = json.loads(json.dumps(value))

    def signals(self) -> dict[str, dict[str, Any]]:
        return self.files


def test_a_signal_is_sent_after_those_that_wait_whatever_the_clocks_say() -> None:
    """Else a pause from a machine whose clock is ahead would come after its resume."""
    folder, ahead_us = Folder(), 1 << 60
    submit(folder, parse_signal({"id": "a", "type": "pause-snapshot"}), ahead_us)
    submit(folder, parse_signal({"id": "b", "type": "resume-snapshot"}))
    assert [one["submitted_us"] for one in folder.files.values()] == [ahead_us, ahead_us + 1]
    assert sending_us(Folder(), 7) == 7


@given(st.text(min_size=1, max_size=40).filter(lambda text: len(signal_file(text)) <= 180))
def test_any_id_is_a_file_in_the_folder_and_comes_back(name: str) -> None:
    folder = Folder()
    signal = parse_signal({"id": name, "type": "execute-snapshot", "data": {**EXECUTE, "type": "blocking"}})
    assert submit(folder, signal) == name
    ((file, value),) = folder.files.items()
    assert re.fullmatch(r"signals/[\w~%-][\w.~%-]*\.json", file, re.ASCII)
    assert parse_signal(value) == signal
    assert value["submitted_us"] > 0


@given(st.text(r"[]^\\-&~|a.", max_size=12))
def test_an_expression_is_refused_or_means_the_same_in_java(text: str) -> None:
    """Python warns of sets that it may read otherwise one day, and warnings are errors here."""
    value = {"type": "execute-snapshot", "data": {"data-collections": [text]}}
    with contextlib.suppress(ConfigError):
        parse_signal(json.dumps(value))

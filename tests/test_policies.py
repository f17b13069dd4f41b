from __future__ import annotations

import pickle

from headgate.policies import DEFAULT, POLICY_VALUES, Policies


def test_the_first_value_is_the_default() -> None:
    assert {name: values[0] for name, values in POLICY_VALUES.items()} == DEFAULT.as_options()


def test_a_table_keeps_what_it_does_not_name() -> None:
    policies = Policies.make(
        {"bit": "binary", "time": "text"}, {"d.t": {"time": "microseconds"}, "d.same": {"bit": "binary"}}
    )
    assert policies.of("d.t") == Policies(bit="binary", time="microseconds")
    assert policies.of("d.other") == policies.of("d.same") == Policies(bit="binary")
    assert [table for table, _ in policies.tables] == ["d.t"]


def test_as_options() -> None:
    policies = Policies.make({"zero_dates": "null"}, {"d.t": {"zero_dates": "text"}, "d.u": {"bit": "binary"}})
    assert policies.as_options() == {
        "zero_dates": {"*": "null", "d.t": "text"}, "decimals": "decimal", "wide_decimals": "text", "json": "string",
        "unsigned_bigint": "decimal", "time": "text",
        "bit": {"*": "integer", "d.u": "binary"}, "window": "rewind",
    }  # fmt: skip


def test_policies_travel() -> None:
    policies = Policies.make({}, {"d.t": {"zero_dates": "text"}})
    assert pickle.loads(pickle.dumps(policies)) == policies
    assert len({policies, Policies.make({}, {"d.t": {"zero_dates": "text"}}), DEFAULT}) == 2


def test_without_a_stream_nothing_is_dropped() -> None:
    policies = Policies.make({"window": "drop"}, {"a.b": {"window": "keep"}, "a.c": {"window": "rewind"}})
    alone = policies.without_stream()
    assert [alone.of(table).window for table in ("a.a", "a.b", "a.c")] == ["rewind", "keep", "rewind"]

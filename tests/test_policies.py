"""A policy is declared once: file, options, tasks and pages all have it from there."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from headgate.config import parse_config
from headgate.errors import ConfigError
from headgate.policies import DEFAULT, POLICY_SETTINGS, Policies, PolicySetting
from headgate.spark import Options
from tools import generate_configuration

FILE = """
name = "shop"
[source]
url = "mysql://headgate@127.0.0.1:3306"
tables = ["d.*"]
{common}
[target]
path = "/lake"
[tables."d.t"]
{table}
"""
OPTIONS = {"url": "mysql://u@h", "tables": "d.*"}


def of_file(common: dict[str, Any], table: dict[str, Any]) -> Policies:
    lines = ("\n".join(f"{name} = {json.dumps(value)}" for name, value in one.items()) for one in (common, table))
    return parse_config(FILE.format(common=next(lines), table=next(lines))).policies()


def declared(setting: PolicySetting) -> tuple[Any, ...]:
    return setting.values or setting.examples


@pytest.mark.parametrize(
    ("name", "value"), [(name, one) for name, of in POLICY_SETTINGS.items() for one in declared(of)]
)
def test_a_value_goes_from_the_file_to_a_task(name: str, value: Any) -> None:
    setting = POLICY_SETTINGS[name]
    others = declared(setting) if setting.is_common else ()
    for common, table in [({}, {name: value}), *(({name: one}, {name: value}) for one in others)]:
        policies = of_file(common, table)
        assert getattr(policies.of("d.t"), name) == setting.parse(value)
        assert getattr(policies.of("d.u"), name) == (setting.parse(common[name]) if common else setting.default)
        options = Options.parse(OPTIONS | policies.as_options())
        assert pickle.loads(pickle.dumps(options)).policies == policies


@pytest.mark.parametrize("setting", POLICY_SETTINGS.values(), ids=POLICY_SETTINGS)
@pytest.mark.parametrize("wrong", [7, "", ["no"], [7], {"no": 7}])
def test_a_wrong_value_is_refused_by_name(setting: PolicySetting, wrong: Any) -> None:
    if setting.name == "key" and wrong == ["no"]:
        return
    if wrong != {"no": 7}:
        if setting.is_common:
            with pytest.raises(ConfigError, match=rf"source\.{setting.name}"):
                of_file({setting.name: wrong}, {})
        with pytest.raises(ConfigError, match=rf"tables\.d\.t\.{setting.name}"):
            of_file({}, {setting.name: wrong})
    for text in (json.dumps({"d.t": wrong}), json.dumps(wrong)):
        with pytest.raises(ConfigError) as error:
            Options.parse({**OPTIONS, setting.name: text})
        for part in (f'option "{setting.name}"', repr(text), setting.expected, setting.by_table):
            assert part in str(error.value)


@pytest.mark.parametrize("setting", POLICY_SETTINGS.values(), ids=POLICY_SETTINGS)
def test_the_pages_have_every_policy(setting: PolicySetting) -> None:
    sections = generate_configuration.page().split("\n## ")
    for title, has_it in (("`[source]`", setting.is_common), ('`[tables."db.table"]`', True)):
        (section,) = (one for one in sections if one.startswith(title))
        assert (f"\n| `{setting.name}` |" in section) == has_it, title
    assert f"\n| `{setting.name}` | {setting.help}" in generate_configuration.spark_page()


def test_the_first_value_is_the_default() -> None:
    assert DEFAULT.as_options() == {}
    for setting in POLICY_SETTINGS.values():
        assert setting.values[:1] in ((), (setting.default,)), setting.name
        assert getattr(of_file({}, {}), setting.name) == setting.default


def test_a_table_keeps_what_it_does_not_name() -> None:
    policies = Policies.make(
        {"bit": "binary", "time": "text"}, {"d.t": {"time": "microseconds"}, "d.same": {"bit": "binary"}}
    )
    assert policies.of("d.t") == Policies(bit="binary", time="microseconds")
    assert policies.of("d.other") == policies.of("d.same") == Policies(bit="binary")
    assert [table for table, _ in policies.tables] == ["d.t"]


def test_options_are_what_differs_from_the_defaults() -> None:
    policies = Policies.make({"zero_dates": "null"}, {"d.t": {"zero_dates": "text"}, "d.u": {"bit": "binary"}})
    assert policies.as_options() == {"zero_dates": '{"*": "null", "d.t": "text"}', "bit": '{"d.u": "binary"}'}


def test_policies_travel() -> None:
    policies = Policies.make({}, {"d.t": {"zero_dates": "text"}})
    assert pickle.loads(pickle.dumps(policies)) == policies
    assert len({policies, Policies.make({}, {"d.t": {"zero_dates": "text"}}), DEFAULT}) == 2


def test_without_a_stream_nothing_is_dropped() -> None:
    policies = Policies.make({"window": "drop"}, {"a.b": {"window": "keep"}, "a.c": {"window": "rewind"}})
    alone = policies.without_stream()
    assert [alone.of(table).window for table in ("a.a", "a.b", "a.c")] == ["rewind", "keep", "rewind"]

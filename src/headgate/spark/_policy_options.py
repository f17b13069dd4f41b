"""Options of the ``mysql-cdc`` source that make policies: values for all tables, or by table as a JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.errors import ConfigError
from headgate.parsing import parse_json
from headgate.policies import (
    KEEP,
    OPERATIONS,
    POLICY_VALUES,
    ColumnRules,
    Hook,
    MaskKey,
    Operation,
    Policies,
    is_function,
    ordered_operations,
    parse_rules,
)

__all__ = ["POLICY_HELP", "parse_policies"]

POLICY_HELP: Final[Mapping[str, str]] = {
    "zero_dates": '"error" (default), "null" or "text" (dates become strings): dates that Spark cannot hold; by '
    'table as a JSON object: {"*": …, "db.t": …}',
    "decimals": '"decimal" (default), "text" or "double" (may round; not in keys): DECIMAL; by table as zero_dates',
    "wide_decimals": '"text" (default) or "error": DECIMAL of more than 38 digits; by table as zero_dates',
    "unsigned_bigint": '"decimal" (default: 20 digits) or "bigint" (larger values are an error): BIGINT UNSIGNED; '
    "by table as zero_dates",
    "json": '"string" (default) or, for the sinks of a pipeline, "variant"; by table as zero_dates',
    "time": '"text" (default) or "microseconds" (bigint): TIME; by table as zero_dates',
    "bit": '"integer" (default) or "binary": BIT; by table as zero_dates',
    "window": 'rows that change while a chunk is read: "rewind" (default), "keep" or "drop"; by table as zero_dates',
    "columns": 'rules for columns, as a JSON object: pattern on db.table, pattern on columns, rule: {"*.*": '
    '{"password": "exclude", "email": "hash"}}',
    "mask_key_env": 'environment variable that holds the key of rules "hash"',
    "mask_key_file": 'file that holds the key of rules "hash"',
    "rows": "which rows belong to a table, by table as a JSON object; an update in or out is an insert or delete: "
    """{"db.t": "country = 'DE' AND amount > 10"}""",
    "keys": 'columns that identify the rows of a table without a key, by table as a JSON object: {"db.t": ["a", '
    '"b"]}; a sink has to prove that no two rows have the same',
    "hooks": """functions that make a table's columns (docs/hooks.md), by table as a JSON object: {"db.t": """
    '{"function": "module:function", "version": "1"}}',
    "skip": "operations of a stream to leave out, as a JSON list of insert, update, delete, truncate; or by table: "
    '{"*": ["truncate"], "db.t": ["delete", "truncate"]}',
}
"""Option → what it means."""


class _ByTable(NamedTuple):
    """An option with values for single tables."""

    policy: str
    read: Callable[[Any], Any]
    """Value as in JSON → the policy's; ValueError if it is wrong."""
    expected: str


def _expression(value: Any) -> str:
    from headgate.columns import parse_expression

    text = _text(value)
    parse_expression(text)
    return text


def _hook(value: Any) -> Hook:
    if not isinstance(value, dict) or not is_function(value.get("function")) or value.keys() - {"function", "version"}:
        raise ValueError(f"{value!r} names no function")
    return Hook(value["function"], _text(value.get("version", "1")))


def _columns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{value!r} is no list of columns")
    return tuple(map(_text, value))


def _operations(value: Any) -> tuple[Operation, ...]:
    if not isinstance(value, list) or any(one not in OPERATIONS for one in value):
        raise ValueError(f"{value!r} is no list of operations")
    return ordered_operations(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is no text")


_BY_TABLE: Final[Mapping[str, _ByTable]] = {
    "hooks": _ByTable(
        "hook",
        _hook,
        """a JSON object of functions by table, such as {"db.t": {"function": "module:function", "version": "1"}}""",
    ),
    "keys": _ByTable("key", _columns, """a JSON object of columns by table, such as {"db.t": ["a", "b"]}"""),
    "rows": _ByTable("rows", _expression, """a JSON object of expressions by table, such as {"db.t": "n > 10"}"""),
    "skip": _ByTable(
        "skip",
        _operations,
        f"a JSON list of {', '.join(OPERATIONS)}, or such lists by table: "
        """{"*": ["truncate"], "db.t": ["delete"]}""",
    ),
}


def parse_policies(values: Mapping[str, str], signal_table: str | None) -> Policies:
    """Return the policies of the options: a value for all tables, or ``{"*": value, "db.table": value}``.

    :param signal_table: ``db.table`` whose rows are signals, read with all their columns.
    :raises ConfigError: an invalid value.
    """
    common: dict[str, Any] = {"columns": _column_rules(values, signal_table), "mask_key": _mask_key(values)}
    tables: dict[str, dict[str, Any]] = {}
    for name, allowed in POLICY_VALUES.items():
        by_table = _chosen(name, values.get(name, allowed[0]).strip(), allowed)
        common[name] = by_table.pop("*", allowed[0])
        for table, value in by_table.items():
            tables.setdefault(table, {})[name] = value
    for name in _BY_TABLE.keys() & values.keys():
        for table, value in _values_by_table(name, values[name]).items():
            if table == signal_table and name in ("rows", "hooks"):
                raise ConfigError(f'option "{name}" names the signal table, whose rows are signals: leave it out')
            if table == "*":
                common[_BY_TABLE[name].policy] = value
            else:
                tables.setdefault(table, {})[_BY_TABLE[name].policy] = value
    return Policies.make(common, tables)


def _chosen(name: str, text: str, allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the value of each table, ``*`` for all others."""
    try:
        by_table = parse_json(text) if text.startswith("{") else {"*": text}
    except ValueError:
        by_table = {}
    if not by_table or any(str(value).lower() not in allowed for value in by_table.values()):
        example = f'{{"*": "{allowed[0]}", "db.t": "{allowed[1]}"}}'
        raise ConfigError(f'option "{name}" is {text!r}; expected {" or ".join(allowed)}, or by table: {example}')
    return {table: value.lower() for table, value in by_table.items()}


def _values_by_table(name: str, text: str) -> dict[str, Any]:
    """Return the values of an option of ``_BY_TABLE``; of ``skip`` also ``*`` for all other tables."""
    option = _BY_TABLE[name]
    try:
        values = parse_json(text)
        if name == "skip" and isinstance(values, list):
            values = {"*": values}
        if not isinstance(values, dict) or (name != "skip" and "*" in values):
            raise ValueError("it is not one of tables")
        return {table: option.read(value) for table, value in values.items()}
    except ValueError as error:
        raise ConfigError(f'option "{name}" is {text!r}; expected {option.expected} ({error})') from None


def _column_rules(values: Mapping[str, str], signal_table: str | None) -> ColumnRules:
    """Return the rules for columns. The signal table has none: signals are read from its columns."""
    try:
        rules = parse_rules(parse_json(values.get("columns", "{}")))
    except ValueError as error:
        raise ConfigError(f'option "columns": {error}') from None
    if not rules or signal_table is None:
        return rules
    from headgate.catalog import exact_pattern

    return (*rules, (exact_pattern(signal_table), (("*", KEEP),)))


def _mask_key(values: Mapping[str, str]) -> MaskKey | None:
    env, file = values.get("mask_key_env"), values.get("mask_key_file")
    if env is not None and file is not None:
        raise ConfigError("both options mask_key_env and mask_key_file are given; keep one")
    return MaskKey(env, file) if env or file else None

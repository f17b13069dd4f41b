"""Options of the ``mysql-cdc`` source that make policies: values for all tables, or by table as a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.config import Mistakes
from headgate.errors import ConfigError
from headgate.parsing import parse_json
from headgate.policies import KEEP, POLICY_SETTINGS, ColumnRules, MaskKey, Policies, PolicySetting, parse_rules

__all__ = ["POLICY_HELP", "parse_policies"]


def _form(setting: PolicySetting) -> str:
    return f"{setting.expected}{', or' if setting.is_common else ''} by table: {setting.by_table}"


def _help(setting: PolicySetting) -> str:
    default = f" (default `{setting.default}`)" if setting.values else ""
    return f"{setting.help}{default}; by table: `{setting.by_table}`"


POLICY_HELP: Final[Mapping[str, str]] = {
    **{name: _help(one) for name, one in POLICY_SETTINGS.items()},
    "columns": 'rules for columns, as a JSON object: pattern on db.table, pattern on columns, rule: {"*.*": '
    '{"password": "exclude", "email": "hash"}}',
}
"""Option → what it means."""


def parse_policies(values: Mapping[str, str], signal_table: str | None, mask_key: MaskKey | None) -> Policies:
    """Return the policies of the options: a value for all tables, or ``{"*": value, "db.table": value}``.

    :param signal_table: ``db.table`` whose rows are signals, read with all their columns.
    :raises ConfigError: all invalid values.
    """
    mistakes = Mistakes()
    common: dict[str, Any] = {"mask_key": mask_key}
    tables: dict[str, dict[str, Any]] = {}
    with mistakes:
        common["columns"] = _column_rules(values, signal_table)
    for name in sorted(POLICY_SETTINGS.keys() & values.keys()):
        with mistakes:
            for table, value in _values_by_table(POLICY_SETTINGS[name], values[name].strip()).items():
                if table == signal_table and name in ("rows", "hook"):
                    raise ConfigError(f'option "{name}" names the signal table, whose rows are signals: leave it out')
                (common if table == "*" else tables.setdefault(table, {}))[name] = value
    mistakes.check()
    return Policies.make(common, tables)


def _values_by_table(setting: PolicySetting, text: str) -> dict[str, Any]:
    """Return the value of each table, ``*`` for all others."""
    try:
        values = parse_json(text) if text[:1] in {*"[{"} else text
        by_table = values if isinstance(values, dict) else {"*": values}
        if not by_table or ("*" in by_table and not setting.is_common):
            raise ValueError("it names no table")
        parsed = {table: setting.parse(value) for table, value in by_table.items()}
        if setting.name == "rows":
            _check_expressions(parsed)
        return parsed
    except ValueError as error:
        raise ConfigError(f'option "{setting.name}" is {text!r}; expected {_form(setting)} ({error})') from None


def _check_expressions(rows: Mapping[str, str]) -> None:
    from headgate.columns import parse_expression

    for one in rows.values():
        parse_expression(one)


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

"""Policies: the configurable choices for decoding and snapshots, for all tables or for one.

One frozen value is passed from the configuration, or from the Spark source's options, to the code that builds a table's
codecs. There ``of(table)`` returns the policies of that table.

A policy that users set is declared once, as a field of :class:`Policies` with a help text. :data:`POLICY_SETTINGS` has
these declarations. The keys of ``[source]`` and ``[tables]``, the options of ``mysql-cdc``, and the tables of both in
the documentation are made from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_type_hints

__all__ = [
    "DEFAULT",
    "KEEP",
    "MASKS",
    "OPERATIONS",
    "POLICY_SETTINGS",
    "ColumnRule",
    "ColumnRules",
    "Decimals",
    "Hook",
    "MaskKey",
    "Operation",
    "Policies",
    "PolicySetting",
    "Window",
    "ZeroDates",
    "checked_rules",
    "parse_rules",
]

ZeroDates: TypeAlias = Literal["error", "null", "text"]
Decimals: TypeAlias = Literal["decimal", "text", "double"]
Window: TypeAlias = Literal["rewind", "keep", "drop"]
Operation: TypeAlias = Literal["insert", "update", "delete", "truncate"]

OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
"""The operations that ``skip`` can leave out, in the order in which they are listed."""

MASKS: Final = frozenset({"exclude", "null", "hash", "text", "truncate"})
"""Kinds of rules that keep values out of the target."""
_PLAIN_RULES: Final = ("keep", "exclude", "null", "hash", "boolean", "number")
_RULE_FORMS: Final = (
    f'{", ".join(f"{name!r}" for name in _PLAIN_RULES)}, {{ text = "…" }}, {{ truncate = 4 }}, {{ rename = "…" }} or'
    ' { rename = "…", rule = … }'
)
_MOST_NAME_LETTERS: Final = 64
"""The longest name of a column in MySQL."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """What becomes of a column: its values, its name, or both.

    docs/how-to/shaping-tables/columns.md describes the kinds.
    """

    kind: Literal["keep", "exclude", "null", "hash", "boolean", "number", "text", "truncate", "rename"]
    """What becomes of the values. ``rename``: what an earlier rule says."""
    text: str = ""
    """``text``: what every value becomes."""
    letters: int = 0
    """``truncate``: how many characters stay."""
    name: str = ""
    """The column's name in the target; ``""``: what an earlier rule says; of ``keep``: MySQL's."""

    @classmethod
    def parse(cls, value: object) -> ColumnRule:
        """Return the rule that is spelled so in a pipeline's file or an option.

        :raises ValueError: none is.
        """
        if isinstance(value, cls):
            return value
        match value:
            case str() if value in _PLAIN_RULES:
                return cls(value)  # type: ignore[arg-type]
            case {"text": str() as text, **others} if not others:
                return cls("text", text=text)
            case {"truncate": int() as letters, **others} if not others and letters is not True and letters >= 0:
                return cls("truncate", letters=letters)
            case {"rename": str() as name, **others} if others.keys() <= {"rule"}:
                return cls._renaming(name, others.get("rule", _NAME_ONLY))
        raise ValueError(f"{value!r} is not a rule for a column; expected {_RULE_FORMS}")

    @classmethod
    def _renaming(cls, name: str, rule: object) -> ColumnRule:
        if not name.isprintable() or name != name.strip() or not 0 < len(name) <= _MOST_NAME_LETTERS:
            raise ValueError(
                f"{name!r} cannot be a column's name: use 1 to {_MOST_NAME_LETTERS} printable characters, without"
                " spaces around them"
            )
        values = cls.parse(rule)
        if values.name:
            raise ValueError("a rule renames a column twice: remove one of the two names")
        if values.kind == "exclude":
            raise ValueError(f'the rule "exclude" leaves the column out, so it cannot be named {name!r}: remove one')
        return replace(values, name=name)

    def over(self, earlier: ColumnRule) -> ColumnRule:
        """Return what becomes of a column with this rule and an earlier one. A name replaces a name, values replace
        values. ``keep`` and ``exclude`` without a name replace both.
        """
        if self.kind == "rename":
            return replace(earlier, name=self.name)
        return self if self.name or self.kind in ("keep", "exclude") else replace(self, name=earlier.name)

    def spelled(self) -> str | dict[str, Any]:
        """Return what :meth:`parse` takes."""
        if self.name:
            rule = {} if self.kind == "rename" else {"rule": replace(self, name="").spelled()}
            return {"rename": self.name, **rule}
        match self.kind:
            case "text":
                return {"text": self.text}
            case "truncate":
                return {"truncate": self.letters}
            case kind:
                return kind


KEEP: Final = ColumnRule("keep")
_NAME_ONLY: Final = ColumnRule("rename")
ColumnRules: TypeAlias = tuple[tuple[str, tuple[tuple[str, ColumnRule], ...]], ...]
"""(pattern on ``db.table``, ((pattern on columns, rule), …)), …: the last that matches a column counts."""


def parse_rules(values: object) -> ColumnRules:
    """Return the rules of ``{pattern on db.table: {pattern on columns: rule}}``.

    :raises ValueError: it has another form.
    """
    if not isinstance(values, Mapping) or not all(isinstance(columns, Mapping) for columns in values.values()):
        raise ValueError('expected rules by table and column, such as {"shop.*": {"email": "hash"}}')
    for table in values:
        db, _, name = str(table).partition(".")
        if not (db and name) or str(table).startswith("!"):
            raise ValueError(f'{table!r} is not a table pattern; expected db.table, such as "shop.*"')
    return tuple(
        (str(table), tuple(_parse_rule(str(column), rule) for column, rule in columns.items()))
        for table, columns in values.items()
    )


def _parse_rule(pattern: str, value: object) -> tuple[str, ColumnRule]:
    rule = ColumnRule.parse(value)
    if rule.name and {*"*?["} & {*pattern}:
        raise ValueError(f"{pattern!r} may match several columns, which cannot all be named {rule.name!r}: name one")
    return pattern, rule


def checked_rules(values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the rules as they are.

    :raises ValueError: as :func:`parse_rules`.
    """
    parse_rules(values)
    return values


def spelled_rules(rules: ColumnRules) -> dict[str, dict[str, Any]]:
    """Return what :func:`parse_rules` takes."""
    return {table: {column: rule.spelled() for column, rule in columns} for table, columns in rules}


@dataclass(frozen=True, slots=True)
class MaskKey:
    """Where the key of ``hash`` rules is: the name of an environment variable, or a file."""

    env: str | None = None
    file: str | None = None
    mark: str | None = None
    """``headgate.columns.hash_mark`` that the key must have; None: any."""

    @classmethod
    def of(cls, env: str | None, file: str | None, mark: str | None = None) -> MaskKey | None:
        """Return the key of the settings ``mask_key_env`` and ``mask_key_file``; None: there is none."""
        return cls(env, file, mark) if env or file else None


_HOOK: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)(?:@([A-Za-z0-9][A-Za-z0-9_.-]{0,49}))?")


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that makes a table's columns, ``module:function``, and the version that the user gave it."""

    function: str
    version: str = "1"

    @classmethod
    def parse(cls, text: object) -> Hook:
        """Return the hook ``module:function`` or ``module:function@version``.

        :raises ValueError: the text has another form.
        """
        parts = _HOOK.fullmatch(text) if isinstance(text, str) else None
        if parts is None:
            raise ValueError(
                f'{text!r} is not a function; expected module:function, such as "my_company.hooks:outbox", or with a'
                ' version "my_company.hooks:outbox@2"'
            )
        return cls(parts[1], parts[2]) if parts[2] else cls(parts[1])

    @property
    def spelled(self) -> str:
        """``module:function@version``"""
        return f"{self.function}@{self.version}"


# --- what reads a value of TOML or JSON: → the policy's; ValueError if it is wrong


def _rows(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_ROWS_LETTERS:
        raise ValueError(f"expected an expression of 1 to {_MOST_ROWS_LETTERS} characters")
    return value


def _key(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_KEY_COLUMNS:
        raise ValueError(f"expected a list of 1 to {_MOST_KEY_COLUMNS} columns")
    if not all(isinstance(one, str) for one in value):
        raise ValueError("the name of a column is a text")
    return tuple(value)


def _skip(value: object) -> tuple[Operation, ...]:
    if not isinstance(value, list | tuple) or any(one not in OPERATIONS for one in value):
        raise ValueError(f"{value!r} is no list of operations")
    return tuple(one for one in OPERATIONS if one in value)


_MOST_ROWS_LETTERS: Final = 10_000
_MOST_KEY_COLUMNS: Final = 32
"""Twice as many as a key of MySQL may have."""


@dataclass(frozen=True)
class PolicySetting:
    """A declared policy: a key of ``[source]`` and ``[tables."db.table"]``, and an option of ``mysql-cdc``.

    A ``Literal`` with the default first is declared by its help text alone.
    """

    help: str
    """Meaning of it and of its values, in Markdown."""
    read: Callable[[Any], Any] | None = None
    """Value as in TOML or JSON → the policy's; ValueError if it is wrong. None: a choice."""
    expected: str = ""
    """Values that it accepts, in words."""
    examples: tuple[Any, ...] = ()
    """Of two, the first is for all tables. One: it can only be set by table."""
    kind: Any = None
    """Type of its value in a file."""
    name: str = ""
    """Of the key, the option, and the field of :class:`Policies`."""
    default: Any = None

    @property
    def values(self) -> tuple[str, ...]:
        """All values, the default first; ``()``: they are not a choice of a few."""
        return get_args(self.kind) if self.read is None else ()

    @property
    def is_common(self) -> bool:
        """Whether it can be set for all tables."""
        return len(self.examples) > 1

    @property
    def by_table(self) -> str:
        """Example of an option with values by table."""
        return json.dumps(dict(zip(("*", "db.t")[-len(self.examples) :], self.examples, strict=True)))

    def parse(self, value: object) -> Any:
        """Return the policy's value for one of TOML or JSON.

        :raises ValueError: it is wrong.
        """
        if self.read is not None:
            return self.read(value)
        if not isinstance(value, str) or value.lower() not in self.values:
            raise ValueError(f"{value!r} is not {self.expected}")
        return value.lower()


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of all tables; of a single table if ``tables`` is empty."""

    zero_dates: Annotated[
        ZeroDates,
        PolicySetting(
            "dates that Spark cannot hold, such as 2024-00-00: `error` stops, `null` makes them NULL (in a key it"
            " stops the table), `text` makes the table's DATE, DATETIME and TIMESTAMP columns strings in MySQL's form"
        ),
    ] = "error"
    window: Annotated[
        Window,
        PolicySetting(
            "rows that change while a chunk is read: `rewind` reverts them, so that the chunk is exact as of its"
            " batch, which needs `binlog_row_image=FULL`; `keep` leaves them as they were read, and the changes that"
            " follow bring them up to date; `drop` leaves them out, and the changes that follow bring them, which"
            " needs `binlog_row_image=FULL` too"
        ),
    ] = "rewind"
    decimals: Annotated[
        Decimals,
        PolicySetting(
            "DECIMAL: Spark's `decimal`, MySQL's `text`, or a `double`, which may round; columns of a key stay as"
            " they are with `double`, because different keys could become equal"
        ),
    ] = "decimal"
    unsigned_bigint: Annotated[
        Literal["decimal", "bigint"],
        PolicySetting(
            "BIGINT UNSIGNED: `decimal`, which is DECIMAL(20,0), or `bigint`, which ends the run with an error at a"
            " value above 9223372036854775807"
        ),
    ] = "decimal"
    wide_decimals: Annotated[
        Literal["text", "error"],
        PolicySetting("DECIMAL of more than 38 digits, which Spark cannot hold: MySQL's `text`, or an `error`"),
    ] = "text"
    json: Annotated[
        Literal["string", "variant"],
        PolicySetting(
            "JSON: a `string` in MySQL's form, or `variant`, in a pipeline's tables: Spark's VARIANT, which is faster"
            " to query, but keeps only the value of a number (1.50 is 1.5), and a double of one with more than 38"
            " digits"
        ),
    ] = "string"
    time: Annotated[
        Literal["text", "microseconds"], PolicySetting("TIME: MySQL's `text`, or `microseconds` as a bigint")
    ] = "text"
    bit: Annotated[
        Literal["integer", "binary"],
        PolicySetting("BIT(n): an `integer`, or `binary`: its (n + 7) / 8 bytes, big-endian"),
    ] = "integer"
    rows: Annotated[
        str,
        PolicySetting(
            "[which rows belong to the table](../how-to/shaping-tables/rows.md), for its snapshots and its changes:"
            " `country = 'DE' AND amount > 10`. An update by which a row enters or leaves is an insert or a"
            " delete. If this changes, the table is read again",
            read=_rows,
            expected="an expression",
            examples=("n > 10",),
        ),
    ] = ""
    key: Annotated[
        tuple[str, ...],
        PolicySetting(
            "columns that identify the rows of a table that has neither a primary key nor a unique key of NOT NULL"
            " columns: see [keys that you choose](../how-to/shaping-tables/keys.md)",
            read=_key,
            expected="a list of columns",
            examples=(["a", "b"],),
        ),
    ] = ()
    hook: Annotated[
        Hook | None,
        PolicySetting(
            "[a Python function](../how-to/shaping-tables/hooks.md) that makes the table's columns, from a"
            " pyarrow.RecordBatch to another: `my_company.hooks:outbox`; the driver and the executors import"
            " it. A version may follow, any text: `my_company.hooks:outbox@2`. Change it whenever the function returns"
            " something else: the table is then read again",
            kind=str,
            read=Hook.parse,
            expected="a function",
            examples=("module:function@1",),
        ),
    ] = None
    skip: Annotated[
        tuple[Operation, ...],
        PolicySetting(
            "[operations to leave out](../how-to/shaping-tables/skipped-operations.md) of the changes: `insert`,"
            " `update`, `delete`, `truncate`. With `delete` or `truncate` a `current` table keeps such rows. A"
            " table with skipped operations is `inexact`, not `live`",
            read=_skip,
            expected=f"a list of {', '.join(OPERATIONS)}",
            examples=(["truncate"], ["delete"]),
        ),
    ] = ()
    temporals: Literal["arrow", "text"] = "arrow"
    """``text``: DATE, DATETIME, TIMESTAMP and TIME are MySQL's text, including zero dates (JSON lines)."""
    ambiguous_keys: Literal["error", "spell"] = "error"
    """Different key values with the same text: an error, or ``spell``: written by their bytes
    (``headgate.columns.HEX_MARK``), for output without a target table (JSON lines, the relay)."""
    columns: ColumnRules = ()
    """Columns that are left out, masked, or get another type or name."""
    mask_key: MaskKey | None = None
    tables: tuple[tuple[str, Policies], ...] = ()
    """``(db.table, its policies)`` of the tables whose policies differ."""

    @classmethod
    def make(cls, common: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> Policies:
        """Build from values of all tables; ``tables`` overrides them per table."""
        default = cls(**common)
        policies_by_table = {table: replace(default, **values) for table, values in sorted(tables.items())}
        return replace(
            default,
            tables=tuple((table, policies) for table, policies in policies_by_table.items() if policies != default),
        )

    def of(self, table: str) -> Policies:
        """Return the policies of ``db.table``."""
        for name, policies in self.tables:
            if name == table:
                return policies
        return replace(self, tables=()) if self.tables else self

    @property
    def hides_values(self) -> bool:
        """Whether any rule for columns keeps values out of the target."""
        return any(rule.kind in MASKS for _, rules in self.columns for _, rule in rules)

    def without_stream(self) -> Policies:
        """Return the policies for a snapshot without a stream: nothing brings dropped rows later, so rewind them."""
        tables = tuple((table, policies.without_stream()) for table, policies in self.tables)
        return replace(self, tables=tables, window="rewind" if self.window == "drop" else self.window)

    def as_options(self) -> dict[str, str]:
        """Return the options of ``mysql-cdc`` for what differs from the defaults, without ``mask_key``: a value for all
        tables, or ``{"*": value, "db.table": value, …}``.
        """
        options: dict[str, str] = {}
        for name, setting in POLICY_SETTINGS.items():
            value = getattr(self, name)
            by_table = {table: getattr(one, name) for table, one in self.tables if getattr(one, name) != value}
            if value != setting.default:
                by_table = {"*": value, **by_table}
            if by_table:
                options[name] = _option(value if by_table.keys() == {"*"} else by_table)
        if self.columns:
            options["columns"] = _option(spelled_rules(self.columns))
        return options


def _option(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=lambda hook: hook.spelled)


def _settings() -> Iterator[PolicySetting]:
    hints = get_type_hints(Policies, include_extras=True)
    for one in fields(Policies):
        match get_args(hints[one.name]):
            case (kind, PolicySetting() as declared):
                values = get_args(kind) if declared.read is None else ()
                yield replace(
                    declared,
                    expected=declared.expected or " or ".join(values),
                    examples=declared.examples or values[:2],
                    kind=declared.kind or kind,
                    name=one.name,
                    default=one.default,
                )


DEFAULT: Final = Policies()
POLICY_SETTINGS: Final[Mapping[str, PolicySetting]] = {one.name: one for one in _settings()}
"""The policies that users can set, by name."""

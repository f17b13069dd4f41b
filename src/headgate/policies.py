"""Policies: the configurable choices for decoding and snapshots, for all tables or for one.

One frozen value is passed from the configuration, or from the Spark source's options, to the code that builds a table's
codecs. There ``of(table)`` returns the policies of that table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias, get_args

__all__ = [
    "DEFAULT",
    "KEEP",
    "MASKS",
    "OPERATIONS",
    "POLICY_VALUES",
    "AmbiguousKeys",
    "Bit",
    "ColumnRule",
    "ColumnRules",
    "Decimals",
    "Hook",
    "Json",
    "MaskKey",
    "Operation",
    "Policies",
    "Temporals",
    "Time",
    "UnsignedBigint",
    "WideDecimals",
    "Window",
    "ZeroDates",
    "checked_rules",
    "is_function",
    "ordered_operations",
    "parse_rules",
]

ZeroDates: TypeAlias = Literal["error", "null", "text"]
WideDecimals: TypeAlias = Literal["text", "error"]
Decimals: TypeAlias = Literal["decimal", "text", "double"]
UnsignedBigint: TypeAlias = Literal["decimal", "bigint"]
Json: TypeAlias = Literal["string", "variant"]
Time: TypeAlias = Literal["text", "microseconds"]
Bit: TypeAlias = Literal["integer", "binary"]
Window: TypeAlias = Literal["rewind", "keep", "drop"]
Temporals: TypeAlias = Literal["arrow", "text"]
AmbiguousKeys: TypeAlias = Literal["error", "spell"]
Operation: TypeAlias = Literal["insert", "update", "delete", "truncate"]

OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
"""The operations that ``skip`` can leave out, in the order in which they are listed."""

POLICY_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "zero_dates": get_args(ZeroDates),
    "decimals": get_args(Decimals),
    "wide_decimals": get_args(WideDecimals),
    "unsigned_bigint": get_args(UnsignedBigint),
    "json": get_args(Json),
    "time": get_args(Time),
    "bit": get_args(Bit),
    "window": get_args(Window),
}
"""The policies that users can set, and their values; the first is the default."""


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
    """What becomes of a column: its values, its name, or both. docs/columns.md describes the kinds."""

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


def ordered_operations(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return operations in the order of :data:`OPERATIONS`, each once."""
    chosen = {*operations}
    return tuple(operation for operation in OPERATIONS if operation in chosen)


@dataclass(frozen=True, slots=True)
class MaskKey:
    """Where the key of ``hash`` rules is: the name of an environment variable, or a file."""

    env: str | None = None
    file: str | None = None


_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_function(text: object) -> bool:
    """Return whether this is the name of a function, ``package.module:function``."""
    return isinstance(text, str) and _FUNCTION.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that makes a table's columns, ``module:function``, and the version that the user gave it."""

    function: str
    version: str = "1"

    @property
    def spelled(self) -> str:
        """``module:function@version``"""
        return f"{self.function}@{self.version}"


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of all tables; of a single table if ``tables`` is empty."""

    zero_dates: ZeroDates = "error"
    """Dates that Arrow cannot represent (zero, zero in a part, or not in the calendar): an error, null (but an error in
    a key), or ``text``: the columns are strings in MySQL's form."""
    decimals: Decimals = "decimal"
    """DECIMAL: Arrow's decimal128, MySQL's text, or a double, which may round. A key's column is never a double:
    different keys could become equal."""
    unsigned_bigint: UnsignedBigint = "decimal"
    """BIGINT UNSIGNED: decimal128(20,0); or int64, with an error for values above 9223372036854775807."""
    wide_decimals: WideDecimals = "text"
    """DECIMAL of more than 38 digits: MySQL's text, or an error."""
    json: Json = "string"
    """JSON: MySQL's text; or, in a pipeline's tables, Spark's VARIANT, which the sinks make from that text."""
    time: Time = "text"
    """TIME: MySQL's text, or int64 microseconds."""
    bit: Bit = "integer"
    """BIT(n): a number, or (n + 7) // 8 bytes, big-endian."""
    window: Window = "rewind"
    """Rows that change while their chunk is read: ``rewind`` restores them, so that the chunk is exact as of E;
    ``keep`` leaves them as read; ``drop`` omits them, because later changes bring them."""
    temporals: Temporals = "arrow"
    """``text``: DATE, DATETIME, TIMESTAMP and TIME are MySQL's text, including zero dates (JSON lines)."""
    ambiguous_keys: AmbiguousKeys = "error"
    """Different key values with the same text: an error, or ``spell``: written by their bytes
    (``headgate.columns.HEX_MARK``), for output without a target table (JSON lines, the relay)."""
    columns: ColumnRules = ()
    """Columns that are left out, masked, or get another type or name."""
    mask_key: MaskKey | None = None
    rows: str = ""
    """Expression (``headgate.columns._expressions``) that rows must fulfil to belong to the table; ``""``: all do."""
    skip: tuple[Operation, ...] = ()
    """Operations that a stream leaves out, as they are after ``rows``; table reads are whole all the same."""
    key: tuple[str, ...] = ()
    """Columns that identify the rows of a table without a key; ``()``: none do."""
    hook: Hook | None = None
    """Function that makes the table's columns (``headgate.columns._hooks``); of single tables only."""
    tables: tuple[tuple[str, Policies], ...] = ()
    """``(db.table, its policies)`` of the tables whose policies differ."""

    @classmethod
    def make(cls, common: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> Policies:
        """Build from values of ``POLICY_VALUES``; ``tables`` overrides them per table."""
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

    def as_options(self) -> dict[str, Any]:
        """Return the options of ``mysql-cdc``: policy → value, or ``{"*": value, "db.table": value, …}`` if tables
        differ; rules for columns, if there are any.
        """
        options: dict[str, Any] = {}
        for name in POLICY_VALUES:
            value = getattr(self, name)
            others = {
                table: getattr(policies, name) for table, policies in self.tables if getattr(policies, name) != value
            }
            options[name] = {"*": value, **others} if others else value
        if self.columns:
            options["columns"] = spelled_rules(self.columns)
        rows = {table: policies.rows for table, policies in self.tables if policies.rows}
        if rows:
            options["rows"] = rows
        keys = {table: policies.key for table, policies in self.tables if policies.key}
        if keys:
            options["keys"] = keys
        hooks = {table: asdict(policies.hook) for table, policies in self.tables if policies.hook is not None}
        if hooks:
            options["hooks"] = hooks
        skips = {table: policies.skip for table, policies in self.tables if policies.skip != self.skip}
        if skips or self.skip:
            options["skip"] = {"*": self.skip, **skips}
        if self.mask_key is not None:
            source = "env" if self.mask_key.env is not None else "file"
            options[f"mask_key_{source}"] = self.mask_key.env or self.mask_key.file
        return options


DEFAULT: Final = Policies()

assert POLICY_VALUES.keys() <= {field.name for field in fields(Policies)}

"""Rules for columns: which rule a column has, its name in the target, and the codecs that apply the rule.

**Names.** :func:`target_table` is the only place where names of the source become names of the target. ``TableCodec``
calls it, and images have the columns of its ``table``. So everything behind a decoder, the sinks and the lake, knows
only names of the target. What MySQL reads or writes has the source's: SELECT lists, bounds, conditions, ``rows``, a
chosen ``key``, statements. ``Column.mysql_name`` of a written table's columns leads back to them. Names in ALTERs
become the target's where a statement becomes a message (``spark/_carried.py``), by :func:`written_name`.

**Values.** A rule is applied where a value becomes Arrow, in table reads and log reads alike, before it is stored, sent
or counted. So nothing behind the codecs has the value. Two things keep it out of what is before them: the bounds of
chunks are values of the key, so a key's column is never masked; and the error of a value that cannot be decoded does
not show it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import BINARIES, INTEGERS, TEXTS, Column, TableDef, TablePatterns
from headgate.columns._codec import BaseCodec, Codec
from headgate.columns._hmac import hmac_hex
from headgate.columns._integers import BitCodec, IntegerCodec
from headgate.columns._members import member_numbers
from headgate.errors import ConfigError, CutValueError, DecodeError, UnsupportedError
from headgate.kernels import VALUE, Cells
from headgate.names import lower_name
from headgate.policies import KEEP, MASKS, ColumnRule, ColumnRules, MaskKey, Policies, spelled_rules

__all__ = [
    "apply_rule",
    "check_rules",
    "column_rules",
    "excluded_by_name",
    "hash_mark",
    "named_columns",
    "rules_mark",
    "target_table",
    "unmasked_names",
    "with_type_of_values",
    "written_name",
]

_HASHED: Final = TEXTS | INTEGERS | BINARIES | {"decimal", "enum", "set", "json"}
_LEAST_KEY_BYTES: Final = 16
_HASH_LETTERS: Final = 64


def column_rules(policies: Policies, table: TableDef) -> tuple[ColumnRule, ...]:
    """Return the rule of each column, in their order. None is of kind ``rename``.

    :raises UnsupportedError: a rule would hide values of the key.
    """
    if not policies.columns:
        return (KEEP,) * len(table.columns)
    rules = _matched(policies.columns, table.db, table.name, tuple(column.name for column in table.columns))
    for index in table.key:
        if rules[index].kind in MASKS:
            raise UnsupportedError(
                f'[columns] has the rule "{rules[index].kind}" for a column of the key, whose values headgate needs to'
                ' find rows and stores in its checkpoint: give it the rule "keep", or leave the table out',
                table=table.full_name,
                column=table.columns[index].name,
            )
    return tuple(replace(KEEP, name=rule.name) if index in table.key else rule for index, rule in enumerate(rules))


def target_table(table: TableDef, policies: Policies) -> TableDef:
    """Return a table as it is written: without excluded columns, with the names and marks of rules.

    :param table: as MySQL has it.
    :raises UnsupportedError: a rule would hide values of the key; or two columns would have one name. Letter case does
        not distinguish names in Delta's tables.
    :raises ConfigError: the key of hashes cannot be read.
    """
    columns: dict[str, Column] = {}
    for column, rule in zip(table.columns, column_rules(policies, table), strict=True):
        if rule.kind == "exclude":
            continue
        name = rule.name or column.name
        other = columns.get(name.lower())
        if other is not None:
            raise UnsupportedError(
                f"by the rules in [columns], both {other.mysql_name} and {column.name} would be named {name!r}: give"
                ' one of them another name, or the rule "exclude"',
                table=table.full_name,
                column=column.name,
            )
        source_name = column.name if name != column.name else ""
        mark = _mark(rule, policies.mask_key)
        columns[name.lower()] = replace(column, name=name, source_name=source_name, rule=mark)
    places = {column.mysql_name: index for index, column in enumerate(columns.values())}
    return replace(table, columns=tuple(columns.values()), key=tuple(places[name] for name in table.key_names))


def written_name(policies: Policies, db: str, table: str, column: str) -> tuple[str, ColumnRule]:
    """Return a column's name in the target, and its rule; the name is MySQL's if the column is excluded."""
    rule = column_rules(policies.of(f"{db}.{table}"), TableDef(db, table, (Column(column, ""),)))[0]
    return rule.name or column, rule


def unmasked_names(policies: Policies, db: str, table: str, renames: Sequence[tuple[str, str]]) -> list[str]:
    """Return the new names of columns that lose a mask because a statement renames them, in MySQL's spelling.

    A column whose new name has a rule without wildcards, be it ``keep``, does what the rule says.

    :param renames: names before and after.
    """
    named = named_columns(policies, db, table)

    def is_masked(name: str) -> bool:
        return written_name(policies, db, table, name)[1].kind in MASKS

    return [new for old, new in renames if is_masked(old) and not is_masked(new) and lower_name(new) not in named]


def named_columns(policies: Policies, db: str, table: str) -> frozenset[str]:
    """Return the columns, in lower case, that a rule for their values names without wildcards, be it ``keep``."""
    matched = [rules for one, rules in policies.columns if TablePatterns((one,)).matches(db, table)]
    named = (name for rules in matched for name, rule in rules if rule.kind != "rename" and _is_name(name))
    return frozenset(map(lower_name, named))


def excluded_by_name(policies: Policies, table: TableDef) -> frozenset[str]:
    """Return the columns that rules exclude by their names, without wildcards, and that the table does not have."""
    matched = [rules for one, rules in policies.columns if TablePatterns((one,)).matches(table.db, table.name)]
    names = {lower_name(name) for rules in matched for name, rule in rules if rule.kind == "exclude" and _is_name(name)}
    return frozenset(names - {lower_name(column.name) for column in table.columns})


def check_rules(
    policies: Policies, tables: Sequence[TableDef], hides: Callable[[TableDef], bool] = lambda _: False
) -> list[str]:
    """Check that each rule is for its columns, and the key of hashes is there; return the patterns without a column.

    :param hides: returns whether the account may not see all columns of a table; called only if a rule excludes a
        column that the table seems to lack. A rule that excludes a hidden column has one.
    :raises UnsupportedError: a rule is not for a column, would hide values of a key, or gives two columns one name.
    :raises ConfigError: the key of hashes cannot be read.
    """
    for table in tables:
        for column, rule in zip(table.columns, column_rules(policies, table), strict=True):
            _check_type(rule, column, table.full_name)
            if rule.kind == "exclude" and rule.name:
                raise UnsupportedError(
                    f"[columns] excludes a column and then names it {rule.name!r}: to have it under this name, write"
                    f' {{ rename = "{rule.name}", rule = "keep" }}',
                    table=table.full_name,
                    column=column.name,
                )
        target_table(table, policies)
    if any(rule.kind == "hash" for _, rules in policies.columns for _, rule in rules):
        mask_key(policies.mask_key)
    unused = []
    for pattern, rules in policies.columns:
        matched = [table for table in tables if TablePatterns((pattern,)).matches(table.db, table.name)]
        names = {lower_name(column.name) for table in matched for column in table.columns}
        for table in matched:
            hidden = excluded_by_name(replace(policies, columns=((pattern, rules),)), table)
            names |= hidden if hidden and hides(table) else set()
        unused += [f"{pattern}.{one}" for one, _ in rules if not any(map(_glob(one).match, names))]
    return unused


def _is_name(pattern: str) -> bool:
    return not {*"*?["} & {*pattern}


def _glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern on names of columns in lower case."""
    return re.compile(translate(lower_name(pattern)))


@lru_cache(maxsize=4096)
def _matched(rules: ColumnRules, db: str, table: str, names: tuple[str, ...]) -> tuple[ColumnRule, ...]:
    matched = dict.fromkeys(names, KEEP)
    for table_pattern, by_column in rules:
        if not TablePatterns((table_pattern,)).matches(db, table):
            continue
        for pattern, rule in by_column:
            glob = _glob(pattern)
            matched.update({name: rule.over(matched[name]) for name in names if glob.match(lower_name(name))})
    return tuple(matched[name] for name in names)


def with_type_of_values(column: Column) -> Column:
    """Return a column of a table as it is written with a type for its values: after ``hash`` and a fixed text VARCHAR,
    after ``number`` INT, after ``boolean`` BOOLEAN; else its own.
    """
    kind = column.rule.partition(":")[0]
    if kind in ("hash", "text"):
        return Column(column.name, "varchar", length=_HASH_LETTERS, charset="utf8mb4")
    return {"number": Column(column.name, "int"), "boolean": Column(column.name, "boolean")}.get(kind, column)


def rules_mark(policies: Policies) -> str:
    """Return a text that differs if other rules, or another key of hashes, are configured; ``""``: there are none."""
    if not policies.columns:
        return ""
    rules = json.dumps(spelled_rules(policies.columns), sort_keys=True)
    return hashlib.blake2b(f"{rules}{hash_mark(policies)}".encode(), digest_size=16).hexdigest()


def hash_mark(policies: Policies) -> str:
    """Return a text that differs if hashes have another key; ``""``: there are no rules ``hash``.

    :raises ConfigError: the key is missing, or too short.
    """
    hashes = any(rule.kind == "hash" for _, of_table in policies.columns for _, rule in of_table)
    return _mark(ColumnRule("hash"), policies.mask_key) if hashes else ""


def _mark(rule: ColumnRule, key: MaskKey | None) -> str:
    """Return a text that differs if the rule gives other values to a column of this type; ``""``: MySQL's."""
    match rule.kind:
        case "keep":
            return ""
        case "hash":
            return _key_mark(mask_key(key))
        case "text":
            return f"text:{rule.text}"
        case "truncate":
            return f"truncate:{rule.letters}"
        case kind:
            return kind


def _key_mark(key: bytes) -> str:
    sample = hmac_hex(pa.array(["headgate"]), key)[0].as_py()
    return f"hash:{sample[:8]}"


@lru_cache(maxsize=16)
def mask_key(source: MaskKey | None) -> bytes:
    """Return the key of ``hash`` rules. A process reads it once, so a run has one key only if each of its processes,
    whenever it began, requires the same mark.

    :raises ConfigError: it is missing, too short, or has another mark than required.
    """
    if source is None:
        raise ConfigError('[columns] has the rule "hash", which needs a key: set mask_key_env or mask_key_file')
    if source.env is not None:
        where, text = f"the environment variable {source.env}", os.environ.get(source.env, "")
    else:
        where = f"the file {source.file}"
        try:
            text = Path(str(source.file)).read_text(encoding="utf-8").strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the key of masks cannot be read from {where}: {error}") from None
    if len(text.encode()) < _LEAST_KEY_BYTES:
        raise ConfigError(f"the key of masks in {where} is missing or shorter than {_LEAST_KEY_BYTES} bytes")
    if source.mark is not None and source.mark != _key_mark(text.encode()):
        raise ConfigError(f"the key of masks in {where} is another one than when the run began: start the run again")
    return text.encode()


def apply_rule(codec: Codec, column: Column, rule: ColumnRule, *, table: str, key: MaskKey | None) -> Codec:
    """Return the codec of a column with a rule.

    :param codec: the column's codec without it; for ``hash``, one that decodes decimals as text.
    :raises UnsupportedError: the rule is not for columns of this type.
    :raises ConfigError: the key of ``hash`` cannot be read.
    """
    _check_type(rule, column, table)
    match rule.kind:
        case "null":
            return _NullCodec(column, table, codec.arrow_type)
        case "text":
            return _FixedTextCodec(column, table, rule.text)
        case "truncate":
            return _TruncatingCodec(column, table, codec, rule.letters)
        case "hash":
            return _HashingCodec(column, table, codec, mask_key(key))
        case "boolean":
            return _BooleanCodec(column, table)
        case "number":
            return _MemberNumberCodec(column, table)
        case _:
            return codec


def _check_type(rule: ColumnRule, column: Column, table: str) -> None:
    if not _is_possible(rule, column):
        raise UnsupportedError(
            f'[columns] has the rule "{rule.kind}" for a column of type {column.mysql}, which it is not for',
            table=table,
            column=column.name,
        )


def _is_possible(rule: ColumnRule, column: Column) -> bool:
    match rule.kind:
        case "truncate":
            return column.type in TEXTS
        case "hash":
            return column.type in _HASHED
        case "boolean":
            return column.type == "tinyint" or (column.type == "bit" and column.precision == 1)
        case "number":
            return column.type == "enum"
        case _:
            return True


class _NullCodec(BaseCodec):
    """NULL in the place of every value, which is not even selected."""

    select = "NULL"

    def __init__(self, column: Column, table: str, arrow_type: pa.DataType) -> None:
        super().__init__(column, table)
        self.arrow_type = arrow_type

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        return pa.nulls(len(cells.valid), self.arrow_type)

    from_text = from_log


class _FixedTextCodec(BaseCodec):
    """The same text in the place of every value, which is not selected."""

    arrow_type = pa.string()

    def __init__(self, column: Column, table: str, text: str) -> None:
        super().__init__(column, table)
        self._text = text

    @property
    def select(self) -> str:
        """See :class:`Codec`."""
        return f"IF({super().select} IS NULL, NULL, 1)"

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        nothing = pa.scalar(None, self.arrow_type)
        return pc.if_else(pa.array(cells.valid == VALUE), pa.scalar(self._text, self.arrow_type), nothing)

    from_text = from_log


class _HidingCodec(BaseCodec):
    """Base of codecs that change decoded values. An error shows no value."""

    arrow_type = pa.string()

    def __init__(self, column: Column, table: str, codec: Codec) -> None:
        super().__init__(column, table)
        self._codec = codec

    @property
    def select(self) -> str:
        """See :class:`Codec`."""
        return self._codec.select

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        try:
            return self._masked(self._codec.from_log(cells))
        except DecodeError as error:
            raise self._hidden(error) from None

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        try:
            return self._masked(self._codec.from_text(cells))
        except CutValueError:  # it shows no value
            raise
        except DecodeError as error:
            raise self._hidden(error) from None

    def _hidden(self, error: DecodeError) -> DecodeError:
        row = error.fields.get("row")
        return self.error(f"a value of this masked column is not of type {self.column.mysql}", type(error), row)

    def _masked(self, values: pa.Array) -> pa.Array:
        raise NotImplementedError


class _TruncatingCodec(_HidingCodec):
    """The first characters of a text."""

    def __init__(self, column: Column, table: str, codec: Codec, letters: int) -> None:
        super().__init__(column, table, codec)
        self._letters = letters

    def _masked(self, values: pa.Array) -> pa.Array:
        return pc.utf8_slice_codeunits(values, 0, self._letters)


class _HashingCodec(_HidingCodec):
    """HMAC-SHA256 of a value's text (UTF-8) or bytes, in hexadecimal."""

    def __init__(self, column: Column, table: str, codec: Codec, key: bytes) -> None:
        super().__init__(column, table, codec)
        self._key = key

    def _masked(self, values: pa.Array) -> pa.Array:
        is_bytes = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
        return hmac_hex(values if is_bytes else values.cast(pa.string()), self._key)


class _BooleanCodec(_HidingCodec):
    """TINYINT and BIT(1): whether a value is not zero, as MySQL's ``IS TRUE``."""

    arrow_type = pa.bool_()

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table, (BitCodec if column.type == "bit" else IntegerCodec)(column, table))

    def _masked(self, values: pa.Array) -> pa.Array:
        return pc.not_equal(values, pa.scalar(0, values.type))


class _MemberNumberCodec(BaseCodec):
    """ENUM as the number of its member, from 1 on; 0 is the empty value of a failed insert."""

    arrow_type = pa.int32()

    def __init__(self, column: Column, table: str) -> None:
        super().__init__(column, table)
        digits = Column(column.name, "smallint", unsigned=True)
        self._digits = IntegerCodec(digits, table)

    @property
    def select(self) -> str:
        """See :class:`Codec`."""
        return f"CAST({super().select} AS UNSIGNED)"

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        numbers = member_numbers(cells)
        wrong = (numbers > len(self.column.members)) | ((cells.length > 2) & (cells.valid == VALUE))
        if wrong.any():
            what = "the number of one of the values of its ENUM column"
            raise self.undecodable(cells, int(np.argmax(wrong)), what)
        return self.array(cells, numbers.astype(np.int32))

    def from_text(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        return self._digits.from_text(cells)

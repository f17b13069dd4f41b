"""Hooks: a user's function that makes a table's columns, applied to every row that leaves the source.

A hook takes a record batch of a table's columns, as the target would get them (types by policy, rules of ``[columns]``
applied, rows that fail ``rows`` left out), and returns a record batch with a row for each, in the same order.

The argument
============

Let h be the hook. It must be *a function of the row*: what it returns for a row depends on that row alone. And it
returns the key's columns as they are. Then the target of a table T is exactly h(T), the table of h(r) for each row r:

- A chunk read as of E gives T's rows as of E, so it gives h(T)'s. Rewinding, ``rows`` and skipped operations come
  before h, on T's own columns.
- An image of the log is a row, before or after a change. So h of it is h(T)'s row before or after that change. Keys are
  T's, so "the last image per key", key ranges, and which rows a TRUNCATE removes are the same in both.
- A batch that is read again, after a crash, has the same rows, so the same images. An update's before-image equals the
  after-image of the change before it, as a changelog and a table without a key need it.
- ``headgate verify`` reads the source by the same tasks, so it compares the target with h(T).

What can be checked is checked, on each batch: the number of rows, the key's columns (names, types, values), and that
the columns are those that h returned for an empty batch of the same definition. That h has no state, no clock, no
random number and no lookup cannot be checked; a hook that breaks this is found by ``headgate verify`` at best.

*h of an image that leaves columns out is unknown.* So such an image stops the table (``PartialImageError``).

*Another h makes other rows.* :attr:`HookedTable.mark` has the function, the version that the user gave it, and a digest
of the columns that h gets: their names, Arrow types, order and rules. A table that was written under another mark is
read again. That includes each ALTER that adds, drops, renames or moves a column or gives it another Arrow type: h may
use all of it, so whether h of an old row is still the same, nobody knows. After an ALTER that changes none of it and
keeps every value (a longer VARCHAR, a new member of an ENUM, a comment), h gets the same batch for an old row as
before, and a function returns the same for the same. So nothing is read again. That the values are kept is proven by
the MySQL types before and after (``decide/_columns.py``), so a target has the types of the columns that h gets.

The columns that h returns
==========================

A column of the input has Arrow metadata with its name (:data:`COLUMN`). pyarrow keeps metadata when a batch gets or
loses columns or they are renamed. So a column that still has it, and its type, came through unchanged, and the target
may treat it as the source's column: its type at MySQL, its rule, VARIANT. Every other column has the type of its Arrow
type alone.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from headgate.catalog import Column, TableDef
from headgate.errors import HookError
from headgate.policies import Hook, Policies

__all__ = ["HookedTable", "hooked_table", "mysql_type"]

COLUMN: Final = b"headgate.column"
"""Key of the metadata of an input column: its name, as UTF-8."""

HookFunction = Callable[[pa.RecordBatch], pa.RecordBatch]

_TEXT_LETTERS: Final = 300
"""Most letters of an exception's text in an error: it may hold a whole row."""


@dataclass(frozen=True)
class HookedTable:
    """A table definition behind its hook."""

    hook: Hook
    table: TableDef
    """As the hook gets it: without excluded columns, with the names of the target and the chosen key."""
    function: HookFunction
    input_schema: pa.Schema
    """Columns that the hook gets."""
    fields: tuple[pa.Field, ...]
    """Columns that it returns, without metadata."""
    sources: Mapping[str, Column]
    """The columns among them that came through unchanged, by their names: the source's columns."""
    mark: str
    """``module:function@version/digest``: of names, rules and Arrow types of what the hook gets, in their order."""

    def apply(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return what the hook makes of rows.

        :param columns: those of :attr:`table`, decoded.
        :raises HookError: the hook raised an exception, or broke its contract.
        """
        rows = pa.RecordBatch.from_arrays(list(columns), schema=self.input_schema)
        if not rows.num_rows:
            return [pa.nulls(0, field.type) for field in self.fields]
        returned = _called(self.hook, self.table, self.function, rows)
        wanted = [(field.name, field.type) for field in self.fields]
        actual = [(field.name, field.type) for field in returned.schema]
        if actual != wanted:
            raise _broken(
                self.hook,
                self.table,
                f"returned the columns ({_listed(actual)}), and for an empty batch ({_listed(wanted)}): return the same"
                " columns and types for every batch",
            )
        for name in self.table.key_names:
            if not returned.column(name).equals(rows.column(name)):
                raise _broken(self.hook, self.table, f"changed values of the key column {name}: return them unchanged")
        return list(returned.columns)


def hooked_table(table: TableDef, fields: Sequence[pa.Field], policies: Policies) -> HookedTable | None:
    """Return a table behind its hook; None if it has none.

    :param table: as it is written without the hook: ``TableCodec.table``.
    :param fields: its columns: ``TableCodec.fields``.
    :param policies: those of all tables.
    :raises HookError: the hook cannot be imported, raised an exception, or returned columns that no target can have.
    """
    hook = policies.of(table.full_name).hook
    if hook is None:
        return None
    rules = tuple((column.name, column.rule, column.source_name) for column in table.columns)
    return _hooked(table, rules, tuple(fields), hook)


@lru_cache(maxsize=1024)
def _hooked(
    table: TableDef, rules: tuple[tuple[str, str, str], ...], columns: tuple[pa.Field, ...], hook: Hook
) -> HookedTable:
    """Return a table behind its hook, which is called with an empty batch.

    :param rules: name, rule and source's name of each column: tables that differ in these alone are equal.
    """
    input_schema = pa.schema([field.with_metadata({COLUMN: field.name.encode()}) for field in columns])
    function = _imported(hook, table)
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in input_schema], schema=input_schema)
    returned = _called(hook, table, function, empty)
    _check_columns(hook, table, returned.schema, input_schema)
    by_name = {column.name: column for column in table.columns}
    sources = {
        field.name: by_name[name]
        for field in returned.schema
        for name in [(field.metadata or {}).get(COLUMN, b"").decode()]
        if name in by_name and input_schema.field(name).type == field.type
    }
    described = [rules, [str(field.type) for field in input_schema]]
    digest = hashlib.blake2b(json.dumps(described).encode(), digest_size=4).hexdigest()
    fields = tuple(pa.field(field.name, field.type) for field in returned.schema)
    keys = {name: by_name[name] for name in table.key_names}
    return HookedTable(hook, table, function, input_schema, fields, {**sources, **keys}, f"{hook.spelled}/{digest}")


def _imported(hook: Hook, table: TableDef) -> HookFunction:
    module, _, name = hook.function.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise HookError(
            f"the hook {hook.function} cannot be imported: {_text(error)}. Put its folder on PYTHONPATH, or the file in"
            " [spark] submit.pyFiles, for the driver and the executors",
            table=table.full_name,
        ) from error
    if not callable(function):
        raise HookError(f"the hook {hook.function} is not a function", table=table.full_name)
    return function  # type: ignore[no-any-return]


def _called(hook: Hook, table: TableDef, function: HookFunction, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return what a hook returns, in types without a dictionary and of 32-bit offsets; its metadata stays.

    :raises HookError: it raised an exception, or returned something else, or another number of rows.
    """
    try:
        returned = function(rows)
    except Exception as error:
        raise _broken(hook, table, f"raised {_text(error)}") from error
    if not isinstance(returned, pa.RecordBatch):
        raise _broken(hook, table, f"returned a {type(returned).__name__}: return a pyarrow.RecordBatch")
    if returned.num_rows != rows.num_rows:
        raise _broken(
            hook,
            table,
            f"returned {returned.num_rows} rows for {rows.num_rows}: return one row for each, in the same order. To"
            " leave rows out, use `rows` or `skip`",
        )
    plain = pa.schema([field.with_type(_plain(field.type)) for field in returned.schema])
    if plain == returned.schema:
        return returned
    try:
        return pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(returned.columns, plain, strict=True)], schema=plain
        )
    except pa.ArrowException as error:
        raise _broken(hook, table, f"returned a column that cannot be stored: {_text(error)}") from error


def _check_columns(hook: Hook, table: TableDef, returned: pa.Schema, input_schema: pa.Schema) -> None:
    names = [name.lower() for name in returned.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _broken(hook, table, f"returned two columns {twice}: names differ by more than letter case")
    for name in table.key_names:
        index = returned.get_field_index(name)
        if index < 0 or returned.field(index).type != input_schema.field(name).type:
            raise _broken(
                hook,
                table,
                f"does not return the key column {name} of type {input_schema.field(name).type}: return it as it is",
            )
    for field in returned:
        if not _is_storable(field.type):
            raise _broken(
                hook, table, f"returned column {field.name} of type {field.type}, which no target has: {_REMEDY}"
            )


_REMEDY: Final = (
    "cast it, for example to int64, float64, decimal128(38, s), string, binary, date32 or timestamp('us'), or to lists"
    " and structs of these, whose fields have plain names"
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names of fields that Spark reads in a type without quotes."""


def _is_storable(kind: pa.DataType) -> bool:
    """Return whether Spark and Delta have the type."""
    if pa.types.is_struct(kind):
        names = {field.name.lower() for field in kind if _PLAIN_NAME.fullmatch(field.name)}
        return 0 < kind.num_fields == len(names) and all(_is_storable(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_storable(kind.value_type)
    if pa.types.is_decimal128(kind):
        return bool(0 <= kind.scale <= kind.precision)
    return kind in _MYSQL_TYPES


_MYSQL_TYPES: Final = {
    pa.bool_(): "bit(1)",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "longtext",
    pa.binary(): "longblob",
    pa.date32(): "date",
    pa.timestamp("us"): "datetime(6)",
    pa.timestamp("us", "UTC"): "timestamp(6)",
}


def mysql_type(kind: pa.DataType) -> str:
    """Return the type of MySQL whose values have this Arrow type, for readers that go by MySQL's types; "" if none."""
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _MYSQL_TYPES.get(kind, "")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values that Spark reads: other libraries return large strings or dictionaries."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _broken(hook: Hook, table: TableDef, what: str) -> HookError:
    return HookError(f"the hook {hook.spelled} {what}", table=table.full_name)


def _text(error: BaseException) -> str:
    """Return an exception in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _TEXT_LETTERS else f"{text[: _TEXT_LETTERS - 1]}…"


def _listed(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)

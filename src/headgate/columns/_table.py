"""Codecs of all columns of a table, chosen once per table definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from headgate.catalog import TEMPORALS, TEXTS, Column, TableDef
from headgate.columns._chosen_keys import check_not_null, check_unique, with_chosen_key
from headgate.columns._codec import Codec
from headgate.columns._decimals import DecimalCodec, DecimalTextCodec, DoubleDecimalCodec
from headgate.columns._floats import FloatCodec
from headgate.columns._integers import BitBytesCodec, BitCodec, IntegerCodec, YearCodec
from headgate.columns._json import JsonCodec
from headgate.columns._members import EnumCodec, SetCodec
from headgate.columns._rows import RowFilter
from headgate.columns._rules import apply_rule, column_rules, target_table
from headgate.columns._spatial import GeometryCodec, VectorCodec
from headgate.columns._strings import BytesCodec, FixedBytesCodec, TextCodec
from headgate.columns._temporals import DateCodec, DatetimeCodec, TemporalTextCodec, TimeCodec
from headgate.errors import AmbiguousKeyError, ConfigError, CutValueError, DecodeError, RowFilterError, UnsupportedError
from headgate.kernels import RowBlock
from headgate.names import quote_name
from headgate.policies import DEFAULT, Policies, ZeroDates

__all__ = ["PASSES_FIELD", "RowCodec", "TableCodec", "codec_for"]

PASSES_FIELD = pa.field("\0passes", pa.bool_(), nullable=False)
"""Whether a row passes its table's ``rows``; a name that no column of MySQL can have."""

_SIMPLE: dict[str, Callable[[Column, str], Codec]] = {
    "tinyint": IntegerCodec, "smallint": IntegerCodec, "mediumint": IntegerCodec, "int": IntegerCodec,
    "bigint": IntegerCodec, "float": FloatCodec, "double": FloatCodec, "year": YearCodec,
    "binary": FixedBytesCodec, "varbinary": BytesCodec, "tinyblob": BytesCodec,
    "blob": BytesCodec, "mediumblob": BytesCodec, "longblob": BytesCodec,
    "json": JsonCodec, "geometry": GeometryCodec, "vector": VectorCodec,
}  # fmt: skip
_MAX_ARROW_DIGITS = 38
"""Precision of Spark's and Delta's widest decimal (and of decimal128)."""


def codec_for(column: Column, *, table: str, policies: Policies = DEFAULT, key: bool = False) -> Codec:
    """Return the codec of one column of ``table`` (``db.table``, for errors), without its rule.

    :param policies: those of this table (``Policies.of``).
    :param key: the column is part of the table's key, so different values must have different Arrow values.
    :raises UnsupportedError: a type or character set has no codec, or a policy refuses it; names table, column and
        type.
    """
    kind = column.type
    if not _is_possible(column):
        raise UnsupportedError(f"column type {column.mysql} is invalid", table=table, column=column.name)
    if kind in TEXTS:
        return TextCodec(column, table, key=key, spelled=policies.ambiguous_keys == "spell")
    if kind in ("enum", "set"):
        codec = EnumCodec if kind == "enum" else SetCodec
        return codec(column, table, key=key, spelled=policies.ambiguous_keys == "spell")
    if kind == "bigint" and column.unsigned and policies.unsigned_bigint == "bigint":
        return IntegerCodec(column, table, narrow=True)
    if kind in _SIMPLE:
        return _SIMPLE[kind](column, table)
    if kind == "bit":
        return (BitBytesCodec if policies.bit == "binary" else BitCodec)(column, table)
    if kind == "decimal":
        return _decimal(column, table, policies, key)
    if kind in TEMPORALS:
        return _temporal(column, table, policies, key)
    raise UnsupportedError(f"column type {column.mysql} is not supported", table=table, column=column.name)


def _decimal(column: Column, table: str, policies: Policies, key: bool) -> Codec:
    if policies.decimals == "double" and not key:  # different keys could become equal
        return DoubleDecimalCodec(column, table)
    if policies.decimals == "text":
        return DecimalTextCodec(column, table)
    if column.precision <= _MAX_ARROW_DIGITS:
        return DecimalCodec(column, table)
    if policies.wide_decimals == "error":
        raise UnsupportedError(
            f"{column.mysql} has more than the {_MAX_ARROW_DIGITS} digits of Spark's decimals; "
            'set wide_decimals = "text" to read it as text, make the column narrower, or leave the table out',
            table=table,
            column=column.name,
        )
    return DecimalTextCodec(column, table)


def _temporal(column: Column, table: str, policies: Policies, key: bool) -> Codec:
    if column.type == "time":
        as_text = policies.temporals == "text" or policies.time == "text"
        return TemporalTextCodec(column, table) if as_text else TimeCodec(column, table)
    if policies.temporals == "text" or policies.zero_dates == "text":
        return TemporalTextCodec(column, table)
    nulls = policies.zero_dates == "null"
    # A value that is null in other columns must not be null in a key.
    error = AmbiguousKeyError if nulls and key else DecodeError
    return (DateCodec if column.type == "date" else DatetimeCodec)(column, table, nulls=nulls and not key, kind=error)


def _is_possible(column: Column) -> bool:
    """Return whether the column obeys MySQL's limits, on which the kernels rely."""
    if column.type == "decimal":
        return 1 <= column.precision <= 65 and column.scale <= min(30, column.precision)
    if column.type == "bit":
        return 1 <= column.precision <= 64
    if column.type == "set":
        return len(column.members) <= 64
    return column.scale <= 6


class TableCodec:
    """Codecs of the columns of a table definition, without those that a rule excludes, with the key that its policies
    choose. What it decodes has the names of the target.

    :param table: the table as MySQL has it.
    :param policies: policies of all tables, from which this table's are taken.
    :raises UnsupportedError: see :func:`codec_for`; or a column's rule is not for it; or two would have one name.
    :raises ChosenKeyError: it lacks a column of the chosen key.
    """

    def __init__(self, table: TableDef, policies: Policies = DEFAULT) -> None:
        table_policies, name = policies.of(table.full_name), table.full_name
        table = with_chosen_key(table, table_policies)
        rules = column_rules(table_policies, table)
        self.places = tuple(index for index, rule in enumerate(rules) if rule.kind != "exclude")
        """Where the columns are in the table as MySQL has it."""
        self.table = target_table(table, table_policies)
        """The table as it is written: without excluded columns, with the names of the target."""

        def codec(index: int) -> Codec:
            column, rule = table.columns[index], rules[index]
            # A hash is of a decimal's digits, whatever type the column would have without it.
            policies = replace(table_policies, decimals="text") if rule.kind == "hash" else table_policies
            plain = codec_for(column, table=name, policies=policies, key=index in table.key)
            return apply_rule(plain, column, rule, table=name, key=policies.mask_key)

        self.codecs: tuple[Codec, ...] = tuple(map(codec, self.places))
        self.fields: tuple[pa.Field, ...] = tuple(
            pa.field(column.name, codec.arrow_type, nullable=True)
            for column, codec in zip(self.table.columns, self.codecs, strict=True)
        )
        self.original = table
        """The table as MySQL has it, with the chosen key."""
        self._policies = table_policies
        self.has_hook = table_policies.hook is not None
        """Whether a hook makes the target's columns (``_hooks``), for which it needs all of these."""

    def check_key(self, columns: Sequence[pa.Array], passes: pa.BooleanArray | None) -> None:
        """Check that no image has NULL in a chosen key.

        :param columns: those of :attr:`table`.
        :param passes: the images that count; None: all.
        :raises ChosenKeyError: one has.
        """
        if self.table.has_chosen_key:
            images = pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(self.fields))
            check_not_null(self.table, images if passes is None else images.filter(passes))

    def check_keys(self, rows: pa.Table) -> None:
        """Check that a chosen key identifies each of a table's rows.

        :raises ChosenKeyError: it does not.
        """
        if self.table.has_chosen_key:
            check_unique(self.table, rows)

    @cached_property
    def row_codec(self) -> RowCodec | None:
        """Codec of the columns that decide which rows pass; None: all pass.

        :raises RowFilterError: the table's ``rows`` does not fit it.
        """
        try:
            return RowCodec(self.original, self._policies) if self._policies.rows else None
        except ConfigError as error:
            raise RowFilterError(f"{error.message}: change its `rows`", table=self.original.full_name) from None

    @property
    def select_list(self) -> str:
        """List for ``SELECT <select_list> FROM …``. It names the columns, so it includes invisible ones; behind the
        table's, those of :attr:`row_codec`.
        """
        more = self.row_codec.codecs.values() if self.row_codec is not None else ()
        return ", ".join(codec.select for codec in (*self.codecs, *more))

    def marked_from_text(self, block: RowBlock) -> list[pa.Array]:
        """Decode rows of ``SELECT <select_list>``; with a ``row_codec``, the last array tells which rows pass."""
        columns = self.from_text(block)
        return columns if self.row_codec is None else [*columns, self.row_codec.from_text(block, len(columns))]

    @property
    def marked_fields(self) -> tuple[pa.Field, ...]:
        """Fields of :meth:`marked_from_text`."""
        return self.fields if self.row_codec is None else (*self.fields, PASSES_FIELD)

    def from_log(self, block: RowBlock, *, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Decode row images to arrays, one per column (or one for each index in ``columns``).

        :param block: all columns of the table as MySQL has it.
        :raises DecodeError: a value cannot be decoded; names table and column.
        """
        wanted = range(len(self.codecs)) if columns is None else columns
        return [self.codecs[index].from_log(block.column(self.places[index])) for index in wanted]

    def from_text(self, block: RowBlock, *, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Decode rows of ``SELECT <select_list>`` to arrays, as :meth:`from_log`.

        :raises CutValueError: MySQL cut a value; names table, column, key and setting.
        """
        wanted = range(len(self.codecs)) if columns is None else columns
        try:
            return [self.codecs[index].from_text(block.column(index)) for index in wanted]
        except CutValueError as error:
            raise self._with_key(error, block) from None

    def _with_key(self, error: CutValueError, block: RowBlock) -> CutValueError:
        """Return the error with the key of its row, and how to find all such rows."""
        key = {self.table.columns[index].mysql_name: self.codecs[index] for index in self.table.key}
        index_of = {column.mysql_name: index for index, column in enumerate(self.table.columns)}
        values = [
            f"{name} = {codec.from_text(block.column(index_of[name]))[error.row].as_py()!r}"
            for name, codec in key.items()
        ]
        row = f"the row with {', '.join(values)}" if values else "a row without a key"
        return CutValueError(
            f"{error.message}, in column {error.column} of {row} (to find all: WHERE LENGTH({quote_name(error.column)})"
            f" = 0): raise {error.setting} at the server",
            **error.fields,
        )


class RowCodec:
    """Decoder of the columns of a table's ``rows``, without rules, and independent of policies for types.

    :param table: as MySQL has it.
    :param policies: those of this table.
    :raises ConfigError: the expression does not fit the table.
    """

    def __init__(self, table: TableDef, policies: Policies) -> None:
        self._filter = RowFilter(table, policies.rows)
        zero_dates: ZeroDates = "error" if policies.zero_dates == "error" else "null"
        plain = Policies(zero_dates=zero_dates, time="microseconds")
        self.codecs: dict[int, Codec] = {
            index: codec_for(table.columns[index], table=table.full_name, policies=plain)
            for index in self._filter.indexes
        }

    def from_log(self, block: RowBlock) -> pa.BooleanArray:
        """Return which row images pass.

        :param block: all columns of the table as MySQL has it.
        """
        return self._filter.passes({index: codec.from_log(block.column(index)) for index, codec in self.codecs.items()})

    def from_text(self, block: RowBlock, first: int) -> pa.BooleanArray:
        """Return which selected rows pass.

        :param first: where the columns of this codec begin.
        """
        return self._filter.passes(
            {
                index: codec.from_text(block.column(first + place))
                for place, (index, codec) in enumerate(self.codecs.items())
            }
        )

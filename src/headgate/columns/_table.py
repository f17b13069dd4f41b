"""All columns of a table at once: the codec of each is chosen here, once per table definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import pyarrow as pa

from headgate._cells import RowBlock
from headgate.catalog import Column, TableDef
from headgate.columns._codec import Codec
from headgate.columns._decimals import DecimalCodec, LongDecimalCodec
from headgate.columns._floats import FloatCodec
from headgate.columns._integers import BitCodec, IntegerCodec, YearCodec
from headgate.columns._json import JsonCodec
from headgate.columns._members import EnumCodec, SetCodec
from headgate.columns._spatial import GeometryCodec, VectorCodec
from headgate.columns._strings import BytesCodec, FixedBytesCodec, TextCodec
from headgate.columns._temporals import DateCodec, DatetimeCodec, TemporalTextCodec
from headgate.errors import UnsupportedError

__all__ = ["TableCodec", "Temporals", "ZeroDates", "codec_for"]

Temporals: TypeAlias = Literal["arrow", "text"]
"""``text``: dates and times as MySQL's text instead of Arrow's types."""
ZeroDates: TypeAlias = Literal["error", "null"]
"""What a date that Arrow cannot hold becomes; nothing to say where temporals are text."""

_SIMPLE: dict[str, Callable[[Column, str], Codec]] = {
    "tinyint": IntegerCodec, "smallint": IntegerCodec, "mediumint": IntegerCodec, "int": IntegerCodec,
    "bigint": IntegerCodec, "float": FloatCodec, "double": FloatCodec, "bit": BitCodec, "year": YearCodec,
    "binary": FixedBytesCodec, "varbinary": BytesCodec, "tinyblob": BytesCodec,
    "blob": BytesCodec, "mediumblob": BytesCodec, "longblob": BytesCodec, "enum": EnumCodec, "set": SetCodec,
    "json": JsonCodec, "geometry": GeometryCodec, "vector": VectorCodec,
}  # fmt: skip
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_MAX_ARROW_DIGITS = 38
"""Precision of Spark's and Delta's widest decimal (and of decimal128)."""


def codec_for(
    column: Column, *, table: str, temporals: Temporals = "arrow", zero_dates: ZeroDates = "error", key: bool = False
) -> Codec:
    """The codec of one column of ``table`` (``db.table``, for errors).

    :param key: the column is part of the table's key, so its values must be told apart by their Arrow values.
    :raises UnsupportedError: a type or character set without a codec; names table, column and type.
    """
    kind = column.type
    if not _is_possible(column):
        raise UnsupportedError(f"no column can be of type {column.mysql}", table=table, column=column.name)
    if kind in TEXTS:
        return TextCodec(column, table, key=key)
    if kind in _SIMPLE:
        return _SIMPLE[kind](column, table)
    if kind == "decimal":
        return (DecimalCodec if column.precision <= _MAX_ARROW_DIGITS else LongDecimalCodec)(column, table)
    if kind == "time" or (temporals == "text" and kind in ("date", "datetime", "timestamp")):
        return TemporalTextCodec(column, table)
    if kind == "date":
        return DateCodec(column, table, zero_dates)
    if kind in ("datetime", "timestamp"):
        return DatetimeCodec(column, table, zero_dates)
    raise UnsupportedError(f"column type {column.mysql} is not supported", table=table, column=column.name)


def _is_possible(column: Column) -> bool:
    """MySQL's limits, which kernels rely on: a broken definition must not reach them."""
    if column.type == "decimal":
        return 1 <= column.precision <= 65 and column.scale <= min(30, column.precision)
    if column.type == "bit":
        return 1 <= column.precision <= 64
    if column.type == "set":
        return len(column.members) <= 64
    return column.scale <= 6


class TableCodec:
    """The codecs of all columns of a table definition.

    :raises UnsupportedError: see :func:`codec_for`.
    """

    def __init__(self, table: TableDef, *, temporals: Temporals = "arrow", zero_dates: ZeroDates = "error") -> None:
        self.table = table
        self.codecs: tuple[Codec, ...] = tuple(
            codec_for(column, table=table.full_name, temporals=temporals, zero_dates=zero_dates, key=index in table.key)
            for index, column in enumerate(table.columns)
        )
        self.fields: tuple[pa.Field, ...] = tuple(
            pa.field(column.name, codec.arrow_type, nullable=True)
            for column, codec in zip(table.columns, self.codecs, strict=True)
        )
        self.select_list = ", ".join(codec.select for codec in self.codecs)
        """For ``SELECT <select_list> FROM …``; names every column, so invisible ones come too."""

    def from_log(self, block: RowBlock, *, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Row images to arrays, one a column (or one for each index in ``columns``).

        :raises DecodeError: a value that cannot be decoded; names table and column.
        """
        wanted = range(len(self.codecs)) if columns is None else columns
        return [self.codecs[index].from_log(block.column(index)) for index in wanted]

    def from_text(self, block: RowBlock, *, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Rows of ``SELECT <select_list>`` to arrays, as :meth:`from_log`."""
        wanted = range(len(self.codecs)) if columns is None else columns
        return [self.codecs[index].from_text(block.column(index)) for index in wanted]

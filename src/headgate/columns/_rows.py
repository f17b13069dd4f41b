"""Which rows pass a table's ``rows`` expression: decided here for log and table reads alike, on decoded values.

MySQL decides nothing, so a row cannot pass on one road and fail on the other. Columns are decoded without their rules
and policies, so a mask does not change which rows pass. SQL's three-valued logic: only TRUE passes. Exact by type:

============================  ======================================================================================
integers, YEAR, BIT, DECIMAL  as decimals, whatever the number of digits of the literal
FLOAT, DOUBLE                 as doubles
text types                    by code point: no collation, no padding
ENUM, SET                     as the text of their values, by ``=``, ``<>``, ``IN`` and ``LIKE`` only
binary types                  by bytes, with X'…'
DATE, DATETIME, TIMESTAMP     by value; a literal for TIMESTAMP is in UTC
TIME                          by value
============================  ======================================================================================

Two columns can be compared if they have the same kind. A date that Arrow cannot represent counts as NULL if
``zero_dates`` is not ``error``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import BINARIES, INTEGERS, TEXTS, Column, TableDef
from headgate.columns._expressions import (
    And,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Operand,
    Or,
    columns_of,
    days_of,
    microseconds_of,
    parse_expression,
    pattern_parts,
    time_micros_of,
)
from headgate.errors import ConfigError, SchemaChangedError
from headgate.policies import Policies

__all__ = ["RowFilter", "check_row_filters", "filter_images"]

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOST_DIGITS: Final = 38
_WIDE: Final = 76


class RowFilter:
    """An expression bound to a table.

    :param table: as MySQL has it.
    :raises ConfigError: the expression is none, uses a column that does not exist or cannot be compared, or compares it
        with a literal of another type.
    """

    def __init__(self, table: TableDef, text: str) -> None:
        self._table = table
        try:
            self._tree = parse_expression(text)
        except ValueError as error:
            raise self._error(str(error)) from None
        self.indexes: tuple[int, ...] = tuple(sorted(self._index(name) for name in columns_of(self._tree)))
        """The columns it uses, by their index in the table."""
        self._kinds = {index: self._kind(table.columns[index]) for index in self.indexes}
        empty = {index: pa.array([], _sample_type(self._kinds[index])) for index in self.indexes}
        self._evaluate(self._tree, empty)  # checks every literal

    def passes(self, values: dict[int, pa.Array]) -> pa.BooleanArray:
        """Return which rows pass; no nulls.

        :param values: the columns of :attr:`indexes`, decoded without rules.
        """
        return pc.fill_null(self._evaluate(self._tree, values), False)

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"rows of {self._table.full_name}: {problem}")

    def _index(self, name: str) -> int:
        try:
            return self._table.index(name)
        except SchemaChangedError:
            raise self._error(f"the table has no column {name}") from None

    def _kind(self, column: Column) -> str:
        kinds = {
            "number": column.type in INTEGERS | {"year", "bit"}
            or (column.type == "decimal" and column.precision <= _MOST_DIGITS),
            "double": column.type in ("float", "double"),
            "text": column.type in TEXTS and column.charset is not None,
            "member": column.type in ("enum", "set"),
            "bytes": column.type in BINARIES,
            "date": column.type == "date",
            "datetime": column.type in ("datetime", "timestamp"),
            "time": column.type == "time",
        }
        for kind, applies in kinds.items():
            if applies:
                return kind
        raise self._error(f"column {column.name} of type {column.mysql} cannot be compared here")

    def _evaluate(self, tree: Expression, values: dict[int, pa.Array]) -> pa.Array:
        match tree:
            case And(parts=parts) | Or(parts=parts):
                join = pc.and_kleene if isinstance(tree, And) else pc.or_kleene
                result = self._evaluate(parts[0], values)
                for part in parts[1:]:
                    result = join(result, self._evaluate(part, values))
                return result
            case Not(part=part):
                return pc.invert(self._evaluate(part, values))
            case IsNull(column=column):
                return pc.is_null(values[self._index(column.text)])
            case Like(column=column, pattern=pattern):
                return self._like(column, pattern, values)
            case In(column=column, values=literals):
                result = self._compare("=", column, literals[0], values)
                for literal in literals[1:]:
                    result = pc.or_kleene(result, self._compare("=", column, literal, values))
                return result
            case Compare(sign=sign, left=left, right=right):
                return self._compare(sign, left, right, values)

    def _like(self, column: Name, pattern: str, values: dict[int, pa.Array]) -> pa.Array:
        index = self._index(column.text)
        if self._kinds[index] not in ("text", "member"):
            raise self._error(f"LIKE needs a column of text, which {column.text} is not")
        return pc.match_substring_regex(values[index], _regex(pattern))

    def _compare(self, sign: str, left: Operand, right: Operand, values: dict[int, pa.Array]) -> pa.Array:
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                raise self._error("a comparison needs a column")
            return self._compare(_MIRRORED[sign], right, left, values)
        index = self._index(left.text)
        kind, column = self._kinds[index], self._table.columns[index]
        if kind == "member" and sign not in ("=", "<>"):
            raise self._error(f"column {left.text} ({column.type.upper()}) has no order here: use =, <>, IN or LIKE")
        ours = _canonical(values[index], kind)
        if isinstance(right, Name):
            other = self._index(right.text)
            in_utc = [one.type == "timestamp" for one in (column, self._table.columns[other])]
            if self._kinds[other] != kind or in_utc[0] != in_utc[1]:
                raise self._error(f"columns {left.text} and {right.text} are of different kinds")
            return _COMPARISONS[sign](ours, _canonical(values[other], kind))
        return _COMPARISONS[sign](ours, self._scalar(right, column, kind))

    def _scalar(self, literal: Literal, column: Column, kind: str) -> pa.Scalar:
        try:
            return _scalar(literal.value, kind)
        except (ValueError, ArithmeticError, pa.ArrowException):
            shown = literal.value if isinstance(literal.value, (str, Decimal)) else literal.value.hex()
            raise self._error(
                f"column {column.name} of type {column.mysql} cannot be compared with {str(shown)!r}; expected"
                f" {_EXPECTED[kind]}"
            ) from None


def check_row_filters(policies: Policies, tables: Sequence[TableDef]) -> None:
    """Raise ``ConfigError`` if the ``rows`` of one of these tables does not fit it."""
    for table in tables:
        text = policies.of(table.full_name).rows
        if text:
            RowFilter(table, text)


_EXPECTED: Final = {
    "number": "a number of at most 38 digits before the point and 30 after it",
    "double": "a number",
    "text": "a text",
    "member": "a text",
    "bytes": "X'…'",
    "date": "a date such as '2026-01-31'",
    "datetime": "a time such as '2026-01-31 12:00:00'",
    "time": "a time such as '12:00:00'",
}
_NUMBER: Final = pa.decimal256(_WIDE, 30)


def _sample_type(kind: str) -> pa.DataType:
    return {
        "number": pa.int64(),
        "double": pa.float64(),
        "text": pa.string(),
        "member": pa.string(),
        "bytes": pa.binary(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "time": pa.int64(),
    }[kind]


def _canonical(values: pa.Array, kind: str) -> pa.Array:
    """Return values in the form in which they are compared."""
    match kind:
        case "number" if pa.types.is_integer(values.type):
            return values.cast(pa.decimal128(20, 0)).cast(_NUMBER)
        case "number":
            return values.cast(_NUMBER)
        case "double":
            return values.cast(pa.float64())
        case "bytes":
            return values.cast(pa.binary())
        case "datetime":
            return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        case _:
            return values


def _scalar(value: Decimal | str | bytes, kind: str) -> pa.Scalar:
    """Return a literal in the form of :func:`_canonical`.

    :raises ValueError: it has another type.
    """
    match kind, value:
        case "number", Decimal():
            exact = value.quantize(Decimal(1).scaleb(-30), context=Context(prec=_WIDE))
            if exact != value or abs(exact) >= Decimal(10) ** 38:
                raise ValueError
            return pa.scalar(exact, _NUMBER)
        case "double", Decimal():
            return pa.scalar(float(value), pa.float64())
        case (("text" | "member"), str()):
            return pa.scalar(value, pa.string())
        case "bytes", bytes():
            return pa.scalar(value, pa.binary())
        case "date", str():
            return pa.scalar(days_of(value), pa.int32()).cast(pa.date32())
        case "datetime", str():
            return pa.scalar(microseconds_of(value), pa.int64())
        case "time", str():
            return pa.scalar(time_micros_of(value), pa.int64())
    raise ValueError


def _regex(pattern: str) -> str:
    """Return RE2's form of a LIKE pattern; ``%`` and ``_`` also match line breaks."""
    plain = {"%": ".*", "_": "."}
    return f"(?s)\\A{''.join(plain.get(one) or _quoted(one[-1]) for one in pattern_parts(pattern))}\\z"


def _quoted(letter: str) -> str:
    return letter if letter.isalnum() or ord(letter) > 127 else f"\\x{{{ord(letter):x}}}"


def filter_images(batch: pa.RecordBatch, passes: pa.BooleanArray) -> pa.RecordBatch:
    """Return the images of a table that has only the rows that pass.

    An update by which a row leaves becomes a delete (``d``) with its old values, one by which it enters an insert
    (``c``) with its new ones. An update of a row outside is left out.

    :param batch: images with ``_op`` as the first column; each ``u`` directly behind its ``b``.
    :param passes: which images pass; no nulls.
    """
    mask = np.asarray(passes.to_numpy(zero_copy_only=False), np.bool_)
    ops = batch.column(0)
    before, after = (np.asarray(pc.equal(ops, letter).to_numpy(zero_copy_only=False), np.bool_) for letter in "bu")
    leaves = before & mask & ~np.append(mask[1:], False)
    enters = after & mask & ~np.append(False, mask[:-1])
    if leaves.any():
        ops = pc.if_else(pa.array(leaves), "d", ops)
    if enters.any():
        ops = pc.if_else(pa.array(enters), "c", ops)
    return batch.set_column(0, batch.schema.field(0), ops).filter(passes)

"""Row filters of consumers: predicates, and wanted columns; compiled for each schema version.

A predicate is a row expression, the language of ``rows`` (``columns._expressions``)::

    status IN ('paid', 'sent') AND amount >= 99.95 AND note LIKE 'gift%'

It has the same tree and meaning there and here. There it is evaluated on Arrow columns, here on the bytes of events,
without decoding a row. A poll mostly brings a few events: with Arrow, five take 170 µs more, and polls with HTTP keep
only 40 to 55 % of their events a second.

A column is named as in MySQL, in any letter case, or else as in the Avro schema. A column that a version of the schema
lacks is NULL. Types are the schema's: a TIME, for example, is text. A column is compared with a literal only.

For an update the after image is tested, and the before image as well if the relay has it: one that passes is enough. So
only with before images a consumer gets the update by which a row leaves its filter.

Unwanted columns are null in the event, which keeps its schema; the key, and columns that cannot be null, stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.columns import (
    And,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Not,
    Or,
    columns_of,
    days_of,
    microseconds_of,
    parse_expression,
    pattern_parts,
)
from headgate.names import lower_name
from headgate.relay.databus import Schema
from headgate.relay.server.events import _rows as rows
from headgate.relay.server.events._schemas import field_attributes, key_fields

__all__ = ["NO_ROW_FILTERS", "CompiledFilters", "SourceFilter", "compile_filters"]

Int64s = npt.NDArray[np.int64]

_COMPARISONS: Final = {"=": rows.EQ, "<>": rows.NE, "<": rows.LT, "<=": rows.LE, ">": rows.GT, ">=": rows.GE}
_INT64: Final = 2**63
_INT128: Final = 2**127
_QUOTED: Final = ("a text", "X'…'")
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class SourceFilter:
    """Filter of one source's rows; None: all."""

    where: str | None = None
    columns: tuple[str, ...] | None = None


class CompiledFilters(NamedTuple):
    """Compiled filters of some schema versions, in the form of compiled loops."""

    digests: npt.NDArray[np.uint8]
    """uint8[versions, 16]: the schemas' ids."""
    bounds: Int64s
    """int64[versions, 5]: begin and end of each one's fields, and of its program (empty: all pass); the source."""
    fields: Int64s
    kept: npt.NDArray[np.bool_]
    """bool[fields]: whether the field is delivered."""
    program: Int64s
    text: npt.NDArray[np.uint8]
    floats: npt.NDArray[np.float64]
    smaller: bool
    """Whether any field is left out."""


# --- one schema version -----------------------------------------------------------------------------------------------


class _ComparedField(NamedTuple):
    number: int
    layout: int
    avro: Any
    """Its type, without the union."""
    is_union: bool
    null_branch: int
    column: str
    name: str
    """In the Avro schema."""


def _fields_of(schema: Schema) -> list[_ComparedField]:
    fields = []
    for index, field in enumerate(schema.value["fields"]):
        avro, branch = field["type"], -1
        is_union = isinstance(avro, list)
        if is_union:
            branch = avro.index("null") if "null" in avro else -1
            avro = next(one for one in avro if one != "null")
        column = field_attributes(field.get("meta")).get("dbFieldName", field["name"])
        fields.append(_ComparedField(index, _layout(avro), avro, is_union, branch, column, field["name"]))
    return fields


def _find(fields: Sequence[_ComparedField], name: str) -> _ComparedField | None:
    """Return the field of MySQL's column name, else of the Avro name, else of that in another letter case; None: there
    is none. Other columns may have such a name: ``user_id`` and ``userid`` are ``userId`` and ``userid`` in Avro.
    """

    def ranks(one: _ComparedField) -> tuple[bool, ...]:
        return lower_name(one.column) == lower_name(name), one.name == name, one.name.lower() == name.lower()

    return max((one for one in fields if any(ranks(one))), key=ranks, default=None)


def _layout(avro: Any) -> int:
    name = avro["type"] if isinstance(avro, dict) else avro
    logical = avro.get("logicalType") if isinstance(avro, dict) else None
    if name == "bytes" and logical == "decimal":
        return rows.DECIMAL
    known = {
        "boolean": rows.LONG,
        "int": rows.LONG,
        "long": rows.LONG,
        "float": rows.FLOAT,
        "double": rows.DOUBLE,
        "record": rows.PAIR,
        "array": rows.FLOATS,
    }
    return known.get(name, rows.BYTES)


class _Program:
    """A compiled predicate for one schema version."""

    def __init__(self, fields: Sequence[_ComparedField], text: bytearray, floats: list[float]) -> None:
        self._fields, self._text, self._floats = fields, text, floats
        self.steps: list[tuple[int, int, int, int, int]] = []
        self.slots: dict[int, int] = {}
        """Field → slot."""

    def add(self, tree: Expression) -> None:
        """:raises ValueError: a comparison that the column's type does not have; too long a predicate."""
        match tree:
            case And(parts=parts) | Or(parts=parts):
                self._join(parts, rows.AND if isinstance(tree, And) else rows.OR)
            case Not(part=part):
                self.add(part)
                self._step(rows.NOT)
            case In(column=column, values=values):
                self._join([Compare("=", column, one) for one in values], rows.OR)
            case IsNull(column=column):
                self._test(column, lambda _, slot: self._step(rows.NULL_OF, slot), otherwise=1)
            case Like(column=column, pattern=pattern):
                self._test(column, lambda field, slot: self._like(field, slot, pattern))
            case Compare(sign=sign, left=Name() as column, right=Literal() as literal):
                self._test(column, lambda field, slot: self._compare(field, slot, _COMPARISONS[sign], literal.value))
            case Compare(sign=sign, left=Literal() as literal, right=Name() as column):
                self.add(Compare(_MIRRORED.get(sign, sign), column, literal))
            case _:
                raise ValueError("compare a column with a number or a text")
        if len(self.steps) > rows.MOST_STEPS or len(self.slots) > rows.MOST_SLOTS:
            raise ValueError("the predicate is too long")

    def _join(self, parts: Sequence[Expression], operation: int) -> None:
        self.add(parts[0])
        for one in parts[1:]:
            self.add(one)
            self._step(operation)

    def _step(self, kind: int, slot: int = 0, comparison: int = 0, first: int = 0, second: int = 0) -> None:
        self.steps.append((kind, slot, comparison, first, second))

    def _test(self, column: Name, add: Callable[[_ComparedField, int], None], *, otherwise: int = 2) -> None:
        """:param otherwise: the truth if only another version of the schema has the column."""
        field = _find(self._fields, column.text)
        if field is None:
            self._step(rows.ALWAYS, first=otherwise)
        else:
            add(field, self.slots.setdefault(field.number, len(self.slots)))

    def _like(self, field: _ComparedField, slot: int, pattern: str) -> None:
        if field.avro != "string":
            raise ValueError(f"LIKE needs a column of text, which {field.column} is not")
        marks = {"%": rows.ANY, "_": rows.ONE}
        begin = len(self._text)
        for part in pattern_parts(pattern):
            self._text += marks.get(part) or part[-1].encode("utf-8", "surrogatepass")
        self._step(rows.LIKE, slot, 0, begin, len(self._text))

    def _compare(self, field: _ComparedField, slot: int, comparison: int, value: Decimal | str | bytes) -> None:
        if field.layout == rows.BYTES:
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            if not isinstance(data, bytes) or (field.avro == "bytes") != isinstance(value, bytes):
                raise ValueError(f"compare {field.column} with {_QUOTED[field.avro == 'bytes']}")
            self._text += data
            self._step(rows.BYTES_OF, slot, comparison, len(self._text) - len(data), len(self._text))
        elif field.layout in (rows.FLOAT, rows.DOUBLE):
            self._floats.append(float(_number(value)))
            self._step(rows.DOUBLE_OF, slot, comparison, len(self._floats) - 1)
        elif field.avro == "boolean":
            if comparison not in (rows.EQ, rows.NE) or value not in (0, 1):
                raise ValueError("compare boolean columns by = and <> with TRUE and FALSE")
            self._step(rows.LONG_OF, slot, comparison, -int(_number(value)))  # its byte, read as a zigzag number
        elif field.layout == rows.LONG:
            comparison, number = _whole_comparison(_ticks(field.avro, value), comparison, _INT64)
            self._step(rows.LONG_OF, slot, comparison, number)
        elif field.layout == rows.DECIMAL:
            scaled = Fraction(_number(value)) * 10 ** int(field.avro.get("scale", 0))  # Decimal rounds to 28 digits
            comparison, number = _whole_comparison(scaled, comparison, _INT128)
            low = number & (2**64 - 1)
            self._step(rows.DECIMAL_OF, slot, comparison, number >> 64, low - 2**64 if low >= _INT64 else low)
        else:
            raise ValueError("a column of this type cannot be compared")


def _number(value: Decimal | str | bytes) -> Decimal:
    if not isinstance(value, Decimal) or abs(value.adjusted()) > 100:
        raise ValueError(f"{value!r} is not a number")
    return value


def _whole_comparison(value: Decimal | Fraction, comparison: int, limit: int) -> tuple[int, int]:
    """Convert a comparison of a whole number with any number to one with a whole number in ``[-limit, limit)``."""
    never, always = (rows.LT, -limit), (rows.GE, -limit)
    floor = math.floor(value)
    if floor != value:
        if comparison in (rows.EQ, rows.NE):
            return never if comparison == rows.EQ else always
        comparison = rows.LE if comparison in (rows.LT, rows.LE) else rows.GT
    if floor >= limit:
        return always if comparison in (rows.LT, rows.LE, rows.NE) else never
    if floor < -limit:
        return always if comparison in (rows.GT, rows.GE, rows.NE) else never
    return comparison, floor


def _ticks(avro: Any, value: Decimal | str | bytes) -> Decimal:
    """Return a literal as the schema's whole number."""
    logical = (avro.get("logicalType") if isinstance(avro, dict) else None) or ""
    if not isinstance(value, str) or not (logical == "date" or "timestamp" in logical):
        return _number(value)
    try:
        if logical == "date":
            return Decimal(days_of(value))
        micros = microseconds_of(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a {'date' if logical == 'date' else 'time'}") from None
    return Decimal(micros) if logical.endswith("micros") else Decimal(micros) / 1000


# --- all of them ------------------------------------------------------------------------------------------------------


def compile_filters(
    filters: Mapping[int, SourceFilter], versions_of: Callable[[int], Sequence[Schema]]
) -> CompiledFilters:
    """Compile the filters of some sources, for all versions of their schemas.

    :param versions_of: returns a source's schemas, by its id.
    :raises ValueError: a column that no version has, or a comparison that its type does not have.
    """
    text, floats, digests = bytearray(), list[float](), bytearray()
    bounds: list[Sequence[int]] = []
    fields: list[Sequence[int]] = []
    kept: list[bool] = []
    program: list[Sequence[int]] = []
    for source, wanted in filters.items():
        versions = [(schema, _fields_of(schema)) for schema in versions_of(source)]
        tree = None if wanted.where is None else parse_expression(wanted.where)
        named = set(wanted.columns or ()) | (set() if tree is None else columns_of(tree))
        unknown = sorted(name for name in named if not any(_find(one, name) for _, one in versions))
        if versions and unknown:
            raise ValueError(f"there is no column {unknown[0]}")
        for schema, schema_fields in versions:
            compiled = _Program(schema_fields, text, floats)
            if tree is not None:
                compiled.add(tree)
            digests += schema.digest
            begin, first_step = len(fields), len(program)
            program += compiled.steps
            fields += [
                [one.layout, int(one.is_union), one.null_branch, compiled.slots.get(one.number, -1)]
                for one in schema_fields
            ]
            kept += _kept(schema, schema_fields, wanted.columns)
            bounds.append((begin, len(fields), first_step, len(program), source))
    return CompiledFilters(
        np.frombuffer(digests, np.uint8).reshape(-1, 16),
        np.array(bounds, np.int64).reshape(-1, 5),
        np.array(fields, np.int64).reshape(-1, 4),
        np.array(kept, np.bool_),
        np.array(program, np.int64).reshape(-1, 5),
        np.frombuffer(text, np.uint8),
        np.array(floats, np.float64),
        smaller=not all(kept),
    )


NO_ROW_FILTERS: Final = compile_filters({}, lambda _: ())


def _kept(schema: Schema, fields: Sequence[_ComparedField], columns: Sequence[str] | None) -> list[bool]:
    if columns is None:
        return [True] * len(fields)
    wanted, key = [_find(fields, name) for name in columns], key_fields(schema.value)
    return [one in wanted or one.name in key for one in fields]

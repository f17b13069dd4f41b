"""Row filters of consumers: predicates, and wanted columns; compiled for each schema version.

A predicate is a list in prefix form, in JSON: it contains no code, and needs no parser::

    ["=", "status", "paid"]                        also != < <= > >=
    ["in", "status", ["paid", "sent"]]
    ["starts", "note", "gift"]
    ["null", "note"]                               NULL
    ["and", …, …]  ["or", …, …]  ["not", …]

A column is named as in MySQL, in any letter case, or else as in the Avro schema. Numbers are compared exactly, with
columns of DECIMAL too (a number in text is valid); dates and times with text as MySQL prints it (a TIMESTAMP in UTC),
unless the schema has them as numbers; text by its code points, whatever the column's collation, so case counts. A
comparison with NULL is neither true nor false, and only true passes. A column that a version of the schema lacks is
NULL.

For an update the after image is tested, and the before image as well if the relay has it: one that passes is enough. So
only with before images a consumer gets the update by which a row leaves its filter.

Unwanted columns are null in the event, which keeps its schema; the key, and columns that cannot be null, stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.databus import Schema
from headgate.names import lower_name
from headgate.relay._events import _rows as rows
from headgate.relay._events._schemas import field_attributes, key_fields

__all__ = ["NO_ROW_FILTERS", "CompiledFilters", "RowFilter", "check_predicate", "compile_filters"]

Int64s = npt.NDArray[np.int64]

_COMPARISONS: Final = {"=": rows.EQ, "!=": rows.NE, "<": rows.LT, "<=": rows.LE, ">": rows.GT, ">=": rows.GE}
_INT64: Final = 2**63
_INT128: Final = 2**127
_DEEPEST: Final = 30
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class RowFilter:
    """Filter of one source's rows; None: all."""

    where: Any = None
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


def _is_value(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def check_predicate(node: Any, depth: int = 0) -> Any:
    """Return the predicate.

    :raises ValueError: it is not a predicate.
    """
    if not isinstance(node, list) or not node or not isinstance(node[0], str) or depth > _DEEPEST:
        raise ValueError("not a predicate")
    name, rest = node[0], node[1:]
    if name in ("and", "or", "not"):
        if not rest or (name == "not" and len(rest) != 1):
            raise ValueError("not a predicate")
        for one in rest:
            check_predicate(one, depth + 1)
        return node
    if not rest or not isinstance(rest[0], str):
        raise ValueError("a predicate needs a column name")
    if (name == "null" and len(rest) == 1) or (
        len(rest) == 2
        and (
            (name in _COMPARISONS and _is_value(rest[1]))
            or (name == "starts" and isinstance(rest[1], str))
            or (name == "in" and isinstance(rest[1], list) and rest[1] and all(_is_value(one) for one in rest[1]))
        )
    ):
        return node
    raise ValueError("not a predicate")


def _columns_in(node: Any) -> set[str]:
    if node[0] in ("and", "or", "not"):
        return {name for one in node[1:] for name in _columns_in(one)}
    return {node[1]}


# --- one schema version -----------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    number: int
    layout: int
    avro: Any
    """Its type, without the union."""
    is_union: bool
    null_branch: int
    column: str
    name: str
    """In the Avro schema."""


def _fields_of(schema: Schema) -> list[_Field]:
    fields = []
    for index, field in enumerate(schema.value["fields"]):
        avro, branch = field["type"], -1
        is_union = isinstance(avro, list)
        if is_union:
            branch = avro.index("null") if "null" in avro else -1
            avro = next(one for one in avro if one != "null")
        column = field_attributes(field.get("meta")).get("dbFieldName", field["name"])
        fields.append(_Field(index, _layout(avro), avro, is_union, branch, column, field["name"]))
    return fields


def _find(fields: Sequence[_Field], name: str) -> _Field | None:
    """Return the field of MySQL's column name, else of the Avro name, else of that in another letter case; None: there
    is none. Other columns may have such a name: ``user_id`` and ``userid`` are ``userId`` and ``userid`` in Avro.
    """

    def ranks(one: _Field) -> tuple[bool, ...]:
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

    def __init__(self, fields: Sequence[_Field], text: bytearray, floats: list[float]) -> None:
        self._fields, self._text, self._floats = fields, text, floats
        self.steps: list[tuple[int, int, int, int, int]] = []
        self.slots: dict[int, int] = {}
        """Field → slot."""

    def add(self, node: Any) -> None:
        """:raises ValueError: a comparison that the column's type does not have; too long a predicate."""
        name = node[0]
        if name in ("and", "or"):
            self.add(node[1])
            for one in node[2:]:
                self.add(one)
                self._step(rows.AND if name == "and" else rows.OR)
        elif name == "not":
            self.add(node[1])
            self._step(rows.NOT)
        elif name == "in":
            self.add(["or", *(["=", node[1], one] for one in node[2])])
        else:
            self._test_column(name, node[1], node[2] if len(node) > 2 else None)
        if len(self.steps) > rows.MOST_STEPS or len(self.slots) > rows.MOST_SLOTS:
            raise ValueError("the predicate is too long")

    def _step(self, kind: int, slot: int = 0, comparison: int = 0, first: int = 0, second: int = 0) -> None:
        self.steps.append((kind, slot, comparison, first, second))

    def _test_column(self, name: str, column: str, value: Any) -> None:
        field = _find(self._fields, column)
        if field is None:  # only another version has it
            self._step(rows.ALWAYS, first=1 if name == "null" else 2)
            return
        slot = self.slots.setdefault(field.number, len(self.slots))
        if name == "null":
            self._step(rows.NULL_OF, slot)
        elif name == "starts":
            if field.layout != rows.BYTES:
                raise ValueError(f"{column} is not a text column")
            self._step(rows.STARTS, slot, 0, *self._add_text(value))
        else:
            self._compare(field, slot, _COMPARISONS[name], value)

    def _add_text(self, value: str) -> tuple[int, int]:
        begin = len(self._text)
        self._text += value.encode("utf-8", "surrogatepass")
        return begin, len(self._text)

    def _compare(self, field: _Field, slot: int, comparison: int, value: Any) -> None:
        if field.layout == rows.BYTES:
            if not isinstance(value, str):
                raise ValueError("compare text columns with text")
            self._step(rows.BYTES_OF, slot, comparison, *self._add_text(value))
        elif field.layout in (rows.FLOAT, rows.DOUBLE):
            self._floats.append(float(_number(value)))
            self._step(rows.DOUBLE_OF, slot, comparison, len(self._floats) - 1)
        elif field.avro == "boolean":
            if comparison not in (rows.EQ, rows.NE) or value not in (0, 1):
                raise ValueError("compare boolean columns by = and != with 0 and 1")
            self._step(rows.LONG_OF, slot, comparison, -int(value))  # its byte, read as a zigzag number
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


def _number(value: Any) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"{value!r} is not a number") from None
    if not number.is_finite() or abs(number.adjusted()) > 100:
        raise ValueError(f"{value!r} is not a number")
    return number


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


def _ticks(avro: Any, value: Any) -> Decimal:
    """Return a value as the schema's whole number; dates and times may be text."""
    logical = (avro.get("logicalType") if isinstance(avro, dict) else None) or ""
    if not isinstance(value, str) or not (logical == "date" or "timestamp" in logical):
        return _number(value)
    try:
        if logical == "date":
            return Decimal(date.fromisoformat(value).toordinal() - _EPOCH_DAY)
        at = datetime.fromisoformat(value.removesuffix("Z"))
    except ValueError:
        raise ValueError(f"{value!r} is not a {'date' if logical == 'date' else 'time'}") from None
    since = at.replace(tzinfo=at.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return Decimal(micros) if logical.endswith("micros") else Decimal(micros) / 1000


# --- all of them ------------------------------------------------------------------------------------------------------


def compile_filters(
    filters: Mapping[int, RowFilter], versions_of: Callable[[int], Sequence[Schema]]
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
        named = set(wanted.columns or ()) | (set() if wanted.where is None else _columns_in(wanted.where))
        unknown = sorted(name for name in named if not any(_find(one, name) for _, one in versions))
        if versions and unknown:
            raise ValueError(f"there is no column {unknown[0]}")
        for schema, schema_fields in versions:
            compiled = _Program(schema_fields, text, floats)
            if wanted.where is not None:
                compiled.add(wanted.where)
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


def _kept(schema: Schema, fields: Sequence[_Field], columns: Sequence[str] | None) -> list[bool]:
    if columns is None:
        return [True] * len(fields)
    wanted, key = [_find(fields, name) for name in columns], key_fields(schema.value)
    return [one in wanted or one.name in key for one in fields]

"""Frozen dataclasses as columns of a Delta table: a field's annotation gives type, writer and reader.

A dataclass is a struct, a tuple an array, and a dictionary the array of its values, whose first field is the key. With
the metadata ``JSON`` a field is text, by ``to_dict`` and ``from_dict`` of its values; null, if it has its default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime
from functools import cache, partial
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["JSON", "columns_of_record", "ddl_of", "read_record", "write_record"]

JSON: Final = {"json": True}

_T = TypeVar("_T")
_PLAIN: Final = {str: "string", int: "bigint", datetime: "timestamp"}


class _Column(NamedTuple):
    spark: str
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value


def ddl_of(record: Any) -> str:
    """Return the columns of a record as Spark DDL."""
    return ", ".join(f"{name} {column.spark}" for name, column in columns_of_record(record).items())


def write_record(record: Any) -> dict[str, Any]:
    """Return the columns of a record; structs are dictionaries."""
    columns = columns_of_record(record.__class__).items()
    return {name: one.write(value) if (value := getattr(record, name)) is not None else None for name, one in columns}


def read_record(kind: Callable[..., _T], value: Mapping[str, Any]) -> _T:
    """Return the record of these columns: its defaults where they are null, or missing. Others are ignored."""
    columns = columns_of_record(kind).items()
    return kind(**{name: one.read(value[name]) for name, one in columns if value.get(name) is not None})


@cache
def columns_of_record(record: Any) -> dict[str, _Column]:
    """Return type, writer and reader of each column of a record."""
    kinds = get_type_hints(record)
    made = ((one, kinds[one.name]) for one in fields(record))
    return {one.name: _json(kind, one) if one.metadata else _column(kind) for one, kind in made}


def _json(kind: Any, field: Field[Any]) -> _Column:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    inner = _column(kind, lambda one: _Column("", methodcaller("to_dict"), one.from_dict))
    return _Column(
        "string",
        lambda value: None if value == default else json.dumps(inner.write(value), ensure_ascii=False, sort_keys=True),
        lambda text: inner.read(json.loads(text)),
    )


def _struct(kind: Any) -> _Column:
    if kind in _PLAIN:
        return _Column(_PLAIN[kind])
    return _Column(f"struct<{ddl_of(kind)}>", write_record, partial(read_record, kind))


def _column(kind: Any, leaf: Callable[[Any], _Column] = _struct) -> _Column:
    *_, inner = (kind, *(one for one in get_args(kind) if one not in (NoneType, Ellipsis)))
    spark, write, read = column = leaf(inner)
    if get_origin(kind) is tuple:
        return _Column(f"array<{spark}>", lambda values: [*map(write, values)], lambda values: tuple(map(read, values)))
    if get_origin(kind) is dict:
        key = attrgetter(fields(inner)[0].name)
        return _Column(
            f"array<{spark}>",
            lambda values: [write(one) for _, one in sorted(values.items())],
            lambda values: {key(one): one for one in map(read, values)},
        )
    return column

r"""The names that a table's columns have in its files.

A Parquet column of Delta cannot have a blank or one of ``,;{}()\n\t=`` in its name. A table with such a column has
column mapping by name: each field of its schema, at any depth, has a physical name and an id besides its own name.
Data files and statistics know the physical names alone, and files the ids, too. Source: Delta Transaction Log Protocol,
"Column Mapping".

Names change in three places: when rows are given to the Parquet writer, when a data file is opened, and when bounds are
looked up. Everybody else knows the names of the table. A table without column mapping has :data:`UNMAPPED` names, which
cost nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.delta._files import files_of
from headgate.errors import TargetError

__all__ = [
    "MAPPING_FEATURE",
    "MAPPING_MODE",
    "MAX_ID",
    "UNMAPPED",
    "ColumnNames",
    "NamedFile",
    "is_mapped",
    "is_mapped_otherwise",
    "names_of",
    "number",
    "unmarked",
]

MAPPING_FEATURE: Final = "columnMapping"
MAPPING_MODE: Final = "delta.columnMapping.mode"
"""A table's property: ``none``, ``name``, or ``id``, by which readers do not look at names; that is unknown here."""
MAX_ID: Final = "delta.columnMapping.maxColumnId"
_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_PARQUET_ID: Final = "PARQUET:field_id"
"""Where Arrow's Parquet writer looks for a field's id."""
_NOBODYS: Final = ""
"""The name of a field that one side does not have; no field is called so."""


@dataclass(frozen=True)
class _Name:
    """A field in files."""

    physical: str
    number: int
    inside: ColumnNames
    """Of a struct's fields, or those of a list's structs."""


@dataclass(frozen=True)
class ColumnNames:
    """The names that fields have in files; without any, they are the same there."""

    fields: Mapping[str, _Name] = field(default_factory=dict)
    """By the table's names."""

    def __bool__(self) -> bool:
        return bool(self.fields)

    @cached_property
    def _by_physical(self) -> Mapping[str, tuple[str, ColumnNames]]:
        return {one.physical: (name, one.inside) for name, one in self.fields.items()}

    def path(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """A column, or a field in one, as statistics have it."""
        if not self or not path:
            return path
        name = self.fields.get(path[0])
        return (_NOBODYS,) if name is None else (name.physical, *name.inside.path(path[1:]))

    def in_files(self, schema: pa.Schema) -> pa.Schema:
        """The schema of files whose rows have this one.

        :raises TargetError: the table has no such column.
        """
        return pa.schema([self._field_in_files(one) for one in schema]) if self else schema

    def _field_in_files(self, one: pa.Field) -> pa.Field:
        name = self.fields.get(one.name)
        if name is None:
            raise TargetError(f"the table has no column {one.name} any more")
        kind = _with_fields(one.type, name.inside, ColumnNames._field_in_files)
        return pa.field(name.physical, kind, one.nullable, {_PARQUET_ID: str(name.number)})

    def of_table(self, schema: pa.Schema) -> pa.Schema:
        """A file's schema with the table's names. A field that the table does not have is called ``""``."""
        return pa.schema([self._field_of_table(one) for one in schema]) if self else schema

    def _field_of_table(self, one: pa.Field) -> pa.Field:
        name, inside = self._by_physical.get(one.name, (_NOBODYS, UNMAPPED))
        return pa.field(name, _with_fields(one.type, inside, ColumnNames._field_of_table), one.nullable)

    def for_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
        """Rows as files have them.

        :param batches: of exactly this schema.
        """
        return _renamed(batches, schema, self.in_files(schema)) if self else batches

    @contextmanager
    def open(self, folder: str, name: str) -> Iterator[NamedFile]:
        """A data file of a table's folder.

        :raises OSError: it cannot be read.
        """
        with files_of(folder).open_parquet(name) as file:
            yield NamedFile(file, self)


UNMAPPED: Final = ColumnNames()


def _with_fields(
    kind: pa.DataType, names: ColumnNames, change: Callable[[ColumnNames, pa.Field], pa.Field]
) -> pa.DataType:
    """A type whose fields, at any depth, are changed."""
    if names and pa.types.is_struct(kind):
        return pa.struct([change(names, one) for one in kind])
    if names and pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_fields(kind.value_type, names, change)))
    return kind


class NamedFile:
    """An open data file whose columns have the table's names."""

    def __init__(self, file: pq.ParquetFile, names: ColumnNames) -> None:
        self._file, self._names = file, names
        self.columns: Collection[str] = {*names.of_table(file.schema_arrow).names}
        """Those of the table that it has."""

    def _physical(self, columns: Iterable[str]) -> list[str]:
        return [self._names.path((name,))[0] for name in columns]

    def read(self, columns: Iterable[str]) -> pa.Table:
        """All rows, with those of these columns that it has, in the file's order."""
        return self._table(self._file.read(columns=self._physical(columns)))

    def row_group(self, number: int, columns: Iterable[str]) -> pa.Table:
        """The rows of a row group, as :meth:`read`."""
        return self._table(self._file.read_row_group(number, columns=self._physical(columns)))

    def batches(
        self, rows: int, columns: Iterable[str], groups: Sequence[int] | None = None, *, threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """So many rows at a time, as :meth:`read`.

        :param groups: of these row groups; None: of all.
        """
        found = self._file.iter_batches(rows, row_groups=groups, columns=self._physical(columns), use_threads=threads)
        for batch in found:
            yield _relabelled(batch, self._names.of_table(batch.schema)) if self._names else batch

    def _table(self, found: pa.Table) -> pa.Table:
        if not self._names or not found.num_columns:
            return found
        schema = self._names.of_table(found.schema)
        return pa.Table.from_batches([_relabelled(batch, schema) for batch in found.to_batches()], schema)


class _Relabelled:
    """Arrays under another schema, for Arrow's C data interface."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def _relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same arrays; the schema has other names, at any depth, and no other types."""
    return pa.record_batch(_Relabelled(batch, schema))


def _renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema, to: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.schema.equals(schema):
            raise pa.ArrowInvalid(f"rows of another schema: {batch.schema}")
        yield _relabelled(batch, to)


def is_mapped(properties: Mapping[str, str]) -> bool:
    """Whether a table has column mapping by name."""
    return properties.get(MAPPING_MODE) == "name"


def is_mapped_otherwise(properties: Mapping[str, str]) -> bool:
    """Whether a table has column mapping, and not by name."""
    return properties.get(MAPPING_MODE, "none") not in ("none", "name")


def names_of(schema_json: str, properties: Mapping[str, str]) -> ColumnNames:
    """The names in the files of a table.

    :param schema_json: its columns, as its log has them.
    :raises TargetError: a column has none.
    """
    return _mapped_names(schema_json) if is_mapped(properties) else UNMAPPED


@lru_cache(maxsize=4096)
def _mapped_names(schema_json: str) -> ColumnNames:
    return _names(json.loads(schema_json))


def _names(kind: Any) -> ColumnNames:
    """Of the fields of a struct, or of a list's structs."""
    if not isinstance(kind, dict):
        return UNMAPPED
    if kind["type"] == "array":
        return _names(kind["elementType"])
    try:
        return ColumnNames({one["name"]: _name(one) for one in kind.get("fields", ())})
    except KeyError as error:
        raise TargetError(f"the log is damaged: a column without {error}") from None


def _name(one: Mapping[str, Any]) -> _Name:
    return _Name(str(one["metadata"][_PHYSICAL]), int(one["metadata"][_ID]), _names(one["type"]))


@lru_cache(maxsize=4096)
def unmarked(schema_json: str) -> str:
    """A table's columns without what their names in files add to them."""
    if _PHYSICAL not in schema_json:
        return schema_json
    return json.dumps(json.loads(schema_json, object_hook=_without_marks))


def _without_marks(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name not in (_ID, _PHYSICAL)}


def number(fields: Iterable[dict[str, Any]], properties: Mapping[str, str], *, keep: bool) -> dict[str, str]:
    """Give a name in files and an id to each field that has none; the table's properties are then these.

    :param fields: of a table's JSON, at all depths.
    :param keep: whether files have these fields already, under their own names.
    """
    known = list(fields)
    last = max([int(properties.get(MAX_ID) or 0), *(int(one["metadata"].get(_ID) or 0) for one in known)])
    for one in known:
        if _PHYSICAL not in one["metadata"]:
            last += 1
            physical = one["name"] if keep else f"col-{uuid.uuid4()}"
            one["metadata"] = {**one["metadata"], _ID: last, _PHYSICAL: physical}
    return {**properties, MAPPING_MODE: "name", MAX_ID: str(last)}

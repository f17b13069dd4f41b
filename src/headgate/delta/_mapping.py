r"""Names of a table's columns in its files (column mapping).

A Parquet column of Delta cannot have a blank or one of ``,;{}()\n\t=`` in its name. A table with such a column has
column mapping by name: each field of its schema, at any depth, has a physical name and an id besides its own name.
Data files and statistics have only the physical names, and files the ids, too. Source: Delta Transaction Log Protocol,
"Column Mapping".

Names are converted when rows are passed to the Parquet writer, when a data file is opened, and when bounds are looked
up. All other code uses the table's names. A table without column mapping has :data:`UNMAPPED` names, at no cost.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import TargetError

__all__ = [
    "MAPPING_FEATURE",
    "MAPPING_MODE",
    "MAX_ID",
    "UNMAPPED",
    "ColumnNames",
    "NamedFile",
    "assign_physical_names",
    "is_mapped",
    "is_mapped_otherwise",
    "names_of",
    "without_mapping",
]

MAPPING_FEATURE: Final = "columnMapping"
MAPPING_MODE: Final = "delta.columnMapping.mode"
"""A table's property: ``none``, ``name``, or ``id``, with which readers ignore names; that is not supported."""
MAX_ID: Final = "delta.columnMapping.maxColumnId"
_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_PARQUET_ID: Final = "PARQUET:field_id"
"""The metadata key from which Arrow's Parquet writer takes a field's id."""
_UNKNOWN_FIELD: Final = ""
"""The name of a field that one side lacks; no field has this name."""


@dataclass(frozen=True)
class _Name:
    """Name and id of a field in files."""

    physical: str
    number: int
    inside: ColumnNames
    """Names of a struct's fields, or of those of a list's structs."""


@dataclass(frozen=True)
class ColumnNames:
    """Names of fields in files; empty: files have the table's names."""

    fields: Mapping[str, _Name] = field(default_factory=dict)
    """By the table's names."""

    def __bool__(self) -> bool:
        return bool(self.fields)

    @cached_property
    def _by_physical(self) -> Mapping[str, tuple[str, ColumnNames]]:
        return {one.physical: (name, one.inside) for name, one in self.fields.items()}

    def path(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of a column, or of a field in one, in statistics."""
        if not self or not path:
            return path
        name = self.fields.get(path[0])
        return (_UNKNOWN_FIELD,) if name is None else (name.physical, *name.inside.path(path[1:]))

    def in_files(self, schema: pa.Schema) -> pa.Schema:
        """Return the files' schema of rows with this one.

        :raises TargetError: the table has no such column.
        """
        return pa.schema([self._field_in_files(one) for one in schema]) if self else schema

    def _field_in_files(self, one: pa.Field) -> pa.Field:
        name = self.fields.get(one.name)
        if name is None:
            raise TargetError(f"the table no longer has a column {one.name}")
        kind = _with_fields(one.type, name.inside, ColumnNames._field_in_files)
        return pa.field(name.physical, kind, one.nullable, {_PARQUET_ID: str(name.number)})

    def of_table(self, schema: pa.Schema) -> pa.Schema:
        """Return a file's schema with the table's names. A field that the table lacks gets the name ``""``."""
        return pa.schema([self._field_of_table(one) for one in schema]) if self else schema

    def _field_of_table(self, one: pa.Field) -> pa.Field:
        name, inside = self._by_physical.get(one.name, (_UNKNOWN_FIELD, UNMAPPED))
        return pa.field(name, _with_fields(one.type, inside, ColumnNames._field_of_table), one.nullable)

    def for_files(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.RecordBatch]:
        """Rename rows' columns as in files.

        :param batches: of exactly this schema.
        """
        return _renamed(batches, schema, self.in_files(schema)) if self else batches


UNMAPPED: Final = ColumnNames()


def _with_fields(
    kind: pa.DataType, names: ColumnNames, change: Callable[[ColumnNames, pa.Field], pa.Field]
) -> pa.DataType:
    """Return a type with its fields changed, at any depth."""
    if names and pa.types.is_struct(kind):
        return pa.struct([change(names, one) for one in kind])
    if names and pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_fields(kind.value_type, names, change)))
    return kind


class NamedFile:
    """An open data file whose columns have the table's names."""

    def __init__(self, file: pq.ParquetFile, names: ColumnNames) -> None:
        self._file, self._names = file, names
        self._columns = {*names.of_table(file.schema_arrow).names}

    def _physical(self, columns: Iterable[str]) -> list[str]:
        return [self._names.path((name,))[0] for name in columns if name in self._columns]

    @property
    def group_rows(self) -> list[int]:
        """Number of rows of each row group."""
        metadata = self._file.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def read(self, columns: Iterable[str]) -> pa.Table:
        """Read all rows in file order, with those of these columns that exist."""
        return self._table(self._file.read(columns=self._physical(columns)))

    def rows(self, numbers: Any, columns: Iterable[str]) -> Iterator[pa.Table]:
        """Read some rows, as :meth:`read`: those of one row group after another, perhaps in parts; of groups that have
        any.

        :param numbers: int64[n]: the rows, ascending.
        """
        names, ends = self._physical(columns), np.cumsum(self.group_rows)
        for group, count in enumerate(self.group_rows):
            first = ends[group] - count
            chosen = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, ends[group])]
            if len(chosen):  # ``take`` joins chunks, and those of a group may have more than 2 GiB of texts
                for batch in self._table(self._file.read_row_group(group, columns=names)).to_batches():
                    begin, end = np.searchsorted(chosen, (first, first + batch.num_rows))
                    yield pa.Table.from_batches([batch.take(pa.array(chosen[begin:end] - first))])
                    first += batch.num_rows

    def batches(
        self, rows: int, columns: Iterable[str], groups: Sequence[int] | None = None, *, threads: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Read up to ``rows`` rows at a time, as :meth:`read`.

        :param groups: of these row groups; None: of all.
        """
        file_batches = self._file.iter_batches(
            rows, row_groups=groups, columns=self._physical(columns), use_threads=threads
        )
        for batch in file_batches:
            yield _relabelled(batch, self._names.of_table(batch.schema)) if self._names else batch

    def _table(self, table: pa.Table) -> pa.Table:
        if not self._names or not table.num_columns:
            return table
        schema = self._names.of_table(table.schema)
        return pa.Table.from_batches([_relabelled(batch, schema) for batch in table.to_batches()], schema)


class _Relabelled:
    """Arrays under another schema, for Arrow's C data interface."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def _relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same arrays under a schema with other names, at any depth, and the same types."""
    return pa.record_batch(_Relabelled(batch, schema))


def _renamed(batches: Iterable[pa.RecordBatch], schema: pa.Schema, to: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not batch.schema.equals(schema):
            raise pa.ArrowInvalid(f"rows have another schema than the file: {batch.schema}")
        yield _relabelled(batch, to)


def is_mapped(properties: Mapping[str, str]) -> bool:
    """Whether a table has column mapping by name."""
    return properties.get(MAPPING_MODE) == "name"


def is_mapped_otherwise(properties: Mapping[str, str]) -> bool:
    """Whether a table has column mapping in another mode than by name."""
    return properties.get(MAPPING_MODE, "none") not in ("none", "name")


def names_of(schema_json: str, properties: Mapping[str, str]) -> ColumnNames:
    """Return the names in the files of a table.

    :param schema_json: its columns, as in the log.
    :raises TargetError: a column has none.
    """
    return _mapped_names(schema_json) if is_mapped(properties) else UNMAPPED


@lru_cache(maxsize=4096)
def _mapped_names(schema_json: str) -> ColumnNames:
    return _names(json.loads(schema_json))


def _names(kind: Any) -> ColumnNames:
    """Return the names of the fields of a struct, or of a list's structs."""
    if not isinstance(kind, dict):
        return UNMAPPED
    if kind["type"] == "array":
        return _names(kind["elementType"])
    try:
        return ColumnNames({one["name"]: _name(one) for one in kind.get("fields", ())})
    except KeyError as error:
        raise TargetError(f"the log is damaged: a column has no {error}") from None


def _name(one: Mapping[str, Any]) -> _Name:
    return _Name(str(one["metadata"][_PHYSICAL]), int(one["metadata"][_ID]), _names(one["type"]))


@lru_cache(maxsize=4096)
def without_mapping(schema_json: str) -> str:
    """Return a table's schema JSON without the metadata of column mapping."""
    if _PHYSICAL not in schema_json:
        return schema_json
    return json.dumps(json.loads(schema_json, object_hook=_without_mapping_keys))


def _without_mapping_keys(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name not in (_ID, _PHYSICAL)}


def assign_physical_names(
    fields: Iterable[dict[str, Any]], properties: Mapping[str, str], *, keep: bool
) -> dict[str, str]:
    """Give each field that has none a name in files and an id; return the table's new properties.

    :param fields: of a table's JSON, at all depths; changed in place.
    :param keep: whether files already have these fields, under their own names.
    """
    known = list(fields)
    last = max([int(properties.get(MAX_ID) or 0), *(int(one["metadata"].get(_ID) or 0) for one in known)])
    for one in known:
        if _PHYSICAL not in one["metadata"]:
            last += 1
            physical = one["name"] if keep else f"col-{uuid.uuid4()}"
            one["metadata"] = {**one["metadata"], _ID: last, _PHYSICAL: physical}
    return {**properties, MAPPING_MODE: "name", MAX_ID: str(last)}

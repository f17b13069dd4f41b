"""Avro schemas of tables: made from a table's definition, or read from a registry folder; numbered, never changed.

A registry is a folder of files ``<source name>.<version>.avsc``, as in Databus, where ``/``, ``%`` and NUL in the name
are percent-encoded. A name of more than 200 bytes is cut into folders, as file systems allow 255 bytes of a name: the
path without ``/`` is the flat file's name. The registry is read at the start. If no version of a source describes a
definition, a new version is written there before any event refers to it. So a version means the same forever, for this
relay, the next one on the same folder, and every consumer.

A schema *describes* a definition if each column has exactly one field, found by ``dbFieldPosition`` with the column's
name in ``dbFieldName`` (case-insensitive), with the type it was made for (``dbFieldType``, if present), and ``pk``
names the table's key. Databus maps columns by position alone, and keeps the newest version however the table has
changed; here a difference makes a new version.

Attributes of Databus's schemas (``meta``, ``name=value;`` pairs): of the record ``dbFieldName`` (the table) and ``pk``
(Avro names of the key's columns, by comma), of a field ``dbFieldName``, ``dbFieldPosition`` (from 0), ``dbFieldType``.
In a ``dbFieldName`` that the relay makes, ``;``, ``%`` and outer spaces are percent-encoded.

Databus registers the schemas of metadata under one name, ``metadata-source``, for all sources, and its client keeps one
for each version of that name (``SchemaRegistryService.java``, ``DispatcherState.java``). If updates hold before images,
these are the metadata, so each schema gets a version of that name, too. It is stored as
``metadata-source.<version>.avsc``, with the same text.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from headgate.catalog import BINARIES, Column, TableDef
from headgate.columns import with_type_of_values
from headgate.config import SchemaTypes
from headgate.errors import ConfigError
from headgate.files import file_errors, write_text
from headgate.names import lower_name
from headgate.parsing import parse_json
from headgate.relay.databus import Schema, avro_text

__all__ = ["METADATA", "Registry", "field_attributes", "generate"]

"""How columns become Avro types in new schemas: every value exactly, by Avro's logical types, or as in Databus's own
generator (DECIMAL → double, dates → milliseconds since 1970, BIGINT UNSIGNED → long)."""

METADATA: Final = "metadata-source"
_FILE: Final = re.compile(r"(.*)\.(\d+)\.avsc")
_NOT_IN_FILE: Final = re.compile(r"[/%\0]")
_PIECE_BYTES: Final = 200
"""Most bytes of a source's name in a file's or folder's; version and suffix come after it."""
_LONGEST_CHARACTER: Final = 4
_NOT_IN_META: Final = re.compile(r"[;%]|^\s+|\s+\Z")
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_SMALL: Final = frozenset({"tinyint", "smallint", "mediumint", "year"})
_LARGEST_ARROW_DECIMAL: Final = 38
_LARGEST_VERSION: Final = 2**13 - 1
"""Events hold the version in 14 bits, signed (Databus, ``DbusEventPart``)."""


def field_attributes(meta: Any) -> dict[str, str]:
    """Return the pairs of a ``meta`` attribute; none for None."""
    pairs = (part.partition("=") for part in str(meta or "").split(";"))
    attributes = {name.strip(): value.strip() for name, equals, value in pairs if equals}
    if "dbFieldName" in attributes:
        attributes["dbFieldName"] = unquote(attributes["dbFieldName"])
    return attributes


def _encode(pattern: re.Pattern[str], name: str) -> str:
    """Percent-encode what matches."""
    return pattern.sub(lambda match: quote(match[0], safe=""), name)


def key_fields(record: Mapping[str, Any]) -> list[str]:
    """Return the Avro names of the key's columns, in its order; none: there is no key.

    :param record: a parsed schema.
    """
    return [name.strip() for name in field_attributes(record.get("meta")).get("pk", "").split(",") if name.strip()]


def _camel(name: str) -> str:
    """Convert ``first_name`` to ``firstName``: an Avro name (letters, digits, underscores, no digit first)."""
    words = [word for word in _NOT_IN_NAME.sub("_", name).split("_") if word] or ["column"]
    first = words[0] if words[0].isupper() is False else words[0].lower()
    text = first[:1].lower() + first[1:] + "".join(word[:1].upper() + word[1:] for word in words[1:])
    return f"_{text}" if text[0].isdigit() else text


def _names(table: TableDef) -> list[str]:
    """Return the Avro names of a table's columns; a repeated name ends with the column's position."""
    names: list[str] = []
    for position, column in enumerate(table.columns):
        name = _camel(column.name)
        names.append(f"{name}_{position}" if name in names else name)
    return names


def column_type(column: Column) -> str:
    """Return the ``dbFieldType``: MySQL's type without its parameters, in capitals."""
    return column.type.upper() + (" UNSIGNED" if column.unsigned else "")


def generate(source: str, version: int, table: TableDef, types: SchemaTypes) -> dict[str, Any]:
    """Return the schema of a definition: nullable fields with default null, in the table's order."""
    namespace, _, short = source.rpartition(".")
    names = _names(table)
    make = _exact_type if types == "exact" else _databus_type
    head: dict[str, Any] = {"type": "record", "name": f"{_NOT_IN_NAME.sub('_', short)}_V{version}"}
    if namespace:
        head["namespace"] = namespace
    fields = [
        {
            "name": names[position],
            "type": ["null", make(column, names[position])],
            "default": None,
            "meta": f"dbFieldName={_encode(_NOT_IN_META, column.name)};dbFieldPosition={position};"
            f"dbFieldType={column_type(column)};",
        }
        for position, column in enumerate(table.columns)
    ]
    key = ",".join(names[index] for index in table.key)
    return {**head, "fields": fields, "meta": f"dbFieldName={_encode(_NOT_IN_META, table.name)};pk={key};"}


def _logical(avro: str, logical: str, **more: int) -> dict[str, Any]:
    return {"type": avro, "logicalType": logical, **more}


def _exact_type(column: Column, name: str) -> Any:
    kind = column.type
    if kind == "decimal":
        wide = column.precision > _LARGEST_ARROW_DECIMAL
        return "string" if wide else _logical("bytes", "decimal", precision=column.precision, scale=column.scale)
    if (kind == "bigint" and column.unsigned) or (kind == "bit" and column.precision == 64):
        return _logical("bytes", "decimal", precision=20, scale=0)
    if kind == "date":
        return _logical("int", "date")
    if kind in ("datetime", "timestamp"):
        return _logical("long", "local-timestamp-micros" if kind == "datetime" else "timestamp-micros")
    return _plain_type(column, name)


def _databus_type(column: Column, name: str) -> Any:
    if column.type == "decimal":
        return "double"
    return "long" if column.type in ("date", "datetime", "timestamp") else _plain_type(column, name)


def _plain_type(column: Column, name: str) -> Any:
    kind = column.type
    if kind in _SMALL:
        return "int"
    if kind in ("int", "bigint", "bit"):
        return "long"
    if kind in ("float", "double", "boolean"):
        return kind
    if kind in BINARIES:
        return "bytes"
    if kind == "geometry":
        fields = [{"name": "srid", "type": "int"}, {"name": "wkb", "type": "bytes"}]
        return {"type": "record", "name": f"{name}Geometry", "fields": fields}
    return {"type": "array", "items": "float"} if kind == "vector" else "string"


def describes(schema: Mapping[str, Any], table: TableDef) -> bool:
    """Whether a schema describes this definition (see the module's docstring)."""
    fields = schema["fields"]
    if len(fields) != len(table.columns):
        return False
    avro: dict[int, str] = {}
    for order, field in enumerate(fields):
        attributes = field_attributes(field.get("meta"))
        position = int(attributes.get("dbFieldPosition", order))
        if not 0 <= position < len(table.columns) or position in avro:
            return False
        column = table.columns[position]
        if lower_name(attributes.get("dbFieldName", field["name"])) != lower_name(column.name):
            return False
        if "dbFieldType" in attributes and attributes["dbFieldType"].upper() != column_type(column):
            return False
        if not _fits(field["type"], column):
            return False
        avro[position] = str(field["name"])
    return key_fields(schema) == [avro[index] for index in table.key]


def _fits(avro: Any, column: Column) -> bool:
    """Whether an Avro decimal has the column's precision and scale; ``dbFieldType`` decides for other types."""
    branches = avro if isinstance(avro, list) else [avro]
    for one in branches:
        if isinstance(one, dict) and one.get("logicalType") == "decimal" and column.type == "decimal":
            return (one["precision"], one.get("scale", 0)) == (column.precision, column.scale)
    return True


class Registry:
    """All versions of all sources in one folder, or in memory. Thread-safe.

    :param folder: None: in memory only, so versions begin at 1 with every start.
    :param before_images: before images are written, so schemas also get versions as schemas of metadata.
    :raises ConfigError: a file in the folder is not an Avro record, or the folder cannot be written.
    """

    def __init__(self, folder: Path | None, types: SchemaTypes = "exact", *, before_images: bool = False) -> None:
        self._folder, self.types, self._with_before_images = folder, types, before_images
        self._lock = threading.Lock()
        self._known: dict[str, dict[int, Schema]] = {}
        self._metadata: dict[bytes, int] = {}
        self.changes = 0
        """Number of versions; grows after a version is known and before an event refers to it."""
        for name, file in sorted(_files(folder)) if folder is not None else ():
            match = _FILE.fullmatch(name)
            if match:
                self._add(unquote(match[1]), int(match[2]), _read(file))
        for source in sorted(self._known) if before_images else ():
            self._name_metadata(*self.versions(source))

    def _add(self, source: str, version: int, text: str) -> Schema:
        """:raises ConfigError: another version has the same id, but different decimals."""
        schema = Schema(source, version, text, json.loads(text))
        for one in self.versions(source) if source != METADATA else ():
            if one.digest == schema.digest and _decimals(one.value) != _decimals(schema.value):
                raise ConfigError(
                    f"the schemas {source}.{one.version}.avsc and {source}.{version}.avsc have the same id, which does "
                    "not cover a decimal's precision and scale: give their records different names"
                )
        self._known.setdefault(source, {})[version] = schema
        if source == METADATA:
            self._metadata.setdefault(schema.digest, version)
        self.changes += 1
        return schema

    def versions(self, source: str) -> Sequence[Schema]:
        """Return a source's schemas, oldest version first."""
        return [schema for _, schema in sorted(dict(self._known.get(source, {})).items())]

    def schema_of(self, source: str, table: TableDef) -> Schema:
        """Return the newest version that describes the definition; make and write one if there is none.

        :param table: as it is written.
        :raises ConfigError: the folder cannot be written, or the source has no version left.
        """
        table = replace(table, columns=tuple(map(with_type_of_values, table.columns)))
        with self._lock:
            fitting = [one for one in self.versions(source) if describes(one.value, table)]
            return fitting[-1] if fitting else self._make(source, table)

    def metadata_version(self, schema: Schema) -> int:
        """Return a schema's version of ``metadata-source``, for before images; 0: none."""
        return self._metadata.get(schema.digest, 0)

    def _name_metadata(self, *schemas: Schema) -> None:
        for one in schemas:
            if one.digest not in self._metadata:
                self._write(METADATA, self._next(METADATA), one.text)

    def _next(self, source: str) -> int:
        version = max(self._known.get(source, {0: None})) + 1
        if version > _LARGEST_VERSION:
            raise ConfigError(f"{source} has {version - 1} schema versions, the most that events can name")
        return version

    def _make(self, source: str, table: TableDef) -> Schema:
        version = self._next(source)
        text = json.dumps(generate(source, version, table, self.types), indent=2, ensure_ascii=False)
        if self._with_before_images:
            self._name_metadata(Schema(source, version, text, json.loads(text)))
        return self._write(source, version, text)

    def _write(self, source: str, version: int, text: str) -> Schema:
        if self._folder is not None:
            *folders, last = _pieces(_encode(_NOT_IN_FILE, source))
            file = self._folder.joinpath(*folders, f"{last}.{version}.avsc")
            with file_errors(f"the schema {file} cannot be written"):
                write_text(file, text + "\n")
        return self._add(source, version, text)


def _pieces(name: str) -> list[str]:
    """Cut a name into pieces of at most 200 bytes."""
    pieces = [""]
    for character in name:
        if len((pieces[-1] + character).encode()) > _PIECE_BYTES:
            pieces.append("")
        pieces[-1] += character
    return pieces


def _files(folder: Path, begin: str = "") -> Iterator[tuple[str, Path]]:
    """Yield the files of a registry by the names that they would have in one folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.is_dir():
            yield begin + path.name, path
        elif len(path.name.encode()) > _PIECE_BYTES - _LONGEST_CHARACTER:  # others hold nothing of the registry
            yield from _files(path, begin + path.name)


def _read(file: Path) -> str:
    try:
        text = file.read_text("utf-8").strip()
        value = parse_json(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the schema {file} cannot be read: {error}") from None
    fields = value.get("fields") if isinstance(value, dict) and value.get("type") == "record" else None
    try:
        if isinstance(fields, list):
            avro_text(value)
            return text
    except (AttributeError, KeyError, TypeError):
        pass
    raise ConfigError(f"the schema {file} is not an Avro record")


def _decimals(schema: Any) -> list[Any]:
    """Return precision and scale of each decimal in a schema."""
    if isinstance(schema, list):
        return [decimal for one in schema for decimal in _decimals(one)]
    if not isinstance(schema, dict):
        return []
    declared = [(schema.get("precision"), schema.get("scale", 0))] if schema.get("logicalType") == "decimal" else []
    return declared + _decimals(list(schema.values()))

"""Kafka Connect's schemas and values in Avro, as Confluent's ``AvroData`` and ``AvroConverter`` make them.

An optional field is a union whose first branch is null, with the default null; if it has another default, the union's
first branch is the value's. Names of Connect's schemas are in ``connect.name``, their versions and parameters beside
it. A struct's name is the record's full name; what Avro does not allow in names becomes ``_``, as with Debezium's
``schema.name.adjustment.mode`` and ``field.name.adjustment.mode`` ``avro``.

A message is a byte 0, the schema's number in the registry (four bytes, big-endian) and the value in Avro's binary form
(Confluent's wire format; Avro 1.12 specification, "Binary Encoding").
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.errors import TargetError

__all__ = ["VALUE_BRANCH", "avro_name", "avro_schema", "binary", "null_branch_first", "value_branch", "wire_head"]

VALUE_BRANCH: Final = b"\x02"
"""The number of the value's branch in the union of an optional field without a default; 0 is null's."""

_PRIMITIVE: Final = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    **{name: name for name in ("float", "double", "boolean", "string", "bytes")},
}
_NARROW: Final = ("int8", "int16")
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_]")


def avro_name(name: str) -> str:
    """Return a name as Avro allows it."""
    name = _NOT_IN_NAME.sub("_", name)
    return f"_{name}" if not name or name[0].isdigit() else name


def _full_name(name: str) -> str:
    return ".".join(map(avro_name, name.split(".")))


def avro_schema(connect: Mapping[str, Any]) -> str:
    """Return the Avro schema, as JSON, of a Connect schema in the form of ``JsonConverter``.

    :raises TargetError: two fields would have one name.
    """
    return json.dumps(_schema(connect, set()), ensure_ascii=False)


def _schema(connect: Mapping[str, Any], known: set[str]) -> Any:
    """Return a schema without its being optional; ``known`` are the records that have been written out."""
    kind = connect["type"]
    if kind == "struct":
        name = _full_name(connect["name"])
        if name in known:
            return name
        known.add(name)
        namespace, _, short = name.rpartition(".")
        avro: dict[str, Any] = {"type": "record", "name": short, **({"namespace": namespace} if namespace else {})}
        avro["fields"] = [_field(one, known) for one in connect["fields"]]
        _check_names(connect["name"], [one["field"] for one in connect["fields"]])
    elif kind == "array":
        avro = {"type": "array", "items": _optional(connect["items"], known)}
    else:
        avro = {"type": _PRIMITIVE[kind]}
    if kind in _NARROW:
        avro["connect.type"] = kind
    parameters = connect.get("parameters", {})
    if connect.get("name") == _DECIMAL:
        avro |= {"scale": int(parameters["scale"]), "precision": int(parameters["connect.decimal.precision"])}
    attributes = {"version": connect.get("version"), "doc": connect.get("doc"), "default": connect.get("default")}
    avro |= {f"connect.{name}": value for name, value in attributes.items() if value is not None}
    if parameters:
        avro["connect.parameters"] = parameters
    if "name" in connect:
        avro["connect.name"] = connect["name"]
    if connect.get("name") == _DECIMAL:
        avro["logicalType"] = "decimal"
    return avro["type"] if list(avro) == ["type"] else avro


def _check_names(record: str, names: Sequence[str]) -> None:
    fields: dict[str, str] = {}
    for name in names:
        other = fields.setdefault(avro_name(name), name)
        if other != name:
            raise TargetError(
                f"columns {other} and {name} of {record} would both be named {avro_name(name)} in Avro: rename one in"
                " [columns], or leave it out"
            )


def _optional(connect: Mapping[str, Any], known: set[str]) -> Any:
    schema = _schema(connect, known)
    if not connect.get("optional"):
        return schema
    return ["null", schema] if null_branch_first(connect) else [schema, "null"]


def _field(connect: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    field = {"name": avro_name(connect["field"]), "type": _optional(connect, known)}
    if connect.get("optional"):
        field["default"] = connect.get("default")
    return field


def null_branch_first(connect: Mapping[str, Any]) -> bool:
    """Return whether null's branch is the first in the union of an optional field."""
    return connect.get("default") is None


def value_branch(connect: Mapping[str, Any]) -> bytes:
    """Return what precedes a value: the number of its branch, if the field is optional."""
    if not connect.get("optional"):
        return b""
    return VALUE_BRANCH if null_branch_first(connect) else b"\x00"


def wire_head(schema_id: int) -> bytes:
    """Return what precedes a value in Confluent's wire format."""
    return struct.pack(">bI", 0, schema_id)


def binary(connect: Mapping[str, Any], value: Any) -> bytes:
    """Return a value, in the form of its JSON, as Avro: of messages that are not rows'.

    :raises KeyError: a type that these messages do not have.
    """
    if value is None and connect.get("optional"):
        return _long(int(not null_branch_first(connect)))
    return value_branch(connect) + _required(connect, value)


def _required(connect: Mapping[str, Any], value: Any) -> bytes:
    match connect["type"]:
        case "struct":
            fields: list[Mapping[str, Any]] = connect["fields"]
            return b"".join(binary(one, value.get(one["field"])) for one in fields)
        case "array":
            block = _long(len(value)) + b"".join(binary(connect["items"], one) for one in value) if value else b""
            return block + b"\x00"
        case "string":
            text = str(value).encode()
            return _long(len(text)) + text
        case "boolean":
            return bytes([value])
        case kind if kind in _PRIMITIVE and kind.startswith("int"):
            return _long(int(value))
    raise KeyError(connect["type"])


def _long(value: int) -> bytes:
    """Return a zigzag varint."""
    word = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while word >= 128:
        out.append(word & 127 | 128)
        word >>= 7
    out.append(word)
    return bytes(out)

"""Kafka Connect's schemas of keys, envelopes, transactions and heartbeats, as ``JsonConverter`` writes them
(``schemas.enable``).

Names and fields are those of Debezium 3: ``<prefix>.<db>.<table>.Key``, ``….Value``, ``….Envelope``, ``event.block``,
``io.debezium.connector.mysql.Source``. Every column except the key's is optional: a partial row image may leave it out,
and a zero date may be null. The text is the converter's, byte for byte, because that of a key's schema is a part of the
key.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from headgate.carrier import CarriedColumn, Definition
from headgate.kafka._topic_names import topic_name
from headgate.kafka.debezium.values import connect_type
from headgate.kernels import schema_json

__all__ = [
    "HEARTBEAT_KEY",
    "HEARTBEAT_VALUE",
    "SCHEMA_CHANGE_KEY",
    "SCHEMA_CHANGE_VALUE",
    "SOURCE",
    "TRANSACTION_KEY",
    "TRANSACTION_VALUE",
    "envelope_schema",
    "is_required",
    "key_schema",
]


def _field(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": False, "field": name, **more}


def _optional(field: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": field, **more}


def _struct(fields: list[dict[str, Any]], name: str, *, optional: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": optional, "name": name, **more}


SOURCE: Final = _struct(
    [
        *(_field(name, "string") for name in ("version", "connector", "name")),
        _field("ts_ms", "int64"),
        _optional(
            "snapshot",
            "string",
            name="io.debezium.data.Enum",
            version=1,
            parameters={
                "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
            },
            default="false",
        ),
        _field("db", "string"),
        _optional("sequence", "string"),
        _optional("ts_us", "int64"),
        _optional("ts_ns", "int64"),
        _optional("table", "string"),
        _field("server_id", "int64"),
        _optional("gtid", "string"),
        _field("file", "string"),
        _field("pos", "int64"),
        _field("row", "int32"),
        _optional("thread", "int64"),
        _optional("query", "string"),
    ],
    "io.debezium.connector.mysql.Source",
    version=1,
    field="source",
)
"""Schema of the block ``source``."""
_TRANSACTION: Final = _struct(
    [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")],
    "event.block",
    optional=True,
    version=1,
    field="transaction",
)
_COLLECTION: Final = _struct(
    [_field("data_collection", "string"), _field("event_count", "int64")], "event.collection", optional=True, version=1
)
TRANSACTION_KEY: Final = schema_json(
    _struct([_field("id", "string")], "io.debezium.connector.common.TransactionMetadataKey", version=1)
)
"""Schema of the keys in the transaction topic."""
TRANSACTION_VALUE: Final = schema_json(
    _struct(
        [
            _field("status", "string"),
            _field("id", "string"),
            _optional("event_count", "int64"),
            {"type": "array", "items": _COLLECTION, "optional": True, "field": "data_collections"},
            _field("ts_ms", "int64"),
        ],
        "io.debezium.connector.common.TransactionMetadataValue",
        version=1,
    )
)
"""Schema of the values in the transaction topic."""
HEARTBEAT_KEY: Final = schema_json(
    _struct([_field("serverName", "string")], "io.debezium.connector.common.ServerNameKey", version=1)
)
"""Schema of the keys in the heartbeat topic."""
HEARTBEAT_VALUE: Final = schema_json(
    _struct([_field("ts_ms", "int64")], "io.debezium.connector.common.Heartbeat", version=1)
)
"""Schema of the values in the heartbeat topic."""


def _array(items: dict[str, Any], field: str, *, optional: bool) -> dict[str, Any]:
    return {"type": "array", "items": items, "optional": optional, "field": field}


_TEXTS: Final = {"type": "string", "optional": False}
_CHANGED_COLUMN: Final = _struct(
    [
        _field("name", "string"),
        _field("jdbcType", "int32"),
        _optional("nativeType", "int32"),
        _field("typeName", "string"),
        _optional("typeExpression", "string"),
        _optional("charsetName", "string"),
        _optional("length", "int32"),
        _optional("scale", "int32"),
        _field("position", "int32"),
        *(_optional(name, "boolean") for name in ("optional", "autoIncremented", "generated")),
        *(_optional(name, "string") for name in ("comment", "defaultValueExpression")),
        _array(_TEXTS, "enumValues", optional=True),
    ],
    "io.debezium.connector.schema.Column",
    version=1,
)
_CHANGED_TABLE: Final = _struct(
    [
        _optional("defaultCharsetName", "string"),
        _array(_TEXTS, "primaryKeyColumnNames", optional=True),
        _array(_CHANGED_COLUMN, "columns", optional=False),
        _optional("comment", "string"),
    ],
    "io.debezium.connector.schema.Table",
    optional=True,
    version=1,
    field="table",
)
_TABLE_CHANGE: Final = _struct(
    [_field("type", "string"), _field("id", "string"), _CHANGED_TABLE], "io.debezium.connector.schema.Change", version=1
)
SCHEMA_CHANGE_KEY: Final = schema_json(
    _struct([_field("databaseName", "string")], "io.debezium.connector.mysql.SchemaChangeKey", version=1)
)
"""Schema of the keys in the schema change topic."""
SCHEMA_CHANGE_VALUE: Final = schema_json(
    _struct(
        [
            SOURCE,
            _field("ts_ms", "int64"),
            *(_optional(name, "string") for name in ("databaseName", "schemaName", "ddl")),
            _array(_TABLE_CHANGE, "tableChanges", optional=False),
        ],
        "io.debezium.connector.mysql.SchemaChangeValue",
        version=1,
    )
)
"""Schema of the values in the schema change topic."""


def is_required(definition: Definition, column: CarriedColumn) -> bool:
    """Return whether a column's field is not optional: a key's, unless the user chose the key and it may be NULL."""
    return column.name in definition.key and not (definition.chosen_key and column.nullable)


def _columns(definition: Definition, names: Iterable[str], *, avro: bool) -> list[dict[str, Any]]:
    columns = [definition.column(name) for name in names]
    return [
        {**connect_type(one, avro=avro), "optional": not is_required(definition, one), "field": one.name}
        for one in columns
    ]


def _name(definition: Definition, server: str) -> str:
    """Return the beginning of the names of a table's schemas: Debezium's default name of its topic."""
    return topic_name(f"{server}.{definition.table}")


@lru_cache(maxsize=1024)
def key_schema(definition: Definition, server: str, *, avro: bool = False) -> str:
    """Return the schema of a table's keys."""
    fields = _columns(definition, definition.key, avro=avro)
    return schema_json(_struct(fields, f"{_name(definition, server)}.Key"))


@lru_cache(maxsize=1024)
def envelope_schema(definition: Definition, server: str, *, avro: bool = False) -> str:
    """Return the schema of a table's values."""
    columns = _columns(definition, [column.name for column in definition.columns], avro=avro)
    name = _name(definition, server)
    rows = [_struct(columns, f"{name}.Value", optional=True, field=field) for field in ("before", "after")]
    stamps = [_optional(f"ts_{unit}", "int64") for unit in ("ms", "us", "ns")]
    fields = [*rows, SOURCE, _TRANSACTION, _field("op", "string"), *stamps]
    return schema_json(_struct(fields, f"{name}.Envelope", version=2))

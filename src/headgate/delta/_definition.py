"""What a table is, in its log: how it is made, how it gets columns, what it asks of those who write it.

Source: Delta Transaction Log Protocol, "Change Metadata", "Protocol Evolution", "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.delta._log import Snapshot

__all__ = ["FEATURES", "OURS", "TYPE_FEATURES", "NewColumn", "addition", "creation", "demands", "needs_mapping"]

_EVER: Final = "interval 10000 days"
OURS: Final = {
    "delta.deletedFileRetentionDuration": _EVER,
    "delta.logRetentionDuration": _EVER,
    "delta.enableExpiredLogCleanup": "false",
}
"""Properties of tables whose old files and log are removed by headgate alone. Delta's writers and VACUUM leave them,
and Spark reads versions of any age, which it refuses beyond the first of these durations."""

_PROPERTIES: Final = frozenset(
    {
        "delta.enableDeletionVectors",
        "delta.checkpointInterval",
        *OURS,
        "delta.minReaderVersion",
        "delta.minWriterVersion",
    }
)
_LEGACY: Final = frozenset({"appendOnly", "invariants"})
"""What writers of protocol version 2 keep to without being asked by name."""
FEATURES: Final = _LEGACY | {"deletionVectors", "timestampNtz", "variantType"}
"""What headgate keeps to when it writes a table itself."""
TYPE_FEATURES: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
"""Types that a table must be allowed to have columns of, and the feature that allows it."""
_ODD_NAME: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that a Parquet column's name cannot hold in Delta."""


@dataclass(frozen=True)
class NewColumn:
    """A column to add.

    :param kind: its type, as Spark DDL.
    :param inside: the struct column that it becomes a field of.
    :param after: the column that it follows; "": it comes first; None: it comes last.
    """

    name: str
    kind: str
    inside: str | None = None
    after: str | None = None


def demands(table: Snapshot) -> list[str]:
    """What a table asks of its writers but rows: Delta's properties, features of its protocol, partitions."""
    features = table.features
    if features is None:
        return [f"protocol version {table.protocol.get('minWriterVersion')}"]
    properties = {name for name in table.properties if name.startswith("delta.")}
    partitions = ["partitions"] if table.metadata.get("partitionColumns") else []
    return [*sorted(properties - _PROPERTIES), *sorted(features - FEATURES), *partitions]


def needs_mapping(name: str) -> bool:
    """Whether only a table with column mapping can have a column of this name."""
    return _ODD_NAME.search(name) is not None


def creation(schema_json: str, properties: Mapping[str, str]) -> list[dict[str, Any]] | None:
    """The actions of a table's first version; None: it is not one that is only asked for rows.

    :param schema_json: its columns, as JSON in the form of Spark's types.
    """
    features = _features(json.loads(schema_json))
    if features is None or not {name for name in properties if name.startswith("delta.")} <= _PROPERTIES:
        return None
    if properties.get("delta.enableDeletionVectors", "").lower() == "true":
        features |= {"deletionVectors"}
    metadata = {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": schema_json,
        "partitionColumns": [], "configuration": dict(properties), "createdTime": time.time_ns() // 1_000_000,
    }  # fmt: skip
    return [_protocol(features), {"metaData": metadata}]


def addition(
    table: Snapshot, columns: Sequence[NewColumn], kind_of: Callable[[str], Any]
) -> list[dict[str, Any]] | None:
    """The actions that add columns; None: the table, or a column, asks for more than that.

    :param kind_of: a type in the form that it has in a table's JSON: a name, or an object.
    """
    if demands(table):
        return None
    schema = json.loads(table.schema_json)
    for column in columns:
        fields = schema["fields"]
        if column.inside is not None:
            outer = next((field for field in fields if field["name"] == column.inside), None)
            if outer is None or not isinstance(outer["type"], dict) or outer["type"]["type"] != "struct":
                return None
            fields = outer["type"]["fields"]
        names = [field["name"] for field in fields]
        if column.name.lower() in {name.lower() for name in names} or (column.after or names[0]) not in names:
            return None
        place = len(names) if column.after is None else names.index(column.after) + 1 if column.after else 0
        fields.insert(place, {"name": column.name, "type": kind_of(column.kind), "nullable": True, "metadata": {}})
    needed, there = _features(schema), table.features or frozenset()
    if needed is None:
        return None
    changed = [] if needed <= there else [_protocol(needed | there)]
    return [*changed, {"metaData": {**table.metadata, "schemaString": json.dumps(schema)}}]


def _protocol(features: Collection[str]) -> dict[str, Any]:
    read = sorted({*features} - _LEGACY)
    if not read:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    written = [*read, *sorted(_LEGACY)]
    named = {"readerFeatures": read, "writerFeatures": written}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}}


def _features(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """What columns of these types ask for; None: more than rows."""
    fields = list(_fields(schema))
    kinds = {field["type"] for field in fields if isinstance(field["type"], str)}
    found = frozenset(TYPE_FEATURES[kind] for kind in kinds & TYPE_FEATURES.keys())
    return found if found <= FEATURES and not any(needs_mapping(field["name"]) for field in fields) else None


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    """All fields of a type, at all depths. The parts of an array or a map count as fields, too."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        if part in kind:
            yield {"name": part, "type": kind[part]}
            yield from _fields(kind[part])

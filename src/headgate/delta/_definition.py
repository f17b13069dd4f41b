"""What a table is, in its log: how it is made, how it gets columns, what it asks of those who write it.

Source: Delta Transaction Log Protocol, "Change Metadata", "Protocol Evolution", "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.delta._log import Snapshot
from headgate.delta._mapping import MAPPING_FEATURE, MAPPING_MODE, MAX_ID, is_mapped, is_mapped_otherwise, number

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
        MAPPING_MODE,
        MAX_ID,
        *OURS,
        "delta.minReaderVersion",
        "delta.minWriterVersion",
    }
)
_LEGACY: Final = frozenset({"appendOnly", "invariants"})
"""What writers of protocol version 2 keep to without being asked by name."""
FEATURES: Final = _LEGACY | {"deletionVectors", "timestampNtz", "variantType", MAPPING_FEATURE}
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
    partitions = ["partitions"] if table.metadata.get("partitionColumns") else []
    return [*_unknown(table.properties), *sorted(features - FEATURES), *partitions]


def _unknown(properties: Mapping[str, str]) -> list[str]:
    """Delta's properties that ask for more than is known here."""
    found = {name for name in properties if name.startswith("delta.")} - _PROPERTIES
    if is_mapped_otherwise(properties):
        found.add(MAPPING_MODE)
    return sorted(found)


def needs_mapping(name: str) -> bool:
    """Whether only a table with column mapping can have a column of this name."""
    return _ODD_NAME.search(name) is not None


def creation(schema_json: str, properties: Mapping[str, str]) -> list[dict[str, Any]] | None:
    """The actions of a table's first version; None: it is not one that is only asked for rows.

    :param schema_json: its columns, as JSON in the form of Spark's types.
    """
    schema = json.loads(schema_json)
    features = _features(schema)
    if features is None or _unknown(properties):
        return None
    fields = _named_fields(schema)
    if is_mapped(properties) or _need_mapping(fields):
        properties = number(fields, properties, keep=False)
        schema_json = json.dumps(schema)
        features |= {MAPPING_FEATURE}
    if properties.get("delta.enableDeletionVectors", "").lower() == "true":
        features |= {"deletionVectors"}
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": time.time_ns() // 1_000_000,
    }
    return [_protocol(features), {"metaData": metadata}]


def addition(
    table: Snapshot, columns: Sequence[NewColumn], kind_of: Callable[[str], Any]
) -> list[dict[str, Any]] | None:
    """The actions that add columns; None: the table, or a column, asks for more than that.

    :param kind_of: a type in the form that it has in a table's JSON: a name, or an object.
    """
    if demands(table):
        return None
    schema, properties = json.loads(table.metadata["schemaString"]), table.properties
    new = [{"name": one.name, "type": kind_of(one.kind), "nullable": True, "metadata": {}} for one in columns]
    mapped = is_mapped(properties) or _need_mapping(_named_fields({"fields": new}))
    if mapped:  # if it was not, its files have the columns under their own names
        properties = number(_named_fields(schema), properties, keep=True)
    if not all(_insert(schema, column, added) for column, added in zip(columns, new, strict=True)):
        return None
    needed, there = _features(schema), table.features or frozenset()
    if needed is None:
        return None
    if mapped:
        properties = number(_named_fields(schema), properties, keep=False)
        needed |= {MAPPING_FEATURE}
    changed = [] if needed <= there else [_protocol(needed | there)]
    metadata = {**table.metadata, "schemaString": json.dumps(schema), "configuration": dict(properties)}
    return [*changed, {"metaData": metadata}]


def _insert(schema: Mapping[str, Any], column: NewColumn, field: dict[str, Any]) -> bool:
    """Insert a field into a table's columns, or into those of a struct; False: there is no room for it there."""
    fields = schema["fields"]
    if column.inside is not None:
        outer = next((other for other in fields if other["name"] == column.inside), None)
        if outer is None or not isinstance(outer["type"], dict) or outer["type"]["type"] != "struct":
            return False
        fields = outer["type"]["fields"]
    names = [other["name"] for other in fields]
    if column.name.lower() in {name.lower() for name in names} or (column.after or names[0]) not in names:
        return False
    index = len(names) if column.after is None else names.index(column.after) + 1 if column.after else 0
    fields.insert(index, field)
    return True


def _need_mapping(fields: Iterable[Mapping[str, Any]]) -> bool:
    return any(needs_mapping(field["name"]) for field in fields)


def _named_fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns, and the fields in them."""
    return [field for field in _fields(schema) if "metadata" in field]


def _protocol(features: Collection[str]) -> dict[str, Any]:
    read = sorted({*features} - _LEGACY)
    if not read:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    written = [*read, *sorted(_LEGACY)]
    if read == [MAPPING_FEATURE]:  # readers of version 2 know it
        return {"protocol": {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": written}}
    named = {"readerFeatures": read, "writerFeatures": written}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}}


def _features(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """What columns of these types ask for; None: more than rows."""
    kinds = {field["type"] for field in _fields(schema) if isinstance(field["type"], str)}
    found = frozenset(TYPE_FEATURES[kind] for kind in kinds & TYPE_FEATURES.keys())
    return found if found <= FEATURES else None


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
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

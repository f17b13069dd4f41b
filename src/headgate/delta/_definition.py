"""A table's definition in its log: creation, added columns, and what it requires of writers.

Source: Delta Transaction Log Protocol, "Change Metadata", "Protocol Evolution", "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.delta._clustering import CLUSTERING_FEATURES, clusterable, clustering, kept_clustering
from headgate.delta._log import INDEXED_COLUMNS, Snapshot
from headgate.delta._mapping import (
    MAPPING_FEATURE,
    MAPPING_MODE,
    MAX_ID,
    assign_physical_names,
    is_mapped,
    is_mapped_otherwise,
)
from headgate.errors import TargetError

__all__ = [
    "FEATURES",
    "RETENTION_PROPERTIES",
    "Description",
    "NewColumn",
    "addition",
    "clustered",
    "creation",
    "describing",
    "needs_mapping",
    "protocol_of",
    "renaming",
    "unsupported_properties",
    "unsupported_requirements",
    "with_properties",
]

_EVER: Final = "interval 10000 days"
RETENTION_PROPERTIES: Final = {
    "delta.deletedFileRetentionDuration": _EVER,
    "delta.logRetentionDuration": _EVER,
    "delta.enableExpiredLogCleanup": "false",
}
"""Properties of tables whose old files and log only headgate removes. Delta's writers and VACUUM keep them, and Spark
reads versions of any age: it refuses only those older than the first of these durations."""

_PROPERTIES: Final = frozenset(
    {
        "delta.enableDeletionVectors",
        "delta.checkpointInterval",
        INDEXED_COLUMNS,
        MAPPING_MODE,
        MAX_ID,
        *RETENTION_PROPERTIES,
        "delta.minReaderVersion",
        "delta.minWriterVersion",
    }
)
_LEGACY: Final = frozenset({"appendOnly", "invariants"})
"""Features that protocol version 2 requires of writers without naming them."""
FEATURES: Final = _LEGACY | CLUSTERING_FEATURES | {"deletionVectors", "timestampNtz", "variantType", MAPPING_FEATURE}
"""Features that headgate supports when it writes a table itself."""
_TYPE_FEATURES: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
"""Column types that need a table feature, and the feature."""
_FORBIDDEN_CHARACTERS: Final = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta does not allow in a Parquet column's name."""


@dataclass(frozen=True)
class NewColumn:
    """A column to add.

    :param kind: its type, as Spark DDL.
    :param inside: the struct column to add it to, as a field.
    :param after: the column before it; "": it is the first; None: it is the last.
    """

    name: str
    kind: str
    inside: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Description:
    """What a table's log says of it besides names and types.

    :param comment: of the table, "" for none; None: it keeps its own.
    :param comments: by column, "" for none. Other columns keep theirs.
    :param required: columns that are never null. Other columns stay as they are.
    """

    comment: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)
    required: Collection[str] = ()


def unsupported_requirements(table: Snapshot, *, partitioned: bool = False) -> list[str]:
    """Return what a table requires that headgate does not support: Delta properties, protocol features, partitions.

    The functions that plan a commit rely on there being nothing.

    :param partitioned: the table may have partitions, as a union.
    """
    features, properties = table.features, unsupported_properties(table.properties)
    if features is None:
        versions = (table.protocol.get(f"min{side}Version") for side in ("Reader", "Writer"))
        return [*properties, f"protocol ({', '.join(map(str, versions))})"]
    partitions = ["partitions"] if table.metadata.get("partitionColumns") and not partitioned else []
    known = FEATURES - CLUSTERING_FEATURES if partitioned else FEATURES
    return [*properties, *sorted(features - known), *partitions]


def unsupported_properties(properties: Mapping[str, str]) -> list[str]:
    """Return the Delta properties that headgate does not support."""
    unsupported = {name for name in properties if name.startswith("delta.")} - _PROPERTIES
    if is_mapped_otherwise(properties):
        unsupported.add(MAPPING_MODE)
    return sorted(unsupported)


def needs_mapping(name: str) -> bool:
    """Whether only a table with column mapping can have a column of this name."""
    return _FORBIDDEN_CHARACTERS.search(name) is not None


def creation(
    schema_json: str,
    properties: Mapping[str, str],
    description: Description = Description(),
    cluster_by: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the actions of a table's first version.

    :param schema_json: its columns, as JSON in the form of Spark's types.
    :param properties: headgate supports them (:func:`unsupported_properties`).
    :param cluster_by: those of these columns that can be (:func:`clusterable`) are its clustering columns.
    """
    schema = json.loads(schema_json)
    _describe(schema, description)
    schema_json = json.dumps(schema)
    features = _features(schema)
    fields = _named_fields(schema)
    if is_mapped(properties) or _need_mapping(fields):
        properties = assign_physical_names(fields, properties, keep=False)
        schema_json = json.dumps(schema)
        features |= {MAPPING_FEATURE}
    if properties.get("delta.enableDeletionVectors", "").lower() == "true":
        features |= {"deletionVectors"}
    metadata = {
        "id": str(uuid.uuid4()),
        **({"description": description.comment} if description.comment else {}),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": time.time_ns() // 1_000_000,
    }
    table = Snapshot(metadata=metadata)
    clustered_by = clustering(table, clusterable(table, cluster_by))
    features |= CLUSTERING_FEATURES if clustered_by else frozenset()
    return [protocol_of(features), {"metaData": metadata}, *clustered_by]


def describing(table: Snapshot, description: Description) -> list[dict[str, Any]]:
    """Return the action that gives a table a description; empty if it has it."""
    before, schema = (json.loads(table.metadata["schemaString"]) for _ in range(2))
    _describe(schema, description)
    known = table.metadata.get("description") or ""
    comment = known if description.comment is None else description.comment
    if (schema, comment) == (before, known):
        return []
    rest = {name: value for name, value in table.metadata.items() if name != "description"}
    new = {"description": comment} if comment else {}
    return [{"metaData": {**rest, **new, "schemaString": json.dumps(schema)}}]


def _describe(schema: Mapping[str, Any], description: Description) -> None:
    """Give the columns of a table's JSON their comments, and mark those that are never null.

    Names are compared without letter case, by which columns of a table do not differ.
    """
    comments = {name.lower(): comment for name, comment in description.comments.items()}
    required = {name.lower() for name in description.required}
    for one in schema["fields"]:
        name = one["name"].lower()
        if name in required:
            one["nullable"] = False
        if name in comments:
            others = {key: value for key, value in one["metadata"].items() if key != "comment"}
            one["metadata"] = {**others, **({"comment": comments[name]} if comments[name] else {})}


def clustered(table: Snapshot, cluster_by: Sequence[str]) -> list[dict[str, Any]]:
    """Return the actions by which a table is clustered by those of these columns that can be; empty if it is.

    :param table: with its files.
    """
    columns = clusterable(table, cluster_by) if cluster_by else ()
    actions, features = clustering(table, columns), table.features or frozenset()
    has_features = not actions or features >= CLUSTERING_FEATURES
    return actions if has_features else [protocol_of(features | CLUSTERING_FEATURES), *actions]


def addition(
    table: Snapshot, columns: Sequence[NewColumn], kind_of: Callable[[str], Any], more: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the actions that add columns.

    :param kind_of: converts a type to its form in a table's JSON: a name, or an object.
    :param more: properties to set, which change nothing in the table's format.
    :raises TargetError: the table has a column of this name, or lacks the one that determines its position.
    """
    schema, properties = json.loads(table.metadata["schemaString"]), table.properties
    new = [{"name": one.name, "type": kind_of(one.kind), "nullable": True, "metadata": {}} for one in columns]
    mapped = is_mapped(properties) or _need_mapping(_named_fields({"fields": new}))
    if mapped:  # if the table was not, its files have the columns under their own names
        properties = assign_physical_names(_named_fields(schema), properties, keep=True)
    for column, added in zip(columns, new, strict=True):
        _insert(schema, column, added)
    needed, existing = _features(schema), table.features or frozenset()
    if mapped:
        properties = assign_physical_names(_named_fields(schema), properties, keep=False)
        needed |= {MAPPING_FEATURE}
    changed = [] if needed <= existing else [protocol_of(needed | existing)]
    metadata = {**table.metadata, "schemaString": json.dumps(schema), "configuration": {**properties, **(more or {})}}
    return [*changed, {"metaData": metadata}]


def renaming(table: Snapshot, dropped: Collection[str], renamed: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the actions that drop and rename columns of a table with column mapping, whose files keep their columns.

    :param renamed: new name → name before. Columns that the table lacks are ignored.
    """
    schema, new_names = json.loads(table.metadata["schemaString"]), {old: new for new, old in renamed.items()}
    schema["fields"] = [
        {**field, "name": new_names.get(field["name"], field["name"])}
        for field in schema["fields"]
        if field["name"] not in dropped
    ]
    text = json.dumps(schema)
    return [{"metaData": {**table.metadata, "schemaString": text}}, *kept_clustering(table, text)]


def with_properties(
    table: Snapshot, properties: Mapping[str, str], removed: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the actions that set properties which change nothing in the table's format; empty if it has them.

    :param removed: properties that it then lacks.
    """
    kept = {name: value for name, value in table.properties.items() if name not in removed}
    after = {**kept, **properties}
    return [] if after == table.properties else [{"metaData": {**table.metadata, "configuration": after}}]


def _insert(schema: Mapping[str, Any], column: NewColumn, field: dict[str, Any]) -> None:
    """Insert a field into a table's or a struct's columns.

    :raises TargetError: its name is taken, or its position does not exist.
    """
    fields = schema["fields"]
    if column.inside is not None:
        outer = next((other for other in fields if other["name"] == column.inside), None)
        if outer is None or not isinstance(outer["type"], dict) or outer["type"]["type"] != "struct":
            raise TargetError(f"cannot add column {column.name}: the table has no struct {column.inside}")
        fields = outer["type"]["fields"]
    names = [other["name"].lower() for other in fields]
    if column.name.lower() in names:
        raise TargetError(f"cannot add column {column.name}: the table has one of this name")
    if column.after and column.after.lower() not in names:
        raise TargetError(f"cannot add column {column.name} after {column.after}, which the table lacks")
    index = len(names) if column.after is None else names.index(column.after.lower()) + 1 if column.after else 0
    fields.insert(index, field)


def _need_mapping(fields: Iterable[Mapping[str, Any]]) -> bool:
    return any(needs_mapping(field["name"]) for field in fields)


def _named_fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns and the fields in them."""
    return [field for field in _fields(schema) if "metadata" in field]


def protocol_of(features: Collection[str]) -> dict[str, Any]:
    """Return the action by which a table requires these features."""
    read, more = sorted({*features} - _LEGACY - CLUSTERING_FEATURES), sorted({*features} & CLUSTERING_FEATURES)
    if not read and not more:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    written = [*read, *more, *sorted(_LEGACY)]
    if read in ([], [MAPPING_FEATURE]):  # readers of version 2 support it
        return {"protocol": {"minReaderVersion": 1 + len(read), "minWriterVersion": 7, "writerFeatures": written}}
    named = {"readerFeatures": read, "writerFeatures": written}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **named}}


def _features(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that the columns' types need."""
    kinds = {field["type"] for field in _fields(schema) if isinstance(field["type"], str)}
    return frozenset(_TYPE_FEATURES[kind] for kind in kinds & _TYPE_FEATURES.keys())


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield all fields of a type, at all depths. The parts of an array or a map count as fields, too."""
    if not isinstance(kind, dict):
        return
    for one in kind.get("fields", ()):
        yield one
        yield from _fields(one["type"])
    for part in ("elementType", "keyType", "valueType"):
        if part in kind:
            yield {"name": part, "type": kind[part]}
            yield from _fields(kind[part])

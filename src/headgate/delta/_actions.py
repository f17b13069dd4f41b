"""Form of the actions in a table's log, by any writer: checked where they are read, trusted behind.

Only fields that headgate reads are checked (Delta Transaction Log Protocol, "Actions" and "Schema
Serialization Format").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headgate.parsing import parse_json

__all__ = ["checked_action", "parse_action"]

_Check = Callable[[Any], bool]


def parse_action(line: str | bytes) -> dict[str, Any]:
    """Parse a line of a commit.

    :raises ValueError: it is not an action; the message says why.
    """
    return checked_action(parse_json(line))


def checked_action(action: Any) -> dict[str, Any]:
    """Return an action whose fields have the types of Delta's protocol.

    :raises ValueError: one has another type; the message names it.
    """
    if not isinstance(action, dict):
        raise ValueError("an action is not an object")  # noqa: TRY004 - one error type for all faults
    for kind, (required, fields) in _ACTIONS.items():
        if kind not in action:
            continue
        value = action[kind]
        if not isinstance(value, dict):
            raise ValueError(f"{kind} is not an object")  # noqa: TRY004
        for name, is_valid in fields.items():
            if name not in required and value.get(name) is None:
                continue
            if not is_valid(value.get(name)):
                raise ValueError(f"{kind} has a wrong {name}")
    return action


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_map(value: Any) -> bool:
    """Whether it is an object of texts and nulls."""
    return isinstance(value, dict) and all(one is None or isinstance(one, str) for one in value.values())


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_vector(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(_is_text(value.get(name)) for name in ("storageType", "pathOrInlineDv"))
        and all(_is_number(value.get(name)) for name in ("sizeInBytes", "cardinality"))
        and (value.get("offset") is None or _is_number(value["offset"]))
    )


def _is_schema(text: Any) -> bool:
    try:
        value = parse_json(text) if isinstance(text, str) else None
        return isinstance(value, dict) and value.get("type") == "struct" and _is_type(value)
    except (ValueError, RecursionError):
        return False


def _is_type(kind: Any) -> bool:
    """Whether it is a type in a schema: a name, or an object."""
    if not isinstance(kind, dict):
        return isinstance(kind, str)
    match kind.get("type"):
        case "struct":
            fields = kind.get("fields")
            return isinstance(fields, list) and all(_is_field(one) for one in fields)
        case "array":
            return _is_type(kind.get("elementType"))
        case "map":
            return _is_type(kind.get("keyType")) and _is_type(kind.get("valueType"))
        case other:
            return isinstance(other, str)


def _is_field(one: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str):
        return False
    metadata = one.get("metadata", {})
    mapped = metadata.get("delta.columnMapping.id") if isinstance(metadata, dict) else None
    return isinstance(metadata, dict) and (mapped is None or _is_number(mapped)) and _is_type(one.get("type"))


_ACTIONS: Final[Mapping[str, tuple[Iterable[str], Mapping[str, _Check]]]] = {
    "add": (
        ("path",),
        {
            "path": _is_text, "size": _is_number, "partitionValues": _is_map, "stats": _is_text,
            "deletionVector": _is_vector,
        },
    ),
    "remove": (("path",), {"path": _is_text, "size": _is_number, "deletionVector": _is_vector}),
    "metaData": (
        ("schemaString",),
        {"schemaString": _is_schema, "configuration": _is_map, "partitionColumns": _is_list},
    ),
    "protocol": (
        (),
        {
            "minReaderVersion": _is_number, "minWriterVersion": _is_number, "readerFeatures": _is_list,
            "writerFeatures": _is_list,
        },
    ),
    "txn": (("appId", "version"), {"appId": _is_text, "version": _is_number}),
    "domainMetadata": (
        ("domain", "configuration"),
        {"domain": _is_text, "configuration": _is_text, "removed": lambda value: isinstance(value, bool)},
    ),
}  # fmt: skip
"""By action: its required fields, and the check of each field."""

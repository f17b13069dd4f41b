"""A version of a source's Avro schema, and its id in events: the MD5 of its text as Avro's Java library prints it
(Databus, ``SchemaId``: ``md5(schema.toString(false))``), in version 1.4, which Databus's client uses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

__all__ = ["Schema", "avro_text"]

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_KNOWN: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_KNOWN_OF_FIELDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


@dataclass(frozen=True)
class Schema:
    """One version of one source's schema."""

    source: str
    """The source's name, such as ``com.linkedin.events.example.or_test.Person``."""
    version: int
    """From 1."""
    text: str
    """As in the registry."""
    value: Mapping[str, Any]
    """The parsed text."""

    @cached_property
    def digest(self) -> bytes:
        """16 bytes: the schema's id in events."""
        return hashlib.md5(avro_text(self.value).encode(), usedforsecurity=False).digest()


def avro_text(schema: Any) -> str:
    """Return a schema in one line, as Avro 1.4's Java library, which Databus uses, prints what it has parsed.

    Attributes that the library knows come first, in its order; then other attributes if they are text, so without a
    decimal's precision and scale. It drops ``doc`` of records and enums. It prints a namespace if it is not the
    outermost one.
    """
    return json.dumps(_printed(schema, "", []), ensure_ascii=False, separators=(",", ":"))


def _printed(schema: Any, space: str, outermost: list[str]) -> Any:
    """
    :param space: the namespace of the type around it.
    :param outermost: the first namespace that was printed, if any.
    """
    if isinstance(schema, list):
        return [_printed(one, space, outermost) for one in schema]
    if not isinstance(schema, dict):
        return schema if schema in _PRIMITIVES else _reference(schema, space, outermost)
    kind = schema["type"]
    if not isinstance(kind, str) or kind in _PRIMITIVES:
        others = _others(schema)
        return {"type": kind, **others} if others else _printed(kind, space, outermost)
    out: dict[str, Any] = {"type": kind}
    if kind in _NAMED:
        out["name"], space = _name_and_space(schema["name"], schema.get("namespace", space))
        if space and [space] != outermost[:1]:
            out["namespace"] = space
            outermost += [] if outermost else [space]
    if kind in ("record", "error"):
        out["fields"] = [_printed_field(one, space, outermost) for one in schema["fields"]]
    elif kind in ("array", "map"):
        name = "items" if kind == "array" else "values"
        out[name] = _printed(schema[name], space, outermost)
    else:
        name = "symbols" if kind == "enum" else "size"
        out[name] = schema[name]
    out |= _others(schema)
    if schema.get("aliases"):
        out["aliases"] = schema["aliases"]
    return out


def _reference(name: str, space: str, outermost: Sequence[str]) -> str:
    """Return a type's name."""
    short, space = _name_and_space(name, space)
    return short if not space or [space] == outermost[:1] else f"{space}.{short}"


def _name_and_space(name: str, space: str) -> tuple[str, str]:
    before, dot, short = name.rpartition(".")
    return (short, before) if dot else (name, space)


def _others(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that the library does not know, if they are text."""
    return {name: value for name, value in attributes.items() if name not in _KNOWN and isinstance(value, str)}


def _printed_field(field: Mapping[str, Any], space: str, outermost: list[str]) -> dict[str, Any]:
    out = {"name": field["name"], "type": _printed(field["type"], space, outermost)}
    out |= {name: field[name] for name in ("doc", "default") if name in field}
    if field.get("order", "ascending") != "ascending":
        out["order"] = field["order"]
    others = {name: value for name, value in field.items() if name not in _KNOWN_OF_FIELDS and isinstance(value, str)}
    return {**out, **others}

"""JSON and headers as a Kafka Connect worker writes them: by ``JsonConverter``, and by ``SimpleHeaderConverter``.

Equal keys must have equal bytes, because these choose the partition. So schemas have their fields in the converter's
order, there are no blanks, and texts are escaped as by Jackson (``UTF8JsonGenerator``). The values of columns get the
same escapes from ``_messages`` (``Kind.STRING``), and Java's form of numbers from ``_real_text``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.kernels._arrow_text import quoted

__all__ = ["connect_json", "connect_message", "header_name", "header_string", "schema_json", "schema_opening"]

_SCHEMA_ORDER: Final = (
    "type",
    "items",
    "keys",
    "values",
    "fields",
    "optional",
    "name",
    "version",
    "doc",
    "parameters",
    "default",
    "field",
)
"""Attributes of a schema, in the order of ``JsonConverter.asJsonSchema``."""
_ESCAPED: Final = re.compile(r"\\u(?P<control>[0-9a-f]{4})|\\.|(?P<wide>[\U00010000-\U0010ffff])")


def connect_json(value: Any) -> bytes:
    """Return a value of JSON as ``JsonConverter`` writes it."""
    return _ESCAPED.sub(_escape, json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def _escape(match: re.Match[str]) -> str:
    if match["control"]:
        return f"\\u{match['control'].upper()}"
    if match["wide"]:
        high, low = divmod(ord(match["wide"]) - 0x10000, 0x400)
        return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"
    return match[0]


def connect_message(schema: str, payload: Any) -> bytes:
    """Return a key or value with its schema, the text of :func:`schema_json` (``schemas.enable=true``)."""
    return schema_opening(schema) + connect_json(payload) + b"}"


def schema_opening(schema: str) -> bytes:
    """Return what precedes a payload that comes with its schema; ``}`` ends the message."""
    return f'{{"schema":{schema},"payload":'.encode()


def schema_json(schema: Mapping[str, Any]) -> str:
    """Return a Connect schema as ``JsonConverter`` writes it."""
    return connect_json(_in_order(schema)).decode()


def _in_order(schema: Mapping[str, Any]) -> dict[str, Any]:
    ordered = {name: schema[name] for name in _SCHEMA_ORDER if name in schema}
    for part in ("items", "keys", "values"):
        if part in ordered:
            ordered[part] = _in_order(ordered[part])
    if "fields" in ordered:
        ordered["fields"] = [_in_order(one) for one in ordered["fields"]]
    return ordered


def header_name(name: str) -> bytes:
    """Return a field's name in a header's struct, between a comma and a colon."""
    return f",{header_string(pa.array([name]))[0].as_py()}:".encode()


def header_string(texts: pa.Array) -> pa.Array:
    """Return texts as ``SimpleHeaderConverter`` writes them in a struct: only quotes and backslashes are escaped."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return quoted(escaped)

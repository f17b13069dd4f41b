"""``/openapi.json``: parameters and answers of the commands, generated from the tables that parse the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from headgate.relay._http._commands import TEXT, Command, compact
from headgate.relay._http._parameters import Parameter

__all__ = ["JSON", "ROW_REFERENCE", "describe", "described"]

JSON: Final = "application/json"
_ABOUT: Final = (
    "The relay of headgate: changes of MySQL servers, in the protocol of LinkedIn's Databus. An error of Databus's is "
    "status 500 with the headers x-dbus-error and, if there is one, x-dbus-error-cause; "
    "com.linkedin.databus.core.ScnNotFoundException is the cause where a consumer is too far behind."
)
_ERROR: Final = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}, "fields": {"type": "object"}},
    "required": ["error", "message"],
    "additionalProperties": False,
}
ROW_REFERENCE: Final = "#/components/schemas/Row"
_ROW: Final = {
    "type": "object",
    "description": "A change, as a line of output=rows. In Arrow the same are columns: _scn, "
    "_event, _op, _ts, _key, those of the row by their names, and _before.",
    "properties": {
        "source": {"type": "string", "description": "The logical source's name."},
        "scn": {"type": "integer", "description": "The transaction."},
        "opcode": {"enum": ["UPSERT", "DELETE"]},
        "key": {"type": ["integer", "string"]},
        "ts": {"type": "string", "format": "date-time", "description": "The commit."},
        "row": {"type": "object", "description": "By Avro names; of a DELETE the row as it was."},
        "before": {
            "type": ["object", "null"],
            "description": "With maxev=2, of a relay that has them: the row before an update; null for other events.",
        },
    },
    "required": ["source", "scn", "opcode", "key", "ts", "row"],
    "additionalProperties": False,
}
_REFUSALS: Final = {
    "401": "No token, or a wrong one.",
    "403": "A source or a command that is not the tenant's.",
    "429": "Over a limit of the tenant; Retry-After says for how many seconds.",
}
_FILTERS: Final = ("filter", "filters")


def described(commands: Sequence[Command], *, tokens: bool) -> list[Command]:
    """Return the commands, and the one that describes them all."""

    async def answer(_request: Request, _parameters: Mapping[str, Any]) -> Response:
        return Response(text, headers={"content-type": JSON})

    everything = [
        *commands,
        Command("/openapi.json", answer, "This description", result={"type": "object"}, media=(JSON,), for_all=True),
    ]
    text = compact(describe(everything, tokens=tokens))
    return everything


def describe(commands: Sequence[Command], *, tokens: bool) -> dict[str, Any]:
    """Describe the commands in OpenAPI 3.1.

    :param tokens: requests need a token.
    """
    paths: dict[str, dict[str, Any]] = {}
    for one in commands:
        if one.shown:
            for method in one.methods:
                paths.setdefault(one.path, {})[method.lower()] = _operation(one, method, tokens)
    schemas = {"Error": _ERROR, "Row": _ROW}
    for one in commands:
        for schema in (one.result, one.body or {}, *(parameter.schema for parameter in one.takes("POST"))):
            schemas |= schema.get("$defs", {})
    value: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "headgate relay", "version": "1", "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if tokens:
        value["components"]["securitySchemes"] = {"tenant": {"type": "http", "scheme": "bearer"}}
        value["security"] = [{"tenant": []}]
    return value


def _operation(command: Command, method: str, tokens: bool) -> dict[str, Any]:
    good: dict[str, Any] = {
        "description": command.summary,
        "content": {media: {"schema": _without_definitions(command.result)} for media in command.media},
    }
    if command.headers:
        good["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in command.headers.items()
        }
    refusals = {status: _failure(about) for status, about in _REFUSALS.items()} if tokens else {}
    if any(one.name in _FILTERS for one in command.parameters):
        refusals["400"] = _failure("A filter that can never apply to the keys or rows of its source.")
    reads = method == "GET" or command.body is not None
    operation: dict[str, Any] = {
        "summary": command.summary if reads else f"{command.summary}, before they are reset or stopped",
        "parameters": [_parameter(one) for one in command.takes(method)],
        "responses": {"200": good, **refusals, "500": _failure("An error, in Databus's form.", cause=True)},
    }
    if command.body is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _without_definitions(command.body)}}}
    return operation


def _without_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose definitions are components of the description."""
    return {name: one for name, one in schema.items() if name != "$defs"}


def _parameter(one: Parameter) -> dict[str, Any]:
    where = "path" if one.in_path else "query"
    description: dict[str, Any] = {
        "name": one.name,
        "in": where,
        "description": one.about,
        "required": one.required or one.in_path,
    }
    if one.is_json:
        return description | {"content": {JSON: {"schema": _without_definitions(one.schema)}}}
    return description | {"schema": dict(one.schema)}


def _failure(about: str, *, cause: bool = False) -> dict[str, Any]:
    text = {"type": "string"}
    headers: dict[str, Any] = {
        "x-dbus-error": {"description": "The error's name.", "required": True, "schema": text},
        "x-dbus-error-message": {"description": "The error's description.", "required": True, "schema": text},
    }
    if cause:
        headers["x-dbus-error-cause"] = {"description": "The cause, which tells clients how to react.", "schema": text}
    return {
        "description": about,
        "headers": headers,
        "content": {TEXT: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }

"""The parameters of the relay's commands: one table defines how each is parsed and described.

A command reads only the parameters of its table; others are ignored, as in Databus. ``/openapi.json`` shows the same
table, so that the description cannot differ from what is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

__all__ = [
    "LARGEST_INT",
    "SCHEMA_REFERENCE",
    "InvalidParameterError",
    "Parameter",
    "UnfitFilterError",
    "choice",
    "flag",
    "integer",
    "json_value",
    "presence",
    "read_parameters",
    "segment",
    "text",
]

LARGEST_INT: Final = 2**31 - 1
"""Databus's parameters have Java's type ``int``."""
SCHEMA_REFERENCE: Final = "#/components/schemas/{model}"
_SHOWN: Final = 500
"""Characters of a wrong value that an error repeats. It is also sent as a header, and clients limit those."""
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class InvalidParameterError(Exception):
    """A parameter of a request is wrong."""

    def __init__(self, command: str, name: str, value: object) -> None:
        shown = "null" if value is None else str(value)  # Databus reports a missing value as Java's null
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}..."
        super().__init__(f"Invalid value for parameter {name} of command {command}: {shown}")


class UnfitFilterError(InvalidParameterError):
    """A well-formed filter that can never apply to the events of its source."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the query, or a segment of the path."""

    name: str
    about: str
    """Description for users."""
    schema: Mapping[str, Any]
    """JSON Schema of the value; of a JSON parameter, of the parsed value."""
    parse: Callable[[str], Any]
    """:raises ValueError: the text is invalid."""
    required: bool = False
    default: Any = None
    """The value of a missing parameter."""
    in_path: bool = False
    is_json: bool = False


def _integer(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError("not a number in the range")
    return int(text)


def integer(
    name: str,
    about: str,
    *,
    least: int = 0,
    most: int = LARGEST_INT,
    default: int | None = None,
    required: bool = False,
    in_path: bool = False,
) -> Parameter:
    """Take a decimal number from ``least`` to ``most``."""
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default
    return Parameter(name, about, schema, lambda text: _integer(text, least, most), required, default, in_path)


def choice(
    name: str, about: str, values: Sequence[Any], *, default: Any = None, required: bool = False, in_path: bool = False
) -> Parameter:
    """Take one of some words, in any case except in the path, or of some numbers."""
    numbers = isinstance(values[0], int)
    known = {str(one): one for one in values}
    schema: dict[str, Any] = {"type": "integer" if numbers else "string", "enum": list(values)}
    if default is not None:
        schema["default"] = default

    def parse(text: str) -> Any:
        value = known.get(text if in_path else text.lower())
        if value is None:
            raise ValueError("none of them")
        return value

    return Parameter(name, about, schema, parse, required, default, in_path)


def flag(name: str, about: str) -> Parameter:
    """Take ``true``, in any case; every other text is false."""
    return Parameter(
        name, about, {"type": "boolean", "default": False}, lambda text: text.lower() == "true", False, False
    )


def presence(name: str, about: str) -> Parameter:
    """Take any text as true."""
    schema = {"type": "string", "enum": ["", "true"]}
    return Parameter(name, about, schema, lambda _: True, False, False)


def text(name: str, about: str, *, pattern: str | None = None, required: bool = False) -> Parameter:
    """Take any text; the command checks it."""
    schema = {"type": "string"} | ({"pattern": pattern} if pattern else {})
    return Parameter(name, about, schema, str, required)


def segment(name: str, about: str) -> Parameter:
    """Take a segment of the path."""
    return Parameter(name, about, {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}, str, True, None, True)


def json_value(name: str, about: str, kind: Any, parse: Callable[[Any], Any] = lambda one: one) -> Parameter:
    """Take a JSON value.

    :param kind: its type for pydantic.
    :param parse: converts the validated value; raises ValueError.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = adapter.json_schema(ref_template=SCHEMA_REFERENCE)
    return Parameter(name, about, schema, lambda text: parse(adapter.validate_json(text)), is_json=True)


def read_parameters(
    command: str, table: Sequence[Parameter], query: Mapping[str, str], path: Mapping[str, str]
) -> dict[str, Any]:
    """Return the value of each parameter of the table in a request.

    :raises InvalidParameterError: one is missing or wrong.
    """
    values = {}
    for one in table:
        value = (path if one.in_path else query).get(one.name)
        if value is None:
            if one.required:
                raise InvalidParameterError(command, one.name, None)
            values[one.name] = one.default
            continue
        try:
            values[one.name] = one.parse(value)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise InvalidParameterError(command, one.name, value) from None
    return values

"""The parameters of the relay's commands: one table says what may be asked, what is made of it, and
how it is described.

A command reads only what its table names; what else a request carries is ignored, as Databus does. The same table is
what ``/openapi.json`` shows, so that the description cannot differ from what is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

__all__ = [
    "LARGEST_INT",
    "SCHEMA_PLACE",
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
"""Databus's parameters are Java's ``int``."""
SCHEMA_PLACE: Final = "#/components/schemas/{model}"
_SHOWN: Final = 500
"""Characters of a wrong value that an error repeats: it stands in a header, too, and clients bound those."""
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class InvalidParameterError(Exception):
    """A parameter of a request is wrong."""

    def __init__(self, command: str, name: str, value: object) -> None:
        shown = "null" if value is None else str(value)  # what is missing is Java's null
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}..."
        super().__init__(f"Invalid value for parameter {name} of command {command}: {shown}")


class UnfitFilterError(InvalidParameterError):
    """A filter that is well formed, and can never be asked about the events of its source."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the query, or a segment of the path."""

    name: str
    about: str
    """For users."""
    schema: Mapping[str, Any]
    """JSON Schema of its value; of a parameter in JSON, of the parsed value."""
    parse: Callable[[str], Any]
    """:raises ValueError: the text is none of it."""
    required: bool = False
    default: Any = None
    """What it is if it is not given."""
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
    """A decimal number from ``least`` to ``most``."""
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        schema["default"] = default
    return Parameter(name, about, schema, lambda text: _integer(text, least, most), required, default, in_path)


def choice(
    name: str, about: str, values: Sequence[Any], *, default: Any = None, required: bool = False, in_path: bool = False
) -> Parameter:
    """One of some words, in capitals or not, or of some numbers."""
    numbers = isinstance(values[0], int)
    known = {str(one): one for one in values}
    schema: dict[str, Any] = {"type": "integer" if numbers else "string", "enum": list(values)}
    if default is not None:
        schema["default"] = default

    def parse(text: str) -> Any:
        found = known.get(text if in_path else text.lower())
        if found is None:
            raise ValueError("none of them")
        return found

    return Parameter(name, about, schema, parse, required, default, in_path)


def flag(name: str, about: str) -> Parameter:
    """``true``; everything else means false."""
    return Parameter(
        name, about, {"type": "boolean", "default": False}, lambda text: text.lower() == "true", False, False
    )


def presence(name: str, about: str) -> Parameter:
    """True if it is there at all."""
    schema = {"type": "string", "enum": ["", "true"]}
    return Parameter(name, about, schema, lambda _: True, False, False)


def text(name: str, about: str, *, pattern: str | None = None, required: bool = False) -> Parameter:
    """Any text; what it means the command checks."""
    schema = {"type": "string"} | ({"pattern": pattern} if pattern else {})
    return Parameter(name, about, schema, str, required)


def segment(name: str, about: str) -> Parameter:
    """A name in the path."""
    return Parameter(name, about, {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}, str, True, None, True)


def json_value(name: str, about: str, kind: Any, parse: Callable[[Any], Any] = lambda one: one) -> Parameter:
    """A value in JSON.

    :param kind: its type, as pydantic has it.
    :param parse: what is made of it; raises ValueError.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = adapter.json_schema(ref_template=SCHEMA_PLACE)
    return Parameter(name, about, schema, lambda text: parse(adapter.validate_json(text)), is_json=True)


def read_parameters(
    command: str, table: Sequence[Parameter], query: Mapping[str, str], path: Mapping[str, str]
) -> dict[str, Any]:
    """What a request gives for each parameter of the table.

    :raises InvalidParameterError: one is missing or wrong.
    """
    found = {}
    for one in table:
        given = (path if one.in_path else query).get(one.name)
        if given is None:
            if one.required:
                raise InvalidParameterError(command, one.name, None)
            found[one.name] = one.default
            continue
        try:
            found[one.name] = one.parse(given)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise InvalidParameterError(command, one.name, given) from None
    return found

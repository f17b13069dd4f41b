"""The parameters of the relay's commands: a table of each command defines how they are parsed.

A command reads only the parameters of its table; others are ignored, as in Databus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

__all__ = [
    "LARGEST_INT",
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
    parse: Callable[[str], Any]
    """:raises ValueError: the text is invalid."""
    required: bool = False
    default: Any = None
    """The value of a missing parameter."""
    in_path: bool = False


def _integer(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError("not a number in the range")
    return int(text)


def integer(
    name: str,
    *,
    least: int = 0,
    most: int = LARGEST_INT,
    default: int | None = None,
    required: bool = False,
    in_path: bool = False,
) -> Parameter:
    """Take a decimal number from ``least`` to ``most``."""
    return Parameter(name, lambda text: _integer(text, least, most), required, default, in_path)


def choice(
    name: str, values: Sequence[Any], *, default: Any = None, required: bool = False, in_path: bool = False
) -> Parameter:
    """Take one of some words, in any case except in the path, or of some numbers."""
    known = {str(one): one for one in values}

    def parse(text: str) -> Any:
        value = known.get(text if in_path else text.lower())
        if value is None:
            raise ValueError("none of them")
        return value

    return Parameter(name, parse, required, default, in_path)


def flag(name: str, *, default: bool | None = False) -> Parameter:
    """Take ``true``, in any case; every other text is false."""
    return Parameter(name, lambda text: text.lower() == "true", default=default)


def presence(name: str) -> Parameter:
    """Take any text as true."""
    return Parameter(name, lambda _: True, default=False)


def text(name: str, *, required: bool = False) -> Parameter:
    """Take any text; the command checks it."""
    return Parameter(name, str, required)


def segment(name: str) -> Parameter:
    """Take a segment of the path."""
    return Parameter(name, str, required=True, in_path=True)


def json_value(
    name: str, kind: Any, parse: Callable[[Any], Any] = lambda one: one, *, required: bool = False
) -> Parameter:
    """Take a JSON value.

    :param kind: its type for pydantic.
    :param parse: converts the validated value; raises ValueError.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return Parameter(name, lambda text: parse(adapter.validate_json(text)), required)


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

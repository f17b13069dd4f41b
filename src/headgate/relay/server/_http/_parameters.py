"""The parameters of the relay's commands: a pydantic model of each command converts texts of the query and the path.

A command reads only the parameters of its model; others are ignored, as in Databus.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

__all__ = [
    "LARGEST_INT",
    "Flag",
    "InvalidParameterError",
    "Number",
    "Parameters",
    "UnfitFilterError",
    "any_case",
    "digits",
    "json_text",
    "read_parameters",
]

LARGEST_INT: Final = 2**31 - 1
"""Databus's parameters have Java's type ``int``."""
_SHOWN: Final = 500
"""Characters of a wrong value that an error repeats. It is also sent as a header, and clients limit those."""
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_P = TypeVar("_P", bound="Parameters")


class InvalidParameterError(Exception):
    """A parameter of a request is wrong."""

    def __init__(self, command: str, name: str, value: object) -> None:
        shown = "null" if value is None else str(value)  # Databus reports a missing value as Java's null
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}..."
        super().__init__(f"Invalid value for parameter {name} of command {command}: {shown}")


class UnfitFilterError(InvalidParameterError):
    """A well-formed filter that can never apply to the events of its source."""


class Parameters(BaseModel):
    """Parameters of a command, under Databus's names. Requests may share them."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


def _parse_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    return int(text)


digits: Final = BeforeValidator(_parse_number)
"""Takes decimal digits."""
any_case: Final = BeforeValidator(str.lower)
"""Takes a word in any letter case."""
Number = Annotated[int, digits, Field(le=LARGEST_INT)]
Flag = Annotated[bool, BeforeValidator(lambda text: text.lower() == "true")]
"""``true``, in any letter case; every other text is false."""


def json_text(kind: Any, parse: Callable[[Any], Any] = lambda one: one) -> BeforeValidator:
    """Take a JSON value.

    :param kind: its type for pydantic.
    :param parse: converts the validated value; raises ValueError.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    return BeforeValidator(lambda text: parse(adapter.validate_json(text)))


def read_parameters(command: str, model: type[_P], texts: dict[str, str]) -> _P:
    """Return the parameters of a request.

    :raises InvalidParameterError: one is missing or wrong.
    """
    try:
        return model.model_validate(texts)
    except ValidationError as error:
        name = str(error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"][0])
        raise InvalidParameterError(command, name, texts.get(name)) from None

"""What is wrong with a configuration file, in one line."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

__all__ = ["explain"]


def explain(error: ValidationError, root: type[BaseModel]) -> str:
    """The mistake to mend first, in one line: an unknown key, because what is missing or wrong besides may be that one.

    :param root: the model of the whole file.
    """
    mistakes = error.errors()
    first = next((one for one in mistakes if one["type"] == "extra_forbidden"), mistakes[0])
    place = [str(part) for part in first["loc"]]
    where = ".".join(place)
    if first["type"] == "extra_forbidden":
        return f"unknown key {where}{_hint(root, place)}"
    if first["type"] == "missing":
        about = _description(root, place)
        return f"{where} is missing{about and ': '}{about}"
    about = _description(root, place) if first["type"] == "string_pattern_mismatch" else ""
    text = about or " ".join(first["msg"].removeprefix("Value error, ").split())
    return f"{where}: {text}" if where else text


def _hint(root: type[BaseModel], place: list[str]) -> str:
    """What an unknown key may have been meant to be."""
    if len(place) == 3 and place[0] == "tables" and "." not in place[1]:
        name = ".".join(place[1:])
        return f'; the name of a table stands in quotes: [tables."{name}"]'
    known = sorted(field.alias or name for name, field in _model_at(root, place[:-1]).model_fields.items())
    near = difflib.get_close_matches(place[-1], known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{hint} (known there: {', '.join(known)})"


def _description(root: type[BaseModel], place: list[str]) -> str:
    field = _model_at(root, place[:-1]).model_fields.get(place[-1])
    return ((field and field.description) or "").replace("`", "")


def _model_at(root: type[BaseModel], place: list[str]) -> type[BaseModel]:
    """The section that a path leads to; the numbers of a list and the names of tables are passed over."""
    model = root
    for part in place:
        field = next((one for name, one in model.model_fields.items() if part in (name, one.alias)), None)
        model = (field and _model_in(field.annotation)) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section in ``Section | None``, ``tuple[Section, ...]`` or ``dict[str, Section]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one)) is not None), None)

"""Explanation of a mistake in a configuration file, in one line."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

__all__ = ["explain"]


def explain(error: ValidationError, root: type[BaseModel], *, is_option: bool = False) -> str:
    """Return the first mistake to correct, in one line: an unknown key, because a missing or wrong one may be meant by
    it.

    :param root: the model of the whole file, or of all options.
    :param is_option: name the option of Spark, whose values have no quotes, instead of the file's key.
    """
    mistakes = error.errors()
    first = next((one for one in mistakes if one["type"] == "extra_forbidden"), mistakes[0])
    path = [str(part) for part in first["loc"]]
    where = f'option "{path[0]}"' if is_option and path else ".".join(path)
    if first["type"] == "extra_forbidden":
        return f"unknown key {where}{_hint(root, path)}"
    if first["type"] == "missing":
        description = _description(root, path)
        return f"{where} is missing{description and ': '}{description}"
    description = _description(root, path) if first["type"] == "string_pattern_mismatch" else ""
    text = description or _in_toml(first["type"], first["msg"])
    text = text.removesuffix(_UNQUOTED) if is_option else text
    return f"{where}: {text}" if where else text


_UNQUOTED: Final = ", without quotes"
_EXPECTED: Final = {
    "tuple_type": 'expected a list, such as ["…", "…"]',
    "dict_type": "expected a section with keys",
    "model_type": "expected a section with keys",
    "string_type": 'expected a text in quotes, such as "…"',
    "bool_type": f"expected true or false{_UNQUOTED}",
    "bool_parsing": f"expected true or false{_UNQUOTED}",
    "int_type": f"expected a whole number{_UNQUOTED}",
    "int_parsing": f"expected a whole number{_UNQUOTED}",
    "int_from_float": "expected a whole number",
    "float_type": f"expected a number{_UNQUOTED}",
    "float_parsing": f"expected a number{_UNQUOTED}",
}
"""What TOML calls the types of pydantic's errors."""


def _in_toml(kind: str, message: str) -> str:
    """Return what was expected. The value is left out: it may be a secret."""
    text = " ".join(message.removeprefix("Value error, ").split())
    return _EXPECTED.get(kind) or re.sub("^Input should be (?=(greater|less)?)", _expected, text)


def _expected(begin: re.Match[str]) -> str:
    return "expected a number " if begin.group(1) else "expected "


def _hint(root: type[BaseModel], path: list[str]) -> str:
    """Return what an unknown key may have meant."""
    if len(path) == 3 and path[0] == "tables" and "." not in path[1]:
        name = ".".join(path[1:])
        return f'; put the table name in quotes: [tables."{name}"]'
    if "." in path[-1]:
        return "; docs/from-debezium.md has Debezium's options, and what each is here"
    known = sorted(field.alias or name for name, field in _model_at(root, path[:-1]).model_fields.items())
    if path == ["source", "password"]:
        return "; a file holds no password: set HEADGATE_PASSWORD, password_env or password_file"
    near = difflib.get_close_matches(path[-1], known, 1)
    return f"; did you mean {near[0]}?" if near else f" (known there: {', '.join(known)})"


def _description(root: type[BaseModel], path: list[str]) -> str:
    field = _model_at(root, path[:-1]).model_fields.get(path[-1])
    return ((field and field.description) or "").replace("`", "")


def _model_at(root: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """Return the section at a path; the numbers of a list and the names of tables are skipped."""
    model = root
    for part in path:
        field = next((one for name, one in model.model_fields.items() if part in (name, one.alias)), None)
        model = (field and _model_in(field.annotation)) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section in ``Section | None``, ``tuple[Section, ...]`` or ``dict[str, Section]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for one in get_args(annotation) if (model := _model_in(one)) is not None), None)

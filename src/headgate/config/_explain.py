"""Explanation of a mistake in a configuration file, in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.fields import FieldInfo

from headgate.config._model import FOLDER
from headgate.config._server import ServerLogin
from headgate.errors import ConfigError

__all__ = ["checked", "explain"]

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def checked(
    model: type[AnyModel],
    values: Mapping[str, Any],
    *,
    where: str = "",
    folder: Path | None = None,
    name_of: Callable[[str], str] | None = None,
) -> AnyModel:
    """Return a section or a whole file with these values.

    :param where: begin of messages.
    :param folder: start of relative paths; None: paths stay as they are.
    :param name_of: returns how users call a key whose values have no quotes: an option, a property. None: a key of
        TOML.
    :raises ConfigError: a mistake, in one line.
    """
    try:
        return model.model_validate(values, context=None if folder is None else {FOLDER: folder})
    except ValidationError as error:
        raise ConfigError(f"{where}{explain(error, model, name_of=name_of)}") from None


def explain(error: ValidationError, root: type, *, name_of: Callable[[str], str] | None = None) -> str:
    """Return the first mistake to correct, in one line: an unknown key, because a missing or wrong one may be meant by
    it.

    :param root: the model of the whole file, or of all options.
    :param name_of: as of :func:`checked`.
    """
    mistakes = error.errors()
    first = next((one for one in mistakes if one["type"] in _UNKNOWN), mistakes[0])
    path = [str(part) for part in first["loc"]]
    where = _where(first["loc"])
    where = name_of(where) if name_of and path else where
    if first["type"] in _UNKNOWN:
        return f"unknown {'' if name_of else 'key '}{where}{_hint(root, path)}"
    if first["type"] == "missing":
        description = _description(root, path)
        return f"{where} is missing{description and ': '}{description}"
    description = _description(root, path) if first["type"] == "string_pattern_mismatch" else ""
    text = description or _in_toml(first["type"], first["msg"])
    text = text.removesuffix(_UNQUOTED) if name_of else text
    return f"{where}: {text}" if where else text


_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
_UNQUOTED: Final = ", without quotes"
_EXPECTED: Final = {
    "tuple_type": 'expected a list, such as ["…", "…"]',
    "too_short": "expected a list that is not empty",
    "dict_type": "expected a section with keys",
    "dataclass_type": "expected a section with keys",
    "model_type": "expected a section with keys",
    "string_too_short": "expected a text that is not empty",
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


def _where(location: Sequence[str | int]) -> str:
    """Return the path of a key: ``sources[0].table``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _in_toml(kind: str, message: str) -> str:
    """Return what was expected. The value is left out: it may be a secret."""
    text = " ".join(message.removeprefix("Value error, ").split())
    return _EXPECTED.get(kind) or re.sub("^Input should be (?=(greater|less)?)", _expected, text)


def _expected(begin: re.Match[str]) -> str:
    return "expected a number " if begin.group(1) else "expected "


def _hint(root: type, path: list[str]) -> str:
    """Return what an unknown key may have meant."""
    if len(path) == 3 and path[0] == "tables" and "." not in path[1]:
        name = ".".join(path[1:])
        return f'; put the table name in quotes: [tables."{name}"]'
    if "." in path[-1]:
        return "; docs/how-to/from-debezium.md has Debezium's options, and what each is here"
    known = sorted(field.alias or name for name, field in _fields(_model_at(root, path[:-1])).items())
    if path[-1] == "password" and issubclass(_model_at(root, path[:-1]), ServerLogin):
        return "; a file holds no password: set HEADGATE_PASSWORD, password_env, password_file or password_command"
    near = difflib.get_close_matches(path[-1], known, 1)
    return f"; did you mean {near[0]}?" if near else f" (known there: {', '.join(known)})"


def _description(root: type, path: list[str]) -> str:
    field = _fields(_model_at(root, path[:-1])).get(path[-1])
    return ((field and field.description) or "").replace("`", "")


def _fields(model: type) -> Mapping[str, FieldInfo]:
    fields: Mapping[str, FieldInfo] = getattr(model, "__pydantic_fields__", None) or getattr(model, "model_fields", {})
    return fields


def _model_at(root: type, path: list[str]) -> type:
    """Return the section at a path; the numbers of a list and the names of tables are skipped."""
    model = root
    for part in path:
        field = next((one for name, one in _fields(model).items() if part in (name, one.alias)), None)
        model = (field and _model_in(field.annotation)) or model
    return model


def _model_in(annotation: Any) -> type | None:
    """Return the section in ``Section | None``, ``tuple[Section, ...]`` or ``dict[str, Section]``."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_pydantic_dataclass(annotation)):
        return annotation
    return next((model for one in get_args(annotation) if (model := _model_in(one)) is not None), None)

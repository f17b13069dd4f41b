"""Mistakes in a configuration file, or in options: all at once, each in one line with its key, the value and what is
accepted.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from headgate.config._model import COLLECTED, FOLDER, Model
from headgate.config._server import ServerLogin
from headgate.errors import ConfigError

__all__ = ["Mistakes", "checked", "explain"]

AnyModel = TypeVar("AnyModel", bound=BaseModel)
_NameOf: TypeAlias = Callable[[str], str] | None
_Location: TypeAlias = tuple[str | int, ...]


class Mistakes:
    """Mistakes of several checks, to report all of them at once.

    :param where: begin of each line.
    """

    def __init__(self, where: str = "") -> None:
        self._where, self._lines = where, list[str]()

    def __enter__(self) -> None:
        """Begin a block whose mistakes are kept. It ends at its first ``ConfigError``."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, ConfigError):
            self._lines += error.lines
        return isinstance(error, ConfigError)

    def add(self, lines: Iterable[str]) -> None:
        """Add mistakes, each in one line."""
        self._lines += lines

    def check(self) -> None:
        """:raises ConfigError: there are mistakes."""
        if self._lines:
            raise ConfigError.of([*dict.fromkeys(self._lines)], self._where)


def checked(
    model: type[AnyModel],
    values: Mapping[str, Any],
    *,
    where: str = "",
    folder: Path | None = None,
    name_of: _NameOf = None,
) -> AnyModel:
    """Return a section or a whole file with these values.

    :param where: begin of messages.
    :param folder: start of relative paths; None: paths stay as they are.
    :param name_of: returns how users call a key whose values have no quotes: an option, a property. None: a key of
        TOML.
    :raises ConfigError: all mistakes: unknown and missing keys, invalid values, and valid ones that do not go together,
        which is not known as long as a key is missing.
    """
    context = {COLLECTED: True, **({} if folder is None else {FOLDER: folder})}
    lines: list[str] = []
    wrong: list[_Location] = []
    made: BaseModel | None = None
    try:
        made = model.model_validate(values, context=context)
    except ValidationError as error:
        lines, wrong = explain(error, model, name_of=name_of), [one["loc"] for one in error.errors()]
        try:
            made = model.model_validate(_without(values, wrong), context=context)
        except ValidationError:
            made = None
    lines += _conflicts(made, wrong, name_of)
    if lines or not isinstance(made, model):
        raise ConfigError.of([*dict.fromkeys(lines)], where)
    return made


def explain(error: ValidationError, root: type, *, name_of: _NameOf = None) -> list[str]:
    """Return the mistakes, each in one line. Unknown keys are first: a key that is missing or wrong may be meant by
    one, and is left out if it is the nearest. So is a list that is empty because its elements are wrong.

    :param root: the model of the whole file, or of all options.
    :param name_of: as of :func:`checked`.
    """
    mistakes = sorted(error.errors(), key=lambda one: one["type"] not in _UNKNOWN)
    meant = {(*one["loc"][:-1], _nearest(root, _path(one))) for one in mistakes if one["type"] in _UNKNOWN}
    above = {one["loc"][:end] for one in mistakes for end in range(len(one["loc"]))}
    follow: Mapping[str, Container[object]] = {"missing": meant, "too_short": above}
    shown = [one for one in mistakes if one["loc"] not in follow.get(one["type"], ())]
    return [*dict.fromkeys(_line(one, root, name_of) for one in shown)]


def _line(mistake: ErrorDetails, root: type, name_of: _NameOf) -> str:
    path, kind = _path(mistake), mistake["type"]
    where = _where(mistake["loc"], name_of)
    if kind in _UNKNOWN:
        return f"unknown {'' if name_of else 'key '}{where}{_hint(root, path)}"
    description = _description(root, path) if path else ""
    if kind == "missing":
        return f"{where} is missing{description and ': '}{description}"
    value = _shown(mistake["loc"], mistake["input"])
    if kind == "string_pattern_mismatch" and description:
        return f"{where}: {value or 'this'} is not {description}"
    text = _in_toml(kind, mistake["msg"])
    text = text.removesuffix(_UNQUOTED) if name_of else text
    if value and text.startswith("expected"):
        text = f"{text}, not {value}"
    return f"{where}: {text}" if where else text


def _conflicts(made: BaseModel | None, wrong: Sequence[_Location], name_of: _NameOf) -> Iterator[str]:
    """Yield the values that do not go together, if none of them is wrong itself."""
    names = [tuple(map(str, one)) for one in wrong]
    for location, keys, text in _conflicts_in(made, ()):
        paths = [(*map(str, location), *key.split(".")) for key in keys.split()]
        if not any(name[: len(path)] == path[: len(name)] for name in names for path in paths):
            where = _where(location, name_of)
            yield f"{where}: {text}" if where else text


def _conflicts_in(value: Any, location: _Location) -> Iterator[tuple[_Location, str, str]]:
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, Model):
        yield from ((location, keys, text) for keys, text in value._conflicts())
        inner = ((field.alias or name, getattr(value, name)) for name, field in type(value).model_fields.items())
    elif isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, tuple):
        inner = enumerate(value)
    for part, one in inner:
        yield from _conflicts_in(one, (*location, part))


def _without(values: Mapping[str, Any], wrong: Iterable[_Location]) -> Any:
    """Return the values without those at these locations. An element of a list is removed with the list."""
    copy = _copied(dict(values))
    for location in wrong:
        at, owner, key = copy, copy, None
        for part in location:
            if isinstance(at, dict) and part in at:
                at, owner, key = at[part], at, part
            elif isinstance(at, list) and isinstance(part, int) and isinstance(at[part], dict):
                at = at[part]
            else:
                break
        owner.pop(key, None)
    return copy


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


_SECRET: Final = re.compile(r"ur[il]$|passw|secret|token|_env$|_file$|^relay$|registry|bootstrap|path$|^spark$")
"""Keys whose values may have a password in them, or be one by mistake."""
_LONGEST: Final = 60


def _shown(location: _Location, value: object) -> str:
    """Return a value as the file has it; empty: it is a section, too long, or may be a secret."""
    if any(isinstance(part, str) and _SECRET.search(part) for part in location):
        return ""
    if not isinstance(value, (str, int, float, list)):
        return ""
    text = json.dumps(value, ensure_ascii=False, default=lambda _: "…")
    return "" if len(text) > _LONGEST or "@" in text or "://" in text else text


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


def _path(mistake: ErrorDetails) -> list[str]:
    return [str(part) for part in mistake["loc"]]


def _where(location: Sequence[str | int], name_of: _NameOf) -> str:
    """Return the path of a key: ``sources[0].table``, or the name that ``name_of`` gives it; empty: the whole file."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    where = "".join(parts).removeprefix(".")
    return name_of(where) if name_of and where else where


def _in_toml(kind: str, message: str) -> str:
    """Return what was expected."""
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
    if path[-1] == "password" and issubclass(_model_at(root, path[:-1]), ServerLogin):
        return "; a file holds no password: set HEADGATE_PASSWORD, password_env, password_file or password_command"
    near = _nearest(root, path)
    return f"; did you mean {near}?" if near else f" (known there: {', '.join(_known(root, path))})"


def _known(root: type, path: list[str]) -> list[str]:
    """Return the keys of the section in which a key is."""
    return sorted(field.alias or name for name, field in _fields(_model_at(root, path[:-1])).items())


def _nearest(root: type, path: list[str]) -> str | None:
    """Return the known key that an unknown one is most like."""
    return next(iter(difflib.get_close_matches(path[-1], _known(root, path), 1)), None)


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

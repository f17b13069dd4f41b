"""Writes docs/reference/api.md from the docstrings of ``import headgate``, tests/api.txt from its names and signatures.

``python tools/generate_api.py`` writes the page; a test compares it with what this would write. ``--accept`` writes the
list too: then a line in CHANGELOG.md tells users what has changed.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import headgate
from headgate.positions import LogPlace, Position

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "api.md"
NAMES = ROOT / "tests" / "api.txt"
_LOG_READING = {*vars(LogPlace), "newest", "only", "parts", "transactions"} - {"parse"}
"""Members of positions that only readers of a log call."""

HEAD = """\
# The Python API

What `import headgate` gives. Nothing heavy is loaded before it is used: neither numba nor Spark. These names, their
parameters and their methods change only with a line in [CHANGELOG.md](../../CHANGELOG.md); everything else in the
package may change at any time.

<!-- Made by tools/generate_api.py from the docstrings; change them there. -->
"""
ERRORS_HEAD = """
## The errors

Each error is picklable and carries fields such as `table` and `gtid`. Each leaf is `Transient` (a retry may cure it)
or `Definite` (a retry gives the same error until its cause is gone).
"""


def page() -> str:
    """The whole page."""
    things = [(name, getattr(headgate, name)) for name in _names()]
    plain = "".join(_section(name, thing) for name, thing in things if not _is_error(thing))
    rows = [
        f"| `{name}` | {', '.join(f'`{base}`' for base in _bases(thing)) or 'marker'} | {_markdown(_summary(thing))} |"
        for name, thing in things
        if _is_error(thing)
    ]
    table = "\n".join(["| error | is a | meaning |", "|---|---|---|", *rows])
    example = "\n\n".join(_paragraphs(inspect.getdoc(headgate.HeadgateError) or "")[-1:])
    return f"{HEAD}{plain}{ERRORS_HEAD}\n{example}\n\n{table}\n"


def names() -> str:
    """Every public name, method and field with its signature: one a line."""
    lines: list[str] = []
    for name in _names():
        thing = getattr(headgate, name)
        if _is_error(thing):
            lines += [f"error {name}({', '.join(_bases(thing))})", *(f"{name}.{known}" for known in _new_fields(thing))]
        else:
            lines.append(("class " if inspect.isclass(thing) else "function ") + _signature(name, thing))
            lines += [text for text, _ in _members(name, thing)]
    return "\n".join(lines) + "\n"


def _names() -> list[str]:
    return [name for name in headgate.__all__ if not name.startswith("_")]


def _is_error(thing: Any) -> bool:
    return getattr(thing, "__module__", None) == "headgate.errors"


def _bases(error: type) -> list[str]:
    return [base.__name__ for base in error.__bases__ if base is not object]


def _new_fields(error: Any) -> list[str]:
    inherited = {name for base in error.__bases__ for name in getattr(base, "known_fields", ())}
    return [name for name in getattr(error, "known_fields", ()) if name not in inherited]


class _Text:
    """Shown as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(name: str, function: Any, *, shown: str | None = None) -> str:
    if isinstance(function, type) and issubclass(function, BaseModel):
        return f"{name}(**values)"
    signature = inspect.signature(function)
    parameters = [
        one.replace(annotation=_annotation(one.annotation), default=_default(one.default))
        for one in signature.parameters.values()
    ]
    answer = inspect.Signature.empty if inspect.isclass(function) else _annotation(signature.return_annotation)
    return f"{shown or name}{signature.replace(parameters=parameters, return_annotation=answer)}"


def _annotation(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _Text(re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text))


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty or not callable(value):
        return value
    return _Text("...")


def _members(name: str, thing: Any) -> Iterator[tuple[str, str]]:
    """Fields, properties and methods of headgate's own, with what they say of themselves."""
    if not inspect.isclass(thing):
        return
    fields = thing.model_fields if issubclass(thing, BaseModel) else {}
    for field, about in fields.items():
        yield f"{name}.{field}: {_annotation(about.annotation)}", about.description or ""
    for member, value in _public(thing).items():
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if isinstance(value, property):
            answer = _annotation(inspect.signature(value.fget).return_annotation) if value.fget else ""
            yield f"{name}.{member}: {answer}", _summary(value)
        elif inspect.isfunction(function):
            kind = "classmethod " if isinstance(value, classmethod) else ""
            yield f"{kind}{_signature(f'{name}.{member}', function)}", _summary(function)


def _public(thing: type) -> dict[str, Any]:
    """The public members that classes of headgate define, by name; without those that only readers of a log call."""
    members: dict[str, Any] = {}
    for kind in reversed(thing.__mro__):
        if kind.__module__.partition(".")[0] == "headgate":
            members |= {key: value for key, value in vars(kind).items() if not key.startswith("_")}
    internal = _LOG_READING if issubclass(thing, Position) else ()
    return {key: members[key] for key in sorted(members.keys() - internal)}


def _summary(thing: Any) -> str:
    text = (inspect.getdoc(thing) or "").split("\n\n", 1)[0]
    return " ".join(line for line in text.splitlines() if not line.startswith(":"))


def _section(name: str, thing: Any) -> str:
    parts = [f"## {name}", f"```python\n{_signature(name, thing)}\n```", *_paragraphs(inspect.getdoc(thing) or "")]
    members = [
        f"| `{_cell(text.removeprefix('classmethod ').removeprefix(f'{name}.'))}` | {_cell(_markdown(summary))} |"
        for text, summary in _members(name, thing)
    ]
    if members:
        parts.append("\n".join(["| member | |", "|---|---|", *members]))
    for member, function in _public(thing).items() if inspect.isclass(thing) else ():
        more = _paragraphs(inspect.getdoc(function) or "")[1:] if inspect.isfunction(function) else []
        parts += [f"### {name}.{member}", *more] if more else []
    return "\n" + "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _paragraphs(text: str) -> list[str]:
    """A docstring's paragraphs as Markdown: lists of parameters, examples as code."""
    made = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(">>>"):
            made.append(f"```pycon\n{paragraph}\n```")
        elif paragraph.startswith(":"):
            joined = re.sub(r"\n +", " ", paragraph)
            made.append("\n".join(_parameter(line) for line in joined.splitlines()))
        else:
            made.append(_markdown(paragraph))
    return made


def _parameter(line: str) -> str:
    match = re.fullmatch(r":(param|raises|return)(?: (\w+))?: ?(.*)", line)
    assert match, f"not a line about a parameter: {line!r}"
    kind, name, text = match.groups()
    named = {"param": f"`{name}`", "raises": f"raises `{name}`", "return": "returns"}[kind]
    return f"- {named}: {_markdown(text)}" if text else f"- {named}"


def _markdown(text: str) -> str:
    text = re.sub(r":(?:meth|class|func|data):`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"``(.+?)``", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    if "--accept" in sys.argv[1:]:
        NAMES.write_text(names(), encoding="utf-8")

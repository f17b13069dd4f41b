"""Options of commands that are settings of a file: the setting has their type, range, default and meaning."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

__all__ = ["setting"]


def setting(model: type[BaseModel], name: str, *flags: str, metavar: str | None = None, overrides: bool = False) -> Any:
    """Return the option of a command for a setting.

    :param flags: spelling of the option; by default that of its parameter.
    :param metavar: what stands for the value; by default its type, or the choices. Long choices would break inside
        words: with a metavar they are in the text.
    :param overrides: the parameter is None by default, which leaves the value to a file.
    """
    field = model.model_fields[name]
    more: dict[str, Any] = {
        option: getattr(one, bound)
        for one in field.metadata
        for bound, option in (("ge", "min"), ("le", "max"))
        if hasattr(one, bound)
    }
    text = str(field.description)
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if choices:
        more["parser"] = _choice_of(choices)
        if metavar is not None and not all(f"`{one}`" in text for one in choices):
            text = f"{text}: {', '.join(map(str, choices))}"
        metavar = metavar or "|".join(map(str, choices))
    if overrides and not (field.default is None or field.default is False):
        more["show_default"] = f"the file's, else {field.default}"
    return typer.Option(*flags, help=_plain(text, model), metavar=metavar, **more)


def _choice_of(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    by_text = {str(one): one for one in choices}

    def parse(text: Any) -> Any:
        if str(text) not in by_text:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(by_text)}.")
        return by_text[str(text)]

    return parse


def _plain(text: str, model: type[BaseModel]) -> str:
    """Return a description without Markdown, as a sentence; other settings are called as their options are."""
    text = re.sub(r"`(\w+)`", lambda name: _flag(name[1]) if name[1] in model.model_fields else name[1], text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("[", r"\[")
    return f"{text[0].upper()}{text[1:]}."


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

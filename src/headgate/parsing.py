"""JSON, TOML and commands from elsewhere: files, messages, settings that people, other programs or damage have made."""

from __future__ import annotations

import json
import shlex
import tomllib
from typing import Any

__all__ = ["parse_command", "parse_json", "parse_toml"]


def parse_command(text: str) -> list[str]:
    """Split a program and its arguments, quoted as for a shell. Nothing is expanded.

    :raises ValueError: a quote is not closed, there is no program, or a word has a NUL.
    """
    words = shlex.split(text)
    if not words or not words[0] or "\0" in text:
        raise ValueError("no program is named")
    return words


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON.

    :param options: as of ``json.loads``.
    :raises ValueError: it is not JSON, too deeply nested, has a number of thousands of digits, or half of a surrogate
        pair, which no file can hold.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        value = json.loads(text, **options)
        # Only an escape makes half of a pair where the text has none.
        (json.dumps(value, ensure_ascii=False, default=str) if "\\u" in text else text).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"half of a surrogate pair: {error.object[error.start]!r}") from None
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    :raises ValueError: it is not TOML, too deeply nested, or has a number of thousands of digits.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None

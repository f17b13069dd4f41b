"""Texts that no parser of Python's refuses with its usual error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.config import parse_config
from headgate.errors import ConfigError, HeadgateError, OffsetFormatError
from headgate.files import read_json
from headgate.offsets import ChunkSpec, SourceOffset
from headgate.parsing import parse_json, parse_toml

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "text",
    [DEEP, "{", "1" * 5000, '"\\ud800"', b'"\xed\xa0\x80"', b"\xff", "\ud800", b'{"a": "\\udfff"}'],
    ids=lambda one: str(one)[:9],
)
def test_what_is_no_json_that_a_file_can_hold(text: str | bytes) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(text)
    assert type(caught.value) in {ValueError, json.JSONDecodeError, UnicodeDecodeError}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_json_of_bytes(encoding: str) -> None:
    assert parse_json('{"é": "\\ud83d\\ude00"}'.encode(encoding)) == {"é": "\U0001f600"}


@pytest.mark.parametrize("text", ["a = " + DEEP, "a = " + "1" * 5000, "a = "])
def test_what_is_no_toml(text: str) -> None:
    with pytest.raises(ValueError):
        parse_toml(text)


@pytest.mark.parametrize(
    ("parse", "error"),
    [
        (SourceOffset.from_json, OffsetFormatError),
        (ChunkSpec.from_json, OffsetFormatError),
        (lambda text: parse_config("a = " + text), ConfigError),
    ],
)
def test_what_parses_them_refuses_depth(parse: Callable[[str], Any], error: type[HeadgateError]) -> None:
    with pytest.raises(error, match="too deeply"):
        parse(DEEP)


def test_a_deep_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(DEEP)
    with pytest.raises(ConfigError, match="too deeply"):
        read_json(file)

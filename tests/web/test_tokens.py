"""Tokens: what can be sent in a header is one; what cannot is never shown."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.web import Token, WebServer, read_token

ODD = ["secret-1\nsecret-2", "secret 1-and-secret 2", "secret-1\x7fsecret-2", "secret-ä-secret-2", "secret-€-secret-2"]


@pytest.mark.parametrize("text", [*ODD, ""])
def test_what_is_no_token_is_refused_and_not_shown(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{text}\n", encoding="utf-8")
    monkeypatch.setenv("ODD_TOKEN", text)

    def send() -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", 1)) as connection:
            WebServer.request(connection, "GET", "/", None, text)

    readers: dict[str, Callable[[], object]] = {
        "the relay's token": lambda: read_token(file, "the relay's token"),
        f"the token file {file}": lambda: Token.from_file(file),
        "the environment variable ODD_TOKEN": lambda: Token.from_env("ODD_TOKEN"),
        "the token": send,
    }
    for name, read in readers.items():
        with pytest.raises(ConfigError, match="printable ASCII") as refused:
            read()
        assert str(refused.value).startswith(f"{name} is not one line")
        assert "secret" not in str(refused.value)


def test_a_token_is_read_without_the_end_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("  !secret~\r\n")
    assert read_token(file, "the token") == "!secret~"
    with pytest.raises(ConfigError, match="the token cannot be read: No such file"):
        read_token(tmp_path / "none", "the token")

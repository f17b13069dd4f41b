"""Address and login of a MySQL server: keys of ``[source]`` and of a relay's ``[[physical]]``, options in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qsl

from pydantic import Field, field_validator

from headgate.config._model import Conflict, FilePath, Model, VariableName, both_set, split_url
from headgate.parsing import parse_command

__all__ = ["PASSWORD_NAMES", "ServerLogin"]

PASSWORD_NAMES: Final = frozenset({"password", "passwd", "pwd", "secret", "pass"})
_REMEDY: Final = (
    "leave the password out of the URL: set HEADGATE_PASSWORD, password_env, password_file or password_command"
)


class ServerLogin(Model):
    """Where a server is, and where its password is: never the password."""

    url: str = Field(description="`mysql://user@host:3306/?tls=required`, without a password")
    password_env: VariableName | None = Field(
        None,
        description="environment variable that holds the password; without it, `password_file` and `password_command`:"
        " `HEADGATE_PASSWORD`",
    )
    password_file: FilePath | None = Field(
        None, description="file that holds the password; a relative path starts at the working directory"
    )
    password_command: str | None = Field(
        None,
        description="program whose first line of output is the password, for tokens that expire: its arguments are"
        " quoted as for a shell, but no shell runs it and nothing is expanded. It runs again after 300 s, or if the"
        " server refuses the password, and may take 30 s. Put no secret into its arguments: Spark shows options",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = split_url(url, "mysql")
        if parts is None:
            raise ValueError("expected mysql://user@host:3306")
        if parts.password is not None or any(name.lower() in PASSWORD_NAMES for name, _ in parse_qsl(parts.query)):
            raise ValueError(_REMEDY)
        if parts.path.strip("/"):
            raise ValueError("a URL names no database; expected mysql://user@host:3306, and databases in tables")
        return url

    @field_validator("password_command")
    @classmethod
    def _check_password_command(cls, command: str | None) -> str | None:
        try:
            parse_command("-" if command is None else command)
        except ValueError as error:
            raise ValueError(f"expected a program with its arguments, quoted as for a shell: {error}") from None
        return command

    def _conflicts(self) -> Iterator[Conflict]:
        yield from both_set([name for name, value in self.passwords.items() if value is not None])

    @property
    def passwords(self) -> dict[str, Any]:
        """Where the password is: the settings of that, by name."""
        return {name: getattr(self, name) for name in ServerLogin.model_fields if name != "url"}

"""Address and login of a server. Everything in it may be pickled, printed and logged."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from headgate.errors import ConfigError
from headgate.files import file_errors
from headgate.mysql._printed_passwords import PrintedPasswords, run_command
from headgate.parsing import parse_command

if TYPE_CHECKING:
    from headgate.mysql._binlog_archive import BinlogArchive

__all__ = ["PASSWORD_VARIABLE", "ConnectionSettings", "Secret", "TlsMode"]

PASSWORD_VARIABLE: Final = "HEADGATE_PASSWORD"  # noqa: S105 - the variable's name
"""Environment variable that holds the password by default."""

_printed: Final = PrintedPasswords(run_command)

TlsMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]

_EXAMPLE = "mysql://user@host:3306"


_LONGEST_TIMEOUT_SECONDS = 31_536_000
"""A year: PyMySQL's limit."""


@dataclass(frozen=True)
class Secret:
    """Name of a password, not the password, which is looked up when a connection opens.

    Set at most one of the four. None of them means the environment variable ``HEADGATE_PASSWORD`` or, if it is not
    set, no password.
    """

    env: str | None = None
    """Environment variable that holds the password. It must be set, unless it is ``HEADGATE_PASSWORD``."""
    file: str | None = None
    """File that holds the password. One line ending at its end is removed."""
    command: str | None = None
    """Program with its arguments, quoted as for a shell, whose first line of output is the password
    (``mysql/_printed_passwords.py``)."""
    value: str | None = field(default=None, repr=False)
    """The password itself, for URLs that carry one. It is never shown and never leaves this process."""

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.env, self.file, self.command, self.value)) > 1:
            raise ConfigError(
                "a password is given twice: use one of password_env, password_file, password_command and the URL"
            )
        if self.command is not None:
            try:
                parse_command(self.command)
            except ValueError as error:
                raise ConfigError(f"password_command is not a program with its arguments: {error}") from None

    @property
    def may_change(self) -> bool:
        """Whether the password may be another one later, while this process runs."""
        return self.file is not None or self.command is not None

    def resolve(self) -> str:
        """Return the current password.

        :raises ConfigError: the variable is not set, the file cannot be read, or the command cannot be run.
        :raises ConnectError: the command fails.
        """
        if self.value is not None:
            return self.value
        if self.command is not None:
            return _printed.get(self.command)
        if self.file is not None:
            with file_errors(f"cannot read the password file {self.file}"):
                path = os.path.expanduser(self.file)  # noqa: PTH111 - leaves ~nobody as it is
                text = Path(path).read_text("utf-8")
            return text.removesuffix("\n").removesuffix("\r")
        if self.env not in (None, PASSWORD_VARIABLE):
            password = os.environ.get(str(self.env))
            if password is None:
                raise ConfigError(f"the environment variable {self.env} is not set; it should hold the MySQL password")
            return password
        return os.environ.get(PASSWORD_VARIABLE, "")

    def forget(self, password: str) -> None:
        """Note that the server has refused a password: if a command printed it, the command runs again."""
        if self.command is not None:
            _printed.forget(self.command, password)

    def __getstate__(self) -> dict[str, str | None]:
        if self.value is not None:
            raise ConfigError(
                f"a password in a URL stays in this process: give it in {PASSWORD_VARIABLE} or a password file instead"
            )
        return {"env": self.env, "file": self.file, "command": self.command, "value": None}

    def __str__(self) -> str:
        if self.value is not None:
            return "password in the URL"
        if self.file is not None:
            return f"password file {self.file}"
        if self.command is not None:
            return f"password command {parse_command(self.command)[0]}"
        return f"environment variable {self.env or PASSWORD_VARIABLE}"


@dataclass(frozen=True)
class ConnectionSettings:
    """Address and login of one server. Picklable; ``repr`` and ``str`` show no password."""

    host: str
    port: int = 3306
    user: str = "root"
    secret: Secret = Secret()
    tls: TlsMode = "preferred"
    """``disabled``; ``preferred``: if the server offers it; ``required``; ``verify_ca``: also verify that ``tls_ca``
    signed its certificate; ``verify_identity``: also that it is made for this host name."""
    tls_ca: str | None = None
    """PEM file with the certificate authorities to trust; None: the system's."""
    tls_crl: str | None = None
    """PEM file with the authority's current list of revoked certificates; for the ``verify_`` modes."""
    tls_cert: str | None = None
    """PEM file with the client's certificate; together with ``tls_key``."""
    tls_key: str | None = None
    """PEM file with the key of the client's certificate."""
    connect_timeout_seconds: float = 10.0
    """Longest wait for the connection and each answer of the login."""
    read_timeout_seconds: float = 300.0
    """Longest wait for the next bytes of an answer."""
    log: BinlogArchive | None = None
    """Binlog archive that serves the server's log in its place; None: the server itself."""

    def __post_init__(self) -> None:
        if self.tls not in get_args(TlsMode):
            raise ConfigError(f"unknown tls mode {self.tls!r}; use one of {', '.join(get_args(TlsMode))}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("tls_cert and tls_key belong together: give both or neither")
        if self.tls == "disabled" and (self.tls_ca or self.tls_cert):
            raise ConfigError("tls is disabled, but TLS files are given: remove them or choose another tls mode")
        if self.tls_crl is not None and not self.tls.startswith("verify_"):
            raise ConfigError("tls_crl is for tls=verify_ca and tls=verify_identity: other modes verify no certificate")
        if not 0 < self.port < 65536:
            raise ConfigError(f"{self.port} is not a port; use 1 to 65535")
        if not self.host:
            raise ConfigError("the host is empty")
        for seconds in (self.connect_timeout_seconds, self.read_timeout_seconds):
            if not 0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
                raise ConfigError(f"timeouts must be longer than 0 and at most {_LONGEST_TIMEOUT_SECONDS} seconds")

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        secret: Secret | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        password_command: str | None = None,
        **settings: Any,
    ) -> ConnectionSettings:
        """Parse ``mysql://user@host:port/?tls=required&tls_ca=…``.

        The query part may set every field, ``password_env`` and ``password_file``, but no command: URLs come from many
        sources. Arguments that are not None override it. A password in the URL is accepted; ``password_in_url`` is then
        True, so that headgate's commands can warn.

        :param secret: overrides every other password setting.

        :raises ConfigError: not such a URL; the message never repeats a password.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ConfigError(f"not a MySQL URL; it should look like {_EXAMPLE}") from None
        if parts.scheme != "mysql" or not parts.hostname:
            raise ConfigError(f"not a MySQL URL; it should look like {_EXAMPLE}")
        if parts.path.strip("/") or parts.fragment:
            raise ConfigError(f"a URL names no database; it should look like {_EXAMPLE}; set tables separately")
        query = _query(parts.query)
        options = {**query, **{name: value for name, value in settings.items() if value is not None}}
        env, file = options.pop("password_env", None), options.pop("password_file", None)
        if any(one is not None for one in (password_env, password_file, password_command)):
            env, file = password_env, password_file
        if secret is None:
            value = None if parts.password is None else unquote(parts.password)
            secret = Secret(env, file, password_command, value)
        user = unquote(parts.username) if parts.username else "root"
        return cls(
            host=unquote(parts.hostname), port=3306 if port is None else port, user=user, secret=secret, **options
        )

    @property
    def password_in_url(self) -> bool:
        """Whether the password was given in a URL, where shells and process lists show it."""
        return self.secret.value is not None

    @property
    def url(self) -> str:
        """``mysql://user@host:port`` without password and options, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{quote(self.user, safe='')}@{host}:{self.port}"

    def __str__(self) -> str:
        return self.url


_NUMBERS = ("connect_timeout_seconds", "read_timeout_seconds")
_OPTIONS = ("tls", "tls_ca", "tls_crl", "tls_cert", "tls_key", "password_env", "password_file", *_NUMBERS)


def _query(text: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in _OPTIONS:
            raise ConfigError(f"unknown option {name!r} in the URL; known: {', '.join(_OPTIONS)}")
        if name in _NUMBERS:
            try:
                options[name] = float(value)
            except ValueError:
                raise ConfigError(f"{name} in the URL must be a number, not {value!r}") from None
        else:
            options[name] = value
    return options

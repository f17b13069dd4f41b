"""Log in, also while a password is being rotated.

A rotation has two steps: ALTER USER, and another content of the password file on each machine. In between, new
connections are refused, and a login that worked before would end a stream. So if the server refuses an account that it
has accepted before, wait for another password in the file. Nothing is sent meanwhile: each refused login counts
towards FAILED_LOGIN_ATTEMPTS, which locks the account.

A login is refused at once if the account was never accepted, as with a wrong password in the configuration, or if its
password is not in a file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from headgate.errors import AccessError, ConfigError
from headgate.mysql._settings import ConnectionSettings

__all__ = ["LATE_PASSWORD_SECONDS", "expect_login", "log_in"]

log = logging.getLogger("headgate")

LATE_PASSWORD_SECONDS: Final = 30.0
"""Longest wait for another password in the file, from the first refusal on."""
_POLL_SECONDS: Final = 0.2
_REFUSED: Final = 1045
"""ER_ACCESS_DENIED_ERROR: wrong password, or no such account."""

_accepted: set[tuple[str, int, str]] = set()
"""Accounts that logged in from this process, or for which a task of it was planned."""

_Driver = TypeVar("_Driver")


def expect_login(settings: ConnectionSettings) -> None:
    """Note that another process has logged in with these settings, which planned the work of this one."""
    _accepted.add(_account(settings))


def log_in(settings: ConnectionSettings, connect: Callable[[str], _Driver]) -> _Driver:
    """Return what ``connect`` returns for the current password.

    :raises AccessError: the server refuses the login, for ``LATE_PASSWORD_SECONDS`` if it accepted the account before.
    :raises ConfigError: the password cannot be read.
    """
    password, deadline = settings.secret.resolve(), 0.0
    while True:
        try:
            driver = connect(password)
        except AccessError as error:
            if error.code != _REFUSED or settings.secret.file is None or _account(settings) not in _accepted:
                raise
            if not deadline:
                deadline = time.monotonic() + LATE_PASSWORD_SECONDS
                log.warning("%s: waiting up to %.0f s for another password", error.message, LATE_PASSWORD_SECONDS)
            another = _await_another(settings, password, deadline)
            if another is None:
                message = f"{error.message}; it did not change within {LATE_PASSWORD_SECONDS:.0f} s"
                raise AccessError(message, code=error.code) from error
            password = another
        else:
            _accepted.add(_account(settings))
            return driver


def _account(settings: ConnectionSettings) -> tuple[str, int, str]:
    return settings.host, settings.port, settings.user


def _await_another(settings: ConnectionSettings, password: str, deadline: float) -> str | None:
    """Return the password in the file once it is another one; None: not until the deadline."""
    while time.monotonic() < deadline:
        with suppress(ConfigError):  # a file that is being replaced may be missing for a moment
            current = settings.secret.resolve()
            if current != password:
                return current
        time.sleep(_POLL_SECONDS)
    return None

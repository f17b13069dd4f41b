"""Log in, also while a password is being rotated.

A rotation has two steps: ALTER USER, and another content of the password file on each machine. In between, new
connections are refused, and a login that worked before would end a stream. So if the server refuses an account that it
has accepted before, wait for another password in the file, or from the command. Nothing is sent meanwhile: each refused
login counts towards FAILED_LOGIN_ATTEMPTS, which locks the account. A command that makes a token prints another one
each time, so the login fails if the second is refused, too.

A login is refused at once if the account was never accepted, as with a wrong password in the configuration, or if its
password is neither in a file nor printed by a command. If the command cannot even be started although the account was
accepted before, that is retried, too, as a server that cannot be reached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from headgate.errors import AccessError, ConfigError, ConnectError
from headgate.mysql._settings import ConnectionSettings, Secret

__all__ = ["LATE_PASSWORD_SECONDS", "expect_login", "log_in"]

log = logging.getLogger("headgate")

LATE_PASSWORD_SECONDS: Final = 30.0
"""Longest wait for another password in the file or from the command, from the first refusal on."""
_POLL_SECONDS: Final = 0.2
_RUN_AGAIN_SECONDS: Final = 5.0
"""Between two runs of a command that still prints the refused password."""
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
    :raises ConnectError: the command that prints it fails; or it cannot be run, but the server accepted the account
        before.
    """
    secret, was_accepted, deadline = settings.secret, _account(settings) in _accepted, 0.0
    password = _current_password(settings)
    while True:
        try:
            driver = connect(password)
        except AccessError as error:
            secret.forget(password)
            is_second_token = bool(deadline) and secret.command is not None
            if error.code != _REFUSED or not secret.may_change or not was_accepted or is_second_token:
                raise
            if not deadline:
                deadline = time.monotonic() + LATE_PASSWORD_SECONDS
                log.warning("%s: waiting up to %.0f s for another password", error.message, LATE_PASSWORD_SECONDS)
            another = _await_another(secret, password, deadline)
            if another is None:
                message = f"{error.message}; it did not change within {LATE_PASSWORD_SECONDS:.0f} s"
                raise AccessError(message, code=error.code) from error
            password = another
        else:
            _accepted.add(_account(settings))
            return driver


def _current_password(settings: ConnectionSettings) -> str:
    try:
        return settings.secret.resolve()
    except ConfigError as error:
        if settings.secret.command is None or _account(settings) not in _accepted:
            raise
        raise ConnectError(error.message, host=settings.host, port=settings.port) from None


def _account(settings: ConnectionSettings) -> tuple[str, int, str]:
    return settings.host, settings.port, settings.user


def _await_another(secret: Secret, password: str, deadline: float) -> str | None:
    """Return the password of the file or the command once it is another one; None: not until the deadline."""
    while time.monotonic() < deadline:
        with suppress(ConfigError, ConnectError):  # a file that is being replaced may be missing for a moment
            current = secret.resolve()
            if current != password:
                return current
        secret.forget(password)
        time.sleep(_POLL_SECONDS if secret.command is None else _RUN_AGAIN_SECONDS)
    return None

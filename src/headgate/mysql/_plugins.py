"""Authentication methods that a server may request and that reveal the password: in clear text over TLS, or not at all.

The server chooses the method, and PyMySQL obeys. An attacker that stands in for the server could so request the
password itself. MySQL's own clients ask their user first (``LIBMYSQL_ENABLE_CLEARTEXT_PLUGIN``; MySQL Reference Manual,
"Client-Side Cleartext Pluggable Authentication").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from headgate.errors import ServerSettingError

__all__ = ["PLUGINS"]


class _ClearText:
    """``mysql_clear_password``: tokens of IAM on Amazon RDS, passwords of LDAP and PAM. Over TLS only."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def authenticate(self, _packet: Any) -> Any:
        """Send the password, and return the server's answer.

        :raises ServerSettingError: the connection has no TLS.
        """
        if not self._driver._secure:
            _refuse(self._driver, "requests the password in clear text, and the connection has no TLS", "TLS")
        self._driver.write_packet(self._driver.password + b"\0")
        answer = self._driver._read_packet()
        answer.check_error()
        return answer


class _Refused:
    """Methods that no supported server has: ``dialog`` sends clear text, ``mysql_old_password`` a hash of 62 bits."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def authenticate(self, _packet: Any) -> NoReturn:
        """:raises ServerSettingError: always."""
        _refuse(self._driver, "requests an authentication method that reveals the password", "authentication plugin")


def _refuse(driver: Any, what: str, setting: str) -> NoReturn:
    raise ServerSettingError(
        f"the server at {driver.host}:{driver.port} {what}: nothing was sent; use tls=verify_identity",
        setting=setting,
        expected="one that protects the password",
        actual="one that reveals it",
    )


PLUGINS: Final[Mapping[str, type[Any]]] = {
    "mysql_clear_password": _ClearText, "dialog": _Refused, "mysql_old_password": _Refused,
}  # fmt: skip
"""Method → class, as PyMySQL's ``auth_plugin_map`` takes them; all others are PyMySQL's."""

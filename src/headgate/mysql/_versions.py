"""Versions of MySQL: the oldest that headgate reads, and statements whose spelling depends on the version.

No other module compares versions. There are two other ways to serve several of them. A server executes what stands
between ``/*!80030`` and ``*/`` from that version on. A setting with two spellings is read under both
(:meth:`ServerFacts.get`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headgate.errors import ServerSettingError

__all__ = [
    "LOG_STATUS",
    "REPLICAS",
    "REPLICA_STATUS",
    "SUPPORTED",
    "Version",
    "check_version",
    "is_supported",
    "parse_version",
]

Version = tuple[int, int, int]
"""Major, minor and patch number."""

_OLDEST: Final[Version] = (8, 0, 0)
SUPPORTED: Final = "MySQL 8.0 or newer"


class Spelling(NamedTuple):
    """A statement that was renamed."""

    since: Version
    """First version with the new name."""
    new: str
    old: str

    def on(self, version: Version) -> str:
        """Return the statement for a server of that version."""
        return self.new if version >= self.since else self.old


REPLICA_STATUS: Final = Spelling((8, 0, 22), "SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
REPLICAS: Final = Spelling((8, 0, 22), "SHOW REPLICAS", "SHOW SLAVE HOSTS")
LOG_STATUS: Final = Spelling((8, 2, 0), "SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")


def parse_version(text: str) -> Version:
    """Return the numbers at the beginning of ``SELECT VERSION()``; (0, 0, 0) if there are none. A missing patch is 0.

    MariaDB's begin with ``5.5.5-`` or with MariaDB's own numbers.
    """
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else (0, 0, 0)


def is_supported(version: str, comment: str = "") -> bool:
    """Return whether headgate can read a server.

    :param version: as the server shows it, with the vendor's additions.
    :param comment: ``@@version_comment``, if it is known.
    """
    return parse_version(version) >= _OLDEST and "mariadb" not in f"{version} {comment}".lower()


def check_version(version: str, server: str) -> None:
    """Check that headgate can read a server.

    :param version: as for :func:`is_supported`.
    :param server: its address, for the error.
    :raises ServerSettingError: it cannot.
    """
    if not is_supported(version):
        raise ServerSettingError(
            f"version is {version} on {server}, but {SUPPORTED} is needed: upgrade the server",
            setting="version",
            expected=SUPPORTED,
            actual=version,
        )

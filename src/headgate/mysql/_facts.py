"""Settings of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headgate.gtid import GtidSet
from headgate.mysql._connection import Connection

__all__ = ["ServerFacts", "gtid_executed", "read_facts", "server_identity"]

_NAMES = (
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_order_commits",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "enforce_gtid_consistency",
    "expire_logs_days",
    "group_replication_group_name",
    "gtid_mode",
    "innodb_flush_log_at_trx_commit",
    "innodb_native_foreign_keys",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
    "lower_case_table_names",
    "max_allowed_packet",
    "replica_parallel_workers",
    "replica_preserve_commit_order",
    "server_id",
    "server_uuid",
    "slave_parallel_workers",
    "slave_preserve_commit_order",
    "sync_binlog",
    "version",
    "version_comment",
)


@dataclass(frozen=True)
class ServerFacts:
    """Global settings that matter here, as the server spells them; ``""`` for a setting that the server lacks."""

    settings: Mapping[str, str]

    def get(self, *names: str) -> str:
        """Return the setting under the first spelling that the server knows (they changed in 8.0.26)."""
        return next((self.settings[name] for name in names if name in self.settings), "")

    def number(self, *names: str) -> int:
        """Return a setting as a number; 0 if it is missing."""
        text = self.get(*names)
        return int(float(text)) if text else 0

    def on(self, *names: str) -> bool:
        """Return whether a setting is ON."""
        return self.get(*names).upper() in ("ON", "1")

    @property
    def version(self) -> str:
        """``9.7.4``, with the vendor's additions."""
        return self.get("version")

    @property
    def server_uuid(self) -> str:
        """Identity of the server in GTIDs and hints."""
        return self.get("server_uuid")

    @property
    def server_id(self) -> int:
        """Number of the server in its replication topology."""
        return self.number("server_id")

    @property
    def gtid_mode(self) -> str:
        """``ON``, ``ON_PERMISSIVE``, ``OFF_PERMISSIVE`` or ``OFF``."""
        return self.get("gtid_mode")

    @property
    def logs_cascades(self) -> bool:
        """Whether rows that foreign keys change are in the log: the server changes them, not InnoDB (MySQL 9.6)."""
        return self.get("innodb_native_foreign_keys").upper() == "OFF"

    @property
    def lower_case_table_names(self) -> int:
        """0: names are case-sensitive; 1: stored in lower case; 2: stored as written, compared in lower case."""
        return self.number("lower_case_table_names")


def read_facts(connection: Connection) -> ServerFacts:
    """Return the server's current settings."""
    names = ", ".join(f"'{name}'" for name in _NAMES)
    rows = connection.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return ServerFacts({str(name): str(value) for name, value in rows})


def server_identity(connection: Connection) -> str:
    """Return the UUID of the connected server, by which GTIDs and hints name it."""
    return str(connection.query("SELECT @@global.server_uuid")[0][0])


def gtid_executed(connection: Connection) -> GtidSet:
    """Return all transactions committed in the server's engines. Each is visible to a SELECT made after this call."""
    return GtidSet.parse(str(connection.query("SELECT @@global.gtid_executed")[0][0]))

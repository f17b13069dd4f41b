"""The settings that exactness rests on, spelled only here, and the rules that check them.

``headgate check`` reports them. Code that plans batches, reads rows or follows the log calls :func:`check_required`,
and not only when a run begins: most settings are dynamic, and after a failover another server answers. Reasons:

- ``version``: MySQL 8.0 or newer. Servers that cannot even be connected to are refused by
  :meth:`Connection.open <headgate.mysql.Connection.open>`.
- ``log_bin``, ``binlog_format=ROW``: each change is in the log, as rows.
- ``gtid_mode=ON``: positions are GTID sets. OFF is also valid for a reader that can use bytes of the log (``kinds``).
  Between the two modes a log may hold transactions of both kinds.
- ``binlog_order_commits=ON``: what has been committed is a prefix of the log.
- ``log_replica_updates=ON`` on a replica: what it applies is in its log. Else the GTIDs count as executed and purged.
- ``replica_preserve_commit_order=ON`` on a replica with workers: it commits in the order of its source, so
  ``gtid_executed`` is always a state that the source has also had.
- No ``binlog_do_db``, no ``binlog_ignore_db``, whatever databases they name. What they leave out of a replica's log is
  an empty transaction there. Its GTID arrives like any other, so no other check notices that something is missing. What
  a client writes is left out with its GTID. Rows are left out by their table's database, but DDL and TRUNCATE by the
  session's default database, also if it is not the table's (MySQL Reference Manual, "Evaluation of Database-Level
  Replication and Binary Logging Options").
- ``lower_case_table_names`` is not 2 (macOS's default): with 2, information_schema has names as they were created, and
  the log has them in lower case (MySQL Reference Manual, "Identifier Case Sensitivity"). headgate tells cases apart.

A replica is a server with a replication channel (``SHOW REPLICA STATUS``). Members of a group have channels that this
statement does not show, but the plugin refuses to start without the two settings of replicas (MySQL Reference Manual,
"Group Replication Requirements"). Row images are checked event by event, because sessions set them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from headgate.errors import ServerSettingError
from headgate.mysql._connection import Connection
from headgate.mysql._facts import ServerFacts, read_facts
from headgate.mysql._versions import REPLICA_STATUS, SUPPORTED, is_supported
from headgate.positions import KINDS, Position

__all__ = [
    "Prerequisite",
    "Status",
    "check_required",
    "check_setting",
    "failed_checks",
    "filter_rows",
    "kinds_of_watermark",
    "replicates",
    "required",
    "required_of_replica",
    "setting_error",
]

Status = Literal["ok", "info", "warn", "fail"]


@dataclass(frozen=True)
class Prerequisite:
    """One row of the report."""

    name: str
    expected: str
    actual: str
    status: Status
    remedy: str = ""
    """Statement or action by which the server fulfils it; empty if ``status`` is ``ok`` or ``info``."""

    def as_dict(self) -> dict[str, str]:
        """Return a JSON object."""
        return asdict(self)


def check_setting(
    facts: ServerFacts, name: str, expected: str, remedy: str = "", status: Status = "fail"
) -> Prerequisite:
    """Check a setting with one valid value. A server without the setting does not have that value.

    :param remedy: by default a statement that sets it.
    """
    actual = facts.get(name) or "''"
    if actual.upper() in (expected.upper(), "1" if expected == "ON" else expected):
        return Prerequisite(name, expected, actual, "ok")
    return Prerequisite(name, expected, actual, status, remedy or f"SET PERSIST {name} = {expected};")


def kinds_of_watermark(watermark: str) -> Collection[type[Position]]:
    """Return the kinds of positions as of which this watermark reads rows exactly: all kinds with ``signal-table``,
    which makes everything visible that was logged; else those of which a SELECT sees what the server has executed.
    """
    return tuple(kind for kind in KINDS if kind.executed_is_visible or watermark == "signal-table")


def required(facts: ServerFacts, *, kinds: Collection[type[Position]], ordered: bool = True) -> Iterator[Prerequisite]:
    """Yield the checks for every server.

    :param kinds: kinds of positions that the reader can use.
    :param ordered: rows of tables are read, too; if False, the log alone is followed, in any order of commits.
    """
    good = is_supported(facts.version, facts.get("version_comment"))
    remedy = "" if good else "upgrade the server"
    yield Prerequisite("version", SUPPORTED, facts.version, "ok" if good else "fail", remedy)
    yield check_setting(facts, "log_bin", "ON", "restart the server with log_bin=binlog in its configuration")
    yield _gtid_mode(facts, {kind.gtid_mode for kind in kinds})
    yield check_setting(facts, "binlog_format", "ROW")
    case = facts.lower_case_table_names
    remedy = "use a server that was initialized with 1 or 0: the setting cannot change later" if case == _MIXED else ""
    yield Prerequisite("lower_case_table_names", "0 or 1", str(case), "fail" if remedy else "ok", remedy)
    if ordered:
        yield check_setting(facts, "binlog_order_commits", "ON")


_MIXED = 2
"""``lower_case_table_names`` of a server that stores names as written, and compares and logs them in lower case."""


def _gtid_mode(facts: ServerFacts, usable: Collection[str]) -> Prerequisite:
    """Check ``gtid_mode``, which is enabled in steps (MySQL Reference Manual, "Enabling GTID Transactions Online")."""
    steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]
    mode = facts.gtid_mode.upper()
    if mode == "OFF" and mode in usable:
        return Prerequisite("gtid_mode", "ON or OFF", facts.gtid_mode, "ok")
    left = steps[steps.index(mode) + 1 :] if mode in steps else steps[1:]
    remedy = " ".join(f"SET PERSIST gtid_mode = {step};" for step in left)
    if not facts.on("enforce_gtid_consistency"):
        remedy = f"SET PERSIST enforce_gtid_consistency = ON; {remedy}"
    return check_setting(facts, "gtid_mode", "ON", remedy)


def required_of_replica(facts: ServerFacts, *, ordered: bool = True) -> Iterator[Prerequisite]:
    """Yield the checks for a server that replicates from another one. The names changed in MySQL 8.0.26.

    :param ordered: as for :func:`required`.
    """
    updates = "log_replica_updates" if facts.get("log_replica_updates") else "log_slave_updates"
    yield check_setting(facts, updates, "ON", f"restart the server with {updates}=ON in its configuration")
    new = bool(facts.get("replica_preserve_commit_order"))
    order = "replica_preserve_commit_order" if new else "slave_preserve_commit_order"
    thread = "REPLICA" if new else "SLAVE"
    if ordered and facts.number("replica_parallel_workers", "slave_parallel_workers") > 0:
        remedy = f"STOP {thread} SQL_THREAD; SET PERSIST {order} = ON; START {thread} SQL_THREAD;"
        yield check_setting(facts, order, "ON", remedy)


def replicates(connection: Connection) -> bool:
    """Return whether the server has a replication channel, running or not.

    :raises AccessError: REPLICATION CLIENT is missing.
    """
    return bool(connection.query(REPLICA_STATUS.on(connection.version)))


def failed_checks(
    facts: ServerFacts, replica: Callable[[], bool], *, kinds: Collection[type[Position]], ordered: bool = True
) -> list[Prerequisite]:
    """Return failed rows of :func:`required` and, for a replica, of :func:`required_of_replica`.

    :param replica: called only if that makes a difference: the statement waits while a channel is being stopped.
    """
    failed = [row for row in required(facts, kinds=kinds, ordered=ordered) if row.status == "fail"]
    of_replica = [row for row in required_of_replica(facts, ordered=ordered) if row.status == "fail"]
    return failed + of_replica if of_replica and replica() else failed


def check_required(connection: Connection, *, kinds: Collection[type[Position]], ordered: bool = True) -> ServerFacts:
    """Return the server's settings, if exactness can rest on them. One query, a second one on some replicas, and one
    per connection for the log's filters.

    :param kinds: as for :func:`required`, like ``ordered``.
    :raises ServerSettingError: the first setting that is wrong.
    :raises AccessError: REPLICATION CLIENT is missing.
    """
    facts = read_facts(connection)
    for row in failed_checks(facts, lambda: replicates(connection), kinds=kinds, ordered=ordered):
        raise setting_error(row, connection)
    for row in filter_rows(*connection.log_filters):
        if row.status == "fail":
            raise setting_error(row, connection, more=_ALREADY_LOST)
    return facts


def filter_rows(do: str, ignore: str) -> Iterator[Prerequisite]:
    """Yield the checks of the log's filters.

    :param do: ``binlog_do_db`` as :attr:`Connection.log_filters <headgate.mysql.Connection.log_filters>` has it;
        ``ignore`` likewise.
    """
    for name, actual in (("binlog_do_db", do), ("binlog_ignore_db", ignore)):
        remedy = f"restart the server without {name}" if actual else ""
        yield Prerequisite(name, "''", actual or "''", "fail" if actual else "ok", remedy)


_ALREADY_LOST = "; its log lacks earlier changes: continue on another server, or read the tables again"
"""Added for a server whose filter a reader of its log meets, perhaps after a failover."""


def setting_error(row: Prerequisite, where: Connection | None = None, more: str = "") -> ServerSettingError:
    """Return the error for a failed row.

    :param where: the server, if it is not obvious.
    :param more: text to append.
    """
    server = f" on {where.settings}" if where is not None else ""
    return ServerSettingError(
        f"{row.name} is {row.actual}{server}, but {row.expected} is needed: {row.remedy}{more}",
        setting=row.name,
        expected=row.expected,
        actual=row.actual,
    )

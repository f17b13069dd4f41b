"""The settings that exactness rests on: spelled here once, with the rule that judges them.

``headgate check`` reports them, and whoever plans batches, reads rows or follows the log asks :func:`check_required`.
Not only when a run begins: most of them are dynamic, and after a failover another server answers. What each is for:

- ``log_bin``, ``binlog_format=ROW``: each change is in the log, as rows.
- ``gtid_mode=ON``: positions are GTID sets. Where positions are places in the log, OFF will do as well; between the two
  a log may hold transactions of both kinds.
- ``binlog_order_commits=ON``: what has been committed is a prefix of the log.
- ``log_replica_updates=ON`` on a replica: what it applies is in its log. Else the GTIDs count as executed and purged.
- ``replica_preserve_commit_order=ON`` on a replica with workers: it commits in the order of its source, so
  ``gtid_executed`` is always a state that the source has had, too.
- ``binlog_do_db``, ``binlog_ignore_db``: what they leave out of the log is there as an empty transaction. Its GTID
  arrives like any other, so nothing else notices that rows are missing.

A replica is a server with a replication channel (``SHOW REPLICA STATUS``). Members of a group have channels that this
statement does not show; the plugin itself refuses to start without the two settings of replicas (MySQL Reference
Manual, "Group Replication Requirements"). Row images are judged event by event, because sessions set them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from headgate.errors import ServerSettingError
from headgate.mysql._connection import Connection
from headgate.mysql._facts import ServerFacts, log_filters, read_facts

__all__ = [
    "Prerequisite",
    "Status",
    "check_filters",
    "check_required",
    "filter_rows",
    "must",
    "replicates",
    "required",
    "required_of_replica",
    "setting_error",
    "unmet",
]

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Prerequisite:
    """One row of the report."""

    name: str
    expected: str
    actual: str
    status: Status
    remedy: str = ""
    """The statement, or else the thing to do, that mends it; empty when all is well."""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def must(facts: ServerFacts, name: str, expected: str, remedy: str = "", status: Status = "fail") -> Prerequisite:
    """A setting with one good value. A server that does not know the setting does not have that value.

    :param remedy: by default a statement that sets it.
    """
    actual = facts.get(name) or "''"
    if actual.upper() in (expected.upper(), "1" if expected == "ON" else expected):
        return Prerequisite(name, expected, actual, "ok")
    return Prerequisite(name, expected, actual, status, remedy or f"SET PERSIST {name} = {expected};")


def required(facts: ServerFacts, *, gtids: bool = True, ordered: bool = True) -> Iterator[Prerequisite]:
    """What every server must have.

    :param gtids: positions are GTID sets; if not, they are places in the log.
    :param ordered: rows of tables are read, too; who only follows the log takes it in any order of commits.
    """
    yield must(facts, "log_bin", "ON", "restart the server with log_bin=binlog in its configuration")
    yield _gtid_mode(facts, gtids)
    yield must(facts, "binlog_format", "ROW")
    if ordered:
        yield must(facts, "binlog_order_commits", "ON")


def _gtid_mode(facts: ServerFacts, gtids: bool) -> Prerequisite:
    """GTIDs are switched on step by step (MySQL Reference Manual, "Enabling GTID Transactions Online")."""
    steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]
    mode = facts.gtid_mode.upper()
    if not gtids and mode == "OFF":
        return Prerequisite("gtid_mode", "ON or OFF", facts.gtid_mode, "ok")
    left = steps[steps.index(mode) + 1 :] if mode in steps else steps[1:]
    remedy = " ".join(f"SET PERSIST gtid_mode = {step};" for step in left)
    if not facts.on("enforce_gtid_consistency"):
        remedy = f"SET PERSIST enforce_gtid_consistency = ON; {remedy}"
    return must(facts, "gtid_mode", "ON", remedy)


def required_of_replica(facts: ServerFacts, *, ordered: bool = True) -> Iterator[Prerequisite]:
    """What a server must have that replicates from another one. The names changed in MySQL 8.0.26.

    :param ordered: as for :func:`required`.
    """
    updates = "log_replica_updates" if facts.get("log_replica_updates") else "log_slave_updates"
    yield must(facts, updates, "ON", f"restart the server with {updates}=ON in its configuration")
    new = bool(facts.get("replica_preserve_commit_order"))
    order = "replica_preserve_commit_order" if new else "slave_preserve_commit_order"
    thread = "REPLICA" if new else "SLAVE"
    if ordered and facts.number("replica_parallel_workers", "slave_parallel_workers") > 0:
        remedy = f"STOP {thread} SQL_THREAD; SET PERSIST {order} = ON; START {thread} SQL_THREAD;"
        yield must(facts, order, "ON", remedy)


def replicates(connection: Connection) -> bool:
    """Whether the server has a replication channel, running or not.

    :raises AccessError: REPLICATION CLIENT is missing.
    """
    return bool(connection.query("SHOW REPLICA STATUS" if connection.version >= (8, 0, 22) else "SHOW SLAVE STATUS"))


def unmet(
    facts: ServerFacts, replica: Callable[[], bool], *, gtids: bool = True, ordered: bool = True
) -> list[Prerequisite]:
    """What a server lacks of :func:`required` and, if it is a replica, of :func:`required_of_replica`.

    :param replica: asked only if that makes a difference: the statement waits while a channel is being stopped.
    """
    bad = [row for row in required(facts, gtids=gtids, ordered=ordered) if row.status == "fail"]
    of_replica = [row for row in required_of_replica(facts, ordered=ordered) if row.status == "fail"]
    return bad + of_replica if of_replica and replica() else bad


def check_required(connection: Connection, *, gtids: bool = True, ordered: bool = True) -> ServerFacts:
    """The server's settings, if it has all that exactness rests on. One query, and a second one on some replicas.

    :param gtids: as for :func:`required`, like ``ordered``.
    :raises ServerSettingError: the first one that it lacks.
    """
    facts = read_facts(connection)
    for row in unmet(facts, lambda: replicates(connection), gtids=gtids, ordered=ordered):
        raise setting_error(row, connection)
    return facts


def filter_rows(do: str, ignore: str, databases: Iterable[str]) -> Iterator[Prerequisite]:
    """The filters of the log.

    :param do: ``binlog_do_db`` as the log's status shows it, names with commas between them; ``ignore`` likewise.
    :param databases: those whose tables are followed.
    """
    given, logged, left_out = list(databases), _names(do), _names(ignore)
    yield _filter("binlog_do_db", do, [name for name in given if logged and name not in logged])
    yield _filter("binlog_ignore_db", ignore, [name for name in given if name in left_out])


def _names(text: str) -> set[str]:
    return {name for name in text.split(",") if name}


def _filter(name: str, actual: str, lost: list[str]) -> Prerequisite:
    status: Status = "fail" if lost else "warn" if actual else "ok"
    remedy = f"restart the server without {name}" if status != "ok" else ""
    if lost:
        remedy += f", or leave the tables of {', '.join(lost)} out: their changes are not logged"
    return Prerequisite(name, "''", actual or "''", status, remedy)


def check_filters(connection: Connection, databases: Callable[[], Iterable[str]]) -> None:
    """Look for filters that keep changes of followed tables out of the log. Filters are set when a server starts, so
    once a connection is enough.

    :param databases: those whose tables are followed; asked only if there is a filter.
    :raises ServerSettingError: there is one.
    :raises AccessError: REPLICATION CLIENT is missing.
    """
    do, ignore = log_filters(connection)
    for row in filter_rows(do, ignore, databases() if do or ignore else ()):
        if row.status == "fail":
            raise setting_error(row, connection, more=_ALREADY_LOST)


_ALREADY_LOST = "; what it did before that is missing in its log: go on at another server, or read those tables again"
"""Of a server whose filter was met by who follows its log, perhaps after a failover."""


def setting_error(row: Prerequisite, where: Connection | None = None, more: str = "") -> ServerSettingError:
    """The error for a failed row.

    :param where: the server that is meant, if it is not obvious.
    :param more: to be said at the end.
    """
    place = f" on {where.settings}" if where is not None else ""
    return ServerSettingError(
        f"{row.name} is {row.actual}{place}, but {row.expected} is needed: {row.remedy}{more}",
        setting=row.name,
        expected=row.expected,
        actual=row.actual,
    )

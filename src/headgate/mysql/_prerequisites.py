"""What a server must be set up like, asked all at once, with the statement that mends each thing.

Privileges are tried, not computed from SHOW GRANTS: roles, wildcards, partial revokes and proxies then count for what
they give. A try that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

from headgate._names import quote_name
from headgate.errors import AccessError, ServerError
from headgate.mysql._connection import Connection
from headgate.mysql._facts import ServerFacts, read_facts

__all__ = ["Prerequisite", "Status", "prerequisites", "quote_account", "try_select", "watermarks"]

Status = Literal["ok", "warn", "fail"]

_OLDEST: Final = (8, 0, 0)
_DAY_SECONDS: Final = 86_400
_PACKET_BYTES: Final = 64 << 20
"""MySQL's own default; functions whose result would be longer give NULL."""


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


def prerequisites(
    connection: Connection, *, databases: Iterable[str] = (), server_ids: Iterable[range] = ()
) -> list[Prerequisite]:
    """Everything that does not depend on single tables.

    :param databases: those with tables to be followed; filters of the log are held against them.
    :param server_ids: the ids that dumps may use.
    """
    facts = read_facts(connection)
    rows = [_version(facts), *_log(facts), *_gtids(facts)]
    rows += [*_privileges(connection), *_filters(connection, list(databases))]
    rows += [*_replica(connection, facts), _retention(facts), _packet(facts)]
    rows.append(_server_ids(connection, facts, list(server_ids)))
    return rows


def watermarks(
    connection: Connection, rows: Sequence[Prerequisite], databases: Iterable[str]
) -> Iterator[Prerequisite]:
    """Which watermarks the server and the grants allow. None of these rows warns: they say what one could choose.

    :param rows: those of :func:`prerequisites`.
    :param databases: those with tables to be followed.
    """
    bad = [row.name for row in rows if row.status == "fail" and row.name in _GTID_NEEDS]
    actual = f"not usable: see {', '.join(bad)}" if bad else "usable"
    yield Prerequisite("watermark gtid", "gtid_executed tells what a SELECT sees", actual, "ok")
    locked = [f"GRANT LOCK TABLES ON {quote_name(db)}.* TO {_account(connection)};"
              for db in databases if not _may_lock(connection, db)]  # fmt: skip
    yield _signal_table(rows)
    actual = f"not granted: {' '.join(locked)}" if locked else "usable"
    yield Prerequisite("watermark lock", "LOCK TABLES, for keyless tables under writes", actual, "ok")


def _signal_table(rows: Sequence[Prerequisite]) -> Prerequisite:
    """Whether one may write somewhere is known when it is said where."""
    needs = _GTID_NEEDS - {"gtid_mode", "enforce_gtid_consistency"}
    mode = next((row.actual for row in rows if row.name == "gtid_mode"), "ON")
    bad = [row.name for row in rows if row.status == "fail" and row.name in needs]
    bad += ["gtid_mode (neither ON nor OFF)"] if mode.upper() not in ("ON", "OFF") else []
    actual = f"not usable: see {', '.join(bad)}" if bad else "usable, with INSERT and UPDATE on a signal table"
    return Prerequisite("watermark signal-table", "commits in log order; GTIDs or none", actual, "ok")


_GTID_NEEDS: Final = frozenset(
    {
        "log_bin", "gtid_mode", "enforce_gtid_consistency", "binlog_order_commits", "replica_preserve_commit_order",
        "slave_preserve_commit_order", "log_replica_updates", "log_slave_updates", "REPLICATION CLIENT",
        "REPLICATION SLAVE",
    }
)  # fmt: skip
"""Rows of the report without which ``gtid_executed`` does not tell what a SELECT sees, or the log cannot be read."""
_NO_DATABASE: Final = 1044
"""ER_DBACCESS_DENIED_ERROR: what is refused is a privilege on the database."""


def _may_lock(connection: Connection, db: str) -> bool:
    """Tried on a table that is not there: privileges are looked at first, so nothing is locked."""
    try:
        connection.query(f"LOCK TABLES {quote_name(db)}.`headgate: no such table` READ")
    except AccessError as error:
        return bool(error.code != _NO_DATABASE)
    except ServerError:
        return True
    connection.query("UNLOCK TABLES")
    return True


def _must(facts: ServerFacts, name: str, expected: str, remedy: str = "", status: Status = "fail") -> Prerequisite:
    actual = facts.get(name) or "''"
    if actual.upper() in (expected.upper(), "1" if expected == "ON" else expected):
        return Prerequisite(name, expected, actual, "ok")
    return Prerequisite(name, expected, actual, status, remedy or f"SET PERSIST {name} = {expected};")


def _version(facts: ServerFacts) -> Prerequisite:
    numbers = tuple(int(part) for part in facts.version.split("-")[0].split(".")[:3] if part.isdigit())
    good = numbers >= _OLDEST and "mariadb" not in (facts.version + facts.get("version_comment")).lower()
    return Prerequisite(
        "version", "MySQL 8.0 or newer", facts.version, "ok" if good else "fail", "" if good else "upgrade the server"
    )


def _log(facts: ServerFacts) -> Iterator[Prerequisite]:
    yield _must(facts, "log_bin", "ON", "restart the server with log_bin=binlog in its configuration")
    if facts.server_id == 0:
        yield Prerequisite("server_id", "not 0", "0", "fail", "SET PERSIST server_id = 1;")
    yield _must(facts, "binlog_format", "ROW")
    yield _must(facts, "binlog_row_image", "FULL", status="warn")
    yield _row_metadata(facts)
    yield _value_options(facts)
    yield _must(facts, "binlog_order_commits", "ON")


def _row_metadata(facts: ServerFacts) -> Prerequisite:
    """A log without column names can be followed, with the definitions of now, as long as they are the log's."""
    row = _must(facts, "binlog_row_metadata", "FULL", status="warn")
    if row.status == "ok":
        return row
    risk = "with MINIMAL, a table that is altered before its log was read stops, unless columns are only added"
    return replace(row, expected=f"FULL ({risk})")


def _value_options(facts: ServerFacts) -> Prerequisite:
    """JSON differences are applied to the document in the before-image, which therefore must be there."""
    row = _must(facts, "binlog_row_value_options", "''")
    whole = facts.get("binlog_row_image").upper() in ("", "FULL")
    return replace(row, status="ok", remedy="") if whole else row


def _gtids(facts: ServerFacts) -> Iterator[Prerequisite]:
    """GTIDs are switched on step by step (MySQL Reference Manual, "Enabling GTID Transactions Online")."""
    steps = ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]
    mode = facts.gtid_mode.upper()
    left = steps[steps.index(mode) + 1 :] if mode in steps else steps[1:]
    remedy = " ".join(f"SET PERSIST gtid_mode = {step};" for step in left)
    if not facts.on("enforce_gtid_consistency"):
        remedy = f"SET PERSIST enforce_gtid_consistency = ON; {remedy}"
    yield _must(facts, "gtid_mode", "ON", remedy)
    yield _must(facts, "enforce_gtid_consistency", "ON")


def _privileges(connection: Connection) -> Iterator[Prerequisite]:
    account = _account(connection)
    for privilege, statement in (
        ("REPLICATION CLIENT", _log_statement(connection)),
        ("REPLICATION SLAVE", _replicas_statement(connection)),
    ):
        if _allowed(connection, statement):
            yield Prerequisite(privilege, "granted", "granted", "ok")
        else:
            yield Prerequisite(privilege, "granted", "missing", "fail", f"GRANT {privilege} ON *.* TO {account};")


def _account(connection: Connection) -> str:
    return quote_account(str(connection.query("SELECT CURRENT_USER()")[0][0]))


def quote_account(account: str) -> str:
    """``user@host`` as MySQL wants it in statements."""
    user, _, host = account.rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


def _log_statement(connection: Connection) -> str:
    return "SHOW BINARY LOG STATUS" if connection.version >= (8, 2) else "SHOW MASTER STATUS"


def _replicas_statement(connection: Connection) -> str:
    return "SHOW REPLICAS" if connection.version >= (8, 0, 22) else "SHOW SLAVE HOSTS"


def _allowed(connection: Connection, statement: str) -> bool:
    try:
        connection.query(statement)
    except AccessError:
        return False
    return True


def _filters(connection: Connection, databases: Sequence[str]) -> Iterator[Prerequisite]:
    """``binlog_do_db`` and ``binlog_ignore_db`` are no variables; they stand in the log's status."""
    try:
        rows = connection.query(_log_statement(connection))
    except AccessError:
        yield Prerequisite(
            "binlog_do_db", "''", "not to be seen without REPLICATION CLIENT", "fail", "grant that privilege"
        )
        return
    do, ignore = (str(rows[0][2] or ""), str(rows[0][3] or "")) if rows else ("", "")
    logged = _names(do)
    yield _filter("binlog_do_db", do, [name for name in databases if logged and name not in logged])
    yield _filter("binlog_ignore_db", ignore, [name for name in databases if name in _names(ignore)])


def _names(text: str) -> set[str]:
    return {name for name in text.split(",") if name}


def _filter(name: str, actual: str, lost: Sequence[str]) -> Prerequisite:
    status: Status = "fail" if lost else "warn" if actual else "ok"
    remedy = f"restart the server without {name}" if status != "ok" else ""
    if lost:
        remedy += f": changes in {', '.join(lost)} are not logged"
    return Prerequisite(name, "''", actual or "''", status, remedy)


def _replica(connection: Connection, facts: ServerFacts) -> Iterator[Prerequisite]:
    """What only matters on a server that replicates from another one."""
    try:
        channels = connection.query("SHOW REPLICA STATUS" if connection.version >= (8, 0, 22) else "SHOW SLAVE STATUS")
    except AccessError:
        return  # the missing privilege is a row already
    if not channels:
        return
    updates = "log_replica_updates" if facts.get("log_replica_updates") else "log_slave_updates"
    yield _must(facts, updates, "ON", f"restart the server with {updates}=ON in its configuration")
    new = bool(facts.get("replica_preserve_commit_order"))
    order = "replica_preserve_commit_order" if new else "slave_preserve_commit_order"
    thread = "REPLICA" if new else "SLAVE"
    if facts.number("replica_parallel_workers", "slave_parallel_workers") > 0:
        remedy = f"STOP {thread} SQL_THREAD; SET PERSIST {order} = ON; START {thread} SQL_THREAD;"
        yield _must(facts, order, "ON", remedy)


def _retention(facts: ServerFacts) -> Prerequisite:
    name = "binlog_expire_logs_seconds"
    seconds = facts.number(name) or _DAY_SECONDS * facts.number("expire_logs_days")
    actual = "never purged" if seconds == 0 else f"{seconds} ({_span(seconds)})"
    if 0 < seconds < _DAY_SECONDS:
        return Prerequisite(name, "a day or more", actual, "warn", f"SET PERSIST {name} = {7 * _DAY_SECONDS};")
    return Prerequisite(name, "a day or more", actual, "ok")


def _span(seconds: int) -> str:
    for unit, size in (("days", _DAY_SECONDS), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} seconds"


def _packet(facts: ServerFacts) -> Prerequisite:
    size = facts.number("max_allowed_packet")
    good = size >= _PACKET_BYTES
    remedy = "" if good else f"SET PERSIST max_allowed_packet = {_PACKET_BYTES};"
    return Prerequisite("max_allowed_packet", f"{_PACKET_BYTES} or more", str(size), "ok" if good else "warn", remedy)


def _server_ids(connection: Connection, facts: ServerFacts, wanted: Sequence[range]) -> Prerequisite:
    """Two dumps with one id throw each other out. Bounded dumps have none, so ids matter only where they are given."""
    used = {facts.server_id}
    try:
        used |= {int(row[0]) for row in connection.query(_replicas_statement(connection))}
    except AccessError:
        return Prerequisite(
            "server ids in use", "known", "not to be seen without REPLICATION SLAVE", "warn", "grant it"
        )
    clash = sorted(number for number in used if any(number in ids for ids in wanted))
    texts = [f"{number} (this server)" if number == facts.server_id else str(number) for number in sorted(used)]
    expected = "none of ours" if wanted else "any"
    if clash:
        remedy = f"choose other server_ids: {', '.join(map(str, clash))} in use"
        return Prerequisite("server ids in use", expected, ", ".join(texts), "fail", remedy)
    return Prerequisite("server ids in use", expected, ", ".join(texts), "ok")


def try_select(connection: Connection, db: str, table: str, columns: Sequence[str]) -> Prerequisite | None:
    """None when all columns of the table can be read, else what is wrong with it."""
    name = f"{db}.{table}"
    chosen = ", ".join(map(quote_name, columns))
    try:
        connection.query(f"SELECT {chosen} FROM {quote_name(db)}.{quote_name(table)} LIMIT 0")
    except AccessError:
        grant = f"GRANT SELECT ON {quote_name(db)}.{quote_name(table)} TO {_account(connection)};"
        return Prerequisite(f"SELECT on {name}", "granted", "missing", "fail", grant)
    except ServerError as error:
        return Prerequisite(f"SELECT on {name}", "works", error.message, "fail", "mend the table, or leave it out")
    return None

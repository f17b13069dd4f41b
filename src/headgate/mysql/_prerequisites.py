"""Check everything that a server must be set up with, and name the statement that mends each fault.

Privileges are tried, not computed from SHOW GRANTS. So roles, wildcards, partial revokes and proxies count for what
they grant. A refused try changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from headgate.errors import AccessError, DefiniteServerError, ServerError
from headgate.mysql._connection import Connection
from headgate.mysql._facts import ServerFacts, read_facts
from headgate.mysql._required import (
    Prerequisite,
    check_setting,
    filter_rows,
    kinds_of_watermark,
    replicates,
    required,
    required_of_replica,
)
from headgate.mysql._versions import REPLICAS
from headgate.names import quote_name
from headgate.positions import Position

__all__ = ["check_engine", "missing_select", "prerequisites", "quote_account", "try_select", "watermarks"]

_HOUR_SECONDS: Final = 3_600
_DAY_SECONDS: Final = 86_400
_PACKET_BYTES: Final = 64 << 20
"""MySQL's own default. Functions whose result would be longer return NULL."""


def prerequisites(connection: Connection, *, kinds: Collection[type[Position]]) -> list[Prerequisite]:
    """Return all checks that do not depend on single tables.

    :param kinds: kinds of positions that the reader can use (:func:`kinds_of_watermark`).
    """
    facts = read_facts(connection)
    rows = [*required(facts, kinds=kinds), *_log(facts)]
    if all(kind.gtid_mode == "ON" for kind in kinds):
        rows.append(check_setting(facts, "enforce_gtid_consistency", "ON"))
    rows += [*_privileges(connection), *_filters(connection)]
    return [*rows, *_replica(connection, facts), _retention(connection, facts), _packet(facts)]


def watermarks(
    connection: Connection, rows: Sequence[Prerequisite], databases: Iterable[str]
) -> Iterator[Prerequisite]:
    """Yield which watermarks the server and the grants allow. No row warns: each describes a choice. If it is not
    available, the row is "info".

    :param rows: those of :func:`prerequisites`.
    :param databases: databases with tables to follow.
    """
    facts = read_facts(connection)
    common = {_CLIENT, _SLAVE, *(row.name for row in required_of_replica(facts))}
    failed = [row.name for row in rows if row.status == "fail"]
    of_gtid = required(facts, kinds=kinds_of_watermark("gtid"))
    gtid = {*common, "enforce_gtid_consistency", *(row.name for row in of_gtid)}
    without = _not_usable([name for name in failed if name in gtid])
    yield _watermark("gtid", "gtid_executed shows what a SELECT sees", without)
    not_met = [row.name for row in required(facts, kinds=kinds_of_watermark("signal-table")) if row.status == "fail"]
    actual = _not_usable(not_met + [name for name in failed if name in common])
    usable = "usable, with INSERT and UPDATE on a signal table"
    yield _watermark("signal-table", "commits in log order; GTIDs or none", actual, usable)
    grants = [
        f"GRANT LOCK TABLES ON {quote_name(db)}.* TO {_account(connection)}"
        for db in databases
        if not _may_lock(connection, db)
    ]
    actual = "; ".join(filter(None, [f"needs {', '.join(grants)}" if grants else "", without]))
    yield _watermark("lock", "gtid, and LOCK TABLES: for keyless tables under writes", actual)


def _watermark(name: str, expected: str, obstacle: str, usable: str = "usable") -> Prerequisite:
    return Prerequisite(f"watermark {name}", expected, obstacle or usable, "info" if obstacle else "ok")


def check_engine(table: str, engine: str) -> Prerequisite | None:
    """Return a failed row if the rows of ``db.table`` cannot be read exactly, because of its storage engine."""
    if engine.lower() == "innodb":
        return None
    quoted = ".".join(quote_name(part) for part in table.split(".", 1))
    remedy = f"ALTER TABLE {quoted} ENGINE = InnoDB;"
    return Prerequisite(f"engine of {table}", "InnoDB", engine or "none", "fail", remedy)


def _not_usable(names: Sequence[str]) -> str:
    return f"not usable: see {', '.join(names)}" if names else ""


_NO_DATABASE: Final = 1044
"""ER_DBACCESS_DENIED_ERROR: a privilege on the database is missing."""


def _may_lock(connection: Connection, db: str) -> bool:
    """Try LOCK TABLES on a missing table: the server checks privileges first, so it locks nothing."""
    try:
        connection.query(f"LOCK TABLES {quote_name(db)}.`headgate: no such table` READ")
    except AccessError as error:
        return bool(error.code != _NO_DATABASE)
    except ServerError:
        return True
    connection.query("UNLOCK TABLES")
    return True


def _log(facts: ServerFacts) -> Iterator[Prerequisite]:
    """Yield the checks of the log that :func:`required` does not contain."""
    if facts.server_id == 0:
        yield Prerequisite("server_id", "not 0", "0", "fail", "SET PERSIST server_id = 1;")
    yield from _durability(facts)
    yield _row_image(facts)
    yield _row_metadata(facts)
    yield _value_options(facts)


def _durability(facts: ServerFacts) -> Iterator[Prerequisite]:
    """Warn about a server that may lose its newest transactions in a crash: a stream that has read them then ends."""
    for name in ("sync_binlog", "innodb_flush_log_at_trx_commit"):
        row = check_setting(facts, name, "1", status="warn")
        risk = "else a crash may lose transactions that the stream has read, and all tables must be read again"
        yield row if row.status == "ok" else replace(row, expected=f"1 ({risk})")


def _row_image(facts: ServerFacts) -> Prerequisite:
    """Warn about partial row images, which a pipeline with ``window = "keep"`` follows."""
    row = check_setting(facts, "binlog_row_image", "FULL", status="warn")
    return row if row.status == "ok" else replace(row, expected='FULL (a run refuses others without window = "keep")')


def _row_metadata(facts: ServerFacts) -> Prerequisite:
    """Warn about a log without column names: it can be followed while the current definitions are the log's."""
    row = check_setting(facts, "binlog_row_metadata", "FULL", status="warn")
    if row.status == "ok":
        return row
    risk = "with MINIMAL, a table that is altered before its log was read stops, unless columns are only added"
    return replace(row, expected=f"FULL ({risk})")


def _value_options(facts: ServerFacts) -> Prerequisite:
    """Require whole before-images for JSON differences, which are applied to the document there."""
    row = check_setting(facts, "binlog_row_value_options", "''")
    whole = facts.get("binlog_row_image").upper() in ("", "FULL")
    return replace(row, status="ok", remedy="") if whole else row


_CLIENT: Final = "REPLICATION CLIENT"
_SLAVE: Final = "REPLICATION SLAVE"


def _privileges(connection: Connection) -> Iterator[Prerequisite]:
    account = _account(connection)
    tries: list[tuple[str, Callable[[], object]]] = [
        (_CLIENT, lambda: connection.log_filters),
        (_SLAVE, lambda: connection.query(REPLICAS.on(connection.version))),
    ]
    for privilege, use in tries:
        if _allowed(use):
            yield Prerequisite(privilege, "granted", "granted", "ok")
        else:
            yield Prerequisite(privilege, "granted", "missing", "fail", f"GRANT {privilege} ON *.* TO {account};")


def _account(connection: Connection) -> str:
    return quote_account(str(connection.query("SELECT CURRENT_USER()")[0][0]))


def quote_account(account: str) -> str:
    """Return ``user@host`` quoted for MySQL statements."""
    user, _, host = account.rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


def _allowed(use: Callable[[], object]) -> bool:
    try:
        use()
    except AccessError:
        return False
    return True


def _filters(connection: Connection) -> list[Prerequisite]:
    try:
        return list(filter_rows(*connection.log_filters))
    except AccessError:
        actual = f"not visible without {_CLIENT}"
        return [Prerequisite("binlog_do_db", "''", actual, "fail", "grant that privilege")]


def _replica(connection: Connection, facts: ServerFacts) -> Iterator[Prerequisite]:
    """Yield requirements for a server that replicates from another one."""
    with suppress(AccessError):  # the missing privilege is a row already
        if replicates(connection):
            yield from required_of_replica(facts)


def _retention(connection: Connection, facts: ServerFacts) -> Prerequisite:
    """Check how long the log is kept. On Amazon RDS and Aurora, MySQL's own setting does not decide that."""
    hours = _rds_retention_hours(connection)
    if hours is not None:
        remedy = f"CALL mysql.rds_set_configuration('binlog retention hours', {7 * _DAY_SECONDS // _HOUR_SECONDS});"
        actual = f"{hours}" if hours else "NULL (purged as soon as possible)"
        return _day("binlog retention hours", hours * _HOUR_SECONDS, actual, remedy)
    name = "binlog_expire_logs_seconds"
    seconds = facts.number(name) or _DAY_SECONDS * facts.number("expire_logs_days")
    if not seconds or facts.get("binlog_expire_logs_auto_purge").upper() == "OFF":  # since 8.0.29
        return Prerequisite(name, _DAY, "never purged", "ok")
    return _day(name, seconds, f"{seconds} ({_span(seconds)})", f"SET PERSIST {name} = {7 * _DAY_SECONDS};")


_DAY: Final = "a day or more"


def _day(name: str, seconds: int, actual: str, remedy: str) -> Prerequisite:
    short = seconds < _DAY_SECONDS
    return Prerequisite(name, _DAY, actual, "warn" if short else "ok", remedy if short else "")


def _rds_retention_hours(connection: Connection) -> int | None:
    """Return ``binlog retention hours``, 0 for NULL; None on other servers, or if the account may not read the table
    (Amazon RDS User Guide, "Setting and showing binary log configuration").
    """
    try:
        rows = connection.query("SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'")
    except (AccessError, DefiniteServerError):
        return None
    if not rows:
        return None
    text = str(rows[0][0] or "")
    return int(text) if text.isdecimal() else 0


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


def missing_select(connection: Connection, databases: Iterable[str] | None) -> str:
    """Return the statements that grant SELECT to the account on those of the databases on which it lacks it.

    :param databases: None: any; the statement then has … in place of one.
    """
    account = _account(connection)
    tries = {db: db for db in databases} if databases is not None else {"…": "headgate: no such database"}
    return " ".join(
        f"GRANT SELECT ON {quote_name(db)}.* TO {account};"
        for db, tried in tries.items()
        if not _may_select(connection, tried)
    )


def _may_select(connection: Connection, db: str) -> bool:
    """Try SELECT on a missing table: the server checks privileges first."""
    try:
        connection.query(f"SELECT 1 FROM {quote_name(db)}.`headgate: no such table`")
    except AccessError:
        return False
    except ServerError:
        pass
    return True


def try_select(connection: Connection, db: str, table: str, columns: Sequence[str]) -> Prerequisite | None:
    """Return None if all columns of the table can be read, else a row with the fault."""
    name = f"{db}.{table}"
    chosen = ", ".join(map(quote_name, columns))
    try:
        connection.query(f"SELECT {chosen} FROM {quote_name(db)}.{quote_name(table)} LIMIT 0")
    except AccessError:
        grant = f"GRANT SELECT ON {quote_name(db)}.{quote_name(table)} TO {_account(connection)};"
        return Prerequisite(f"SELECT on {name}", "granted", "missing", "fail", grant)
    except ServerError as error:
        return Prerequisite(f"SELECT on {name}", "works", error.message, "fail", "repair the table, or exclude it")
    return None

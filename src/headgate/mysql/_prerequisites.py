"""What a server must be set up like, asked all at once, with the statement that mends each thing.

Privileges are tried, not computed from SHOW GRANTS: roles, wildcards, partial revokes and proxies then count for what
they give. A try that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from headgate.errors import AccessError, DefiniteServerError, ServerError
from headgate.mysql._connection import Connection
from headgate.mysql._facts import ServerFacts, log_filters, read_facts
from headgate.mysql._required import Prerequisite, filter_rows, must, replicates, required, required_of_replica
from headgate.names import quote_name

__all__ = ["prerequisites", "quote_account", "try_select", "watermarks"]

_OLDEST: Final = (8, 0, 0)
_HOUR_SECONDS: Final = 3_600
_DAY_SECONDS: Final = 86_400
_PACKET_BYTES: Final = 64 << 20
"""MySQL's own default; functions whose result would be longer give NULL."""


def prerequisites(connection: Connection, *, databases: Iterable[str] = (), gtids: bool = True) -> list[Prerequisite]:
    """Everything that does not depend on single tables.

    :param databases: those with tables to be followed; filters of the log are held against them.
    :param gtids: positions are to be GTID sets, as with every watermark but ``signal-table``.
    """
    facts = read_facts(connection)
    rows = [_version(facts), *required(facts, gtids=gtids), *_log(facts)]
    if gtids:
        rows.append(must(facts, "enforce_gtid_consistency", "ON"))
    rows += [*_privileges(connection), *_filters(connection, databases)]
    return [*rows, *_replica(connection, facts), _retention(connection, facts), _packet(facts)]


def watermarks(
    connection: Connection, rows: Sequence[Prerequisite], databases: Iterable[str]
) -> Iterator[Prerequisite]:
    """Which watermarks the server and the grants allow. None of these rows warns: they say what one could choose.

    :param rows: those of :func:`prerequisites`.
    :param databases: those with tables to be followed.
    """
    facts = read_facts(connection)
    common = {_CLIENT, _SLAVE, *(row.name for row in required_of_replica(facts))}
    failed = [row.name for row in rows if row.status == "fail"]
    gtid = {*common, "enforce_gtid_consistency", *(row.name for row in required(facts))}
    without = _not_usable([name for name in failed if name in gtid])
    yield Prerequisite("watermark gtid", "gtid_executed tells what a SELECT sees", without or "usable", "ok")
    bad = [row.name for row in required(facts, gtids=False) if row.status == "fail"]
    actual = _not_usable(bad + [name for name in failed if name in common])
    actual = actual or "usable, with INSERT and UPDATE on a signal table"
    yield Prerequisite("watermark signal-table", "commits in log order; GTIDs or none", actual, "ok")
    grants = [
        f"GRANT LOCK TABLES ON {quote_name(db)}.* TO {_account(connection)};"
        for db in databases
        if not _may_lock(connection, db)
    ]
    actual = "; ".join(filter(None, [f"not granted: {' '.join(grants)}" if grants else "", without])) or "usable"
    yield Prerequisite("watermark lock", "gtid, and LOCK TABLES: for keyless tables under writes", actual, "ok")


def _not_usable(names: Sequence[str]) -> str:
    return f"not usable: see {', '.join(names)}" if names else ""


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


def _version(facts: ServerFacts) -> Prerequisite:
    numbers = tuple(int(part) for part in facts.version.split("-")[0].split(".")[:3] if part.isdigit())
    good = numbers >= _OLDEST and "mariadb" not in (facts.version + facts.get("version_comment")).lower()
    return Prerequisite(
        "version", "MySQL 8.0 or newer", facts.version, "ok" if good else "fail", "" if good else "upgrade the server"
    )


def _log(facts: ServerFacts) -> Iterator[Prerequisite]:
    """What is required of the log beside :func:`required`, or good to have."""
    if facts.server_id == 0:
        yield Prerequisite("server_id", "not 0", "0", "fail", "SET PERSIST server_id = 1;")
    yield must(facts, "binlog_row_image", "FULL", status="warn")
    yield _row_metadata(facts)
    yield _value_options(facts)


def _row_metadata(facts: ServerFacts) -> Prerequisite:
    """A log without column names can be followed, with the definitions of now, as long as they are the log's."""
    row = must(facts, "binlog_row_metadata", "FULL", status="warn")
    if row.status == "ok":
        return row
    risk = "with MINIMAL, a table that is altered before its log was read stops, unless columns are only added"
    return replace(row, expected=f"FULL ({risk})")


def _value_options(facts: ServerFacts) -> Prerequisite:
    """JSON differences are applied to the document in the before-image, which therefore must be there."""
    row = must(facts, "binlog_row_value_options", "''")
    whole = facts.get("binlog_row_image").upper() in ("", "FULL")
    return replace(row, status="ok", remedy="") if whole else row


_CLIENT: Final = "REPLICATION CLIENT"
_SLAVE: Final = "REPLICATION SLAVE"


def _privileges(connection: Connection) -> Iterator[Prerequisite]:
    account = _account(connection)
    replicas = "SHOW REPLICAS" if connection.version >= (8, 0, 22) else "SHOW SLAVE HOSTS"
    tries: list[tuple[str, Callable[[], object]]] = [
        (_CLIENT, lambda: log_filters(connection)),
        (_SLAVE, lambda: connection.query(replicas)),
    ]
    for privilege, use in tries:
        if _allowed(use):
            yield Prerequisite(privilege, "granted", "granted", "ok")
        else:
            yield Prerequisite(privilege, "granted", "missing", "fail", f"GRANT {privilege} ON *.* TO {account};")


def _account(connection: Connection) -> str:
    return quote_account(str(connection.query("SELECT CURRENT_USER()")[0][0]))


def quote_account(account: str) -> str:
    """``user@host`` as MySQL wants it in statements."""
    user, _, host = account.rpartition("@")
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


def _allowed(use: Callable[[], object]) -> bool:
    try:
        use()
    except AccessError:
        return False
    return True


def _filters(connection: Connection, databases: Iterable[str]) -> list[Prerequisite]:
    try:
        return list(filter_rows(*log_filters(connection), databases))
    except AccessError:
        actual = f"not to be seen without {_CLIENT}"
        return [Prerequisite("binlog_do_db", "''", actual, "fail", "grant that privilege")]


def _replica(connection: Connection, facts: ServerFacts) -> Iterator[Prerequisite]:
    """What only matters on a server that replicates from another one."""
    with suppress(AccessError):  # the missing privilege is a row already
        if replicates(connection):
            yield from required_of_replica(facts)


def _retention(connection: Connection, facts: ServerFacts) -> Prerequisite:
    """How long the log is kept. On Amazon RDS and Aurora that is not what MySQL's own setting says."""
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
    """``binlog retention hours``, 0 for NULL; None on other servers, and where the account may not read the table
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

"""Foreign keys whose cascades are not in the log.

ON DELETE and ON UPDATE CASCADE or SET NULL change rows of the child table. If InnoDB itself makes these changes, they
are not logged: before MySQL 9.6, and later with ``innodb_native_foreign_keys = ON``. Else the server makes them and
logs each row. (MySQL Reference Manual, "FOREIGN KEY Constraints", "InnoDB and the binary log".)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from headgate.mysql._connection import Connection
from headgate.mysql._facts import read_facts
from headgate.mysql._required import Prerequisite

__all__ = ["cascades", "silent_keys"]

_SILENT = "('CASCADE', 'SET NULL', 'SET DEFAULT')"


def cascades(connection: Connection, tables: Iterable[tuple[str, str]]) -> list[Prerequisite]:
    """Return a failed row for each foreign key that changes rows of these ``(db, table)`` unlogged."""
    followed = set(tables)
    if not followed or read_facts(connection).logs_cascades:
        return []
    silent = silent_keys(connection)
    return [row for name in sorted(followed & silent.keys()) for row in silent[name]]


def silent_keys(connection: Connection) -> Mapping[tuple[str, str], Sequence[Prerequisite]]:
    """Return a failed row for each foreign key with such a rule, by ``(db, table)``: its fault on a server that does
    not log cascades.
    """
    rows = connection.query(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UPDATE_RULE, DELETE_RULE"
        " FROM information_schema.REFERENTIAL_CONSTRAINTS"
        f" WHERE UPDATE_RULE IN {_SILENT} OR DELETE_RULE IN {_SILENT} ORDER BY 1, 2, 3"
    )
    keys: dict[tuple[str, str], list[Prerequisite]] = defaultdict(list)
    for key in rows:
        keys[str(key[0]), str(key[1])].append(_row(*map(str, key)))
    return keys


def _row(db: str, table: str, constraint: str, on_update: str, on_delete: str) -> Prerequisite:
    return Prerequisite(
        f"foreign keys of {db}.{table}",
        "no cascades",
        f"{constraint}: ON UPDATE {on_update} ON DELETE {on_delete}",
        "fail",
        "the log lacks the rows it changes: use RESTRICT, or MySQL 9.6+ with innodb_native_foreign_keys=OFF; or set "
        f'foreign_keys = "accept" in [tables."{db}.{table}"] to follow only what the log holds',
    )

"""Definitions of tables whose columns the log does not name (``binlog_row_metadata=MINIMAL``, the server's default).

The names then come from information_schema, which shows what a table looks like *now*, not when an event was written.
If columns were renamed or swapped since, or members of an ENUM reordered, nothing in the event would contradict it. So
a definition is used for an event only if it is proven to be the event's.

The proof
=========

Let P be the position of a TABLE_MAP event that a reader has met. The reader then reads a definition D from
information_schema, and then notes the log's end N. Three facts about the server:

1. DML holds a metadata lock on its table until its transaction has ended, and DDL needs it exclusively until its own
   commit. So the log's order of transactions and of DDL of one table is the order in which they took effect.
2. DDL is in the log before it is committed.
3. information_schema obeys the session's isolation level, and ours is REPEATABLE READ with a transaction per statement:
   a query sees exactly what was committed before it.

DDL before P was committed before P was written (1), so D shows it (3). DDL that D shows was committed, so it precedes N
(2). So if no statement between P and N concerns the table, D is exactly the definition at P. DDL that commits between
the queries that make up D would also lie between P and N. Statements of all transactions count. One that cannot be read
counts as concerning every table.

If there are such statements, the definition before them is known only if each of them only adds columns (or does not
change columns) and the table has a PRIMARY KEY. The added columns are then removed. Otherwise the table's columns at P
are *ambiguous*, and a SchemaAmbiguousError is raised.

Finally, everything that the TABLE_MAP event does contain is checked against the definition (``catalog.fit_table``).

What is proven at P holds until the next statement about the table, in either direction. So it is kept for the whole
process, together with the statements between the first position and the last one looked at
(:mod:`headgate.replication._changes`): over many batches, the log is read for statements once. Each reader checks first
that the log is still the same one.

Changes that are not logged (``sql_log_bin = 0``) are not seen: if such an ALTER keeps all types, it is undetectable.

Within a dump, a table id identifies one definition: whenever a definition changes, the server reopens the table and
increments the id. Ids restart only when the server starts, and then with a new log file. So a dump queries again for
each id that it has not seen in this file (see :mod:`headgate.replication._tables`).

On restart nothing is kept. The same proof is made for the same position, unless there was DDL meanwhile.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from headgate.binlog import TableMap
from headgate.catalog import NamedTable, TableDef, ambiguous, fit_table, load_table
from headgate.errors import Definite, HeadgateError
from headgate.mysql import Connection, ConnectionSettings
from headgate.positions import NOTHING, Position, read_executed
from headgate.replication._changes import Change, DefinitionChanges, EventPosition
from headgate.replication._transport import TRANSPORT, Transport, check_planned

__all__ = ["Definitions"]


@dataclass
class _Known:
    """What this process knows about one server, as one account sees it."""

    changes: DefinitionChanges
    executed: Position = NOTHING
    proven: dict[tuple[str, str], tuple[EventPosition, TableDef]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        self.changes.forget()
        self.proven.clear()


_servers: dict[tuple[str, ConnectionSettings, Transport], _Known] = {}
_lock = threading.Lock()


class Definitions:
    """Table definitions at positions of one server's log. Close it: it may hold a connection open.

    :param server_uuid: the server whose log is read. Set it before the first query.
    """

    def __init__(self, settings: ConnectionSettings, server_uuid: str = "", transport: Transport = TRANSPORT) -> None:
        self.server_uuid = server_uuid
        self._settings, self._transport = settings, transport
        self._connection: Connection | None = None
        self._began = False

    def close(self) -> None:
        """Close the connection, if there is one. The next query opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def at(self, table_map: TableMap, file: str, pos: int) -> TableDef:
        """Return the definition of an event that is being read from the log.

        :raises SchemaAmbiguousError: the definition cannot be known.
        :raises ServerBehindError: another server answered.
        """
        known = self._known()
        position = EventPosition.of(file, pos)
        with known.lock:
            self._begin(known)
            proven = self._proven(known, table_map, position)
            table = proven if proven is not None else self._learn(known, table_map, position)
        return fit_table(table_map, table)

    def changes(self, db: str, table: str, after: EventPosition, until: EventPosition | None = None) -> list[Change]:
        """Return the statements after a position that may concern a table.

        :param until: None: to the log's current end.
        """
        known = self._known()
        with known.lock:
            self._begin(known)
            if until is None or not known.changes.covers(after, until):
                end = self._cover(known, after)
                until = until or end
            return known.changes.of(db, table, after, until)

    def connected(self) -> AbstractContextManager[Connection]:
        """Open another connection to the server whose log is read.

        :raises ServerBehindError: another server answered.
        """
        return self._transport.planned(self._settings, self.server_uuid)

    def _known(self) -> _Known:
        with _lock:
            return _servers.setdefault(
                (self.server_uuid, self._settings, self._transport),
                _Known(DefinitionChanges(self._settings, self.server_uuid, self._transport)),
            )

    def _begin(self, known: _Known) -> None:
        """Discard what earlier readers learnt if the log is no longer the same."""
        if not self._began:
            self._open(known)
            if not known.changes.same_log():
                known.forget()
            self._began = True

    def _proven(self, known: _Known, table_map: TableMap, position: EventPosition) -> TableDef | None:
        """Return the definition proven at another position, if no statement in between concerns the table."""
        proof = known.proven.get((table_map.db, table_map.table))
        if proof is None:
            return None
        first, last = sorted((proof[0], position))
        if not known.changes.covers(first, last):
            self._cover(known, position)
        if not known.changes.covers(first, last) or known.changes.of(table_map.db, table_map.table, first, last):
            return None
        return proof[1]

    def _learn(self, known: _Known, table_map: TableMap, position: EventPosition) -> TableDef:
        """Prove the definition now."""
        connection = self._open(known)
        now = load_table(connection.query, table_map.db, table_map.table)
        until = self._cover(known, position)
        changes = known.changes.of(table_map.db, table_map.table, position, until)
        name = f"{table_map.db}.{table_map.table}"
        if now is None:
            gone = "information_schema does not show the table: it is gone, or the account may not SELECT from it"
            raise ambiguous(name, _change_reason(changes) or gone)
        now = now._replace(table=replace(now.table, comment=None))  # comments are not proven
        if changes:
            return _before(now, changes)
        known.proven[table_map.db, table_map.table] = position, now.table
        return now.table

    def _cover(self, known: _Known, position: EventPosition) -> EventPosition:
        """Read all changes from ``position`` to the log's end. Return that end."""
        until = EventPosition.of(*self._open(known).log_status())
        try:
            known.changes.cover(position, until)
        except HeadgateError as error:
            known.forget()
            if not isinstance(error, Definite):
                raise
            known.changes.cover(position, until)  # what was known may lie in purged files
        return until

    def _open(self, known: _Known) -> Connection:
        """Return a connection to the server whose log is read."""
        if self._connection is not None:
            try:
                self._check(self._connection, known)
            except HeadgateError:
                self.close()  # the connection was idle for too long
            else:
                return self._connection
        self._connection = self._transport.connect(self._settings)
        self._check(self._connection, known)
        return self._connection

    def _check(self, connection: Connection, known: _Known) -> None:
        """Check that the server is the same. Discard everything if its history is not (after RESET BINARY LOGS)."""
        now = read_executed(connection)
        check_planned(now.server_uuid, self.server_uuid)
        if not known.executed <= now.executed:
            known.forget()
        known.executed = now.executed


def _before(now: NamedTable, changes: list[Change]) -> TableDef:
    """Return the table before these changes, all of which it may already show.

    :raises SchemaAmbiguousError: a change may have done more than add columns, or the table has no primary key.
    """
    table = now.table
    if not now.has_primary_key:
        raise ambiguous(table.full_name, _change_reason(changes))
    for change in reversed(changes):
        if change.adds is None:
            raise ambiguous(table.full_name, _change_reason([change]))
        table = table.without([column.name for column in change.adds])
    return table


def _change_reason(changes: list[Change]) -> str:
    if not changes:
        return ""
    position = changes[0].position
    return f"the log has a later change of the table, at {position.file}:{position.pos} ({changes[0].statement})"

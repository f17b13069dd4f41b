"""Definitions of tables whose columns the log does not name (``binlog_row_metadata=MINIMAL``, the server's default).

The names then come from information_schema, which tells what a table looks like *now*, not when an event was written.
Columns renamed or swapped since, members of an ENUM put in another order: nothing in the event would contradict it. So
a definition is used for an event only if it is proven to be the event's.

The proof
=========

Let P be the place of a TABLE_MAP event that a reader has met. After that a definition D is read from
information_schema, and after that the log's end N is noted. Three facts about the server:

1. DML holds a metadata lock on its table until its transaction has ended, and DDL needs it exclusively until its own
   commit. So the log's order of transactions and of DDL of one table is the order in which they took effect.
2. DDL is in the log before it is committed.
3. information_schema obeys the session's isolation level, and ours is REPEATABLE READ with a transaction per statement:
   what is committed is seen by whoever asks later, and nothing else is.

DDL before P was committed before P was written (1), so D shows it (3). DDL that D shows was committed, so it lies
before N (2). So if no statement between P and N is about the table, D is exactly the definition at P; DDL that commits
between the queries that D is made of would lie between P and N as well. All statements count there, of whatever
transaction, and one that cannot be read counts as being about every table.

If there are such statements, the definition before them is known only if each of them does nothing but add columns (or
nothing at all to columns) and the table has a PRIMARY KEY: the columns added are taken away again. Whatever else there
is, the table's columns at P are *ambiguous*, and a SchemaAmbiguousError says so.

In the end everything that the TABLE_MAP event does say is held against the definition (``catalog.fit_table``).

What is proven at P holds until the next statement about the table, in either direction. So it is kept, together with
the statements between the first place and the last one looked at (:mod:`headgate.replication._changes`), for the whole
process: batch after batch, the log is read for statements once. Each reader checks first that the log is still the
same one.

Not seen are changes that are not logged (``sql_log_bin = 0``): if such an ALTER keeps all types, nobody can tell.

Within a dump, a table id stands for one definition: whenever a definition changes, the server opens the table anew and
counts the id up. It begins again only when the server starts, and then with a new log file. So a dump asks again for
each id that it has not seen in this file (see :mod:`headgate.replication._tables`).

On restart nothing is kept; the same proof is made for the same place, unless there was DDL meanwhile.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from headgate.binlog import TableMap
from headgate.catalog import NamedTable, TableDef, ambiguous, fit_table, load_table
from headgate.errors import Definite, HeadgateError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, log_status
from headgate.replication._changes import Change, Changes, Place
from headgate.replication._transport import TRANSPORT, Transport, check_planned

__all__ = ["Definitions"]


@dataclass
class _Known:
    """What this process has learnt about one server, as one account sees it."""

    changes: Changes
    executed: GtidSet = field(default_factory=GtidSet)
    proven: dict[tuple[str, str], tuple[Place, TableDef]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        self.changes.forget()
        self.proven.clear()


_servers: dict[tuple[str, ConnectionSettings, Transport], _Known] = {}
_lock = threading.Lock()


class Definitions:
    """What tables look like at places of one server's log. To be closed: it may hold a connection open.

    :param server_uuid: the server whose log is read; to be set before the first question.
    """

    def __init__(self, settings: ConnectionSettings, server_uuid: str = "", transport: Transport = TRANSPORT) -> None:
        self.server_uuid = server_uuid
        self._settings, self._transport = settings, transport
        self._connection: Connection | None = None
        self._began = False

    def close(self) -> None:
        """Close the connection, if there is one; the next question opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def at(self, table_map: TableMap, file: str, pos: int) -> TableDef:
        """The definition that an event has which is being read from the log.

        :raises SchemaAmbiguousError: it cannot be known.
        :raises ServerBehindError: another server answered.
        """
        known = self._known()
        place = Place.of(file, pos)
        with known.lock:
            self._begin(known)
            proven = self._proven(known, table_map, place)
            table = proven if proven is not None else self._learn(known, table_map, place)
        return fit_table(table_map, table)

    def changes(self, db: str, table: str, after: Place, until: Place | None = None) -> list[Change]:
        """The statements after one place that may be about a table.

        :param until: None: to the log's end now.
        """
        known = self._known()
        with known.lock:
            self._begin(known)
            if until is None or not known.changes.covers(after, until):
                end = self._cover(known, after)
                until = until or end
            return known.changes.of(db, table, after, until)

    def _known(self) -> _Known:
        with _lock:
            return _servers.setdefault(
                (self.server_uuid, self._settings, self._transport),
                _Known(Changes(self._settings, self.server_uuid, self._transport)),
            )

    def _begin(self, known: _Known) -> None:
        """Is what was learnt by readers before this one still about the same log?"""
        if not self._began:
            self._open(known)
            if not known.changes.same_log():
                known.forget()
            self._began = True

    def _proven(self, known: _Known, table_map: TableMap, place: Place) -> TableDef | None:
        """What was proven at another place, if nothing happened to the table between there and here."""
        found = known.proven.get((table_map.db, table_map.table))
        if found is None:
            return None
        first, last = sorted((found[0], place))
        if not known.changes.covers(first, last):
            self._cover(known, place)
        if not known.changes.covers(first, last) or known.changes.of(table_map.db, table_map.table, first, last):
            return None
        return found[1]

    def _learn(self, known: _Known, table_map: TableMap, place: Place) -> TableDef:
        """Prove it now."""
        connection = self._open(known)
        now = load_table(connection.query, table_map.db, table_map.table)
        until = self._cover(known, place)
        changes = known.changes.of(table_map.db, table_map.table, place, until)
        name = f"{table_map.db}.{table_map.table}"
        if now is None:
            gone = "information_schema does not show the table: it is gone, or the account may not SELECT from it"
            raise ambiguous(name, _seen(changes) or gone)
        if changes:
            return _before(now, changes)
        known.proven[table_map.db, table_map.table] = place, now.table
        return now.table

    def _cover(self, known: _Known, place: Place) -> Place:
        """Know all changes from ``place`` to the log's end, which is given back."""
        until = Place.of(*log_status(self._open(known)))
        try:
            known.changes.cover(place, until)
        except HeadgateError as error:
            known.forget()
            if not isinstance(error, Definite):
                raise
            known.changes.cover(place, until)  # what was known may lie in files that are gone
        return until

    def _open(self, known: _Known) -> Connection:
        """A connection to the server whose log is read."""
        if self._connection is not None:
            try:
                self._check(self._connection, known)
            except HeadgateError:
                self.close()  # it was idle for too long
            else:
                return self._connection
        self._connection = self._transport.connect(self._settings)
        self._check(self._connection, known)
        return self._connection

    def _check(self, connection: Connection, known: _Known) -> None:
        """The same server, with the same history as before (RESET BINARY LOGS begins the files anew)."""
        uuid, executed = connection.query("SELECT @@global.server_uuid, @@global.gtid_executed")[0]
        check_planned(str(uuid), self.server_uuid)
        now = GtidSet.parse(str(executed))
        if not known.executed <= now:
            known.forget()
        known.executed = now


def _before(now: NamedTable, changes: list[Change]) -> TableDef:
    """The table before these changes, all of which it may already show.

    :raises SchemaAmbiguousError: one of them may have done something else than to add columns.
    """
    table = now.table
    if not now.has_primary_key:
        raise ambiguous(table.full_name, _seen(changes))
    for change in reversed(changes):
        if change.adds is None:
            raise ambiguous(table.full_name, _seen([change]))
        table = table.without([column.name for column in change.adds])
    return table


def _seen(changes: list[Change]) -> str:
    if not changes:
        return ""
    place = changes[0].place
    return f"the log has a later change of the table, at {place.file}:{place.pos} ({changes[0].statement})"

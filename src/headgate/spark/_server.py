"""What the planner asks a server, over one connection that is opened when needed and replaced when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headgate.errors import BinlogPurgedError, HeadgateError, ServerBehindError, ServerSettingError, Transient
from headgate.gtid import GtidSet
from headgate.offsets import Hint
from headgate.places import LogPlace, end_of, file_number, places_before

if TYPE_CHECKING:
    from headgate.catalog import TableDef, TablePatterns, TableStats
    from headgate.mysql import Connection, ConnectionSettings

__all__ = ["MySQLServer", "Server", "ServerState", "check_position", "retried"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class ServerState:
    """What a server says of itself at one moment. When ``executed`` was read, ``purged`` was part of it."""

    uuid: str
    executed: GtidSet
    purged: GtidSet
    by_relay: bool = False
    """Whether the log comes out of a relay, which may have less of it than the server."""


class Server(Protocol):
    """The planner's view of a server. Every method may raise ``Transient`` errors; then the planning begins again."""

    @property
    def connects(self) -> int:
        """How often a connection was opened: a change says that anything may have happened to the server."""

    def executed(self) -> GtidSet:
        """What it has executed now: one cheap query."""

    def state(self, *, whole: bool = False) -> ServerState:
        """What a planning begins with.

        :param whole: with all that the server has executed, though its log may come from somewhere else.
        :raises ServerSettingError: as :meth:`identity`.
        """

    def identity(self) -> str:
        """The server's UUID, if it has all settings that exactness rests on.

        :raises ServerSettingError: the first one that it lacks, with what mends it.
        """

    def tables(self, patterns: TablePatterns) -> Mapping[str, TableStats]:
        """The base tables that match, by ``db.table``."""

    def definition(self, table: str) -> TableDef | None:
        """The definition of ``db.table``, if it is there."""

    def definitions(self, patterns: TablePatterns) -> Mapping[str, TableDef]:
        """The definitions of the tables that match, by ``db.table``."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """A small query."""

    def reach(self, had: GtidSet, end: GtidSet) -> GtidSet:
        """How far a batch after ``had`` can go, ``end`` at most: its changes must be places in one server's log."""

    def reads_windows(self, end: GtidSet) -> bool:
        """Whether chunks can be read as of ``end``: the log from there to now is one server's."""

    def log_uuid(self, had: GtidSet, end: GtidSet) -> str | None:
        """The server in whose log the changes of a batch are read; None: the one that is connected."""

    def log_file(self) -> str:
        """The name of the binlog file that is being written."""

    def log_files(self) -> list[tuple[str, int]]:
        """Names and sizes (bytes) of all binlog files, oldest first."""

    def previous_gtids(self, file: str) -> GtidSet:
        """What is in the files before ``file``."""

    def cut(self, had: GtidSet, executed: GtidSet, rows: int, hint: Hint | None) -> GtidSet:
        """``had`` and the next transactions in log order, until they hold ``rows`` changes."""

    def commit_time(self, gtid: GtidSet, hint: Hint | None) -> int | None:
        """Original commit time of one transaction, µs since 1970 UTC; None: its log is purged."""

    def commit_watermark(self, table: str, data: str) -> None:
        """Commit a row of ``db.table``: from then on all that was logged before can be seen."""

    def drop(self) -> None:
        """Forget the connection."""


def check_position(had: GtidSet, state: ServerState) -> None:
    """The server has all of ``had`` and still holds everything after it.

    :raises ServerBehindError: it has not executed all of it.
    :raises BinlogPurgedError: it has purged what comes after it.
    """
    places = end_of(state.executed) is not None
    if had and places != (end_of(had) is not None):
        raise ServerSettingError(
            "the stream's position has GTIDs and the server has not, or the other way round: the tables have to be read"
            " again, with a new checkpoint and target",
            setting="gtid_mode",
            expected="OFF" if not places else "ON",
            actual="OFF" if places else "ON",
        )
    missing = had - state.executed
    if missing:
        relay = ", or its relay does not have," if state.by_relay else ""
        raise ServerBehindError(
            f"the server has not executed{relay} transactions that were already read: it is behind, or not the same",
            missing=str(missing),
        )
    lost = state.purged - had
    if lost and state.by_relay:
        raise BinlogPurgedError(
            "the log that may be read does not reach back so far: give the relay more disk_bytes, allow that the server"
            " is read (relay_fallback), or remove the checkpoint folder and run again; then all tables are read again",
            needed=str(lost),
            purged=str(state.purged),
        )
    if lost:
        raise BinlogPurgedError(
            "the server has purged log that was not read yet: remove the checkpoint folder and run again; then all "
            "tables are read again",
            needed=str(lost),
            purged=str(state.purged),
        )


def retried(
    work: Callable[[], _T],
    *,
    seconds: float,
    failed: Callable[[HeadgateError], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """``work()``, again after each transient error, with growing pauses, for at most ``seconds``.

    Spark ends a query when its planner raises, so the planner has to have patience itself.
    """
    deadline, pause = clock() + seconds, 0.2
    while True:
        try:
            return work()
        except HeadgateError as error:
            left = deadline - clock()
            if not isinstance(error, Transient) or left <= 0:
                raise
            failed(error)
            sleep(min(pause, max(left, 0.01)))
            pause = min(10.0, pause * 2)


class MySQLServer:
    """:class:`Server` over real connections.

    :param patterns: the tables that are followed: the server's log must have their changes.
    :param without_gtids: a server with ``gtid_mode=OFF`` will do, too; positions are places in its log then.
    """

    def __init__(self, settings: ConnectionSettings, patterns: TablePatterns, *, without_gtids: bool = False) -> None:
        self._settings = settings
        self._patterns = patterns
        self._without_gtids = without_gtids
        self._place: LogPlace | None = None
        self._open: Connection | None = None
        self._filters_checked = False
        self.connects = 0

    def _connection(self) -> Connection:
        from headgate.mysql import Connection

        if self._open is None:
            self._open = Connection.open(self._settings)
            self.connects += 1
        return self._open

    def executed(self) -> GtidSet:
        from headgate.mysql import gtid_executed, log_position

        if not self._without_gtids:
            return gtid_executed(self._connection())
        found = log_position(self._connection())
        self._place = end_of(found)
        return found

    def state(self, *, whole: bool = False) -> ServerState:
        del whole
        purged = str(self.query("SELECT @@global.gtid_purged")[0][0])
        executed = self.executed()
        uuid = self.identity()  # after `executed`: a setting that was switched off before that shows here
        if self._place is None:
            return ServerState(uuid, executed, GtidSet.parse(purged))
        oldest = self.log_files()[0][0]
        return ServerState(uuid, executed, places_before(uuid, file_number(oldest), 4))

    def identity(self) -> str:
        from headgate.mysql import check_filters, check_required

        connection = self._connection()
        facts = check_required(connection, gtids=not self._without_gtids)
        if not self._filters_checked:
            check_filters(connection, lambda: {name.partition(".")[0] for name in self.tables(self._patterns)})
            self._filters_checked = True
        return facts.server_uuid

    def tables(self, patterns: TablePatterns) -> Mapping[str, TableStats]:
        from headgate.catalog import load_stats

        return load_stats(self._connection().query, patterns)

    def definition(self, table: str) -> TableDef | None:
        from headgate.catalog import load_table

        db, _, name = table.partition(".")
        found = load_table(self._connection().query, db, name)
        return found.table if found is not None else None

    def definitions(self, patterns: TablePatterns) -> Mapping[str, TableDef]:
        from headgate.catalog import load_tables

        return {table.full_name: table for table in load_tables(self._connection().query, patterns)}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection().query(sql)

    def reach(self, had: GtidSet, end: GtidSet) -> GtidSet:
        del had
        return end

    def reads_windows(self, end: GtidSet) -> bool:
        del end
        return True

    def log_uuid(self, had: GtidSet, end: GtidSet) -> str | None:
        del had, end
        return None

    def log_file(self) -> str:
        from headgate.mysql import log_status

        return str(log_status(self._connection())[0])

    def log_files(self) -> list[tuple[str, int]]:
        return [(str(row[0]), int(row[1])) for row in self.query("SHOW BINARY LOGS")]

    def previous_gtids(self, file: str) -> GtidSet:
        from headgate.replication import previous_gtids

        if self._place is not None:
            return places_before(self._place.server_uuid, file_number(file), 4)
        return previous_gtids(self._settings, file)

    def cut(self, had: GtidSet, executed: GtidSet, rows: int, hint: Hint | None) -> GtidSet:
        from headgate.replication import LogHint, cut_in_order

        at = LogHint(hint.server_uuid, hint.file, hint.pos) if hint else None
        return cut_in_order(self._settings, had, executed, limit_rows=rows, hint=at)

    def commit_time(self, gtid: GtidSet, hint: Hint | None) -> int | None:
        from headgate.replication import LogHint, commit_time

        at = LogHint(hint.server_uuid, hint.file, hint.pos) if hint else None
        try:
            return commit_time(self._settings, gtid, hint=at)
        except BinlogPurgedError:
            return None

    def commit_watermark(self, table: str, data: str) -> None:
        from headgate.mysql import commit_watermark

        commit_watermark(self._connection(), table, data)

    def drop(self) -> None:
        opened, self._open = self._open, None
        self._filters_checked = False
        if opened is not None:
            opened.close()

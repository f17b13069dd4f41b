"""The planner's view of a server, over one connection that is opened when needed and replaced when it fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headgate.errors import BinlogPurgedError, HeadgateError
from headgate.offsets import Hint
from headgate.positions import NOTHING, Position, check_kind, file_number, read_executed

if TYPE_CHECKING:
    from headgate.catalog import TableDef, TablePatterns, TableStats
    from headgate.mysql import Connection, ConnectionSettings
    from headgate.replication import TransactionHeader

__all__ = ["DirectLog", "Server", "ServerState", "SourceServer", "check_executed", "check_position", "newest_file"]


@dataclass(frozen=True)
class ServerState:
    """A server's state at one moment. When ``executed`` was read, ``purged`` was part of it."""

    uuid: str
    executed: Position
    purged: Position
    by_relay: bool = False
    """Whether the log comes from a relay, which may have less of it than the server."""


class Server(Protocol):
    """The planner's view of a server. Every method may raise ``Transient`` errors; then the planning starts again."""

    @property
    def connection_number(self) -> int:
        """Number of the connection that the next query uses, open or not. The server behind another one may differ in
        any way.
        """

    def executed(self) -> Position:
        """Return what the server has executed now: one cheap query."""

    def state(self, *, whole: bool = False) -> ServerState:
        """Return the state that a planning begins with.

        :param whole: require all that the server has executed, even if its log comes from a relay.
        :raises ServerSettingError: as :meth:`identity`.
        """

    def identity(self) -> str:
        """Return the server's UUID, if it has all settings that exactness needs.

        :raises ServerSettingError: the first one that it lacks, with the remedy.
        """

    def tables(self, patterns: TablePatterns) -> Mapping[str, TableStats]:
        """Return the base tables that match, by ``db.table``."""

    def definition(self, table: str) -> TableDef | None:
        """Return the definition of ``db.table``, if it exists."""

    def definitions(self, patterns: TablePatterns) -> Mapping[str, TableDef]:
        """Return the definitions of the tables that match, by ``db.table``."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a small query."""

    def reach(self, had: Position, end: Position) -> Position:
        """Return how far a batch after ``had`` can go, at most ``end``: its changes must be in one server's log."""

    def reads_windows(self, end: Position) -> bool:
        """Whether chunks can be read as of ``end``: the log from there to now is one server's."""

    def log_uuid(self, had: Position, end: Position) -> str | None:
        """Return the server in whose log the changes of a batch are read; None: the connected one."""

    def log_file(self) -> str:
        """Return the name of the binlog file that is being written."""

    def log_files(self) -> list[tuple[str, int]]:
        """Return names and sizes (bytes) of all binlog files, oldest first."""

    def previous_gtids(self, file: str) -> Position:
        """Return the set of the files before ``file``."""

    def start_position(self, start: str) -> Position:
        """Return what counts as already read at a start position (``replication.start_of``)."""

    def cut(self, had: Position, executed: Position, rows: int, hint: Hint | None) -> Position:
        """Return ``had`` and the next transactions in log order, until they hold ``rows`` changes."""

    def headers(self, part: Position, hint: Hint | None) -> list[TransactionHeader]:
        """Return the headers of transactions, in log order; none if the log of one is purged.

        :param hint: a position before them.
        """

    def last_header(self, header: TransactionHeader, executed: Position, wanted: Position) -> TransactionHeader:
        """Return the header of the last transaction of ``wanted`` in the log, if it is behind ``header``, else that.

        :param executed: the log's transactions up to the last of ``wanted``.
        """

    def missing_error(self, missing: Position, *, server_uuid: str, had_them: bool, behind: str) -> HeadgateError:
        """Return the error for transactions that the server lacks: ``mysql.missing_error``."""

    def commit_watermark(self, table: str, data: str) -> None:
        """Commit a row of ``db.table``: from then on all that was logged before is visible."""

    def drop(self) -> None:
        """Close the connection."""


def newest_file(server: Server, files: Sequence[str], holds: Callable[[Position], bool]) -> tuple[int, Position]:
    """Return the index of the newest file whose start ``holds``, and what was logged before it. Starts only grow. The
    first file is not queried: its start holds. Mostly the newest is the file that is being written.
    """
    low, high = 0, len(files) - 1
    before, middle = NOTHING, high
    while low < high:
        logged = server.previous_gtids(files[middle])
        if holds(logged):
            low, before = middle, logged
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low, before


def check_executed(had: Position, state: ServerState, server: Server, planned_on: str = "") -> None:
    """Check that the server has executed all of ``had``.

    :param planned_on: UUID of a server that had; empty: unknown.
    :raises ServerBehindError: it has not.
    :raises HistoryRewrittenError: it had, and cannot receive it again.
    """
    missing = had - state.executed
    if missing:
        relay = ", or its relay does not have," if state.by_relay else ""
        raise server.missing_error(
            missing,
            server_uuid=state.uuid,
            had_them=state.uuid == planned_on,
            behind=f"the server has not executed{relay} transactions that count as read, {missing}: wait for it, or"
            " connect to the server that has them; if they are lost, start again with a new checkpoint and target",
        )


def check_position(had: Position, state: ServerState, server: Server, planned_on: str = "") -> None:
    """Check that the server has all of ``had`` and still holds everything after it.

    :param planned_on: as for :func:`check_executed`.
    :raises ServerBehindError: it has not executed all of it.
    :raises HistoryRewrittenError: it had, and cannot receive it again.
    :raises BinlogPurgedError: it has purged what comes after it.
    :raises ServerSettingError: the server has positions of another kind.
    """
    check_kind(had, state.executed)
    check_executed(had, state, server, planned_on)
    lost = state.purged - had
    if lost and state.by_relay:
        raise BinlogPurgedError(
            "the relay no longer has this part of the binlog: give the relay more disk_bytes, set relay_fallback to"
            " read from the server, or remove the checkpoint folder and run again; then all tables are read again",
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


class DirectLog:
    """The part of :class:`Server` about the log, of one that has all changes after any position: without a relay."""

    def reach(self, had: Position, end: Position) -> Position:
        del had
        return end

    def reads_windows(self, end: Position) -> bool:
        del end
        return True

    def log_uuid(self, had: Position, end: Position) -> str | None:
        del had, end
        return None


class SourceServer(DirectLog):
    """:class:`Server` on real connections.

    :param kinds: kinds of positions that the stream can use (``mysql.kinds_of_watermark``).
    """

    def __init__(self, settings: ConnectionSettings, kinds: Collection[type[Position]]) -> None:
        self._settings = settings
        self._kinds = kinds
        self._executed: Position | None = None
        """The position read last."""
        self._open: Connection | None = None
        self.connection_number = 0

    def _connection(self) -> Connection:
        from headgate.mysql import Connection

        if self._open is None:
            self._open = Connection.open(self._settings)
        return self._open

    def executed(self) -> Position:
        self._executed = read_executed(self._connection()).executed
        return self._executed

    def state(self, *, whole: bool = False) -> ServerState:
        del whole
        log = read_executed(self._connection())
        self._executed = log.executed
        uuid = self.identity()  # after the position, so that a setting switched off before that is detected
        return ServerState(uuid, log.executed, log.purged(self._connection()))

    def identity(self) -> str:
        from headgate.mysql import check_required

        return check_required(self._connection(), kinds=self._kinds).server_uuid

    def tables(self, patterns: TablePatterns) -> Mapping[str, TableStats]:
        from headgate.catalog import load_stats

        return load_stats(self._connection().query, patterns)

    def definition(self, table: str) -> TableDef | None:
        from headgate.catalog import load_table

        db, _, name = table.partition(".")
        named = load_table(self._connection().query, db, name)
        return named.table if named is not None else None

    def definitions(self, patterns: TablePatterns) -> Mapping[str, TableDef]:
        from headgate.catalog import load_tables

        return {table.full_name: table for table in load_tables(self._connection().query, patterns)}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection().query(sql)

    def log_file(self) -> str:
        return str(self._connection().log_status()[0])

    def log_files(self) -> list[tuple[str, int]]:
        return self._connection().log_files()

    def previous_gtids(self, file: str) -> Position:
        from headgate.replication import previous_gtids

        executed = self._executed or self.executed()
        return executed.before_file(file_number(file), lambda: previous_gtids(self._settings, file))

    def start_position(self, start: str) -> Position:
        from headgate.mysql import Connection
        from headgate.replication import start_of

        with Connection.open(self._settings) as connection:
            return start_of(connection, start)[0]

    def cut(self, had: Position, executed: Position, rows: int, hint: Hint | None) -> Position:
        from headgate.replication import cut_in_order

        return cut_in_order(self._settings, had, executed, limit_rows=rows, hint=hint)

    def headers(self, part: Position, hint: Hint | None) -> list[TransactionHeader]:
        from headgate.replication import LogRead, transaction_headers

        try:
            return transaction_headers(LogRead(self._settings, wanted=part, hint=hint))
        except BinlogPurgedError:
            return []

    def last_header(self, header: TransactionHeader, executed: Position, wanted: Position) -> TransactionHeader:
        from headgate.replication import LogRead, last_header

        before, until = executed - wanted, self._log_end()
        read = LogRead(self._settings, executed_before=before, executed=executed, until=until)
        try:
            return last_header(read, header)
        except BinlogPurgedError:
            return header

    def _log_end(self) -> tuple[str, int] | None:
        """Return file and position of the log's end; None: a dump ends only there."""
        return self._connection().log_status()

    def missing_error(self, missing: Position, *, server_uuid: str, had_them: bool, behind: str) -> HeadgateError:
        from headgate.mysql import missing_error

        return missing_error(self._connection(), missing, server_uuid=server_uuid, had_them=had_them, behind=behind)

    def commit_watermark(self, table: str, data: str) -> None:
        from headgate.mysql import commit_watermark

        commit_watermark(self._connection(), table, data)

    def drop(self) -> None:
        opened, self._open = self._open, None
        self.connection_number += 1
        if opened is not None:
            opened.close()

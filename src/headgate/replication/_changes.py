"""Statements that change table definitions in a range of a server's log: read once, extended as needed.

Statements of all transactions count, regardless of what a stream has or wants. So the log is read by file and position,
not by GTID. Only statements are decoded. A kernel finds them.

TRUNCATE changes no definition. Nor does CREATE TABLE IF NOT EXISTS: callers ask about tables that exist where the range
begins or ends, and if one was dropped in between, that statement counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from headgate.binlog import Segment, codes, other_statements, parse_query
from headgate.catalog import AddedColumn, creates_if_absent, decode_statement
from headgate.errors import IncompleteReadError, ServerError, UnsupportedError
from headgate.gtid import Gtid
from headgate.mysql import ConnectionSettings
from headgate.names import lower_name
from headgate.replication._dump import first_event
from headgate.replication._log_read import LogRead
from headgate.replication._requests import FIRST_EVENT, has_no_file
from headgate.replication._statements import parse, readable
from headgate.replication._transport import TRANSPORT, Transport
from headgate.replication._types import file_number
from headgate.replication.resumable import Scan, scan

__all__ = ["Change", "DefinitionChanges", "EventPosition"]

_RETRY: Final[Mapping[str, Any]] = {"tries": 5, "first_seconds": 0.02, "errors": IncompleteReadError}
"""Retries of a read that ends too early: a position that the server names may be one flush ahead of what its dumps see.
Other errors are left to the calling reader.
"""
_STATEMENT_LETTERS = 200
_NEAR_FILES = 1
"""Largest gap, in files, that is read to keep the known changes. A wider one discards them."""
_MOST_CHANGES = 100_000
"""If more are known, they are discarded, to bound the memory."""


class EventPosition(NamedTuple):
    """Position where an event begins in a server's log, ordered as the log."""

    number: int
    pos: int
    file: str

    @classmethod
    def of(cls, file: str, pos: int) -> EventPosition:
        return cls(file_number(file), pos, file)


@dataclass(frozen=True)
class Change:
    """A statement that may have changed a table's definition. Names are in lower case."""

    position: EventPosition
    db: str
    """Empty: the statement could not be read, so it may concern any table."""
    table: str
    """Empty: any table of the database."""
    adds: tuple[AddedColumn, ...] | None
    """Columns that the statement adds, if it changes nothing else in any row. None: it may have changed anything."""
    statement: str
    names_default: bool = True
    """Whether the statement contains the word DEFAULT, so that it may change a column's default."""

    def touches(self, db: str, table: str) -> bool:
        """Return whether the statement may concern this table (names in lower case)."""
        return self.db in ("", db) and self.table in ("", table)


class DefinitionChanges:
    """All changes of definitions between two positions of one server's log."""

    def __init__(self, settings: ConnectionSettings, server_uuid: str, transport: Transport = TRANSPORT) -> None:
        self._settings = settings
        self._uuid = server_uuid
        self._transport = transport.retrying(**_RETRY)
        self._begin: EventPosition | None = None
        self._end: EventPosition | None = None
        self._changes: list[Change] = []
        self._file_written_s = 0

    def same_log(self) -> bool:
        """Return whether the log is still the one that was read: RESET BINARY LOGS starts its files again.

        The creation time of the first file, in seconds, identifies the log.
        """
        return self._begin is None or self._written(self._begin.file) == self._file_written_s

    def covers(self, first: EventPosition, last: EventPosition) -> bool:
        return self._begin is not None and self._end is not None and self._begin <= first and last <= self._end

    def of(self, db: str, table: str, after: EventPosition, until: EventPosition) -> list[Change]:
        """Return what may have changed this table behind ``after`` and not behind ``until``, in log order."""
        db, table = lower_name(db), lower_name(table)
        return [one for one in self._changes if after < one.position <= until and one.touches(db, table)]

    def forget(self) -> None:
        self._begin = self._end = None
        self._changes = []

    def cover(self, first: EventPosition, until: EventPosition) -> None:
        """Read the unknown parts between ``first`` (where an event begins) and ``until`` (the log's end).

        :raises IncompleteReadError: the log could not be read that far.
        :raises ServerBehindError: another server answered.
        """
        begin, end = self._begin, self._end
        if (
            begin is None
            or end is None
            or first.number - end.number > _NEAR_FILES
            or len(self._changes) > _MOST_CHANGES
        ):
            self.forget()
            self._changes = self._read(first, until)
            self._begin, self._end = first, until
            self._file_written_s = self._written(first.file)
            return
        if first < begin:
            self._changes = self._read(first, begin) + self._changes
            self._begin, self._file_written_s = first, self._written(first.file)
        if end < until:
            self._changes += self._read(end, until)
            self._end = until

    def _read(self, first: EventPosition, until: EventPosition) -> list[Change]:
        """Return changes at ``first`` and later but before ``until``."""
        read = LogRead(
            self._settings,
            start=(first.file, first.pos),
            until=(until.file, until.pos),
            server_uuid=self._uuid,
            subject="a position that the server has",
        )
        statements = _Statements()
        scan(read, statements, self._transport)
        return [change for change in statements.changes if first <= change.position < until]

    def _written(self, file: str) -> int:
        """Return when a file was created, in seconds since the Unix epoch; 0 if it does not exist."""
        try:
            event = first_event(LogRead(self._settings, start=(file, FIRST_EVENT)), self._transport)
        except ServerError as error:
            if not has_no_file(error):
                raise
            return 0
        return int.from_bytes((event or b"")[:4], "little")


class _Statements(Scan):
    def begin(self, _server_uuid: str, _read: LogRead, _skip: tuple[Gtid, int] | None) -> Self:
        self.changes: list[Change] = []
        return self

    def inspect(self, segment: Segment) -> None:
        self.changes += _changes(segment)


def _changes(segment: Segment) -> Iterator[Change]:
    for at in other_statements(segment):
        body = segment.buf[int(segment.start[at]) + codes.HEADER_SIZE : int(segment.end[at])].tobytes()
        position = EventPosition.of(segment.file, int(segment.pos[at]))
        query = parse_query(body)
        try:
            sql = decode_statement(query.statement, query.collation)
        except UnsupportedError as error:
            yield Change(position, "", "", None, error.message)
            continue
        statement = parse(sql, query)
        text = readable(" ".join(sql[:_STATEMENT_LETTERS].split()))
        if statement.kind == "unknown":
            for db in query.databases or ("",):
                yield Change(position, lower_name(db), "", None, text)
        for effect in statement.effects:
            if effect.action != "truncate" and not creates_if_absent(effect.action, effect.changes):
                default = "DEFAULT" in sql.upper()
                yield Change(position, lower_name(effect.db), lower_name(effect.table), effect.adds, text, default)
            if effect.new_db is not None and effect.new_table is not None:
                yield Change(position, lower_name(effect.new_db), lower_name(effect.new_table), None, text)

"""Which statements of a server's log change table definitions, over one stretch of it: read once, extended as needed.

All transactions count here, whatever a stream has or wants, so the log is read by file and position and not by GTID.
Nothing of it is decoded but its statements; a kernel finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from headgate.binlog import Segment, codes, other_statements, parse_query
from headgate.catalog import AddedColumn, decode_statement, parse_statement
from headgate.errors import IncompleteReadError, ServerError, UnsupportedError
from headgate.mysql import ConnectionSettings
from headgate.replication._dump import first_event
from headgate.replication._log_read import LogRead
from headgate.replication._requests import FIRST_EVENT, has_no_file
from headgate.replication._resumable import Scan, scan
from headgate.replication._transport import TRANSPORT, Transport
from headgate.replication._types import file_number

__all__ = ["Change", "Changes", "Place"]

_ANSI_QUOTES = 4
_NO_BACKSLASH_ESCAPES = 1 << 20
_ATTEMPTS = 6
"""Of a read that ends too early: a position that the server names may be ahead of what its dumps see by one flush. What
else may go wrong is left to the reader that asks.
"""
_FIRST_PAUSE_SECONDS = 0.02
_STATEMENT_LETTERS = 200
_NEAR_FILES = 1
"""A gap of at most so many files is read to keep what is known; behind a wider one everything is learnt anew."""
_MOST_CHANGES = 100_000
"""More are forgotten rather than kept for ever."""


class Place(NamedTuple):
    """Where an event begins in a server's log; in order of the log."""

    number: int
    pos: int
    file: str

    @classmethod
    def of(cls, file: str, pos: int) -> Place:
        """From a file's name."""
        return cls(file_number(file), pos, file)


@dataclass(frozen=True)
class Change:
    """A statement that may have changed the definition of a table. Names are in lower case."""

    place: Place
    db: str
    """Empty: a statement that could not be read, so any table's."""
    table: str
    """Empty: any table of the database."""
    adds: tuple[AddedColumn, ...] | None
    """The columns it adds if it changes nothing else in any row; None: it may have done anything."""
    statement: str
    names_default: bool = True
    """Whether the word DEFAULT is in it, so that it may change a column's default."""

    def touches(self, db: str, table: str) -> bool:
        """Whether it may be about this table (names in lower case)."""
        return self.db in ("", db) and self.table in ("", table)


class Changes:
    """All changes of definitions between two places of one server's log."""

    def __init__(self, settings: ConnectionSettings, server_uuid: str, transport: Transport = TRANSPORT) -> None:
        self._settings = settings
        self._uuid = server_uuid
        pacing = replace(
            transport.pacing, attempts=_ATTEMPTS, first_pause_seconds=_FIRST_PAUSE_SECONDS, retries=IncompleteReadError
        )
        self._transport = replace(transport, pacing=pacing)
        self._begin: Place | None = None
        self._end: Place | None = None
        self._found: list[Change] = []
        self._file_written_s = 0

    def same_log(self) -> bool:
        """Whether the files that were read are still there and the same ones: RESET BINARY LOGS begins them anew.

        A file is known by the time, in seconds, at which it was begun.
        """
        return self._begin is None or self._written(self._begin.file) == self._file_written_s

    def covers(self, first: Place, last: Place) -> bool:
        """Whether everything from ``first`` to ``last`` is known."""
        return self._begin is not None and self._end is not None and self._begin <= first and last <= self._end

    def of(self, db: str, table: str, after: Place, until: Place) -> list[Change]:
        """What may have changed this table after one place and not after another, in log order."""
        db, table = db.lower(), table.lower()
        return [one for one in self._found if after < one.place <= until and one.touches(db, table)]

    def forget(self) -> None:
        """Know nothing again."""
        self._begin = self._end = None
        self._found = []

    def cover(self, first: Place, until: Place) -> None:
        """Read what is not known yet between ``first`` (where an event begins) and ``until`` (the log's end).

        :raises IncompleteReadError: the log could not be read that far.
        :raises ServerBehindError: another server answered.
        """
        begin, end = self._begin, self._end
        if begin is None or end is None or first.number - end.number > _NEAR_FILES or len(self._found) > _MOST_CHANGES:
            self.forget()
            self._found = self._read(first, until)
            self._begin, self._end = first, until
            self._file_written_s = self._written(first.file)
            return
        if first < begin:
            self._found = self._read(first, begin) + self._found
            self._begin, self._file_written_s = first, self._written(first.file)
        if end < until:
            self._found += self._read(end, until)
            self._end = until

    def _read(self, first: Place, until: Place) -> list[Change]:
        """Changes at ``first`` and later but before ``until``."""
        read = LogRead(
            self._settings,
            start=(first.file, first.pos),
            until=(until.file, until.pos),
            server_uuid=self._uuid,
            subject="a position that it has",
        )
        found = _Statements()
        scan(read, found, self._transport)
        return [change for change in found.changes if first <= change.place < until]

    def _written(self, file: str) -> int:
        """When a file was begun, seconds since the Unix epoch; 0 if it is not there."""
        try:
            event = first_event(LogRead(self._settings, start=(file, FIRST_EVENT)), self._transport)
        except ServerError as error:
            if not has_no_file(error):
                raise
            return 0
        return int.from_bytes((event or b"")[:4], "little")


class _Statements(Scan):
    """Keeps all changes."""

    def begin(self, _server_uuid: str, _read: LogRead, _skip: tuple[str, int] | None) -> Self:
        """A dump has begun."""
        self.changes: list[Change] = []
        return self

    def look(self, segment: Segment) -> None:
        """Keep those in the segment."""
        self.changes += _changes(segment)


def _changes(segment: Segment) -> Iterator[Change]:
    for at in other_statements(segment):
        body = segment.buf[int(segment.start[at]) + codes.HEADER_SIZE : int(segment.end[at])].tobytes()
        place = Place.of(segment.file, int(segment.pos[at]))
        query = parse_query(body)
        try:
            sql = decode_statement(query.statement, query.collation)
        except UnsupportedError as error:
            yield Change(place, "", "", None, error.message)
            continue
        statement = parse_statement(
            sql,
            query.db,
            ansi_quotes=bool(query.sql_mode & _ANSI_QUOTES),
            backslash_escapes=not query.sql_mode & _NO_BACKSLASH_ESCAPES,
        )
        text = " ".join(sql[:_STATEMENT_LETTERS].split())
        if statement.kind == "unknown":
            yield Change(place, "", "", None, text)
        for effect in statement.effects:
            if effect.action != "truncate":
                default = "DEFAULT" in sql.upper()
                yield Change(place, effect.db.lower(), effect.table.lower(), effect.adds, text, default)
            if effect.new_db is not None and effect.new_table is not None:
                yield Change(place, effect.new_db.lower(), effect.new_table.lower(), None, text)

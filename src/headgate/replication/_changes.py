"""Which statements of a server's log change table definitions, over one stretch of it: read once, extended as needed.

All transactions count here, whatever a stream has or wants, so the log is read by file and position and not by GTID.
Nothing of it is decoded but its statements; a kernel finds them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headgate.binlog import Segment, codes, other_statements, parse_query
from headgate.catalog import AddedColumn, decode_statement, parse_statement
from headgate.errors import IncompleteReadError, ServerBehindError, ServerError, UnsupportedError
from headgate.mysql import Connection, ConnectionSettings
from headgate.replication._dump import open_file_dump
from headgate.replication._types import file_number

__all__ = ["Change", "Changes", "Place"]

_ANSI_QUOTES = 4
_NO_BACKSLASH_ESCAPES = 1 << 20
_LARGEST_POS = 2**32 - 1
"""COM_BINLOG_DUMP has four bytes for the position."""
_ER_FATAL_READING = 1236
"""ER_SOURCE_FATAL_ERROR_READING_BINLOG: here, that there is no such file."""
_FIRST_EVENT = 4
"""Where a file's first event begins."""
_ATTEMPTS = 6
_PAUSE_SECONDS = 0.01
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

    def __init__(self, settings: ConnectionSettings, server_uuid: str) -> None:
        self._settings = settings
        self._uuid = server_uuid
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
        for attempt in range(_ATTEMPTS):
            if attempt:  # a position that the server names may be ahead of what its dumps see by one flush
                time.sleep(_PAUSE_SECONDS * 2**attempt)
            found, reached = self._dump(first, until)
            if reached >= until[:2]:
                return [change for change in found if first <= change.place < until]
        raise IncompleteReadError("the log ended before a place that it has", file=until.file, pos=until.pos)

    def _written(self, file: str) -> int:
        """When a file was begun, seconds since the Unix epoch; 0 if it is not there."""
        with Connection.open(self._settings) as connection, open_file_dump(connection, file) as dump:
            try:
                for item in dump.items():
                    if isinstance(item, Segment):
                        return int.from_bytes(item.buf[int(item.start[0]) :][:4].tobytes(), "little")
            except ServerError as error:
                if error.code != _ER_FATAL_READING:
                    raise
        return 0

    def _dump(self, first: Place, until: Place) -> tuple[list[Change], tuple[int, int]]:
        """Changes, and how far the log was read."""
        found: list[Change] = []
        reached = (0, 0)
        pos = first.pos if first.pos <= _LARGEST_POS else _FIRST_EVENT
        with Connection.open(self._settings) as connection:
            uuid = str(connection.query("SELECT @@global.server_uuid")[0][0])
            if uuid != self._uuid:
                raise ServerBehindError(f"connected to server {uuid}, but the log is read from {self._uuid}")
            with open_file_dump(connection, first.file, pos) as dump:
                for item in dump.items():
                    if isinstance(item, Segment):
                        found += _changes(item)
                        reached = (file_number(item.file), int(item.next_pos[-1]))
                    else:
                        reached = (file_number(item.file), item.pos)
                    if reached >= until[:2]:
                        break
        return found, reached


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

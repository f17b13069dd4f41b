"""A database, the log since the last mark, and chunks of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from headgate.binlog import Segment
from headgate.binlog._events import Rotate, parse_heartbeat
from headgate.catalog import TableDef, TablePatterns, exact_patterns, load_tables
from headgate.errors import TransportError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.offsets import ChunkSpec, Hint
from headgate.positions import Position
from headgate.replication import DecodeOptions, Idle, ImageBatch, LogBlock, LogRead, follow, read_range
from headgate.replication._dump import Dump
from headgate.snapshot import ChunkOptions, ChunkRead, Redo, advance, first_chunk_bounds, next_chunk, read_chunks
from headgate_testing import MySQLServer
from tests.integration.databases import Database

META = ("_seq", "_gtid", "_ts")


def lose_connections(
    monkeypatch: pytest.MonkeyPatch, lost: Callable[[list[Position]], bool], at_once: int | None = None
) -> None:
    """A dump's connection is lost if ``lost`` says so of what the dump lacked before each of its segments until now.

    :param at_once: a segment's greatest size in bytes.
    """
    whole = Dump.items

    def fragile(dump: Dump) -> Iterator[Any]:
        dump.stream.at_once = at_once or dump.stream.at_once
        lacked: list[Position] = []
        for item in whole(dump):
            lacked += [dump.needed] if isinstance(item, Segment) else []
            if isinstance(item, Segment) and lost(lacked):
                raise TransportError("the connection was lost")
            yield item

    monkeypatch.setattr(Dump, "items", fragile)


def note_heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The event types of the heartbeats that are received from now on."""
    kinds: list[int] = []

    def noted(kind: int, body: bytes, end_pos: int) -> Rotate:
        kinds.append(kind)
        return parse_heartbeat(kind, body, end_pos)

    monkeypatch.setattr("headgate.binlog._frame.parse_heartbeat", noted)
    return kinds


class Log(Database):
    """What happens to a database, by the log and by its tables."""

    def __init__(self, server: MySQLServer, db: str, *, create: bool = True) -> None:
        super().__init__(server, db)
        self.settings = ConnectionSettings.from_url(server.url)
        if create:
            server.execute(f"CREATE DATABASE {db}")
        self.mark()

    @property
    def tables(self) -> TablePatterns:
        return TablePatterns([f"{self.db}.*"])

    def executed(self) -> GtidSet:
        with Connection.open(self.settings) as connection:
            return gtid_executed(connection)

    def mark(self) -> None:
        """Read from here on."""
        self.start = self.executed()

    def read(
        self,
        *tables: str,
        start: GtidSet | None = None,
        end: GtidSet | None = None,
        hint: Hint | None = None,
        uuid: str | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """Everything between two positions, by default since the mark, of these tables, by default the database's."""
        end = self.executed() if end is None else end
        wanted = end - (self.start if start is None else start)
        read = LogRead(self.settings, wanted=wanted, executed=end, hint=hint, server_uuid=uuid)
        patterns = TablePatterns(tables) if tables else self.tables
        return iter(read_range(read, DecodeOptions(patterns, **{"epoch": 1, **options})))

    def items(self, *tables: str, **options: Any) -> list[Any]:
        """What :meth:`read` reads."""
        return list(self.read(*tables, **options))

    def rows(self, *tables: str, **options: Any) -> list[dict[str, Any]]:
        """The images that :meth:`read` reads."""
        return plain(self.items(*tables, **options))

    def between(self, start: GtidSet, end: GtidSet) -> list[dict[str, Any]]:
        """The images of a range of the log."""
        return self.rows(start=start, end=end)

    def chunks(self, chunks: Sequence[ChunkSpec], end: GtidSet | None = None, **options: Any) -> list[Any]:
        """What a task reads of chunks as of ``end`` (default: now)."""
        end = self.executed() if end is None else end
        read = ChunkRead(self.settings, chunks, end, self.server.server_uuid, epoch=1, planned_us=0)
        return list(read_chunks(read, ChunkOptions(**options)))

    def chunk(self, table: str, end: GtidSet | None = None, **options: Any) -> list[dict[str, Any]]:
        """The whole table, as a snapshot reads it as of ``end`` (default: now)."""
        items = self.chunks([ChunkSpec(f"{self.db}.{table}", 0, None, None)], end, **options)
        assert not any(isinstance(item, Redo) for item in items), str(items)
        return plain(items)

    def planned(self, table: str, rows: int) -> list[ChunkSpec]:
        """The chunks of a table, each of so many rows."""
        with Connection.open(self.settings) as connection:
            (definition,) = load_tables(connection.query, exact_patterns([f"{self.db}.{table}"]))
            return planned(connection.query, definition, rows)

    def following(self) -> Following:
        """A stream from the mark on that stays open."""
        return Following(self)


class Following:
    """A stream that is asked for what is new, as often as one likes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stream = follow(log.settings, log.start, DecodeOptions(log.tables))

    def items(self) -> list[Any]:
        """Everything up to what the server has executed now."""
        goal, met = self._log.executed(), []
        for item in self._stream:
            met.append(item)
            if isinstance(item, Idle) and goal <= item.gtid:
                break
        return met

    def rows(self) -> list[dict[str, Any]]:
        return plain(self.items())

    def close(self) -> None:
        self._stream.close()  # type: ignore[attr-defined]


def planned(query: Callable[..., list[tuple[Any, ...]]], table: TableDef, rows: int) -> list[ChunkSpec]:
    """The chunks of a table, each of so many rows."""
    progress, chunks = first_chunk_bounds(query, table, epoch=1, rows=rows), list[ChunkSpec]()
    while chunk := next_chunk(query, table, progress, rows):
        chunks.append(chunk)
        progress = advance(progress, chunk, rows)
    return chunks


def images(items: Iterable[Any]) -> list[dict[str, Any]]:
    """All row images in the order of ``_seq``, which is a tuple, each with the name of its ``table``."""
    rows = [
        {**row, "_seq": tuple(row["_seq"].values()), "table": image.table.full_name}
        for image in _images(items)
        for row in image.batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["_seq"])


def plain(items: Iterable[Any]) -> list[dict[str, Any]]:
    """Images in log order: the table's columns and ``_op``."""
    rows = [row for image in _images(items) for row in image.batch.to_pylist()]
    rows.sort(key=lambda row: tuple(row["_seq"].values()))
    return [{name: value for name, value in row.items() if name not in META} for row in rows]


def _images(items: Iterable[Any]) -> Iterator[ImageBatch]:
    for item in items:
        if isinstance(item, LogBlock):
            yield from item.images
        elif isinstance(item, ImageBatch):
            yield item

"""A database of one's own on a server whose settings a test may change, and the log since the last mark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.catalog import TablePatterns
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.offsets import ChunkSpec
from headgate.replication import DecodeOptions, Idle, ImageBatch, LogBlock, LogRead, follow, read_range
from headgate.snapshot import ChunkOptions, ChunkRead, Redo, read_chunks
from headgate_testing import MySQLServer

META = ("_seq", "_gtid", "_ts")


class Log:
    """What happens to a database, by the log and by its tables."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db = server, db
        self.settings = ConnectionSettings.from_url(server.url)
        server.execute(f"CREATE DATABASE {db}")
        self.mark()

    @property
    def tables(self) -> TablePatterns:
        return TablePatterns([f"{self.db}.*"])

    def do(self, *statements: str, charset: str = "utf8mb4") -> None:
        """Run them in a session of their own."""
        with (
            self.server.connect(database=self.db, autocommit=True, charset=charset) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)

    def executed(self) -> GtidSet:
        with Connection.open(self.settings) as connection:
            return gtid_executed(connection)

    def mark(self) -> None:
        """Read from here on."""
        self.start = self.executed()

    def items(self, **options: Any) -> list[Any]:
        """Everything since the mark."""
        end = self.executed()
        return list(
            read_range(
                LogRead(self.settings, wanted=end - self.start, executed=end),
                DecodeOptions(self.tables, epoch=1, **options),
            )
        )

    def rows(self, **options: Any) -> list[dict[str, Any]]:
        """The images since the mark."""
        return plain(self.items(**options))

    def between(self, start: GtidSet, end: GtidSet) -> list[dict[str, Any]]:
        """The images of a range of the log."""
        return plain(
            list(
                read_range(
                    LogRead(self.settings, wanted=end - start, executed=end), DecodeOptions(self.tables, epoch=1)
                )
            )
        )

    def chunk(self, table: str, end: GtidSet | None = None, **options: Any) -> list[dict[str, Any]]:
        """The whole table, as a snapshot reads it as of ``end`` (default: now)."""
        end = self.executed() if end is None else end
        with Connection.open(self.settings) as connection:
            uuid = str(connection.query("SELECT @@global.server_uuid")[0][0])
        chunk = ChunkSpec(f"{self.db}.{table}", 0, None, None)
        read = ChunkRead(self.settings, [chunk], end, uuid, epoch=1, planned_us=0)
        items = list(read_chunks(read, ChunkOptions(**options)))
        assert not any(isinstance(item, Redo) for item in items), str(items)
        return plain(items)

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


def plain(items: list[Any]) -> list[dict[str, Any]]:
    """Images in log order: the table's columns and ``_op``."""
    rows = [row for image in _images(items) for row in image.batch.to_pylist()]
    rows.sort(key=lambda row: tuple(row["_seq"].values()))
    return [{name: value for name, value in row.items() if name not in META} for row in rows]


def _images(items: list[Any]) -> Iterator[ImageBatch]:
    for item in items:
        if isinstance(item, LogBlock):
            yield from item.images
        elif isinstance(item, ImageBatch):
            yield item

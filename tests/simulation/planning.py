"""The planner's view of the simulated source (``headgate.spark._server.Server``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from headgate.catalog import TableDef, TablePatterns, TableStats, exact_patterns
from headgate.errors import ConnectionLostError, HeadgateError, HistoryRewrittenError, ServerBehindError
from headgate.offsets import Hint
from headgate.positions import Position, parse_position
from headgate.replication import TransactionHeader
from headgate.spark import ServerState
from tests.simulation.rooms import DirectLog
from tests.simulation.source import UUIDS, Server, gtids
from tests.simulation.tables import SHAPES
from tests.simulation.world import World

__all__ = ["SimulatedServer"]

_position: Final = lru_cache(maxsize=65_536)(parse_position)
_RANGE: Final = re.compile(r"`id` (>|<=) (-?\d+)")


class SimulatedServer(DirectLog):
    """One connection, which is replaced when it breaks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = world.connection
        self._open: Server | None = None
        self.connection_number = 0

    @property
    def reached(self) -> Server | None:
        """The server at the other end, if the connection is open."""
        return self._open

    def _ask(self) -> Server:
        """Come to a boundary; return the server at the other end."""
        world = self._world
        world.pause()
        if self._open is not None and self._seen != world.connection:
            raise ConnectionLostError("the connection was lost")
        if self._open is None:
            self._open, self._seen = world.server, world.connection
        return self._open

    def executed(self) -> Position:
        return self._ask().executed_set()

    def state(self, *, whole: bool = False) -> ServerState:
        del whole
        executed = self._ask().executed_set()
        server = self._ask()
        return ServerState(server.uuid, executed, server.purged_set())

    def identity(self) -> str:
        return self._ask().uuid

    def tables(self, patterns: TablePatterns) -> Mapping[str, TableStats]:
        server = self._ask()
        rows = server.states[server.visible]
        return {
            table: TableStats("InnoDB", SHAPES[table].count(rows[table]), 0)
            for table in rows
            if patterns.matches(*table.split("."))
        }

    def definition(self, table: str) -> TableDef | None:
        return self.definitions(exact_patterns([table])).get(table)

    def definitions(self, patterns: TablePatterns) -> Mapping[str, TableDef]:
        return {table: SHAPES[table].definition for table in self.tables(patterns)}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        server = self._ask()
        table = "d." + re.findall(r"FROM `d`\.`(\w+)`", sql)[0]
        bounds = {sign: int(number) for sign, number in _RANGE.findall(sql)}
        low, high = bounds.get(">", -1 << 60), bounds.get("<=", 1 << 60)
        offset = int(sql.rpartition("OFFSET ")[2])
        rows = server.states[server.visible].get(table, {})
        keys = sorted((key for key in rows if low < key <= high), reverse="DESC" in sql)
        return [(str(keys[offset]),)] if offset < len(keys) else []

    def log_file(self) -> str:
        server = self._ask()
        return server.file_of(len(server.log))[0]

    def log_files(self) -> list[tuple[str, int]]:
        server = self._ask()
        ends = [first for _, first in server.files[1:]] + [len(server.log)]
        return [
            (f"binlog.{number:06d}", 4 + 100 * (end - first))
            for (number, first), end in zip(server.files, ends, strict=True)
        ]

    def previous_gtids(self, file: str) -> Position:
        server = self._ask()
        first = next((first for number, first in server.files if number == int(file[-6:])), server.purged)
        return gtids(server.counts[first])

    def start_position(self, start: str) -> Position:
        return parse_position(start)

    def cut(self, had: Position, executed: Position, rows: int, hint: Hint | None) -> Position:
        del hint
        server = self._ask()
        last, end, changes = server.length_of(had), server.length_of(executed), 0
        while last < end and changes < rows:
            changes += len(server.log[last].images)
            last += 1
        cut: Position = gtids(server.counts[last])
        return had | cut

    def _header(self, server: Server, index: int) -> TransactionHeader:
        one = server.log[index]
        file, pos, created_s = server.file_of(index)
        return TransactionHeader(_position(one.gtid), one.commit_us, True, server.uuid, file, pos, created_s)

    def headers(self, part: Position, hint: Hint | None) -> list[TransactionHeader]:
        del hint
        server = self._ask()
        indexes = server.indexes(part)
        self._world.count("header read", len(indexes))
        return [] if any(index < server.purged for index in indexes) else [self._header(server, i) for i in indexes]

    def last_header(self, header: TransactionHeader, executed: Position, wanted: Position) -> TransactionHeader:
        del executed
        server = self._ask()
        indexes = server.indexes(wanted | header.key)
        return self._header(server, indexes[-1]) if indexes and indexes[-1] >= server.purged else header

    def missing_error(self, missing: Position, *, server_uuid: str, had_them: bool, behind: str) -> HeadgateError:
        """By the rule of ``headgate.mysql.missing_error``: a replica may receive what it lacks."""
        receives = server_uuid != UUIDS[self._world.primary]
        if missing.is_in_log_of(server_uuid) or (had_them and not receives):
            return HistoryRewrittenError(f"it had executed {missing} and now lacks that")
        return ServerBehindError(behind, missing=str(missing))

    def commit_watermark(self, table: str, data: str) -> None:
        raise NotImplementedError

    def drop(self) -> None:
        self._open = None
        self.connection_number += 1

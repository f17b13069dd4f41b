"""Where the rows of a bootstrap come from: MySQL itself, by exact chunks; or what a reader above this room supplies.

A supplier divides a source into parts, one after the other, and reads each as of a GTID set. What it must keep to:

- all parts together hold every row of the table, whenever they are planned and read;
- a part read again as of the same set gives the same rows, or :class:`PartGoneError`.

:class:`ChunkSupplier` reads MySQL by the chunks of :mod:`headgate.snapshot`, which proves both: bounds cover every
possible key, and a chunk is turned back to the set by the log since. It takes no locks and needs nothing but read
access.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from headgate._policies import Policies
from headgate.catalog import TableDef, TableStats, exact_patterns, load_stats, load_table
from headgate.errors import ServerBehindError, SnapshotRefusedError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings
from headgate.offsets import SnapshotProgress
from headgate.relay._sources import LogicalSource
from headgate.replication import META_FIELDS, ImageBatch, LogHint, check_settings
from headgate.snapshot import Chunk, Redo, advance, first_chunk_bounds, next_chunk, read_chunks

__all__ = [
    "Beginning",
    "ChunkSupplier",
    "PartGoneError",
    "PlanGoneError",
    "Rows",
    "Supplier",
    "keyed_table",
    "rows_of_chunks",
]

_CHUNK_ROWS: Final = 20_000
"""Rows of a chunk at most: some MB of events, which stay in memory while a consumer takes them."""
_CHUNK_BYTES: Final = 32 << 20
"""Of a table with larger rows so many bytes of them, by the server's estimate, or one."""
_FRESH: Final = "SET @headgate = NULL /*!80000 , SESSION information_schema_stats_expiry = 0 */"
"""Estimates as they are now, and not as somebody asked for them a day ago."""
_EXECUTED_SECONDS: Final = 10
"""How long the server may take to make visible what it has logged. It is milliseconds."""


class PartGoneError(Exception):
    """A part cannot be read as of the wanted set; as of a later one it may be."""


class PlanGoneError(Exception):
    """The parts mean nothing any more: the bootstrap has to begin again."""


class Rows(NamedTuple):
    """The rows of a part."""

    table: TableDef
    columns: pa.Table
    """The table's columns in its order, as its codecs make them."""


@dataclass(frozen=True)
class Beginning:
    """What a bootstrap's rows will be of."""

    gtid: GtidSet | None
    """All rows are as of this set; None: each part is as of what the relay has when it is read."""
    token: Mapping[str, Any]
    """What is needed to find the same rows again, in JSON."""


class Supplier(Protocol):
    """Supplies the rows of one physical source's tables; for any number of threads."""

    def begin(self) -> Beginning:
        """A new bootstrap. Raises HeadgateErrors."""

    def plan(
        self, source: LogicalSource, token: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The part after ``before`` (None: the first), in JSON; None: there are no more.

        :raises PlanGoneError: ``before`` means nothing any more.
        """

    def read(
        self,
        source: LogicalSource,
        token: Mapping[str, Any],
        part: Mapping[str, Any],
        executed: GtidSet,
        hint: LogHint | None,
    ) -> Rows | None:
        """The rows of a part; None: it has none.

        :param executed: as of this set.
        :param hint: where a reader of the log that has it may begin.
        :raises HeadgateError: the rows cannot be read, or would not be exact.
        :raises PartGoneError: that cannot be; PlanGoneError: at no other one either.
        """


class ChunkSupplier:
    """Reads MySQL.

    :param policies: as the relay's reader of the log has them, so that values are the same.
    """

    def __init__(self, settings: ConnectionSettings, policies: Policies, chunk_rows: int = _CHUNK_ROWS) -> None:
        self._settings, self._policies, self._chunk_rows = settings, policies, chunk_rows

    def begin(self) -> Beginning:
        """Nothing has to be prepared."""
        return Beginning(None, {})

    def plan(
        self, source: LogicalSource, token: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The next chunk, and how far the plan is with it."""
        del token
        with Connection.open(self._settings) as connection:
            table = keyed_table(connection, source)
            if before is None:
                connection.query(_FRESH)
                stats = load_stats(connection.query, exact_patterns([source.table])).get(source.table)
                rows = rows_of_chunks(stats, self._chunk_rows)
                progress = first_chunk_bounds(
                    connection.query, table, epoch=0, rows=rows, rows_estimate=0 if stats is None else stats.rows
                )
            elif before["key"] != list(table.key_names):
                raise PlanGoneError(f"{source.table} has another key than when its bootstrap began")
            else:
                progress = SnapshotProgress.from_dict(before["progress"])
                rows = before.get("rows", self._chunk_rows)
            chunk = next_chunk(connection.query, table, progress, rows)
        if chunk is None:
            return None
        after = advance(progress, chunk).to_dict()
        return {"chunk": chunk.to_dict(), "progress": after, "key": list(table.key_names), "rows": rows}

    def read(
        self,
        source: LogicalSource,
        token: Mapping[str, Any],
        part: Mapping[str, Any],
        executed: GtidSet,
        hint: LogHint | None,
    ) -> Rows | None:
        """The chunk as of ``executed``, by key: the order is part of what a place in it means."""
        del token
        with Connection.open(self._settings) as connection:
            _await_executed(connection, executed)
            uuid = check_settings(connection, exact_patterns([source.table])).server_uuid
        found = list(
            read_chunks(
                self._settings,
                [Chunk.from_dict(part["chunk"])],
                executed=executed,
                server_uuid=uuid,
                epoch=0,
                planned_us=time.time_ns() // 1000,
                policies=self._policies,
                hint=hint,
            )
        )
        for item in found:
            if isinstance(item, Redo):
                raise (PlanGoneError if item.whole_table else PartGoneError)(f"{source.table}: {item.reason}")
        images = [item for item in found if isinstance(item, ImageBatch) and item.batch.num_rows]
        if not images:
            return None
        table = images[0].table
        columns = pa.Table.from_batches([one.batch for one in images]).select(
            range(len(META_FIELDS), len(META_FIELDS) + len(table.columns))
        )
        return Rows(table, columns.sort_by([(name, "ascending") for name in table.key_names]))


def rows_of_chunks(stats: TableStats | None, most: int) -> int:
    """How many rows a chunk shall have.

    :param stats: what the server says of the table; its estimate of a few rows may be none.
    """
    if stats is None or not stats.data_bytes:
        return most
    return max(1, min(most, _CHUNK_BYTES * max(stats.rows, 1) // stats.data_bytes))


def keyed_table(connection: Connection, source: LogicalSource) -> TableDef:
    """A table whose rows can be bootstrapped.

    :raises SnapshotRefusedError: it is not there.
    :raises UnsupportedError: it has no key.
    """
    db, _, name = source.table.partition(".")
    found = load_table(connection.query, db, name)
    if found is None:
        raise SnapshotRefusedError("the table does not exist, or the account may not see it", table=source.table)
    if not found.table.key:
        raise UnsupportedError(
            "a table without a key cannot be bootstrapped: events do not say which of its rows they change",
            table=source.table,
        )
    return found.table


def _await_executed(connection: Connection, executed: GtidSet) -> None:
    """Wait until the set is visible, which the log is ahead of."""
    text = str(executed)
    if text:
        late = connection.query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (text, _EXECUTED_SECONDS))[0][0]
        if late is None or int(late):
            raise ServerBehindError("the server lacks transactions that the relay has: wait for it", missing=text)

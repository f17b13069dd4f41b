"""Suppliers of bootstrap rows: MySQL, by exact chunks.

A supplier divides a source into a sequence of parts, and reads each as of a GTID set. It guarantees:

- all parts together hold every row of the table, whenever they are planned and read;
- a part read again as of the same set has the same rows, or the read raises :class:`PartGoneError`.

:class:`ChunkSupplier` reads MySQL by the chunks of :mod:`headgate.snapshot`, which prove both: bounds cover every
possible key, and the log since the set turns a chunk back to it. It takes no locks and needs only read access.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import TableDef, TableStats, exact_patterns, load_stats, load_table
from headgate.errors import ServerBehindError, SnapshotRefusedError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, check_required
from headgate.names import with_positional_names
from headgate.offsets import Hint, SnapshotProgress
from headgate.policies import Policies
from headgate.relay.server._sources import LogicalSource
from headgate.replication import META_FIELDS, ImageBatch
from headgate.snapshot import (
    Chunk,
    ChunkOptions,
    ChunkRead,
    Redo,
    advance,
    first_chunk_bounds,
    next_chunk,
    read_chunks,
    same_order,
)

__all__ = ["ChunkSupplier", "PartGoneError", "PlanGoneError", "Rows", "Supplier", "rows_of_chunks"]

_CHUNK_ROWS: Final = 20_000
"""Most rows of a chunk: some MB of events, in memory while a consumer reads them."""
_CHUNK_BYTES: Final = 32 << 20
"""Most bytes of a chunk of a table with larger rows, by the server's estimate; at least one row."""
_FRESH: Final = "SET @headgate = NULL /*!80000 , SESSION information_schema_stats_expiry = 0 */"
"""Makes MySQL return current estimates instead of ones cached up to a day ago."""
_EXECUTED_SECONDS: Final = 10
"""How long the server may take to make logged transactions visible. It is usually milliseconds."""


class PartGoneError(Exception):
    """A part cannot be read as of the wanted GTID set. It may be readable as of a later one."""


class PlanGoneError(Exception):
    """The planned parts are invalid: the consumer has to start another bootstrap."""


class Rows(NamedTuple):
    """The rows of a part."""

    table: TableDef
    columns: pa.Table
    """The table's columns in its order, as its codecs return them."""


class Supplier(Protocol):
    """Supplies the rows of one physical source's tables; safe for any number of threads."""

    def plan(self, source: LogicalSource, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the part after ``before`` (None: the first), in JSON; None: ``before`` is the last.

        :raises PlanGoneError: ``before`` is invalid now.
        """

    def read(self, source: LogicalSource, part: Mapping[str, Any], executed: GtidSet, hint: Hint | None) -> Rows | None:
        """Return the rows of a part; None: it has none.

        :param executed: read as of this set.
        :param hint: log position for a reader that has this set.
        :raises HeadgateError: the rows cannot be read, or would not be exact.
        :raises PartGoneError: not readable as of this set; PlanGoneError: nor as of any other.
        """


class ChunkSupplier:
    """Reads MySQL.

    :param policies: the policies of the relay's log reader, so that values are the same.
    """

    def __init__(self, settings: ConnectionSettings, policies: Policies, chunk_rows: int = _CHUNK_ROWS) -> None:
        self._settings, self._policies, self._chunk_rows = settings, policies, chunk_rows

    def plan(self, source: LogicalSource, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the next chunk, and the plan's progress after it."""
        with Connection.open(self._settings) as connection:
            table = _keyed_table(connection, source)
            if before is None:
                connection.query(_FRESH)
                stats = load_stats(connection.query, exact_patterns([source.table])).get(source.table)
                rows = rows_of_chunks(stats, self._chunk_rows)
                progress = first_chunk_bounds(
                    connection.query, table, epoch=0, rows=rows, rows_estimate=0 if stats is None else stats.rows
                )
            else:
                progress = SnapshotProgress.from_dict(before["progress"])
                if not same_order(table, progress):
                    raise PlanGoneError(f"the key of {source.table}, or its order, changed since its bootstrap began")
                rows = before.get("rows", self._chunk_rows)
            chunk = next_chunk(connection.query, table, progress, rows)
        if chunk is None:
            return None
        after = advance(progress, chunk, rows).to_dict()
        return {"chunk": chunk.to_dict(), "progress": after, "rows": rows}

    def read(self, source: LogicalSource, part: Mapping[str, Any], executed: GtidSet, hint: Hint | None) -> Rows | None:
        """Return the chunk as of ``executed``, sorted by key: an offset in it depends on the order."""
        with Connection.open(self._settings) as connection:
            _await_executed(connection, executed)
            uuid = check_required(connection, kinds=[GtidSet]).server_uuid
        items = list(
            read_chunks(
                ChunkRead(
                    self._settings,
                    [Chunk.from_dict(part["chunk"])],
                    executed,
                    uuid,
                    epoch=0,
                    planned_us=time.time_ns() // 1000,
                    hint=hint,
                ),
                ChunkOptions(self._policies),
            )
        )
        for item in items:
            if isinstance(item, Redo):
                raise (PlanGoneError if item.whole_table else PartGoneError)(f"{source.table}: {item.reason}")
        images = [item for item in items if isinstance(item, ImageBatch) and item.batch.num_rows]
        if not images:
            return None
        table = images[0].table
        columns = pa.Table.from_batches([one.batch for one in images]).select(
            range(len(META_FIELDS), len(META_FIELDS) + len(table.columns))
        )
        keys = with_positional_names(columns.select(table.key_names))
        return Rows(table, columns.take(pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])))


def rows_of_chunks(stats: TableStats | None, most: int) -> int:
    """Return the number of rows per chunk.

    :param stats: the server's statistics; the estimate for a few rows may be 0.
    """
    if stats is None or not stats.data_bytes:
        return most
    return max(1, min(most, _CHUNK_BYTES * max(stats.rows, 1) // stats.data_bytes))


def _keyed_table(connection: Connection, source: LogicalSource) -> TableDef:
    """Load a table whose rows can be bootstrapped.

    :raises SnapshotRefusedError: it does not exist, or is invisible.
    :raises UnsupportedError: it has no key.
    """
    db, _, name = source.table.partition(".")
    loaded = load_table(connection.query, db, name)
    if loaded is None:
        raise SnapshotRefusedError("the table does not exist, or the account may not see it", table=source.table)
    if not loaded.table.key:
        raise UnsupportedError(
            "a table without a key cannot be bootstrapped: events do not say which of its rows they change",
            table=source.table,
        )
    return loaded.table


def _await_executed(connection: Connection, executed: GtidSet) -> None:
    """Wait until the set is visible; the log is ahead of that.

    :raises ServerBehindError: not after 10 s.
    """
    text = str(executed)
    if text:
        late = connection.query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (text, _EXECUTED_SECONDS))[0][0]
        if late is None or int(late):
            raise ServerBehindError("the server lacks transactions that the relay has: wait for it", missing=text)

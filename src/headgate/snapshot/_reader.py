"""Read chunks exactly as of a GTID set E, without locks, writes or coordination: one task, any number of chunks.

The argument
============

It rests on four facts about the server:

1. A transaction enters ``gtid_executed`` after its engine commit. So a SELECT begun after E was read from there has a
   read view R ⊇ E. (The planner read E. On the connection of its SELECT, the task checks again that this server is the
   planned one and has executed E.)
2. A transaction reaches the log before its engine commit. So everything visible in R is before the log position noted
   after the SELECT.
3. One SELECT of InnoDB is one read view.
4. A dump from E returns everything after E, in order, whole; ``headgate.replication`` proves that it reached the noted
   position or fails.

So W, the log from E to at least the noted position, holds every transaction that R has and E has not, and perhaps later
ones. ``headgate.snapshot._window`` proves that W and the SELECT's rows give the rows as of E.

W of a later chunk of the task contains W of an earlier one. By the proof, W may reach beyond R.

On restart
==========

No state is stored. The same chunks and the same E give the same rows, as long as W is not purged and holds no DDL of
the table. With DDL, the chunk gives a ``Redo``, and a later batch with a later E reads the range again.

When a chunk gives a ``Redo``
=============================

- DDL of the chunk's table in W (DROP DATABASE, too; not CREATE TABLE IF NOT EXISTS), a definition that changed during
  the read, or a missing table: the images cannot distinguish the rows before and after.
- A TRUNCATE of the table in W: the rows that it removed and W had not touched before are in no image. Only a typed
  stream, which a ``Redo`` would end, accepts the remaining rows (``truncate="keep"``): its ``t`` image follows.
- A partial update of the key in W, if rows are kept.
- A filter that MySQL cannot evaluate on a row as it was at E (``snapshot/_filters.py``), if such a row is needed.
- A filter that the server refuses while rows are read: then with ``whole_table``, because it would refuse it again.
- A table without a key, if W touches it and no lock determines which of its changes the SELECT has seen: images do not
  identify which of several equal rows they mean. A retry or restart at the same E cannot help, because W would begin
  with the same changes.
- An image in W whose key cannot be distinguished from another: which key it touches is unknown.

A row with such a key in the SELECT's result gives an ``UnreadableRows`` instead: it would exist at a later E, too. So
does a table that lacks a column of its ``rows``, or whose chosen key does not identify the chunk's rows, and a value
that MySQL cut.

Rows that are kept
==================

If before-images leave columns out (``binlog_row_image`` MINIMAL or NOBLOB), a row cannot be rewound. With
``Policies.window = "keep"`` none is: the chunk holds the rows as its SELECT returned them, the range as of some R ⊇ E,
between E and the end of W. The changes after E are then applied to these rows again. An insert or a whole image sets
the row again. A partial update sets the columns that it changed; every column that a change between E and R set is set
again by that same change, so after the last of them the row is what it was at R. If an update or delete finds no row
for its key, a later delete came first, and it does nothing. So the table is exact again as soon as the changes up to R
are applied. R itself is unknown, but W contains it: if W touches the table, a ``HighWatermark`` with everything up to
W's end follows the chunks. If W does not touch the table, the rows are exact at E.

The exception is a partial update that changes the key: the columns it leaves out are those of the row at its old key,
and after R another row may have that key. If W contains one, the chunk is retried (``Redo``). If the old key is in a
range that was not read yet, the sink finds no row for the update and has to request the table again.

Rows that are dropped
=====================

With ``Policies.window = "drop"`` the rows that W touches are left out, as in DBLog: their changes come with the stream.
As with kept rows, the range is exact when the changes up to W's end have been applied, and a ``HighWatermark`` reports
this. Until then a row may be missing instead of too new.

Under locks
===========

With ``locks`` all chunks are read from one view, opened while their tables are locked (``snapshot/_locks.py``). Then W,
up to the view's position, is exactly what the view has and E has not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.carrier import HighWatermark, Redo, UnreadableRows
from headgate.catalog import Column, TableDef, check_visible, exact_patterns, load_stats, load_table
from headgate.columns import PASSES_FIELD, TableCodec, excluded_by_name
from headgate.errors import (
    ChunkRetryError,
    CutValueError,
    DecodeError,
    Definite,
    HeadgateError,
    SchemaChangedError,
    ServerBehindError,
    ServerError,
    SnapshotRefusedError,
    UnreadableTableError,
    UnsupportedError,
)
from headgate.kernels import RowBlock
from headgate.mysql import Connection, missing_error, select_blocks
from headgate.names import quote_name
from headgate.offsets import ChunkSpec
from headgate.positions import Position, read_executed
from headgate.replication import (
    ABSENT_FIELD,
    GTID_TYPE,
    META_FIELDS,
    SNAPSHOT_FILE,
    SNAPSHOT_POS,
    ImageBatch,
    canonical_schema,
    op_array,
    seq_array,
    stop_reason,
)
from headgate.snapshot._filters import Undecided, fulfils
from headgate.snapshot._locks import ReadView, open_view
from headgate.snapshot._request import ChunkOptions, ChunkRead
from headgate.snapshot._task_log import TaskLog
from headgate.snapshot._undo import undo
from headgate.snapshot._window import Window
from headgate.snapshot.keys import bound_columns, key_order, range_condition
from headgate.snapshot.ranges import in_range, key_conditions

__all__ = ["check_server", "read_chunks"]

_BATCH_ROWS = 1 << 14
"""Most rows of an emitted batch: fits a core's cache on its way to the next process."""
_SELECT_SECONDS = 600
"""Longest run of a chunk's SELECT: DDL waits for it, and later statements wait for the DDL."""
_WHOLE_SELECT_SECONDS = 7 * 86_400
"""The same of a table that cannot be divided: it has no key of MySQL."""
_NO_SUCH_TABLE = frozenset({1049, 1054, 1146, 1412})
"""Unknown database, unknown column, no such table, definition changed: the table changed during the SELECT."""
_TIMED_OUT = 3024
"""ER_QUERY_TIMEOUT: max_execution_time was exceeded."""


def _is_divided(table: TableDef, chunk: ChunkSpec) -> bool:
    """Whether the table can be read in several chunks."""
    return bool(table.key) or chunk.surrogate is not None


def _select_seconds(table: TableDef, chunk: ChunkSpec) -> int:
    return _SELECT_SECONDS if _is_divided(table, chunk) else _WHOLE_SELECT_SECONDS


class _RetryChunk(Exception):
    """Ends the read of one chunk; becomes its ``Redo``."""

    def __init__(self, reason: str, *, whole_table: bool = False) -> None:
        super().__init__(reason)
        self.whole_table = whole_table


def read_chunks(
    read: ChunkRead, options: ChunkOptions | None = None
) -> Generator[ImageBatch | Redo | UnreadableRows | HighWatermark, None, None]:
    """Yield each chunk's rows exactly as of E, as ``r`` images; or one ``Redo`` or ``UnreadableRows`` in their place.

    A chunk yields batches only after all checks have passed, so never both. An empty chunk yields one batch without
    rows: that it was read, and its definition, count too. With ``Policies.window`` ``keep`` or ``drop`` one
    ``HighWatermark`` for each table that was written meanwhile follows the chunks: only then is a row not as of E.

    Its connections and locks last until its end: close it, if it is left early.

    :raises ServerBehindError: not the planned server, or it lacks part of E.
    :raises SnapshotRefusedError: the table's engine has no consistent reads, or a key cannot be compared.
    :raises UnsupportedError: a row cannot be rewound, because its image leaves columns out.
    :raises AmbiguousKeyError: a row's key cannot be distinguished from another, with ``ambiguous="raise"``.
    :raises CutValueError: MySQL cut a value, because it exceeds a limit of the server, with ``ambiguous="raise"``.
    :raises AccessError: the account may not SELECT a column that no rule excludes.
    :raises RowFilterError: the table's ``rows`` does not fit it, with ``ambiguous="raise"``.
    :raises ChosenKeyError: the key that its policies choose does not identify its rows, with ``ambiguous="raise"``.
    :raises ChunkRetryError: a SELECT took too long, its table changed, or tables could not be locked.
    """
    if not read.chunks:
        return
    options = options or ChunkOptions()

    def check(connection: Connection) -> None:
        check_server(connection, read.executed, read.server_uuid)

    with Connection.open(read.settings) as connection, ExitStack() as stack:
        check(connection)
        view = ReadView(connection)
        tables = _existing(connection, read.chunks) if options.locks is not None else []
        if options.locks is not None and tables:
            view = stack.enter_context(open_view(read.settings, tables, options.locks, check))
        log = TaskLog(read, options.policies)
        task = _Task(connection, view, log, read.chunks[-1], options)
        stamp = _Stamp(read, report_absent=options.partial == "tell")
        watermarks: dict[str, HighWatermark] = {}  # a table's last one is that of all its chunks: the window only grows
        for chunk in read.chunks:
            try:
                table, rows = task.read(chunk)
            except _RetryChunk as retry:
                yield Redo(chunk, str(retry), retry.whole_table)
            except UnreadableTableError as error:
                if options.ambiguous == "raise":
                    raise
                yield UnreadableRows(chunk.table, stop_reason(error, chunk.table), chunk=chunk.number)
            else:
                yield from stamp.batches(table, rows)
                watermark = log.watermark(chunk.table)
                if task.rewinds(chunk.table) and watermark is not None:
                    watermarks[chunk.table] = watermark
        yield from watermarks.values()


def _existing(connection: Connection, chunks: Sequence[ChunkSpec]) -> list[tuple[str, str]]:
    """Return the chunks' tables that exist, as (db, table)."""
    names = sorted({chunk.table for chunk in chunks})
    stats = load_stats(connection.query, exact_patterns(names))
    parts = [name.partition(".") for name in names if name in stats]
    return [(db, table) for db, _, table in parts]


def check_server(connection: Connection, executed: Position, server_uuid: str) -> None:
    """Check that the server behind this connection is the planned one and has executed ``executed``.

    :raises ServerBehindError: otherwise; a proxy may direct a connection to any server, so a retry may help.
    :raises HistoryRewrittenError: it is, and has lost what it had.
    """
    log = read_executed(connection)
    if log.server_uuid != server_uuid:
        raise ServerBehindError(f"connected to server {log.server_uuid}, but the chunk was planned on {server_uuid}")
    missing = executed - log.executed
    if missing:
        raise missing_error(
            connection,
            missing,
            server_uuid=server_uuid,
            had_them=True,
            behind="the server lacks transactions that the snapshot needs: wait for it, or connect to another server",
        )


class _Task:
    """Reads chunks one after another from one view.

    :param connection: for everything except the chunks' SELECTs.
    :param last: the last chunk.
    """

    def __init__(
        self, connection: Connection, view: ReadView, log: TaskLog, last: ChunkSpec, options: ChunkOptions
    ) -> None:
        self._connection, self._view, self._log, self._last = connection, view, log, last
        self._policies, self._truncate, self._only = options.policies, options.truncate, options.only
        self._report_absent = options.partial == "tell"
        self._windows: dict[str, Window] = {}
        self._tables: dict[str, TableDef] = {}

    def rewinds(self, table: str) -> bool:
        """Return whether a key of MySQL identifies the rows of ``db.table``, of which a chunk was read."""
        return bool(self._tables[table].key)

    def read(self, chunk: ChunkSpec) -> tuple[TableDef, pa.Table]:
        """Return the chunk's table, as it is written and with its chosen key, and its rows as of E.

        :raises _RetryChunk: it must be read at another E.
        """
        table = self._define(chunk)
        codec = TableCodec(table, self._policies)
        rows = self._select(chunk, table, codec)
        if chunk == self._last:
            self._view.release()
        if self._load(chunk.table) != table:
            raise _RetryChunk("the table's definition changed while it was read")
        self._tables[chunk.table] = table
        self._log.extend(*(self._view.end or self._connection.log_status()))
        self._check_log(chunk)
        # Rows are left out last: the window needs to see every row and every image.
        passing = _passing(self._rewind(chunk, codec, rows, keyed=bool(table.key)))
        codec.check_keys(passing)
        return codec.table, passing

    def _define(self, chunk: ChunkSpec) -> TableDef:
        known = self._tables.get(chunk.table)  # as after the previous chunk; if it changed since, read() retries
        table = known or self._load(chunk.table)
        if table is None:
            raise _RetryChunk("the table does not exist", whole_table=True)
        columns = self._bound_columns(table, chunk)
        if chunk.order is not None and chunk.order != key_order(columns):
            raise _RetryChunk(
                "the table has another key, or another order of it, than when the chunk was planned", whole_table=True
            )
        if known is not None:
            return known
        stats = load_stats(self._connection.query, exact_patterns([chunk.table])).get(chunk.table)
        if stats is not None and stats.engine.lower() != "innodb":
            raise SnapshotRefusedError(
                f"engine {stats.engine} has no consistent reads: ALTER TABLE … ENGINE = InnoDB, or leave the table out",
                table=chunk.table,
            )
        excluded = excluded_by_name(self._policies, table)
        check_visible(self._connection.query, table.db, table.name, excluded)
        return table

    def _bound_columns(self, table: TableDef, chunk: ChunkSpec) -> tuple[Column, ...]:
        try:
            return bound_columns(table, chunk.surrogate)
        except SnapshotRefusedError as error:
            raise _RetryChunk(error.message, whole_table=True) from None

    def _load(self, name: str, connection: Connection | None = None) -> TableDef | None:
        """:raises _RetryChunk: a statement changed the table between the queries for its definition."""
        db, _, table = name.partition(".")
        try:
            named = load_table((connection or self._connection).query, db, table)
        except SchemaChangedError as error:
            raise _RetryChunk(error.message) from None
        return named.table if named is not None else None

    def _select(self, chunk: ChunkSpec, table: TableDef, codec: TableCodec) -> pa.Table:
        """Select the rows of the range, decoding them while they arrive, so that the SELECT ends as soon as possible.

        :raises UnreadableTableError: after all of them were received, so that the view stays usable.
        """
        names = [quote_name(column.name) for column in self._bound_columns(table, chunk)]
        where = range_condition(names, chunk.lo, chunk.hi)
        if chunk.filter is not None:
            where = f"{where} AND ({chunk.filter})"
        select = (
            f"SELECT /*+ MAX_EXECUTION_TIME({_select_seconds(table, chunk) * 1000}) */ {codec.select_list}"
            f" FROM {quote_name(table.db)}.{quote_name(table.name)} WHERE"
        )
        schema = pa.schema(codec.marked_fields)
        batches: list[pa.RecordBatch] = []
        unreadable: list[UnreadableTableError] = []
        try:
            for condition in [where] if self._only is None else key_conditions(codec.table, self._only):
                for block in self._blocks(chunk, f"{select} {condition}", unreadable):
                    try:
                        batches.append(pa.RecordBatch.from_arrays(codec.marked_from_text(block), schema=schema))
                    except UnreadableTableError as error:
                        unreadable.append(error)
            if unreadable:
                raise unreadable[0]
        except HeadgateError as error:
            self._explain(chunk, table, error)
            raise
        return pa.Table.from_batches(batches, schema)

    def _blocks(self, chunk: ChunkSpec, sql: str, unreadable: list[UnreadableTableError]) -> Iterator[RowBlock]:
        """Yield the rows; if a value was cut, append the error: the connection stays usable."""
        try:
            yield from select_blocks(self._view.connection, sql, rows=_BATCH_ROWS)
        except CutValueError as error:
            error.fields.setdefault("table", chunk.table)
            unreadable.append(error)

    def _explain(self, chunk: ChunkSpec, table: TableDef, error: HeadgateError) -> None:
        """Raise the cause of a failed SELECT of a chunk, if the error has a more specific one."""
        code = error.code if isinstance(error, ServerError) else None
        definite = isinstance(error, Definite)
        if code is not None and definite and chunk.filter is not None and code not in _NO_SUCH_TABLE - {1054}:
            raise _RetryChunk(f"the server refuses the filter: {error.message}", whole_table=True) from None
        if code in _NO_SUCH_TABLE:
            raise _RetryChunk(f"the table changed while it was read: {error.message}") from None
        if code == _TIMED_OUT:
            remedy = ": use smaller chunks" if _is_divided(table, chunk) else ""
            seconds = _select_seconds(table, chunk)
            raise ChunkRetryError(f"a chunk took longer than {seconds} s to read{remedy}", table=chunk.table) from error
        if isinstance(error, DecodeError):
            with Connection.open(self._connection.settings) as another:  # the connection of the SELECT is closed by now
                try:
                    is_same = self._load(chunk.table, another) == table
                except _RetryChunk:
                    is_same = False
            if not is_same:
                raise ChunkRetryError("the table changed while it was read", table=chunk.table) from error
        elif code is not None and definite and self._load(chunk.table) != table:
            raise _RetryChunk("the table's definition changed while it was read") from None

    def _check_log(self, chunk: ChunkSpec) -> None:
        reason = self._log.incomplete.get(chunk.table)
        if reason is not None:
            raise _RetryChunk(reason)
        if self._truncate == "redo" and chunk.table in self._log.truncated:
            raise _RetryChunk("the table was truncated while the chunk was read")

    def _rewind(self, chunk: ChunkSpec, codec: TableCodec, rows: pa.Table, *, keyed: bool) -> pa.Table:
        """Return the rows as of E.

        :param keyed: whether a key of MySQL identifies them.
        """
        table = codec.table
        if not keyed:
            rows = self._without_key(chunk, rows)
            whole = pa.nulls(rows.num_rows, pa.string())
            return rows.append_column(ABSENT_FIELD.name, whole) if self._report_absent else rows
        rule = self._policies.of(chunk.table).window
        if rule == "keep":
            self._check_kept(chunk, table)
            return rows
        window = self._windows.get(chunk.table)
        if window is None:
            window = self._windows[chunk.table] = Window(table, rows.schema)
        try:
            for batch in self._log.take(chunk.table):
                window.add(batch)
        except SchemaChangedError as error:
            self._log.incomplete.setdefault(chunk.table, error.message)  # the window has a gap from here on
            raise _RetryChunk(error.message) from None
        query = self._connection.query
        try:
            if rule == "drop":
                return window.drop(rows)
            return window.rewind(
                rows,
                in_range(query, self._log.define(table), chunk),
                range_column=None if chunk.surrogate is None else bound_columns(table, chunk.surrogate)[0].name,
                fulfils=None if chunk.filter is None else fulfils(query, codec, chunk.filter, self._policies),
                report_absent=self._report_absent,
            )
        except Undecided as undecided:
            raise _RetryChunk(str(undecided)) from None
        except UnsupportedError as error:
            error.fields["file"] = self._log.files.get(error.file, error.file)
            raise

    def _without_key(self, chunk: ChunkSpec, rows: pa.Table) -> pa.Table:
        if chunk.table not in self._log.touched:
            return rows
        if self._view.end is None:
            raise _RetryChunk('a table without a key was written while it was read (watermark = "lock" prevents that)')
        if chunk.table in self._log.truncated:
            raise _RetryChunk("a table without a key was truncated before it was read")
        try:
            return undo(rows, self._log.take_before(chunk.table, *self._view.end), chunk.table)
        except SchemaChangedError as error:
            raise _RetryChunk(error.message) from None

    def _check_kept(self, chunk: ChunkSpec, table: TableDef) -> None:
        """Retry the chunk if a change in the window would leave kept rows wrong for good."""
        for batch in self._log.take(chunk.table):
            if _moves_partly(batch, table.key_names):
                self._log.moved.add(chunk.table)
        if chunk.table in self._log.moved:
            raise _RetryChunk("an update gave a row another key while the chunk was read, in a partial row image")


def _passing(rows: pa.Table) -> pa.Table:
    """Return the rows that pass the table's ``rows``, without their mark."""
    if PASSES_FIELD.name not in rows.schema.names:
        return rows
    return rows.filter(rows[PASSES_FIELD.name]).drop_columns([PASSES_FIELD.name])


def _moves_partly(batch: pa.RecordBatch, key: Sequence[str]) -> bool:
    """Whether an update changes the key, and its after-image leaves columns out."""
    if ABSENT_FIELD.name not in batch.schema.names:
        return False
    op = batch.column(0)
    moves = np.flatnonzero(np.asarray(batch.column(ABSENT_FIELD.name).is_valid()) & np.asarray(pc.equal(op, "u")))
    after, before = (pa.array(moves - back) for back in (0, 1))
    return any(
        pc.any(pc.not_equal(batch.column(name).take(after), batch.column(name).take(before))).as_py() for name in key
    )


class _Stamp:
    """Turns rows into canonical ``r`` batches with consecutive ordinals."""

    def __init__(self, read: ChunkRead, *, report_absent: bool) -> None:
        self._report_absent = report_absent  # the rows' last column is _absent
        self._epoch, self._planned_us, self._ordinal = read.epoch, read.planned_us, read.first_ordinal

    def batches(self, table: TableDef, rows: pa.Table) -> Iterator[ImageBatch]:
        """Yield the rows of one chunk; one batch without rows if the chunk is empty."""
        fields = list(rows.schema)
        if self._report_absent:
            fields.insert(0, fields.pop().with_type(ABSENT_FIELD.type))
            rows = rows.select([len(fields) - 1, *range(len(fields) - 1)]).cast(pa.schema(fields))
        schema = canonical_schema(table, fields)
        if rows.num_rows <= _BATCH_ROWS:  # larger ones arrive in pieces of that size, so joining would only copy
            rows = rows.combine_chunks()
        pieces = [batch for batch in rows.to_batches(max_chunksize=_BATCH_ROWS) if batch.num_rows]
        for batch in pieces or [pa.RecordBatch.from_pylist([], pa.schema(fields))]:
            n = batch.num_rows
            ordinal = np.arange(self._ordinal, self._ordinal + n, dtype=np.int64)
            self._ordinal += n
            meta = [
                op_array(np.full(n, ord("r"), np.uint8)),
                seq_array(self._epoch, SNAPSHOT_FILE, np.full(n, SNAPSHOT_POS, np.int64), ordinal),
                pa.nulls(n, GTID_TYPE),
                pa.array(np.full(n, self._planned_us, np.int64)).cast(META_FIELDS[3].type),
            ]
            yield ImageBatch(table, pa.RecordBatch.from_arrays([*meta, *batch.columns], schema=schema))

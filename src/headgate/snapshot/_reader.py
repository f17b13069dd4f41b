"""Reading chunks exactly as of a GTID set E, without locks, writes or coordination: one task, any number of chunks.

The argument
============

Four facts about the server carry it:

1. A transaction enters ``gtid_executed`` after its engine commit. So a SELECT begun after E was read from
   ``gtid_executed`` has a read view R ⊇ E. (The planner read E; the task checks again, on the very connection it will
   SELECT with, that this server is the planned one and has executed E.)
2. A transaction reaches the log before its engine commit. So everything visible in R lies before the log position
   noted after the SELECT.
3. One SELECT of InnoDB is one read view.
4. A dump that starts from E gives everything after E, in order, whole; ``headgate.replication`` proves that it reached
   the noted position or fails.

So W, the log from E to at least the noted position, holds every transaction that R has and E has not, and perhaps
later ones. ``headgate.snapshot._window`` proves that W and the rows found give the rows as of E.

The window grows with the chunks of a task: W of a later chunk contains W of an earlier one, and by the proof it does
no harm that W reaches beyond R.

On restart
==========

Nothing is kept. The same chunks and the same E give the same rows, as long as W is not purged and holds no DDL of the
table: then the chunk gives a ``Redo`` in place of rows, and a later batch, with a later E, reads the range again.

What gives a ``Redo``
=====================

- DDL of the chunk's table in W, or a definition that changed while it was read, or a table that is gone: the rows
  before and after cannot be told apart by their images.
- A TRUNCATE of the table in W: the rows that it took, and W had not touched before, are in no image. Only a typed
  stream, which a ``Redo`` would end, takes what is left (``truncate="keep"``): its ``t`` image follows.
- A partial update of the key in W, where rows are kept.
- A filter that MySQL cannot be asked about a row as it was at E (``snapshot/_filters.py``), where such a row is needed.
- A filter that the server refuses while rows are read: then with ``whole_table``, because it would refuse it again.
- A table without a key, if W touches it and no lock says which of its changes the SELECT has seen: images do not say
  which of several equal rows they mean. Neither a second try nor a restart can help at the same E, because W would
  still begin with the same changes.
- An image in W whose key cannot be told from another: what it is a touch of is not known.

A row that the SELECT finds with such a key gives a ``Stop`` instead: it would be there at a later E, too.

Rows that are kept
==================

Where before-images leave columns out (``binlog_row_image`` MINIMAL or NOBLOB) a row cannot be turned back. With
``Policies.window = "keep"`` none is: the chunk holds the rows as its SELECT found them, which is the range as of some
R ⊇ E, between E and the end of W. What follows in the log after E is applied to them again. An insert or a whole image
sets the row again; a partial update sets the columns that it changed, and every column that some change between E and R
set is set again by that same change, so after the last of them the row is what it was at R. An update or delete of a
key that is not there has been overtaken by a later delete, and does nothing. So the table is exact again as soon as the
changes up to R are applied. R itself is not known, but W contains it: if W touches the table, a ``HighWatermark``
follows the chunk's rows, with everything up to W's end. If W does not touch the table, the rows are exact at E.

The exception is a partial update that changes the key: what it leaves out is that of the row at its old key, and after
R another row may be there. If W contains one, the chunk is retried (``Redo``). Where the old key belongs to a range
that was not read yet, the update reaches the sink and finds no row there: the sink has to ask for the table again.

Rows that are dropped
=====================

With ``Policies.window = "drop"`` the rows that W touches are left out, DBLog's way: their changes come with the
stream. The range is exact when the changes up to W's end have been applied, as with rows that are kept, but until then
a row may be missing rather than too new. A ``HighWatermark`` says so in the same way.

Under locks
===========

With ``locks`` all chunks are read from one view, opened while their tables are locked (``snapshot/_locks.py``). Then W
is exactly what the view has and E has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate._policies import DEFAULT, Policies
from headgate.carrier import HighWatermark, Redo, Stop
from headgate.catalog import Column, TableDef, exact_patterns, load_stats, load_table
from headgate.columns import TableCodec
from headgate.errors import (
    AmbiguousKeyError,
    ChunkRetryError,
    DecodeError,
    Definite,
    HeadgateError,
    SchemaChangedError,
    ServerBehindError,
    ServerError,
    SnapshotRefusedError,
    UnsupportedError,
)
from headgate.gtid import GtidSet
from headgate.kernels import RowBlock
from headgate.mysql import Connection, ConnectionSettings, log_position, log_status, select_blocks
from headgate.names import quote_name
from headgate.offsets import ChunkSpec
from headgate.places import end_of
from headgate.replication import (
    ABSENT_FIELD,
    GTID_TYPE,
    META_FIELDS,
    SNAPSHOT_FILE,
    SNAPSHOT_POS,
    ImageBatch,
    LogHint,
    canonical_schema,
    key_reason,
    op_array,
    seq_array,
)
from headgate.snapshot._filters import Undecided, fulfils
from headgate.snapshot._keys import bound_columns, fits, range_condition
from headgate.snapshot._locks import TableLocks, View, open_view
from headgate.snapshot._ranges import among, in_range
from headgate.snapshot._task_log import TaskLog
from headgate.snapshot._undo import undo
from headgate.snapshot._window import Window

__all__ = ["check_server", "read_chunks"]

_BATCH_ROWS = 1 << 14
"""Rows of an emitted batch, at most: what stays in a core's cache on its way to the next process."""
_SELECT_SECONDS = 600
"""How long a chunk's SELECT may run: DDL, and behind it everything else, waits for it."""
_NO_SUCH_TABLE = frozenset({1049, 1054, 1146, 1412})
"""Unknown database, unknown column, no such table, definition changed: the definition moved under the SELECT."""
_TIMED_OUT = 3024
"""ER_QUERY_TIMEOUT: max_execution_time was exceeded."""


class _Again(Exception):
    """Leaves the reading of one chunk; becomes its ``Redo``."""

    def __init__(self, reason: str, *, whole_table: bool = False) -> None:
        super().__init__(reason)
        self.whole_table = whole_table


def read_chunks(
    settings: ConnectionSettings,
    chunks: Sequence[ChunkSpec],
    *,
    executed: GtidSet,
    server_uuid: str,
    epoch: int,
    planned_us: int,
    hint: LogHint | None = None,
    first_ordinal: int = 0,
    policies: Policies = DEFAULT,
    truncate: Literal["keep", "redo"] = "redo",
    locks: TableLocks | None = None,
    partial: Literal["refuse", "tell"] = "refuse",
    only: pa.Table | None = None,
    ambiguous: Literal["raise", "stop"] = "raise",
    on_rows: Callable[[str, int], object] = lambda _table, _rows: None,
) -> Iterator[ImageBatch | Redo | Stop | HighWatermark]:
    """Each chunk's rows exactly as of ``executed``, as ``r`` images; or one ``Redo`` in their place.

    A chunk gives batches only after all that could spoil it was checked, so never both. An empty chunk gives one batch
    without rows: that it was read, and of which definition, counts too.
    With ``Policies.window`` ``keep`` or ``drop`` a ``HighWatermark`` follows the rows of a chunk whose table was
    written meanwhile: only then is a row not as of ``executed``.

    :param executed: E. Read from the server's ``gtid_executed`` before this call.
    :param planned_us: ``_ts`` of the rows, microseconds since 1970-01-01 UTC.
    :param hint: where a reader stood when its set was E, or less.
    :param first_ordinal: ``_seq.ordinal`` of the first row; the task's rows are numbered on from there.
    :param truncate: whether a chunk whose table was truncated in its window gives a ``Redo``, or what is left of it.
    :param locks: lock the tables while the view is opened from which all chunks are read; None: no locks.
    :param partial: rows of which an image tells only a part: an error, or given with ``_absent``, the columns that
        nobody knows. Where rows are turned back; not for chunks with a filter or a surrogate key.
    :param only: key columns, as the table's codecs make them: SELECT only the rows with these keys. What the window
        puts back may be more. For chunks of one table, with a key and without a filter.
    :param ambiguous: rows whose key cannot be told from another: an error, or ``stop``: a ``Stop``.
    :param on_rows: told ``(db.table, rows)`` while rows come.
    :raises ServerBehindError: not the planned server, or it lacks part of E.
    :raises SnapshotRefusedError: the table's engine has no consistent reads, or a key cannot be compared.
    :raises UnsupportedError: a row cannot be turned back, because its image leaves columns out.
    :raises AmbiguousKeyError: a row's key cannot be told from another, with ``ambiguous="raise"``.
    :raises ChunkRetryError: a SELECT took too long, its table became another one, or tables could not be locked.
    """
    if not chunks:
        return

    def check(connection: Connection) -> None:
        check_server(connection, executed, server_uuid)

    with Connection.open(settings) as connection, ExitStack() as stack:
        check(connection)
        view = View(connection)
        tables = _existing(connection, chunks) if locks is not None else []
        if locks is not None and tables:
            view = stack.enter_context(open_view(settings, tables, locks, check))
        log = TaskLog(settings, chunks, executed, server_uuid, hint, policies)
        tell = partial == "tell"
        task = _Task(connection, view, log, policies, truncate, chunks[-1], tell=tell, only=only, on_rows=on_rows)
        stamp = _Stamp(epoch, planned_us, first_ordinal, tell=tell)
        for chunk in chunks:
            try:
                table, rows = task.read(chunk)
            except _Again as again:
                yield Redo(chunk, str(again), again.whole_table)
            except AmbiguousKeyError as error:
                if ambiguous == "raise":
                    raise
                yield Stop(chunk.table, key_reason(error, chunk.table), chunk=chunk.number)
            else:
                yield from stamp.batches(table, rows)
                watermark = log.watermark(chunk.table)
                if table.key and watermark is not None:
                    yield watermark


def _existing(connection: Connection, chunks: Sequence[ChunkSpec]) -> list[tuple[str, str]]:
    """The chunks' tables that are there, as (db, table)."""
    names = sorted({chunk.table for chunk in chunks})
    there = load_stats(connection.query, exact_patterns(names))
    found = [name.partition(".") for name in names if name in there]
    return [(db, table) for db, _, table in found]


def check_server(connection: Connection, executed: GtidSet, server_uuid: str) -> None:
    """The server behind this connection is the planned one and has executed ``executed``.

    :raises ServerBehindError: otherwise; a proxy may send any connection anywhere, so a retry may cure it.
    """
    if end_of(executed) is not None:
        missing_places = executed - log_position(connection)
        if missing_places:
            raise ServerBehindError("another server than the chunk was planned on, or its log was reset")
        return
    text = str(executed)
    uuid, contained, missing = connection.query(
        "SELECT @@global.server_uuid, GTID_SUBSET(%s, @@global.gtid_executed),"
        " GTID_SUBTRACT(%s, @@global.gtid_executed)",
        (text, text),
    )[0]
    if str(uuid) != server_uuid:
        raise ServerBehindError(f"connected to server {uuid}, but the chunk was planned on {server_uuid}")
    if not int(contained):
        raise ServerBehindError(
            "the server lacks transactions that the snapshot counts on: wait for it, or connect to another one",
            missing=str(missing).replace("\n", ""),
        )


class _Task:
    """Reads chunks one after another from one view.

    :param connection: for everything but the chunks' SELECTs.
    :param last: the last chunk.
    """

    def __init__(
        self,
        connection: Connection,
        view: View,
        log: TaskLog,
        policies: Policies,
        truncate: Literal["keep", "redo"],
        last: ChunkSpec,
        *,
        tell: bool,
        only: pa.Table | None,
        on_rows: Callable[[str, int], object],
    ) -> None:
        self._on_rows = on_rows
        self._tell = tell
        self._only = only
        self._connection = connection
        self._view = view
        self._last = last
        self._log = log
        self._policies = policies
        self._truncate = truncate
        self._windows: dict[str, Window] = {}
        self._tables: dict[str, TableDef] = {}
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def read(self, chunk: ChunkSpec) -> tuple[TableDef, pa.Table]:
        """The chunk's rows as of E.

        :raises _Again: it must be read at another E.
        """
        table = self._define(chunk)
        codec = TableCodec(table, self._policies)
        rows = self._select(chunk, table, codec)
        if chunk == self._last:
            self._view.release()
        if self._load(chunk.table) != table:
            raise _Again("the table's definition changed while it was read")
        self._tables[chunk.table] = table
        self._log.extend(*(self._view.end or log_status(self._connection)))
        self._check_log(chunk)
        return table, self._rewind(chunk, table, rows)

    def _define(self, chunk: ChunkSpec) -> TableDef:
        known = self._tables.get(chunk.table)  # still its definition at the end of the chunk before, or this one fails
        table = known or self._load(chunk.table)
        if table is None:
            raise _Again("the table does not exist", whole_table=True)
        columns = self._bound_columns(table, chunk)
        if not (fits(columns, chunk.lo) and fits(columns, chunk.hi)):
            raise _Again("the table has another key than when the chunk was planned", whole_table=True)
        if known is not None:
            return known
        stats = load_stats(self._connection.query, exact_patterns([chunk.table])).get(chunk.table)
        if stats is not None and stats.engine.lower() != "innodb":
            raise SnapshotRefusedError(
                f"engine {stats.engine} has no consistent reads: ALTER TABLE … ENGINE = InnoDB, or leave the table out",
                table=chunk.table,
            )
        return table

    def _bound_columns(self, table: TableDef, chunk: ChunkSpec) -> tuple[Column, ...]:
        try:
            return bound_columns(table, chunk.surrogate)
        except SnapshotRefusedError as error:
            raise _Again(error.message, whole_table=True) from None

    def _load(self, name: str, connection: Connection | None = None) -> TableDef | None:
        db, _, table = name.partition(".")
        found = load_table((connection or self._connection).query, db, table)
        return found.table if found is not None else None

    def _select(self, chunk: ChunkSpec, table: TableDef, codec: TableCodec) -> pa.Table:
        """The rows of the range, decoded while they arrive, so that the SELECT is over as soon as can be.

        :raises AmbiguousKeyError: after all of them were received, so that the view can be read on from.
        """
        names = [quote_name(column.name) for column in self._bound_columns(table, chunk)]
        where = range_condition(names, chunk.lo, chunk.hi)
        if chunk.filter is not None:
            where = f"{where} AND ({chunk.filter})"
        select = (
            f"SELECT /*+ MAX_EXECUTION_TIME({_SELECT_SECONDS * 1000}) */ {codec.select_list}"
            f" FROM {quote_name(table.db)}.{quote_name(table.name)} WHERE"
        )
        schema = pa.schema(codec.fields)
        batches: list[pa.RecordBatch] = []
        odd: AmbiguousKeyError | None = None
        try:
            for condition in [where] if self._only is None else among(table, self._only):
                for block in self._blocks(chunk, f"{select} {condition}"):
                    try:
                        batches.append(pa.RecordBatch.from_arrays(codec.from_text(block), schema=schema))
                    except AmbiguousKeyError as error:
                        odd = odd or error
            if odd is not None:
                raise odd
        except HeadgateError as error:
            self._explain(chunk, table, error)
            raise
        return pa.Table.from_batches(batches, schema)

    def _blocks(self, chunk: ChunkSpec, sql: str) -> Iterator[RowBlock]:
        for block in select_blocks(self._view.connection, sql, rows=_BATCH_ROWS):
            yield block
            self._on_rows(chunk.table, block.rows)

    def _explain(self, chunk: ChunkSpec, table: TableDef, error: HeadgateError) -> None:
        """Raises what an error of the chunk's SELECT means, where it means something else."""
        code = error.code if isinstance(error, ServerError) else None
        definite = isinstance(error, Definite)
        if code is not None and definite and chunk.filter is not None and code not in _NO_SUCH_TABLE - {1054}:
            raise _Again(f"the server refuses the filter: {error.message}", whole_table=True) from None
        if code in _NO_SUCH_TABLE:
            raise _Again(f"the table changed while it was read: {error.message}") from None
        if code == _TIMED_OUT:
            raise ChunkRetryError(
                f"a chunk took longer than {_SELECT_SECONDS} s to read: use smaller chunks", table=chunk.table
            ) from error
        if isinstance(error, DecodeError):
            with Connection.open(self._connection.settings) as another:  # the one that was read from is closed by now
                if self._load(chunk.table, another) != table:
                    raise ChunkRetryError("the table changed while it was read", table=chunk.table) from error
        elif code is not None and definite and self._load(chunk.table) != table:
            raise _Again("the table's definition changed while it was read") from None

    def _check_log(self, chunk: ChunkSpec) -> None:
        reason = self._log.spoilt.get(chunk.table)
        if reason is not None:
            raise _Again(reason)
        if self._truncate == "redo" and chunk.table in self._log.truncated:
            raise _Again("the table was truncated while the chunk was read")

    def _rewind(self, chunk: ChunkSpec, table: TableDef, rows: pa.Table) -> pa.Table:
        if not table.key:
            rows = self._without_key(chunk, rows)
            whole = pa.nulls(rows.num_rows, pa.string())
            return rows.append_column(ABSENT_FIELD.name, whole) if self._tell else rows
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
            self._log.spoilt.setdefault(chunk.table, error.message)  # the window has a gap from here on
            raise _Again(error.message) from None
        query = self._connection.query
        try:
            if rule == "drop":
                return window.drop(rows)
            return window.rewind(
                rows,
                in_range(query, self._log.define(table), chunk),
                along=chunk.surrogate,
                fulfils=None if chunk.filter is None else fulfils(query, table, chunk.filter, self._policies),
                tell=self._tell,
            )
        except Undecided as undecided:
            raise _Again(str(undecided)) from None
        except UnsupportedError as error:
            error.fields["file"] = self._log.files.get(error.file, error.file)
            raise

    def _without_key(self, chunk: ChunkSpec, rows: pa.Table) -> pa.Table:
        if chunk.table not in self._log.touched:
            return rows
        if self._view.end is None:
            raise _Again("a table without a key was written while it was read")
        if chunk.table in self._log.truncated:
            raise _Again("a table without a key was truncated before it was read")
        try:
            return undo(rows, self._log.take_before(chunk.table, *self._view.end), chunk.table)
        except SchemaChangedError as error:
            raise _Again(error.message) from None

    def _check_kept(self, chunk: ChunkSpec, table: TableDef) -> None:
        """Nothing in the window may make rows that are kept as they were read differ for good."""
        for batch in self._log.take(chunk.table):
            if _moves_partly(batch, table.key_names):
                self._log.moved.add(chunk.table)
        if chunk.table in self._log.moved:
            raise _Again("a row got another key while the chunk was read, and its row image leaves columns out")


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
    """Turns rows into canonical ``r`` batches, numbering them through."""

    def __init__(self, epoch: int, planned_us: int, first_ordinal: int, *, tell: bool) -> None:
        self._tell = tell  # the rows' last column is _absent
        self._epoch = epoch
        self._planned_us = planned_us
        self._ordinal = first_ordinal

    def batches(self, table: TableDef, rows: pa.Table) -> Iterator[ImageBatch]:
        """The rows of one chunk; one batch without rows if there are none."""
        fields = list(rows.schema)
        if self._tell:
            fields.insert(0, fields.pop().with_type(ABSENT_FIELD.type))
            rows = rows.select([len(fields) - 1, *range(len(fields) - 1)]).cast(pa.schema(fields))
        schema = canonical_schema(table, fields)
        if rows.num_rows <= _BATCH_ROWS:  # larger ones come in pieces of that size, which joining would only copy
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

"""Source tables as of a GTID set: whole, in parts that can be read in parallel; some rows of a table; changes of keys.

Used to compare a copy with its source (``headgate.compare``). Rows are rewound to the set, whichever window policy the
pipeline has. If partial row images (``binlog_row_image`` MINIMAL or NOBLOB) leave a value unknown, a column ``_absent``
names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.carrier import ControlFolder
from headgate.spark._options import Options

if TYPE_CHECKING:
    from headgate.catalog import TableDef, TableStats
    from headgate.offsets import Hint
    from headgate.spark._server import SourceServer
    from headgate.spark._tasks import Task

__all__ = ["TablesAsOf"]

Key = tuple[Any, ...]
Read = Callable[[], Iterator[pa.RecordBatch]]

_PART_BYTES = 64 << 20
"""Bytes of a chunk, as the server stores its rows: a reader holds a whole chunk in memory for a moment."""


class TablesAsOf:
    """Reader of one source's tables as of a GTID set.

    :param options: those of the Spark source, except ``table``, ``as_of``, ``meta``, ``window`` and ``partial_rows``.
    :param control: where a pipeline records how far it has read the log; its position saves the server the search for a
        GTID set in its log, once for each part.
    """

    def __init__(self, options: Mapping[str, str], control: ControlFolder | None = None) -> None:
        self._options = {**options, "meta": "false", "partial_rows": "tell"}
        self._control = control
        self._stats: dict[str, TableStats] = {}

    def estimates(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the server's estimates of the tables' rows, without missing tables."""
        from headgate.catalog import exact_patterns

        if tables:
            with self._server(self._parsed(tables[0])) as server:
                self._stats |= server.tables(exact_patterns(tables))
        return {name: self._stats[name].rows for name in tables if name in self._stats}

    def parts(self, table: str, gtid: str) -> tuple[pa.Schema, list[Read]]:
        """Return a table as of ``gtid``, which the server has executed: its columns and ``_absent``, and functions that
        each read a part of the rows. Parts may be read in parallel, and again; each holds a chunk in memory.
        """
        from headgate.snapshot import rows_of_chunk
        from headgate.spark._planner import Planner
        from headgate.spark._tasks import pack
        from headgate.spark._typed import require_table, typed_fields

        options = self._parsed(table)
        if table not in self._stats:
            self.estimates([table])
        rows = rows_of_chunk(self._stats.get(table), options.chunk_rows, _PART_BYTES)
        options = options.model_copy(update={"chunk_rows": rows})
        with self._server(options) as server:
            known = require_table(server.definition(table), table)
            offset, chunks = Planner(options, server, None).everything(gtid)
            tasks = pack(offset, chunks, options.chunk_rows)
            hint = self._hint(tasks[0].server_uuid, gtid) if tasks else None
        schema = pa.schema(typed_fields(known, options.policies, meta=False, report_absent=True))
        return schema, [partial(_rows, options, replace(task, hint=hint), schema) for task in tasks]

    def _hint(self, server_uuid: str, gtid: str) -> Hint | None:
        """Return the pipeline's position in this server's log when it had this set or less."""
        from headgate.positions import parse_position

        recorded = self._control.hint() if self._control is not None else None
        if (
            recorded is None
            or recorded.server_uuid != server_uuid
            or not parse_position(recorded.gtid) <= parse_position(gtid)
        ):
            return None
        return recorded.hint

    def keys(self, table: str, keys: pa.Table) -> list[Key]:
        """Return the keys of rows in the form of :meth:`rows` and :meth:`moves`."""
        schema = self._key_schema(self._table(table))
        return _tuples(keys.select(schema.names).cast(schema))

    def key_table(self, table: str, keys: list[Key]) -> pa.Table:
        """Return a table of keys in that form."""
        schema = self._key_schema(self._table(table))
        columns = zip(*keys, strict=True) if keys else [()] * len(schema)
        return pa.table([pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)], schema)

    def rows(self, table: str, gtid: str, keys: list[Key]) -> pa.Table:
        """Return some rows, with the columns of :meth:`parts`; perhaps others, too.

        :raises ChunkRetryError: the table was altered since ``gtid``, so its rows as of then are unknown.
        :raises ServerSettingError: the server lacks a setting that exactness needs.
        """
        from headgate.carrier import typed_batch
        from headgate.errors import ChunkRetryError
        from headgate.mysql import Connection, check_required, commit_watermark, kinds_of_watermark
        from headgate.positions import parse_position
        from headgate.replication import ImageBatch
        from headgate.snapshot import Chunk, ChunkOptions, ChunkRead, Redo, read_chunks
        from headgate.spark._read_task import hooked
        from headgate.spark._typed import typed_fields

        options, settings = self._parsed(table), self._parsed(table).settings()
        known = self._table(table)
        with Connection.open(settings) as connection:
            kinds = kinds_of_watermark(options.watermark)
            uuid = check_required(connection, kinds=kinds).server_uuid
            if options.watermark == "signal-table":  # else the SELECT may not see all of ``gtid``
                commit_watermark(connection, str(options.signal_table), f'{{"rows_ns": {time.time_ns()}}}')
        schema = pa.schema(typed_fields(known, options.policies, meta=False, report_absent=True))
        batches = []
        for item in read_chunks(
            ChunkRead(
                settings,
                [Chunk(table, 0, None, None)],
                parse_position(gtid),
                uuid,
                epoch=0,
                planned_us=time.time_ns() // 1000,
            ),
            ChunkOptions(options.policies, partial="tell", only=self.key_table(table, keys)),
        ):
            if isinstance(item, Redo):
                raise ChunkRetryError(item.reason, table=table)
            if isinstance(item, ImageBatch):
                rows = hooked(item, options.policies).batch
                batches.append(typed_batch(rows, table, schema, options.images, with_absent=True))
        return pa.Table.from_batches(batches, schema)

    def moves(self, table: str, start: str, end: str) -> Iterator[tuple[Key, Key]]:
        """Yield the changes of keys, (old, new), of the transactions in ``end`` but not in ``start``, in log order.

        :raises ChunkRetryError: the table was altered meanwhile.
        """
        from headgate.catalog import TablePatterns
        from headgate.errors import ChunkRetryError
        from headgate.positions import parse_position
        from headgate.replication import Ddl, DecodeOptions, LogBlock, LogRead, Stopped, read_range

        options, executed = self._parsed(table), parse_position(end)
        names = self._key_schema(self._table(table)).names
        for item in read_range(
            LogRead(options.settings(), wanted=executed - parse_position(start), executed=executed),
            DecodeOptions(TablePatterns(options.patterns), images="keys", policies=options.policies),
        ):
            if isinstance(item, (Ddl, Stopped)):
                raise ChunkRetryError("the table was altered meanwhile", table=table)
            for image in item.images if isinstance(item, LogBlock) else ():
                yield from _moves(image.batch, names)

    def _parsed(self, table: str) -> Options:
        return Options.parse({**self._options, "table": table})

    def _table(self, table: str) -> TableDef:
        from headgate.spark._typed import find_table

        return find_table(self._parsed(table).settings(), table)

    def _key_schema(self, table: TableDef) -> pa.Schema:
        from headgate.columns import TableCodec

        codec = TableCodec(table, self._parsed(table.full_name).policies)
        return pa.schema([codec.fields[index].remove_metadata() for index in codec.table.key])

    @contextmanager
    def _server(self, options: Options) -> Iterator[SourceServer]:
        """Yield the planner's view of the server; its connection is closed at the end."""
        from headgate.spark._relayed import server_of

        server = server_of(options)
        try:
            yield server
        finally:
            server.drop()


def _rows(options: Options, task: Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    from headgate.snapshot import ChunkOptions
    from headgate.spark._typed import typed_rows

    chunks = ChunkOptions(options.policies, locks=options.locks(initial=task.initial), partial="tell")
    yield from typed_rows(options.settings(), task, str(options.table), schema, options.images, chunks)


def _moves(batch: pa.RecordBatch, names: list[str]) -> Iterator[tuple[Key, Key]]:
    """Yield old and new keys of the updates that change the key: with images="keys" only those have a before-image."""
    import pyarrow.compute as pc

    before = pc.indices_nonzero(pc.equal(batch.column(0), "b"))
    if not len(before):
        return
    keys = pa.Table.from_batches([batch]).select(names)
    yield from zip(_tuples(keys.take(before)), _tuples(keys.take(pc.add(before, 1))), strict=True)


def _tuples(keys: pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))

"""``headgate snapshot``: the rows of tables, all as of one GTID set E.

Every chunk is read exactly as of the same E (``headgate.snapshot``), so the lines of all tables together are one
consistent state, however long the reads take and whatever is written meanwhile. If a chunk cannot be read at E (a
statement changes a table's definition; a table without a key is written), the command retries at a later E, which is
only possible while nothing has been printed. So tables without a key, which any write disturbs, come first, and their
rows are held back until all of them have been read at one E.

With ``--window keep`` rows that change while they are read stay as they were read, at some moment after E. The changes
since E, as ``headgate tail --from E`` prints them, make them exact (``headgate.snapshot``).

With ``--watermark lock`` the tables of some chunks are locked while the read view of them is opened. A table without a
key can then be read however much it is written.

Chunks are read in groups: each call opens one window on the log from E. Larger groups would keep more of the log in
memory, and smaller ones would read the log more often.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headgate.cli._common import (
    PasswordCommand,
    PasswordEnv,
    PasswordFile,
    RulesFile,
    Url,
    connection_settings,
    no_match,
    patterns_of,
    printed_policies,
    write_lines,
)
from headgate.cli._settings import setting
from headgate.config import LockHold, SourceSettings, Watermark, is_table
from headgate.errors import ChunkRetryError, ConfigError, SnapshotRefusedError

if TYPE_CHECKING:
    from headgate.catalog import TableDef, TableStats
    from headgate.cli._progress import ProgressDisplay
    from headgate.mysql import Connection, ConnectionSettings
    from headgate.policies import Policies
    from headgate.positions import Position
    from headgate.replication import ImageBatch
    from headgate.snapshot import Chunk, TableLocks

__all__ = ["command"]

_ATTEMPTS: Final = 20
"""Attempts, each at another E, until the command gives up on a disturbed table."""
_CHUNKS_AT_ONCE: Final = 16
_DEFAULTS: Final[Mapping[str, Any]] = {name: one.default for name, one in SourceSettings.model_fields.items()}


class _Format(StrEnum):
    json = "json"


class _Window(StrEnum):
    rewind = "rewind"
    keep = "keep"


def command(
    url: Url,
    tables: Annotated[
        list[str],
        typer.Option(
            "--tables",
            "-t",
            metavar="PATTERN",
            help="Globs on db.table, such as 'shop.*'; '!shop.tmp_*' removes; the last match wins. Repeatable.",
        ),
    ],
    output: Annotated[_Format, typer.Option("--format", help="JSON lines.")] = _Format.json,  # noqa: ARG001 - one so far
    chunk_rows: Annotated[int, setting(SourceSettings, "chunk_rows")] = _DEFAULTS["chunk_rows"],
    window: Annotated[
        _Window,
        typer.Option(
            help="Rows that change while they are read: 'rewind' reverts them to the GTID set, which needs"
            " whole row images (FULL). 'keep' prints them as they were read, since MINIMAL and NOBLOB"
            " images cannot revert them; the changes that tail prints from the GTID set on make them right."
        ),
    ] = _Window.rewind,
    watermark: Annotated[Watermark, setting(SourceSettings, "watermark", metavar="METHOD")] = _DEFAULTS["watermark"],
    signal_table: Annotated[
        str | None, typer.Option(metavar="DB.TABLE", help="A table with columns id, type, data, for watermarks.")
    ] = None,
    lock_hold: Annotated[LockHold, setting(SourceSettings, "lock_hold")] = _DEFAULTS["lock_hold"],
    lock_wait_seconds: Annotated[int, setting(SourceSettings, "lock_wait_seconds")] = _DEFAULTS["lock_wait_seconds"],
    rules: RulesFile = None,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    password_command: PasswordCommand = None,
) -> None:
    """Print the rows of tables, all as of one GTID set, while writers run.

    One JSON object a line; the last line of stderr is the GTID set. Nothing is written and no table is locked, unless
    --watermark requests it. With [bold]headgate tail --from GTIDSET[/bold] the changes since then follow without gap or
    overlap. (With [bold]--window keep[/bold] some are in the rows already; setting the same columns again does no
    harm.)

    Examples:
      headgate snapshot mysql://root@127.0.0.1:3306 -t 'shop.*' > rows.jsonl 2> gtid
      headgate tail mysql://root@127.0.0.1:3306 -t 'shop.*' --from "$(tail -n 1 gtid)"
    """
    settings = connection_settings(
        url, password_file=password_file, password_env=password_env, password_command=password_command
    )
    patterns = patterns_of(tables)
    marks = signal_table if watermark == "signal-table" else None
    if watermark == "signal-table" and not is_table(signal_table or ""):
        raise ConfigError("--watermark signal-table needs --signal-table DB.TABLE")

    from headgate.catalog import load_stats, load_tables
    from headgate.cli.jsonl import snapshot_lines
    from headgate.mysql import Connection, check_required, kinds_of_watermark
    from headgate.snapshot import TableLocks

    with Connection.open(settings) as connection:
        stats = load_stats(connection.query, patterns)
        if missing := patterns.unmatched(stats):
            raise no_match(missing, connection)
        uuid = check_required(connection, kinds=kinds_of_watermark(watermark)).server_uuid
        _check_engines(stats)
        locks = TableLocks(lock_hold, lock_wait_seconds) if watermark == "lock" else None
        policies = replace(printed_policies(rules, connection, patterns), window=window.value)
        reader = _SnapshotReader(settings, connection, uuid, chunk_rows, policies, stats, locks, marks)
        with _progress(stats) as progress:
            for image in reader.rows(lambda: load_tables(connection.query, patterns)):
                write_lines(snapshot_lines(image))
                if progress is not None:
                    progress.add(image.table.full_name, image.batch.num_rows)
        print(reader.executed, file=sys.stderr)  # noqa: T201 - the result


def _check_engines(stats: dict[str, TableStats]) -> None:
    for name, known in stats.items():
        if known.engine.lower() != "innodb":
            raise SnapshotRefusedError(
                f"engine {known.engine} has no consistent reads: ALTER TABLE … ENGINE = InnoDB, or leave the table out"
                f" with --tables '!{name}'",
                table=name,
            )


def _progress(stats: dict[str, TableStats]) -> AbstractContextManager[ProgressDisplay | None]:
    """Return bars on stderr, if it is a terminal and stdout is not, else nothing."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        return nullcontext()
    from headgate.cli._progress import ProgressDisplay

    return ProgressDisplay({name: known.rows for name, known in stats.items()})


class _Disturbed(Exception):
    """A chunk cannot be read at this E."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table, self.reason = table, reason
        self.printed = False
        """Whether rows as of this E have been printed."""


class _SnapshotReader:
    """Reader of tables as of one E, which it chooses."""

    def __init__(
        self,
        settings: ConnectionSettings,
        connection: Connection,
        server_uuid: str,
        chunk_rows: int,
        policies: Policies,
        stats: Mapping[str, TableStats],
        locks: TableLocks | None = None,
        signal_table: str | None = None,
    ) -> None:
        self._settings = settings
        self._policies = policies
        self._stats = stats
        self._locks = locks
        self._signal_table = signal_table
        self._connection = connection
        self._server_uuid = server_uuid
        self._chunk_rows = chunk_rows
        self._begin()

    def _begin(self) -> None:
        from headgate.mysql import commit_watermark
        from headgate.positions import read_executed

        self._planned_us = time.time_ns() // 1000
        self.executed: Position = read_executed(self._connection).executed
        if self._signal_table is not None:  # first the log's end, then the row
            commit_watermark(self._connection, self._signal_table, f'{{"snapshot_us": {self._planned_us}}}')
        self._ordinal = 0

    def rows(self, load: Callable[[], list[TableDef]]) -> Iterator[ImageBatch]:
        """Yield all rows of all tables as of ``executed``, which stays the same from the first batch on.

        :param load: returns the tables as they are defined now.
        :raises ChunkRetryError: a table was changed in a way that cannot be undone, too late or too often.
        """
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._begin()
            try:
                yield from self._rows(load())
            except _Disturbed as error:
                disturbed = error
                if error.printed:
                    break
            else:
                return
        often = "rows were printed already" if disturbed.printed else f"at each of {_ATTEMPTS} attempts"
        raise ChunkRetryError(
            f"{disturbed.reason} ({often}): run it again, or leave the table out", table=disturbed.table
        )

    def _rows(self, tables: list[TableDef]) -> Iterator[ImageBatch]:
        keyless = [chunk for table in tables if not table.key for chunk in self._plan(table)]
        chunks = (chunk for table in tables if table.key for chunk in self._plan(table))
        keyless_rows = list(self._read(keyless))
        printed = False
        try:
            while some := list(islice(chunks, _CHUNKS_AT_ONCE)):
                for image in self._read(some):
                    yield from keyless_rows
                    keyless_rows.clear()
                    yield image
                    printed = True
        except _Disturbed as error:
            error.printed = printed
            raise
        yield from keyless_rows

    def _plan(self, table: TableDef) -> Iterator[Chunk]:
        from headgate.snapshot import CHUNK_BYTES, advance, first_chunk_bounds, next_chunk, rows_of_chunk

        query = self._connection.query
        rows = rows_of_chunk(self._stats.get(table.full_name), self._chunk_rows, CHUNK_BYTES)
        progress = first_chunk_bounds(query, table, epoch=0, rows=rows)
        while chunk := next_chunk(query, table, progress, rows):
            yield chunk
            progress = advance(progress, chunk, rows)

    def _read(self, chunks: list[Chunk]) -> Iterator[ImageBatch]:
        from headgate.replication import ImageBatch
        from headgate.snapshot import ChunkOptions, ChunkRead, Redo, read_chunks

        read = ChunkRead(
            self._settings,
            chunks,
            self.executed,
            self._server_uuid,
            epoch=0,
            planned_us=self._planned_us,
            first_ordinal=self._ordinal,
        )
        with closing(read_chunks(read, ChunkOptions(self._policies, locks=self._locks))) as items:
            for item in items:
                if isinstance(item, Redo):
                    raise _Disturbed(item.chunk.table, item.reason)
                # Skip high watermarks, which only matter for applying changes to the rows.
                if isinstance(item, ImageBatch) and item.batch.num_rows:
                    self._ordinal += item.batch.num_rows
                    yield item

"""Verification: compare all tables of a pipeline's lake with its source, table by table, each as of a ledger row.

``lake/_verify.py`` explains why a comparison is exact. This module picks ledger row and comparer, and retries.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.config import PipelineConfig
    from headgate.lake import Comparer, LedgerRow, TableResult

__all__ = ["Verification", "View", "check_comparable", "verify"]

_TRIES: Final = 10
"""At most so many ledger rows are tried for a table."""
_NEXT_BATCH_SECONDS: Final = 60.0
"""Longest wait for the next batch of a running pipeline."""


class View(Protocol):
    """Display of a comparison's progress; :meth:`add` is called from any thread."""

    def begin(self, estimates: Mapping[str, int]) -> None:
        """Begin with these tables and their approximate row counts."""

    def add(self, table: str, rows: int) -> None:
        """Count more rows as read, on either side."""

    def show_message(self, text: str) -> None:
        """Show another message."""


class _NoView:
    """A view that shows nothing."""

    def begin(self, estimates: Mapping[str, int]) -> None:
        pass

    def add(self, table: str, rows: int) -> None:
        pass

    def show_message(self, text: str) -> None:
        pass


def verify(config: PipelineConfig, spark: SparkSession | None = None, *, samples: int = 20) -> list[TableResult]:
    """Compare every row of a lake's live and inexact tables with the source, while writers and the pipeline run.

    Both sides are read as of the same moment, the GTID set of the newest batch in the ledger, so every difference is
    real. ``headgate verify`` prints these results.

    :param spark: a session for tables that need Spark. Default: the active one, or one that is made for the first such
        table and stopped at the end.
    :param samples: how many differing rows to keep of a table.
    :return: of each table, in the order of their names, its ``table``, ``state``, ``equal``, ``only_source``,
        ``only_target``, ``different``, ``differences`` (the sum of the three), ``removed`` (rows that ``skip`` keeps),
        ``undecided``, ``samples`` and ``remark``. A table that is not complete, or was stopped, is not compared;
        ``remark`` gives the reason.
    :raises ConfigError: there is nothing to compare.
    :raises HeadgateError: the source or the lake could not be read.

    >>> config = headgate.load_config("pipeline.toml")
    >>> for result in headgate.verify(config):
    ...     print(result.table, result.state, result.equal, result.differences)
    shop.items live 2 0
    shop.orders live 3 0
    """
    check_comparable(config)
    with contextlib.ExitStack() as stack:

        def session() -> SparkSession:
            return spark or stack.enter_context(_session(config))

        return [result for result, _ in Verification(config, cache(session), _NoView(), samples).results()]


@contextlib.contextmanager
def _session(config: PipelineConfig) -> Iterator[SparkSession]:
    """Yield the active session, or a temporary one."""
    from pyspark.sql import SparkSession

    from headgate.engine import build_session

    active = SparkSession.getActiveSession()
    spark = active or build_session(f"verify {config.name}", config.spark)
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()


def check_comparable(config: PipelineConfig) -> None:
    """Check, before anything is started, that there is something to compare.

    :raises ConfigError: the pipeline has no current tables, or no ledger yet.
    :raises HeadgateError: the server cannot be reached.
    """
    from headgate.errors import ConfigError
    from headgate.lake import Lake
    from headgate.mysql import Connection
    from headgate.pipeline import connection_settings

    if not config.target.has_tables:
        raise ConfigError("verify compares tables with the source's rows: add 'current' or 'history' to target.mode")
    lake = Lake.of(config)
    if lake.is_local and not Path(lake.ledger).is_dir():  # report it before connecting to the server
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    Connection.open(connection_settings(config)).close()  # also detects a wrong password


class Verification:
    """The comparison of all tables of a lake.

    :param session: returns a Spark session; called when a table needs one.
    :param samples: how many differing rows to show of a table.
    """

    def __init__(self, config: PipelineConfig, session: Callable[[], SparkSession], view: View, samples: int) -> None:
        from headgate.lake import Lake
        from headgate.pipeline import read_source

        self._config = config
        self._lake = Lake.of(config)
        self._source = read_source(config)
        self._session, self._view, self._samples = session, view, samples

    def results(self) -> Generator[tuple[TableResult, LedgerRow], None, None]:
        """Yield each table's result and the ledger row that it holds for, in the order of their names."""
        from headgate.lake import ArrowComparer, NeedsSparkError, Workers

        self._row = self._newest()  # replaced if it is too old to be read at a table's turn
        tables = sorted(self._row.tables)
        self._view.begin({**dict.fromkeys(tables, 0), **self._source.estimates(tables)})
        if self._lake.obstacle:
            for table in tables:
                yield self._by_spark(table)
            return
        threads = os.cpu_count() or 1
        with Workers(threads) as flows, Workers(threads) as readers:
            arrow = ArrowComparer(self._lake, self._source, readers, samples=self._samples, on_rows=self._view.add)
            futures = [(table, flows.submit(partial(self._verified, arrow, table))) for table in tables]
            for table, result in futures:
                try:
                    yield result.result()
                except NeedsSparkError as reason:
                    self._view.show_message(f"{table} is compared by Spark: {reason}")
                    yield self._by_spark(table)

    def _by_spark(self, table: str) -> tuple[TableResult, LedgerRow]:
        from headgate.lake import SparkComparer

        comparer = SparkComparer(self._session(), self._lake, self._source, samples=self._samples)
        return self._verified(comparer, table)

    def _verified(self, comparer: Comparer, table: str) -> tuple[TableResult, LedgerRow]:
        """Return a table's result and the ledger row it holds for: a newer one if the known one is too old."""
        from headgate.engine import find_error
        from headgate.errors import ChunkRetryError, HeadgateError, SchemaChangedError, UnreadableTableError
        from headgate.lake import NeedsSparkError, TableResult, verify_table

        row = self._row
        skipped = [one for one in self._config.skips(table) if one in ("insert", "update")]
        if skipped:
            reason = f"not compared: skip leaves out {' and '.join(f'{one}s' for one in skipped)}"
            return TableResult(table, row.tables[table].state, remark=reason), row
        for _ in range(_TRIES):
            try:
                result = verify_table(comparer, row, table, newer=self._newer_row)
                return (result.keeping_removed() if self._config.keeps_removed(table) else result), row
            except NeedsSparkError:
                raise
            except Exception as error:
                cause = error if isinstance(error, HeadgateError) else find_error(str(error))
                is_temporary = isinstance(cause, (ChunkRetryError, SchemaChangedError))
                newer_row = self._newer_row(row, wait=is_temporary)
                if newer_row is not None:
                    self._row = row = newer_row
                    continue
                if cause is None:
                    raise
                if isinstance(cause, (ChunkRetryError, UnreadableTableError)):
                    return TableResult(table, "undecided", remark=cause.message), row
                raise cause from error
        return TableResult(table, "undecided", remark=f"each of {_TRIES} tries failed; verify again"), row

    def _newer_row(self, row: LedgerRow, *, wait: bool = True) -> LedgerRow | None:
        """Return the newest ledger row if newer than this one; with ``wait``, wait while the pipeline runs."""
        from headgate.carrier import ControlFolder
        from headgate.lake import read_status

        deadline = time.monotonic() + _NEXT_BATCH_SECONDS
        while True:
            status = read_status(ControlFolder(self._lake.inbox))
            alive = wait and status is not None and status.is_alive()
            newest = self._newest()
            if newest.epoch > row.epoch:
                return newest
            if not alive or time.monotonic() > deadline:
                return None
            time.sleep(1)

    def _newest(self) -> LedgerRow:
        from headgate.lake import find_row, newest_row

        return find_row(self._session(), self._lake) if self._lake.obstacle else newest_row(self._lake)

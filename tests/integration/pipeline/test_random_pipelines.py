"""Pipelines beside random transactions, changes of columns, keys and names, and crashes: live tables are MySQL's.

One pipeline has a table of each kind that the configuration knows. Its runs have batches of any size, end at any commit
to a table, and read tables again on request. After each round MySQL is compared with what delta-rs reads, and by
``headgate verify``.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, randrange
from typing import TYPE_CHECKING, Any, Final

import pytest
from deltalake import DeltaTable

from headgate.delta import CommitOutcome, CommitPlan, _commit
from headgate.errors import ConfigError
from headgate.lake import Form, newest_row
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer
from tests.integration.outside import HEADGATE_COLUMNS, Rows, lake_dicts
from tests.integration.pipeline.verifying import verify
from tests.integration.random_writes import RandomWriter, as_text
from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.lake import MergedState, TableState

ROWS: Final = "v < 5 AND (n IS NULL OR n <> 7)"
SETTINGS: Final = {
    "plain": "", "other": "", "bare": "", "masked": "", "shard_1": "", "shard_2": "",
    "filtered": f'rows = "{ROWS}"',
    "hooked": 'hook = "tests.hooks_of_tests:counted"',
    "kept": 'skip = ["delete"]',
    "marked": 'deletes = "mark"',
    "chosen": 'key = ["id"]',
}  # fmt: skip
"""The tables, and their lines in the configuration."""
NOT_IN_HISTORIES: Final = ("bare", "kept", "marked", "chosen")
MAY_STOP: Final = ("filtered", "kept", "marked", "chosen")
"""Tables that some change must stop: without the columns of the filter, with a key that comes twice, with other columns
than those of the rows that stay, without a key."""


class Crashes:
    """Ends a run, when armed, at some commit to a Delta table's log: before it or after it."""

    def __init__(self, patch: pytest.MonkeyPatch, chosen: Random) -> None:
        self._chosen, self._left, self._make, self.count = chosen, 0, _commit._make, 0
        patch.setattr(_commit, "_make", self._commit)

    def arm(self) -> None:
        self._left = self._chosen.randrange(25)

    def disarm(self) -> None:
        self._left = 0

    def _commit(self, folder: str, plan: CommitPlan) -> CommitOutcome:
        is_due = False
        if self._left and not threading.current_thread().name.startswith("headgate"):  # which is upkeep
            self._left -= 1
            is_due = self._left == 0
        outcome = CommitOutcome.UNKNOWN
        if not is_due or self._chosen.random() < 0.5:
            outcome = self._make(folder, plan)
        if is_due:
            self.count += 1
            raise ConfigError("crashed")
        return outcome


@dataclass
class Scene:
    """The pipeline, and its tables as MySQL and the lake have them."""

    runs: Runs
    writer: RandomWriter
    has_history: bool

    def columns(self, table: str) -> dict[str, str]:
        """The columns that a table has in the lake, each with its SQL at MySQL."""
        columns = {one.name: one.sql for one in self.writer.columns(table)}
        if table == "hooked":
            columns["count"] = str(len(columns))
        if table == "masked":
            columns.pop("a", None)
            columns |= {"b": "NULL"} if "b" in columns else {}
            columns |= {"renamed": columns.pop("c")} if "c" in columns else {}
        return dict(sorted(columns.items()))

    def source(self, table: str) -> Rows:
        where = ROWS if table == "filtered" else "TRUE"
        return self.writer.rows(table, self.columns(table).values(), where)

    def lake(self, table: str) -> Rows:
        """The rows that a table has in the lake, as it is now."""
        folder = self.runs.lake.current(f"{self.runs.db}.{table}")
        if table.startswith("shard") and not self.has_history:
            folder = f"{self.runs.lake.current('shop.shards')}/_shards/origin={table}"
        added = {*HEADGATE_COLUMNS, *(name for form in Form for name in form.columns)}
        present = {field.name for field in DeltaTable(folder).schema().fields} - added
        names = [*self.columns(table)]
        assert present == {*names} or (self.has_history and present >= {*names}), (table, present)
        where = "_is_current" if self.has_history else "NOT _deleted" if table == "marked" else "true"
        rows = lake_dicts(folder, [f'"{name}"' for name in names], where=where)
        return Counter(tuple(map(as_text, row.values())) for row in rows)

    def check(self) -> dict[str, TableState]:
        """Compare all tables that did not stop; the states of those that did."""
        row = newest_row(self.runs.lake)
        stopped: dict[str, TableState] = {}
        for table in self.writer.tables:
            state = row.tables[f"{self.runs.db}.{table}"]
            if state.state == "stopped":
                stopped[table] = state
                continue
            assert state.state == ("inexact" if table == "kept" else "live"), (table, state.state, state.reason)
            source, lake = self.source(table), self.lake(table)
            missing, more = source - lake, lake - source
            assert not missing, (table, [*missing][:3], [*more][:3])
            assert table == "kept" or not more, (table, [*more][:3])
            result = verify(self.runs.config(), row, f"{self.runs.db}.{table}")
            assert (result.only_source, result.different, result.undecided) == (0, 0, 0), result
            assert table == "kept" or result.equal == source.total(), result
        self._check_merged(row.merged, stopped)
        return stopped

    def _check_merged(self, merged: Sequence[MergedState], stopped: Collection[str]) -> None:
        if self.has_history or {"shard_1", "shard_2"} & {*stopped} or merged[0].reason is not None:
            return
        columns = sorted({*self.columns("shard_1"), *self.columns("shard_2")})
        expected = Counter[Any]()
        for shard in ("shard_1", "shard_2"):
            names = [*self.columns(shard)]
            for values, count in self.source(shard).items():
                row = dict(zip(names, values, strict=True))
                expected[(shard, *(row.get(name, "None") for name in columns))] += count
        rows = lake_dicts(self.runs.lake.current("shop.shards"), ["origin", *(f'"{name}"' for name in columns)])
        assert Counter(tuple(map(as_text, row.values())) for row in rows) == expected


@pytest.fixture
def scene(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, mode: str) -> Scene:
    runs, has_history = Runs(spark, mysql_server, mysql_db, tmp_path), mode == "history"
    tables = [table for table in SETTINGS if not (has_history and table in NOT_IN_HISTORIES)]
    runs.modes = f'["{mode}"]'
    runs.more = "".join(f'[tables."{mysql_db}.{table}"]\n{SETTINGS[table]}\n' for table in tables if SETTINGS[table])
    runs.more += f'[columns."{mysql_db}.masked"]\na = "exclude"\nb = "null"\nc = {{ rename = "renamed" }}\n'
    if not has_history:
        route = '{ to = "shop.shards", shard = "{table}", column = "origin" }'
        runs.more += f'[routes]\n"{mysql_db}.shard_*" = {route}\n'
    return Scene(runs, RandomWriter(mysql_server, mysql_db, Random(), tables), has_history)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["current", "history"])
def test_live_tables_are_the_sources(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = randrange(1 << 30)
    print(f"seed {seed}")
    runs, writer = scene.runs, scene.writer
    chosen = writer.chosen = Random(seed)
    crashes = Crashes(monkeypatch, chosen)
    for table in writer.tables:
        keys = (
            ["id INT"] if table in ("bare", "chosen") else ["id INT PRIMARY KEY", "id INT, k INT, PRIMARY KEY (id, k)"]
        )
        writer.create(table, chosen.choice(keys))
    for number in range(10):
        for _ in range(2):
            writer.write(chosen.randrange(25))
            if chosen.random() < 0.4:
                tables = [table for table in writer.tables if table != "kept"]
                runs.signal("execute-snapshot", chosen.choice(tables), type="incremental")
            runs.reads = f"max_rows_per_batch = {chosen.choice([3, 10, 1000])}"
            crashes.arm()
            try:
                runs.run(meanwhile=lambda count: writer.write(chosen.randrange(5)) if count < 4 else None)
            except ConfigError as error:
                if error.message != "crashed":
                    raise
            crashes.disarm()
        writer.restore()
        while True:
            reports = runs.run()
            states = {state.state for state in newest_row(runs.lake).tables.values()}
            if not reports or states <= {"live", "inexact", "stopped"}:
                break
        stopped = scene.check()
        print(number, crashes.count, {table: state.reason for table, state in stopped.items()}, flush=True)
        assert scene.has_history or stopped.keys() <= {*MAY_STOP}
        if stopped:  # they begin again
            for table in stopped:
                shutil.rmtree(runs.lake.current(f"{runs.db}.{table}"), ignore_errors=True)
            Pipeline(runs.config(), runs.spark).run(once=True, resnapshot=[f"{runs.db}.{table}" for table in stopped])
    assert crashes.count > 2

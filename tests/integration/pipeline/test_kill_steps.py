"""``kill -9`` of ``headgate run`` at each step of writing and upkeep: nothing is lost, nothing comes twice.

From outside a step is a file that comes or goes: the test waits for one of the kind it has chosen, and kills the
pipeline then or a moment later. Between some kills the writers rest, and a run of the test's own goes to their end: the
tables must be those of the server, as delta-rs and PyMySQL see them and as ``headgate verify`` compares them, and the
changelog must have every change once.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.config import load_config
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.pipeline import Pipeline
from headgate.verification import verify
from headgate_testing import MySQLServer
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.changelogs import changes_in_lake, changes_in_log
from tests.integration.pipeline.killing import CONFIG, TABLES, Writer, assert_runs, headgate, kill, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HURRIED = (str(Path(__file__).with_name("hurried.py")),)
HASTE = "[source]\npoll_ms = 50\n", "[target]\nfreshness_ms = 100\nretention_hours = 20\n"
STARTS_SECONDS = 300.0
STEP_SECONDS = 120.0
"""How long a step is waited for; some are rare."""


@dataclass(frozen=True)
class Step:
    """What files tell of it: those of ``name`` in the folders ``where`` of the lake that come, or go."""

    where: str
    name: str
    goes: bool = False
    holds: str = ""
    """Text in the file."""

    def files(self, lake: Path) -> set[Path]:
        files = set()
        for folder in lake.glob(self.where):
            with suppress(FileNotFoundError):
                files |= {path for path in folder.iterdir() if re.fullmatch(self.name, path.name)}
        return files

    def seen(self, before: set[Path], now: set[Path]) -> bool:
        if self.goes:
            return bool(before - now)
        return any(not self.holds or self.holds in path.read_text() for path in now - before)


COMMIT = r"\d{20}\.json"
STEPS = {
    "batch planned": Step("_headgate/checkpoint/offsets", r"\d+"),
    "data file written": Step("k/*", r".*\.parquet"),
    "vectors written": Step("k/*", r"deletion_vector_.*\.bin"),
    "commit written aside": Step("k/*/_delta_log", r"\.[0-9a-f]{32}"),
    "table committed": Step("k/*/_delta_log", COMMIT),
    "fold committed": Step("k/*/_delta_log", COMMIT, holds='"OPTIMIZE"'),
    "changelog committed": Step("_changelog/k/*/_delta_log", COMMIT),
    "ledger's row written": Step("_headgate/ledger", r".*\.parquet"),
    "ledger committed": Step("_headgate/ledger/_delta_log", COMMIT),
    "batch done": Step("_headgate/checkpoint/commits", r"\d+"),
    "log checkpointed": Step("k/*/_delta_log", r".*\.checkpoint.*\.parquet"),
    "data file removed": Step("k/*", r".*\.(parquet|bin)", goes=True),
    "ledger's file removed": Step("_headgate/ledger", r".*\.parquet", goes=True),
}
RARE = {"fold committed", "log checkpointed", "data file removed", "ledger's file removed"}
"""Steps that some batches have; the others each batch has."""


def kill_at(
    name: str, config: Path, lake: Path, choice: random.Random, *, step: Step | None = None, times: int = 0
) -> str:
    """Start the pipeline, kill it at this step or soon after it; the step, or when else it was.

    :param step: by default the one of this name.
    :param times: how often the step is met before; by default once or twice.
    """
    process = headgate("run", config=config, program=HURRIED)
    log = config.parent / "log.txt"
    step, times = step or STEPS[name], times or choice.choice([1, 1, 2])
    delay = choice.choice([0, 0, 0.005, 0.05, 0.5])
    try:
        started = time.monotonic()
        plans = STEPS["batch planned"]
        planned = plans.files(lake)
        while plans.files(lake) == planned:
            assert_runs(process, log, 0.01)
            assert time.monotonic() - started < STARTS_SECONDS, log.read_text()[-4000:]
        deadline = time.monotonic() + STEP_SECONDS
        before = step.files(lake)
        while times and time.monotonic() < deadline:
            now = step.files(lake)
            times -= step.seen(before, now)
            before = now
        assert_runs(process, log, delay * choice.random())
    finally:
        kill(process)
    return "another moment" if times else name


def run_to_the_end(file: Path, spark: SparkSession) -> None:
    config = load_config(file)
    Pipeline(config, spark).run(once=True)
    results = {result.table: (result.state, result.differences) for result in verify(config)}
    assert results == dict.fromkeys(TABLES, ("live", 0))


def check(server: MySQLServer, lake: Lake) -> None:
    for table in TABLES:
        assert lake_rows(lake.current(table)) == source_rows(server, table), table
    changes = changes_in_lake(lake, TABLES)
    assert max(changes.values()) == 1
    # The stream began at some GTID set while the writers ran: from its first change on, all must be there.
    numbers = [gtid.number for gtid in GtidSet.parse(",".join({gtid for _, _, gtid, _ in changes}))]
    end = GtidSet.parse(server.gtid_executed)
    wanted = GtidSet({(uuid, tag): [(min(numbers), high)] for uuid, tag, _, high in end.intervals()})
    assert changes == changes_in_log(server, TABLES, wanted, end)


@pytest.mark.long
@pytest.mark.needs_own_server
@pytest.mark.timeout(14400)
@pytest.mark.parametrize(
    ("steps", "rounds", "kills"),
    [
        pytest.param(STEPS.keys() - RARE, 1, 2, id="steps of each batch"),
        pytest.param(STEPS.keys(), 10, 10, id="all steps", marks=pytest.mark.slow),
    ],
)
def test_killed_at_each_step(
    request: pytest.FixtureRequest, tmp_path: Path, steps: Collection[str], rounds: int, kills: int
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choice = random.Random(seed)
    config, lake = tmp_path / "pipeline.toml", tmp_path / "lake"
    chosen = sorted(steps) * -(-rounds * kills // len(steps))
    choice.shuffle(chosen)
    happened: Counter[str] = Counter()
    with MySQLServer.start() as server:
        load(server, 2000)
        text = CONFIG.format(url=server.url, lake=lake)
        for lines in HASTE:
            text = text.replace(lines.partition("\n")[0] + "\n", lines)
        config.write_text(text)
        for number in range(rounds):
            writers = [Writer(server, seed + 2 * number + n, 2000) for n in range(2)]
            for writer in writers:
                writer.start()
            for _ in range(kills):
                happened[kill_at(chosen.pop(), config, lake, choice)] += 1
                print(happened.total(), dict(happened), flush=True)
            for writer in writers:
                writer.ended.set()
                writer.join()
            run_to_the_end(config, request.getfixturevalue("spark"))
            check(server, Lake.at(lake))
    assert set(happened) & set(steps), "a step in question was met"
    assert len(steps) > happened.total() or set(steps) <= set(happened)

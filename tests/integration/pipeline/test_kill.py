"""``kill -9`` of the driver at random moments of snapshot and stream: nothing is lost, nothing comes twice.

A pipeline process is killed with everything it started, again and again, while writers run; then it runs once more to
the end, in the test's own session. ``current`` must equal the source (what ``headgate verify`` compares), and
``changelog`` must hold every change since the stream began exactly once, which is held against an independent reading
of the whole log. One of the tables has a hook.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from headgate.config import load_config
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.pipeline import Pipeline
from headgate_testing import MySQLServer
from tests.integration.pipeline.changelogs import changes_in_lake, changes_in_log
from tests.integration.pipeline.killing import (
    CONFIG,
    RUN,
    TABLES,
    Writer,
    assert_runs,
    batches_in,
    headgate,
    kill,
    load,
)
from tests.integration.pipeline.verifying import newest, verify

HOOK = """\
[tables."k.numbers"]
hook = "tests.hooks_of_tests:counted"
"""


def kill_at_random(config: Path, choice: random.Random, longest: float, *, last: bool) -> None:
    """Start the pipeline; kill it and all it started, while it starts or within ``longest`` seconds after a batch."""
    log = config.parent / "log.txt"
    before, wanted = batches_in(log), choice.choice([1, 2, 3] if last else [0, 1, 1, 1, 2, 3])
    process = headgate(*RUN, config=config)
    deadline = time.monotonic() + 600
    try:
        while batches_in(log) - before < wanted:
            assert_runs(process, log, 0.1)
            assert time.monotonic() < deadline, log.read_text()[-4000:]
        assert_runs(process, log, choice.uniform(0, longest))
    finally:  # also if it ended by itself, or got stuck
        kill(process)


@pytest.mark.needs_own_server
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("kills", "rows", "longest"),
    [
        pytest.param(1, 2_000, 4.0, marks=pytest.mark.long),
        pytest.param(20, 20_000, 12.0, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_killed_at_random_moments(
    request: pytest.FixtureRequest, tmp_path: Path, kills: int, rows: int, longest: float
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choice = random.Random(seed)
    with MySQLServer.start() as server:
        load(server, rows)
        settings = ConnectionSettings.from_url(server.url)
        config, lake = tmp_path / "pipeline.toml", tmp_path / "lake"
        config.write_text(CONFIG.format(url=server.url, lake=lake) + HOOK)
        writers = [Writer(server, seed + n, rows) for n in range(2)]
        for writer in writers:
            writer.start()
        for number in range(kills):
            kill_at_random(config, choice, longest, last=number == kills - 1)
        for writer in writers:
            writer.ended.set()
            writer.join()
        spark = request.getfixturevalue("spark")
        copy = load_config(config)
        Pipeline(copy, spark).run(once=True)
        row = newest(Lake.at(lake))
        for table in TABLES:
            result = verify(copy, row, table)
            assert (result.state, result.differences) == ("live", 0), result
        with Connection.open(settings) as connection:
            end = gtid_executed(connection)
        changes = changes_in_lake(Lake.at(lake), TABLES)
        assert changes, "the pipeline never got as far as the stream"
        assert max(changes.values()) == 1
        # The stream began at some GTID set while the writers ran: from its first change on, all must be there.
        began = GtidSet.parse(",".join({gtid for _, _, gtid, _ in changes}))
        numbers = {gtid.number for gtid in began}
        wanted = GtidSet({(uuid, tag): [(min(numbers), high)] for uuid, tag, _, high in end.intervals()})
        assert changes == changes_in_log(server, TABLES, wanted, end)

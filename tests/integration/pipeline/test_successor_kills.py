"""Tables that are made again beside the old ones, of a real server: while ``headgate run`` reads one of them again and
is killed at each step, delta-rs reads it, too, and finds all rows of the old table or all of the new one.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

from headgate.lake import Lake
from headgate_testing import MySQLServer
from tests.integration.beside import beside
from tests.integration.outside import Rows, lake_rows, source_rows
from tests.integration.pipeline.killing import CONFIG, load
from tests.integration.pipeline.test_kill_steps import COMMIT, HASTE, Step, kill_at, run_to_the_end

TABLE = "k.numbers"
STEPS = {
    "successor made": Step("k/numbers/_successor_*/_delta_log", COMMIT),
    "rows written": Step("k/numbers/_successor_*", r".*\.parquet"),
    "rows committed": Step("k/numbers/_successor_*/_delta_log", COMMIT, holds='"add"'),
    "batch committed": Step("_headgate/ledger/_delta_log", COMMIT),
    "taken over": Step("k/numbers/_delta_log", COMMIT, holds="REPLACE TABLE"),
    "batch done": Step("_headgate/checkpoint/commits", r"\d+"),
}
ONCE = ("successor made", "taken over")
ALTERS = (
    "ALTER TABLE k.numbers MODIFY v VARCHAR(20)",
    "ALTER TABLE k.numbers MODIFY v INT, DROP PRIMARY KEY, ADD PRIMARY KEY (t)",
    "ALTER TABLE k.numbers DROP PRIMARY KEY, ADD PRIMARY KEY (id), MODIFY v VARCHAR(20)",
    "ALTER TABLE k.numbers MODIFY v INT",
)
ROWS = 14_000
"""Five chunks of 3,000."""


class Reader:
    """Reads the table again and again: it must have these rows, or later those."""

    def __init__(self, folder: str, old: Rows, new: Rows) -> None:
        self.folder, self.old, self.new, self.counts = folder, old, new, Counter[str]()

    def read(self, _choice: random.Random, stop: threading.Event) -> None:
        while not stop.is_set():
            self.look()

    def look(self) -> None:
        rows = lake_rows(self.folder)
        which = "new" if rows == self.new else "old"
        assert rows == self.new or rows == self.old, f"{rows.total()} rows of neither table"
        assert which == "new" or not self.counts["new"], "the old table came back"
        self.counts[which] += 1


@pytest.mark.long
@pytest.mark.needs_own_server
@pytest.mark.timeout(14400)
@pytest.mark.parametrize(
    ("steps", "alters", "kills"),
    [
        pytest.param(["taken over"], 1, 1, id="one step"),
        pytest.param(STEPS.keys(), 8, 6, id="all steps", marks=pytest.mark.slow),
    ],
)
def test_killed_while_a_table_is_made_again(
    request: pytest.FixtureRequest, tmp_path: Path, steps: Collection[str], alters: int, kills: int
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choice = random.Random(seed)
    config, lake = tmp_path / "pipeline.toml", Lake.at(tmp_path / "lake")
    folder = lake.current(TABLE)
    happened: Counter[str] = Counter()
    with MySQLServer.start() as server:
        load(server, ROWS)
        text = CONFIG.format(url=server.url, lake=lake.path)
        for lines in HASTE:
            text = text.replace(lines.partition("\n")[0] + "\n", lines)
        text = text.replace('["current", "changelog"]', '"current"')  # a changelog holds no other type
        config.write_text(text)
        run_to_the_end(config, request.getfixturevalue("spark"))
        for number in range(alters):
            old = source_rows(server, TABLE)
            assert lake_rows(folder) == old
            server.execute(ALTERS[number % len(ALTERS)])
            reader = Reader(folder, old, source_rows(server, TABLE))
            assert reader.old != reader.new
            chosen = sorted(steps, key=[*STEPS].index) if number == 0 else choice.choices(sorted(steps), k=kills)
            with beside(reader.read, 1):
                for name in chosen[:kills]:
                    if reader.counts["new"]:
                        break
                    server.execute("UPDATE k.names SET v = v + 1 WHERE name = 'name 7'")  # a batch, in any case
                    times = 1 if name in ONCE or number == 0 else choice.choice([1, 2, 3])
                    happened[kill_at(name, config, Path(lake.path), choice, step=STEPS[name], times=times)] += 1
                    print(happened.total(), dict(happened), dict(reader.counts), flush=True)
                run_to_the_end(config, request.getfixturevalue("spark"))
            reader.look()
            assert lake_rows(folder) == reader.new
            assert reader.counts["old"]
            server.execute(f"UPDATE {TABLE} SET v = v + 1 WHERE id % 7 = 0", f"DELETE FROM {TABLE} WHERE id = {number}")
            run_to_the_end(config, request.getfixturevalue("spark"))
            assert lake_rows(folder) == source_rows(server, TABLE)
    assert happened.total() >= alters, "each time it was killed at least once"

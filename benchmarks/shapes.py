"""What each shape of the output costs: ``python -m benchmarks.shapes [--rows N] [--changes N] [--output FILE]``.

The same table and the same changes into pipelines of different shapes, one after another: plain ``current``; deleted
rows kept (``deletes = "mark"``); every version of a row kept (``history``); a changelog; columns hashed or excluded by
rules; a table merged by a route; a column that a hook makes; Kafka; ``current`` and Kafka.

Measured from outside: seconds of ``headgate run --once``, a process of its own, that reads the table (*read*), and of
one that brings ``--changes`` transactions of one row, 30 % inserts, 60 % updates, 10 % deletes (*changes*). Starts are
not what is compared: a run that finds nothing new is measured for each shape, and its seconds are subtracted.
A round on a small table comes first and does not count.
``of_current`` is the time as a multiple of plain ``current``'s in the same round; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks._bench import DB, SCHEMA, fill, progress, report
from headgate_testing import KafkaBroker, MySQLServer

PATIENCE: Final = 900.0
GROUP: Final = 500
PLAIN: Final = "current"
KAFKA: Final = '[target.kafka]\nbootstrap = "{bootstrap}"\ntopic_prefix = "{prefix}"\n'
SHAPES: Final = {
    PLAIN: 'mode = "current"\n',
    "current, deleted rows marked": 'mode = "current"\ndeletes = "mark"\n',
    "history": 'mode = "history"\n',
    "current, two columns hashed": 'mode = "current"\n[columns."*.*"]\nnote = "hash"\ncustomer_id = "hash"\n',
    "current, two columns excluded": 'mode = "current"\n[columns."*.*"]\nnote = "exclude"\ncustomer_id = "exclude"\n',
    "current, merged by a route": 'mode = "current"\n[routes]\n"*.*" = {{ to = "all.orders", shard = "{{db}}" }}\n',
    "current, a column by a hook": f'mode = "current"\n[tables."{DB}.orders"]\nhook = "hook:with_length"\n',
    "changelog": 'mode = "changelog"\n',
    "current and changelog": 'mode = ["current", "changelog"]\n',
    "kafka, at least once": f'mode = "kafka"\n{KAFKA}',
    "kafka, exactly once": f'mode = "kafka"\n{KAFKA}delivery = "exactly-once"\n',
    "current and kafka": f'mode = ["current", "kafka"]\n{KAFKA}',
}


HOOK: Final = """
import pyarrow.compute as pc


def with_length(rows):
    return rows.append_column("note_length", pc.utf8_length(rows["note"]))
"""


class Pipeline:
    """A pipeline of one shape."""

    def __init__(self, mysql: MySQLServer, broker: KafkaBroker, folder: Path, target: str) -> None:
        folder.mkdir(parents=True)
        (folder / "key").write_text("a key for these hashes", encoding="utf-8")
        (folder / "hook.py").write_text(HOOK, encoding="utf-8")
        self._file, self._log = folder / "pipeline.toml", folder / "run.log"
        prefix = f"{folder.parent.name}-{folder.name}"
        self._file.write_text(
            f'name = "{prefix}"\n[source]\nurl = "{mysql.url}/?tls=disabled"\ntables = ["{DB}.orders"]\n'
            f'mask_key_file = "{folder / "key"}"\n[target]\npath = "{folder / "lake"}"\n'
            + target.format(bootstrap=broker.bootstrap, prefix=prefix),
            encoding="utf-8",
        )

    def seconds(self) -> float:
        """Seconds of a run that brings what there is."""
        command, begun = [sys.executable, "-m", "headgate.cli", "run", "--once", str(self._file)], time.monotonic()
        with self._log.open("ab") as out:
            paths = [str(self._file.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=PATIENCE, env=env, check=False)
        if done.returncode:
            raise RuntimeError(f"a run ended with {done.returncode}: {self._log.read_text('utf-8')[-2000:]}")
        return time.monotonic() - begun


def change(mysql: MySQLServer, rows: int, transactions: int) -> None:
    """Commit transactions of one row."""
    from pymysql.constants import CLIENT

    choice, new = random.Random(transactions), rows
    with mysql.connect(database=DB, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS) as connection:
        cursor = connection.cursor()
        for first in range(0, transactions, GROUP):
            statements = []
            for _ in range(first, min(transactions, first + GROUP)):
                kind, key = choice.random(), choice.randrange(rows)
                if kind < 0.3:
                    new += 1
                    values = f"({new}, 1, 'new', 1, 'note {new}', NOW(3), NULL, 0)"
                    statements.append(f"INSERT INTO orders VALUES {values} ON DUPLICATE KEY UPDATE flag = 1 - flag")
                elif kind < 0.9:
                    statements.append(f"UPDATE orders SET amount = amount + 1, flag = 1 - flag WHERE id = {key}")
                else:
                    statements.append(f"DELETE FROM orders WHERE id = {key}")
            cursor.execute(";".join(statements))
            while cursor.nextset():
                pass


def measure(mysql: MySQLServer, broker: KafkaBroker, folder: Path, rows: int, changes: int) -> dict[str, Any]:
    """Return the seconds of reading, and of the changes, of each shape in one round."""
    mysql.execute(f"DROP DATABASE IF EXISTS {DB}", f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.orders ({SCHEMA})")
    progress(f"{folder.name}: loading {rows:,} rows")
    fill(mysql, f"{DB}.orders", rows)
    pipelines = {name: Pipeline(mysql, broker, folder / str(i), text) for i, (name, text) in enumerate(SHAPES.items())}
    seconds, starts = dict[str, Any](), dict[str, float]()
    for name, pipeline in pipelines.items():
        first = pipeline.seconds()
        starts[name] = pipeline.seconds()
        seconds[name] = {"read": first - starts[name]}
        progress(f"{name}: {first:.1f} s to read the table, {starts[name]:.1f} s for nothing")
    change(mysql, rows, changes)
    for name, pipeline in pipelines.items():
        seconds[name]["changes"] = pipeline.seconds() - starts[name]
        progress(f"{name}: {seconds[name]['changes']:.1f} s for the changes")
    return seconds


def line(name: str, rounds: list[dict[str, Any]], sizes: dict[str, int]) -> dict[str, Any]:
    result: dict[str, Any] = {"shape": name}
    for what, size in sizes.items():
        middle = median(one[name][what] for one in rounds)
        result[f"{what}_seconds"] = round(middle, 2)
        result[f"{what}_per_second"] = int(size / middle)
        result[f"{what}_of_current"] = round(median(one[name][what] / one[PLAIN][what] for one in rounds), 2)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output")
    args = parser.parse_args()
    flags = {"innodb_buffer_pool_size": 1 << 30, "innodb_flush_log_at_trx_commit": 0, "max_binlog_size": 1 << 30}
    with MySQLServer.start(flags=flags) as mysql, KafkaBroker.start() as broker, tempfile.TemporaryDirectory() as name:
        measure(mysql, broker, Path(name, "warm"), 1_000, 100)  # compiles kernels, keeps Java's classes
        folders = [Path(name, f"round{number}") for number in range(args.rounds)]
        rounds = [measure(mysql, broker, folder, args.rows, args.changes) for folder in folders]
    sizes = {"read": args.rows, "changes": args.changes}
    return report("shapes", [line(name, rounds, sizes) for name in SHAPES], output=args.output)


if __name__ == "__main__":
    sys.exit(main())

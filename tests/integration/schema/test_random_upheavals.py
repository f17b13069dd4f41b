"""Random transactions among ALTERs, other keys, exchanged names and dropped tables: a live table equals its source.

The planner, the tasks and the decisions are the real ones; statements also come between the planning of a batch and its
reading. ``tests/integration/pipeline/test_random_pipelines.py`` does the same with Spark and Delta.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from headgate.control import parse_signal, submit
from headgate_testing import MySQLServer
from tests.integration.random_writes import RandomWriter, as_text
from tests.integration.streams import Stream

TABLES = ("t", "u")
KEYS = ("id INT PRIMARY KEY", "id INT, k INT, PRIMARY KEY (id, k)", "id INT NOT NULL, UNIQUE uk (id)")


def check(stream: Stream, writer: RandomWriter) -> None:
    """Compare the tables that are live, but for those without a key, whose rows are not counted here."""
    for name, state in stream.states.items():
        target, table = stream.copies[name].target, name.partition(".")[2]
        if state.state != "live" or target is None or not target.key:
            continue
        columns = {one.name: one.sql for one in writer.columns(table)}
        assert target.types.keys() == columns.keys(), table
        rows = Counter(tuple(as_text(row[one]) for one in columns) for _, row in stream.copies[name].rows.values())
        expected = writer.rows(table, columns.values())
        assert rows == expected, (table, [*columns], [*(expected - rows)][:3], [*(rows - expected)][:3])


def live_through(stream: Stream, writer: RandomWriter) -> None:
    chosen = writer.chosen
    for _ in range(6):
        writer.write(chosen.randrange(5))
        if chosen.random() < 0.2:
            stream.restart()
        if chosen.random() < 0.15:
            data = {"type": "incremental", "data-collections": [f"{stream.db}\\.{chosen.choice(TABLES)}"]}
            submit(stream.inbox, parse_signal({"type": "execute-snapshot", "data": data}))
        end = stream.planner.latest(stream.offset)
        is_raced = chosen.random() < 0.5
        if is_raced:
            writer.write(chosen.randrange(1, 3))
        stream.batch(end=end)
        if not is_raced:
            check(stream, writer)
    writer.restore()
    for _ in range(40):
        if not stream.batch():
            break
    assert {stream.states[f"{stream.db}.{table}"].state for table in TABLES} == {"live"}
    check(stream, writer)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=pytest.mark.slow)])
def test_live_tables_equal_their_sources(mysql_server: MySQLServer, tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        db, folder, chosen = f"upheavals_{seed}", tmp_path / str(seed), Random(seed)
        folder.mkdir()
        mysql_server.execute(f"CREATE DATABASE {db} CHARACTER SET utf8mb4")
        writer = RandomWriter(mysql_server, db, chosen, TABLES, alters=0.6)
        try:
            for table in TABLES:
                writer.create(table, chosen.choice(KEYS))
            append = chosen.choice(["true", "false"])
            live_through(Stream(mysql_server, db, folder, chunk_rows="7", append=append), writer)
        except BaseException as error:
            error.add_note("\n".join([f"seed {seed}", *writer.statements[-80:]]))
            raise
        finally:
            mysql_server.execute(f"DROP DATABASE {db}")

"""``headgate snapshot``: all rows as of one GTID set, retried while nothing is printed, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli import app
from tests.replication.pretended import UUID
from tests.snapshot.selectable import SelectableServer, connected, ready


def run(server: SelectableServer, *words: str) -> tuple[int, list[dict[str, Any]], list[str]]:
    """Return the exit code, the lines, and those of stderr."""
    with connected(server) as network:
        result = CliRunner().invoke(app, ["snapshot", "mysql://reader@pretended", *words])
    assert network.open == 0
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr.splitlines()


def filled(*, is_keyed: bool = True) -> SelectableServer:
    server = ready()
    server.is_keyed = is_keyed
    server.change(*((None, (key, 10 * key)) for key in range(1, 6)))
    return server


def ids(lines: list[dict[str, Any]]) -> list[int]:
    return [line["after"]["id"] for line in lines]


def test_rows_of_all_chunks_are_as_of_one_set() -> None:
    server = filled()
    server.before_select = lambda: server.change(
        (None, (100 + server.number, None)), ((5, 50), (5, 51)), ((5, 51), (5, 50))
    )
    code, lines, error = run(server, "-t", "d.*", "--chunk-rows", "2")
    assert (code, error) == (0, [f"{UUID}:1"])
    assert sorted(ids(lines)) == [1, 2, 3, 4, 5]
    assert [line["ordinal"] for line in lines] == [0, 1, 2, 3, 4]
    row = {"op": "r", "db": "d", "table": "t", "gtid": None, "file": None, "pos": None, "before": None}
    for line in lines:
        assert {name: line[name] for name in row} == row
        assert line["after"] == {"id": line["after"]["id"], "v": 10 * line["after"]["id"]}
    assert sum("MAX_EXECUTION_TIME" in sql for sql in server.statements) == 4, "above the greatest key, and 3 of 2 rows"


def test_a_disturbed_attempt_is_repeated_at_a_later_set() -> None:
    server = filled(is_keyed=False)
    times = iter([True, True])

    def disturb() -> None:
        if next(times, False):
            server.change((None, (9, None)))

    server.after_select = disturb
    code, lines, error = run(server, "-t", "d.*")
    assert (code, sorted(ids(lines)), error) == (0, [1, 2, 3, 4, 5, 9, 9], [f"{UUID}:1-3"])


@pytest.mark.parametrize("locks", [[], ["--watermark", "lock", "--lock-hold", "read"]])
def test_a_disturbed_attempt_ends_its_connections_and_locks_before_the_next(locks: list[str]) -> None:
    server = filled()
    opened: list[int] = []

    def alter() -> None:
        if server.number == 1:
            server.statement("ALTER TABLE d.t ADD COLUMN w INT")

    with connected(server) as network:
        server.before_select = lambda: opened.append(network.open)
        server.before_lock = server.after_select = alter
        result = CliRunner().invoke(app, ["snapshot", "mysql://reader@pretended", "-t", "d.*", *locks])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 5)
    first, second = opened
    assert first == second


def test_a_table_that_is_disturbed_each_time() -> None:
    server = filled(is_keyed=False)
    server.after_select = lambda: server.change((None, (9, None)))
    code, lines, (error,) = run(server, "-t", "d.*")
    assert (code, lines) == (3, [])
    assert "(at each of 20 attempts): run it again, or leave the table out" in error
    assert sum("MAX_EXECUTION_TIME" in sql for sql in server.statements) == 20


def test_rows_that_were_printed_cannot_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.cli._snapshot._CHUNKS_AT_ONCE", 1)
    server = filled()
    reads = iter(range(10))

    def alter() -> None:
        if next(reads) == 2:
            server.statement("ALTER TABLE d.t ADD COLUMN w INT")

    server.after_select = alter
    code, lines, (error,) = run(server, "-t", "d.*", "--chunk-rows", "2")
    assert (code, ids(lines)) == (3, [1, 2])
    assert "DDL while the chunk was read: ALTER TABLE" in error
    assert "(rows were printed already): run it again" in error


def test_rows_that_are_kept_are_those_of_their_select() -> None:
    server = filled()
    server.before_select = lambda: server.change(((5, 50), (5, 51)), ((1, 10), None))
    code, lines, error = run(server, "-t", "d.t", "--window", "keep")
    assert (code, error) == (0, [f"{UUID}:1"])
    assert [(line["after"]["id"], line["after"]["v"]) for line in lines] == [(2, 20), (3, 30), (4, 40), (5, 51)]


def test_locks_make_a_table_without_a_key_readable_however_much_it_is_written() -> None:
    server = filled(is_keyed=False)
    server.before_select = server.after_select = lambda: server.change((None, (9, None)))
    code, lines, error = run(server, "-t", "d.t", "--watermark", "lock", "--lock-wait-seconds", "7")
    assert (code, sorted(ids(lines)), error) == (0, [1, 2, 3, 4, 5], [f"{UUID}:1"])
    assert server.statements.index("SET SESSION lock_wait_timeout = 7") < server.statements.index(
        "LOCK TABLES `d`.`t` READ"
    )


def test_a_watermark_is_committed_after_the_end_of_the_log_was_taken() -> None:
    server = filled()
    server.answers |= {"SELECT @@SESSION.sql_log_bin": [(1,)], "INSERT INTO `d`.`signals`": []}
    words = ["-t", "d.t", "--watermark", "signal-table", "--signal-table", "d.signals"]
    code, lines, error = run(server, *words)
    assert (code, ids(lines), error) == (0, [1, 2, 3, 4, 5], [f"{UUID}:1"])
    taken = next(n for n, sql in enumerate(server.statements) if "@@global.gtid_executed" in sql)
    marked = next(n for n, sql in enumerate(server.statements) if sql.startswith("INSERT INTO"))
    read = next(n for n, sql in enumerate(server.statements) if "MAX_EXECUTION_TIME" in sql)
    assert taken < marked < read


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-t", "shop.*"], 2, "no table matches shop.*: the account lacks SELECT: GRANT SELECT ON `shop`.* TO"),
        (["-t", "d.odrers"], 2, "no table matches d.odrers: check the spelling (case counts)"),
        (["-t", "d.*", "-t", "d.odrers"], 2, "no table matches d.odrers: check the spelling (case counts)"),
        (["-t", "d.t", "--watermark", "signal-table"], 2, "--watermark signal-table needs --signal-table DB.TABLE"),
        (["-t", "nodot"], 2, "not a table pattern"),
        (["-t", "d.t", "--rules", "none.toml"], 2, "cannot be read"),
    ],
)
def test_what_is_refused(words: list[str], code: int, message: str) -> None:
    got, lines, error = run(filled(), *words)
    assert (got, lines, message in error[-1]) == (code, [], True), error


def test_an_engine_without_consistent_reads_is_refused() -> None:
    server = filled()
    server.engine = "MyISAM"
    code, lines, (error,) = run(server, "-t", "d.*")
    assert (code, lines) == (3, [])
    assert "engine MyISAM has no consistent reads: ALTER TABLE … ENGINE = InnoDB" in error
    assert "--tables '!d.t'" in error

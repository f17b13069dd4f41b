"""Groups of consumers on a real server: members are killed, stopped and started while a writer writes, and the relay is
killed, too; every change comes, in order, at least once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from headgate_testing import MySQLServer, pass_time, wait_until
from headgate_testing._ports import free_port
from tests.integration.relay.test_relay import DEADLINE_SECONDS, SRC, Process, Writer, do
from tests.integration.relay.test_relay_bootstrap import SMALL_CHUNKS

PARTITIONS = 6
LEASE_SECONDS = 2


@contextmanager
def member(port: int, out: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """``headgate consume --group``; what it prints is appended to a file that all members share."""
    command = [
        sys.executable, "-m", "headgate.cli", "consume", f"http://127.0.0.1:{port}", "--group", "g",
        "--partitions", str(PARTITIONS), "--lease-seconds", str(LEASE_SECONDS), *more,
    ]  # fmt: skip
    with (
        out.open("ab") as lines,
        out.with_suffix(".errors").open("ab") as errors,
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": SRC}, stdout=lines, stderr=errors) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def printed(out: Path) -> list[dict[str, Any]]:
    """Whole lines: of what is just being written, the first part may be there already."""
    whole, _, _ = out.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def wait_for(holds: Callable[[], bool], out: Path) -> None:
    wait_until(holds, lambda: out.with_suffix(".errors").read_text()[-3000:], seconds=DEADLINE_SECONDS, every=0.1)


def check(lines: list[dict[str, Any]], rows: int) -> None:
    """Keys are 1, 2, 3, … in the order of the log. The lines are in the order in which they were printed: of each
    partition none comes before all that are before it in the log.
    """
    assert {line["key"] for line in lines} == set(range(1, rows + 1))
    of_key = {line["key"]: line["partition"] for line in lines}
    for partition in range(PARTITIONS):
        log = sorted(key for key, one in of_key.items() if one == partition)
        place, next_place = {key: n for n, key in enumerate(log)}, 0
        for key in (line["key"] for line in lines if line["partition"] == partition):
            assert of_key[key] == partition
            assert place[key] <= next_place, f"what came before {key} was left out"
            next_place = max(next_place, place[key] + 1)


def relay_file(tmp_path: Path, server: MySQLServer, db: str) -> Path:
    server.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT, part INT)")
    file = tmp_path / "relay.toml"
    file.write_text(
        f'state = "state"\n[[physical]]\nid = 1\nname = "t"\nurl = "{server.url}"\n'
        f'[[physical.sources]]\nid = 40\nname = "test.T"\ntable = "{db}.t"\n'
    )
    return file


def rows_of(server: MySQLServer, db: str) -> int:
    with server.connect(database=db) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM t")
        (row,) = cursor.fetchall()
        return int(row[0])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_members_are_killed_under_load(mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> None:
    server, db = mysql_server, mysql_db
    chance = random.Random(5)
    out = tmp_path / "lines"
    out.touch()
    port = str(free_port())
    options = ("--disk-bytes", "300000000", "--from", server.gtid_executed, "--port", port)
    file = relay_file(tmp_path, server, db)
    running: list[Any] = []

    def start() -> None:
        context = member(int(port), out)
        running.append((context, context.__enter__()))

    def end(which: int, how: signal.Signals) -> None:
        context, process = running.pop(which)
        process.send_signal(how)
        process.wait(DEADLINE_SECONDS)
        context.__exit__(None, None, None)

    relay = Process(file, *options)
    relay.__enter__()
    try:
        with Writer(server, db) as writer:
            start()
            start()
            for turn in range(10):
                before = len(printed(out))
                wait_for(lambda before=before: len(printed(out)) > before + 50, out)  # type: ignore[misc]
                if turn == 5:
                    relay.kill()
                    relay.__exit__()
                    relay = Process(file, *options)
                    relay.__enter__()
                elif turn % 3 == 2:  # a member that hangs, and comes back when others have what it had
                    _, process = running[0]
                    process.send_signal(signal.SIGSTOP)
                    wait_for(lambda before=before: len(printed(out)) > before + 100, out)  # type: ignore[misc]
                    pass_time(LEASE_SECONDS * 1.5)  # the lease ends
                    process.send_signal(signal.SIGCONT)
                elif turn % 3:
                    start()
                    end(chance.randrange(2), chance.choice([signal.SIGKILL, signal.SIGTERM]))
                else:
                    start()
        assert writer.error is None
        rows = rows_of(server, db)
        wait_for(lambda: len({line["key"] for line in printed(out)}) == rows, out)
        while running:
            end(0, signal.SIGTERM)
        check(printed(out), rows)
    finally:
        for context, _ in running:
            context.__exit__(None, None, None)
        relay.__exit__()


# --- rows first


class Changes:
    """Rows of ``t`` that are changed, deleted and put in at random, until it is told to stop."""

    def __init__(self, server: MySQLServer, db: str, rows: int) -> None:
        self._server, self._db, self._rows = server, db, rows
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)

    def _run(self) -> None:
        dice = random.Random(9)
        try:
            while not self._stop.is_set():
                one, two, three = (dice.randrange(self._rows) for _ in range(3))
                do(
                    self._server, self._db, f"UPDATE t SET n = n + 1 WHERE id BETWEEN {one} AND {one + 5}",
                    f"DELETE FROM t WHERE id = {two}", f"REPLACE INTO t VALUES ({three}, 0, {one})",
                )  # fmt: skip
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.error = error


def folded(lines: list[dict[str, Any]]) -> dict[int, tuple[int, ...]]:
    """What the lines make of the table, one after the other."""
    rows: dict[int, tuple[int, ...]] = {}
    for line in lines:
        if line["opcode"] == "DELETE":
            rows.pop(line["key"], None)
        else:
            rows[line["key"]] = tuple(line["row"].values())
    return rows


def bootstrapped(server: MySQLServer, db: str, tmp_path: Path, *, rows: int, turns: int) -> None:
    """Members and relay are killed by turns until rows and changes have made of the lines what the table is."""
    out, port = tmp_path / "lines", free_port()
    out.touch()
    file = relay_file(tmp_path, server, db)
    values = ", ".join(f"({n}, 0, {n})" for n in range(1, rows))
    server.execute(f"INSERT INTO {db}.t VALUES {values}")
    members: list[Any] = []

    def relay() -> Process:
        process = Process(file, "--disk-bytes", "300000000", "--port", str(port))
        process._command[1:3] = ["-c", SMALL_CHUNKS]
        return process.__enter__()

    def join(*options: str) -> None:
        context = member(port, out, *options)
        members.append((context, context.__enter__()))

    def kill(which: int, how: signal.Signals) -> None:
        context, process = members.pop(which)
        process.send_signal(how)
        process.wait(DEADLINE_SECONDS)
        context.__exit__(None, None, None)

    def modes() -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/groups/g", timeout=DEADLINE_SECONDS) as answer:
            partitions = json.load(answer)["partitions"]
        return {(one["checkpoint"] or {}).get("consumption_mode", "none") for one in partitions}

    serving = relay()
    try:
        with Changes(server, db, rows) as changes:
            join("--bootstrap")
            join("--bootstrap")
            for turn in range(turns):
                before = len(printed(out))
                wait_for(lambda before=before: len(printed(out)) > before + 100, out)  # type: ignore[misc]
                assert modes() & {"none", "BOOTSTRAP_SNAPSHOT", "BOOTSTRAP_CATCHUP"}  # in the middle of it
                if turn % 2:
                    serving.kill()
                    serving.__exit__()
                    serving = relay()
                else:
                    kill(0, signal.SIGKILL)
                    join()  # the group knows that it bootstraps
            wait_for(lambda: modes() == {"ONLINE_CONSUMPTION"}, out)
        assert changes.error is None
        table = {row[0]: row for row in server.query(f"SELECT * FROM {db}.t")}
        wait_for(lambda: folded(printed(out)) == table, out)
        while members:
            kill(0, signal.SIGTERM)
        of_key = {line["key"]: line["partition"] for line in printed(out)}
        assert all(of_key[line["key"]] == line["partition"] for line in printed(out))
        assert set(of_key.values()) == set(range(PARTITIONS))
    finally:
        for context, _ in members:
            context.__exit__(None, None, None)
        serving.__exit__()


@pytest.mark.long
def test_members_and_relay_are_killed_while_rows_come_first(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    bootstrapped(mysql_server, mysql_db, tmp_path, rows=2_000, turns=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_members_and_relay_are_killed_many_times_while_rows_come_first(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    bootstrapped(mysql_server, mysql_db, tmp_path, rows=20_000, turns=8)

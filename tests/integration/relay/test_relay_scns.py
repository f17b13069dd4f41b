"""SCNs over a log that was reset and one that was purged: they go on growing, or the relay says why it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, get_args

import pytest

from headgate.config import ScnKind
from headgate.relay.server import LogicalSource
from headgate_testing import MySQLServer
from tests.integration.relay.test_relay import DEADLINE_SECONDS, Consumer, do, relaying

SOURCE = LogicalSource(1, "test.T", "d.t")


@contextmanager
def relays(server: MySQLServer, folder: Path, **more: Any) -> Iterator[dict[ScnKind, Consumer]]:
    """One of each kind, with states of their own."""
    with ExitStack() as stack:
        yield {
            kind: stack.enter_context(
                relaying(
                    server,
                    SOURCE,
                    state=folder / kind,
                    scn=kind,
                    scn_column="d.t.id" if kind in ("application", "source-generated") else None,
                    **more,
                )
            )
            for kind in get_args(ScnKind)
        }


def insert(server: MySQLServer, *ids: int) -> None:
    for one in ids:
        do(server, "d", f"INSERT INTO t VALUES ({one})")


def problem(consumer: Consumer, text: str) -> str:
    """The relay's status, once it speaks of ``text``."""
    end = time.monotonic() + DEADLINE_SECONDS
    while text not in (status := consumer.get("admin/status")[2].decode()):
        assert time.monotonic() < end, status
    return str(json.loads(status)["status"])


def scns_of(consumer: Consumer, ids: list[int]) -> list[int]:
    events = [event for window in consumer.until(lambda one: len(one.windows) > len(ids)) for event in window]
    assert [event.key for event in events] == ids
    return [event.scn for event in events]


@pytest.mark.slow
@pytest.mark.needs_own_server
def test_every_kind_after_a_reset_and_a_purge(tmp_path: Path) -> None:
    """What each kind does:

    | kind | RESET BINARY LOGS AND GTIDS | then --anew | purged while the relay was away |
    |---|---|---|---|
    | binlog-offset | refused | refused: files and offsets are smaller | refused |
    | all others | refused | goes on, with greater SCNs | refused |
    """
    with MySQLServer.start() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        with relays(server, tmp_path / "purged") as first:
            insert(server, 1)
            for one in first.values():
                scns_of(one, [1])
        insert(server, 2)
        server.purge_log()
        with relays(server, tmp_path / "purged") as purged:
            for one in purged.values():
                assert problem(one, "purged") == "SUSPENDED_ON_ERROR"
                assert one.pull(wait_ms=1) == 0
        with relays(server, tmp_path / "reset") as first:
            insert(server, 3)
            server.execute("FLUSH BINARY LOGS")  # so that the new log's places are smaller
            insert(server, 4)
            last = {kind: scns_of(one, [3, 4])[-1] for kind, one in first.items()}
        server.reset_log()
        insert(server, 10, 11)
        with relays(server, tmp_path / "reset") as consumers:
            for one in consumers.values():
                problem(one, "its binlog was reset")
                assert one.pull(wait_ms=1) == 0
        with relays(server, tmp_path / "reset", had="", anew=True) as anew:
            for kind, one in anew.items():
                if kind == "binlog-offset":
                    assert problem(one, "is valid for one server and one binlog only") == "SUSPENDED_ON_ERROR"
                    continue
                scns = scns_of(one, [10, 11])
                assert last[kind] < scns[0] < scns[1]

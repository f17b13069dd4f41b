"""The timeline by which DBLog's watermarks are commonly explained, made step by step on a real server.

A table holds K2, K3 and K4. Before the window opens, K1 is inserted, K2 updated and K3 deleted. While it is open, K5 is
inserted, the chunk is read (K1, K2, K4, K5), K4 is deleted and K6 inserted. The window closes; one more change follows.
Its source: "DBLog: A Watermark Based Change-Data-Capture Framework", and articles on Debezium's incremental snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.gtid import GtidSet
from headgate.mysql import Connection, select_blocks
from headgate.offsets import ChunkSpec
from headgate.policies import Policies, Window
from headgate_testing import MySQLServer
from tests.integration.changes import Log, plain


@pytest.fixture
def log(mysql_server: MySQLServer) -> Iterator[Log]:
    log = Log(mysql_server, "timeline")
    log.do("CREATE TABLE t (k VARCHAR(4) PRIMARY KEY, v INT)", "INSERT INTO t VALUES ('K2', 0), ('K3', 0), ('K4', 0)")
    yield log
    mysql_server.execute("DROP DATABASE timeline")


def folded(images: list[dict[str, Any]]) -> dict[str, int]:
    state: dict[str, int] = {}
    for image in images:
        if image["_op"] in ("b", "d"):
            state.pop(image["k"], None)
        else:
            state[image["k"]] = image["v"]
    return state


def read_in_the_window(log: Log, rule: Window, patch: pytest.MonkeyPatch) -> tuple[list[str], list[dict[str, Any]]]:
    """What the SELECT found, and the chunk.

    The window's low mark is E. What the other sessions do beside the SELECT is done just before it, and between it and
    the question for the log's end, which is the high mark.
    """
    seen: list[str] = []

    def selecting(connection: Connection, sql: str, **options: Any) -> Any:
        log.do("INSERT INTO t VALUES ('K5', 1)")
        return list(select_blocks(connection, sql, **options))

    status = Connection.log_status

    def closing(connection: Connection) -> tuple[str, int]:
        seen.extend(str(row[0]) for row in connection.query("SELECT k FROM timeline.t ORDER BY k"))
        log.do("DELETE FROM t WHERE k = 'K4'", "INSERT INTO t VALUES ('K6', 1)")
        return status(connection)

    patch.setattr("headgate.snapshot._reader.select_blocks", selecting)
    patch.setattr(Connection, "log_status", closing)
    executed: GtidSet = log.start
    items = log.chunks([ChunkSpec("timeline.t", 0)], executed, policies=Policies(window=rule))
    return seen, plain(items)


@pytest.mark.parametrize(("rule", "chunk"), [("rewind", {"K1": 1, "K2": 1, "K4": 0}), ("drop", {"K1": 1, "K2": 1})])
def test_six_keys_and_one_window(
    log: Log, rule: Window, chunk: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.mark()
    log.do("INSERT INTO t VALUES ('K1', 1)", "UPDATE t SET v = 1 WHERE k = 'K2'", "DELETE FROM t WHERE k = 'K3'")
    before = log.rows()
    assert [(image["_op"], image["k"]) for image in before] == [("c", "K1"), ("b", "K2"), ("u", "K2"), ("d", "K3")]
    log.mark()
    seen, read = read_in_the_window(log, rule, monkeypatch)
    assert seen == ["K1", "K2", "K4", "K5"]
    assert [image["_op"] for image in read] == ["r"] * len(chunk)
    assert folded(read) == chunk
    log.do("UPDATE t SET v = 2 WHERE k = 'K2'")
    after = log.rows()
    assert [(image["_op"], image["k"]) for image in after] == [
        ("c", "K5"), ("d", "K4"), ("c", "K6"), ("b", "K2"), ("u", "K2"),
    ]  # fmt: skip
    assert folded(read + after) == {"K1": 1, "K2": 2, "K5": 1, "K6": 1}
    assert log.server.query("SELECT k, v FROM timeline.t ORDER BY k") == [("K1", 1), ("K2", 2), ("K5", 1), ("K6", 1)]

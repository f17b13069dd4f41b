"""JSON differences in the log (``binlog_row_value_options=PARTIAL_JSON``), held against the server's own documents."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.errors import UnsupportedError
from headgate.gtid import GtidSet
from headgate.replication import LogBlock
from headgate_testing import MySQLServer
from tests.integration.changes import Log

LONG = "x" * 200
"""A difference is logged only where it is smaller than the document."""


class Session:
    """A session that logs differences, and a table ``t`` with two JSON columns among others."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db = server, db
        self.log = Log(server, db, create=False)
        self.connection = server.connect(database=db, autocommit=True)
        self.do("CREATE TABLE t (id INT PRIMARY KEY, a JSON, n INT, b JSON)")
        self.do("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        self.start = server.gtid_executed

    def do(self, *statements: str) -> None:
        for statement in statements:
            self.run(statement)

    def run(self, statement: str, *args: Any) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, args or None)

    def read(self, **options: Any) -> list[dict[str, Any]]:
        items = self.log.items(f"{self.db}.t", start=GtidSet.parse(self.start), **options)
        images = [image for item in items if isinstance(item, LogBlock) for image in item.images]
        return [row for image in images for row in image.batch.to_pylist()]

    def events(self, rows: list[dict[str, Any]]) -> list[str]:
        """The types of the row events that these rows are from."""
        places = {(row["_seq"]["file"], row["_seq"]["pos"]) for row in rows}
        stem = self.server.log_status()[0].rpartition(".")[0]
        return [
            self.server.query(f"SHOW BINLOG EVENTS IN '{stem}.{file:06}' FROM {pos} LIMIT 1")[0][2]
            for file, pos in sorted(places)
        ]


@pytest.fixture
def session(mysql_server: MySQLServer, mysql_db: str) -> Iterator[Session]:
    made = Session(mysql_server, mysql_db)
    yield made
    made.connection.close()


@pytest.mark.parametrize("images", ["all", "keys"])
def test_every_operation(session: Session, images: str) -> None:
    base = {"a": 1, "p": LONG, "arr": [1, [2], 3], "o": {"k": 1, "é": None}}
    session.run("INSERT INTO t VALUES (1, %s, 1, %s)", json.dumps(base), json.dumps([LONG, {"x": 1}]))
    session.start = session.server.gtid_executed
    expected: list[tuple[str, str]] = []
    for assignment in (
        "a = JSON_SET(a, '$.a', 'text')", "a = JSON_SET(a, '$.new', JSON_ARRAY(1.5, TRUE, NULL))",
        "a = JSON_REMOVE(a, '$.o.k')", "a = JSON_REMOVE(a, '$.arr[1][0]', '$.arr[last]')",
        "a = JSON_SET(a, '$.arr[7]', 7, '$.arr[last]', 8)", "a = JSON_SET(a, '$.a[1]', 2)",
        "a = JSON_REPLACE(a, '$.a[last-1][0]', CAST('2026-01-02' AS DATE))", "n = n + 1",
        "b = JSON_SET(b, '$[1].\"q \\\\\\\"uo\\\\nte\"', -1), a = JSON_SET(a, '$.\"two words\"', 1e300)",
        "b = JSON_REMOVE(b, '$[1].x'), n = 5", "id = id + 1, a = JSON_SET(a, '$.a', 1)", "a = NULL",
        "a = JSON_SET(b, '$[0]', 1)", "a = JSON_SET(a, '$', 1)",
        "b = JSON_SET(b, '$[1].e', JSON_OBJECT(), '$[1].e.f', 1)",
    ):  # fmt: skip
        session.do(f"UPDATE t SET {assignment}")
        expected.append(session.server.query(f"SELECT a, b FROM {session.db}.t")[0])
    rows = session.read(images=images)
    assert [(row["a"], row["b"]) for row in rows if row["_op"] == "u"] == expected
    befores = [(row["id"], row["a"], row["b"]) for row in rows if row["_op"] == "b"]
    assert len(befores) == (len(expected) if images == "all" else 1)
    if images == "all":
        assert [row[1:] for row in befores[1:]] == expected[:-1]
    assert session.events(rows) == ["Update_rows_partial"] * len(expected)


KEYS = ["a", "b", "long key", 'q"uote', "back\\slash", "new\nline", "é", "日本", "😀", "a.b", "[0]", "$", "", "last"]


def document(rand: random.Random, depth: int = 0) -> Any:
    kind = rand.randrange(9 if depth < 4 else 6)
    if kind < 6:
        values = [
            None,
            True,
            rand.randrange(-40000, 40000),
            rand.randrange(2**64),
            rand.random() * 1e9,
            rand.choice(KEYS),
        ]
        return values[kind]
    if kind == 6:
        return [document(rand, depth + 1) for _ in range(rand.randrange(5))]
    return {rand.choice(KEYS): document(rand, depth + 1) for _ in range(rand.randrange(6))}


def path(rand: random.Random, value: Any) -> str:
    """A path that leads into the value, or a step beyond."""
    legs = "$"
    while rand.random() < 0.85 or legs == "$":
        if isinstance(value, dict):
            key = rand.choice([*value, *KEYS[:3]] if value else KEYS)
            legs += "." + json.dumps(key, ensure_ascii=False)
            value = value.get(key)
        elif isinstance(value, list):
            index = rand.randrange(len(value) + 1)
            legs += f"[{index}]" if rand.random() < 0.7 else f"[last-{index}]" if index else "[last]"
            value = value[index] if index < len(value) else None
        else:
            return legs + rand.choice(["", "[0]", "[last]", "[1]", ".a"])
    return legs


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_of_random_documents(session: Session, seed: int) -> None:
    """Each document in the log is the server's own, character by character."""
    rand = random.Random(seed)
    for key in range(30):
        value = {"pad": LONG, "v": document(rand), "w": [document(rand) for _ in range(3)]}
        session.run("INSERT INTO t VALUES (%s, %s, 0, %s)", key, json.dumps(value), json.dumps([LONG, value]))
    session.start = session.server.gtid_executed
    session.do("CREATE TABLE seen (n INT PRIMARY KEY AUTO_INCREMENT, a JSON, b JSON)")
    for number in range(250):
        key = rand.randrange(30)
        current = [
            json.loads(text) for text in session.server.query(f"SELECT a, b FROM {session.db}.t WHERE id = {key}")[0]
        ]
        column = rand.randrange(2)
        name = "ab"[column]
        function = rand.choice(["JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"])
        args: list[Any] = []
        for _ in range(rand.choice([1, 1, 2, 3])):
            where = path(rand, current[column])
            args += [where] if function == "JSON_REMOVE" else [where, json.dumps(document(rand, 2))]
        part = "%s" if function == "JSON_REMOVE" else "%s, CAST(%s AS JSON)"
        holes = ", ".join([part] * (len(args) if function == "JSON_REMOVE" else len(args) // 2))
        session.run(f"UPDATE t SET {name} = {function}({name}, {holes}), n = {number + 1} WHERE id = {key}", *args)
        session.run("INSERT INTO seen (a, b) SELECT a, b FROM t WHERE id = %s", key)
    expected = session.server.query(f"SELECT a, b FROM {session.db}.seen ORDER BY n")
    after = [row for row in session.read() if row["_op"] == "u"]
    assert [row["n"] for row in after] == list(range(1, 251))
    for row, want in zip(after, expected, strict=True):
        assert (row["a"], row["b"]) == want
    assert session.events(after[:40]).count("Update_rows_partial") > 20


def test_large_documents(session: Session) -> None:
    """Offsets of four bytes, and a difference that turns a small document into a large one."""
    session.run(
        "INSERT INTO t VALUES (1, %s, 0, %s)", json.dumps({"k": list(range(20_000)), "v": 1}), json.dumps([1, LONG])
    )
    session.start = session.server.gtid_executed
    session.do(
        "UPDATE t SET a = JSON_SET(a, '$.k[15000]', 'here', '$.v', 2)", "UPDATE t SET a = JSON_REMOVE(a, '$.k[0]')",
        "UPDATE t SET b = JSON_SET(b, '$[0]', REPEAT('y', 70000), '$[2]', 123456789)",
    )  # fmt: skip
    rows = [row for row in session.read() if row["_op"] == "u"]
    assert [(rows[-1]["a"], rows[-1]["b"])] == list(session.server.query(f"SELECT a, b FROM {session.db}.t"))


def test_many_rows_in_one_event(session: Session) -> None:
    """Blocks of the walk that are full in the middle of an event, whose documents all differ."""
    session.do(
        "SET SESSION cte_max_recursion_depth = 100000",
        "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
        f" SELECT i, JSON_OBJECT('i', i, 'p', REPEAT('x', 60)), 0, '{json.dumps([LONG])}' FROM n",
    )
    session.start = session.server.gtid_executed
    session.do(
        "UPDATE t SET a = JSON_SET(a, '$.i', id * 2) WHERE id > 100", "UPDATE t SET id = id + 50000 WHERE id <= 3"
    )
    for images in ("all", "keys"):
        rows = session.read(images=images)
        after = {row["id"]: json.loads(row["a"])["i"] for row in rows if row["_op"] == "u"}
        assert after == {**{i: 2 * i for i in range(101, 10_001)}, **{i + 50_000: i for i in range(1, 4)}}
        assert sum(row["_op"] == "b" for row in rows) == (len(after) if images == "all" else 3)


def test_tables_that_are_not_followed_are_counted(session: Session) -> None:
    session.run("INSERT INTO t VALUES (1, %s, 0, NULL)", json.dumps([1, LONG]))
    session.do("CREATE TABLE other (id INT PRIMARY KEY, j JSON)")
    session.run("INSERT INTO other VALUES (1, %s), (2, %s)", *[json.dumps([1, LONG])] * 2)
    session.start = session.server.gtid_executed
    session.do(
        "BEGIN", "UPDATE other SET j = JSON_SET(j, '$[0]', 5)", "UPDATE t SET a = JSON_SET(a, '$[0]', 6)", "COMMIT"
    )
    assert [(row["_op"], row["_seq"]["ordinal"]) for row in session.read()] == [("b", 2), ("u", 2)]


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
def test_switched_on_and_off_in_mid_stream(session: Session, compressed: str) -> None:
    session.run("INSERT INTO t VALUES (1, %s, 0, NULL)", json.dumps([1, LONG]))
    session.do(f"SET SESSION binlog_transaction_compression = {compressed}")
    session.start = session.server.gtid_executed
    for number, option in enumerate(itertools.islice(itertools.cycle(["", "PARTIAL_JSON"]), 6)):
        session.do(f"SET SESSION binlog_row_value_options = '{option}'")
        session.do(f"UPDATE t SET a = JSON_SET(a, '$[0]', {number})")
    assert [json.loads(row["a"])[0] for row in session.read() if row["_op"] == "u"] == list(range(6))


def test_without_the_document_before_there_is_nothing_to_differ_from(session: Session) -> None:
    session.run("INSERT INTO t VALUES (1, %s, 0, NULL)", json.dumps([1, LONG]))
    session.start = session.server.gtid_executed
    session.do(
        "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET n = 1", "UPDATE t SET a = JSON_SET(a, '$[0]', 2)"
    )
    with pytest.raises(UnsupportedError, match="binlog_row_value_options = ''") as caught:
        session.read()
    error = caught.value
    assert (error.table, error.column) == (f"{session.db}.t", "a")
    events = session.server.query(f"SHOW BINLOG EVENTS IN '{error.file}' FROM {error.pos} LIMIT 1")
    assert events[0][2] == "Update_rows_partial"

"""Row images that leave columns out: ``binlog_row_image`` MINIMAL and NOBLOB, a setting of each session."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headgate.catalog import TablePatterns
from headgate.cli import app
from headgate.errors import UnsupportedError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec
from headgate.policies import Policies
from headgate.replication import DecodeOptions, ImageBatch, LogBlock, follow
from headgate.snapshot import ChunkOptions, ChunkRead, HighWatermark, Redo, read_chunks
from headgate_testing import MySQLServer
from tests.integration.changes import Log


class Session:
    """A session of its own on the database, and the log since it began."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db, self.start = server, db, server.gtid_executed
        self.log = Log(server, db, create=False)
        self.settings = self.log.settings
        self.connection = server.connect(database=db, autocommit=True)

    def do(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def mark(self) -> None:
        self.start = self.server.gtid_executed

    def read(self, **options: Any) -> list[dict[str, Any]]:
        """All images since the mark, in order, as dicts of the table's columns with ``_op`` and ``_absent``."""
        rows = self.log.rows(start=GtidSet.parse(self.start), **options)
        return [{**row, "_absent": json.loads(row.get("_absent") or "null")} for row in rows]

    def lines(self) -> list[tuple[str, Any, Any]]:
        """What ``headgate tail`` prints of it."""
        arguments = ["tail", self.server.url, "--until-current", "--from", self.start, "--tables", f"{self.db}.*"]
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        return [(line["op"], line["before"], line["after"]) for line in lines if line["op"] != "ddl"]


@pytest.fixture
def session(mysql_server: MySQLServer, mysql_db: str) -> Any:
    made = Session(mysql_server, mysql_db)
    yield made
    made.connection.close()


def test_minimal_changes_as_json_lines(session: Session) -> None:
    """Update, delete, insert, key change, NULL to a value and back."""
    session.do("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(10) DEFAULT 'x', c INT NOT NULL DEFAULT 5)")
    session.do("INSERT INTO t VALUES (1, 1, 'p', 1), (2, NULL, 'q', 2)")
    session.do("SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    session.do(
        "UPDATE t SET a = 7 WHERE id = 1", "UPDATE t SET a = 8 WHERE id = 2",
        "UPDATE t SET a = NULL, c = 3 WHERE id = 2",
        "UPDATE t SET id = 9 WHERE id = 1", "INSERT INTO t (id) VALUES (4)", "DELETE FROM t WHERE id = 9",
    )  # fmt: skip
    assert session.lines() == [
        ("u", {"id": 1}, {"id": 1, "a": 7}),
        ("u", {"id": 2}, {"id": 2, "a": 8}),
        ("u", {"id": 2}, {"id": 2, "a": None, "c": 3}),
        ("u", {"id": 1}, {"id": 9}),
        ("c", None, {"id": 4, "a": None, "b": "x", "c": 5}),
        ("d", {"id": 9}, None),
    ]


def test_the_row_image_switched_in_mid_stream(session: Session) -> None:
    """Full, minimal and no-blob images in one batch: what each leaves out stands in ``_absent``."""
    session.do("CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)", "INSERT INTO t VALUES (1, 1, 'one')")
    session.mark()
    for image in ("FULL", "MINIMAL", "NOBLOB", "FULL"):
        session.do(f"SET SESSION binlog_row_image = '{image}'", "UPDATE t SET a = a + 1")
    none: list[str] = []
    expected = [
        ("b", none, 1, "one"), ("u", none, 2, "one"), ("b", ["a", "b"], None, None), ("u", ["b"], 3, None),
        ("b", ["b"], 3, None), ("u", ["b"], 4, None), ("b", none, 4, "one"), ("u", none, 5, "one"),
    ]  # fmt: skip
    assert [(row["_op"], row["_absent"] or none, row["a"], row["b"]) for row in session.read()] == expected
    assert {row["id"] for row in session.read()} == {1}
    keys = [(row["_op"], row["_absent"] or none, row["a"]) for row in session.read(images="keys")]
    assert keys == [("u", none, 2), ("u", ["b"], 3), ("u", ["b"], 4), ("u", none, 5)]


def test_whole_batches_have_no_absent_column(session: Session) -> None:
    """Images that the reader can complete count as whole."""
    session.do("CREATE TABLE t (a INT, b INT)", "SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    session.do("INSERT INTO t (a) VALUES (1)", "UPDATE t SET b = 2", "DELETE FROM t")
    rows = session.read()
    assert [(row["_op"], row["a"], row["b"]) for row in rows] == [
        ("c", 1, None), ("b", 1, None), ("u", 1, 2), ("d", 1, 2),
    ]  # fmt: skip
    assert all(row["_absent"] is None for row in rows)


COLUMNS = {
    "tiny": "TINYINT DEFAULT -5", "big": "BIGINT UNSIGNED NOT NULL DEFAULT 18446744073709551615",
    "dec": "DECIMAL(30,10) DEFAULT -1.5", "f": "FLOAT DEFAULT 16777217.1", "dbl": "DOUBLE DEFAULT 0.1",
    "bits": "BIT(9) DEFAULT b'100000001'", "y": "YEAR DEFAULT 1999",
    "latin": "CHAR(5) CHARACTER SET latin1 DEFAULT 'ä€'", "smile": "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT '😀?'",
    "e": "ENUM('x','ü') DEFAULT 'ü'", "s": "SET('a','b') DEFAULT 'a,b'", "bin": "BINARY(4) DEFAULT 'ab'",
    "vb": "VARBINARY(5) DEFAULT x'00ff41'", "d": "DATE DEFAULT '2020-02-03'",
    "dt": "DATETIME(3) DEFAULT '2020-02-03 01:02:03.456'", "ts": "TIMESTAMP(2) NULL DEFAULT '2020-02-03 01:02:03.45'",
    "ti": "TIME(6) DEFAULT '-838:59:58.000001'", "nothing": "INT", "empty": "VARCHAR(5) DEFAULT ''",
    "odd`name": "INT DEFAULT 3", "hidden": "INT DEFAULT 4 INVISIBLE", "n": "INT DEFAULT 6",
    "now": "TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6)", "computed": "JSON DEFAULT (JSON_OBJECT('a', 1))",
    "stored": "INT AS (tiny + 1) STORED", "made": "INT AS (tiny + 2) VIRTUAL",
}  # fmt: skip


def test_inserts_are_completed_with_the_defaults(session: Session) -> None:
    columns = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in COLUMNS.items())
    session.do(f"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, {columns})")
    for statement in ("INSERT INTO t (n) VALUES (1)", "INSERT INTO t () VALUES ()", "DELETE FROM t"):
        session.do("SET SESSION binlog_row_image = 'MINIMAL'")
        session.mark()
        session.do(statement, "SET SESSION binlog_row_image = 'FULL'", "UPDATE t SET n = COALESCE(n, 0) + 1")
        rows = {row.pop("_op"): row for row in session.read()}
        if "c" in rows:
            assert rows["c"] == {**rows["b"], "id": rows["c"]["id"]} | {"now": rows["c"]["now"]}
            assert rows["c"]["bin"] == b"ab\0\0"


def test_columns_without_a_default_hold_the_zero_of_their_type(session: Session) -> None:
    kinds = {
        "i": "INT", "dec": "DECIMAL(9,2)", "f": "FLOAT", "bits": "BIT(9)", "y": "YEAR", "c": "CHAR(3)", "t": "TEXT",
        "e": "ENUM('x','y')", "s": "SET('a','b')", "bin": "BINARY(3)", "vb": "VARBINARY(3)", "ti": "TIME(2)",
        "j": "JSON", "bl": "BLOB", "d": "DATE", "dt": "DATETIME(1)",
    }  # fmt: skip
    columns = ", ".join(f"`{name}` {kind} NOT NULL" for name, kind in kinds.items())
    session.do(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", "SET SESSION sql_mode = ''")
    session.do("SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    session.do("INSERT INTO t (id) VALUES (1)", "SET SESSION binlog_row_image = 'FULL'", "DELETE FROM t")
    first, second = session.read(policies=Policies(temporals="text"))
    assert {**first, "_op": "d"} == second
    assert (first["_absent"], first["e"], first["bin"], first["j"]) == (None, "x", b"\0\0\0", "null")


def test_a_zero_that_cannot_be_held_and_is_not_needed(session: Session) -> None:
    """A column that the row gives needs no default; its type's zero may be one that Arrow does not have."""
    session.do("SET SESSION sql_mode = ''", "SET SESSION binlog_row_image = 'MINIMAL'")
    session.do("CREATE TABLE t (d DATE PRIMARY KEY, z DATE DEFAULT '0000-00-00', n INT DEFAULT 5)")
    session.mark()
    session.do("INSERT INTO t (d, z) VALUES ('2024-01-01', NULL)")
    assert [row["n"] for row in session.read()] == [5]
    session.do("INSERT INTO t (d) VALUES ('2024-01-02')")
    with pytest.raises(UnsupportedError, match="defaults"):
        session.read()


def test_a_default_that_changed_since_is_not_used(session: Session) -> None:
    session.do("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1)", "SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    session.do("INSERT INTO t (id) VALUES (1)", "CREATE INDEX i ON t (a)", "ALTER TABLE t ADD COLUMN z INT FIRST")
    assert session.read()[0]["a"] == 1
    session.do("ALTER TABLE t ALTER COLUMN a SET DEFAULT 2", "INSERT INTO t (id) VALUES (2)")
    with pytest.raises(UnsupportedError, match="SET DEFAULT 2") as caught:
        session.read()
    assert caught.value.table == f"{session.db}.t"
    assert "binlog_row_image = 'FULL'" in str(caught.value)
    session.mark()
    session.do("INSERT INTO t (id) VALUES (3)")
    assert session.read()[0]["a"] == 2
    session.do("DROP TABLE t")
    with pytest.raises(UnsupportedError, match="is gone"):
        session.read()


def test_a_default_that_changes_while_the_log_is_followed(session: Session) -> None:
    """What was asked before an ALTER is not used after it, and all that came before it was right."""
    session.do("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 1)", "SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    items = follow(session.settings, GtidSet.parse(session.start), DecodeOptions(TablePatterns([f"{session.db}.*"])))

    def next_value() -> int:
        for item in items:
            if isinstance(item, LogBlock):
                return int(item.images[0].batch.column("a")[0].as_py())
        raise AssertionError

    for number in range(1, 4):
        session.do(f"ALTER TABLE t ALTER COLUMN a SET DEFAULT {number}", f"INSERT INTO t (id) VALUES ({number})")
        assert next_value() == number
        session.do(f"INSERT INTO t (id) VALUES ({number + 10})")
        assert next_value() == number
    items.close()  # type: ignore[attr-defined]


def test_no_blob_images(session: Session) -> None:
    """JSON does not count as a blob."""
    session.do("CREATE TABLE t (id INT PRIMARY KEY, b TEXT, j JSON)", "SET SESSION binlog_row_image = 'NOBLOB'")
    session.mark()
    session.do("INSERT INTO t (id, b) VALUES (1, 'x')", "UPDATE t SET j = '1'", "UPDATE t SET b = 'y'", "DELETE FROM t")
    assert session.lines() == [
        ("c", None, {"id": 1, "b": "x", "j": None}),
        ("u", {"id": 1, "j": None}, {"id": 1, "j": "1"}),
        ("u", {"id": 1, "j": "1"}, {"id": 1, "b": "y", "j": "1"}),
        ("d", {"id": 1, "j": "1"}, None),
    ]


def test_generated_columns_follow_what_they_are_made_of(session: Session) -> None:
    session.do("CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a + 1) STORED, v INT AS (a + 2) VIRTUAL, o INT)")
    session.do("INSERT INTO t (id, a) VALUES (1, 1)", "SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    session.do("UPDATE t SET a = 5", "UPDATE t SET o = 6")
    assert [line[2] for line in session.lines()] == [{"id": 1, "a": 5, "s": 6, "v": 7}, {"id": 1, "o": 6}]


@pytest.mark.parametrize("key", ["PRIMARY KEY (b, a)", "UNIQUE KEY (b, a)", "UNIQUE KEY (c), UNIQUE KEY (a)"])
def test_every_kind_of_key_is_in_a_minimal_image(session: Session, key: str) -> None:
    session.do(f"CREATE TABLE t (v INT, a INT NOT NULL, b VARCHAR(9) NOT NULL, c INT, {key})")
    session.do("INSERT INTO t VALUES (1, 2, 'x', 3)", "SET SESSION binlog_row_image = 'MINIMAL'")
    session.mark()
    session.do("UPDATE t SET v = 9", "UPDATE t SET a = 5", "DELETE FROM t")
    names = set("a" if "(c)" in key else "ab")
    for op, before, after in session.lines():
        assert set(before) == names
        assert op == "d" or set(after) >= names


# --- chunks beside partial images


class Copy:
    """A table as its images make it: what a sink has to do, in a dict."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}

    def apply(self, image: ImageBatch) -> None:
        (key,) = image.table.key_names
        names = [column.name for column in image.table.columns]
        left: tuple[Any, dict[str, Any] | None] = (None, None)
        for values in image.batch.to_pylist():
            row = {name: values[name] for name in names}
            absent = json.loads(values["_absent"]) if values.get("_absent") else []
            here = row[key]
            if values["_op"] in ("b", "d"):
                left = here, self.rows.pop(here, None)
            elif not absent:
                self.rows[here] = row
            else:
                old, base = left
                assert base is not None or old == here, "a row came from where nothing was"
                if base is not None:
                    self.rows[here] = {**base, **{name: row[name] for name in names if name not in absent}}


class Chunks:
    """A table ``t`` whose chunks are read while a random session writes, in steps."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session, self.random = session, random.Random(seed)
        session.do(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, c VARCHAR(20) DEFAULT 'c', d INT NOT NULL DEFAULT 4)",
            "INSERT INTO t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 40)"
            " SELECT i * 2, i, REPEAT('b', i), 'x', i FROM n",
        )
        session.mark()
        self.executed = GtidSet.parse(session.start)
        self.copy = Copy()

    def write(self, statements: int, *, images: Sequence[str] = ("MINIMAL", "NOBLOB", "FULL"), moves: bool) -> None:
        for _ in range(statements):
            one, n = self.random.randrange(90), self.random.randrange(1000)
            choices = [
                f"INSERT IGNORE INTO t (id) VALUES ({one})", f"REPLACE INTO t (id, b) VALUES ({one}, 'r{n}')",
                f"UPDATE t SET a = {n} WHERE id = {one}", f"UPDATE t SET b = 'u{n}', d = {n} WHERE id = {one}",
                f"UPDATE t SET c = NULL WHERE id BETWEEN {one} AND {one + 4}", f"DELETE FROM t WHERE id = {one}",
                f"INSERT INTO t (id, a) VALUES ({one}, {n}) ON DUPLICATE KEY UPDATE a = a + {n}",
            ]  # fmt: skip
            if moves:
                choices.append(f"UPDATE IGNORE t SET id = {self.random.randrange(90)} WHERE id = {one}")
            image = self.random.choice(images)
            self.session.do(f"SET SESSION binlog_row_image = '{image}'", self.random.choice(choices))

    def read(self, chunks: Sequence[ChunkSpec], window: Any, **writing: Any) -> list[Any]:
        """What ``read_chunks`` gives; something is written before and between the chunks."""
        items = []
        self.write(15, **writing)
        for item in read_chunks(
            ChunkRead(
                self.session.settings, chunks, self.executed, self.session.server.server_uuid, epoch=1, planned_us=0
            ),
            ChunkOptions(Policies(window=window)),
        ):
            items.append(item)
            self.write(15, **writing)
        return items

    def take(self, items: list[Any]) -> None:
        """Apply what four chunks gave. What makes their rows exact follows all of them."""
        assert [type(item) for item in items].count(HighWatermark) == 1
        assert isinstance(items[-1], HighWatermark)
        for item in items:
            if isinstance(item, ImageBatch):
                self.copy.apply(item)
            else:
                assert self.executed <= item.gtid

    def chunk(self, lo: int | None = None, hi: int | None = None) -> ChunkSpec:
        low, high = ((str(bound),) if bound is not None else None for bound in (lo, hi))
        return ChunkSpec(f"{self.session.db}.t", 0, low, high)

    def follow(self) -> None:
        """Apply everything after E."""
        for item in self.session.log.items(start=self.executed, epoch=2):
            for image in item.images if isinstance(item, LogBlock) else ():
                self.copy.apply(image)

    def source(self) -> dict[int, dict[str, Any]]:
        rows = self.session.server.query(f"SELECT id, a, b, c, d FROM {self.session.db}.t")
        return {row[0]: dict(zip(["id", "a", "b", "c", "d"], row, strict=True)) for row in rows}


@pytest.mark.parametrize("seed", range(2))
def test_dropped_rows_come_with_the_changes_after_them(session: Session, seed: int) -> None:
    """``window = "drop"``: rows that changed are left out, and whole images bring them."""
    scene = Chunks(session, seed)
    before = scene.source()
    ranges = [(None, 20), (20, 45), (45, 60), (60, None)]
    items = scene.read([scene.chunk(*bounds) for bounds in ranges], "drop", images=["FULL"], moves=True)
    scene.take(items)
    assert 0 < len(scene.copy.rows) < len(before)
    assert all(before[key] == row for key, row in scene.copy.rows.items())
    scene.follow()
    assert scene.copy.rows == scene.source()


@pytest.mark.parametrize("seed", range(4))
def test_kept_rows_and_the_changes_after_them_equal_the_source(session: Session, seed: int) -> None:
    """``window = "keep"``: as read, at another moment for each chunk; exact when the changes are applied."""
    scene = Chunks(session, seed)
    ranges = [(None, 20), (20, 45), (45, 60), (60, None)]
    items = scene.read([scene.chunk(*bounds) for bounds in ranges], "keep", moves=False)
    scene.take(items)
    assert scene.copy.rows != scene.source()
    scene.write(40, moves=True)
    scene.follow()
    assert scene.copy.rows == scene.source()


def test_a_key_that_changes_in_a_partial_image_while_rows_are_kept(session: Session) -> None:
    scene = Chunks(session, 1)
    session.do("SET SESSION binlog_row_image = 'FULL'", "UPDATE t SET id = 3 WHERE id = 2")
    assert isinstance(scene.read([scene.chunk()], "keep", moves=False)[0], ImageBatch)
    session.do("DELETE FROM t WHERE id IN (2, 3)", "INSERT INTO t (id) VALUES (3)")
    session.do("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET id = 2 WHERE id = 3")
    (redo,) = scene.read([scene.chunk()], "keep", moves=False)
    assert isinstance(redo, Redo)
    assert "another key" in redo.reason


def test_partial_images_cannot_be_turned_back(session: Session) -> None:
    scene = Chunks(session, 2)
    session.do(
        "SET SESSION binlog_row_image = 'MINIMAL'", "INSERT INTO t (id) VALUES (1)", "UPDATE t SET a = 1 WHERE id = 1"
    )
    (image,) = scene.read([scene.chunk()], "rewind", images=["FULL"], moves=True)
    assert sorted(image.batch.column("id").to_pylist()) == [i * 2 for i in range(1, 41)]
    session.do("SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET a = 1 WHERE id = 80")
    lower = scene.read([scene.chunk(hi=78)], "rewind", images=["FULL"], moves=False)
    assert len(lower[0].batch) == 39
    with pytest.raises(UnsupportedError, match='window = "keep"') as caught:
        scene.read([scene.chunk(lo=78)], "rewind", images=["FULL"], moves=False)
    error = caught.value
    assert error.table == f"{session.db}.t"
    assert "binlog_row_image = 'FULL'" in str(error)
    events = session.server.query(f"SHOW BINLOG EVENTS IN '{error.file}' FROM {error.pos} LIMIT 1")
    assert events[0][2] == "Update_rows"


@pytest.mark.parametrize("only", [False, True])
def test_what_is_not_known_of_rows_that_are_turned_back(session: Session, only: bool) -> None:
    """Whole before-images give whole rows; others the columns that they hold, and the names of the rest."""
    scene = Chunks(session, 3)
    before = scene.source()
    session.do(
        "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE t SET a = 0 WHERE id = 2", "DELETE FROM t WHERE id = 4",
        "UPDATE t SET id = 7 WHERE id = 6", "INSERT INTO t (id) VALUES (9)", "UPDATE t SET a = 1 WHERE id = 9",
        "SET SESSION binlog_row_image = 'NOBLOB'", "UPDATE t SET b = '' WHERE id = 8",
        "SET SESSION binlog_row_image = 'FULL'", "UPDATE t SET b = '' WHERE id IN (2, 10)",
    )  # fmt: skip
    wanted = pa.table({"id": pa.array([2, 4, 6, 7, 8, 10, 12], pa.int32())})
    items = read_chunks(
        ChunkRead(session.settings, [scene.chunk()], scene.executed, session.server.server_uuid, epoch=1, planned_us=0),
        ChunkOptions(partial="tell", only=wanted if only else None),
    )
    rows = {row["id"]: row for item in items if isinstance(item, ImageBatch) for row in item.batch.to_pylist()}
    assert sorted(rows) == ([2, 4, 6, 8, 10, 12] if only else sorted(before))
    absent = {key: json.loads(row["_absent"]) for key, row in rows.items() if row["_absent"]}
    assert absent == {2: ["a", "b", "c", "d"], 4: ["a", "b", "c", "d"], 6: ["a", "b", "c", "d"], 8: ["b"]}
    for key, row in rows.items():
        unknown = dict.fromkeys(absent.get(key, []))
        assert {name: row[name] for name in before[key]} == {**before[key], **unknown}

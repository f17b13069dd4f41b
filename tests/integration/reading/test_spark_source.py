"""The mysql-cdc source against a real server and a local Spark session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headgate
from headgate.gtid import GtidSet
from tests.fix_spark import once_its_source_starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate_testing import MySQLServer


@pytest.fixture
def options(mysql_server: MySQLServer, spark: SparkSession, tmp_path: Path) -> dict[str, str]:
    """How to reach the server; the password stands in a file."""
    headgate.register(spark)
    secret = tmp_path / "secret"
    secret.write_text(mysql_server._password)
    return {"url": mysql_server.url, "password_file": str(secret), "slots": "2", "poll_ms": "100"}


class Stream:
    """Runs a query with AvailableNow, again and again on one checkpoint, and keeps what it gave."""

    def __init__(self, spark: SparkSession, options: dict[str, str], folder: Path) -> None:
        self.spark, self.options, self.folder = spark, options, folder
        self.batches: list[list[dict[str, Any]]] = []

    def run(self, **more: str) -> list[dict[str, Any]]:
        """Everything of one run, in batch order."""
        first = len(self.batches)
        frame = self.spark.readStream.format("mysql-cdc").options(**{**self.options, **more}).load()
        query = (
            frame.writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
        )
        assert once_its_source_starts(lambda: query.start().awaitTermination(300))
        return [row for batch in self.batches[first:] for row in batch]

    def _keep(self, frame: DataFrame, _batch: int) -> None:
        self.batches.append(frame.toArrow().to_pylist())


def folded(rows: list[dict[str, Any]], key: str, columns: tuple[str, ...]) -> dict[Any, tuple[Any, ...]]:
    """The state that typed rows lead to: the last image of each key, in the order of ``_seq``."""

    def place(row: dict[str, Any]) -> tuple[int, ...]:
        seq = row["_seq"]
        return (seq["epoch"], seq["file"], seq["pos"], seq["ordinal"], row["_op"] not in "bd")

    state: dict[Any, tuple[Any, ...]] = {}
    for row in sorted(rows, key=place):
        if row["_op"] in ("b", "d"):
            state.pop(row[key], None)
        elif row["_op"] == "t":
            state.clear()
        else:
            state[row[key]] = tuple(row[name] for name in columns)
    return state


def expanded(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Carrier rows as typed rows, by table."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["_kind"] in ("rows", "chunk"):
            images = pa.ipc.open_stream(row["_data"]).read_all()
            assert images.num_rows == row["_count"]
            assert [f.name for f in images.schema][4:] == [c["name"] for c in json.loads(row["_schema"])["columns"]]
            by_table.setdefault(row["_table"], []).extend(images.to_pylist())
    return by_table


def headers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(row["_data"]) for row in rows if row["_kind"] == "batch"]


@pytest.fixture
def orders(mysql_server: MySQLServer, mysql_db: str) -> str:
    """A table with 500 rows."""
    mysql_server.execute(
        f"CREATE TABLE `{mysql_db}`.orders (id INT PRIMARY KEY, item VARCHAR(40), price DECIMAL(10,2), at DATETIME(3),"
        " seen TIMESTAMP NULL)",
        "SET SESSION cte_max_recursion_depth = 100000",
        f"INSERT INTO `{mysql_db}`.orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        " SELECT i, CONCAT('item ', i), i / 4, '2024-02-29 12:00:00.123', '2024-03-01 00:00:00' FROM n",
    )
    return f"{mysql_db}.orders"


def source_state(server: MySQLServer, table: str, columns: str = "id, item") -> dict[Any, tuple[Any, ...]]:
    db, _, name = table.partition(".")
    return {row[0]: tuple(row) for row in server.query(f"SELECT {columns} FROM `{db}`.`{name}`")}


def test_typed_stream_gives_the_snapshot_and_then_changes(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str, tmp_path: Path
) -> None:
    stream = Stream(spark, {**options, "table": orders, "chunk_rows": "100"}, tmp_path)
    rows = stream.run()
    assert {row["_op"] for row in rows} == {"r"}
    assert len(rows) == 500
    assert len(stream.batches) > 1, "six chunks in two slots are several batches"
    assert {row["_table"] for row in rows} == {orders}
    one = next(row for row in rows if row["id"] == 7)
    assert str(one["price"]) == "1.75"
    assert one["at"].tzinfo is None
    assert one["seen"].tzinfo is not None
    db = orders.partition(".")[0]
    mysql_server.execute(
        f"UPDATE `{db}`.orders SET item = 'changed' WHERE id <= 3",
        f"UPDATE `{db}`.orders SET id = 1000 WHERE id = 5",
        f"DELETE FROM `{db}`.orders WHERE id = 6",
        f"INSERT INTO `{db}`.orders VALUES (2000, 'new', 1, '2024-01-01', NULL)",
    )
    changes = stream.run()
    ops = sorted(row["_op"] for row in changes)
    assert ops == ["c", "d", "d", "u", "u", "u", "u"], "a key change is a delete and an update"
    assert folded(rows + changes, "id", ("id", "item")) == source_state(mysql_server, orders)
    assert stream.run() == [], "nothing is given twice"


def test_carrier_of_many_tables(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, mysql_db: str, orders: str, tmp_path: Path
) -> None:
    mysql_server.execute(
        f"CREATE TABLE `{mysql_db}`.names (a VARCHAR(10), b INT, v JSON, PRIMARY KEY (a, b))",
        f"INSERT INTO `{mysql_db}`.names VALUES ('x', 1, '[1]'), ('y', 2, NULL)",
        f"CREATE TABLE `{mysql_db}`.empty (id INT PRIMARY KEY, d DECIMAL(5, 1))",
        f"CREATE TABLE `{mysql_db}`.tmp_x (id INT PRIMARY KEY)",
        f"INSERT INTO `{mysql_db}`.tmp_x VALUES (1)",
    )
    patterns = json.dumps([f"{mysql_db}.*", "!*.tmp_*"])
    control = tmp_path / "control"
    stream = Stream(spark, {**options, "tables": patterns, "control_path": str(control)}, tmp_path)
    rows = stream.run()
    tables = expanded(rows)
    names, empty = f"{mysql_db}.names", f"{mysql_db}.empty"
    assert set(tables) == {orders, names, empty}
    assert tables[empty] == []
    assert len(tables[orders]) == 500
    assert len(tables[names]) == 2
    (header,) = headers(rows)
    assert header["gtid"] == mysql_server.gtid_executed
    assert header["tables"][orders]["append"]
    assert not header["tables"][names]["append"]
    assert all(info["first"] and info["last"] for info in header["tables"].values())
    mysql_server.execute(
        f"ALTER TABLE `{mysql_db}`.names ADD COLUMN extra INT NULL",
        f"INSERT INTO `{mysql_db}`.names VALUES ('z', 3, '{{}}', 4)",
        f"TRUNCATE TABLE `{mysql_db}`.orders",
    )
    control.mkdir()
    (control / "finished.json").write_text(json.dumps({"tables": [orders, names, empty]}))
    rows = stream.run()
    kinds = sorted(row["_kind"] for row in rows)
    assert kinds == ["batch", "ddl", "ddl", "end", "rows", "rows"]
    assert expanded(rows)[names][0]["extra"] == 4
    assert expanded(rows)[orders][0]["_op"] == "t"
    end = next(json.loads(row["_data"]) for row in rows if row["_kind"] == "end")
    assert end["gtid"] == headers(rows)[0]["gtid"]
    actions = [json.loads(row["_data"])["action"] for row in rows if row["_kind"] == "ddl"]
    assert sorted(actions) == ["alter", "truncate"]


def test_signals_are_taken_once(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str, tmp_path: Path
) -> None:
    control = tmp_path / "control"
    stream = Stream(spark, {**options, "tables": orders, "control_path": str(control)}, tmp_path)
    stream.run()
    (control / "signals").mkdir(parents=True)
    (control / "finished.json").write_text(json.dumps({"tables": [orders]}))
    (control / "signals" / "again.json").write_text(json.dumps({"type": "resnapshot", "tables": ["*.orders"]}))
    rows = stream.run()
    (header,) = headers(rows)
    assert header["actions"] == [{"id": "again", "type": "resnapshot", "tables": [orders]}]
    assert header["tables"][orders]["append"] is False
    assert len(expanded(rows)[orders]) == 500
    assert stream.run() == []
    db = orders.partition(".")[0]
    mysql_server.execute(f"DELETE FROM `{db}`.orders WHERE id = 1")
    assert [image["_op"] for image in expanded(stream.run())[orders]] == ["d"]
    assert not (control / "signals" / "again.json").exists(), "removed when its batch was committed"


def test_killed_batch_is_replayed_whole(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str, tmp_path: Path
) -> None:
    """A sink that fails leaves an unfinished batch: the next run gives the same one again, then goes on."""
    db = orders.partition(".")[0]
    settings = {**options, "tables": orders, "chunk_rows": "100"}
    failed: list[list[dict[str, Any]]] = []

    def fail(frame: DataFrame, batch: int) -> None:
        failed.append(frame.toArrow().to_pylist())
        if batch == 1:
            raise RuntimeError("killed")

    frame = spark.readStream.format("mysql-cdc").options(**settings).load()
    query = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = query.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="killed"):
        started.awaitTermination(120)
    mysql_server.execute(f"UPDATE `{db}`.orders SET item = 'later'", f"DELETE FROM `{db}`.orders WHERE id > 490")
    stream = Stream(spark, settings, tmp_path)
    rest = stream.run()
    assert headers(stream.batches[0]) == headers(failed[1])
    again, before = expanded(stream.batches[0])[orders], expanded(failed[1])[orders]
    assert sorted(again, key=lambda r: r["id"]) == sorted(before, key=lambda r: r["id"])
    images = expanded(failed[0])[orders] + expanded(rest)[orders]
    assert folded(images, "id", ("id", "item")) == source_state(mysql_server, orders)
    places = [(*tuple(image["_seq"].values()), image["_op"]) for image in images]
    assert len(set(places)) == len(places)
    reads = [image["id"] for image in images if image["_op"] == "r"]
    assert len(set(reads)) == len(reads), "chunks are disjoint"


def test_backlog_over_several_files_is_read_in_parallel(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    table = f"{mysql_db}.t"
    mysql_server.execute(f"CREATE TABLE `{mysql_db}`.t (id INT PRIMARY KEY, v INT)")
    start = mysql_server.gtid_executed
    for file in range(4):
        rows = ", ".join(f"({file * 100 + i}, {i})" for i in range(100))
        mysql_server.execute(
            f"INSERT INTO `{mysql_db}`.t VALUES {rows}",
            f"UPDATE `{mysql_db}`.t SET v = v + 1 WHERE id >= {file * 100}",  # so that the files are of one size
            "FLUSH BINARY LOGS",
        )
    settings = {**options, "tables": table, "start": start, "slots": "3"}
    frame = spark.readStream.format("mysql-cdc").options(**settings).load()
    seen: list[tuple[int, list[dict[str, Any]]]] = []
    query = (
        frame.writeStream.foreachBatch(lambda f, _: seen.append((f.rdd.getNumPartitions(), f.toArrow().to_pylist())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    ((partitions, rows_given),) = seen
    assert partitions == 3
    images = expanded(rows_given)[table]
    assert len(images) == 400 + 2 * 400
    assert folded(images, "id", ("id", "v")) == source_state(mysql_server, table, "id, v")
    assert sum(row["_kind"] == "end" for row in rows_given) == 1
    changes = spark.read.format("mysql-cdc").options(**{**settings, "end": mysql_server.gtid_executed}).load().toArrow()
    assert len(expanded(changes.to_pylist())[table]) == len(images)


def test_read_limit_ends_batches_between_transactions(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    table = f"{mysql_db}.t"
    mysql_server.execute(f"CREATE TABLE `{mysql_db}`.t (id INT PRIMARY KEY, v VARCHAR(100))")
    start = mysql_server.gtid_executed
    for n in range(20):
        rows = ", ".join(f"({n * 50 + i}, REPEAT('x', 100))" for i in range(50))
        mysql_server.execute(f"INSERT INTO `{mysql_db}`.t VALUES {rows}")
    stream = Stream(spark, {**options, "table": table, "start": start, "max_rows_per_batch": "200"}, tmp_path)
    rows_given = stream.run()
    sizes = [len(batch) for batch in stream.batches]
    assert sum(sizes) == 1000
    assert len(sizes) >= 3
    assert all(size % 50 == 0 for size in sizes)
    assert sorted(row["id"] for row in rows_given) == list(range(1000))


def test_batch_read_is_exact_as_of_a_gtid_set(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str
) -> None:
    before, had = source_state(mysql_server, orders), mysql_server.gtid_executed
    db = orders.partition(".")[0]
    mysql_server.execute(
        f"UPDATE `{db}`.orders SET item = 'changed', id = id + 10000 WHERE id % 3 = 0",
        f"DELETE FROM `{db}`.orders WHERE id % 5 = 0",
        f"INSERT INTO `{db}`.orders (id, item) VALUES (-1, 'new')",
    )
    settings = {**options, "table": orders, "chunk_rows": "90", "meta": "false"}

    def load(**more: str) -> DataFrame:
        return spark.read.format("mysql-cdc").options(**{**settings, **more}).load()

    now = load()
    assert now.columns == ["id", "item", "price", "at", "seen"]
    assert {row.id: (row.id, row.item) for row in now.collect()} == source_state(mysql_server, orders)
    assert {row.id: (row.id, row.item) for row in load(as_of=had).collect()} == before


@pytest.mark.parametrize("kind", ["table", "tables"])
def test_changes_after_an_idle_start_outlast_a_restart(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str, tmp_path: Path, kind: str
) -> None:
    """The stream began at what was current then, not at what is current when it is started again."""
    stream = Stream(spark, {**options, kind: orders, "start": "current"}, tmp_path)
    stream.run()
    mysql_server.execute(f"DELETE FROM {orders} WHERE id = 7")
    rows = stream.run()
    images = rows if kind == "table" else expanded(rows)[orders]
    assert [(row["_op"], row["id"]) for row in images] == [("d", 7)]
    assert stream.run() == []


def test_idle_stream_asks_little(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str, tmp_path: Path
) -> None:
    frame = spark.readStream.format("mysql-cdc").options(**{**options, "table": orders, "poll_ms": "500"}).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        since, earlier = time.monotonic(), questions(mysql_server)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and query.isActive:
            query.awaitTermination(1)
        later, until = questions(mysql_server), time.monotonic()
    finally:
        query.stop()
    # Two a second are ours; the two counts themselves make a few more.
    assert later - earlier <= 2 * (until - since) + 8


def questions(server: MySQLServer) -> int:
    return int(server.query("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])


def test_passwords_are_refused_as_options(spark: SparkSession, options: dict[str, str], orders: str) -> None:
    bad = [{**options, "table": orders, "password": "hunter2"}]
    bad.append({**options, "table": orders, "url": options["url"].replace("@", ":hunter2@")})
    for settings in bad:
        with pytest.raises(Exception, match=r"Spark shows options|leave the password out of the URL") as caught:
            spark.read.format("mysql-cdc").options(**settings).load()
        assert "hunter2" not in str(caught.value)


def test_secret_is_in_no_plan(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, orders: str, tmp_path: Path
) -> None:
    db = orders.partition(".")[0]
    mysql_server.execute(
        "CREATE USER IF NOT EXISTS reader@'%' IDENTIFIED BY 'hunter2'",
        f"GRANT SELECT ON `{db}`.* TO reader@'%'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'%'",
    )
    secret = tmp_path / "reader"
    secret.write_text("hunter2\n")
    settings = {
        **options,
        "url": f"mysql://reader@{mysql_server.host}:{mysql_server.port}",
        "password_file": str(secret),
    }
    frame = spark.read.format("mysql-cdc").options(**{**settings, "table": orders}).load()
    assert frame.count() == 500
    assert "hunter2" not in frame._jdf.queryExecution().toString()
    mysql_server.execute("DROP USER reader@'%'")


def test_unknown_table_is_said_in_one_line(spark: SparkSession, options: dict[str, str], mysql_db: str) -> None:
    with pytest.raises(Exception, match=f"no table {mysql_db}.nothing: check the name"):
        spark.read.format("mysql-cdc").options(**{**options, "table": f"{mysql_db}.nothing"}).load()


def test_server_that_restarts_does_not_end_the_stream(
    spark: SparkSession, tmp_path: Path, own_server: MySQLServer
) -> None:
    headgate.register(spark)
    own_server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1), (2)")
    settings = {"url": own_server.url, "table": "d.t", "poll_ms": "50", "slots": "1"}
    frame = spark.readStream.format("mysql-cdc").options(**settings).load()
    rows: list[dict[str, Any]] = []
    query = (
        frame.writeStream.foreachBatch(lambda f, _: rows.extend(f.toArrow().to_pylist()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        own_server.restart(kill=True)
        own_server.execute("INSERT INTO d.t VALUES (3)", "DELETE FROM d.t WHERE id = 1")
        query.processAllAvailable()
    finally:
        query.stop()
    assert set(folded(rows, "id", ("id",))) == {2, 3}
    assert GtidSet.parse(own_server.gtid_executed).count() == 5


@pytest.fixture
def own_server(request: pytest.FixtureRequest) -> Iterator[MySQLServer]:
    import os

    from headgate_testing import URL_VARIABLE, MySQLServer

    if os.environ.get(URL_VARIABLE):
        pytest.skip("starts its own servers")
    with MySQLServer.start() as server:
        yield server

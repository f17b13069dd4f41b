"""Bootstraps out of a pipeline's tables: the same rows that MySQL would give, then the changes since."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate._policies import Policies
from headgate.cli._lake_supplier import LakeSupplier
from headgate.delta import TableLog
from headgate.errors import ChunkRetryError, TargetError
from headgate.gtid import GtidSet
from headgate.lake import Lake
from headgate.relay import LogicalSource, PlanGoneError, Relay, RelayConfig, Supplier, create_app
from headgate.relay_client import Consumer, Event, RelayClient
from headgate.testing import MySQLServer
from headgate.web.serving import Serving
from tests.integration.pipeline.test_copies import Copy
from tests.integration.relay.test_relay import do, physical

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tables(Consumer):
    """Everything up to the end of the bootstrap."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, Any], dict[str, Any]] = {}
        self.snapshot = 0
        self.client: RelayClient
        self.waits = threading.Event()
        """For a copy that is of another definition."""

    def on_bootstrap_event(self, event: Event) -> None:
        if event.opcode == "UPSERT":
            self.rows[event.source, event.key] = event.row
        else:
            self.rows.pop((event.source, event.key), None)

    def on_stop_bootstrap(self) -> None:
        self.client.stop()

    def on_error(self, error: Exception) -> None:
        if "another definition of the table" in str(error):
            self.waits.set()


def bootstrapped(
    relay: Relay, suppliers: dict[int, Supplier], tables: Tables | None = None
) -> dict[tuple[str, Any], dict[str, Any]]:
    tables = tables or Tables()
    with Serving(create_app(relay, suppliers=suppliers), "127.0.0.1", 0) as serving:
        tables.client = RelayClient(serving.url, [], tables, bootstrap=True)
        tables.client.run()
    return tables.rows


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rows_out_of_a_lake(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> None:
    server, db = mysql_server, mysql_db
    server.execute(
        f"CREATE TABLE {db}.a (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(20), p DECIMAL(12,3), d DATE, t DATETIME(3),"
        " s TIMESTAMP(6) NULL, e ENUM('x','y'), b VARBINARY(9), j JSON, f DOUBLE, g FLOAT, h TIME(2),"
        " i TINYINT, k BIT(5))",
        f"CREATE TABLE {db}.b (x INT, y VARCHAR(9), `n = y` INT, PRIMARY KEY (x, y))",
        f"CREATE TABLE {db}.`vo.i d%` (id INT PRIMARY KEY)",
    )
    do(
        server, db,
        "INSERT INTO a VALUES (18446744073709551615, 'é', -1.5, '2024-02-29', '1999-12-31 23:59:59.999',"
        " '2038-01-19 03:14:07.000001', 'y', X'00FF', '{\"a\": [1, null]}', 0.1, 0.1, '-838:59:59.00', -128, b'10101'),"
        " (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "INSERT INTO a (id, v) WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
        " SELECT i, CONCAT('v', i) FROM n",
        "INSERT INTO b VALUES (1, 'k', 1), (2, 'k', 2), (3, 'k', 3)",
    )  # fmt: skip
    source = physical(server, LogicalSource(1000, "test", f"{db}.*"))
    start = GtidSet.parse(server.gtid_executed)
    copy = Copy(server, spark, db, tmp_path)
    lake = LakeSupplier(Lake.at(copy.lake.path), source.settings, Policies())
    with pytest.raises(TargetError):
        lake.begin()
    with Relay(RelayConfig((source,), state=tmp_path / "relay"), lambda _: start) as relay:
        do(server, db, "UPDATE a SET v = 'before' WHERE id = 5", "DELETE FROM a WHERE id = 6")
        do(server, db, "INSERT INTO `vo.i d%` VALUES (2), (3), (4)")
        copy.run()
        do(
            server, db, "UPDATE a SET v = 'merged' WHERE id < 20", "DELETE FROM a WHERE id BETWEEN 400 AND 409",
            "DELETE FROM `vo.i d%` WHERE id = 3",
        )  # fmt: skip
        copy.run()
        for table in ("a", "vo.i d%"):
            assert any(file.deleted for file in TableLog(copy.lake.current(f"{db}.{table}")).refresh().files.values())
        do(
            server, db, "UPDATE a SET v = 'after' WHERE id = 7", "DELETE FROM a WHERE id = 8",
            "UPDATE b SET x = 9 WHERE x = 2", "INSERT INTO `vo.i d%` VALUES (1)",
        )  # fmt: skip
        executed = GtidSet.parse(server.gtid_executed)
        feeder = relay.partitions[1].feeder
        assert feeder.position.wait(lambda state: state.gtid >= executed, 60) is not None
        beginning = lake.begin()
        assert beginning.gtid is not None
        assert beginning.gtid <= executed
        assert beginning.gtid != executed
        rows = bootstrapped(relay, {1: lake})
        assert rows == bootstrapped(relay, {})
        assert len(rows) == 900 - 12 + 1 + 3 + 3
        server.execute(f"ALTER TABLE {db}.b ADD COLUMN more INT")
        with pytest.raises(ChunkRetryError, match="columns more"):
            lake.read(LogicalSource(1, "b", f"{db}.b"), beginning.token, {"part": 0}, executed, None)
        do(server, db, "UPDATE b SET more = 20240102 WHERE x = 9")
        copy.run()
        with pytest.raises(PlanGoneError, match="has reached the table's definition since"):
            lake.read(LogicalSource(1, "b", f"{db}.b"), beginning.token, {"part": 0}, executed, None)
        executed = GtidSet.parse(server.gtid_executed)
        assert feeder.position.wait(lambda state: state.gtid >= executed, 60) is not None
        rows = bootstrapped(relay, {1: lake})
        assert rows == bootstrapped(relay, {})
        assert sorted(str(row.get("more")) for (source, _), row in rows.items() if source.endswith(".b")) == [
            "20240102", "None", "None",
        ]  # fmt: skip
        server.execute(f"ALTER TABLE {db}.b MODIFY more DATE")
        with pytest.raises(ChunkRetryError, match="columns more"):
            lake.read(LogicalSource(1, "b", f"{db}.b"), lake.begin().token, {"part": 0}, executed, None)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_copy_of_another_definition(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    """The pipeline has not come to ALTERs that leave every column the type that it has in Delta."""
    server, db = mysql_server, mysql_db
    server.execute(
        f"CREATE TABLE {db}.retyped (id INT PRIMARY KEY, v VARCHAR(40))",
        f"CREATE TABLE {db}.rounded (id INT PRIMARY KEY, v DATETIME(6))",
        f"CREATE TABLE {db}.swapped (id INT PRIMARY KEY, v VARCHAR(9), w VARCHAR(9))",
        f"CREATE TABLE {db}.rekeyed (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a))",
        f"CREATE TABLE {db}.same (id INT PRIMARY KEY, e ENUM('x', '\U0001f600'), v INT)",
    )
    do(
        server, db, "INSERT INTO retyped VALUES (1, '{\"a\":1}')", "INSERT INTO rekeyed VALUES (1, 5), (2, 6)",
        "INSERT INTO rounded VALUES (1, '2024-01-01 00:00:00.6')", "INSERT INTO swapped VALUES (1, 'v', 'w')",
        "INSERT INTO same VALUES (1, '\U0001f600', 1)",
    )  # fmt: skip
    source = physical(server, LogicalSource(1000, "test", f"{db}.*"))
    start = GtidSet.parse(server.gtid_executed)
    copy = Copy(server, spark, db, tmp_path)
    lake = LakeSupplier(Lake.at(copy.lake.path), source.settings, Policies())

    def read(table: str) -> list[dict[str, Any]]:
        rows = lake.read(LogicalSource(1, "one", f"{db}.{table}"), token, {"part": 0}, start, None)
        assert rows is not None
        return rows.columns.to_pylist()  # type: ignore[no-any-return]

    with Relay(RelayConfig((source,), state=tmp_path / "relay"), lambda _: start) as relay:
        copy.run()
        token = lake.begin().token
        assert len(read("rekeyed")) == 2
        do(server, db, "UPDATE rekeyed SET b = 7 WHERE a = 1")
        server.execute(
            f"ALTER TABLE {db}.retyped MODIFY v JSON",
            f"ALTER TABLE {db}.rounded MODIFY v DATETIME",
            f"ALTER TABLE {db}.swapped RENAME COLUMN v TO w, RENAME COLUMN w TO v",
            f"ALTER TABLE {db}.rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
            f"ALTER TABLE {db}.same ADD INDEX (v), COMMENT 'no other definition', ALTER COLUMN v SET INVISIBLE",
        )
        do(server, db, "INSERT INTO same (id, e) VALUES (2, 'x')")
        changed = ("retyped", "rounded", "swapped", "rekeyed")
        for table in changed:
            with pytest.raises(ChunkRetryError, match="another definition"):
                read(table)
        assert read("same") == [{"id": 1, "e": "\U0001f600", "v": 1}]
        executed = GtidSet.parse(server.gtid_executed)
        feeder = relay.partitions[1].feeder
        assert feeder.position.wait(lambda state: state.gtid >= executed, 60) is not None
        waiting = Tables()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(bootstrapped, relay, {1: lake}, waiting)
            assert waiting.waits.wait(60)
            copy.run()
            assert future.result(60) == bootstrapped(relay, {})
        for table in changed:
            with pytest.raises(PlanGoneError, match="definition since"):
                read(table)
        token = lake.begin().token
        assert sorted(token["definitions"]) == sorted(f"{db}.{table}" for table in (*changed, "same"))
        assert read("swapped") == [{"id": 1, "w": "v", "v": "w"}]
        assert read("same"), "also by what an image of the log said of the ENUM"

"""Bootstraps out of a pipeline's tables: the same rows that MySQL would give, then the changes since."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate._policies import Policies
from headgate._serving import Serving
from headgate.errors import ChunkRetryError, TargetError
from headgate.gtid import GtidSet
from headgate.lake import Lake, LakeSupplier
from headgate.relay import (
    Consumer,
    Event,
    LogicalSource,
    PlanGoneError,
    Relay,
    RelayClient,
    RelayConfig,
    Supplier,
    create_app,
)
from headgate.testing import MySQLServer
from tests.integration.test_copies import Copy
from tests.integration.test_relay import do, physical

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Tables(Consumer):
    """Everything up to the end of the bootstrap."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, Any], dict[str, Any]] = {}
        self.snapshot = 0
        self.client: RelayClient

    def on_bootstrap_event(self, event: Event) -> None:
        if event.opcode == "UPSERT":
            self.rows[event.source, event.key] = event.row
        else:
            self.rows.pop((event.source, event.key), None)

    def on_stop_bootstrap(self) -> None:
        self.client.stop()


def bootstrapped(relay: Relay, suppliers: dict[int, Supplier]) -> dict[tuple[str, Any], dict[str, Any]]:
    tables = Tables()
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
        f"CREATE TABLE {db}.b (x INT, y VARCHAR(9), n INT, PRIMARY KEY (x, y))",
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
            assert list(Path(copy.lake.current(f"{db}.{table}")).glob("deletion_vector_*"))
        do(
            server, db, "UPDATE a SET v = 'after' WHERE id = 7", "DELETE FROM a WHERE id = 8",
            "UPDATE b SET x = 9 WHERE x = 2", "INSERT INTO `vo.i d%` VALUES (1)",
        )  # fmt: skip
        executed = GtidSet.parse(server.gtid_executed)
        feeder = relay.partitions[1].feeder
        assert feeder.await_position(lambda state: state.gtid >= executed, 60) is not None
        beginning = lake.begin()
        assert beginning.gtid is not None
        assert beginning.gtid <= executed
        assert beginning.gtid != executed
        found = bootstrapped(relay, {1: lake})
        assert found == bootstrapped(relay, {})
        assert len(found) == 900 - 12 + 1 + 3 + 3
        server.execute(f"ALTER TABLE {db}.b ADD COLUMN more INT")
        with pytest.raises(ChunkRetryError, match="columns more"):
            lake.read(LogicalSource(1, "b", f"{db}.b"), beginning.token, {"part": 0}, executed, None)
        do(server, db, "UPDATE b SET more = 20240102 WHERE x = 9")
        copy.run()
        with pytest.raises(PlanGoneError, match="new columns since"):
            lake.read(LogicalSource(1, "b", f"{db}.b"), beginning.token, {"part": 0}, executed, None)
        executed = GtidSet.parse(server.gtid_executed)
        assert feeder.await_position(lambda state: state.gtid >= executed, 60) is not None
        found = bootstrapped(relay, {1: lake})
        assert found == bootstrapped(relay, {})
        assert sorted(str(row.get("more")) for (source, _), row in found.items() if source.endswith(".b")) == [
            "20240102", "None", "None",
        ]  # fmt: skip
        server.execute(f"ALTER TABLE {db}.b MODIFY more DATE")
        with pytest.raises(ChunkRetryError, match="columns more"):
            lake.read(LogicalSource(1, "b", f"{db}.b"), lake.begin().token, {"part": 0}, executed, None)

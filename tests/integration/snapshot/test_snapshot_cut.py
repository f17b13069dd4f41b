"""``snapshot_cut = "start"`` through the Spark source: however long a snapshot takes, and however often the stream is
begun again meanwhile, all its rows are those of one point in time, beside writers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headgate
from tests.fix_spark import once_its_source_starts
from tests.integration.reading.test_spark_source import Stream, expanded, folded, headers, source_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate_testing import MySQLServer

TABLES = ("a", "b")


class Writer:
    """Changes both tables, a little more each time it is asked to: rows that were read, and rows that were not."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db, self.turn = server, db, 0

    def __call__(self) -> None:
        self.turn += 1
        statements = []
        for table in TABLES:
            name = f"`{self.db}`.{table}"
            statements += [
                f"UPDATE {name} SET item = CONCAT('turn {self.turn}: ', item) WHERE id % 7 = {self.turn % 7}",
                f"DELETE FROM {name} WHERE id % 11 = {self.turn % 11}",
                f"UPDATE {name} SET id = id + 1000 WHERE id % 13 = {self.turn % 13} AND id < 1000",
                f"INSERT INTO {name} VALUES ({2000 + self.turn}, 'new'), ({-self.turn}, 'new')",
            ]
        self.server.execute(*statements)


@pytest.fixture
def options(mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path) -> dict[str, str]:
    headgate.register(spark)
    secret = tmp_path / "secret"
    secret.write_text(mysql_server._password)
    for table in TABLES:
        rows = ", ".join(f"({i}, 'item {i}')" for i in range(300))
        mysql_server.execute(
            f"CREATE TABLE `{mysql_db}`.{table} (id INT PRIMARY KEY, item TEXT)",
            f"INSERT INTO `{mysql_db}`.{table} VALUES {rows}",
        )
    return {
        "url": mysql_server.url, "password_file": str(secret), "slots": "2", "poll_ms": "10", "chunk_rows": "100",
        "tables": f"{mysql_db}.*", "snapshot_cut": "start",
    }  # fmt: skip


@pytest.mark.timeout(900)
def test_all_tables_are_of_the_first_offset_also_after_a_restart(
    spark: SparkSession, options: dict[str, str], mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    began, write = mysql_server.gtid_executed, Writer(mysql_server, mysql_db)
    then = {table: source_state(mysql_server, f"{mysql_db}.{table}") for table in TABLES}
    first: list[list[dict[str, Any]]] = []

    def fail(frame: DataFrame, batch: int) -> None:
        write()
        rows = frame.toArrow().to_pylist()
        write()
        if batch == 1:
            raise RuntimeError("killed")
        first.append(rows)

    frame = spark.readStream.format("mysql-cdc").options(**options).load()
    query = frame.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="killed"):
        once_its_source_starts(lambda: query.trigger(availableNow=True).start().awaitTermination(300))
    write()
    rest = Writing(write, spark, options, tmp_path).run()
    rows = [row for batch in first for row in batch] + rest
    assert [header["gtid"] for header in headers(rows)][:-1] == [began] * (len(headers(rows)) - 1)
    assert len(headers(rows)) >= 4
    assert write.turn >= 8
    for table, images in expanded(rows).items():
        read = [image for image in images if image["_op"] == "r"]
        assert folded(read, "id", ("id", "item")) == then[table.partition(".")[2]]
        assert len(read) == 300
    changes = Stream(spark, options, tmp_path).run()
    for table in TABLES:
        images = expanded(rows + changes)[f"{mysql_db}.{table}"]
        assert folded(images, "id", ("id", "item")) == source_state(mysql_server, f"{mysql_db}.{table}")


class Writing(Stream):
    """A stream beside a writer."""

    def __init__(self, write: Writer, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._write = write

    def _keep(self, frame: DataFrame, batch: int) -> None:
        self._write()
        super()._keep(frame, batch)

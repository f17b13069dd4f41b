"""``snapshot_share`` through Spark: beside live changes, reading a table takes no more of the time than it was given.

The sink takes a millisecond for each row of a chunk, so what chunks cost is known and does not depend on the machine.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headgate
from headgate_testing import pass_time
from tests.integration.beside import beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate_testing import MySQLServer

ROWS, CHUNK_ROWS, SLOTS = 8000, 1000, 2
ROW_SECONDS = 0.001
SHARE, TOLERANCE = 0.3, 0.1
"""The share holds over several batches, and rests on how long late ones took; so it is met roughly."""


class Sink:
    """Notes of each batch when it ended and how many rows its chunks had."""

    def __init__(self) -> None:
        self.batches: list[tuple[float, int]] = []
        self.all_read = threading.Event()

    def take(self, frame: DataFrame, _batch: int) -> None:
        parts = frame.select("_kind", "_count").toArrow().to_pylist()
        rows = sum(part["_count"] for part in parts if part["_kind"] == "chunk")
        pass_time(rows * ROW_SECONDS)
        self.batches.append((time.monotonic(), rows))
        if sum(rows for _, rows in self.batches) >= ROWS:
            self.all_read.set()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_live_changes_wait_for_chunks_no_longer_than_their_share(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    mysql_server.execute(
        f"CREATE TABLE `{mysql_db}`.big (id INT PRIMARY KEY)", f"CREATE TABLE `{mysql_db}`.live (v INT)",
        f"INSERT INTO `{mysql_db}`.big VALUES {', '.join(f'({i})' for i in range(ROWS))}",
    )  # fmt: skip

    def change(_chance: random.Random, stop: threading.Event) -> None:
        with mysql_server.connect(database=mysql_db, autocommit=True) as connection, connection.cursor() as cursor:
            while not stop.wait(0.02):
                cursor.execute("INSERT INTO live VALUES (1)")

    headgate.register(spark)
    (tmp_path / "secret").write_text(mysql_server._password)
    sink = Sink()
    options = {
        "url": mysql_server.url, "password_file": str(tmp_path / "secret"), "tables": f'["{mysql_db}.*"]',
        "chunk_rows": str(CHUNK_ROWS), "slots": str(SLOTS), "poll_ms": "10", "snapshot_share": str(SHARE),
    }  # fmt: skip
    stream = spark.readStream.format("mysql-cdc").options(**options).load().writeStream
    with beside(change, 1):
        query = stream.foreachBatch(sink.take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert sink.all_read.wait(600), query.exception()
    query.processAllAvailable()
    query.stop()

    # Before the first change there is nobody to wait, so a batch may be full; it is over with the first one without.
    begins = next(number for number, (_, rows) in enumerate(sink.batches) if not rows)
    last = max(number for number, (_, rows) in enumerate(sink.batches) if rows)
    counts = [rows for _, rows in sink.batches[begins + 1 : last + 1]]
    took = sink.batches[last][0] - sink.batches[begins][0]
    share = sum(counts) * ROW_SECONDS / took
    print(f"{sum(counts)} rows in {len(counts)} batches, the greatest of {max(counts)}, {share:.2f} of {took:.1f} s")
    assert sum(counts) >= ROWS - SLOTS * CHUNK_ROWS
    assert share < SHARE + TOLERANCE

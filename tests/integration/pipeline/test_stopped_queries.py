"""Another program stops a pipeline's streaming query."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate_testing import MySQLServer


def test_a_run_goes_on_with_another_query(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path
) -> None:
    """The query ends without an error, and a run that nobody has stopped has no reason to end."""
    runs = Runs(spark, mysql_server, mysql_db, tmp_path / "runs")
    table = runs.table("t", 5)
    stopped: list[threading.Thread] = []

    def stop_query(_number: int) -> bool:
        if not stopped:
            (query,) = spark.streams.active
            stopped.append(threading.Thread(target=query.stop))  # it waits for this batch
            stopped[0].start()
            runs.do("UPDATE t SET v = 77")
            return True
        return runs.rows(table) != runs.source(table)

    runs.run(once=False, meanwhile=stop_query)
    stopped[0].join()
    assert runs.rows(table) == runs.source(table)

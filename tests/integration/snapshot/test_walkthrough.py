"""Tables join a running pipeline: followed from the moment they are configured, read when a signal asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.inventory import Inventory, walk
from headgate.carrier import ControlFolder
from headgate_testing import KafkaBroker, MySQLServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tables_are_added_to_a_running_pipeline_and_read_on_demand_by_every_channel(
    spark: SparkSession,
    mysql_server: MySQLServer,
    mysql_db: str,
    kafka_broker: KafkaBroker,
    kafka_topic: str,
    tmp_path: Path,
) -> None:
    inventory = Inventory(mysql_server, kafka_broker, kafka_topic, tmp_path, mysql_db)
    inventory.create(mysql_server._password)
    walk(inventory, spark, print)
    assert ControlFolder(inventory.lake.inbox).signals() == {}, "each was taken, and is done with"
    assert not Path(inventory.lake.current(f"{mysql_db}.signals")).exists(), "it is none of the pipeline's tables"

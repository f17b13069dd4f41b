"""Debezium's JDBC sink reads the messages of the mode ``kafka``, by the recipe of docs/reference/kafka.md."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks._debezium import jars, java
from headgate.archives import fetch_jars
from headgate.errors import ConfigError
from headgate.files import cache_folder, make_once
from headgate_testing import KafkaBroker, MySQLServer, wait_until
from headgate_testing._ports import free_port
from headgate_testing._process import start_child
from tests.integration.pipeline.test_kafka import KafkaRuns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINK_VERSION = "3.5.0.Final"
"""The newest whose archives are all in Maven Central."""
PACKAGES = (f"io.debezium:debezium-connector-jdbc:{SINK_VERSION}", "com.mysql:mysql-connector-j:9.1.0")
PROVIDED = ("connect-*.jar", "jackson-*.jar", "kafka-clients-*.jar", "slf4j-*.jar")
"""What Kafka Connect has, and Debezium's package of the sink leaves out."""
START_SECONDS = 240.0


def sink_jars() -> Path:
    """The folder with the sink's archives."""
    folder = cache_folder("debezium-sink", SINK_VERSION)
    with make_once(folder) as unfinished:
        if unfinished is not None:
            fetch_jars(PACKAGES, unfinished)
            for jar in [jar for pattern in PROVIDED for jar in unfinished.glob(pattern)]:
                jar.unlink()
    return folder


@contextmanager
def sink(folder: Path, worker: dict[str, Any], connector: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of Kafka Connect with the sink. Its runtime is the one that the engine's archives have."""
    try:
        runtime, program, plugins = jars(), java(), sink_jars()
    except (ConfigError, RuntimeError) as error:
        pytest.skip(f"Debezium's sink cannot be run: {error}")
    files = []
    fixed: dict[str, Any] = {"offset.storage.file.filename": folder / "offsets", "plugin.path": plugins.parent}
    fixed["listeners"] = f"http://127.0.0.1:{free_port()}"
    for name, settings in (("worker", worker | fixed), ("connector", connector)):
        files.append(folder / f"{name}.properties")
        files[-1].write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    command = [program, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{runtime}/*", main]
    process = start_child([*command, *map(str, files)], output=folder / "connect.log")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_jdbc_sink_makes_the_same_table(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    runs = KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)
    runs.settings = 'format = "json-schema"\ndelivery = "exactly-once"\n'
    runs.do(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12,3), f DOUBLE, at DATETIME(6))",
        "INSERT INTO t VALUES (1, 'a', 1.5, 1, '2024-02-29 12:34:56.000007'), (2, 'é 😀', NULL, 1e10, NULL)",
        "INSERT INTO t VALUES (3, NULL, 0, 0, NULL)",
    )
    runs.run()
    runs.do("UPDATE t SET name = 'new' WHERE id = 1", "UPDATE t SET id = 20 WHERE id = 2", "DELETE FROM t WHERE id = 3")
    runs.run()
    target = f"{mysql_db}_copy"
    mysql_server.execute(f"CREATE DATABASE {target}")
    converter = "org.apache.kafka.connect.json.JsonConverter"
    worker = {
        "bootstrap.servers": kafka_broker.bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "consumer.isolation.level": "read_committed",
        "consumer.auto.offset.reset": "earliest",
        "offset.flush.interval.ms": 1000,
    }
    connector = {
        "name": "copy",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": runs.topic("t"),
        "connection.url": f"jdbc:mysql://{mysql_server.host}:{mysql_server.port}/{target}?nullDatabaseMeansCurrent=true",
        "connection.username": mysql_server.user,
        "connection.password": mysql_server._password,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": "${source.table}",
    }
    columns = "id, name, CAST(price AS CHAR), f, CAST(at AS CHAR)"
    expected = mysql_server.query(f"SELECT {columns} FROM {mysql_db}.t ORDER BY id")
    log = tmp_path / "connect.log"
    with sink(tmp_path, worker, connector) as process:

        def is_copied() -> bool:
            text = log.read_text()
            assert process.poll() is None, text[-3000:]
            assert "Task threw an uncaught" not in text, text[-3000:]
            exists = mysql_server.query(f"SELECT 1 FROM information_schema.tables WHERE table_schema = '{target}'")
            return bool(exists) and mysql_server.query(f"SELECT {columns} FROM {target}.t ORDER BY id") == expected

        wait_until(is_copied, lambda: log.read_text()[-3000:], seconds=START_SECONDS, every=0.5)
    mysql_server.execute(f"DROP DATABASE {target}")

"""Messages in Avro, with a real registry, beside those in JSON of another pipeline on the same statements."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from headgate.errors import TargetError
from headgate.kafka.schema_registry import SchemaRegistry as Client
from headgate_testing import KafkaBroker, MySQLServer, RegistryServer
from tests.integration.peers.test_debezium_messages import COLUMNS
from tests.integration.pipeline.test_kafka import KafkaRuns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE_COLUMNS = (
    ("dw", "DECIMAL(65,30)", "-12345678901234567890123456789012345.000000000000000000000000000001"),
    ("um", "BIGINT UNSIGNED", "18446744073709551615"),
    ("po", "POINT", "ST_GeomFromText('POINT(1 2)')"),
)
VECTORS = (("ve", "VECTOR(2)", "STRING_TO_VECTOR('[1.5,-2]')"),)


class AvroReader:
    """Reads messages as Confluent's wire format says, with schemas from the registry."""

    def __init__(self, registry: RegistryServer) -> None:
        self._registry = registry
        self._schemas: dict[int, Any] = {}

    def read(self, message: bytes) -> Any:
        zero, number = struct.unpack(">bI", message[:5])
        assert zero == 0
        if number not in self._schemas:
            self._schemas[number] = fastavro.parse_schema(self._registry.schema(number))
        rest = io.BytesIO(message[5:])
        value = fastavro.schemaless_reader(rest, self._schemas[number], None)
        assert not rest.read()
        return value


def raw_messages(broker: KafkaBroker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of all committed messages of a topic of one partition."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "test", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "isolation.level": "read_committed", **settings})
    messages = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(60)) is not None and message.error() is None:
            messages.append((message.key(), message.value()))
        assert message is not None
    finally:
        consumer.close()
    return messages


def differences(plain: Any, avro: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields whose value in JSON is not that in Avro."""
    if isinstance(plain, dict) and isinstance(avro, dict):
        for name in sorted({*plain, *avro}):
            yield from differences(plain.get(name, ...), avro.get(name, ...), f"{path}.{name}")
        return
    if isinstance(avro, bytes):
        avro = base64.b64encode(avro).decode()
    elif isinstance(avro, Decimal) and plain is not None:
        plain = Decimal(plain)
    elif path.endswith(".fl") and plain is not None:
        plain = struct.unpack("<f", struct.pack("<f", plain))[0]
    elif path.endswith(".um") and plain is not None:
        plain -= 2**64  # Debezium's ``long``, too
    if plain != avro:
        yield path, plain, avro


def without_times(value: Any) -> Any:
    """A value without what differs between two runs."""
    if value is None or "ts_ms" not in value:
        return value
    timeless = {name: one for name, one in value.items() if not name.startswith("ts_")}
    if timeless.get("op") == "r":
        timeless["source"] = {name: one for name, one in timeless["source"].items() if not name.startswith("ts_")}
    if "source" in timeless:
        timeless["source"] = {name: one for name, one in timeless["source"].items() if name != "name"}
    return timeless


@pytest.fixture
def pair(
    spark: SparkSession,
    mysql_server: MySQLServer,
    mysql_db: str,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    schema_registry: RegistryServer,
) -> list[KafkaRuns]:
    """Two pipelines of one database: in JSON, and in Avro by transactions."""
    pipelines = []
    for form in ("json", "avro"):
        (folder := tmp_path / form).mkdir()
        runs = KafkaRuns(spark, mysql_server, mysql_db, folder, kafka_broker)
        runs.settings = f'format = "{form}"\ntransactions = true\nschema_changes_topic = true\nheartbeat_ms = 60000\n'
        pipelines.append(runs)
    pipelines[1].settings += f'registry = "{schema_registry.url}"\ndelivery = "exactly-once"\n'
    return pipelines


def test_messages_are_those_in_json(pair: list[KafkaRuns], schema_registry: RegistryServer) -> None:
    plain, avro = pair
    columns = [*COLUMNS, *MORE_COLUMNS, *(VECTORS if plain.server.version_numbers >= (9, 0) else ())]
    plain.do(
        f"CREATE TABLE a (id INT PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind, _ in columns)})",
        f"INSERT INTO a VALUES (1, {', '.join(value for *_, value in columns)})",
        "CREATE TABLE keyless (v INT)",
        "CREATE TABLE k (d DECIMAL(20,2), b BINARY(3), t DATETIME(6), v INT, PRIMARY KEY (d, b, t))",
    )
    for runs in pair:
        runs.run()
    plain.do(
        f"INSERT INTO a VALUES (2, {', '.join(value for *_, value in columns)})",
        "INSERT INTO a (id) VALUES (3)",
        "UPDATE a SET vc = 'new', de = NULL WHERE id = 1",
        "UPDATE a SET id = 4 WHERE id = 2",
        "DELETE FROM a WHERE id = 3",
        "INSERT INTO k VALUES (-1.50, X'000102', '2024-02-29 12:34:56.000007', 1), (1e10, 'abc', '1969-01-01', NULL)",
        "DELETE FROM k",
        "INSERT INTO keyless VALUES (1), (1)",
        "ALTER TABLE keyless ADD COLUMN w VARCHAR(9)",
        "INSERT INTO keyless VALUES (2, 'x')",
    )
    for runs in pair:
        runs.run()
    reader, seen = AvroReader(schema_registry), 0
    names = [*(f"{plain.db}.{table}" for table in ("a", "k", "keyless")), "transaction", ""]
    for name in names:
        topics = [".".join(filter(None, (runs.prefix, name))) for runs in pair]
        of_json, of_avro = (raw_messages(plain.broker, topic) for topic in topics)
        assert len(of_json) == len(of_avro) > 0
        seen += len(of_json)
        for mine, its in zip(of_json, of_avro, strict=True):
            one = [without_times(part and json.loads(part)) for part in mine]
            other = [without_times(part and reader.read(part)) for part in its]
            assert list(differences(dict(enumerate(one)), dict(enumerate(other)))) == []
    assert seen > 30
    heartbeats = raw_messages(plain.broker, f"__debezium-heartbeat.{avro.prefix}")
    keys = [reader.read(key or b"") for key, _ in heartbeats]
    assert keys == [{"serverName": avro.prefix}] * len(keys) != []
    assert all(reader.read(value or b"")["ts_ms"] > 1_700_000_000_000 for _, value in heartbeats)
    subjects = [subject for subject in schema_registry.subjects() if subject.startswith(avro.prefix)]
    ours = [".".join(filter(None, (avro.prefix, name))) for name in names]
    assert {*subjects} == {f"{topic}-{part}" for topic in ours for part in ("key", "value")} - {
        f"{avro.prefix}.{plain.db}.keyless-key"
    }


def test_the_registry_decides_which_schemas_may_follow(schema_registry: RegistryServer) -> None:
    registry = Client(schema_registry.url, None, None, 30)
    registry.check()

    def record(kind: str, name: str = "f") -> str:
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": kind}]})

    first = registry.schema_id("own-value", record("int"))
    assert Client(schema_registry.url, None, None, 30).schema_id("own-value", record("int")) == first
    schema_registry.set_compatibility("own-value", "BACKWARD")
    assert registry.schema_id("own-value", record("long")) != first
    with pytest.raises(TargetError, match="refuses the schema of own-value: it is not compatible"):
        registry.schema_id("own-value", record("string"))
    with pytest.raises(TargetError, match="answers 422 for own-value"):
        registry.schema_id("own-value", "{")

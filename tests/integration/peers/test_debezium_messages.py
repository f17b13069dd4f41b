"""The messages of the mode ``kafka`` and those of the Debezium engine, of the same statements on the same server.

The engine is Debezium's own, with the settings that docs/reference/kafka.md names. What differs is listed there, and
here, with the reason; everything else must be equal, field by field.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from benchmarks._debezium import jars, java
from headgate.errors import ConfigError
from headgate_testing import KafkaBroker, MySQLServer, wait_until
from headgate_testing._process import start_child
from tests.integration.pipeline.test_kafka import KafkaRuns
from tests.kafka.debezium_keys import KEYS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS = 240.0

COLUMNS = (
    ("ti", "TINYINT", "-5"), ("tu", "TINYINT UNSIGNED", "200"), ("sm", "SMALLINT", "-300"),
    ("me", "MEDIUMINT UNSIGNED", "16777215"), ("iu", "INT UNSIGNED", "4294967295"),
    ("bi", "BIGINT", "-9007199254740993"), ("bu", "BIGINT UNSIGNED", "9223372036854775807"),
    ("b1", "BIT(1)", "b'1'"), ("b12", "BIT(12)", "b'100000000001'"), ("b64", "BIT(64)", "b'1'"),
    ("fl", "FLOAT", "0.1"), ("db", "DOUBLE", "1e-7"), ("de", "DECIMAL(12,3)", "-0.100"),
    ("ch", "CHAR(5)", "'ab'"), ("vc", "VARCHAR(40)", "'quote \" back \\\\ \\n é €'"), ("tx", "TEXT", "'text'"),
    ("l1", "VARCHAR(9) CHARACTER SET latin1", "'é'"),
    ("bn", "BINARY(4)", "X'0102'"), ("vb", "VARBINARY(9)", "X'00FF'"), ("bl", "BLOB", "X'DEADBEEF'"),
    ("da", "DATE", "'1969-12-31'"), ("d0", "DATETIME", "'2024-02-29 12:34:56'"),
    ("d3", "DATETIME(3)", "'1969-12-31 23:59:59.999'"), ("d6", "DATETIME(6)", "'2024-02-29 12:34:56.000007'"),
    ("t0", "TIMESTAMP NULL", "'2024-02-29 12:34:56'"), ("t3", "TIMESTAMP(3) NULL", "'2024-02-29 12:34:56.120'"),
    ("t6", "TIMESTAMP(6) NULL", "'2024-02-29 12:34:56.000100'"),
    ("h0", "TIME", "'-838:59:59'"), ("h6", "TIME(6)", "'-00:00:01.500001'"), ("ye", "YEAR", "1999"),
    ("en", "ENUM('a','b')", "'b'"), ("st", "SET('x','y','z')", "'x,z'"),
    ("js", "JSON", "'{\"a\": [1, null, \"é\"]}'"),
    ("ge", "GEOMETRY", "ST_GeomFromText('LINESTRING(0 0, 1 2)', 4326)"),
)  # fmt: skip
"""Name, type, value."""


class Printed(NamedTuple):
    """A message of the engine as a worker of Kafka Connect would send it."""

    topic: str
    key: Any
    value: Any
    plain_key: str  # text
    whole_key: str  # with its schema
    headers: list[list[str]]

    @property
    def key_headers(self) -> tuple[tuple[str, str], ...]:
        """The headers about another key: the engine also names itself (``extended.headers.enabled``)."""
        return tuple((name, text) for name, text in self.headers if not name.startswith("__debezium.context."))


class Engine:
    """A running engine and the messages that it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process, self._output = process, output

    def messages(self) -> list[tuple[str, Any, Any]]:
        """All messages so far: topic, key, value."""
        return [(one.topic, one.key, one.value) for one in self.printed()]

    def printed(self) -> list[Printed]:
        """All messages so far."""
        lines = self._output.read_text("utf-8", errors="replace").split("\n")[:-1]
        return [Printed(*json.loads(line[1:])) for line in lines if line.startswith(">")]

    def wait(self, topic: str, poke: Any = lambda: None) -> None:
        """Wait until a message of this topic has come."""

        def has_come() -> bool:
            if any(one.topic == topic for one in self.printed()):
                return True
            assert self._process.poll() is None, self._last_words()
            poke()
            return False

        wait_until(has_come, self._last_words, seconds=START_SECONDS, every=0.5)

    def _last_words(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]


@contextmanager
def engine(
    server: MySQLServer,
    db: str,
    prefix: str,
    folder: Path,
    *,
    schemas: bool = False,
    heartbeat_ms: int = 0,
    **more: Any,
) -> Iterator[Engine]:
    try:
        archives, program = jars(), java()
    except (ConfigError, RuntimeError) as error:
        pytest.skip(f"the Debezium engine cannot be run: {error}")
    settings = {
        "name": "peer",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": prefix,
        "database.hostname": server.host,
        "database.port": server.port,
        "database.user": server.user,
        "database.password": server._password,
        "database.server.id": 85745,
        "database.include.list": db,
        "snapshot.mode": "no_data",
        "decimal.handling.mode": "string",
        "time.precision.mode": "adaptive_time_microseconds",
        "provide.transaction.metadata": "true",
        "include.schema.changes": "false",
        "heartbeat.interval.ms": heartbeat_ms,
        "schemas": str(schemas).lower(),
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
        **{name.replace("_", "."): one for name, one in more.items()},
    }
    file, output = folder / "engine.properties", folder / "output"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    source = Path(__file__).with_name("DebeziumMessages.java")
    command = [program, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{archives}/*"]
    process = start_child([*command, str(source), str(file)], output=output)
    try:
        yield Engine(process, output)
    finally:
        process.kill()
        process.wait()


def with_json(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A row whose JSON is parsed: the engine's text has no blanks."""
    return row if not row or row.get("js") is None else {**row, "js": json.loads(row["js"])}


def comparable(messages: list[tuple[str, Any, Any]]) -> list[tuple[str, Any, Any]]:
    """Messages without what must differ: the times at which they were made, and docs/reference/kafka.md's list."""
    result = []
    for topic, key, value in messages:
        if key is None and value is None:
            continue  # the engine's tombstone of a table without a key
        if value is not None and "source" in value:
            ignored = ("version", "server_id", "thread", "row")
            source = {name: one for name, one in value["source"].items() if name not in ignored}
            rows = {name: with_json(value[name]) for name in ("before", "after")}
            value = {**value, **rows, "source": source}  # noqa: PLW2901
            for unit in ("ms", "us", "ns"):
                value.pop(f"ts_{unit}")
        elif value is not None:
            value = {name: one for name, one in value.items() if name != "ts_ms"}  # noqa: PLW2901
            counts = value.get("data_collections")
            if counts:  # the engine's order is that of a hash table
                value["data_collections"] = sorted(counts, key=lambda one: one["data_collection"])
        result.append((topic, key, value))
    return result


def differences(mine: Any, its: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each field that differs: where, our value, the engine's."""
    if isinstance(mine, dict) and isinstance(its, dict):
        for name in sorted({*mine, *its}):
            yield from differences(mine.get(name, ...), its.get(name, ...), f"{path}.{name}")
    elif isinstance(mine, tuple) and isinstance(its, tuple):
        for number, pair in enumerate(zip(mine, its, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif mine != its:
        yield path, mine, its


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_messages_equal_debeziums(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    runs = KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)
    runs.settings = "transactions = true\n"
    types = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
    runs.do(
        "SET time_zone = '+00:00'",
        f"CREATE TABLE t (id INT PRIMARY KEY, {types})",
        "CREATE TABLE pair (a VARCHAR(9), b BIGINT UNSIGNED, v INT, PRIMARY KEY (b, a))",
        "CREATE TABLE poke (id INT PRIMARY KEY AUTO_INCREMENT)",
        "CREATE TABLE keyless (v INT)",
    )
    runs.run()
    with engine(mysql_server, runs.db, runs.prefix, tmp_path) as peer:
        peer.wait(runs.topic("poke"), lambda: runs.do("INSERT INTO poke VALUES ()"))
        values = ", ".join(value for *_, value in COLUMNS)
        runs.do(
            "SET time_zone = '+00:00'",
            f"INSERT INTO t VALUES (1, {values})",
            "INSERT INTO t (id) VALUES (2)",
            "BEGIN",
            "INSERT INTO pair VALUES ('x', 1, 1), ('y', 2, 2)",
            "UPDATE t SET vc = 'new' WHERE id = 1",
            "UPDATE pair SET v = 3",
            "COMMIT",
            "UPDATE pair SET a = 'z' WHERE b = 1",
            "UPDATE t SET id = 3 WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
            "INSERT INTO keyless VALUES (1), (1)",
            "UPDATE keyless SET v = 2",
            "DELETE FROM keyless LIMIT 1",
            "CREATE TABLE last (id INT PRIMARY KEY)",
            "INSERT INTO last VALUES (1)",
        )
        peer.wait(runs.topic("last"))
        theirs = peer.messages()
    runs.run()
    topics = [runs.topic(name) for name in ("t", "pair", "keyless")]
    for topic in topics:
        expected = comparable([one for one in theirs if one[0] == topic])
        ours = comparable([one[:3] for one in runs.messages(topic)])
        assert len(ours) == len(expected)
        differing = [one for pair in zip(ours, expected, strict=True) for one in differences(*pair)]
        assert differing == []
    ids = {one[2]["transaction"]["id"] for one in theirs if one[0] in topics and one[2]}
    name = f"{runs.prefix}.transaction"
    expected = comparable([one for one in theirs if one[0] == name and one[2]["id"] in ids])
    ours = comparable([one[:3] for one in runs.messages(name) if one.value["id"] in ids])
    by_status = [sorted(each, key=lambda one: (one[2]["id"], one[2]["status"])) for each in (ours, expected)]
    assert by_status[0] == by_status[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_schemas_equal_debeziums(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    runs = KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)
    runs.settings = 'transactions = true\nformat = "json-schema"\nheartbeat_ms = 60000\n'
    types = ", ".join(f"{name} {kind}" for name, kind, _ in COLUMNS)
    runs.do(f"CREATE TABLE t (id INT PRIMARY KEY, {types})", "CREATE TABLE poke (id INT PRIMARY KEY AUTO_INCREMENT)")
    runs.run()
    heartbeats = f"__debezium-heartbeat.{runs.prefix}"
    with engine(mysql_server, runs.db, runs.prefix, tmp_path, schemas=True, heartbeat_ms=200) as peer:
        peer.wait(runs.topic("poke"), lambda: runs.do("INSERT INTO poke VALUES ()"))
        runs.do(
            "INSERT INTO t (id) VALUES (1)", "CREATE TABLE last (id INT PRIMARY KEY)", "INSERT INTO last VALUES (1)"
        )
        peer.wait(runs.topic("last"))
        peer.wait(heartbeats, lambda: runs.do("INSERT INTO poke VALUES ()"))
        theirs = peer.messages()
    runs.run()
    mine, its = runs.messages(heartbeats)[0], next(one for one in theirs if one[0] == heartbeats)
    assert mine.key["payload"] == its[1]["payload"] == {"serverName": runs.prefix}
    assert mine.value["payload"].keys() == its[2]["payload"].keys() == {"ts_ms"}
    for topic in (runs.topic("t"), f"{runs.prefix}.transaction", heartbeats):
        mine, its = runs.messages(topic)[0], next(one for one in theirs if one[0] == topic)
        assert [*differences(mine.key["schema"], its[1]["schema"])] == []
        mismatches = [*differences(by_name(mine.value["schema"]), by_name(its[2]["schema"]))]
        assert mismatches == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_keys_are_byte_for_byte_those_of_debezium(
    spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, kafka_broker: KafkaBroker
) -> None:
    """Of rows, transactions, DDL statements and heartbeats, with the headers of a key that changed."""
    runs = KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)
    runs.settings = 'transactions = true\nformat = "json-schema"\nheartbeat_ms = 60000\nschema_changes_topic = true\n'
    tables = {f"k{number}": one for number, one in enumerate(KEYS)}
    pairs = [(name, one.values) for name, one in tables.items() if len(one.values) == 2]
    lenient = "SET sql_mode = '', time_zone = '+00:00'"
    runs.do(
        *(f"CREATE TABLE {name} (k {one.mysql} NOT NULL, v INT, PRIMARY KEY (k))" for name, one in tables.items()),
        "CREATE TABLE pair (a VARCHAR(9), b BIGINT UNSIGNED, v INT, PRIMARY KEY (b, a))",
        'CREATE TABLE `odd "name` (`a"b é` INT PRIMARY KEY)',
        "CREATE TABLE poke (id INT PRIMARY KEY AUTO_INCREMENT)",
    )
    runs.run()
    heartbeats = f"__debezium-heartbeat.{runs.prefix}"
    more: dict[str, Any] = {"include_schema_changes": "true"}
    with engine(mysql_server, runs.db, runs.prefix, tmp_path, heartbeat_ms=200, **more) as peer:
        peer.wait(runs.topic("poke"), lambda: runs.do("INSERT INTO poke VALUES ()"))
        runs.do(
            lenient,
            *(f"INSERT INTO {name} VALUES ({sql}, 1)" for name, one in tables.items() for sql, *_ in one.values),
            "INSERT INTO pair VALUES ('x', 1, 1)",
            'INSERT INTO `odd "name` VALUES (1)',
            "UPDATE pair SET a = _utf8mb4 X'22205C0A01F09F9880'",
            *(f"DELETE FROM {name} WHERE k = {two[1][0]}" for name, two in pairs),
            *(f"UPDATE {name} SET k = {two[1][0]}" for name, two in pairs),
            "ALTER TABLE pair ADD COLUMN w INT",
            "CREATE TABLE last (id INT PRIMARY KEY)",
            "INSERT INTO last VALUES (1)",
        )
        peer.wait(runs.topic("last"))
        peer.wait(heartbeats, lambda: runs.do("INSERT INTO poke VALUES ()"))
        theirs = peer.printed()
    runs.run()
    for name, one in [*tables.items(), ("pair", None), ('odd "name', None)]:
        topic = runs.topic(name).replace(' "', "__")
        expected = [each for each in theirs if each.topic == topic]
        ours = runs.messages(topic)
        assert [each.key_text for each in ours] == [each.whole_key for each in expected], name
        assert [each.header_texts for each in ours] == [each.key_headers for each in expected], name
        if one is not None:
            payloads = [f'{{"k":{text}}}' for *_, text in one.values]
            assert [each.plain_key for each in expected][: len(payloads)] == payloads, "the table is the engine's"
    for topic in (f"{runs.prefix}.transaction", heartbeats, runs.prefix):
        of_engine = {each.whole_key for each in theirs if each.topic == topic}
        assert of_engine & {each.key_text for each in runs.messages(topic)}, topic


def by_name(schema: Any) -> Any:
    """A schema whose fields are found by name."""
    if isinstance(schema, list):
        return {one["field"]: by_name(one) for one in schema}
    if isinstance(schema, dict):
        return {name: by_name(one) if name in ("fields", "items") else one for name, one in schema.items()}
    return schema

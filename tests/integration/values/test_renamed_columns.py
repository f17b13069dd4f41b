"""Rules that rename columns, from a real server into every target, by every road that a row or a statement takes."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headgate.config import PipelineConfig, parse_config
from headgate.errors import ConfigError, UnsupportedError
from headgate.gtid import GtidSet
from headgate.lake import Lake, Target, key_of, newest_row
from headgate.mysql import ConnectionSettings
from headgate.offsets import ChunkSpec
from headgate.pipeline import Pipeline, check_source
from headgate.policies import Policies, parse_rules
from headgate.replication import ImageBatch
from headgate.snapshot import ChunkOptions, ChunkRead, read_chunks
from headgate_testing import KafkaBroker, MySQLServer, RegistryServer
from tests.integration.databases import Database, pipeline_text
from tests.integration.outside import lake_rows, source_rows
from tests.integration.pipeline.test_kafka import KafkaRuns
from tests.integration.pipeline.test_kafka_avro import AvroReader, raw_messages
from tests.integration.pipeline.verifying import newest, verify
from tests.integration.runs import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "not the password, but a key"
RULES = """
    [columns."*.*"]
    "*mail" = "hash"
    [columns."*.people"]
    id = { rename = "customer" }
    mail = { rename = "E-mail" }
    a = { rename = "b" }
    B = { rename = "a" }
    size = { rename = "num" }
    _op = { rename = "op" }
"""
"""The hidden column stays hidden under its new name, two columns exchange their names, and one has a reserved name."""


def hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def source_names(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: column.source_name for name, column in Target.of({}, properties).noted.items() if column.source_name}


def names_in(folder: str) -> list[str]:
    return [field.name for field in DeltaTable(folder).schema().fields]


PEOPLE = (
    "CREATE TABLE people (region CHAR(2), id INT, mail VARCHAR(40), a INT, B INT DEFAULT 5, size SMALLINT, _op INT,"
    " doc JSON, PRIMARY KEY (region, id))"
)
READ = "region, id, mail, a, B, size, _op, doc"
WRITTEN = ["region", "customer", '"E-mail"', "b", "a", "num", "op", "doc"]


class Shop(Database):
    """A database, and pipelines from it into one lake."""

    def __init__(self, spark: SparkSession, server: MySQLServer, db: str, folder: Path) -> None:
        super().__init__(server, db)
        self.spark, self.folder, self.lake = spark, folder, Lake.at(folder / "lake")
        (folder / "key").write_text(KEY, encoding="utf-8")

    def text(self, rules: str = RULES, mode: str = '"current"') -> str:
        source = f'mask_key_file = "{self.folder / "key"}"\nchunk_rows = 3'
        return pipeline_text(self.server, [f"{self.db}.*"], self.folder, source=source, mode=f"[{mode}]", more=rules)

    def config(self, rules: str = RULES, mode: str = '"current"') -> PipelineConfig:
        return parse_config(self.text(rules, mode))

    def run(self, config: PipelineConfig) -> None:
        Pipeline(config, self.spark).run(once=True)

    def check(self, config: PipelineConfig, table: str) -> None:
        """Compare the current table with the source's rows, and as ``headgate verify`` does."""
        rows = source_rows(self.server, table, READ).elements()
        expected = Counter((*one[:2], hashed(one[2]), *one[3:]) for one in rows)
        assert lake_rows(self.lake.current(table), WRITTEN) == expected
        result = verify(config, newest_row(self.lake), table)
        assert (result.equal, result.differences) == (expected.total(), 0), result


@pytest.fixture
def shop(spark: SparkSession, mysql_server: MySQLServer, mysql_db: str, tmp_path: Path) -> Shop:
    return Shop(spark, mysql_server, mysql_db, tmp_path)


@pytest.mark.long
def test_current_and_changelog(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    table, config = f"{shop.db}.people", shop.config(mode='"current", "changelog"')
    lake = shop.lake
    shop.do(PEOPLE, "CREATE TABLE loose (email VARCHAR(9), a INT)")
    rows = ", ".join(f"('{'DE' if n % 2 else 'AT'}', {n}, 'm{n}', {n}, {-n}, {n}, NULL, '[{n}]')" for n in range(10))
    shop.do(f"INSERT INTO people VALUES {rows}", "INSERT INTO loose VALUES ('x', 1), ('x', 1)")
    shop.run(config)
    shop.check(config, table)
    properties = DeltaTable(lake.current(table)).metadata().configuration
    assert key_of(properties) == ("region", "customer")
    assert source_names(properties) == {
        "customer": "id", "E-mail": "mail", "b": "a", "a": "B", "num": "size", "op": "_op"
    }  # fmt: skip

    for image in ("FULL", "MINIMAL"):
        first = 0 if image == "FULL" else 4
        shop.do(
            f"SET binlog_row_image = {image}, binlog_row_value_options = 'PARTIAL_JSON'",
            f"UPDATE people SET mail = 'new', a = 100 WHERE id = {first}",
            f"UPDATE people SET doc = JSON_ARRAY_INSERT(doc, '$[0]', 7), B = 6 WHERE id = {first + 1}",
            f"UPDATE people SET id = id + 100 WHERE id = {first + 2}", f"DELETE FROM people WHERE id = {first + 3}",
            f"INSERT INTO people (id, region, a) VALUES ({first + 50}, 'FR', 1)",
        )  # fmt: skip
    shop.do("UPDATE loose SET email = 'y' LIMIT 1")
    shop.run(config)
    shop.check(config, table)
    assert lake_rows(lake.current(f"{shop.db}.loose")) == Counter([(hashed("x"), 1), (hashed("y"), 1)])
    log = lake.changelog(table)
    moved = lake_rows(log, ["_before['customer']", "_before['a']", "customer", "a"], where="customer = 102")
    assert moved == Counter([(2, -2, 102, -2)])
    absent = lake_rows(log, ["array_to_string(_absent, ' ')"], where="_absent IS NOT NULL AND customer = 4")
    assert absent == Counter([("a num op doc",)])
    assert not {"mail", "id", "size", "_op"} & ({*names_in(lake.current(table))} | {*names_in(log)} - {"_op"})

    # What keeps every value is done in place: names of statements are the source's.
    shop.do(
        "ALTER TABLE people MODIFY size INT, DROP COLUMN _op",
        "INSERT INTO people (region, id, size) VALUES ('IT', 70, 1000000)",
    )  # fmt: skip
    shop.run(config)
    shop.do("ALTER TABLE people ADD _op INT DEFAULT 9", "INSERT INTO people (region, id) VALUES ('', 8)")
    shop.run(config)
    shop.check(config, table)

    # A RENAME at the source: rules match the names of the source.
    for rename in ("COLUMN size TO width", "COLUMN width TO size"):
        shop.do(f"ALTER TABLE people RENAME {rename}", "UPDATE people SET a = a + 1 WHERE id = 5")
        shop.run(config)
        assert ("width" in names_in(lake.current(table)), "num" in names_in(lake.current(table))) == (
            "TO width" in rename, "TO size" in rename
        )  # fmt: skip
    shop.check(config, table)
    assert "read again" not in caplog.text


@pytest.mark.long
def test_a_rename_at_the_source_that_the_rules_foresee(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The lake's columns stay, or get the other rule's name; columns with a rule for their values, too."""
    rules = """
        [columns."*.t"]
        id = { rename = "nr" }
        number = { rename = "nr" }
        a = { rename = "x", rule = "hash" }
        b = { rename = "y", rule = "hash" }
        "*mail" = "hash"
        old = "exclude"
    """
    table, config = f"{shop.db}.t", shop.config(rules)
    lake = shop.lake
    shop.do(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9), mail VARCHAR(9), n INT)",
        "INSERT INTO t VALUES (1, 'a', 'm', 1), (2, 'b', 'n', 2)",
    )
    shop.run(config)
    shop.do(
        "UPDATE t SET a = 'c' WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN id TO number, RENAME COLUMN a TO b",
        "INSERT INTO t (number, b, mail) VALUES (3, 'd', 'o')",
        "ALTER TABLE t RENAME COLUMN mail TO email, CHANGE n old INT",
        "UPDATE t SET email = 'p' WHERE number = 2",
    )
    shop.run(config)
    expected = Counter((nr, hashed(b), hashed(mail)) for nr, b, mail in [(1, "c", "m"), (2, "b", "p"), (3, "d", "o")])
    assert lake_rows(lake.current(table), ["nr", "y", "email"]) == expected
    assert not {"x", "mail", "n", "old"} & {*names_in(lake.current(table))}
    properties = DeltaTable(lake.current(table)).metadata().configuration
    assert source_names(properties) == {"nr": "number", "y": "b"}
    shop.do("DELETE FROM t WHERE number = 1", "INSERT INTO t VALUES (4, NULL, 'q', 9)")
    shop.run(config)
    result = verify(config, newest(lake), table)
    assert (result.equal, result.differences, result.state) == (3, 0, "live"), result
    assert "read again" not in caplog.text


@pytest.mark.long
def test_changed_rules_read_the_table_again(shop: Shop) -> None:
    """Also if the names and types of all columns stay: two columns exchange theirs."""
    table = f"{shop.db}.t"
    shop.do("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 2, 3)")
    lake = shop.lake
    for n, (rules, columns, expected) in enumerate(
        (
            ("", ["id", "a", "b"], (1, 2, 3)),
            ('[columns."*.*"]\na = { rename = "b" }\nb = { rename = "a" }', ["id", "a", "b"], (1, 3, 2)),
            ('[columns."*.*"]\na = { rename = "c" }', ["id", "c", "b"], (1, 2, 3)),
            ('[columns."*.*"]\nid = { rename = "a" }\na = { rename = "id" }', ["a", "id", "b"], (1, 2, 3)),
        )
    ):
        config = shop.config(rules)
        shop.do(f"INSERT INTO t VALUES ({n + 10}, 0, 0)")
        for _ in range(2):
            shop.run(config)
        assert lake_rows(lake.current(table), columns) >= Counter([expected]), rules
        assert lake_rows(lake.current(table)).total() == n + 2
        result = verify(config, newest_row(lake), table)
        assert (result.equal, result.differences) == (n + 2, 0), rules


def test_a_history_follows_statements_about_renamed_columns(shop: Shop) -> None:
    table, config = f"{shop.db}.people", shop.config(mode='"history"')
    lake = shop.lake
    shop.do(PEOPLE, "INSERT INTO people (region, id, a, size) VALUES ('DE', 1, 2, 3)")
    for statements in (
        [],
        ["UPDATE people SET a = 20 WHERE id = 1"],
        ["ALTER TABLE people DROP COLUMN _op", "UPDATE people SET a = 21"],
        ["ALTER TABLE people ADD COLUMN other INT", "UPDATE people SET other = 1"],
        ["ALTER TABLE people ADD COLUMN _op INT", "UPDATE people SET _op = 4, id = 9"],
    ):
        shop.do(*statements)
        shop.run(config)
        row = newest_row(lake)
        assert row.tables[table].state == "live", row.tables[table].reason
        result = verify(config, row, table)
        assert (result.equal, result.differences) == (1, 0), result
    versions = lake_rows(lake.current(table), ["customer", "b", "num", "op", "_is_current"])
    assert versions == Counter(
        [(1, 2, 3, None, False), (1, 20, 3, None, False), (1, 21, 3, None, False), (1, 21, 3, None, False),
         (9, 21, 3, 4, True)]
    )  # fmt: skip


@pytest.mark.parametrize("form", ["json", pytest.param("avro", marks=pytest.mark.long)])
def test_messages(
    form: str, mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path,
    kafka_broker: KafkaBroker, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    runs = KafkaRuns(spark, mysql_server, mysql_db, tmp_path, kafka_broker)
    runs.settings, registry = f'format = "{form}"\nschema_changes_topic = true\n', None
    if form == "avro":
        registry = request.getfixturevalue("schema_registry")
        assert isinstance(registry, RegistryServer)
        runs.settings += f'registry = "{registry.url}"\n'
    runs.more = '[columns."*.a"]\nid = { rename = "key" }\nV = { rename = "value", rule = { text = "-" } }\n'
    runs.table("a", 1)
    runs.run()
    runs.do("UPDATE a SET v = 5, id = 2", "ALTER TABLE a ADD COLUMN w INT", "UPDATE a SET w = 1")
    runs.run()
    if registry is None:
        messages = [(one.key, one.value) for one in runs.messages(runs.topic("a"))]
    else:
        read = AvroReader(registry).read
        raw = raw_messages(kafka_broker, runs.topic("a"))
        messages = [(key and read(key), value and read(value)) for key, value in raw]
    shown = [(key, value and (value["op"], value["before"], value["after"])) for key, value in messages]
    first, last = {"key": 1, "value": "-", "n": None}, {"key": 2, "value": "-", "n": None}
    assert shown == [
        ({"key": 1}, ("r", None, first)), ({"key": 1}, ("d", first, None)), ({"key": 1}, None),
        ({"key": 2}, ("c", None, last)), ({"key": 2}, ("u", {**last, "w": None}, {**last, "w": 1})),
    ]  # fmt: skip
    if registry is None:
        (altered,) = [one.value for one in runs.messages(runs.prefix) if "ALTER" in one.value["ddl"]]
        (change,) = altered["tableChanges"]
        assert [column["name"] for column in change["table"]["columns"]] == ["key", "value", "n", "w"]
        assert change["table"]["primaryKeyColumnNames"] == ["key"]


def test_chunks_are_rewound_under_new_names(mysql_server: MySQLServer, mysql_db: str) -> None:
    """Bounds, conditions and collations are MySQL's, with its names; a new name may be another column's there."""
    table = f"{mysql_db}.t"
    Database(mysql_server, mysql_db).do(
        "CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, n INT NOT NULL, mail TEXT, KEY (n))",
        *(f"INSERT INTO t VALUES ('{'KLMNOPqrst'[n]}', {n}, 'm{n}')" for n in range(10)),
    )  # fmt: skip
    rules = {table: {"k": {"rename": "code"}, "n": {"rename": "mail"}, "mail": {"rename": "k"}}}
    policies = Policies(columns=parse_rules(rules))
    before = [("code", "mail", "k"), *source_rows(mysql_server, table)]
    (executed,), (uuid,) = (
        mysql_server.query("SELECT @@gtid_executed")[0],
        mysql_server.query("SELECT @@server_uuid")[0],
    )
    Database(mysql_server, mysql_db).do(
        "UPDATE t SET n = n + 5, mail = 'new' WHERE n IN (1, 6)", "DELETE FROM t WHERE k = 'm'",
        "UPDATE t SET k = 'z' WHERE k = 'n'", "UPDATE t SET k = 'A' WHERE k = 'T'",
        "INSERT INTO t VALUES ('M', 3, 'x')",
    )  # fmt: skip

    def read(*chunks: ChunkSpec, **options: Any) -> Counter[tuple[Any, ...]]:
        settings = ConnectionSettings.from_url(mysql_server.url)
        task = ChunkRead(settings, chunks, GtidSet.parse(executed), uuid, epoch=1, planned_us=0)
        rows: Counter[tuple[Any, ...]] = Counter()
        for item in read_chunks(task, ChunkOptions(policies, **options)):
            assert isinstance(item, ImageBatch), item
            assert item.batch.schema.names[-3:] == list(before[0])
            rows.update(zip(*(item.batch.column(name).to_pylist() for name in before[0]), strict=True))
        return rows

    def expected(rows: Sequence[tuple[Any, ...]] = before[1:]) -> Counter[tuple[Any, ...]]:
        return Counter(rows)

    middle = ("_utf8mb4 X'6F'",)  # o
    halves = ChunkSpec(table, 0, None, middle), ChunkSpec(table, 1, middle, None)
    assert read(*halves) == expected()
    assert read(halves[0]) == expected([one for one in before[1:] if one[0].lower() <= "o"])
    condition = ChunkSpec(table, 0, None, None, filter="n > 4 AND mail LIKE 'M%'")
    assert read(condition) == expected([one for one in before[1:] if one[1] > 4])
    surrogate = ChunkSpec(table, 0, ("2",), ("7",), surrogate="n")
    assert read(surrogate) == expected([one for one in before[1:] if 2 < one[1] <= 7])
    keys = pa.table({"code": ["k", "P", "n"]})
    wanted = [one for one in before[1:] if one[0] in ("K", "P", "N")]
    assert read(ChunkSpec(table, 0, None, None), only=keys) >= expected(wanted)


def test_rows_and_keys_are_chosen_by_names_of_the_source(shop: Shop) -> None:
    shop.do(
        "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL)",
        "CREATE TABLE c (id INT PRIMARY KEY, n INT)", *(f"INSERT INTO t VALUES ({n}, {-n})" for n in range(6)),
        *(f"INSERT INTO c VALUES ({n}, {n})" for n in range(6)),
    )  # fmt: skip
    rules = f"""
        [columns."*.t"]
        a = {{ rename = "b" }}
        b = {{ rename = "a" }}
        [columns."*.c"]
        n = {{ rename = "id" }}
        id = {{ rename = "n" }}
        [tables."{shop.db}.t"]
        key = ["a"]
        rows = "a > 1"
        [tables."{shop.db}.c"]
        condition = "n >= 3 AND id < 5"
    """
    config = shop.config(rules)
    shop.run(config)
    shop.do("UPDATE t SET a = 10 WHERE a = 5", "UPDATE t SET a = 1 WHERE a = 4", "UPDATE t SET b = 0")
    shop.run(config)
    lake, table = shop.lake, f"{shop.db}.t"
    assert lake_rows(lake.current(table), ["b", "a"]) == Counter([(2, 0), (3, 0), (10, 0)])
    assert key_of(DeltaTable(lake.current(table)).metadata().configuration) == ("b",)
    assert verify(config, newest(lake), table).equal == 3
    assert lake_rows(lake.current(f"{shop.db}.c"), ["n", "id"]) == Counter([(3, 3), (4, 4)])


def test_the_typed_stream_and_table(
    mysql_server: MySQLServer, mysql_db: str, spark: SparkSession, tmp_path: Path
) -> None:
    Database(mysql_server, mysql_db).do("CREATE TABLE t (id INT PRIMARY KEY, _op INT)", "INSERT INTO t VALUES (1, 2)")
    options = {"url": mysql_server.url, "table": f"{mysql_db}.t"}
    with pytest.raises(Exception, match="column _op has a name that headgate uses itself"):
        spark.read.format("mysql-cdc").options(**options).load().collect()
    options["columns"] = f'{{"{mysql_db}.t": {{"_op": {{"rename": "kind"}}, "id": {{"rename": "nr"}}}}}}'
    read = spark.read.format("mysql-cdc").options(**options).load()
    assert [tuple(one) for one in read.select("nr", "kind").collect()] == [(1, 2)]
    frame = spark.readStream.format("mysql-cdc").options(**options).load()
    query = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = query.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    query.start().awaitTermination()
    Database(mysql_server, mysql_db).do("UPDATE t SET _op = 3")
    query.start().awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).select("_op", "nr", "kind")
    assert Counter(tuple(one) for one in rows.collect()) == Counter([("r", 1, 2), ("u", 1, 3)])


def test_refused_before_a_run_and_while_it_follows(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(9), x INT)")

    def text(rules: str) -> str:
        return shop.text(f'[columns."*.t"]\n{rules}')

    for rules, error, message in (
        ('mail = { rename = "X" }', UnsupportedError, "both mail and x would be named 'x'"),
        ('"m*" = "exclude"\nmail = { rename = "e" }', UnsupportedError, 'rename = "e", rule = "keep"'),
        ('mail = { rename = "_Seq" }', ConfigError, "a name that headgate uses itself"),
        ('id = { rename = "k", rule = "hash" }', UnsupportedError, "a column of the key"),
    ):
        with pytest.raises(error, match=message):
            check_source(parse_config(text(rules)))
    good = text('mail = { rename = "email", rule = "hash" }\nid = { rename = "nr" }')
    planned = "".join(plan(good, tmp_path).split())
    assert ("namedemail)" in planned, "int32(namednr)" in planned) == (True, True)
    shop.run(parse_config(good))
    shop.do("ALTER TABLE t ADD COLUMN email INT", "INSERT INTO t VALUES (1, 'a', 2, 3)")
    with pytest.raises(UnsupportedError, match="both mail and email would be named 'email'"):
        shop.run(parse_config(good))
    mended = text('mail = { rename = "email", rule = "hash" }\nid = { rename = "nr" }\nemail = { rename = "e2" }')
    shop.run(parse_config(mended))
    rows = lake_rows(shop.lake.current(f"{shop.db}.t"), ["nr", "email", "x", "e2"])
    assert rows == Counter([(1, hashed("a"), 2, 3)])

"""The same tables by other readers of Delta: the rows that Spark reads, or an error where they are unable."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from headgate.delta import write_checkpoint
from headgate.lake import DeltaPath, Lake
from headgate.sinks import BatchWriter
from headgate_testing import ObjectStore
from tests.fix_carrier import FakeBatch, FakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = FakeTable(
    "shop.kinds",
    (
        ("id", "bigint"), ("n", "int"), ("big", "decimal(20,0)"), ("price", "decimal(12,3)"), ("ratio", "double"),
        ("text", "string"), ("day", "date"), ("at", "timestamp_ntz"), ("data", "binary"), ("flag", "boolean"),
    ),
)  # fmt: skip
NAMES = FakeTable("shop.names", (("name", "string"), ("points", "int")), ("name",))
NOTES = FakeTable("shop.notes", (("note", "string"),), ())
BLANKS = FakeTable("shop.blanks", (("the id", "bigint"), ("unit price", "int")), ("the id",))
DOCS = FakeTable("shop.docs", (("id", "bigint"), ("doc", "variant")))


def kinds(number: int) -> tuple[Any, ...]:
    return (
        number, -number, Decimal(2**64 - number), Decimal(number) / 1000, number / 3, f"ü{number}",
        date(1000 + number, 1, 1), datetime(1900, 1, 1, 0, 0, number, 999_999), bytes([number, 0, 255]), number < 20,
    )  # fmt: skip


NOTHING = (None,) * (len(KINDS.columns) - 1)
FIRST = {
    KINDS: [kinds(n) for n in range(1, 40)] + [(40, *NOTHING)],
    NAMES: [(f"name {n}", n) for n in range(600)],
    NOTES: [("twice",), ("twice",), ("once",), (None,)],
    BLANKS: [(n, n * n) for n in range(10)],
    DOCS: [(1, '{"a": [1, null]}'), (2, "null")],
}
CHANGES = {
    KINDS: [("d", 10, *kinds(3)), ("b", 20, 40, *NOTHING), ("u", 20, *kinds(40)), ("c", 30, 41, *NOTHING)],
    NAMES: [
        *(("d", 10 * n, f"name {n}", n) for n in range(0, 600, 3)),
        *(("b", 9000, "name 1", 1), ("u", 9000, "other", 1)),
    ],
    NOTES: [("d", 10, "twice"), ("c", 20, "new")],
    BLANKS: [("d", 10, 4, 16), ("b", 20, 5, 25), ("u", 20, 5, -1)],
    DOCS: [("d", 10, 1, '{"a": [1, null]}'), ("c", 20, 4, '"text"')],
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A first read, and changes; a checkpoint of the log in between."""
    lake = Lake.at(tmp_path_factory.mktemp("readers") / "lake")
    writer = BatchWriter(spark, lake, "shop", ("current", "changelog"))
    first, changes, more = FakeBatch(1), FakeBatch(2), FakeBatch(3)
    for table, rows in FIRST.items():
        first.snapshot(table.name, 1, append=True, first=True, last=True).chunk(table, rows)
        changes.images(table, CHANGES[table])
    writer.write(first.frame(spark), 1)
    writer.write(changes.frame(spark), 2)
    for folder in (lake.current(KINDS.name), lake.changelog(KINDS.name)):
        write_checkpoint(folder)
    more.images(KINDS, [("d", 10, *kinds(7)), ("c", 20, *kinds(50))])
    writer.write(more.frame(spark), 3)
    writer.close()
    return lake


PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "read-tables.md").read_text("utf-8")


def on_page(language: str, lake: Lake) -> list[str]:
    """The examples of docs/how-to/read-tables.md in this language; only places and names are others."""
    names = {
        "/data/lake": lake.path,
        "shop/orders": "shop/kinds",
        "shop/items": "shop/kinds",
        "shop.orders": KINDS.name,
    }
    names |= {"shop.items": KINDS.name, "status": "flag", "order_id": "id", "version => 42": "version => 1"}
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    for there, here in names.items():
        blocks = [block.replace(there, here) for block in blocks]
    return blocks


def test_the_page_about_reading(lake: Lake, spark: SparkSession) -> None:
    pytest.importorskip("polars")
    rows = spark.read.format("delta").load(lake.current(KINDS.name)).count()
    newest, moment, _ = on_page("python", lake)  # tests/integration/cli/test_docs.py runs the third, in Spark
    *begin, last = newest.strip().splitlines()
    known: dict[str, Any] = {}
    exec("\n".join(begin), known)
    counts = pa.table(eval(last, known)).to_pydict()
    assert sum(counts["count(*)"]) == rows
    *begin, last = moment.strip().splitlines()
    exec("\n".join(begin), known)
    assert set(known["versions"]) >= {KINDS.name, NAMES.name}
    assert eval(last, known).height == rows
    with pytest.raises(Exception, match="deletionVectors"):
        DeltaTable(lake.current(KINDS.name)).to_pyarrow_table()


def test_the_page_about_reading_with_duckdb(lake: Lake) -> None:
    connection = duckdb_with_delta()
    newest, moment, _ = on_page("sql", lake)
    assert connection.execute(newest).fetchall()
    ledger, one = moment.split(";\n\n")
    states = {table: state for table, state, _ in connection.execute(ledger).fetchall()}
    assert states[KINDS.name] == "live"
    assert connection.execute(one).fetchone() is not None


def by_delta_rs(folder: str) -> pa.Table:
    return pa.table(QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t").read_all())


def by_polars(folder: str) -> pa.Table:
    polars = pytest.importorskip("polars")
    return polars.scan_delta(folder).collect().to_arrow()


@functools.cache
def duckdb_with_delta() -> Any:
    """A connection, whose extension takes longer to load than tables take to be read."""
    duckdb, package = pytest.importorskip("duckdb"), pytest.importorskip("duckdb_extension_delta")
    (extension,) = Path(package.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    return connection


def by_duckdb(folder: str) -> pa.Table:
    return duckdb_with_delta().execute("SELECT * FROM delta_scan(?)", [folder]).to_arrow_table()


READERS: dict[str, Callable[[str], pa.Table]] = {"delta-rs": by_delta_rs, "polars": by_polars, "duckdb": by_duckdb}
UNABLE = {("polars", BLANKS.name): "columnMapping|column mapping", ("duckdb", DOCS.name): "type VARIANT"}
"""Of docs/reference/compatibility.md; how they say so."""


def lines(table: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in map(plain, table.to_pylist()))


def plain(value: Any) -> Any:
    """Times without the name that a reader gives to UTC."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in sorted(value.items())}
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


@pytest.fixture(scope="module")
def by_spark(spark: SparkSession) -> Callable[[str], Counter[str]]:
    """The lines of a table, which Spark reads once: that takes seconds."""
    return functools.cache(lambda folder: lines(DeltaPath(spark, folder).read().toArrow()))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", FIRST, ids=lambda table: table.name)
def test_other_readers_read_what_spark_reads(
    by_spark: Callable[[str], Counter[str]], lake: Lake, table: FakeTable, reader: str
) -> None:
    for folder in (lake.current(table.name), *([] if table is DOCS else [lake.changelog(table.name)])):
        if (reader, table.name) in UNABLE:
            with pytest.raises(Exception, match=UNABLE[reader, table.name]):
                READERS[reader](folder)
        else:
            actual, expected = READERS[reader](folder), by_spark(folder)
            assert lines(actual) == expected
            assert actual.num_rows == expected.total() > 0


ODD_NAMES = [
    "we b.a b", "we b.$x", "we b._x", "É-.é", "É-.e\u0301", "表.表" + "示" * 63, "表.表" + "示" * 62 + "二", "shop.a/b",
    "shop.a%2Fb", "shop...", "Shop...", "shop.A", "shop.a", "shop.a\\b", "shop.{a}*[b]?", "shop.a=b", "shop.a+b&c#d",
    "shop.`'\"", "shop.a-b",
]  # fmt: skip


@pytest.mark.long
def test_every_reader_opens_tables_of_every_name(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "lake")
    writer = BatchWriter(spark, lake, "shop", ("current", "changelog"))
    tables = [FakeTable(name, (("id", "bigint"), ("text", "string"))) for name in ODD_NAMES]
    first, changes = FakeBatch(1), FakeBatch(2)
    for number, table in enumerate(tables):
        rows = [(n, f"{number} {n}") for n in range(3)]
        first.snapshot(table.name, 1, append=True, first=True, last=True).chunk(table, rows)
        changes.images(table, [("d", 10, 1, f"{number} 1"), ("c", 20, 7, table.name)])
    writer.write(first.frame(spark), 1)
    writer.write(changes.frame(spark), 2)
    folders, changelogs = ([folder(name) for name in ODD_NAMES] for folder in (lake.current, lake.changelog))
    assert len({folder.lower() for folder in folders}) == len(folders)
    expected = {name: [(0, f"{number} 0"), (2, f"{number} 2"), (7, name)] for number, name in enumerate(ODD_NAMES)}
    for name, folder, changelog in zip(ODD_NAMES, folders, changelogs, strict=True):
        for reader in READERS.values():
            rows = reader(folder).select(["id", "text"]).to_pylist()
            assert sorted((row["id"], row["text"]) for row in rows) == expected[name], name
            assert reader(changelog).num_rows == 5, name
    # Spark needs more than a second for a query, so one reads all tables. Changelogs have the same names elsewhere.
    rows_by_name: dict[str, list[tuple[int, str]]] = {name: [] for name in ODD_NAMES}
    for row in union(spark, folders).collect():
        rows_by_name[ODD_NAMES[row["number"]]].append((row["id"], row["text"]))
    assert {name: sorted(rows) for name, rows in rows_by_name.items()} == expected


def union(spark: SparkSession, folders: list[str]) -> DataFrame:
    """The rows of tables, each with its table's number."""
    frames = [
        DeltaPath(spark, folder).read().selectExpr(f"{number} AS number", "id", "text")
        for number, folder in enumerate(folders)
    ]
    return functools.reduce(lambda one, other: one.unionAll(other), frames)


@pytest.mark.parametrize("reader", ["delta-rs", "polars"])
def test_tables_of_every_name_on_s3(reader: str, object_store: ObjectStore) -> None:
    polars, options = pytest.importorskip("polars"), object_store.delta_rs_options
    lake = Lake.at(object_store.create_bucket(f"odd-names-{reader}").replace("s3a:", "s3:") + "/lake")
    for name in ODD_NAMES:
        write_deltalake(lake.current(name), pa.table({"text": [name]}), storage_options=options)
    for name in ODD_NAMES:
        if reader == "polars":
            rows = polars.scan_delta(lake.current(name), storage_options=options).collect().to_dicts()
        else:
            table = DeltaTable(lake.current(name), storage_options=options)
            rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()).to_pylist()
        assert rows == [{"text": name}]


def test_polars_cannot_read_a_variant_that_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Spark marks it in the file, which Delta does not ask for; ours are not marked."""
    pytest.importorskip("polars")
    spark.sql("SELECT parse_json('1') AS doc").write.format("delta").save(str(tmp_path / "t"))
    with pytest.raises(Exception, match="no variant"):
        by_polars(str(tmp_path / "t"))


def test_the_lake_has_what_readers_may_not_know(lake: Lake) -> None:
    """Deletion vectors, a checkpoint of the log, names of columns that files do not have."""
    kinds, names = Path(lake.current(KINDS.name)), Path(lake.current(NAMES.name))
    assert list(kinds.glob("deletion_vector_*.bin"))
    assert list(names.glob("deletion_vector_*.bin"))
    assert (kinds / "_delta_log" / "_last_checkpoint").exists()
    assert DeltaTable(lake.current(BLANKS.name)).metadata().configuration["delta.columnMapping.mode"] == "name"

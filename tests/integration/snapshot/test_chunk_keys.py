"""Every key type on a real server: chunks tile the table, and a key's place is decided as the SELECT decides it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headgate.catalog import TableDef, exact_patterns, load_tables
from headgate.columns import TableCodec
from headgate.errors import DecodeError
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.names import quote_name
from headgate.offsets import ChunkSpec
from headgate.policies import Policies
from headgate.snapshot import in_range
from headgate.snapshot.keys import key_columns, key_order, range_condition
from headgate.snapshot.ranges import key_conditions
from headgate_testing import MySQLServer
from tests.integration.changes import planned

KEYS: dict[str, tuple[str, str]] = {
    "int": ("a INT PRIMARY KEY", "(-5),(0),(3),(2147483647),(-2147483648)"),
    "unsigned": ("a BIGINT UNSIGNED PRIMARY KEY", "(0),(1),(9223372036854775808),(18446744073709551615)"),
    "small_unsigned": ("a BIGINT UNSIGNED PRIMARY KEY", "(0),(1),(10),(9),(9223372036854775807)"),
    "decimal": ("a DECIMAL(12,3) PRIMARY KEY", "(-1.5),(0),(0.001),(999999999.999),(2)"),
    "long_decimal": ("a DECIMAL(60,5) PRIMARY KEY", "(-1.5),(0),(1e50),(1e49),(2)"),
    "year": ("a YEAR PRIMARY KEY", "(0),(1901),(1970),(2155)"),
    "bit": ("a BIT(12) PRIMARY KEY", "(0),(1),(255),(256),(4095)"),
    "enum": ("a ENUM('z','m','a','b') PRIMARY KEY", "('z'),('m'),('a'),('b')"),
    "set": ("a SET('z','m','a') PRIMARY KEY", "(''),('z'),('m'),('z,m'),('a'),('z,a')"),
    "float": ("a FLOAT PRIMARY KEY", "(0.1),(-1e30),(1e20),(0),(3)"),
    "double": ("a DOUBLE PRIMARY KEY", "(0.1),(-1e300),(1e20),(0),(3)"),
    "date": ("a DATE PRIMARY KEY", "('0000-00-00'),('1000-01-01'),('2024-02-29'),('9999-12-31')"),
    "datetime": (
        "a DATETIME(6) PRIMARY KEY",
        "('0000-00-00'),('2024-02-29 01:02:03.000001'),('2024-02-29 01:02:03'),('2025-01-01')",
    ),
    "timestamp": (
        "a TIMESTAMP(3) PRIMARY KEY",
        "(0),('1970-01-01 00:00:01.001'),('2024-02-29 01:02:03'),('2038-01-19 03:14:07.999')",
    ),
    "time": ("a TIME(2) PRIMARY KEY", "('-838:59:59'),('-00:00:00.01'),('0'),('00:00:00.01'),('100:00:00')"),
    "binary": ("a BINARY(3) PRIMARY KEY", "(X'00'),(X'0001'),(X'FF'),(X'FFFFFF'),('a')"),
    "varbinary": ("a VARBINARY(9) PRIMARY KEY", "(''),(X'00'),(X'0001'),(X'FF'),('a'),('A')"),
    "blob": ("a BLOB, PRIMARY KEY (a(20))", "(''),(X'00'),(X'0001'),(X'FF'),('a'),('A')"),
    "latin1": (
        "a VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german1_ci PRIMARY KEY",
        "('a'),('b'),('ö'),('p'),('')",
    ),
    "nocase": ("a VARCHAR(40) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY", "('a'),('B'),('é'),('f'),('😀'),(''),('a b')"),
    "padded": ("a CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY", "('a'),('a b'),('é'),('f')"),
    "bin": ("a VARCHAR(9) COLLATE utf8mb4_0900_bin PRIMARY KEY", "('a'),('A'),('á'),('a '),('😀'),('')"),
    "utf16": ("a VARCHAR(9) CHARACTER SET utf16 PRIMARY KEY", "('a'),('b'),('😀'),('')"),
    "utf32": ("a VARCHAR(9) CHARACTER SET utf32 PRIMARY KEY", "('a'),('b'),('中'),('😀'),('')"),
    "gbk": ("a VARCHAR(9) CHARACTER SET gbk PRIMARY KEY", "('a'),('B'),('中'),('山水'),('々'),('')"),
    "gb18030": ("a VARCHAR(9) CHARACTER SET gb18030 PRIMARY KEY", "('a'),('B'),('中'),('😀'),('é'),('')"),
    "sjis": ("a VARCHAR(9) CHARACTER SET sjis PRIMARY KEY", "('a'),('B'),('中'),('表'),('ｱ'),('')"),
    "cp932": ("a VARCHAR(9) CHARACTER SET cp932 PRIMARY KEY", "('a'),('B'),('髙'),('①'),('ｱ'),('')"),
    "ujis": ("a CHAR(9) CHARACTER SET ujis PRIMARY KEY", "('a'),('B'),('中'),('ｱ'),('丂'),('')"),
    "big5": ("a VARCHAR(9) CHARACTER SET big5 PRIMARY KEY", "('a'),('B'),('中'),('功'),('許'),('')"),
    "euckr": ("a VARCHAR(9) CHARACTER SET euckr PRIMARY KEY", "('a'),('B'),('한국'),('똠'),('漢'),('')"),
    "text": ("a TEXT CHARACTER SET utf8mb4, PRIMARY KEY (a(50))", "('a'),('B'),('é'),('f'),('')"),
    "pair": ("a INT, b VARCHAR(9), PRIMARY KEY (b, a)", "(1,'a'),(2,'A'),(1,'á x'),(5,'b'),(1,'B'),(0,'')"),
    "mixed": (
        "a ENUM('z','m'), b VARBINARY(4), c TIME, d DOUBLE, PRIMARY KEY (a, b, c, d)",
        "('z','','1:00:00',0.1),('z',X'FF','-1:00:00',0.1),('z',X'FF','1:00:00',2),('m','','0',1),('m','','0',-1)",
    ),
    "typed": (
        "a TIME(3), b BIT(20), c VARCHAR(9), PRIMARY KEY (a, b, c)",
        "('-1:00:00.5',7,'a'),('-1:00:00.5',70000,'B'),('0',1,''),('100:00:00.001',0,'c'),('838:59:59',1,'é')",
    ),
    "only_unique": ("a INT, b VARCHAR(9) NOT NULL, UNIQUE (b)", "(1,'a'),(NULL,'b'),(3,'é'),(3,'')"),
}


@pytest.fixture(scope="module")
def tables(mysql_server: MySQLServer) -> Iterator[Connection]:
    """All tables in one database, and a connection to it."""
    with Connection.open(ConnectionSettings.from_url(mysql_server.url)) as connection:
        connection.query("DROP DATABASE IF EXISTS chunk_keys")
        connection.query("CREATE DATABASE chunk_keys")
        for name, (columns, rows) in KEYS.items():
            connection.query(f"CREATE TABLE chunk_keys.`{name}` ({columns})")
            connection.query(f"INSERT INTO chunk_keys.`{name}` VALUES {rows}")
            connection.query(f"ANALYZE TABLE chunk_keys.`{name}`")
        yield connection
        connection.query("DROP DATABASE chunk_keys")


def load(connection: Connection, name: str) -> TableDef:
    definitions = load_tables(connection.query, exact_patterns([f"chunk_keys.{name}"]))
    return next(table for table in definitions if table.name == name)


TEXT = Policies(temporals="text")
TYPED = Policies(zero_dates="text", time="microseconds", bit="binary", decimals="text", unsigned_bigint="bigint")


def select(
    connection: Connection, table: TableDef, chunk: ChunkSpec | str = "TRUE", policies: Policies = TEXT
) -> pa.Table:
    codec = TableCodec(table, policies)
    names = [quote_name(name) for name in table.key_names]
    condition = chunk if isinstance(chunk, str) else range_condition(names, chunk.lo, chunk.hi)
    sql = f"SELECT {codec.select_list} FROM {quote_name(table.db)}.{quote_name(table.name)} WHERE {condition}"
    schema = pa.schema(codec.fields)
    batches = [
        pa.RecordBatch.from_arrays(codec.from_text(block), schema=schema) for block in select_blocks(connection, sql)
    ]
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("rows", [1, 2])
def test_chunks_tile_the_table(tables: Connection, name: str, rows: int) -> None:
    table = load(tables, name)
    whole = select(tables, table).to_pylist()
    chunks = planned(tables.query, table, rows)
    orders = {chunk.order for chunk in chunks if (chunk.lo, chunk.hi) != (None, None)}
    assert orders <= {key_order(key_columns(table))}
    parts = [select(tables, table, chunk) for chunk in chunks]
    assert [part.num_rows for part in parts[1:]] == [rows] * (len(whole) // rows) + [len(whole) % rows] * (
        len(whole) % rows
    )
    read = [row for part in parts for row in part.to_pylist()]
    assert sorted(map(repr, read)) == sorted(map(repr, whole))


@pytest.mark.parametrize(
    ("name", "policies"),
    [(name, TEXT) for name in KEYS] + [(name, TYPED) for name in ("bit", "time", "date", "decimal", "small_unsigned")],
)
def test_a_key_is_placed_as_the_select_places_it(tables: Connection, name: str, policies: Policies) -> None:
    table = load(tables, name)
    whole = select(tables, table, policies=policies)
    keys = whole.select(list(table.key_names))
    rows = whole.to_pylist()
    for chunk in planned(tables.query, table, 2):
        inside = select(tables, table, chunk, policies).to_pylist()
        mask = in_range(tables.query, table, chunk)(keys)
        assert mask.tolist() == [row in inside for row in rows], chunk


@pytest.mark.parametrize(
    ("name", "policies"),
    [(name, TEXT) for name in KEYS] + [(name, TYPED) for name in ("bit", "time", "date", "decimal", "small_unsigned")],
)
def test_rows_are_found_by_their_keys(tables: Connection, name: str, policies: Policies) -> None:
    table = load(tables, name)
    whole = select(tables, table, policies=policies)
    for start in range(2):
        part = whole.slice(start).take(list(range(0, whole.num_rows - start, 2)))
        (condition,) = key_conditions(table, part.select(list(table.key_names)))
        rows = select(tables, table, condition, policies).to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, part.to_pylist()))


@pytest.mark.parametrize("name", sorted(KEYS.keys() - {"enum", "set", "blob", "text", "pair", "mixed", "typed"}))
def test_a_chunk_is_read_by_its_index(tables: Connection, name: str) -> None:
    """Not so for ENUM and SET, whose numbers MySQL compares row by row, nor for indexes on prefixes."""
    table = load(tables, name)
    assert "range scan" in explained(tables, table, planned(tables.query, table, 1)[2])


def test_a_chunk_of_a_composite_key_is_read_by_its_index(tables: Connection) -> None:
    tables.query("CREATE TABLE chunk_keys.grid (a INT, b VARCHAR(9), c BIGINT UNSIGNED, PRIMARY KEY (a, b, c))")
    numbers = "JSON_TABLE(CONCAT('[0', REPEAT(',0', 999), ']'), '$[*]' COLUMNS (i FOR ORDINALITY)) AS t"
    tables.query(f"INSERT INTO chunk_keys.grid SELECT i % 10, CHAR(97 + i % 7), i FROM {numbers}")
    tables.query("ANALYZE TABLE chunk_keys.grid")
    table = load(tables, "grid")
    chunks = planned(tables.query, table, 100)
    assert len(chunks) == 11
    assert [select(tables, table, chunk).num_rows for chunk in chunks] == [0, *[100] * 10]
    assert "range scan" in explained(tables, table, chunks[5])


def explained(connection: Connection, table: TableDef, chunk: ChunkSpec) -> str:
    condition = range_condition([quote_name(name) for name in table.key_names], chunk.lo, chunk.hi)
    return str(connection.query(f"EXPLAIN FORMAT=TREE SELECT * FROM {table.full_name} WHERE {condition}")[0][0])


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
def test_a_key_whose_empty_text_is_two_values(tables: Connection, kind: str) -> None:
    """A member '', and the 0 that a failed insert leaves: one of them is read, both are not."""
    place = f"chunk_keys.twice_{kind.lower()}"
    tables.query(f"CREATE TABLE {place} (a {kind}('x','') CHARACTER SET utf16 PRIMARY KEY)")
    with Connection.open(tables.settings) as separate:  # it is closed when rows are not read to their end
        separate.query("SET SESSION sql_mode = ''")
        separate.query(f"INSERT INTO {place} VALUES (1), (2)")
        table = load(separate, f"twice_{kind.lower()}")
        assert sorted(select(separate, table)["a"].to_pylist()) == ["", "x"]
        separate.query(f"INSERT INTO {place} VALUES ({'0' if kind == 'SET' else repr('none')})")
        with pytest.raises(DecodeError, match=rf"the value 0.*{place}.*column=a"):
            select(separate, table)

"""One value, two roads: the snapshot, the log and the expectation agree, for every type family and policy.

Each family is one table. Its rows are there before the snapshot's E; after E they are written again by INSERT … SELECT,
so that the log holds the very values that the snapshot read. Both are read as a pipeline reads them: by ``read_chunks``
and ``read_range``.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal as D  # noqa: N817
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pytest

from headgate.catalog import SINGLE_BYTE, TablePatterns
from headgate.cli.jsonl import block_lines, snapshot_lines
from headgate.errors import DecodeError
from headgate.gtid import GtidSet
from headgate.mysql import Connection, ConnectionSettings, gtid_executed
from headgate.offsets import ChunkSpec, Hint
from headgate.policies import DEFAULT, Policies
from headgate.replication import DecodeOptions, ImageBatch, LogBlock, LogRead, read_range
from headgate.snapshot import ChunkOptions, ChunkRead, read_chunks
from headgate_testing import MySQLServer

Values: TypeAlias = dict[str, list[Any]]
TEXT = Policies(temporals="text")


@dataclass
class Family:
    """Columns of a table and the SQL of its rows, NULL in all columns being one more."""

    ddl: str
    rows: Sequence[str]
    arrow: Values
    """Column → what it holds, row by row, as ``to_pylist`` gives it."""
    lines: Values = field(default_factory=dict)
    """Column → what JSON lines hold, where it does not follow from ``arrow`` (see :func:`as_json`)."""


class Policy(NamedTuple):
    """What a policy makes of the values of a table; without values, the column that it refuses, and why."""

    policies: Policies
    ddl: str
    rows: Sequence[str]
    arrow: Values | tuple[str, str]


class Stretch(NamedTuple):
    """A table, the moment E of its snapshot, and the log after it."""

    server: MySQLServer
    table: str
    before: GtidSet
    after: GtidSet
    hint: Hint


def write_twice(server: MySQLServer, table: str, columns: Sequence[str], rows: Sequence[str]) -> Stretch:
    """Insert rows, note E, insert them again by INSERT … SELECT."""
    names = ", ".join(f"`{name}`" for name in columns)
    with Connection.open(ConnectionSettings.from_url(server.url)) as connection:
        connection.query("SET sql_mode = 'ALLOW_INVALID_DATES'")
        connection.query(f"INSERT INTO {table} ({names}) VALUES ({'), ('.join(rows)})")
        before, hint = gtid_executed(connection), Hint(server.server_uuid, *connection.log_status())
        connection.query(f"INSERT INTO {table} ({names}) SELECT {names} FROM {table}")
        return Stretch(server, table, before, gtid_executed(connection), hint)


def written(server: MySQLServer, db: str, ddl: str, rows: Sequence[str]) -> Stretch:
    """A table of these columns and rows, and of one row of NULLs."""
    server.execute(f"DROP TABLE IF EXISTS {db}.t", f"CREATE TABLE {db}.t (id INT PRIMARY KEY AUTO_INCREMENT, {ddl})")
    columns = server.query(
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND COLUMN_NAME <> 'id'"
        " ORDER BY ORDINAL_POSITION",
        (db,),
    )
    nothing = ", ".join(["NULL"] * len(columns))
    return write_twice(server, f"{db}.t", [row[0] for row in columns], [*rows, nothing])


def snapshot(at: Stretch, policies: Policies = DEFAULT) -> list[ImageBatch]:
    settings, chunk = ConnectionSettings.from_url(at.server.url), ChunkSpec(at.table, 0, None, None)
    items = read_chunks(
        ChunkRead(settings, [chunk], at.before, at.server.server_uuid, epoch=1, planned_us=0, hint=at.hint),
        ChunkOptions(policies),
    )
    return [item for item in items if isinstance(item, ImageBatch)]


def logged(at: Stretch, policies: Policies = DEFAULT) -> list[LogBlock]:
    items = read_range(
        LogRead(
            ConnectionSettings.from_url(at.server.url),
            wanted=at.after - at.before,
            executed=at.after,
            server_uuid=at.server.server_uuid,
            hint=at.hint,
        ),
        DecodeOptions(TablePatterns([at.table]), epoch=1, policies=policies),
    )
    return [item for item in items if isinstance(item, LogBlock)]


def own_columns(images: list[ImageBatch]) -> pa.Table:
    """The table's columns but for its key, in key order."""
    whole = pa.concat_tables([pa.Table.from_batches([image.batch]) for image in images])
    key = images[0].table.key_names[0]
    columns = whole.select([name for name in whole.column_names if not name.startswith("_")]).sort_by(key)
    return columns.drop_columns([key]).combine_chunks()


def as_json(value: Any) -> Any:
    """An Arrow value as JSON lines print it, where that does not depend on the MySQL type."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_json(part) for part in value]
    return str(value) if isinstance(value, D) else value


def same(ours: pa.Table, theirs: pa.Table) -> list[str]:
    """The columns that differ, bit for bit."""
    return [
        name
        for name in ours.column_names
        if not ours[name].equals(theirs[name]) or bits(ours[name]) != bits(theirs[name])
    ]


def bits(column: pa.ChunkedArray) -> list[Any]:
    """Floats as their bits: -0.0 is not 0.0."""
    if not pa.types.is_floating(column.type):
        return []
    kind = pa.int32() if column.type.bit_width == 32 else pa.int64()
    return [chunk.view(kind).fill_null(0).to_pylist() for chunk in column.chunks]


def both(at: Stretch, policies: Policies = DEFAULT) -> pa.Table:
    """The rows, which are the same from a SELECT and from the log."""
    log_images = [image for block in logged(at, policies) for image in block.images]
    assert {op for image in log_images for op in image.batch.column("_op").to_pylist()} == {"c"}
    from_select, from_log = own_columns(snapshot(at, policies)), own_columns(log_images)
    from_select.validate(full=True)
    from_log.validate(full=True)
    assert from_select.schema.equals(from_log.schema)
    assert same(from_select, from_log) == []
    return from_log


def check(at: Stretch, family: Family) -> None:
    """Both roads give what the family says, in Arrow and in JSON lines."""
    table = both(at)
    for name, values in family.arrow.items():
        assert table[name].to_pylist() == [*values, None], name
    rows = [json.loads(line)["after"] for image in snapshot(at, TEXT) for line in snapshot_lines(image)]
    changes = [json.loads(line)["after"] for block in logged(at, TEXT) for line in block_lines(block)]
    for name, values in {**family.arrow, **family.lines}.items():
        expected = [*map(as_json, values), None]
        assert [row[name] for row in rows] == expected, f"{name} in a snapshot's lines"
        assert [row[name] for row in changes] == expected, f"{name} in the log's lines"


def moments(*texts: str, utc: bool = False) -> list[dt.datetime]:
    times = [dt.datetime.fromisoformat(text) for text in texts]
    return [one.replace(tzinfo=dt.UTC) for one in times] if utc else times


def single(value: float) -> float:
    return float(np.float32(value))


FLOATS = [0.1, 16777217.0, 1e-45, 3.4028234663852886e38, -1.17549435e-38, 123456.789, 8388607.5, -0.0]
BITS = [1, 0x5555555555555555, 2**64 - 1]
MEMBERS = ", ".join(f"'f{n}'" for n in range(64))
MANY = ", ".join(f"'m{n}'" for n in range(300))
ALL_MEMBERS = ",".join(f"f{n}" for n in range(64))
DOCUMENTS = {
    """'{"a": [1, 1.5, null, true, "x"], "": {}}'""": '{"": {}, "a": [1, 1.5, null, true, "x"]}',
    "JSON_ARRAY(18446744073709551615, -9223372036854775808, CAST(1.50 AS DECIMAL(65,30)))": (
        "[18446744073709551615, -9223372036854775808, 1.500000000000000000000000000000]"
    ),
    "JSON_ARRAY(DATE'2024-02-29', TIME'-838:59:59', TIMESTAMP'2024-02-29 01:02:03.4', x'00ff', b'1', 1e30)": (
        '["2024-02-29", "-838:59:59.000000", "2024-02-29 01:02:03.400000", "base64:type15:AP8=", "base64:type15:AQ==",'
        " 1e30]"
    ),
    "'null'": "null",
    "'true'": "true",
    "'\"s\"'": '"s"',
    "'18446744073709551615'": "18446744073709551615",
    "'[65535, -32769, 4294967296, -9223372036854775808, 18446744073709551616]'": (
        "[65535, -32769, 4294967296, -9223372036854775808, 1.8446744073709552e19]"
    ),
    "JSON_ARRAY(" + ", ".join(f"CAST({n} AS UNSIGNED)" for n in (255, 65535, 2**31, 2**32 - 1, 2**32)) + ")": (
        "[255, 65535, 2147483648, 4294967295, 4294967296]"
    ),
    '\'{"bb": 1, "a": [], "": {}, "a": 3}\'': '{"": {}, "a": 3, "bb": 1}',
    "JSON_ARRAY(CHAR(0, 8, 9, 10, 11, 12, 13, 31, 127, 34, 92, 47 USING utf8mb4), 'ü😀')": (
        '["\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\x7f\\"\\\\/", "ü😀"]'
    ),
    "JSON_ARRAY(1e30, 1e0, -1e-7, -0e0, 1e15, 1e14, 1e-15, 1e-16, 9007199254740992e0, -1.2345678901234567e-300)": (
        "[1e30, 1.0, -0.0000001, -0.0, 1e15, 100000000000000.0, 0.000000000000001, 1e-16, 9.007199254740992e15, "
        "-1.2345678901234568e-300]"
    ),
    "JSON_ARRAY(1.50, -0.00, CAST(0.001 AS DECIMAL(10,5)), CAST(-12345678901234567890.1 AS DECIMAL(40,12)))": (
        "[1.50, 0.00, 0.00100, -12345678901234567890.100000000000]"
    ),
    "JSON_ARRAY(TIMESTAMP'2015-01-15 23:24:25.12', TIME'-23:24:25.5', TIME'838:59:59')": (
        '["2015-01-15 23:24:25.120000", "-23:24:25.500000", "838:59:59.000000"]'
    ),
    "JSON_ARRAY(b'101', CAST(REPEAT('a', 60) AS BINARY))": (
        '["base64:type15:BQ==", "base64:type15:' + "YWFh" * 19 + "\\n" + "YWFh" + '"]'
    ),
}


def point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


def line(*points: tuple[float, float]) -> bytes:
    return struct.pack("<BII", 1, 2, len(points)) + b"".join(struct.pack("<dd", *one) for one in points)


def polygon(*points: tuple[float, float]) -> bytes:
    return struct.pack("<BIII", 1, 3, 1, len(points)) + b"".join(struct.pack("<dd", *one) for one in points)


def several(kind: int, *parts: bytes) -> bytes:
    return struct.pack("<BII", 1, kind, len(parts)) + b"".join(parts)


RING = ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0))
SHAPES = {
    "POINT(1.5 -2.5)": point(1.5, -2.5),
    "LINESTRING(0 0, 1 2)": line((0, 0), (1, 2)),
    "POLYGON((0 0, 0 1, 1 1, 0 0))": polygon(*RING),
    "MULTIPOINT((0 0), (1 2))": several(4, point(0, 0), point(1, 2)),
    "MULTILINESTRING((0 0, 1 2), (3 4, 5 6))": several(5, line((0, 0), (1, 2)), line((3, 4), (5, 6))),
    "MULTIPOLYGON(((0 0, 0 1, 1 1, 0 0)))": several(6, polygon(*RING)),
    "GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 2))": several(7, point(1, 2), line((0, 0), (1, 2))),
    "GEOMETRYCOLLECTION EMPTY": several(7),
}
SHAPE_COLUMNS = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection")

FAMILIES = {
    "integers": Family(
        ", ".join(
            f"{kind}_{'u' if unsigned else 's'} {kind}{' unsigned' * unsigned}"
            for kind in ("tinyint", "smallint", "mediumint", "int", "bigint")
            for unsigned in (False, True)
        ),
        [
            "-128, 0, -32768, 0, -8388608, 0, -2147483648, 0, -9223372036854775808, 0",
            f"127, 255, 32767, 65535, 8388607, 16777215, {2**31 - 1}, {2**32 - 1}, {2**63 - 1}, {2**64 - 1}",
            "0, 1, 0, 1, 0, 1, 0, 1, 0, 9223372036854775808",
        ],
        {
            "tinyint_s": [-128, 127, 0], "tinyint_u": [0, 255, 1],
            "smallint_s": [-(2**15), 2**15 - 1, 0], "smallint_u": [0, 2**16 - 1, 1],
            "mediumint_s": [-(2**23), 2**23 - 1, 0], "mediumint_u": [0, 2**24 - 1, 1],
            "int_s": [-(2**31), 2**31 - 1, 0], "int_u": [0, 2**32 - 1, 1],
            "bigint_s": [-(2**63), 2**63 - 1, 0], "bigint_u": [D(0), D(2**64 - 1), D(2**63)],
        },
        {"bigint_u": [0, 2**64 - 1, 2**63]},
    ),
    "decimals": Family(
        "d1 decimal(1), d18 decimal(18,18), d20 decimal(20,0), d38 decimal(38,30), d39 decimal(39,1),"
        " d65 decimal(65,30), w65 decimal(65,0)",
        [
            f"9, 0.{'9' * 18}, {'9' * 20}, {'9' * 8}.{'9' * 30}, {'9' * 38}.9, {'9' * 35}.{'9' * 30}, {'9' * 65}",
            "-9, "
            + ", ".join(f"-{'9' * n}.{'9' * m}" for n, m in ((0, 18), (20, 0), (8, 30), (38, 1), (35, 30), (65, 0))),
            f"0, 0.{'0' * 17}1, 0, -0.{'0' * 29}1, 0, 0.{'0' * 29}1, 1",
        ],
        {
            "d1": [D(9), D(-9), D(0)], "d18": [D("0." + "9" * 18), D("-0." + "9" * 18), D("0." + "0" * 17 + "1")],
            "d20": [D("9" * 20), D("-" + "9" * 20), D(0)],
            "d38": [D("9" * 8 + "." + "9" * 30), D("-" + "9" * 8 + "." + "9" * 30), D("-0." + "0" * 29 + "1")],
            "d39": ["9" * 38 + ".9", "-" + "9" * 38 + ".9", "0.0"],
            "d65": ["9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30, "0." + "0" * 29 + "1"],
            "w65": ["9" * 65, "-" + "9" * 65, "1"],
        },
        {
            "d18": ["0." + "9" * 18, "-0." + "9" * 18, "0." + "0" * 17 + "1"],
            "d38": ["9" * 8 + "." + "9" * 30, "-" + "9" * 8 + "." + "9" * 30, "-0." + "0" * 29 + "1"],
        },
    ),
    "floats": Family(
        "f float, d double",
        [f"{value!r}, {value!r}" for value in FLOATS],
        {"f": [single(value) for value in FLOATS], "d": FLOATS},
        {"f": [float(str(np.float32(value))) for value in FLOATS]},
    ),
    "bits": Family(
        ", ".join(f"b{width} bit({width})" for width in range(1, 65)),
        [", ".join(str(bits % 2**width) for width in range(1, 65)) for bits in BITS],
        {f"b{width}": [bits % 2**width for bits in BITS] for width in range(1, 64)}
        | {"b64": [D(bits) for bits in BITS]},
        {"b64": BITS},
    ),
    "years": Family("y year", ["0", "1901", "2155", "'2000'"], {"y": [0, 1901, 2155, 2000]}),
    "dates": Family(
        "d date, t0 datetime, t6 datetime(6), s0 timestamp null, s6 timestamp(6) null",
        [
            (
                "'1000-01-01', '1000-01-01', '0001-01-01 00:00:00.000001', '1970-01-01 00:00:01',"
                " '1970-01-01 00:00:01.000001'"
            ),
            (
                "'9999-12-31', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07',"
                " '2038-01-19 03:14:07.999999'"
            ),
        ],
        {
            "d": [dt.date(1000, 1, 1), dt.date(9999, 12, 31)],
            "t0": moments("1000-01-01", "9999-12-31 23:59:59"),
            "t6": moments("0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"),
            "s0": moments("1970-01-01 00:00:01", "2038-01-19 03:14:07", utc=True),
            "s6": moments("1970-01-01 00:00:01.000001", "2038-01-19 03:14:07.999999", utc=True),
        },
        {
            "d": ["1000-01-01", "9999-12-31"], "t0": ["1000-01-01 00:00:00", "9999-12-31 23:59:59"],
            "t6": ["0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"],
            "s0": ["1970-01-01 00:00:01", "2038-01-19 03:14:07"],
            "s6": ["1970-01-01 00:00:01.000001", "2038-01-19 03:14:07.999999"],
        },
    ),
    "times": Family(
        ", ".join(f"t{digits} time({digits})" for digits in range(7)),
        [
            ", ".join("'-838:59:59'" for _ in range(7)),
            ", ".join("'838:59:59'" for _ in range(7)),
            ", ".join(f"'-00:00:00.{'9' * digits}'" for digits in range(7)),
        ],
        {
            f"t{digits}": [
                "-838:59:59" + "." * bool(digits) + "0" * digits, "838:59:59" + "." * bool(digits) + "0" * digits,
                f"-00:00:00.{'9' * digits}" if digits else "00:00:00",
            ]
            for digits in range(7)
        },
    ),
    "texts": Family(
        "c char(255) character set utf8mb4, g varchar(20) character set gb18030, s varchar(20) character set sjis,"
        " l varchar(20) character set latin1, x longtext character set utf16",
        [
            "'', '', '', '', ''", "'a  ', '😀中', '表ｱ', '€é\x81 ', REPEAT('😀', 70000)",
            "REPEAT('é', 255), ' ', ' ', ' ', ' '",
        ],
        {
            "c": ["", "a", "é" * 255], "g": ["", "😀中", " "], "s": ["", "表ｱ", " "], "l": ["", "€é\x81 ", " "],
            "x": ["", "😀" * 70000, " "],
        },
    ),
    "bytes": Family(
        "b binary(4), w binary(255), v varbinary(9), x tinyblob, y mediumblob",
        [
            "'', '', '', '', ''", "x'00', x'ff00', x'ff00', REPEAT(x'ff', 255), REPEAT('z', 1000000)",
            "'abcd', '', ' ', ' ', x'00'",
        ],
        {
            "b": [bytes(4), bytes(4), b"abcd"], "w": [bytes(255), b"\xff" + bytes(254), bytes(255)],
            "v": [b"", b"\xff\0", b" "], "x": [b"", b"\xff" * 255, b" "], "y": [b"", b"z" * 1_000_000, b"\0"],
        },
    ),
    "members": Family(
        f"e enum('a,b', 'it''s', '\"', '\\\\', 'ü') , s set('x', 'it''s', '\"'), g enum('中', '表') character set sjis,"
        f" s64 set({MEMBERS}), l enum('ł', '') character set latin2, u set('ü', 'x') character set utf16,"
        f" many enum({MANY})",
        [
            "'a,b', 'x,\"', '表', 18446744073709551615, 'ł', 'x,ü', 'm0'", "'nonsense', '', '中', 0, '', '', 'm299'",
            "'\\\\', \"it's\", '表', 1 << 63, 'ł', 'ü', 'm255'", "3, 7, 2, 5, 'none', 2, 256",
        ],
        {
            "e": ["a,b", "", "\\", '"'], "s": ['x,"', "", "it's", 'x,it\'s,"'], "g": ["表", "中", "表", "表"],
            "s64": [ALL_MEMBERS, "", "f63", "f0,f2"], "l": ["ł", "", "ł", ""], "u": ["ü,x", "", "ü", "x"],
            "many": ["m0", "m299", "m255", "m255"],
        },
    ),
    "json": Family("j json", list(DOCUMENTS), {"j": list(DOCUMENTS.values())}),
    "shapes": Family(
        ", ".join(["g geometry", *(f"{name[:6]}{index} {name}" for index, name in enumerate(SHAPE_COLUMNS))]),
        [
            ", ".join(
                f"ST_GeomFromText('{text}', {srid})"
                for text in (list(SHAPES)[srid % 3], *list(SHAPES)[:6], list(SHAPES)[6 + (srid == 0)])
            )
            for srid in (0, 3857)
        ],
        {
            "g": [
                {"srid": srid, "wkb": list(SHAPES.values())[srid % 3]} for srid in (0, 3857)
            ],
            **{
                f"{name[:6]}{index}": [
                    {"srid": srid, "wkb": list(SHAPES.values())[index if index < 6 else 6 + (srid == 0)]}
                    for srid in (0, 3857)
                ]
                for index, name in enumerate(SHAPE_COLUMNS)
            },
        },
    ),
    "axes": Family(
        "g geometry", ["ST_GeomFromText('POINT(-2.5 1.5)', 4326)"], {"g": [{"srid": 4326, "wkb": point(1.5, -2.5)}]}
    ),
    "zerofill": Family("z int(9) zerofill", ["42", "0"], {"z": [42, 0]}),
    "vectors": Family(
        "v vector(3), w vector(16383)",
        [
            "STRING_TO_VECTOR('[1, -2.5, 3e30]'), NULL",
            f"STRING_TO_VECTOR('[0]'), STRING_TO_VECTOR('[{','.join(['1'] * 16383)}]')",
        ],
        {"v": [[1.0, -2.5, single(3e30)], [0.0]], "w": [None, [1.0] * 16383]},
        {"v": [[1.0, -2.5, 3e30], [0.0]]},
    ),
}  # fmt: skip


VECTORS = pytest.mark.mysql(">= 9.0", "VECTOR")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=VECTORS) if name == "vectors" else name for name in FAMILIES]
)
def test_boundary_values(mysql_server: MySQLServer, mysql_db: str, name: str) -> None:
    family = FAMILIES[name]
    check(written(mysql_server, mysql_db, family.ddl, family.rows), family)


ZERO_DDL = "a date, b datetime, b3 datetime(3), c timestamp null, c6 timestamp(6) null"
ZERO_ROWS = [
    "'0000-00-00', '0000-00-00', '2023-00-01 01:02:03.4', '0000-00-00', '0000-00-00'",
    "'2023-01-00', '2023-02-00 01:02:03', '2023-02-01', '2023-02-01', '2023-02-01'",
]
ZERO_TEXTS: Values = {
    "a": ["0000-00-00", "2023-01-00"], "b": ["0000-00-00 00:00:00", "2023-02-00 01:02:03"],
    "b3": ["2023-00-01 01:02:03.400", "2023-02-01 00:00:00.000"],
    "c": ["0000-00-00 00:00:00", "2023-02-01 00:00:00"],
    "c6": ["0000-00-00 00:00:00.000000", "2023-02-01 00:00:00.000000"],
}  # fmt: skip
DECIMAL_DDL = "a decimal(10,3), z decimal(6,2) zerofill, w decimal(65,30), n decimal(30,30)"
DECIMAL_ROWS = ["-0.1, 12.5, -12345678901234567890123456789012345.1, -1e-30", "9999999.999, 0, 0.1, 0.3"]
DECIMAL_TEXTS: Values = {
    "a": ["-0.100", "9999999.999"], "z": ["12.50", "0.00"],
    "w": ["-12345678901234567890123456789012345.1" + "0" * 29, "0.1" + "0" * 29],
    "n": ["-0." + "0" * 29 + "1", "0.3" + "0" * 29],
}  # fmt: skip
DAYS = ["'2023-02-30'", "'2023-02-28'"]
CHOICES = {
    "zero dates as null": Policy(
        Policies(zero_dates="null"), ZERO_DDL, ZERO_ROWS,
        {
            "a": [None, None], "b": [None, None], "b3": [None, dt.datetime(2023, 2, 1)],
            "c": [None, *moments("2023-02-01", utc=True)], "c6": [None, *moments("2023-02-01", utc=True)],
        },
    ),
    "zero dates as text": Policy(Policies(zero_dates="text"), ZERO_DDL, ZERO_ROWS, ZERO_TEXTS),
    "all dates as text": Policy(TEXT, ZERO_DDL, ZERO_ROWS, ZERO_TEXTS),
    "zero dates refused": Policy(DEFAULT, ZERO_DDL, ZERO_ROWS, ("a", "zero_dates")),
    "impossible days as null": Policy(Policies(zero_dates="null"), "a date", DAYS, {"a": [None, dt.date(2023, 2, 28)]}),
    "impossible days as text": Policy(TEXT, "a date", DAYS, {"a": ["2023-02-30", "2023-02-28"]}),
    "times as microseconds": Policy(
        Policies(time="microseconds"), "t0 time, t1 time(1), t3 time(3), t6 time(6)",
        [
            "'-838:59:59', '-00:00:00.1', '838:59:58.999', '-00:59:59.065536'",
            "'838:59:59', '-838:59:58.9', '-01:00:00', '838:59:58.999999'",
            "'00:00:01', '00:00:00', '-00:00:00.001', '-00:00:00.000001'",
        ],
        {
            "t0": [-3_020_399_000_000, 3_020_399_000_000, 1_000_000], "t1": [-100_000, -3_020_398_900_000, 0],
            "t3": [3_020_398_999_000, -3_600_000_000, -1000], "t6": [-3_599_065_536, 3_020_398_999_999, -1],
        },
    ),
    "bits as bytes": Policy(
        Policies(bit="binary"), "b1 bit(1), b9 bit(9), b64 bit(64)", ["1, 257, 18446744073709551615", "0, 1, 1"],
        {"b1": [b"\x01", b"\0"], "b9": [b"\x01\x01", b"\0\x01"], "b64": [b"\xff" * 8, bytes(7) + b"\x01"]},
    ),
    "decimals as text": Policy(Policies(decimals="text"), DECIMAL_DDL, DECIMAL_ROWS, DECIMAL_TEXTS),
    "decimals as double": Policy(
        Policies(decimals="double"), DECIMAL_DDL, DECIMAL_ROWS,
        {name: [float(one) for one in values] for name, values in DECIMAL_TEXTS.items()},
    ),
    "unsigned as bigint": Policy(
        Policies(unsigned_bigint="bigint"), "a bigint unsigned, z bigint(20) zerofill",
        ["9223372036854775807, 42", "0, 0"], {"a": [2**63 - 1, 0], "z": [42, 0]},
    ),
    "unsigned that no bigint holds": Policy(
        Policies(unsigned_bigint="bigint"), "a bigint unsigned", ["9223372036854775808"],
        ("a", "value 9223372036854775808 .*unsigned_bigint"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_policies(mysql_server: MySQLServer, mysql_db: str, name: str) -> None:
    policies, ddl, rows, arrow = CHOICES[name]
    at = written(mysql_server, mysql_db, ddl, rows)
    if isinstance(arrow, dict):
        table = both(at, policies)
        assert {one: table[one].to_pylist() for one in arrow} == {one: [*values, None] for one, values in arrow.items()}
        return
    for read in (snapshot, logged):
        with pytest.raises(DecodeError, match=arrow[1]) as caught:
            read(at, policies)
        assert caught.value.column == arrow[0]


def test_year_zero(mysql_server: MySQLServer, mysql_db: str) -> None:
    table = both(written(mysql_server, mysql_db, "d date, e datetime", ["'0000-03-01', '0000-01-01'"]))
    assert table["d"].cast(pa.int32()).to_pylist() == [-719468, None]
    assert table["e"].cast(pa.int64()).to_pylist() == [-719528 * 86_400_000_000, None]


def test_doubles_with_decimals(mysql_server: MySQLServer, mysql_db: str) -> None:
    """The server stores a rounded number whose digits it does not print."""
    rows = [f"{cents / 100}, {cents / 100}" for cents in (*range(1, 2000, 7), 157)]
    table = both(written(mysql_server, mysql_db, "d double(10,2), f float(10,2)", rows))
    assert table["d"].to_pylist()[-2] == 1.5699999999999998


WIDE_CHARSETS = ("utf16", "utf16le", "utf32", "ucs2")
LONG_TEXTS = ["", "a", "  lead", "trail  ", "0123456789abcdef" * 12, "ünïcödé", "日本語", "\0\x01\x7f", "ĠĠ"]


@pytest.mark.parametrize("charset", ["utf8mb4", "utf16", "utf16le", "utf32", "utf8mb3", "ucs2"])
def test_unicode_text(mysql_server: MySQLServer, mysql_db: str, charset: str) -> None:
    texts = [*LONG_TEXTS, *(["😀 mixed é 日"] if charset not in ("utf8mb3", "ucs2") else [])]
    rows = [", ".join([f"_utf8mb4 X'{text.encode().hex()}'"] * 3) for text in texts]
    ddl = f"c char(200) character set {charset}, v varchar(400) character set {charset}, x text character set {charset}"
    table = both(written(mysql_server, mysql_db, ddl, rows))
    assert table["c"].to_pylist() == [*(text.rstrip(" ") for text in texts), None]
    assert table["v"].to_pylist() == table["x"].to_pylist() == [*texts, None]


def test_single_byte_character_sets_convert_as_mysql_converts(mysql_server: MySQLServer, mysql_db: str) -> None:
    """Every set, all 256 bytes, each in a value of its own, against CONVERT(… USING utf8mb4)."""
    names = sorted(SINGLE_BYTE)
    ddl = ", ".join(f"v_{name} varchar(3) character set {name}" for name in names)
    rows = [", ".join([f"0x{byte:02x}"] * len(names)) for byte in range(256)]
    table = both(written(mysql_server, mysql_db, ddl, rows))
    converted = ", ".join(f"CONVERT(v_{name} USING utf8mb4)" for name in names)
    expected = mysql_server.query(f"SELECT {converted} FROM {mysql_db}.t ORDER BY id LIMIT 257")
    for index, name in enumerate(names):
        assert table[f"v_{name}"].to_pylist() == [row[index] for row in expected], name


def random_json(random_: random.Random, depth: int) -> str:
    kind = random_.randrange(8 if depth else 6)
    if kind == 0:
        return random_.choice(["null", "true", "false"])
    if kind == 1:
        return str(random_.randrange(-(2 ** random_.randrange(1, 63)), 2 ** random_.randrange(1, 64)))
    if kind in (2, 3):
        return repr(round(random_.uniform(-1, 1) * 10.0 ** random_.randrange(-25, 25), random_.randrange(18)))
    if kind in (4, 5):
        return '"' + "".join(random_.choice("aé日😀 ") for _ in range(random_.randrange(200))) + '"'
    parts = [random_json(random_, depth - 1) for _ in range(random_.randrange(6))]
    if kind == 6:
        return "[" + ",".join(parts) + "]"
    return "{" + ",".join(f'"k{random_.randrange(20)}é{n}": {part}' for n, part in enumerate(parts)) + "}"


def test_json_documents_at_random_large_and_deep(mysql_server: MySQLServer, mysql_db: str) -> None:
    random_ = random.Random(11)
    documents = [random_json(random_, 5) for _ in range(400)]
    documents += ["[" + ",".join(map(str, range(-40000, 40000))) + "]"]
    documents += ["{" + ",".join(f'"key number {n}": {n}.5' for n in range(9000)) + "}"]
    documents += ["[" * 100 + "]" * 100, '{"a":' * 99 + "[]" + "}" * 99, '["' + "x" * 70000 + '", 1, 70000, 1.5]']
    table = both(written(mysql_server, mysql_db, "j json", [f"'{document}'" for document in documents]))
    assert table["j"].null_count == 1


def test_json_doubles_print_as_mysql_prints_them(mysql_server: MySQLServer, mysql_db: str) -> None:
    random_ = random.Random(13)
    doubles = [random_.uniform(-1, 1) * 10.0 ** random_.randrange(-18, 18) for _ in range(4000)]
    patterns = (struct.unpack("<d", random_.randbytes(8))[0] for _ in range(4000))
    doubles += [double for double in patterns if abs(double) < 1e308]
    both(written(mysql_server, mysql_db, "j json", [f"JSON_ARRAY({double!r})" for double in doubles]))


def test_json_of_text_in_wide_character_sets(mysql_server: MySQLServer, mysql_db: str) -> None:
    """MySQL 9.7 keeps such text as an opaque value of its stored bytes, and prints these as a string."""
    values = [f"CONVERT({text} USING {charset})" for charset in WIDE_CHARSETS for text in ("'ab'", "'q\"'", "'☃'")]
    rows = [f"JSON_OBJECT('k', {value})" for value in values]
    table = both(written(mysql_server, mysql_db, "j json", rows))
    expected = mysql_server.query(f"SELECT j FROM {mysql_db}.t ORDER BY id LIMIT {len(rows) + 1}")
    assert table["j"].to_pylist() == [row[0] for row in expected]


def test_generated_and_invisible_columns(mysql_server: MySQLServer, mysql_db: str) -> None:
    table = f"{mysql_db}.t"
    mysql_server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, a INT, v INT AS (a + 1) VIRTUAL,"
        " s VARCHAR(9) AS (CONCAT('s', a)) STORED, h DATE INVISIBLE, x JSON AS (JSON_ARRAY(a)) INVISIBLE,"
        " INDEX ((a + 5)))"
    )
    stretch = write_twice(mysql_server, table, ["a", "h"], ["1, '2024-01-01'", "NULL, NULL"])
    expected: Values = {"a": [1], "v": [2], "s": ["s1"], "h": [dt.date(2024, 1, 1)]}
    check(stretch, Family("", [], expected, {"h": ["2024-01-01"]}))
    images = [image for block in logged(stretch) for image in block.images]
    for columns in (own_columns(snapshot(stretch)), own_columns(images)):
        assert columns["x"].to_pylist() == ["[1]", "[null]"]


@pytest.mark.mysql(">= 8.0.30", "generated invisible primary keys")
def test_generated_invisible_primary_key(mysql_server: MySQLServer, mysql_db: str) -> None:
    table = f"{mysql_db}.t"
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = ON")
        cursor.execute(f"CREATE TABLE {table} (a INT)")
    stretch = write_twice(mysql_server, table, ["a"], ["7", "NULL"])
    check(stretch, Family("", [], {"a": [7]}))
    (image,) = snapshot(stretch)
    assert image.table.key_names == ("my_row_id",)
    assert sorted(image.batch.column("my_row_id").to_pylist()) == [D(1), D(2)]


def test_a_blob_near_the_packet_limit(mysql_server: MySQLServer, mysql_db: str) -> None:
    """A row of all but 1 KB of max_allowed_packet: several packets of the protocol, one event of the log."""
    table = f"{mysql_db}.t"
    limit = int(mysql_server.query("SELECT @@global.max_allowed_packet")[0][0])
    size = min(limit, 64 << 20) - 1024
    mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")
    stretch = write_twice(mysql_server, table, ["b"], [f"REPEAT(x'00ff', {size // 2})"])
    images = [image for block in logged(stretch) for image in block.images]
    expected = b"\0\xff" * (size // 2)
    for columns in (own_columns(snapshot(stretch)), own_columns(images)):
        (value,) = columns["b"].to_pylist()
        assert value == expected

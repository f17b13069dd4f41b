"""One value, two roads: what a SELECT gives and what the log gives must be the same Arrow value, and the right one.

Each case is a table of one type family with boundary values. The rows are inserted, read back from the log (by the
plain reader of ``logdump``, not by the kernels under ``headgate.binlog``) and selected through ``headgate.mysql``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import struct
from collections.abc import Sequence
from decimal import Decimal as D  # noqa: N817
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.catalog import SINGLE_BYTE, TablePatterns, load_tables, table_from_table_map
from headgate.columns import TableCodec
from headgate.errors import DecodeError
from headgate.mysql import Connection, ConnectionSettings, select_blocks
from headgate.policies import Policies
from headgate_testing import MySQLServer
from tests.integration.logdump import log_end, read_table


class Case:
    """A database to run cases in."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db = server, db

    def roads(self, ddl: str, statements: Sequence[str], **options: Any) -> tuple[dict[str, pa.Array], ...]:
        """``(from the log, from text)``, by column. ``{t}`` in a statement is the table."""
        name = f"{self.db}.t"
        with contextlib.closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY AUTO_INCREMENT, {ddl})")
            start = log_end(connection)
            for statement in statements:
                cursor.execute(statement.replace("{t}", name))
        with contextlib.closing(self.server.connect()) as connection:
            table_map, log = read_table(connection, start, name)
        table = table_from_table_map(table_map)
        assert load_tables(self.server.query, TablePatterns([f"{self.db}.t"])) == [table]
        codec = TableCodec(table, Policies(**options))
        names = [field.name for field in codec.fields]
        from_log = codec.from_log(log)
        with Connection.open(ConnectionSettings.from_url(self.server.url)) as reader:
            sql = f"SELECT {codec.select_list} FROM {name} ORDER BY id"
            blocks = [codec.from_text(block) for block in select_blocks(reader, sql)]
        from_text = [pa.concat_arrays(list(pieces)) for pieces in zip(*blocks, strict=True)]
        for field, ours, theirs in zip(codec.fields, from_log, from_text, strict=True):
            assert ours.type == theirs.type == field.type
            ours.validate(full=True)
            theirs.validate(full=True)
        return dict(zip(names, from_log, strict=True)), dict(zip(names, from_text, strict=True))

    def check(self, ddl: str, statements: Sequence[str], expected: dict[str, list[Any]], **options: Any) -> None:
        """Both roads give the expected values (``to_pylist``)."""
        from_log, from_text = self.roads(ddl, statements, **options)
        for name, values in expected.items():
            assert from_log[name].to_pylist() == values, f"{name} from the log"
            assert from_text[name].to_pylist() == values, f"{name} from a SELECT"
        assert same(from_log, from_text) == []


def same(ours: dict[str, pa.Array], theirs: dict[str, pa.Array]) -> list[str]:
    """The columns that differ, bit for bit."""
    return [name for name in ours if not (ours[name].equals(theirs[name]) and bits(ours[name]) == bits(theirs[name]))]


def bits(array: pa.Array) -> list[Any]:
    """Floats as their bits: -0.0 is not 0.0."""
    if not pa.types.is_floating(array.type):
        return []
    width = array.type.bit_width
    return list(array.view(pa.int32() if width == 32 else pa.int64()).fill_null(0).to_pylist())


@pytest.fixture
def case(mysql_server: MySQLServer, mysql_db: str) -> Case:
    return Case(mysql_server, mysql_db)


def test_integers(case: Case) -> None:
    limits = [
        (name, unsigned, size)
        for name, size in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64))
        for unsigned in (False, True)
    ]
    names = [f"{name}_{'u' if unsigned else 's'}" for name, unsigned, _ in limits]
    low = [0 if unsigned else -(2 ** (size - 1)) for _, unsigned, size in limits]
    high = [2**size - 1 if unsigned else 2 ** (size - 1) - 1 for _, unsigned, size in limits]
    rows: list[list[Any]] = [low, high, [0] * 10, [7] * 10, [None] * 10]
    ddl = ", ".join(
        f"{column} {name}{' unsigned' * unsigned}" for column, (name, unsigned, _) in zip(names, limits, strict=True)
    )
    inserts = [
        f"INSERT INTO {{t}} ({','.join(names)}) VALUES ({','.join('NULL' if v is None else str(v) for v in row)})"
        for row in rows
    ]
    case.check(ddl + ", z int(9) zerofill default 42", inserts, {
        **{name: [row[i] for row in rows] for i, name in enumerate(names)}, "z": [42] * 5,
    })  # fmt: skip


def test_bit_and_year(case: Case) -> None:
    case.check(
        "b1 bit(1), b8 bit(8), b13 bit(13), b63 bit(63), b64 bit(64), y year",
        [
            "INSERT INTO {t} VALUES (1, 1, 255, 8191, 9223372036854775807, 18446744073709551615, 2155)",
            "INSERT INTO {t} VALUES (2, 0, 0, 0, 0, 0, 0)",
            "INSERT INTO {t} VALUES (3, NULL, NULL, NULL, NULL, NULL, 1901)",
            "INSERT INTO {t} VALUES (4, 1, 1, 256, 256, 256, NULL)",
        ],
        {
            "b1": [1, 0, None, 1], "b8": [255, 0, None, 1], "b13": [8191, 0, None, 256],
            "b63": [2**63 - 1, 0, None, 256], "b64": [D(2**64 - 1), D(0), None, D(256)], "y": [2155, 0, 1901, None],
        },
    )  # fmt: skip


DECIMALS = [
    (1, 0), (5, 2), (9, 9), (10, 0), (12, 2), (18, 0), (18, 18), (19, 3), (28, 28), (37, 1), (38, 10), (38, 30),
    (39, 0), (50, 25), (65, 30),
]  # fmt: skip


def decimals(precision: int, scale: int) -> list[str]:
    nines = int("9" * precision)
    random_ = random.Random(precision * 100 + scale)
    numbers = [0, 1, -1, 9, -9, nines, -nines, *(random_.randrange(-nines, nines) for _ in range(30))]
    numbers += [random_.randrange(-nines, nines) // 10 ** random_.randrange(precision) for _ in range(30)]
    return [decimal_text(number, scale) for number in numbers]


def test_decimals(case: Case) -> None:
    texts = {f"d{precision}_{scale}": decimals(precision, scale) for precision, scale in DECIMALS}
    rows = ",".join(f"({','.join(row)})" for row in zip(*texts.values(), strict=True))
    case.check(
        ", ".join(f"d{precision}_{scale} decimal({precision},{scale})" for precision, scale in DECIMALS),
        [f"INSERT INTO {{t}} ({','.join(texts)}) VALUES {rows}", "INSERT INTO {t} (id) VALUES (NULL)"],
        {
            f"d{precision}_{scale}": [
                *(text if precision > 38 else D(text) for text in texts[f"d{precision}_{scale}"]), None,
            ]
            for precision, scale in DECIMALS
        },
    )  # fmt: skip


def decimal_text(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    point = len(digits) - scale
    return ("-" if number < 0 else "") + digits[:point] + ("." + digits[point:] if scale else "")


def test_floats(case: Case) -> None:
    random_ = random.Random(5)
    doubles = [0.0, 1.0, -1.5, 0.1, 5e-324, -5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 1e22, 1e23, 1e15]
    while len(doubles) < 1500:
        double = struct.unpack("<d", random_.randbytes(8))[0]
        if abs(double) < 1e308:
            doubles.append(double)
    floats = [float(np.float32(x)) for x in (0.1, 16777217, 1e-45, 3.4028235e38, 1.17549435e-38, -123456.79)]
    while len(floats) < len(doubles):
        single = struct.unpack("<f", random_.randbytes(4))[0]
        if abs(single) < 3e38:
            floats.append(single)
    values = ",".join(f"({single!r},{double!r})" for single, double in zip(floats, doubles, strict=True))
    case.check("f float, d double", [f"INSERT INTO {{t}} (f, d) VALUES {values}"], {"f": floats, "d": doubles})


def test_negative_zero_keeps_its_sign(case: Case) -> None:
    from_log, from_text = case.roads("f float, d double", ["INSERT INTO {t} (f, d) VALUES (-0e0, -0e0), (0e0, 0e0)"])
    assert bits(from_log["d"]) == bits(from_text["d"])
    assert bits(from_log["f"]) == bits(from_text["f"])


def test_doubles_with_decimals(case: Case) -> None:
    """The server stores a rounded number whose digits it does not print."""
    values = ", ".join(f"({cents / 100}, {cents / 100})" for cents in range(1, 2000, 7))
    from_log, from_text = case.roads(
        "d double(10,2), f float(10,2)", [f"INSERT INTO {{t}} (d, f) VALUES {values}, (1.57, 1.57)"]
    )
    assert bits(from_log["d"]) == bits(from_text["d"])
    assert bits(from_log["f"]) == bits(from_text["f"])
    assert from_text["d"].to_pylist()[-1] == 1.5699999999999998


def test_temporals(case: Case) -> None:
    case.check(
        "da date, d0 datetime, d1 datetime(1), d3 datetime(3), d6 datetime(6), t0 timestamp null, t2 timestamp(2) null,"
        " t5 timestamp(5) null, t6 timestamp(6) null",
        [
            (
                "INSERT INTO {t} VALUES (1, '1000-01-01', '1000-01-01 00:00:00', '9999-12-31 23:59:59.9',"
                " '1969-12-31 23:59:59.999', '0001-01-01 00:00:00.000001', '1970-01-01 00:00:01',"
                " '2038-01-19 03:14:07.99', '2000-02-29 12:34:56.12345', '1999-12-31 23:59:59.999999')"
            ),
            (
                "INSERT INTO {t} VALUES (2, '2024-02-29', '2023-03-01 01:02:03', '2023-03-01',"
                " '1900-02-28 00:00:00.001', '9999-12-31 23:59:59.999999', '2023-03-01',"
                " '1970-01-01 00:00:01.01', '2000-01-01 00:00:00.00001', '2000-01-01 00:00:00.1')"
            ),
            "INSERT INTO {t} (id) VALUES (3)",
        ],
        {
            "da": [dt.date(1000, 1, 1), dt.date(2024, 2, 29), None],
            "d0": [dt.datetime(1000, 1, 1), dt.datetime(2023, 3, 1, 1, 2, 3), None],
            "d1": [dt.datetime(9999, 12, 31, 23, 59, 59, 900000), dt.datetime(2023, 3, 1), None],
            "d3": [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(1900, 2, 28, 0, 0, 0, 1000), None],
            "d6": [dt.datetime(1, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],
            "t0": [utc(1970, 1, 1, 0, 0, 1), utc(2023, 3, 1), None],
            "t2": [utc(2038, 1, 19, 3, 14, 7, 990000), utc(1970, 1, 1, 0, 0, 1, 10000), None],
            "t5": [utc(2000, 2, 29, 12, 34, 56, 123450), utc(2000, 1, 1, 0, 0, 0, 10), None],
            "t6": [utc(1999, 12, 31, 23, 59, 59, 999999), utc(2000, 1, 1, 0, 0, 0, 100000), None],
        },
    )


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type, misc]


def test_year_zero(case: Case) -> None:
    from_log, from_text = case.roads("d date, e datetime", ["INSERT INTO {t} VALUES (1, '0000-03-01', '0000-01-01')"])
    for road in (from_log, from_text):
        assert road["d"].cast(pa.int32()).to_pylist() == [-719468]
        assert road["e"].cast(pa.int64()).to_pylist() == [-719528 * 86_400_000_000]


def test_times(case: Case) -> None:
    times = {
        0: ["-838:59:59", "838:59:59", "00:00:00", "-00:00:01", "100:00:00"],
        1: ["-00:00:00.1", "00:00:00.9", "-838:59:58.9", "-10:11:12.9", "00:00:01.0"],
        2: ["-00:00:00.01", "838:59:58.99", "-01:00:00.00", "-01:00:00.99", "12:34:56.78"],
        3: ["-00:00:00.001", "00:00:00.256", "-00:01:00.000", "-00:00:59.744", "12:34:56.789"],
        4: ["-12:34:56.7891", "12:34:56.0001", "-00:00:00.0256", "-00:01:00.0000", "00:00:00.0000"],
        5: ["-00:00:00.00001", "838:59:58.99999", "-00:59:59.65536", "-01:00:00.00000", "00:00:00.00000"],
        6: ["-00:00:00.000001", "100:00:00.999999", "-00:59:59.065536", "-01:00:00.000000", "00:00:00.000000"],
    }
    rows = [",".join(f"'{times[f][row]}'" for f in times) for row in range(5)]
    case.check(
        ", ".join(f"t{f} time({f})" for f in times),
        [f"INSERT INTO {{t}} VALUES (NULL, {row})" for row in rows] + ["INSERT INTO {t} (id) VALUES (NULL)"],
        {f"t{f}": [*values, None] for f, values in times.items()},
    )


ZERO_DDL = "a date, b datetime, b3 datetime(3), c timestamp null, c6 timestamp(6) null"
ZERO_ROWS = [
    "INSERT INTO {t} VALUES (1, '0000-00-00', '0000-00-00', '2023-00-01 01:02:03.4', '0000-00-00', '0000-00-00')",
    "INSERT INTO {t} VALUES (2, '2023-01-00', '2023-02-00 01:02:03', '2023-02-01', '2023-02-01', '2023-02-01')",
]


def test_zero_dates_become_null_or_text_or_an_error(case: Case) -> None:
    day = dt.datetime(2023, 2, 1)
    case.check(
        ZERO_DDL,
        ZERO_ROWS,
        {"a": [None, None], "b": [None, None], "b3": [None, day], "c": [None, utc(2023, 2, 1)]},
        zero_dates="null",
    )
    case.check(
        ZERO_DDL,
        ZERO_ROWS,
        {
            "a": ["0000-00-00", "2023-01-00"],
            "b": ["0000-00-00 00:00:00", "2023-02-00 01:02:03"],
            "b3": ["2023-00-01 01:02:03.400", "2023-02-01 00:00:00.000"],
            "c": ["0000-00-00 00:00:00", "2023-02-01 00:00:00"],
            "c6": ["0000-00-00 00:00:00.000000", "2023-02-01 00:00:00.000000"],
        },
        temporals="text",
    )
    with pytest.raises(DecodeError, match="zero_dates") as caught:
        case.roads(ZERO_DDL, ZERO_ROWS)
    assert caught.value.column == "a"


def test_zero_dates_as_text_keep_every_part(case: Case) -> None:
    case.check(
        ZERO_DDL,
        ZERO_ROWS,
        {
            "a": ["0000-00-00", "2023-01-00"],
            "b": ["0000-00-00 00:00:00", "2023-02-00 01:02:03"],
            "b3": ["2023-00-01 01:02:03.400", "2023-02-01 00:00:00.000"],
            "c": ["0000-00-00 00:00:00", "2023-02-01 00:00:00"],
            "c6": ["0000-00-00 00:00:00.000000", "2023-02-01 00:00:00.000000"],
        },
        zero_dates="text",
    )


def test_times_as_microseconds(case: Case) -> None:
    case.check(
        "t0 time, t1 time(1), t3 time(3), t6 time(6)",
        [
            "INSERT INTO {t} VALUES (1, '-838:59:59', '-00:00:00.1', '838:59:58.999', '-00:59:59.065536')",
            "INSERT INTO {t} VALUES (2, '838:59:59', '-838:59:58.9', '-01:00:00', '838:59:58.999999')",
            "INSERT INTO {t} VALUES (3, '00:00:01', '00:00:00', '-00:00:00.001', '-00:00:00.000001')",
            "INSERT INTO {t} (id) VALUES (4)",
        ],
        {
            "t0": [-3_020_399_000_000, 3_020_399_000_000, 1_000_000, None],
            "t1": [-100_000, -3_020_398_900_000, 0, None],
            "t3": [3_020_398_999_000, -3_600_000_000, -1000, None],
            "t6": [-3_599_065_536, 3_020_398_999_999, -1, None],
        },
        time="microseconds",
    )


def test_bits_as_bytes(case: Case) -> None:
    case.check(
        "b1 bit(1), b9 bit(9), b64 bit(64)",
        ["INSERT INTO {t} VALUES (1, 1, 257, 18446744073709551615), (2, 0, 1, 1), (3, NULL, NULL, NULL)"],
        {
            "b1": [b"\x01", b"\0", None], "b9": [b"\x01\x01", b"\0\x01", None],
            "b64": [b"\xff" * 8, bytes(7) + b"\x01", None],
        },
        bit="binary",
    )  # fmt: skip


def test_decimals_as_text_and_double(case: Case) -> None:
    ddl = "a decimal(10,3), z decimal(6,2) zerofill, w decimal(65,30), n decimal(30,30)"
    inserts = [
        "INSERT INTO {t} VALUES (1, -0.1, 12.5, -12345678901234567890123456789012345.1, -1e-30)",
        "INSERT INTO {t} VALUES (2, 9999999.999, 0, 0.1, 0.3), (3, NULL, NULL, NULL, NULL)",
    ]
    texts = {
        "a": ["-0.100", "9999999.999", None], "z": ["12.50", "0.00", None],
        "w": ["-12345678901234567890123456789012345.1" + "0" * 29, "0.1" + "0" * 29, None],
        "n": ["-0." + "0" * 29 + "1", "0.3" + "0" * 29, None],
    }  # fmt: skip
    case.check(ddl, inserts, texts, decimals="text")
    doubles = {name: [None if one is None else float(one) for one in values] for name, values in texts.items()}
    case.check(ddl, inserts, doubles, decimals="double")


def test_an_unsigned_bigint_as_bigint(case: Case) -> None:
    case.check(
        "a bigint unsigned, z bigint(20) zerofill",
        ["INSERT INTO {t} VALUES (1, 9223372036854775807, 42), (2, 0, 0), (3, NULL, NULL)"],
        {"a": [2**63 - 1, 0, None], "z": [42, 0, None]},
        unsigned_bigint="bigint",
    )
    with pytest.raises(DecodeError, match=r"value 9223372036854775808 .*unsigned_bigint"):
        case.check(
            "a bigint unsigned", ["INSERT INTO {t} VALUES (1, 9223372036854775808)"], {}, unsigned_bigint="bigint"
        )


def test_impossible_days(case: Case) -> None:
    statements = ["SET sql_mode = 'ALLOW_INVALID_DATES'", "INSERT INTO {t} VALUES (1, '2023-02-30'), (2, '2023-02-28')"]
    case.check("a date", statements, {"a": [None, dt.date(2023, 2, 28)]}, zero_dates="null")
    case.check("a date", statements, {"a": ["2023-02-30", "2023-02-28"]}, temporals="text")


def test_text_as_mysql_text_gives_the_same_as_arrow_for_real_dates(case: Case) -> None:
    random_ = random.Random(3)
    stamps = [dt.datetime(1970, 1, 2) + dt.timedelta(microseconds=random_.randrange(10**15)) for _ in range(200)]
    values = ",".join(f"('{stamp}', '{stamp}', '{stamp.date()}')" for stamp in stamps)
    case.check(
        "a datetime(6), b timestamp(6), c date",
        [f"INSERT INTO {{t}} (a, b, c) VALUES {values}"],
        {
            "a": [stamp.isoformat(" ", "microseconds") for stamp in stamps],
            "b": [stamp.isoformat(" ", "microseconds") for stamp in stamps],
            "c": [str(stamp.date()) for stamp in stamps],
        },
        temporals="text",
    )


TEXTS = ["", "a", "  lead", "trail  ", "0123456789abcdef" * 12, "ünïcödé", "日本語", "😀 mixed é 日", "\0\x01\x7f"]


@pytest.mark.parametrize("charset", ["utf8mb4", "utf16", "utf16le", "utf32"])
def test_unicode_text(case: Case, charset: str) -> None:
    values = ",".join(f"({', '.join(['0x' + text.encode().hex() if text else repr('')] * 3)})" for text in TEXTS)
    values = values.replace("0x", "_utf8mb4 0x")
    stripped = [text.rstrip(" ") for text in TEXTS]
    case.check(
        f"c char(200) character set {charset}, v varchar(400) character set {charset}, x text character set {charset}",
        [f"INSERT INTO {{t}} (c, v, x) VALUES {values}", "INSERT INTO {t} (id) VALUES (NULL)"],
        {"c": [*stripped, None], "v": [*TEXTS, None], "x": [*TEXTS, None]},
    )


@pytest.mark.parametrize("charset", ["utf8mb3", "ucs2"])
def test_text_of_the_basic_plane(case: Case, charset: str) -> None:
    texts = ["", "abc", "ünïcödé 日本語", "ĠĠ"]
    values = ",".join(f"('{text}', '{text}')" for text in texts)
    ddl = f"c char(60) character set {charset}, v varchar(300) character set {charset}"
    case.check(ddl, [f"INSERT INTO {{t}} (c, v) VALUES {values}"], {"c": texts, "v": texts})


def test_single_byte_character_sets_convert_as_mysql_converts(case: Case) -> None:
    """Every set, all 256 bytes, each in a value of its own, against CONVERT(… USING utf8mb4)."""
    names = sorted(SINGLE_BYTE)
    rows = ",".join(f"({','.join([f'0x{byte:02x}'] * len(names))})" for byte in range(256))
    from_log, from_text = case.roads(
        ", ".join(f"v_{name} varchar(3) character set {name}" for name in names),
        [f"INSERT INTO {{t}} ({', '.join(f'v_{name}' for name in names)}) VALUES {rows}"],
    )
    assert same(from_log, from_text) == []
    converted = ", ".join(f"CONVERT(v_{name} USING utf8mb4)" for name in names)
    expected = case.server.query(f"SELECT {converted} FROM {case.db}.t ORDER BY id")
    for index, name in enumerate(names):
        assert from_log[f"v_{name}"].to_pylist() == [row[index] for row in expected], name


def test_bytes(case: Case) -> None:
    case.check(
        "b binary(4), w binary(255), v varbinary(300), x blob, y longblob",
        [
            "INSERT INTO {t} VALUES (1, 'ab', '', 'ab\\0\\0', 'a\\0', 0xff00)",
            "INSERT INTO {t} VALUES (2, '', 'x', '', '', '')",
            "INSERT INTO {t} VALUES (3, 'a\\0b', NULL, REPEAT(0x8180, 150), REPEAT('z', 70000), NULL)",
        ],
        {
            "b": [b"ab\0\0", b"\0\0\0\0", b"a\0b\0"],
            "w": [bytes(255), b"x" + bytes(254), None],
            "v": [b"ab\0\0", b"", b"\x81\x80" * 150],
            "x": [b"a\0", b"", b"z" * 65535],
            "y": [b"\xff\0", b"", None],
        },
    )


def test_enum_and_set(case: Case) -> None:
    many = ", ".join(f"'m{n}'" for n in range(300))
    flags = ", ".join(f"'f{n}'" for n in range(64))
    case.check(
        "e enum('a', 'b''c', 'ü,x', '') character set utf8mb4, l enum('ł', 'y') character set latin2,"
        f" u set('ü', 'x') character set utf16, big enum({many}), s set('x', 'y', 'z'), s64 set({flags})",
        [
            "INSERT INTO {t} VALUES (1, 'a', 'ł', 'ü', 'm0', 'z,x', 'f63,f0')",
            "INSERT INTO {t} VALUES (2, 'b''c', 'y', 'x,ü', 'm299', '', '')",
            "INSERT INTO {t} VALUES (3, 'ü,x', 'nonsense', '', 'm255', 'x,y,z', 18446744073709551615)",
            "INSERT INTO {t} VALUES (4, '', NULL, NULL, NULL, NULL, NULL)",
        ],
        {
            "e": ["a", "b'c", "ü,x", ""], "l": ["ł", "y", "", None], "u": ["ü", "ü,x", "", None],
            "big": ["m0", "m299", "m255", None], "s": ["x,z", "", "x,y,z", None],
            "s64": ["f0,f63", "", ",".join(f"f{n}" for n in range(64)), None],
        },
    )  # fmt: skip


JSON_SQL = {
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
    "JSON_ARRAY(DATE'2015-01-15', TIMESTAMP'2015-01-15 23:24:25.12', TIME'-23:24:25.5', TIME'838:59:59')": (
        '["2015-01-15", "2015-01-15 23:24:25.120000", "-23:24:25.500000", "838:59:59.000000"]'
    ),
    "JSON_ARRAY(b'101', CAST(x'00ff' AS BINARY), CAST(REPEAT('a', 60) AS BINARY))": (
        '["base64:type15:BQ==", "base64:type15:AP8=", "base64:type15:' + "YWFh" * 19 + "\\n" + "YWFh" + '"]'
    ),
}


def test_json_forms(case: Case) -> None:
    inserts = [f"INSERT INTO {{t}} (j) VALUES ({sql})" for sql in JSON_SQL] + ["INSERT INTO {t} (j) VALUES (NULL)"]
    case.check("j json", inserts, {"j": [*JSON_SQL.values(), None]})


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


def test_json_documents_at_random_large_and_deep(case: Case) -> None:
    random_ = random.Random(11)
    documents = [random_json(random_, 5) for _ in range(400)]
    documents += ["[" + ",".join(map(str, range(-40000, 40000))) + "]"]
    documents += ["{" + ",".join(f'"key number {n}": {n}.5' for n in range(9000)) + "}"]
    documents += ["[" * 100 + "]" * 100, '{"a":' * 99 + "[]" + "}" * 99, '["' + "x" * 70000 + '", 1, 70000, 1.5]']
    inserts = [f"INSERT INTO {{t}} (j) VALUES ('{document}')" for document in documents]
    from_log, from_text = case.roads("j json", inserts)
    assert same(from_log, from_text) == []
    assert from_log["j"].null_count == 0


def test_json_doubles_print_as_mysql_prints_them(case: Case) -> None:
    random_ = random.Random(13)
    doubles: list[float] = []
    while len(doubles) < 4000:
        double = struct.unpack("<d", random_.randbytes(8))[0]
        if abs(double) < 1e308:
            doubles.append(double)
            doubles.append(random_.uniform(-1, 1) * 10.0 ** random_.randrange(-18, 18))
    values = ",".join(f"(JSON_ARRAY({double!r}))" for double in doubles)
    from_log, from_text = case.roads("j json", [f"INSERT INTO {{t}} (j) VALUES {values}"])
    assert same(from_log, from_text) == []


def test_geometry(case: Case) -> None:
    point = struct.pack("<BIdd", 1, 1, 1.5, -2.5)
    line = struct.pack("<BIIdddd", 1, 2, 2, 0, 0, 3, 4)
    case.check(
        "p point, g geometry, c geometrycollection",
        [
            (
                "INSERT INTO {t} VALUES (1, POINT(1.5, -2.5), ST_GeomFromText('POINT(-2.5 1.5)', 4326),"
                " ST_GeomFromText('GEOMETRYCOLLECTION EMPTY'))"
            ),
            "INSERT INTO {t} VALUES (2, NULL, ST_GeomFromText('LINESTRING(0 0, 3 4)'), NULL)",
            "INSERT INTO {t} (id) VALUES (3)",
        ],
        {
            "p": [{"srid": 0, "wkb": point}, None, None],
            "g": [{"srid": 4326, "wkb": point}, {"srid": 0, "wkb": line}, None],
            "c": [{"srid": 0, "wkb": struct.pack("<BII", 1, 7, 0)}, None, None],
        },
    )


@pytest.mark.mysql(">= 9.0", "VECTOR")
def test_vector(case: Case) -> None:
    case.check(
        "v vector(4)",
        [
            "INSERT INTO {t} VALUES (1, STRING_TO_VECTOR('[1, -2.5, 3e30, 0]')), (2, STRING_TO_VECTOR('[7]'))",
            "INSERT INTO {t} (id) VALUES (3)",
        ],
        {"v": [[1.0, -2.5, float(np.float32(3e30)), 0.0], [7.0], None]},
    )


def test_generated_and_invisible_columns_are_in_both_roads(case: Case) -> None:
    case.check(
        "a int, v int generated always as (a + 1) virtual, s int generated always as (a + 2) stored, i int invisible,"
        " index ((a + 5))",
        ["INSERT INTO {t} (a, i) VALUES (1, 9), (NULL, NULL)"],
        {"a": [1, None], "v": [2, None], "s": [3, None], "i": [9, None]},
    )

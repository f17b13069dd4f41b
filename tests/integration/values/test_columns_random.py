"""Tables at random, with random rows: what a SELECT gives and what the log gives are the same, bit for bit.

An example is a schema (columns of any type, length, precision and character set), policies, and a seed from which the
rows come; so what shrinks is the schema. Half of the values are picked from the ends of their type's range.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog import MULTI_BYTE, NO_CODE, SINGLE_BYTE, multi_byte_table
from headgate.policies import Policies
from headgate_testing import MySQLServer
from tests.integration.values.test_columns_boundaries import both, random_json, write_twice

ROWS = 60


class Kind(NamedTuple):
    """A column's type as DDL, and the SQL of a random value of it."""

    ddl: str
    value: Callable[[random.Random], str]


def some(ends: list[str], any_value: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    """Half the time one of the ends."""
    return lambda random_: random_.choice(ends) if random_.random() < 0.5 else any_value(random_)


def integer(kind: str, size: int, unsigned: bool) -> Kind:
    low, high = (0, 2**size - 1) if unsigned else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)
    ends = [str(number) for number in (low, high, 0, 1, high // 2)]
    return Kind(f"{kind}{' unsigned' * unsigned}", some(ends, lambda random_: str(random_.randint(low, high))))


INTEGERS = st.tuples(
    st.sampled_from([("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)]), st.booleans()
).map(lambda drawn: integer(*drawn[0], drawn[1]))


def decimal(precision: int, scale: int) -> Kind:
    def text(number: int) -> str:
        digits = str(abs(number)).rjust(scale + 1, "0")
        point = len(digits) - scale
        return ("-" if number < 0 else "") + digits[:point] + ("." + digits[point:] if scale else "")

    most = 10**precision - 1
    ends = [text(number) for number in (0, 1, -1, most, -most)]
    any_value = lambda random_: text(random_.randint(-most, most) // 10 ** random_.randrange(precision))  # noqa: E731
    return Kind(f"decimal({precision},{scale})", some(ends, any_value))


def floating(kind: str) -> Kind:
    code, size, limit = ("<f", 4, 3e38) if kind == "float" else ("<d", 8, 1e308)

    def any_value(random_: random.Random) -> str:
        while True:  # until it is a number that MySQL takes
            value = struct.unpack(code, random_.randbytes(size))[0]
            if abs(value) < limit:
                return repr(value)

    return Kind(kind, some(["0e0", "-0e0", "0.1", "-1.5", "16777217", "1e-45"], any_value))


def bit(width: int) -> Kind:
    any_value = lambda random_: str(random_.getrandbits(width))  # noqa: E731
    return Kind(f"bit({width})", some(["0", "1", str(2**width - 1)], any_value))


def date(random_: random.Random) -> str:
    if random_.random() < 0.1:
        return random_.choice(["0000-00-00", "2024-00-00", "2024-02-00", "2023-02-30", "0000-01-01", "9999-12-31"])
    return f"{random_.randrange(10000):04}-{random_.randrange(1, 13):02}-{random_.randrange(1, 29):02}"


def clock(random_: random.Random, digits: int) -> str:
    parts = f"{random_.randrange(24):02}:{random_.randrange(60):02}:{random_.randrange(60):02}"
    return parts + (f".{random_.randrange(10**digits):0{digits}}" if digits else "")


def temporal(kind: str, digits: int) -> Kind:
    if kind == "date":
        return Kind(kind, lambda random_: f"'{date(random_)}'")
    if kind == "datetime":
        return Kind(f"{kind}({digits})", lambda random_: f"'{date(random_)} {clock(random_, digits)}'")
    if kind == "timestamp":
        stamp = lambda random_: (  # noqa: E731
            f"FROM_UNIXTIME({random_.randrange(1, 2**31 - 1)}.{random_.randrange(10**6):06})"
        )
        return Kind(
            f"{kind}({digits}) null", some(["'0000-00-00'", "'1970-01-01 00:00:01'", "FROM_UNIXTIME(1)"], stamp)
        )
    signed = lambda random_: f"'{random_.choice(['', '-'])}{random_.randrange(839)}{clock(random_, digits)[2:]}'"  # noqa: E731
    return Kind(f"{kind}({digits})", some(["'-838:59:59'", "'838:59:59'", "'0'", "'-00:00:00.000001'"], signed))


YEARS = Kind("year", some(["0", "1901", "2155"], lambda random_: str(random_.randrange(1901, 2156))))
UNICODE = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf16": "utf-16-be", "utf16le": "utf-16-le", "ucs2": "utf-16-be",
           "utf32": "utf-32-be", "ascii": "ascii"}  # fmt: skip


def codes(charset: str) -> list[bytes]:
    """Every code of a character set, or a selection of a large one's."""
    if charset in SINGLE_BYTE:
        return [bytes([byte]) for byte in range(256)]
    if charset in MULTI_BYTE:
        entries = multi_byte_table(charset).codes.tolist()
        assigned = [code for code, entry in enumerate(entries) if entry != NO_CODE]
        return [code.to_bytes(1 if code < 256 else 2, "big") for code in assigned]
    last = {"ascii": 0x80, "ucs2": 0x10000, "utf8mb3": 0x10000}.get(charset, 0x110000)
    points = itertools.chain(range(min(0x250, last)), range(0x250, last, 97))
    return [chr(point).encode(UNICODE[charset]) for point in points if not 0xD800 <= point < 0xE000]


CODES = {charset: codes(charset) for charset in sorted({*SINGLE_BYTE, *MULTI_BYTE, *UNICODE})}


def text(kind: str, charset: str, length: int) -> Kind:
    def any_value(random_: random.Random) -> str:
        encoded = b"".join(random_.choices(CODES[charset], k=random_.randrange(length + 1)))
        return f"_{charset} X'{encoded.hex()}'"

    ends = ["''", "'a'", "'  '", "'0'"] if length > 1 else ["''"]
    size = "" if kind == "text" else f"({length + 1})"
    return Kind(f"{kind}{size} character set {charset}", some(ends, any_value))


def binary(kind: str, length: int) -> Kind:
    any_value = lambda random_: f"X'{random_.randbytes(random_.randrange(length + 1)).hex()}'"  # noqa: E731
    return Kind(f"{kind}{'' if kind == 'blob' else f'({length})'}", some(["''", "X'00'", "X'ff'"], any_value))


def members(kind: str, count: int) -> Kind:
    names = [f"m''{n}\"é" for n in range(count)]
    most = count if kind == "enum" else 2**count - 1
    listed = ", ".join(f"'{name}'" for name in names)
    any_value = lambda random_: str(random_.randint(1 if kind == "enum" else 0, most))  # noqa: E731
    return Kind(
        f"{kind}({listed}) character set utf8mb4",
        some(["'nonsense'" if kind == "enum" else "''", str(most)], any_value),
    )


JSON = Kind("json", lambda random_: f"'{random_json(random_, 3)}'")
POINTS = Kind(
    "geometry",
    lambda random_: f"ST_GeomFromText('LINESTRING({random_.uniform(-90, 90)} 1,2 3)', {random_.choice([0, 4326])})",
)
VECTORS = Kind(
    "vector(9)",
    lambda random_: f"STRING_TO_VECTOR('{[random_.uniform(-9, 9) for _ in range(random_.randrange(1, 10))]}')",
)
DIGITS = st.integers(0, 6)
KINDS = st.one_of(
    INTEGERS,
    st.integers(1, 65).flatmap(lambda p: st.integers(0, min(p, 30)).map(lambda s: decimal(p, s))),
    st.sampled_from([floating("float"), floating("double"), YEARS, JSON, POINTS, VECTORS]),
    st.integers(1, 64).map(bit),
    st.builds(temporal, st.sampled_from(["date", "datetime", "timestamp", "time", "time"]), DIGITS),
    st.builds(text, st.sampled_from(["char", "varchar", "text"]), st.sampled_from(sorted(CODES)), st.integers(1, 60)),
    st.builds(binary, st.sampled_from(["binary", "varbinary", "blob"]), st.integers(1, 120)),
    st.integers(1, 300).map(lambda count: members("enum", count)),
    st.integers(1, 64).map(lambda count: members("set", count)),
)


def kinds_of(server: MySQLServer) -> st.SearchStrategy[Kind]:
    """The kinds that the server has."""
    return KINDS if server.version_numbers >= (9, 0) else KINDS.filter(lambda kind: kind is not VECTORS)


POLICIES = st.builds(
    Policies, zero_dates=st.sampled_from(["null", "text"]), time=st.sampled_from(["text", "microseconds"]),
    bit=st.sampled_from(["integer", "binary"]), temporals=st.sampled_from(["arrow", "arrow", "arrow", "text"]),
    decimals=st.sampled_from(["decimal", "text", "double"]),
)  # fmt: skip


@pytest.mark.parametrize(
    "examples", [30, pytest.param(100, marks=pytest.mark.long), pytest.param(2000, marks=pytest.mark.slow)]
)
@pytest.mark.timeout(1200)
def test_both_roads_give_the_same(mysql_server: MySQLServer, mysql_db: str, examples: int) -> None:
    numbers = itertools.count()

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    @given(st.lists(kinds_of(mysql_server), min_size=1, max_size=30), POLICIES, st.integers(0, 2**32))
    def both_roads(kinds: list[Kind], policies: Policies, seed: int) -> None:
        random_ = random.Random(seed)
        table = f"{mysql_db}.t{next(numbers)}"
        columns = [f"c{number}" for number in range(len(kinds))]
        ddl = ", ".join(f"{name} {kind.ddl}" for name, kind in zip(columns, kinds, strict=True))
        mysql_server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, {ddl})")
        rows = [
            ", ".join("NULL" if random_.random() < 0.1 else kind.value(random_) for kind in kinds) for _ in range(ROWS)
        ]
        assert both(write_twice(mysql_server, table, columns, rows), policies).num_rows == ROWS
        mysql_server.execute(f"DROP TABLE {table}")

    both_roads()

"""Log bytes are made here from the published layouts; tests/integration holds them against a server."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.errors import DecodeError, UnsupportedError
from headgate.policies import Policies
from tests.columns.cells import decode

DIGITS = st.integers(0, 6)


def fraction(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    return (micros // 100 ** (3 - size)).to_bytes(size, "big") if size else b""


def cut(stamp: dt.datetime, digits: int) -> dt.datetime:
    unit = 10 ** (6 - digits)
    return stamp.replace(microsecond=stamp.microsecond // unit * unit)


def text(stamp: dt.datetime, digits: int) -> bytes:
    date = f"{stamp.year:04d}-{stamp.month:02d}-{stamp.day:02d} {stamp.hour:02d}:{stamp.minute:02d}:{stamp.second:02d}"
    return (date + (f".{stamp.microsecond:06d}"[: digits + 1] if digits else "")).encode()


def packed_date(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def packed_datetime(stamp: dt.datetime, digits: int) -> bytes:
    date = (stamp.year * 13 + stamp.month) << 5 | stamp.day
    number = date << 17 | stamp.hour << 12 | stamp.minute << 6 | stamp.second
    return (number + 0x8000000000).to_bytes(5, "big") + fraction(stamp.microsecond, digits)


@given(st.lists(st.dates()))
def test_dates(dates: list[dt.date]) -> None:
    logged = [packed_date(date.year, date.month, date.day) for date in dates]
    assert decode(Column("c", "date"), "log", *logged, None) == [*dates, None]
    texts = [str(date).encode() for date in dates]
    assert decode(Column("c", "date"), "text", *texts, None) == [*dates, None]
    for road, values in (("log", logged), ("text", texts)):
        assert decode(Column("c", "date"), road, *values, temporals="text") == [str(date) for date in dates]


@given(DIGITS, st.lists(st.datetimes()))
def test_datetimes(digits: int, stamps: list[dt.datetime]) -> None:
    stamps = [cut(stamp, digits) for stamp in stamps]
    column = Column("c", "datetime", scale=digits)
    logged = [packed_datetime(stamp, digits) for stamp in stamps]
    texts = [text(stamp, digits) for stamp in stamps]
    for road, values in (("log", logged), ("text", texts)):
        assert decode(column, road, *values, None) == [*stamps, None]
        assert decode(column, road, *values, temporals="text") == [value.decode() for value in texts]


STAMPS = st.datetimes(dt.datetime(1970, 1, 1, 0, 0, 1), dt.datetime(2106, 2, 7, 6, 28, 15))


@given(DIGITS, st.lists(STAMPS))
def test_timestamps(digits: int, stamps: list[dt.datetime]) -> None:
    stamps = [cut(stamp, digits).replace(tzinfo=dt.UTC) for stamp in stamps]
    column = Column("c", "timestamp", scale=digits)
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    logged = [
        ((stamp - epoch) // dt.timedelta(seconds=1)).to_bytes(4, "big") + fraction(stamp.microsecond, digits)
        for stamp in stamps
    ]
    texts = [text(stamp, digits) for stamp in stamps]
    for road, values in (("log", logged), ("text", texts)):
        assert decode(column, road, *values, None) == [*stamps, None]
        assert decode(column, road, *values, temporals="text") == [value.decode() for value in texts]


@given(DIGITS, st.lists(st.tuples(st.integers(0, 838), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999999))))
def test_times(digits: int, times: list[tuple[int, int, int, int]]) -> None:
    size = (digits + 1) // 2
    unit = 10 ** (6 - digits)
    logged, texts = [], []
    for number, (hour, minute, second, micros) in enumerate(times):
        kept = micros // unit * unit
        value = (hour << 12 | minute << 6 | second) << (8 * size) | kept // 100 ** (3 - size) if size else 0
        if not size:
            value, kept = hour << 12 | minute << 6 | second, 0
        negative = number % 2 == 1 and value != 0
        logged.append(((-value if negative else value) + (0x800000 << (8 * size))).to_bytes(3 + size, "big"))
        tail = f".{kept:06d}"[: digits + 1] if digits else ""
        texts.append(f"{'-' * negative}{hour:02d}:{minute:02d}:{second:02d}{tail}")
    column = Column("c", "time", scale=digits)
    assert decode(column, "log", *logged, None) == [*texts, None]
    assert decode(column, "text", *(value.encode() for value in texts), None) == [*texts, None]


ZEROS: list[tuple[str, str, bytes]] = [
    ("date", "log", packed_date(0, 0, 0)),
    ("date", "log", packed_date(2023, 1, 0)),
    ("date", "log", packed_date(2023, 2, 29)),
    ("date", "text", b"0000-00-00"),
    ("date", "text", b"2023-00-01"),
    ("date", "text", b"2023-04-31"),
    ("datetime", "log", (0x8000000000).to_bytes(5, "big")),
    ("datetime", "text", b"0000-00-00 00:00:00"),
    ("datetime", "text", b"1900-02-29 00:00:00"),
    ("timestamp", "log", bytes(4)),
    ("timestamp", "text", b"0000-00-00 00:00:00"),
]


@pytest.mark.parametrize(("kind", "road", "value"), ZEROS)
def test_dates_that_arrow_cannot_hold(kind: str, road: str, value: bytes) -> None:
    with pytest.raises(DecodeError, match="zero_dates") as caught:
        decode(Column("c", kind), road, None, value)
    assert (caught.value.table, caught.value.column) == ("d.t", "c")
    assert decode(Column("c", kind), road, None, value, zero_dates="null") == [None, None]
    with pytest.raises(DecodeError, match="key"):
        decode(Column("c", kind), road, value, zero_dates="null", key=True)
    (text,) = decode(Column("c", kind), road, value, zero_dates="text", key=True)
    assert isinstance(text, str)
    assert road == "log" or text.encode() == value


@pytest.mark.parametrize(
    ("kind", "scale", "value"),
    [
        ("date", 0, b"2023-1-01"), ("date", 0, b"2023-01-0x"), ("date", 0, b"20x3-01-01"), ("date", 0, b"2023/01/01"),
        ("date", 0, b"2023-01-:1"), ("datetime", 0, b"2023-01-01T00:00:00"), ("datetime", 0, b"2023-01-01 24:00:00"),
        ("datetime", 0, b"2023-01-01 00:60:00"), ("datetime", 0, b"2023-01-01 00:00:60"), ("datetime", 0, b""),
        ("datetime", 3, b"2023-01-01 00:00:00"), ("datetime", 3, b"2023-01-01 00:00:00,123"),
        ("datetime", 3, b"2023-01-01 00:00:00.12x"), ("datetime", 0, b"2023-01-01 00:00;00"),
    ],
)  # fmt: skip
def test_text_that_is_no_date(kind: str, scale: int, value: bytes) -> None:
    for zero_dates in ("error", "null"):
        options: dict[str, Any] = {"zero_dates": zero_dates}
        with pytest.raises(DecodeError, match=kind):
            decode(Column("c", kind, scale=scale), "text", value, **options)


def test_nulls_for_zero_dates_leave_the_block_as_it_is() -> None:
    from headgate.columns import codec_for
    from tests.columns.cells import cells

    given_cells = cells(b"0000-00-00", b"2024-01-01")
    codec_for(Column("c", "date"), table="d.t", policies=Policies(zero_dates="null")).from_text(given_cells)
    assert given_cells.valid.tolist() == [1, 1]


TIMES = st.integers(-3_020_399_999_999, 3_020_399_999_999)


def time_text(micros: int, digits: int) -> bytes:
    seconds, part = divmod(abs(micros), 10**6)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return (text + (f".{part:06}"[: digits + 1] if digits else "")).encode()


@given(st.lists(TIMES), st.integers(0, 6))
def test_times_as_microseconds(values: list[int], digits: int) -> None:
    unit = 10 ** (6 - digits)
    rounded = [value // unit * unit for value in values]
    column = Column("c", "time", scale=digits)
    size = 3 + (digits + 1) // 2
    packed = []
    for value in rounded:
        seconds, part = divmod(abs(value), 10**6)
        clock = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
        number = clock << 8 * (size - 3) | part // 10 ** (6 - 2 * (size - 3))
        packed.append(((1 << 8 * size - 1) + (number if value >= 0 else -number)).to_bytes(size, "big"))
    assert decode(column, "log", *packed, None, time="microseconds") == [*rounded, None]
    texts = [time_text(value, digits) for value in rounded]
    assert decode(column, "text", *texts, None, time="microseconds") == [*rounded, None]
    assert decode(column, "log", *packed) == [text.decode() for text in texts]


@pytest.mark.parametrize(
    "value", [b"", b"-", b"1:00:00", b"00:60:00", b"00:00:60", b"00-00:00", b"0x:00:00", b"00:00:00.1", b"1234:00:00"]
)
def test_text_that_is_no_time(value: bytes) -> None:
    with pytest.raises(DecodeError, match="time"):
        decode(Column("c", "time"), "text", b"00:00:00", value, time="microseconds")
    with pytest.raises(DecodeError, match="time"):
        decode(Column("c", "time", scale=2), "text", value + b".1x", time="microseconds")


def test_more_than_six_fraction_digits() -> None:
    with pytest.raises(UnsupportedError):
        decode(Column("c", "datetime", scale=7), "log")

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.errors import DecodeError
from tests.columns.cells import NOT_THERE, decode

WIDTHS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("kind", WIDTHS)
@given(data=st.data())
def test_both_roads_give_every_number_of_the_type(kind: str, unsigned: bool, data: st.DataObject) -> None:
    size = WIDTHS[kind]
    low, high = (0, 256**size - 1) if unsigned else (-(256**size) // 2, 256**size // 2 - 1)
    numbers = data.draw(st.lists(st.one_of(st.integers(low, high), st.sampled_from([low, high]))))
    column = Column("c", kind, unsigned=unsigned)
    logged = [number.to_bytes(size, "little", signed=not unsigned) for number in numbers]
    assert decode(column, "log", *logged, None) == [*numbers, None]
    assert decode(column, "text", *(str(number).encode() for number in numbers), NOT_THERE) == [*numbers, None]


@pytest.mark.parametrize("text", [b"", b"-", b"1x", b" 1", b"+1", b"1.0", b"128", b"-129", b"9" * 30, b"--1"])
def test_text_that_is_no_tinyint_names_table_and_column(text: bytes) -> None:
    with pytest.raises(DecodeError, match=f"0x{text.hex()} ") as caught:
        decode(Column("c", "tinyint"), "text", b"1", text)
    assert (caught.value.table, caught.value.column) == ("d.t", "c")


@pytest.mark.parametrize("text", [b"18446744073709551616", b"-1", b"99999999999999999999", b"184467440737095516150"])
def test_text_beyond_an_unsigned_bigint(text: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(Column("c", "bigint", unsigned=True), "text", text)
    assert decode(Column("c", "bigint", unsigned=True), "text", b"18446744073709551615") == [Decimal(2**64 - 1)]


def test_zerofill_digits() -> None:
    assert decode(Column("c", "int", unsigned=True), "text", b"000000042", b"00000000000000000000042") == [42, 42]


def test_a_log_value_of_another_size_is_refused() -> None:
    with pytest.raises(DecodeError, match="4 bytes long"):
        decode(Column("c", "int"), "log", b"\0\0\0\0", b"\0\0\0")


@given(st.integers(1, 64), st.data())
def test_bits(precision: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, 2**precision - 1)))
    encoded = [number.to_bytes((precision + 7) // 8, "big") for number in numbers]
    for road in ("log", "text"):
        assert decode(Column("c", "bit", precision=precision), road, *encoded, None) == [*numbers, None]


def test_years() -> None:
    assert decode(Column("c", "year"), "log", b"\0", b"\x01", b"\xff", None) == [0, 1901, 2155, None]
    assert decode(Column("c", "year"), "text", b"0000", b"1901", b"2155", None) == [0, 1901, 2155, None]


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 64))
def test_bits_as_bytes(values: list[int], width: int) -> None:
    size = (width + 7) // 8
    cut = [(value % 2**width).to_bytes(size, "big") for value in values]
    for road in ("log", "text"):
        assert decode(Column("c", "bit", precision=width), road, *cut, None, bit="binary") == [*cut, None]


def test_bits_as_bytes_have_their_length() -> None:
    with pytest.raises(DecodeError, match="2 bytes"):
        decode(Column("c", "bit", precision=9), "log", b"\x01", bit="binary")


@pytest.mark.parametrize("road", ["log", "text"])
def test_unsigned_bigints_as_bigints(road: str) -> None:
    column, most = Column("c", "bigint", unsigned=True), 2**63 - 1

    def written(number: int) -> bytes:
        return number.to_bytes(8, "little") if road == "log" else str(number).encode()

    numbers = [0, 1, most]
    assert decode(column, road, *map(written, numbers), None, unsigned_bigint="bigint") == [*numbers, None]
    for above in (most + 1, 2**64 - 1):
        with pytest.raises(DecodeError, match=f"{above} is above the largest BIGINT") as caught:
            decode(column, road, written(5), None, written(above), unsigned_bigint="bigint")
        assert (caught.value.table, caught.value.column, caught.value.row) == ("d.t", "c", 2)
    signed = Column("c", "bigint")
    assert decode(signed, "text", b"-1", unsigned_bigint="bigint") == [-1]

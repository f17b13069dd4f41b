from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.columns import codec_for
from headgate.errors import DecodeError, UnsupportedError
from headgate.policies import Policies
from tests.columns.cells import decode

SHAPES = st.integers(1, 65).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, min(p, 30))))
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def packed(number: int, precision: int, scale: int) -> bytes:
    """MySQL's packed form of ``number · 10^-scale``."""
    digits = str(abs(number)).rjust(precision, "0")
    whole, part = digits[: precision - scale], digits[precision - scale :]
    first = len(whole) % 9
    groups = [whole[:first]] + [whole[k : k + 9] for k in range(first, len(whole), 9)]
    groups += [part[k : k + 9] for k in range(0, len(part), 9)]
    data = bytearray(b"".join(int(g).to_bytes(DIGIT_BYTES[len(g)], "big") for g in groups if g))
    data[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in data) if number < 0 else bytes(data)


def text(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    point = len(digits) - scale
    return "-" * (number < 0) + digits[:point] + "." * (scale > 0) + digits[point:]


@given(SHAPES, st.data())
def test_both_roads_give_every_number(shape: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = shape
    nines = 10**precision - 1
    numbers = data.draw(
        st.lists(st.one_of(st.integers(-nines, nines), st.integers(-9, 9), st.just(-nines)), max_size=9)
    )
    column = Column("c", "decimal", precision=precision, scale=scale)
    texts = [text(number, scale) for number in numbers]
    expected = [Decimal(value) for value in texts] if precision <= 38 else texts
    assert decode(column, "log", *(packed(number, precision, scale) for number in numbers), None) == [*expected, None]
    assert decode(column, "text", *(value.encode() for value in texts), None) == [*expected, None]


def test_bytes_of_mysql() -> None:
    """INSERT 1234567890.1234 and its negative into DECIMAL(14,4), as MySQL's documentation of the format shows it."""
    column = Column("c", "decimal", precision=14, scale=4)
    assert decode(column, "log", bytes.fromhex("810dfb38d204d2"), bytes.fromhex("7ef204c72dfb2d")) == [
        Decimal("1234567890.1234"), Decimal("-1234567890.1234"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [b"", b"-", b"1", b"1.2", b"1,20", b"1234.56", b"1a.00", b"1.2x", b".", b"1.200"])
def test_text_that_does_not_fit_the_type(value: bytes) -> None:
    with pytest.raises(DecodeError, match=r"decimal\(5,2\)"):
        decode(Column("c", "decimal", precision=5, scale=2), "text", value)


@pytest.mark.parametrize("precision", [9, 27, 45])
def test_a_group_above_999999999_is_refused(precision: int) -> None:
    with pytest.raises(DecodeError):
        decode(Column("c", "decimal", precision=precision), "log", b"\xff" * (precision // 9 * 4))


def test_an_impossible_shape() -> None:
    with pytest.raises(UnsupportedError, match=r"decimal\(70,2\)"):
        decode(Column("c", "decimal", precision=70, scale=2), "log")


def test_wide_decimals_can_be_refused() -> None:
    for precision in (39, 65):
        with pytest.raises(UnsupportedError, match='wide_decimals = "text"') as caught:
            codec_for(
                Column("c", "decimal", precision=precision), table="d.t", policies=Policies(wide_decimals="error")
            )
        assert (caught.value.table, caught.value.column) == ("d.t", "c")
    codec_for(Column("c", "decimal", precision=38), table="d.t", policies=Policies(wide_decimals="error"))


@given(data=st.data())
def test_decimals_as_text_and_as_doubles(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(30, precision)))
    column = Column("c", "decimal", precision=precision, scale=scale)
    numbers = data.draw(st.lists(st.integers(1 - 10**precision, 10**precision - 1), max_size=20))
    logged, texts = [packed(n, precision, scale) for n in numbers], [text(n, scale) for n in numbers]
    for road, values in (("log", logged), ("text", [one.encode() for one in texts])):
        assert decode(column, road, *values, None, decimals="text") == [*texts, None]
        assert decode(column, road, *values, None, decimals="text", key=True) == [*texts, None]
        assert decode(column, road, *values, None, decimals="double") == [*map(float, texts), None]


def test_a_key_is_never_a_double() -> None:
    column = Column("c", "decimal", precision=38, scale=0)
    numbers = [2**53, 2**53 + 1]
    values = [str(number).encode() for number in numbers]
    assert decode(column, "text", *values, decimals="double") == [2.0**53] * 2
    assert decode(column, "text", *values, decimals="double", key=True) == numbers


def test_text_that_is_no_double() -> None:
    with pytest.raises(DecodeError, match=r"decimal\(5,2\)") as caught:
        decode(Column("c", "decimal", precision=5, scale=2), "text", b"1.x0", decimals="double")
    assert (caught.value.table, caught.value.column) == ("d.t", "c")

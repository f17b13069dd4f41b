"""Binary JSON, encoded here for the tests; tests/integration has the same forms from a server."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import Column
from headgate.errors import DecodeError
from tests.columns.cells import decode, same_whatever_is_around

JSON = Column("c", "json")


def varlen(count: int) -> bytes:
    parts = bytearray()
    while count > 0x7F:
        parts.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes([*parts, count])


def encode(value: Any, *, large: bool) -> tuple[int, bytes]:
    """``(type, bytes)`` of a JSON value; every container large or small."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        return (9, struct.pack("<q", value)) if value < 2**63 else (10, struct.pack("<Q", value))
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, varlen(len(value.encode())) + value.encode()
    width, form = (4, "<I") if large else (2, "<H")
    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    children = [encode(child, large=large) for child in (value.values() if isinstance(value, dict) else value)]
    head = 2 * width + (width + 2) * len(keys) + (1 + width) * len(children)
    entries, body = b"", b""
    for key in keys:
        entries += struct.pack(form, head + len(body)) + struct.pack("<H", len(key))
        body += key
    for kind, data in children:
        if kind == 4:
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(form, head + len(body))
            body += data
    kind = (0 if isinstance(value, dict) else 2) + large
    return kind, struct.pack(form, len(children)) + struct.pack(form, head + len(body)) + entries + body


def document(value: Any, *, large: bool = False) -> bytes:
    kind, data = encode(value, large=large)
    return bytes([kind]) + data


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20), st.text('\x00\x08\t\n\x0b\x0c\r\x1f"\\/', max_size=10),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda child: st.lists(child, max_size=5) | st.dictionaries(st.text(max_size=9), child, max_size=5),
    max_leaves=30,
)


@given(st.lists(VALUES, max_size=5), st.booleans())
def test_documents_print_as_json_of_the_same_value(values: list[Any], large: bool) -> None:
    texts = decode(JSON, "log", *(document(value, large=large) for value in values), None)
    assert texts.pop() is None
    assert [json.loads(text) for text in texts] == values
    assert decode(JSON, "text", *(text.encode() for text in texts)) == texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, -2, {}], "b": None}, '{"a": [1, -2, {}], "b": null}'),
        ([], "[]"),
        ('\x01\n\x7f"\\/', '"\\u0001\\n\x7f\\"\\\\/"'),
        (1.0, "1.0"), (-0.0, "-0.0"), (1e30, "1e30"), (1e15, "1e15"), (1e14, "100000000000000.0"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"), (9007199254740992.0, "9.007199254740992e15"), (1234567890123456.8, "1234567890123456.8"),
        (-1.2345678901234568e-300, "-1.2345678901234568e-300"), (5e-324, "5e-324"), (0.1, "0.1"),
    ],
)  # fmt: skip
def test_mysqls_normal_form(value: Any, text: str) -> None:
    assert decode(JSON, "log", document(value)) == [text]


def test_forms_of_the_server() -> None:
    """SELECT and log bytes of: [65535, -32768], JSON_ARRAY(1.50, DATE'2015-01-15', TIME'-23:24:25.5', x'00ff'), ''."""
    assert decode(
        JSON,
        "log",
        bytes.fromhex("02 0200 0a00 06 ffff 05 0080"),
        bytes.fromhex("02 0100 0d00 0f 0700 f6 04 0302 8132"),
        bytes.fromhex("0f 0a 08 00000000001e9519"),
        bytes.fromhex("0f0b08e05ef8e689feffff"),
        bytes.fromhex("0f0f0200ff"),
        b"",
    ) == ["[65535, -32768]", "[1.50]", '"2015-01-15"', '"-23:24:25.500000"', '"base64:type15:AP8="', "null"]


def test_a_hundred_levels_and_no_more() -> None:
    value: Any = []
    for _ in range(99):
        value = [value]
    assert decode(JSON, "log", document(value)) == ["[" * 100 + "]" * 100]
    with pytest.raises(DecodeError):
        decode(JSON, "log", document([value]))


def test_large_documents() -> None:
    value = {f"key {number}": [number / 2, "x" * 50, number] for number in range(5000)}
    assert json.loads(decode(JSON, "log", document(value, large=True))[0]) == value


BROKEN = [
    b"\x0d", b"\x00", b"\x02\x01\x00", b"\x02\xff\xff\x04\x00", b"\x02\x00\x00\xff\x00", b"\x04\x03", b"\x05\x01",
    b"\x0b123",
    b"\x0c\x05ab", b"\x0c\xff\xff\xff\xff\xff", b"\x0f", b"\x0f\xf6\x02\x03\x02", b"\x0f\x0c\x07aaaaaaa", b"\x0c",
    b"\x0b" + struct.pack("<d", float("nan")), b"\x0b" + struct.pack("<d", float("-inf")),
    bytes.fromhex("02 0100 0700 02 0000"), bytes.fromhex("02 0100 0700 0c 0700"),
    bytes.fromhex("03 01000000 09000000 0c ffffffff"),
]  # fmt: skip


@pytest.mark.parametrize("value", BROKEN)
def test_broken_documents_are_refused(value: bytes) -> None:
    with pytest.raises(DecodeError, match="JSON") as caught:
        decode(JSON, "log", document([1]), value)
    assert (caught.value.table, caught.value.column) == ("d.t", "c")


@given(VALUES, st.booleans(), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_text_or_a_decode_error(value: Any, large: bool, changes: list[tuple[int, int]]) -> None:
    data = bytearray(document(value, large=large))
    for place, byte in changes:
        data[place % len(data)] = byte
    same_whatever_is_around(JSON, "log", bytes(data))


@given(st.binary(max_size=40))
def test_any_bytes_give_text_or_a_decode_error(value: bytes) -> None:
    same_whatever_is_around(JSON, "log", value)


def test_opaque_strings_print_as_strings() -> None:
    """Opaque values of type VAR_STRING; others are Base64, and so are those that are no text."""
    array = bytes.fromhex("02 0200 1600 0f 0a00 0f 1000") + b'\xfd\x04\0a\0"' + b'\xfe\x04\0a\0"'
    assert decode(JSON, "log", array) == ['["\\u0000a\\u0000\\"", "base64:type254:AGEAIg=="]']
    assert decode(JSON, "log", b"\x0f\xfd\x02\0\xe9") == ['"base64:type253:AOk="']

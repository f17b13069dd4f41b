"""Events parsed in Python: known layouts, and nothing but our error for damaged bytes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.binlog import (
    LAYOUT_FIXED,
    Cursor,
    GtidEvent,
    Query,
    Segment,
    codes,
    gtid_events,
    log_layout,
    parse_format_description,
    parse_query,
    parse_table_map,
    real_type,
)
from headgate.binlog._events import parse_heartbeat, parse_payload, parse_rotate
from headgate.binlog._layout import LAYOUT_PREFIX, decimal_size
from headgate.errors import DecodeError, HeadgateError
from headgate.gtid import Gtid
from headgate_testing._binlog import BinlogWriter, packed


def body_of(event: bytes) -> bytes:
    return event[codes.HEADER_SIZE : -codes.CRC_SIZE]


@given(st.integers(0, 2**64 - 1))
def test_length_encoded_integers(value: int) -> None:
    cursor = Cursor(packed(value) + b"x")
    assert cursor.packed() == value
    assert cursor.rest() == b"x"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0),
        (b"\x02", 1),
        (b"\xfe", 127),
        (b"\x01\x02", 128),
        (b"\xfd\xff", 16383),
        (b"\x03\x00\x02", 16384),
        (b"\xff" * 9, 2**64 - 1),
    ],
)
def test_serialization_varints(data: bytes, value: int) -> None:
    """The trailing 1-bits of the first byte count the bytes that follow."""
    cursor = Cursor(data)
    assert cursor.varint() == value
    assert cursor.left == 0


def test_a_rotate_event_to_nowhere_is_refused() -> None:
    assert parse_rotate(b"\x04" + bytes(7) + b"b.000001") == ("b.000001", 4)
    with pytest.raises(DecodeError):
        parse_rotate(b"\xff" * 8 + b"b.000001")


def test_a_query_event() -> None:
    query = parse_query(body_of(BinlogWriter().query("ALTER TABLE `t` ADD x INT", "shop", sql_mode=4)))
    assert query == ("shop", b"ALTER TABLE `t` ADD x INT", 4, 255, None, False, 1)
    query = parse_query(body_of(BinlogWriter().query("ы".encode("cp1251"), collation=51)))
    assert query == ("", b"\xfb", 0, 51, None, False, 1)


@pytest.mark.parametrize(
    ("databases", "read"),
    [
        (["shop"], ("shop",)),
        (["b", "таблица", "a"], ("b", "таблица", "a")),
        ([f"d{number}" for number in range(16)], tuple(f"d{number}" for number in range(16))),
        ([f"d{number}" for number in range(17)], None),
        (254, None),
        (0, None),
        (["", "shop"], None),  # a foreign key refers to a table, and another one was opened after that was seen
        (None, None),
    ],
)
@pytest.mark.parametrize("load_data", [False, True])
def test_databases_of_a_query_event(
    databases: list[str] | int | None, read: tuple[str, ...] | None, load_data: bool
) -> None:
    event = BinlogWriter().query("UPDATE t SET v = 1", "shop", databases=databases, load_data=load_data)
    query = parse_query(body_of(event), load_data=load_data)
    assert (query.db, query.statement, query.databases) == ("shop", b"UPDATE t SET v = 1", read)


def query_with(status: bytes) -> Query:
    head = (42).to_bytes(4, "little") + bytes(4) + b"\1\0\0" + len(status).to_bytes(2, "little")
    return parse_query(head + status + b"d\0SELECT 1")


def test_status_variables_in_front_of_the_databases() -> None:
    """Every one that a server writes in front of them; behind one that is unknown nothing can be read."""
    known = (
        b"\0abcd" b"\1\4\0\0\0\0\0\0\0" b"\6\3std" b"\3\1\0\2\0" b"\4\xff\0\x21\0\x08\0" b"\5\6SYSTEM" b"\7\1\0"
        b"\x08\xff\0" b"\x09\1\0\0\0\0\0\0\0" b"\x0a\1\2\3\4" b"\x0b\4root\x09localhost"
    )  # fmt: skip
    databases = b"\x0c\1shop\0"
    assert query_with(known + databases + b"\x0d\1\2\3") == ("d", b"SELECT 1", 4, 255, ("shop",), False, 42)
    assert query_with(known + b"\x63\0\0" + databases) == ("d", b"SELECT 1", 4, 255, None, False, 42)
    with pytest.raises(DecodeError):
        query_with(databases[:-1])


def test_an_atomic_statement() -> None:
    atomic = b"\x11" + bytes(8)
    for before in (b"", b"\x0c\1shop\0", b"\x0c\xfe", b"\x0d\1\2\3\x10\1"):
        assert query_with(before + atomic + b"\x12\xff\0").is_atomic
        assert not query_with(before + b"\x12\xff\0" + atomic).is_atomic


def test_a_tagged_gtid_event() -> None:
    """Fields as MySQL 9.7 writes them: flags, UUID bytes, number, tag, logical clocks, commit times."""

    def varint(value: int) -> bytes:
        size = max(1, -(-value.bit_length() // 7))
        if size > 8:
            return b"\xff" + value.to_bytes(8, "little")
        return ((value << size) | ((1 << (size - 1)) - 1)).to_bytes(size, "little")

    sid = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
    fields = varint(0) + varint(1)
    fields += varint(1) + b"".join(varint(byte) for byte in sid.bytes)
    fields += varint(2) + varint(77 << 1)
    fields += varint(3) + varint(3) + b"tag"
    fields += varint(4) + varint(10 << 1) + varint(5) + varint(11 << 1)
    fields += varint(6) + varint(1_700_000_000_123_456)
    head = varint(1) + varint(99) + varint(0)
    (event,) = begins(codes.GTID_TAGGED, head + fields)
    assert event == (Gtid(sid.bytes, "tag", 77), 1_700_000_000_123_456, 120, True)
    for original_us, *expected in ((5, 5, True), (0, 1_700_000_000_123_456, False)):
        (event,) = begins(codes.GTID_TAGGED, head + fields + varint(7) + varint(original_us))
        assert [event.commit_us, event.is_original] == expected


def segment_of(*events: bytes) -> Segment:
    """A segment of whole events without checksums, the first one at position 120."""
    ends = np.cumsum([len(event) for event in events])
    starts = ends - [len(event) for event in events]
    return Segment("binlog.000001", np.frombuffer(b"".join(events), np.uint8), starts, ends, starts + 120, ends + 120)


def begins(kind: int, body: bytes) -> list[GtidEvent]:
    return list(gtid_events(segment_of(BinlogWriter().event(kind, body)[: -codes.CRC_SIZE])))


def test_begins_of_transactions() -> None:
    """Each kind, between other events, with each form of its commit time."""
    writer, sid = BinlogWriter(), uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
    writer.timestamp = 1_600_000_000
    events = [
        writer.gtid(str(sid), 7, commit_us=1000),
        writer.query("BEGIN"),
        writer.xid(),
        writer.gtid(str(sid), 8, commit_us=1000, original_us=900),
        writer.gtid(str(sid), 9, commit_us=1000, original_us=0),
        writer.event(codes.GTID, b"\0" + sid.bytes + (10).to_bytes(8, "little")),
        writer.event(codes.ANONYMOUS_GTID, bytes(42) + (1000).to_bytes(7, "little")),
    ]
    segment = segment_of(*(event[: -codes.CRC_SIZE] for event in events))
    at = segment.pos.tolist()
    assert list(gtid_events(segment)) == [
        GtidEvent(Gtid(sid.bytes, "", 7), 1000, at[0]),
        GtidEvent(Gtid(sid.bytes, "", 8), 900, at[3]),
        GtidEvent(Gtid(sid.bytes, "", 9), 1000, at[4], False),
        GtidEvent(Gtid(sid.bytes, "", 10), 1_600_000_000_000_000, at[5]),
        GtidEvent(None, 1000, at[6]),
    ]
    with pytest.raises(DecodeError, match="only 24 bytes"):
        begins(codes.GTID, bytes(24))


def optional(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + packed(len(value)) + value


def test_a_table_map_with_full_metadata() -> None:
    types = [codes.T_LONG, codes.T_VARCHAR, codes.T_STRING, codes.T_LONGLONG, codes.T_NEWDECIMAL]
    metas = bytes([200, 0, codes.T_ENUM, 1, 10, 2])
    names = b"".join(packed(len(n)) + n for n in (b"id", b"name", "größe".encode(), b"big", b"d"))
    extra = (
        optional(1, bytes([0b01000000]))
        + optional(2, packed(255))
        + optional(10, packed(8))
        + optional(4, names)
        + optional(6, packed(2) + packed(1) + b"a" + packed(1) + b"b")
        + optional(8, packed(0) + packed(3))
        + optional(12, bytes([0b11101000]))
    )
    event = BinlogWriter().table_map(7, "shop", "t", types, metas, nullable=b"\x02", optional=extra)
    table = parse_table_map(body_of(event))
    assert (table.table_id, table.db, table.table) == (7, "shop", "t")
    assert table.metas == (0, 200, codes.T_ENUM | 1 << 8, 0, 10 | 2 << 8)
    assert table.nullable == (False, True, False, False, False)
    assert table.unsigned == (False, False, False, True, False)
    assert table.charsets == (0, 255, 8, 0, 0)
    assert table.names == ("id", "name", "größe", "big", "d")
    assert table.members == ((), (), (b"a", b"b"), (), ())
    assert table.primary_key == (0, 3)
    assert table.visible == (True, True, True, False, True)


def test_key_columns_with_prefixes_keep_their_indexes() -> None:
    event = BinlogWriter().table_map(
        7, "a", "b", [codes.T_LONG, codes.T_BLOB], b"\x02", optional=optional(9, packed(1) + packed(10))
    )
    assert parse_table_map(body_of(event)).primary_key == (1,)
    bad = BinlogWriter().table_map(7, "a", "b", [codes.T_LONG], b"", optional=optional(8, packed(3)))
    with pytest.raises(DecodeError):
        parse_table_map(body_of(bad))


@pytest.mark.parametrize(
    ("kind", "meta", "layout"),
    [
        (codes.T_TINY, 0, (LAYOUT_FIXED, 1)), (codes.T_INT24, 0, (LAYOUT_FIXED, 3)),
        (codes.T_YEAR, 0, (LAYOUT_FIXED, 1)),
        (codes.T_DATE, 0, (LAYOUT_FIXED, 3)), (codes.T_TIME2, 0, (LAYOUT_FIXED, 3)),
        (codes.T_TIME2, 5, (LAYOUT_FIXED, 6)),
        (codes.T_DATETIME2, 6, (LAYOUT_FIXED, 8)), (codes.T_TIMESTAMP2, 3, (LAYOUT_FIXED, 6)),
        (codes.T_NEWDECIMAL, 12 | 2 << 8, (LAYOUT_FIXED, 6)), (codes.T_NEWDECIMAL, 65 | 30 << 8, (LAYOUT_FIXED, 30)),
        (codes.T_BIT, 3 | 1 << 8, (LAYOUT_FIXED, 2)), (codes.T_BIT, 8 << 8, (LAYOUT_FIXED, 8)),
        (codes.T_VARCHAR, 255, (LAYOUT_PREFIX, 1)), (codes.T_VARCHAR, 256, (LAYOUT_PREFIX, 2)),
        (codes.T_STRING, codes.T_ENUM | 2 << 8, (LAYOUT_FIXED, 2)),
        (codes.T_STRING, codes.T_SET | 8 << 8, (LAYOUT_FIXED, 8)),
        (codes.T_STRING, codes.T_STRING | 40 << 8, (LAYOUT_PREFIX, 1)),
        (codes.T_STRING, 0xCE | 0xFC << 8, (LAYOUT_PREFIX, 2)),
        (codes.T_BLOB, 3, (LAYOUT_PREFIX, 3)), (codes.T_JSON, 4, (LAYOUT_PREFIX, 4)),
        (codes.T_VECTOR, 4, (LAYOUT_PREFIX, 4)),
    ],
)  # fmt: skip
def test_layouts(kind: int, meta: int, layout: tuple[int, int]) -> None:
    assert log_layout(kind, meta) == layout


def test_the_length_of_a_long_char_hides_in_its_type_byte() -> None:
    """CHAR(255) in utf8mb4 is 1020 = 0x3FC bytes: two high bits, inverted, in the type byte."""
    assert real_type(codes.T_STRING, 0xCE | 0xFC << 8) == (codes.T_STRING, 0x3FC)


def test_unknown_types_have_no_layout() -> None:
    with pytest.raises(DecodeError):
        log_layout(99, 0)
    with pytest.raises(DecodeError):
        log_layout(codes.T_BLOB, 7)


@given(st.integers(1, 65), st.data())
def test_decimal_sizes_are_monotone(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, min(30, precision)))
    assert 1 <= decimal_size(precision, scale) <= 4 * (precision // 9 + 2)
    assert decimal_size(precision + 1, scale) >= decimal_size(precision, scale)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 6))
def test_any_bytes_give_a_value_or_our_error(data: bytes, which: int) -> None:
    gtids = [partial(begins, kind) for kind in (codes.GTID, codes.GTID_TAGGED)]
    parsers: list[Callable[[bytes], object]] = [parse_query, parse_table_map, parse_payload, parse_rotate]
    parsers += [parse_format_description, *gtids]
    with contextlib.suppress(HeadgateError):
        parsers[which](data)
        parse_heartbeat(codes.HEARTBEAT_V2, data, 0)


@settings(max_examples=300)
@given(st.data())
def test_damaged_table_maps_give_a_value_or_our_error(data: st.DataObject) -> None:
    names = b"".join(packed(2) + n for n in (b"id", b"na"))
    extra = optional(1, b"\x80") + optional(2, packed(255)) + optional(4, names) + optional(8, packed(0))
    event = bytearray(body_of(BinlogWriter().table_map(7, "shop", "t", [3, 15], b"\xc8\x00", optional=extra)))
    for _ in range(data.draw(st.integers(1, 4))):
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(HeadgateError):
        parse_table_map(bytes(event))

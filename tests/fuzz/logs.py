"""Logs for the fuzzer: every event and column type that headgate decodes, as lists of events that it damages."""

from __future__ import annotations

import random
import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import zstandard

from headgate.binlog import codes as c
from headgate_testing._binlog import EOF_PACKET, BinlogWriter, packed, packets
from tests.columns.test_json import document
from tests.columns.test_json_diff import INSERT, REMOVE, REPLACE, difference
from tests.fuzz.mutations import mutate

__all__ = ["SID", "damaged_log", "documents"]

SID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def documents() -> list[bytes]:
    """Binary JSON documents of each type and form."""
    values: list[Any] = [
        None, True, 1, -(2**40), 2**63, 1.5, -1e300, "text", "é" * 90, [], {}, [1, [2, [3, {"a": None}]]],
        {"a": 1, "bc": [True, "x", 70000], "long name": {"b": 2.25}}, list(range(40)),
    ]  # fmt: skip
    made = [document(value, large=large) for value in values for large in (False, True)]
    opaque = [(c.T_NEWDECIMAL, b"\x04\x02\x80\x0c\x22"), (c.T_DATETIME, struct.pack("<q", 1 << 41 | 5)),
              (c.T_DATE, struct.pack("<q", 1 << 45)), (c.T_TIME, struct.pack("<q", -(1 << 30))),
              (253, b"\xff\x00\x80")]  # fmt: skip
    return made + [bytes([15, kind, len(data)]) + data for kind, data in opaque]


_DOCUMENT = document({"a": [1, 2], "b": "x"})
_COLUMNS: list[tuple[int, bytes, bytes]] = [
    (c.T_TINY, b"", b"\xff"), (c.T_SHORT, b"", b"\x01\x80"), (c.T_INT24, b"", b"\1\2\3"),
    (c.T_LONG, b"", b"\1\2\3\xff"), (c.T_LONGLONG, b"", bytes(range(8))), (c.T_FLOAT, b"\4", struct.pack("<f", 1.5)),
    (c.T_DOUBLE, b"\x08", struct.pack("<d", -1e99)), (c.T_NEWDECIMAL, b"\x0a\x02", b"\x80\x00\x04\xd2\x38"),
    (c.T_YEAR, b"", b"\x7b"), (c.T_DATE, b"", struct.pack("<I", 2024 << 9 | 5 << 5 | 6)[:3]),
    (c.T_TIME2, b"\6", b"\x80\x10\x83\x00\x00\x01"), (c.T_DATETIME2, b"\6", b"\x99\xb2\xcc\x08\x83\x00\x00\x01"),
    (c.T_TIMESTAMP2, b"\3", b"\x65\x53\xf1\x00\x04\xd2"), (c.T_VARCHAR, b"\x2c\x01", b"\3\0abc"),
    (c.T_VARCHAR, b"\x5a\0", "\2é".encode()), (c.T_STRING, b"\xfe\x28", b"\2xy"),
    (c.T_STRING, b"\xf7\1", b"\2"), (c.T_STRING, b"\xf8\1", b"\3"), (c.T_BIT, b"\5\1", b"\x1f\xff"),
    (c.T_BLOB, b"\2", b"\4\0blob"), (c.T_JSON, b"\4", struct.pack("<I", len(_DOCUMENT)) + _DOCUMENT),
    (c.T_GEOMETRY, b"\4", struct.pack("<I", 25) + bytes(4) + b"\1" + struct.pack("<Idd", 1, 1.0, 2.0)),
    (c.T_VECTOR, b"\4", struct.pack("<I", 8) + struct.pack("<ff", 1.0, -2.0)),
]  # fmt: skip


def _field(number: int, data: bytes) -> bytes:
    return bytes([number]) + packed(len(data)) + data


def _texts(*values: bytes) -> bytes:
    return b"".join(packed(len(value)) + value for value in values)


_OPTIONAL = b"".join(
    (
        _field(1, b"\x0a\x00"),
        _field(2, packed(255) + packed(4) + packed(63)),
        _field(4, _texts(*(b"c%d" % n for n in range(len(_COLUMNS))))),
        _field(5, packed(2) + _texts(b"x", b"y")),
        _field(6, packed(3) + _texts(b"a", b"b", b"")),
        _field(7, packed(1)),
        _field(8, packed(0)),
        _field(10, packed(255)),
        _field(12, b"\xff\xff\xff"),
        _field(13, packed(2)),
    )
)
_WIDE_TYPES, _WIDE_METAS = [kind for kind, _, _ in _COLUMNS], b"".join(meta for _, meta, _ in _COLUMNS)
_WIDE_NULLS = bytes((len(_COLUMNS) + 7) // 8)
_WIDE_IMAGE = _WIDE_NULLS + b"".join(value for _, _, value in _COLUMNS)
_JSON_NAMES = _field(4, _texts(b"id", b"doc")) + _field(8, packed(0))


def _json_cell(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _number(value: int) -> bytes:
    """A variable-length integer of the serialization library."""
    for extra in range(8):
        if value < 1 << 7 * (extra + 1):
            return (value << (extra + 1) | (1 << extra) - 1).to_bytes(extra + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def _tagged(writer: BinlogWriter, number: int, tag: bytes) -> bytes:
    body = b"\2" + _number(60) + _number(0) + _number(0) + _number(1) + _number(1)
    body += b"".join(_number(byte) for byte in uuid.UUID(SID).bytes) + _number(2) + _number(2 * number)
    body += _number(3) + _number(len(tag)) + tag + _number(4) + _number(0) + _number(5) + _number(2)
    return writer.event(c.GTID_TAGGED, body + _number(6) + _number(1_700_000_000_000_000))


def _previous_gtids() -> bytes:
    return struct.pack("<Q", 1) + uuid.UUID(SID).bytes + struct.pack("<QQQ", 1, 1, 100)


def _wide(writer: BinlogWriter) -> list[bytes]:
    return [
        writer.table_map(7, "d", "wide", _WIDE_TYPES, _WIDE_METAS, optional=_OPTIONAL),
        writer.rows(c.WRITE_ROWS, 7, len(_COLUMNS), _WIDE_IMAGE * 2),
        writer.rows(c.UPDATE_ROWS, 7, len(_COLUMNS), _WIDE_IMAGE * 2),
        writer.rows(c.DELETE_ROWS_V1, 7, len(_COLUMNS), b"\xff" * len(_WIDE_NULLS)),
    ]


def _json(writer: BinlogWriter) -> list[bytes]:
    parts = difference(REPLACE, "$.a[0]", 5) + difference(INSERT, "$.c", [1]) + difference(REMOVE, "$.b")
    before = b"\0" + struct.pack("<i", 1) + _json_cell(_DOCUMENT)
    after = b"\1\1" + b"\0" + struct.pack("<i", 1) + _json_cell(parts)
    return [
        writer.table_map(8, "d", "json", [c.T_LONG, c.T_JSON], b"\4", optional=_JSON_NAMES),
        writer.rows(c.PARTIAL_UPDATE_ROWS, 8, 2, before + after),
        *(writer.rows(c.WRITE_ROWS, 8, 2, b"\0" + struct.pack("<i", n) + _json_cell(one))
          for n, one in enumerate(documents()[:6])),
    ]  # fmt: skip


def _minimal(writer: BinlogWriter) -> list[bytes]:
    """Images that leave columns out."""
    optional = _field(4, _texts(b"a", b"b", b"c")) + _field(8, packed(0)) + _field(2, packed(255))
    return [
        writer.table_map(9, "d", "part", [c.T_TINY, c.T_VARCHAR, c.T_LONGLONG], b"\x2c\x01", optional=optional),
        writer.rows(c.UPDATE_ROWS, 9, 3, b"\0\1" + b"\0\2\0ab", bitmap=b"\1", bitmap2=b"\2"),
        writer.rows(c.DELETE_ROWS, 9, 3, b"\0\1\0\2", bitmap=b"\1"),
    ]


def _statements(writer: BinlogWriter) -> list[bytes]:
    return [
        writer.query("SAVEPOINT a", "d"),
        writer.event(c.ROWS_QUERY, b"\5hello"),
        writer.event(c.IGNORABLE, b"x", flags=c.FLAG_IGNORABLE),
    ]


def _compressed(writer: BinlogWriter) -> list[bytes]:
    inner = BinlogWriter(checksums=False)
    events = [inner.query("BEGIN"), *_wide(inner), *_json(inner), inner.xid()]
    data = b"".join(events)
    kind = writer.pos & 1
    return [writer.payload(events, data if kind else zstandard.compress(data), compression=255 if kind else 0)]


_CHANGES: Sequence[Callable[[BinlogWriter], list[bytes]]] = (_wide, _json, _minimal, _statements)
_DDL = ("CREATE TABLE d.t (a INT PRIMARY KEY)", "ALTER TABLE d.t ADD b INT DEFAULT 5, ALGORITHM=INSTANT",
        "TRUNCATE d.t",
        "DROP TABLE IF EXISTS `d`.`t` /* generated by server */", "RENAME TABLE d.t TO d.u", "DROP DATABASE d",
        "XA START X'61',X'',1", "XA COMMIT X'61',X'',1", "XA ROLLBACK X'61',X'',1", "FLUSH TABLES",
        "INSERT INTO d.t VALUES (1)",
        "CREATE TABLE d.x AS SELECT 1", "ROLLBACK", "GRANT ALL ON *.* TO a")  # fmt: skip


def _transaction(rng: random.Random, writer: BinlogWriter, number: int) -> list[bytes]:
    begin = _tagged(writer, number, b"tag") if rng.random() < 0.3 else writer.gtid(
        SID, number, original_us=5 if rng.random() < 0.2 else None
    )  # fmt: skip
    which = rng.random()
    if which < 0.2:
        return [begin, writer.query(rng.choice(_DDL), "d", databases=["d"], is_atomic=rng.random() < 0.5)]
    if which < 0.35:
        return [begin, *_compressed(writer)]
    if which < 0.45:
        prepare = writer.event(c.XA_PREPARE, bytes([rng.randrange(2)]) + struct.pack("<III", 1, 1, 0) + b"a")
        return [
            begin,
            writer.query("XA START X'61',X'',1"),
            *_minimal(writer),
            writer.query("XA END X'61',X'',1"),
            prepare,
        ]
    changes = [event for one in rng.sample(_CHANGES, rng.choice((1, 1, 2))) for event in one(writer)]
    return [begin, writer.query("BEGIN", "d"), *changes, writer.xid(number)]


def damaged_log(rng: random.Random) -> bytes:
    """Return the packets of a dump: a few transactions, of which some events are damaged, most with a right size and
    checksum.
    """
    writer = BinlogWriter(checksums=rng.random() < 0.9)
    events = [writer.rotate("binlog.000001"), writer.format_description(),
              writer.event(c.PREVIOUS_GTIDS, _previous_gtids())]  # fmt: skip
    for number in range(rng.choice((1, 1, 2, 3))):
        events += _transaction(rng, writer, number + 1)
        if rng.random() < 0.1:
            events.append(writer.heartbeat_v2(writer.pos))
        if rng.random() < 0.1:
            events.append(writer.rotate("binlog.000002", artificial=False))
            events.append(writer.format_description())
    crc = 4 if writer.checksums else 0
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        at = rng.randrange(len(events))
        events[at] = _damaged_event(rng, events, at, crc)
    if rng.random() < 0.15:
        _reorder(rng, events)
    data = packets(events) + (EOF_PACKET if rng.random() < 0.5 else b"")
    return mutate(rng, data) if rng.random() < 0.05 else data


def _damaged_event(rng: random.Random, events: list[bytes], at: int, crc: int) -> bytes:
    event = events[at]
    head, body = event[: c.HEADER_SIZE], event[c.HEADER_SIZE : len(event) - crc]
    others = [one[c.HEADER_SIZE : len(one) - crc] for one in events]
    if event[4] == c.TRANSACTION_PAYLOAD and rng.random() < 0.6:
        body = _damaged_payload(rng, body)
    elif rng.random() < 0.85:
        # The beginning of a body has what the rest depends on.
        cut = min(len(body), rng.choice((24, 80, 1 << 20)))
        body = mutate(rng, body[:cut], others) + body[cut:]
    else:
        head = mutate(rng, head)[: c.HEADER_SIZE].ljust(c.HEADER_SIZE, b"\0")
    if rng.random() < 0.97:
        size = len(head) + len(body) + crc
        head = head[:9] + struct.pack("<I", size) + head[13:]
    made = head + body
    return made + (struct.pack("<I", zlib.crc32(made)) if crc else b"")


def _damaged_payload(rng: random.Random, body: bytes) -> bytes:
    """Damage events inside a compressed transaction, which has no checksums."""
    at = body.find(b"\x28\xb5\x2f\xfd")
    try:
        plain = zstandard.decompress(body[at:], max_output_size=1 << 20) if at >= 0 else body[-1200:]
    except zstandard.ZstdError:  # the event was damaged before
        return mutate(rng, body)
    events, p = [], 0
    while p + c.HEADER_SIZE <= len(plain) and at >= 0:
        size = int.from_bytes(plain[p + 9 : p + 13], "little")
        events.append(plain[p : p + size])
        p += size
    if not events:
        return mutate(rng, body)
    index = rng.randrange(len(events))
    events[index] = _damaged_event(rng, events, index, 0)
    data = b"".join(events)
    packed_data = zstandard.compress(data)
    head = b"".join(_field(number, packed(value)) for number, value in ((2, 0), (3, len(data)), (1, len(packed_data))))
    return (mutate(rng, head) if rng.random() < 0.2 else head) + b"\0" + packed_data


def _reorder(rng: random.Random, events: list[bytes]) -> None:
    at = rng.randrange(len(events))
    match rng.randrange(3):
        case 0:
            events.insert(rng.randrange(len(events)), events[at])
        case 1:
            del events[at]
        case _:
            events.insert(rng.randrange(len(events)), events.pop(at))

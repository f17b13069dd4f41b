"""Framing: the same events come out whatever the pieces the bytes arrive in, or an error of ours does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.binlog import EndOfLog, ErrorPacket, Framer, LogPosition, Segment, codes
from headgate.errors import ChecksumError, DecodeError, HeadgateError
from headgate_testing._binlog import EOF_PACKET, BinlogWriter, packets

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def make_log(*, checksums: bool = True) -> list[bytes]:
    writer = BinlogWriter(checksums=checksums)
    events = [writer.rotate("binlog.000001"), writer.format_description()]
    for number in range(1, 4):
        events += [writer.gtid(UUID, number), writer.query("BEGIN"), writer.xid(number)]
    return [*events, writer.heartbeat(writer.pos)]


def feed(data: bytes, step: int | None = None, *, checksums: bool = True, canary: bytes = b"") -> list[Any]:
    """Items with a segment's events as tuples, the bytes arriving ``step`` at a time.

    :param canary: what lies before the buffer's first byte and behind its last; it must stay as it is.
    """
    around = np.frombuffer(canary + data + canary, np.uint8).copy()
    try:
        return feed_buffer(around[len(canary) :], data, step, Framer(checksums=checksums))
    finally:
        assert around[: len(canary)].tobytes() == around[len(canary) + len(data) :].tobytes() == canary


def feed_buffer(buf: np.ndarray[Any, Any], data: bytes, step: int | None, framer: Framer) -> list[Any]:
    out: list[Any] = []
    start, end = 0, 0
    while True:
        item, start = framer.next(buf, start, end)
        if item is None:
            if end == len(data):
                return out
            end = min(len(data), end + (step or len(data)))
        elif isinstance(item, Segment):
            out += [
                (item.file, item.buf[s:e].tobytes(), int(p), int(n))
                for s, e, p, n in zip(item.start, item.end, item.pos, item.next_pos, strict=True)
            ]
        else:
            out.append(item)


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("step", [None, 1, 7, 64])
def test_events_do_not_depend_on_the_pieces_they_arrive_in(checksums: bool, step: int | None) -> None:
    log = make_log(checksums=checksums)
    items = feed(packets(log) + EOF_PACKET, step, checksums=checksums)
    events = [item for item in items if isinstance(item, tuple) and not isinstance(item, LogPosition | EndOfLog)]
    tail = 4 if checksums else 0
    assert [event[1] for event in events] == [event[: len(event) - tail] for event in log[2:-1]]
    assert isinstance(items[-1], EndOfLog)
    assert items[0] == LogPosition("binlog.000001", 4)
    assert items[-2] == LogPosition("binlog.000001", events[-1][3])


def test_positions_follow_one_another() -> None:
    events = [item for item in feed(packets(make_log())) if not isinstance(item, LogPosition)]
    for before, after in itertools.pairwise(events):
        assert before[3] == after[2]
        assert after[3] - after[2] == len(after[1]) + 4


def test_positions_go_on_beyond_four_gibibytes() -> None:
    writer = BinlogWriter(pos=(1 << 32) - 100)
    log = [writer.rotate("binlog.000009", (1 << 32) - 100), *(writer.xid(i) for i in range(10))]
    events = [item for item in feed(packets(log)) if not isinstance(item, LogPosition)]
    assert [event[2] for event in events] == [(1 << 32) - 100 + 31 * i for i in range(10)]


GIB = 1 << 30


@pytest.mark.parametrize("begin", [4, 3 * GIB, 9 * GIB])
@pytest.mark.parametrize("gap", [0, 5 * GIB, 4 * GIB, 17 * GIB])
@pytest.mark.parametrize("large", [False, True], ids=["small", "joined from packets"])
def test_positions_behind_a_skipped_transaction(begin: int, gap: int, large: bool) -> None:
    """The low bits alone do not show how much was skipped."""
    writer = BinlogWriter(pos=begin)
    log = [writer.rotate("binlog.000009", begin), writer.xid(1)]
    behind = writer.pos + gap
    log.append(writer.heartbeat_v2(behind))
    body = bytes(1 << 24) if large else b""
    log += [writer.event(codes.IGNORABLE, body), writer.heartbeat_v2(writer.pos), writer.xid(2)]
    items = feed(packets(log))
    events = [item for item in items if not isinstance(item, LogPosition)]
    assert [event[2] for event in events] == [begin, behind, behind + 23 + len(body)]
    assert [item.pos for item in items if isinstance(item, LogPosition)] == [begin, behind, behind + 23 + len(body)]


def test_old_heartbeats_carry_as_events_do() -> None:
    """Servers before 8.0.26 have no others; without a gap of 4 GiB the low bits are enough."""
    writer = BinlogWriter(pos=3 * GIB)
    log = [writer.rotate("binlog.000009", 3 * GIB), writer.heartbeat(5 * GIB)]
    writer.pos = 5 * GIB
    items = feed(packets([*log, writer.xid()]))
    assert items[-2] == LogPosition("binlog.000009", 5 * GIB)
    assert items[-1][2] == 5 * GIB


def test_an_event_longer_than_a_packet_is_joined() -> None:
    writer = BinlogWriter()
    body = bytes(range(256)) * ((1 << 24) // 256 + 3)
    log = [writer.rotate("binlog.000001"), writer.event(codes.IGNORABLE, body), writer.xid()]
    for step in (None, 5_000_000):
        events = [item for item in feed(packets(log), step) if not isinstance(item, LogPosition)]
        assert events[0][1][codes.HEADER_SIZE :] == body
        assert events[1][2] == events[0][3]


def test_a_flipped_bit_is_found() -> None:
    log = make_log()
    for position in (0, 5, 25, len(log[3]) - 1):
        damaged = bytearray(log[3])
        damaged[position] ^= 4
        with pytest.raises(DecodeError):
            feed(packets([*log[:3], bytes(damaged), *log[4:]]))
    damaged = bytearray(log[3])
    damaged[-1] ^= 1
    with pytest.raises(ChecksumError) as caught:
        feed(packets([*log[:3], bytes(damaged)]))
    assert caught.value.file == "binlog.000001"


def test_an_error_packet_is_handed_on() -> None:
    message = b"\xd4\x04#HY000no such log"
    packet = (len(message) + 1).to_bytes(3, "little") + b"\x05\xff" + message
    assert feed(packets(make_log()) + packet)[-1] == ErrorPacket(message)


def inner_events() -> list[bytes]:
    inner = BinlogWriter(checksums=False, pos=0)
    return [inner.query("BEGIN"), inner.query("x" * 5000), inner.xid(9)]


@pytest.mark.parametrize("compression", [0, 255])
def test_compressed_transactions_are_opened_in_place(compression: int) -> None:
    inside = inner_events()
    data = b"".join(inside)
    stored = zstandard.ZstdCompressor(write_content_size=False).compress(data) if compression == 0 else data
    writer = BinlogWriter()
    log = [writer.rotate("binlog.000001"), writer.gtid(UUID, 1)]
    at = writer.pos
    log += [
        writer.payload(inside, stored, compression=compression),
        writer.gtid(UUID, 2),
        writer.payload(inside, stored, compression=compression),
    ]
    events = [item for item in feed(packets(log)) if not isinstance(item, LogPosition)]
    assert [event[1] for event in events[1:4]] == inside
    assert [event[1] for event in events[5:8]] == inside
    assert {event[2] for event in events[1:4]} == {at}
    assert len(events) == 8


def test_a_compressed_transaction_of_the_wrong_size_is_refused() -> None:
    inside = inner_events()
    stored = zstandard.ZstdCompressor().compress(b"".join(inside))
    for size, data in ((10, stored), (1 << 20, stored), (None, stored[:-3]), (None, b"garbage")):
        writer = BinlogWriter()
        with pytest.raises(DecodeError):
            feed(packets([writer.rotate("b.1"), writer.payload(inside, data, size=size)]))


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_give_events_or_our_error(data: st.DataObject) -> None:
    """A valid item or one of our errors, whatever the bytes, and the same whatever lies around them."""
    checksums = data.draw(st.booleans())
    stream = bytearray(packets(make_log(checksums=checksums)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(stream)))
    step = data.draw(st.sampled_from([None, 1, 13]))

    def outcome(canary: bytes) -> Any:
        try:
            return feed(bytes(stream[:cut]), step, checksums=checksums, canary=canary)
        except HeadgateError as error:
            return str(error)

    assert outcome(b"\xee" * 64) == outcome(b"\x01" * 64)


@pytest.mark.parametrize(
    "event",
    [
        BinlogWriter().rotate("binlog.100001000001"),
        BinlogWriter().rotate("x" * 600),
        BinlogWriter().rotate("binlog.2147483648", artificial=False),
        BinlogWriter("binlog.4294967296").heartbeat(5),
        BinlogWriter().heartbeat_v2(1 << 63),
    ],
    ids=["rotate", "long name", "large number", "heartbeat's file", "heartbeat's position"],
)
def test_files_and_positions_that_no_server_has(event: bytes) -> None:
    with pytest.raises(DecodeError, match="which no"):
        feed(packets([event]))


@pytest.mark.parametrize("size", [(1 << 40), (1 << 63), (1 << 64) - 1])
def test_a_payload_takes_the_memory_of_its_data_alone(size: int) -> None:
    """Its header's size would be more memory than there is, or no size at all."""
    writer = BinlogWriter()
    payload = writer.payload([], zstandard.compress(bytes(1000)), size=size)
    with pytest.raises(DecodeError, match="holds 1000 bytes"):
        feed(packets([writer.rotate("binlog.000001"), payload]))

"""The walk over result sets: every framing case whole, byte by byte and in odd pieces; nonsense never gets through."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import AccessError, ConnectionLostError, HeadgateError, ProtocolError, ServerError
from headgate.kernels import RowBlock
from headgate.mysql import ByteStream, Connection, select_blocks

Row = Sequence[bytes | None]
EOF = b"\xfe\x00\x00\x02\x00"


def packed(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    if value < 1 << 16:
        return b"\xfc" + struct.pack("<H", value)
    if value < 1 << 24:
        return b"\xfd" + struct.pack("<I", value)[:3]
    return b"\xfe" + struct.pack("<Q", value)


def cell(value: bytes | None) -> bytes:
    return b"\xfb" if value is None else packed(len(value)) + value


def packets(payloads: Sequence[bytes], first: int = 1) -> bytes:
    """Payloads as packets, split at 16 MiB - 1 as a server does."""
    out, number = [], first
    for payload in payloads:
        rest = payload
        while True:
            piece, rest = rest[:0xFFFFFF], rest[0xFFFFFF:]
            out.append(len(piece).to_bytes(3, "little") + bytes([number & 255]) + piece)
            number += 1
            if len(piece) < 0xFFFFFF:
                break
    return b"".join(out)


def result(columns: int, rows: Sequence[Row], last: bytes = EOF) -> bytes:
    head = [packed(columns), *[b"\x03def" + bytes([i & 255]) for i in range(columns)], EOF]
    return packets([*head, *[b"".join(map(cell, row)) for row in rows], last])


class Pieces:
    """A socket that delivers bytes in pieces of given sizes, the last one again and again, and then ends."""

    def __init__(self, data: bytes, sizes: Sequence[int] = (1 << 30,)) -> None:
        self.data, self.at, self.sizes = data, 0, list(sizes)

    def recv_into(self, view: memoryview) -> int:
        size = self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0]
        piece = self.data[self.at : self.at + min(size, len(view))]
        view[: len(piece)] = piece
        self.at += len(piece)
        return len(piece)


class FakeConnection:
    """Answers a query with prepared bytes."""

    def __init__(
        self, data: bytes, sizes: Sequence[int] = (1 << 30,), room: int = 1 << 16, canary: int | None = None
    ) -> None:
        """:param canary: what each byte of the buffer is before anything has arrived; None: what is there."""
        self.socket = Pieces(data, sizes)
        self.room = room
        self.canary = canary
        self.is_finished = self.is_closed = False
        self.warnings = 0

    def command(self, code: int, payload: bytes) -> ByteStream:
        assert (code, payload) == (3, b"SELECT")
        stream = ByteStream(cast("Any", self.socket), room=self.room)
        if self.canary is not None:
            stream.buf.fill(self.canary)
        return stream

    def finished(self, warnings: int = 0) -> None:
        self.is_finished, self.warnings = True, warnings

    def close(self) -> None:
        self.is_closed = True


def blocks(connection: FakeConnection, rows: int = 65536) -> Iterator[RowBlock]:
    return select_blocks(cast("Connection", connection), "SELECT", rows=rows)


def values(row_blocks: Sequence[RowBlock]) -> list[list[bytes | None]]:
    rows = []
    for block in row_blocks:
        assert 0 < block.rows <= block.offset.shape[1]
        for row in range(block.rows):
            cells: list[bytes | None] = []
            for column in range(block.offset.shape[0]):
                begin, size = int(block.offset[column, row]), int(block.length[column, row])
                if block.valid[column, row]:
                    assert 0 <= begin <= begin + size <= len(block.buf)
                    cells.append(block.buf[begin : begin + size].tobytes())
                else:
                    assert (begin, size) == (0, 0)
                    cells.append(None)
            rows.append(cells)
    return rows


CASES: dict[str, tuple[int, list[Row]]] = {
    "no rows": (3, []),
    "one": (1, [[b"1"]]),
    "empty and null": (3, [[b"", None, b"x"], [None, None, None], [b"", b"", b""]]),
    "a null alone looks like nothing else": (1, [[None], [b""], [None]]),
    "a value as long as each length form": (
        2,
        [[b"a" * size, b"z"] for size in (250, 251, 252, 253, 254, 255, 65535, 65536)],
    ),
    "more columns than one byte counts": (300, [[b"%d" % i for i in range(300)]]),
    "more rows than sequence numbers": (2, [[b"%d" % i, None] for i in range(1000)]),
    "a row of nulls as long as the end": (5, [[None] * 5, [b"abc", None, None, None, None]]),
}


@pytest.mark.parametrize("sizes", [[1 << 30], [1], [3], [7, 1, 100]], ids=["whole", "bytes", "threes", "mixed"])
@pytest.mark.parametrize("name", CASES)
def test_every_framing_case(name: str, sizes: list[int]) -> None:
    columns, rows = CASES[name]
    connection = FakeConnection(result(columns, rows), sizes)
    assert values(list(blocks(connection))) == [list(row) for row in rows]
    assert connection.is_finished
    assert not connection.is_closed


@settings(max_examples=200)
@given(data=st.data())
def test_rows_survive_any_pieces_any_buffer_and_any_block_size(data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, 5))
    value = st.none() | st.binary(max_size=20) | st.integers(0, 300).map(lambda size: b"\xfe" * size)
    rows = data.draw(st.lists(st.lists(value, min_size=columns, max_size=columns), max_size=30))
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=10))
    connection = FakeConnection(result(columns, rows), sizes, room=data.draw(st.integers(8, 2000)))
    most = data.draw(st.integers(1, 40))
    row_blocks = list(blocks(connection, most))
    assert values(row_blocks) == rows
    assert all(block.rows <= most for block in row_blocks)


def test_blocks_stay_valid_while_later_ones_are_read() -> None:
    rows = [[b"%d" % i, b"x" * (i % 50)] for i in range(3000)]
    kept = list(blocks(FakeConnection(result(2, rows), [700], room=1000), rows=64))
    assert len(kept) > 40
    assert values(kept) == rows


@pytest.mark.parametrize("extra", [-1, 0, 1, 0xFFFFFF], ids=str)
def test_a_row_over_16_mib_is_joined(extra: int) -> None:
    """Around the packet limit: a row of exactly 16 MiB - 1 bytes is followed by an empty packet."""
    size = 0xFFFFFF + extra - 4 - 2
    big = np.random.default_rng(extra & 7).integers(0, 256, size, np.uint8).tobytes()
    rows: list[Row] = [[b"1", b"a"], [b"2", big], [b"3", None]]
    connection = FakeConnection(result(2, rows), [1 << 20, 100_003])
    assert values(list(blocks(connection))) == [list(row) for row in rows]
    assert connection.is_finished


def test_an_error_before_the_first_row_is_the_servers() -> None:
    connection = FakeConnection(packets([b"\xff\x76\x04#42000SELECT command\n denied"]))
    with pytest.raises(AccessError, match=r"SELECT command denied: grant") as caught:
        list(blocks(connection))
    assert caught.value.code == 1142
    assert connection.is_finished


def test_an_error_after_some_rows_comes_after_them() -> None:
    connection = FakeConnection(result(1, [[b"1"], [b"2"]], last=b"\xff\x25\x05#70100interrupted"))
    row_blocks: list[RowBlock] = []
    with pytest.raises(ServerError, match="interrupted") as caught:
        row_blocks.extend(blocks(connection))  # extend keeps what came before the error
    assert (caught.value.code, caught.value.sqlstate) == (1317, "70100")
    assert values(row_blocks) == [[b"1"], [b"2"]]
    assert connection.is_finished


def test_the_warnings_of_an_answer_are_counted_from_its_last_packet() -> None:
    connection = FakeConnection(result(1, [[b"1"]], last=b"\xfe\x02\x01\x02\x00"), [1])
    assert values(list(blocks(connection))) == [[b"1"]]
    assert connection.warnings == 0x102


def test_an_iteration_that_is_left_closes_the_connection() -> None:
    connection = FakeConnection(result(1, [[b"1"]] * 100))
    iterator = blocks(connection, rows=1)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert connection.is_closed
    assert not connection.is_finished


def test_a_statement_without_rows_is_refused() -> None:
    connection = FakeConnection(packets([b"\x00\x00\x00\x02\x00\x00\x00"]))
    with pytest.raises(ProtocolError, match="returns no rows"):
        list(blocks(connection))
    assert connection.is_closed


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\x01",
        b"\x02a",
        b"\x01ab",
        b"\xfc\x01",
        b"\xfd\x01\x00",
        b"\xfe" + b"\xff" * 8 + b"x",
        b"\xfe" + b"\x00" * 7,
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fab",
        b"\x01a\x01a",
        b"\x01a\xfb",
    ],
    ids=lambda row: row.hex(),
)
def test_a_row_that_does_not_fit_its_packet_is_refused(row: bytes) -> None:
    end = row[:1] == b"\xfe" and len(row) < 9
    connection = FakeConnection(packets([b"\x01", b"def", EOF, row, EOF]))
    if end:  # short packets that begin with 254 end the result, by definition
        assert list(blocks(connection)) == []
        return
    with pytest.raises(ProtocolError, match="breaks MySQL's protocol"):
        list(blocks(connection))
    assert connection.is_closed


def test_a_packet_out_of_sequence_is_refused() -> None:
    good = result(1, [[b"1"], [b"2"]])
    with pytest.raises(ProtocolError, match="sequence"):
        list(blocks(FakeConnection(good[:-9] + b"\x05\x00\x00\x63" + EOF)))
    with pytest.raises(ProtocolError, match="sequence"):
        list(blocks(FakeConnection(b"\x01\x00\x00\x07\x01")))


@pytest.mark.parametrize("kept", range(0, 60, 3))
def test_a_connection_that_ends_early_is_lost(kept: int) -> None:
    data = result(2, [[b"1", b"abc"], [None, b"x" * 30]])
    connection = FakeConnection(data[: min(kept, len(data) - 1)])
    with pytest.raises(ConnectionLostError, match="closed it"):
        list(blocks(connection))
    assert connection.is_closed


def test_damaged_answers_give_rows_in_bounds_or_a_headgate_error() -> None:
    random_numbers = random.Random(7)
    good = result(3, [[b"%d" % i, None, b"x" * (i % 300)] for i in range(40)])
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(random_numbers.randint(1, 4)):
            data[random_numbers.randrange(len(data))] = random_numbers.choice([0, 1, 250, 251, 252, 253, 254, 255, 13])
        first, second = (outcome(FakeConnection(bytes(data), room=16_000, canary=byte)) for byte in (0xEE, 0x01))
        assert first == second
        outcome(FakeConnection(bytes(data), room=500))


def outcome(connection: FakeConnection) -> list[list[bytes | None]] | str:
    """The rows, or the error's message."""
    try:
        return values(list(blocks(connection, rows=16)))
    except HeadgateError as error:
        return str(error)

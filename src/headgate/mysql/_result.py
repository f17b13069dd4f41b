"""Large result sets as blocks of walked rows.

The answer to a query is: a packet with the number of columns, one packet per column, EOF, one packet per row, EOF
(PyMySQL does not set CLIENT_DEPRECATE_EOF). An error packet may replace the first one or any row. The last EOF packet
is ``fe``, the number of warnings (2 bytes) and flags (2 bytes). MySQL only warns if it returns a cut value, so the
warnings decide whether the rows count.

Rows are walked as the socket delivers them, while their bytes are still in the cache, and are not moved: a block takes
the buffer over, and only the beginning of an incomplete row moves to the next one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final, NoReturn

import numpy as np

from headgate.errors import ConnectionLostError, ProtocolError
from headgate.kernels import Bytes, RowBlock
from headgate.mysql._connection import COM_QUERY, Connection
from headgate.mysql._errors import packet_error
from headgate.mysql._stream import ByteStream

__all__ = ["select_blocks"]

_HEADER: Final = 4
_LARGEST: Final = 0xFFFFFF
"""A packet of this size continues in the next one."""

_FIRST_ROWS: Final = 1024
"""Capacity of the first block in rows, so that a small answer costs little. Later blocks grow to the requested one."""


def select_blocks(connection: Connection, sql: str, *, rows: int = 65536) -> Iterator[RowBlock]:
    """Yield the rows of a SELECT, in blocks of at most ``rows`` rows and about two megabytes (more if a row is larger).

    Values are in the text protocol's form; character columns in their stored bytes. A block stays valid as long as it
    is referenced. If the iteration is left early, the connection is closed.

    :raises ServerError: the statement failed, at its start or after some blocks.
    :raises CutValueError: after the last block, if a value exceeds a limit of the server.
    :raises ConnectionLostError: the connection ended.
    """
    stream = connection.command(COM_QUERY, sql.encode())
    try:
        warnings = yield from _blocks(stream, rows)
    except GeneratorExit:
        connection.close()
        raise
    except (ConnectionLostError, ProtocolError):
        connection.close()
        raise
    except _ErrPacket as packet:
        connection.finished()
        raise packet.error from None
    connection.finished(warnings)


class _ErrPacket(Exception):
    """An error packet, which ends the answer. The connection is then free."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self.error = packet_error(payload)


def _blocks(stream: ByteStream, most_rows: int) -> Generator[RowBlock, None, int]:
    """Yield the rows and return the number of warnings."""
    from headgate.mysql import _walk

    columns, number = _read_head(stream)
    room = min(most_rows, _FIRST_ROWS)
    offset, length, valid = _index(columns, room)
    row = 0
    while True:
        status, used, row, number = _walk.walk(stream.buf, stream.start, stream.end, number, offset, length, valid, row)
        stream.start = used
        if status == _walk.MORE and not _buffer_is_full(stream, row):
            # The walked rows are before `start` and must not move: receive only behind them.
            _receive(stream, keep=row > 0)
            continue
        if row:
            yield RowBlock(stream.hand_over(), offset, length, valid, row)
            room = min(most_rows, max(room, 4 * row))
            offset, length, valid = _index(columns, room)
            row = 0
        if status == _walk.END:
            return int.from_bytes(_payload(stream)[1:3], "little")
        if status == _walk.ERROR:
            raise _ErrPacket(_payload(stream))
        if status == _walk.BIG:
            joined, number = _join(stream, number)
            if not _walk.walk_row(joined, 0, len(joined), offset, length, valid, 0):
                _out_of_protocol("a row does not match its columns")
            yield RowBlock(joined, offset, length, valid, 1)
            offset, length, valid = _index(columns, room)
        elif status == _walk.BAD_ROW:
            _out_of_protocol("a row does not match its columns")
        elif status == _walk.BAD_NUMBER:
            _out_of_protocol("a packet is out of sequence")


def _index(columns: int, rows: int) -> tuple[Any, Any, Any]:
    shape = (columns, rows)
    return np.empty(shape, np.int64), np.empty(shape, np.int32), np.empty(shape, np.uint8)


def _buffer_is_full(stream: ByteStream, row: int) -> bool:
    """Return whether the block must be yielded before more can be received."""
    return row > 0 and stream.end == len(stream.buf)


def _receive(stream: ByteStream, *, keep: bool) -> None:
    """Receive some bytes behind ``end``; with ``keep`` no received byte may move."""
    if not keep:
        stream.fill(_wanted(stream))
        return
    start = stream.start
    stream.start = 0  # everything from the beginning on counts as unread, so it is not moved
    stream.fill()
    stream.start = start


def _wanted(stream: ByteStream) -> int:
    """Return the size of the next packet, or of its incomplete header."""
    if stream.end - stream.start < _HEADER:
        return _HEADER
    return _HEADER + _packet_size(stream)


def _packet_size(stream: ByteStream) -> int:
    return int.from_bytes(stream.buf[stream.start : stream.start + 3].tobytes(), "little")


def _payload(stream: ByteStream) -> bytes:
    """Return the payload of the next packet, which has arrived in full."""
    begin = stream.start + _HEADER
    return stream.buf[begin : begin + _packet_size(stream)].tobytes()


def _read_packet(stream: ByteStream, number: int) -> bytes:
    """Read the next packet's payload (shorter than 16 MiB)."""
    while stream.end - stream.start < _wanted(stream):
        stream.fill(_wanted(stream))
    if stream.buf[stream.start + 3] != number & 255:
        _out_of_protocol("a packet is out of sequence")
    payload = _payload(stream)
    stream.consume(_HEADER + len(payload))
    return payload


def _read_head(stream: ByteStream) -> tuple[int, int]:
    """Return the number of columns and the first row's sequence number. Skip the column definitions."""
    first = _read_packet(stream, 1)
    if first[:1] == b"\xff":
        raise _ErrPacket(first)
    columns = _column_count(first)
    for number in range(columns):
        _read_packet(stream, 2 + number)
    number = 2 + columns
    if _read_packet(stream, number)[:1] != b"\xfe":
        _out_of_protocol("no EOF packet follows the column definitions")
    return columns, (number + 1) & 255


def _column_count(payload: bytes) -> int:
    """Parse 1 … 4096 columns, a length-encoded integer."""
    if len(payload) == 1 and 0 < payload[0] < 251:
        return payload[0]
    if len(payload) == 3 and payload[0] == 0xFC:
        return int.from_bytes(payload[1:], "little")
    raise ProtocolError("the statement returns no rows")


def _join(stream: ByteStream, number: int) -> tuple[Bytes, int]:
    """Return the payload of a row that spans several packets, and the next sequence number."""
    out = np.empty(2 * _LARGEST, np.uint8)
    have = 0
    while True:
        if stream.end - stream.start < _HEADER:
            stream.fill(_HEADER)
        size = _packet_size(stream)
        if stream.buf[stream.start + 3] != number:
            _out_of_protocol("a packet is out of sequence")
        stream.consume(_HEADER)
        number = (number + 1) & 255
        if have + size > len(out):
            grown = np.empty(max(2 * len(out), have + size), np.uint8)
            grown[:have] = out[:have]
            out = grown
        left = size
        while left:
            if stream.start == stream.end:
                stream.fill()
            part = min(left, stream.end - stream.start)
            out[have : have + part] = stream.buf[stream.start : stream.start + part]
            stream.consume(part)
            have += part
            left -= part
        if size < _LARGEST:
            return out[:have], number


def _out_of_protocol(what: str) -> NoReturn:
    raise ProtocolError(f"the server's answer breaks MySQL's protocol: {what}")

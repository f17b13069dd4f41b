"""Receiving the answer to a SELECT without looking at it: the least that any reader of a table has to do."""

from __future__ import annotations

from headgate.mysql import Connection, ConnectionSettings

__all__ = ["drain"]

_COM_QUERY = 3


def drain(settings: ConnectionSettings, sql: str) -> int:
    """Read the whole answer off the socket; bytes."""
    with Connection.open(settings) as connection:
        stream, total, tail = connection.command(_COM_QUERY, sql.encode()), 0, b""
        while True:
            stream.fill(1)
            size = stream.end - stream.start
            tail = (tail + stream.buf[max(stream.start, stream.end - 9) : stream.end].tobytes())[-9:]
            total += size
            stream.consume(size)
            if tail[:3] == b"\x05\x00\x00" and tail[4:5] == b"\xfe":  # the EOF packet
                return total

"""A plain reader of the log for parity tests: events by COM_BINLOG_DUMP, rows walked in Python.

Deliberately another implementation than ``headgate.binlog``'s kernels: slow, obvious, and only for small logs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymysql

from headgate.binlog import LAYOUT_FIXED, TableMap, log_layout, parse_table_map
from headgate.kernels import RowBlock
from headgate.mysql import LOG_STATUS, parse_version

COM_BINLOG_DUMP = 0x12
NON_BLOCK = 0x01
TABLE_MAP, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 19, 30, 31, 32


def log_end(connection: pymysql.Connection) -> tuple[str, int]:
    """File and position of the log's end."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        version = cursor.fetchone()
        assert version is not None
        cursor.execute(LOG_STATUS.on(parse_version(version[0])))
        row = cursor.fetchone()
        assert row is not None
        return row[0], int(row[1])


def events(connection: pymysql.Connection, start: tuple[str, int]) -> Iterator[tuple[int, bytes]]:
    """``(type, body without header and checksum)`` of every event to the log's end; uses the connection up."""
    with connection.cursor() as cursor:
        cursor.execute("SET @source_binlog_checksum = 'CRC32'")
    file, position = start
    payload = struct.pack("<IHI", position, NON_BLOCK, 0) + file.encode()
    raw: Any = connection  # the two private calls below speak the protocol under the driver's API
    raw._execute_command(COM_BINLOG_DUMP, payload)
    while True:
        packet = raw._read_packet()
        data = packet.get_all_data()
        if data[:1] == b"\xfe" and len(data) < 9:
            return
        yield data[5], data[20:-4]


def _walk_image(body: bytes, at: int, table: TableMap, present: list[int]) -> tuple[list[tuple[int, int, int]], int]:
    bitmap, cells = at, [(0, 0, 2)] * len(table.types)
    at += (len(present) + 7) // 8
    for bit, column in enumerate(present):
        if body[bitmap + bit // 8] >> (bit % 8) & 1:
            cells[column] = (0, 0, 0)
            continue
        mode, size = log_layout(table.types[column], table.metas[column])
        if mode != LAYOUT_FIXED:
            width, size = size, int.from_bytes(body[at : at + size], "little")
            at += width
        cells[column] = (at, size, 1)
        at += size
    return cells, at


def _images(kind: int, body: bytes, table: TableMap) -> Iterator[list[tuple[int, int, int]]]:
    at = 8 + int.from_bytes(body[8:10], "little")
    count = body[at]
    assert count < 251
    assert count == len(table.types)
    at += 1
    bitmaps = []
    for _ in range(2 if kind == UPDATE_ROWS else 1):
        bits = body[at : at + (count + 7) // 8]
        bitmaps.append([i for i in range(count) if bits[i // 8] >> (i % 8) & 1])
        at += (count + 7) // 8
    turn = 0
    while at < len(body):
        cells, at = _walk_image(body, at, table, bitmaps[turn % len(bitmaps)])
        turn += 1
        yield cells


def read_table(connection: pymysql.Connection, start: tuple[str, int], name: str) -> tuple[TableMap, RowBlock]:
    """The last table map of ``db.table`` from ``start`` on and all its row images, as one block."""
    maps: dict[int, TableMap] = {}
    table_map: TableMap | None = None
    pieces: list[bytes] = []
    rows: list[list[tuple[int, int, int]]] = []
    base = 0
    for kind, body in events(connection, start):
        if kind == TABLE_MAP:
            table = parse_table_map(body)
            maps[table.table_id] = table
        elif kind in (WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS):
            table = maps[int.from_bytes(body[:6], "little")]
            if f"{table.db}.{table.table}" != name:
                continue
            table_map = table
            rows.extend(
                [(at + base if valid == 1 else 0, size, valid) for at, size, valid in cells]
                for cells in _images(kind, body, table)
            )
            pieces.append(body)
            base += len(body)
    assert table_map is not None, f"no rows of {name} in the log"
    cells_array = np.array(rows, np.int64).reshape(len(rows), len(table_map.types), 3)
    buf = np.frombuffer(b"".join(pieces), np.uint8)
    offset = np.ascontiguousarray(cells_array[:, :, 0].T)
    length = np.ascontiguousarray(cells_array[:, :, 1].T.astype(np.int32))
    valid = np.ascontiguousarray(cells_array[:, :, 2].T.astype(np.uint8))
    return table_map, RowBlock(buf, offset, length, valid, len(rows))


def text_block(rows: list[tuple[bytes | None, ...]]) -> RowBlock:
    """A block of text-protocol values, as the walk of a result set notes them."""
    columns = len(rows[0])
    buf = bytearray(b"\xaa" * 3)
    offset = np.zeros((columns, len(rows)), np.int64)
    length = np.zeros((columns, len(rows)), np.int32)
    valid = np.zeros((columns, len(rows)), np.uint8)
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            if value is not None:
                offset[c, r], length[c, r], valid[c, r] = len(buf), len(value), 1
                buf += value
    return RowBlock(np.frombuffer(bytes(buf), np.uint8), offset, length, valid, len(rows))

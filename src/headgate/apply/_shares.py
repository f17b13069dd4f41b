"""Rows that Spark's tasks have, each a share, and rows as one binary value, in which they pass through Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PackedRows", "Shares", "packed", "unpacked"]

_PACKED_TOGETHER: Final = 1 << 18
"""Rows: of a key and its ``_seq`` some 10 MB."""


@dataclass(frozen=True)
class Shares:
    """Rows in tasks.

    :param data: returns what the tasks get.
    :param expand: makes record batches of rows of it, in tasks.
    """

    data: Callable[[], DataFrame]
    expand: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def packed(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return an IPC stream. Rows are much alike: compressed, a fifth of the bytes pass through the JVM."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class PackedRows:
    """Rows that are packed as they come, so a task holds all those of its share compressed."""

    def __init__(self) -> None:
        self._groups: list[bytes] = []
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows after those that are there."""
        self._waiting.append(rows)
        self._count += rows.num_rows
        if self._count >= _PACKED_TOGETHER:
            self._pack()

    def take(self) -> list[bytes]:
        """Return all rows, in order, as groups of :func:`packed`; none if there are no rows."""
        if self._count:
            self._pack()
        groups, self._groups = self._groups, []
        return groups

    def _pack(self) -> None:
        self._groups.append(packed(pa.Table.from_batches(self._waiting)))
        self._waiting, self._count = [], 0


def unpacked(data: pa.Buffer) -> pa.Table:
    """Return the rows of an IPC stream."""
    return pa.ipc.open_stream(data).read_all()

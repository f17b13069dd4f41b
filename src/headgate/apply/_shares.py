"""Rows that Spark's tasks have, each a share, and rows as one binary value, in which they pass through Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Shares", "packed", "unpacked"]


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


def unpacked(data: pa.Buffer) -> pa.Table:
    """Return the rows of an IPC stream."""
    return pa.ipc.open_stream(data).read_all()

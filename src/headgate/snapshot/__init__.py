"""Exact chunks: a table's key space cut into ranges, each read exactly as of one GTID set."""

from headgate.carrier import HighWatermark, Redo
from headgate.offsets import ChunkSpec as Chunk
from headgate.snapshot._locks import TableLocks
from headgate.snapshot._plan import CHUNK_BYTES, advance, first_chunk_bounds, next_chunk, rows_of_chunk, same_order
from headgate.snapshot._reader import check_server, read_chunks
from headgate.snapshot._request import ChunkOptions, ChunkRead
from headgate.snapshot._undo import undo
from headgate.snapshot._window import Window
from headgate.snapshot.keys import bound_columns, literal_expression, readable_bound
from headgate.snapshot.ranges import in_range

__all__ = [
    "CHUNK_BYTES",
    "Chunk",
    "ChunkOptions",
    "ChunkRead",
    "HighWatermark",
    "Redo",
    "TableLocks",
    "Window",
    "advance",
    "bound_columns",
    "check_server",
    "first_chunk_bounds",
    "in_range",
    "literal_expression",
    "next_chunk",
    "read_chunks",
    "readable_bound",
    "rows_of_chunk",
    "same_order",
    "undo",
]

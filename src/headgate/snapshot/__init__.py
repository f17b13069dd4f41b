"""Exact chunks: a table's key space cut into ranges, each read exactly as of one GTID set."""

from headgate.offsets import ChunkSpec as Chunk
from headgate.snapshot._plan import advance, first_chunk_bounds, next_chunk
from headgate.snapshot._ranges import in_range
from headgate.snapshot._reader import Redo, check_server, exact_patterns, read_chunks
from headgate.snapshot._window import Window

__all__ = [
    "Chunk",
    "Redo",
    "Window",
    "advance",
    "check_server",
    "exact_patterns",
    "first_chunk_bounds",
    "in_range",
    "next_chunk",
    "read_chunks",
]

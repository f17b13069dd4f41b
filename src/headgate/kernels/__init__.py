"""Types and functions that compiled loops of several packages share.

===============  ============================================================
``_cells``       positions of the cells of walked rows
``_memory``      unaligned reads and writes of a buffer
``_arrow_text``  Arrow columns as text
===============  ============================================================
"""

from headgate.kernels._arrow_text import (
    base64_text,
    escaped,
    fixed_point,
    json_objects,
    json_string,
    json_values,
    quoted,
    text_bytes,
)
from headgate.kernels._cells import ABSENT, NULL, VALUE, Bytes, Cells, RowBlock
from headgate.kernels._memory import copy, store8, u8, u16, u32, u64

__all__ = [
    "ABSENT",
    "NULL",
    "VALUE",
    "Bytes",
    "Cells",
    "RowBlock",
    "base64_text",
    "copy",
    "escaped",
    "fixed_point",
    "json_objects",
    "json_string",
    "json_values",
    "quoted",
    "store8",
    "text_bytes",
    "u8",
    "u16",
    "u32",
    "u64",
]

"""Types and functions that compiled loops of several packages share.

=================  ============================================================
``_cells``         positions of the cells of walked rows
``_memory``        unaligned reads, writes and comparisons of buffers; UTF-8
``_arrow_text``    Arrow columns as text
``_avro``          Avro's binary form of numbers
``_connect_json``  JSON and headers as Kafka Connect writes them
``_messages``      messages of many rows, as JSON or Avro
``_real_text``     FLOAT and DOUBLE as Java's text
=================  ============================================================
"""

from headgate.kernels._arrow_text import (
    base64_text,
    escaped,
    fixed_point,
    json_objects,
    json_string,
    json_values,
    put_base64,
    quoted,
    text_bytes,
)
from headgate.kernels._avro import decimal_bytes, decimal_text_bytes, float_blocks, put_varint, varint_size, zigzag
from headgate.kernels._cells import ABSENT, NULL, VALUE, Bytes, Cells, RowBlock
from headgate.kernels._connect_json import (
    connect_json,
    connect_message,
    header_name,
    header_string,
    schema_json,
    schema_opening,
)
from headgate.kernels._memory import copy, is_utf8, put_utf8, same_bytes, store8, u8, u16, u32, u64
from headgate.kernels._messages import Kind, Lane, Layout, date_of, int64_lane, put_unsigned, text_lane, valid_mask
from headgate.kernels._real_text import real_text

__all__ = [
    "ABSENT",
    "NULL",
    "VALUE",
    "Bytes",
    "Cells",
    "Kind",
    "Lane",
    "Layout",
    "RowBlock",
    "base64_text",
    "connect_json",
    "connect_message",
    "copy",
    "date_of",
    "decimal_bytes",
    "decimal_text_bytes",
    "escaped",
    "fixed_point",
    "float_blocks",
    "header_name",
    "header_string",
    "int64_lane",
    "is_utf8",
    "json_objects",
    "json_string",
    "json_values",
    "put_base64",
    "put_unsigned",
    "put_utf8",
    "put_varint",
    "quoted",
    "real_text",
    "same_bytes",
    "schema_json",
    "schema_opening",
    "store8",
    "text_bytes",
    "text_lane",
    "u8",
    "u16",
    "u32",
    "u64",
    "valid_mask",
    "varint_size",
    "zigzag",
]

"""Complete after-images that hold JSON differences (``binlog_row_value_options=PARTIAL_JSON``) before decoding.

The walk notes which cells hold differences, and where the base value of each is. This module computes each new value
(:func:`headgate.columns.apply_json_differences`), appends it to a copy of the event's buffer and points the cell there,
so the codecs need no special case. Blocks without differences are not touched.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from headgate.binlog import D_COLUMN, D_LENGTH, D_OFFSET, D_ROW, D_VALID, WalkedRows
from headgate.catalog import TableDef
from headgate.columns import apply_json_differences
from headgate.errors import DecodeError, UnsupportedError

__all__ = ["with_whole_documents"]


def with_whole_documents(walked: WalkedRows, table: TableDef, wanted: Collection[int], pos: Any) -> WalkedRows:
    """Return ``walked`` with each difference replaced by its resulting value.

    :param wanted: indexes of the table's columns; differences of others stay as they are.
    :param pos: int64[rows]: where each row's event begins, for errors.
    :raises UnsupportedError: the before-image lacks the column, so the differences have no base value.
    :raises DecodeError: differences do not fit their document.
    """
    block, appended = walked.block, bytearray()
    end = len(block.buf)
    for entry in walked.differences.T.tolist():
        row, column = entry[D_ROW], entry[D_COLUMN]
        if column not in wanted:
            continue
        name = table.columns[column].name
        if entry[D_VALID] != 1:
            raise UnsupportedError(
                "an update holds JSON differences, and its before-image lacks the value they differ from: "
                "SET GLOBAL binlog_row_image = 'FULL' (or binlog_row_value_options = '') and let the writers connect "
                "again, then read the table again",
                table=table.full_name,
                column=name,
                pos=int(pos[row]),
            )
        start, base = int(block.offset[column, row]), entry[D_OFFSET]
        differences = block.buf[start : start + int(block.length[column, row])].tobytes()
        try:
            value = apply_json_differences(block.buf[base : base + entry[D_LENGTH]].tobytes(), differences)
        except ValueError as error:
            raise DecodeError(
                f"JSON differences: {error}", table=table.full_name, column=name, pos=int(pos[row])
            ) from None
        block.offset[column, row], block.length[column, row] = end + len(appended), len(value)
        appended += value
    buf = np.concatenate([block.buf, np.frombuffer(bytes(appended), np.uint8)])
    return walked._replace(block=block._replace(buf=buf))

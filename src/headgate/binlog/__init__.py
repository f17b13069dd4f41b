"""The binlog: bytes in, events, transactions and walked row images out. No sockets, no clocks, no Arrow."""

from headgate.binlog import codes
from headgate.binlog._crc import CRC_TABLES, crc_update
from headgate.binlog._cursor import Cursor
from headgate.binlog._events import Query, parse_format_description, parse_query
from headgate.binlog._frame import EndOfLog, ErrorPacket, Framer, LogPosition, Segment
from headgate.binlog._gtid_events import GtidEvent, gtid_event, gtid_events, gtid_indexes
from headgate.binlog._layout import LAYOUT_FIXED, log_layout, real_type
from headgate.binlog._scan import (
    R_POS,
    R_SLOT,
    R_TXN,
    GtidFilter,
    RowEvents,
    Scanner,
    Stop,
    Transactions,
    other_statements,
)
from headgate.binlog._table_map import TableMap, parse_table_map
from headgate.binlog._walk import (
    D_COLUMN,
    D_LENGTH,
    D_OFFSET,
    D_ROW,
    D_VALID,
    RowWalker,
    WalkedRows,
    assign_ordinals,
    locate_rows,
    note_counts,
)
from headgate.binlog.codes import EVENT_NAMES

__all__ = [
    "CRC_TABLES",
    "D_COLUMN",
    "D_LENGTH",
    "D_OFFSET",
    "D_ROW",
    "D_VALID",
    "EVENT_NAMES",
    "LAYOUT_FIXED",
    "R_POS",
    "R_SLOT",
    "R_TXN",
    "Cursor",
    "EndOfLog",
    "ErrorPacket",
    "Framer",
    "GtidEvent",
    "GtidFilter",
    "LogPosition",
    "Query",
    "RowEvents",
    "RowWalker",
    "Scanner",
    "Segment",
    "Stop",
    "TableMap",
    "Transactions",
    "WalkedRows",
    "assign_ordinals",
    "codes",
    "crc_update",
    "gtid_event",
    "gtid_events",
    "gtid_indexes",
    "locate_rows",
    "log_layout",
    "note_counts",
    "other_statements",
    "parse_format_description",
    "parse_query",
    "parse_table_map",
    "real_type",
]

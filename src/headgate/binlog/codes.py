"""Numbers of the binlog format: event types, column types, flags.

Sources: MySQL source ``libs/mysql/binlog/event/binlog_event.h`` (``Log_event_type``), ``include/field_types.h``
(``enum_field_types``), ``libs/mysql/binlog/event/rows_event.h`` (metadata of table maps).
"""

from __future__ import annotations

from typing import Final

HEADER_SIZE: Final = 19
"""Bytes of the common header: timestamp 4, type 1, server id 4, length 4, end position 4, flags 2; little-endian."""
TYPE_OFFSET: Final = 4
FLAGS_OFFSET: Final = 17
CRC_SIZE: Final = 4

FLAG_THREAD_SPECIFIC: Final = 0x4
"""The statement used a temporary table of its session (``LOG_EVENT_THREAD_SPECIFIC_F``)."""
FLAG_ARTIFICIAL: Final = 0x20
"""Made by the sender, not in the file: its position is meaningless."""
FLAG_IGNORABLE: Final = 0x80
"""A reader that does not know the event's type may skip it."""

# Event types
QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
INTVAR: Final = 5
APPEND_BLOCK: Final = 9
DELETE_FILE: Final = 11
RAND: Final = 13
USER_VAR: Final = 14
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
BEGIN_LOAD_QUERY: Final = 17
EXECUTE_LOAD_QUERY: Final = 18
TABLE_MAP: Final = 19
WRITE_ROWS_V1: Final = 23
UPDATE_ROWS_V1: Final = 24
DELETE_ROWS_V1: Final = 25
INCIDENT: Final = 26
HEARTBEAT: Final = 27
IGNORABLE: Final = 28
ROWS_QUERY: Final = 29
WRITE_ROWS: Final = 30
UPDATE_ROWS: Final = 31
DELETE_ROWS: Final = 32
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
TRANSACTION_CONTEXT: Final = 36
VIEW_CHANGE: Final = 37
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
HEARTBEAT_V2: Final = 41
GTID_TAGGED: Final = 42

# Column types, as in a table map
T_DECIMAL: Final = 0
T_TINY: Final = 1
T_SHORT: Final = 2
T_LONG: Final = 3
T_FLOAT: Final = 4
T_DOUBLE: Final = 5
T_TIMESTAMP: Final = 7
T_LONGLONG: Final = 8
T_INT24: Final = 9
T_DATE: Final = 10
T_TIME: Final = 11
T_DATETIME: Final = 12
T_YEAR: Final = 13
T_NEWDATE: Final = 14
T_VARCHAR: Final = 15
T_BIT: Final = 16
T_TIMESTAMP2: Final = 17
T_DATETIME2: Final = 18
T_TIME2: Final = 19
T_VECTOR: Final = 242
T_JSON: Final = 245
T_NEWDECIMAL: Final = 246
T_ENUM: Final = 247
T_SET: Final = 248
T_TINY_BLOB: Final = 249
T_MEDIUM_BLOB: Final = 250
T_LONG_BLOB: Final = 251
T_BLOB: Final = 252
T_VAR_STRING: Final = 253
T_STRING: Final = 254
T_GEOMETRY: Final = 255

EVENT_NAMES: Final = {
    QUERY: "QUERY", STOP: "STOP", ROTATE: "ROTATE", INTVAR: "INTVAR",
    APPEND_BLOCK: "APPEND_BLOCK", DELETE_FILE: "DELETE_FILE", RAND: "RAND", USER_VAR: "USER_VAR",
    FORMAT_DESCRIPTION: "FORMAT_DESCRIPTION", XID: "XID", BEGIN_LOAD_QUERY: "BEGIN_LOAD_QUERY",
    EXECUTE_LOAD_QUERY: "EXECUTE_LOAD_QUERY", TABLE_MAP: "TABLE_MAP", WRITE_ROWS_V1: "WRITE_ROWS_V1",
    UPDATE_ROWS_V1: "UPDATE_ROWS_V1", DELETE_ROWS_V1: "DELETE_ROWS_V1", INCIDENT: "INCIDENT", HEARTBEAT: "HEARTBEAT",
    IGNORABLE: "IGNORABLE", ROWS_QUERY: "ROWS_QUERY", WRITE_ROWS: "WRITE_ROWS", UPDATE_ROWS: "UPDATE_ROWS",
    DELETE_ROWS: "DELETE_ROWS", GTID: "GTID", ANONYMOUS_GTID: "ANONYMOUS_GTID", PREVIOUS_GTIDS: "PREVIOUS_GTIDS",
    TRANSACTION_CONTEXT: "TRANSACTION_CONTEXT", VIEW_CHANGE: "VIEW_CHANGE", XA_PREPARE: "XA_PREPARE",
    PARTIAL_UPDATE_ROWS: "PARTIAL_UPDATE_ROWS", TRANSACTION_PAYLOAD: "TRANSACTION_PAYLOAD",
    HEARTBEAT_V2: "HEARTBEAT_V2", GTID_TAGGED: "GTID_TAGGED",
}  # fmt: skip
"""Event names for messages."""

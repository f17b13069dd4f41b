"""The log as Arrow: connection and decoder make a stream of whole transactions, complete or with an error."""

from headgate.replication._copy import (
    END_PACKET,
    CopiedEvents,
    CopiedFile,
    CopiedPosition,
    LogCopy,
    copy_log,
    rotate_packet,
)
from headgate.replication._decoder import LogDecoder
from headgate.replication._log_read import LogRead
from headgate.replication._meta import (
    ABSENT_FIELD,
    GTID_TYPE,
    META_FIELDS,
    SEQ_TYPE,
    SNAPSHOT_FILE,
    SNAPSHOT_POS,
    canonical_schema,
    gtid_array,
    op_array,
    seq_array,
)
from headgate.replication._partial import REMEDY as PARTIAL_REMEDY
from headgate.replication._probe import TransactionHeader, check_header, check_history, last_header, transaction_headers
from headgate.replication._readers import WindowReader, cut_in_order, follow, previous_gtids, read_range
from headgate.replication._starts import start_of
from headgate.replication._tables import DecodeOptions
from headgate.replication._transport import Transport
from headgate.replication._types import (
    Ddl,
    Idle,
    ImageBatch,
    LogBlock,
    LogItem,
    RangeEnd,
    Stopped,
    file_number,
    stop_reason,
)

__all__ = [
    "ABSENT_FIELD",
    "END_PACKET",
    "GTID_TYPE",
    "META_FIELDS",
    "PARTIAL_REMEDY",
    "SEQ_TYPE",
    "SNAPSHOT_FILE",
    "SNAPSHOT_POS",
    "CopiedEvents",
    "CopiedFile",
    "CopiedPosition",
    "Ddl",
    "DecodeOptions",
    "Idle",
    "ImageBatch",
    "LogBlock",
    "LogCopy",
    "LogDecoder",
    "LogItem",
    "LogRead",
    "RangeEnd",
    "Stopped",
    "TransactionHeader",
    "Transport",
    "WindowReader",
    "canonical_schema",
    "check_header",
    "check_history",
    "copy_log",
    "cut_in_order",
    "file_number",
    "follow",
    "gtid_array",
    "last_header",
    "op_array",
    "previous_gtids",
    "read_range",
    "rotate_packet",
    "seq_array",
    "start_of",
    "stop_reason",
    "transaction_headers",
]

"""Messages between the source and the sinks.

A batch is a set of *messages*: its header, row images, statements, and reports about chunks. The source's tasks encode
them as rows of one Spark stream, the *carrier*. The sinks fetch those rows by one job and decode them in the driver,
where :class:`Batch` collects them. Large images are in files that their rows name: sinks decide by each record batch's
:class:`Summary`.

All other communication is by small JSON files in the *control folder*: :class:`ControlFolder`.

What one side writes and the other reads is defined only here; of files that are not between the two (``status.json``,
``notified.json``, users' signals) only the names are. Nothing here needs Spark.
"""

from __future__ import annotations

from headgate.carrier._batch import Batch, Commits, Part, StoredImages
from headgate.carrier._folder import (
    SINK_SIGNALS,
    ControlFile,
    ControlFolder,
    Request,
    Resnapshot,
    Settle,
    SinkTables,
    Trouble,
    Waiting,
    parse_request,
    parse_windows,
    sent_at,
    signal_id,
    signal_path,
    signal_type,
)
from headgate.carrier._image_files import ImageFolder, open_images, serialised
from headgate.carrier._images import (
    ABSENT,
    META,
    META_DDL,
    SEQ_DDL,
    TABLE_META_DDL,
    Gatherer,
    Images,
    Summary,
    op_letters,
)
from headgate.carrier._messages import (
    CarriedColumn,
    DdlRow,
    Definition,
    End,
    Header,
    HeaderTable,
    HighWatermark,
    ReadingProgress,
    Redo,
    Seq,
    Signals,
    SourceType,
    UnreadableRows,
)
from headgate.carrier._typed import check_names, typed_batch, typed_images
from headgate.carrier._wire import (
    CARRIER_DDL,
    DATA_COLUMN,
    KIND_COLUMN,
    SCHEMA_COLUMN,
    SUMMARY_DDL,
    TABLE_COLUMN,
    Message,
    decode,
    encode,
    summarise,
)

__all__ = [
    "ABSENT",
    "CARRIER_DDL",
    "DATA_COLUMN",
    "KIND_COLUMN",
    "META",
    "META_DDL",
    "SCHEMA_COLUMN",
    "SEQ_DDL",
    "SINK_SIGNALS",
    "SUMMARY_DDL",
    "TABLE_COLUMN",
    "TABLE_META_DDL",
    "Batch",
    "CarriedColumn",
    "Commits",
    "ControlFile",
    "ControlFolder",
    "DdlRow",
    "Definition",
    "End",
    "Gatherer",
    "Header",
    "HeaderTable",
    "HighWatermark",
    "ImageFolder",
    "Images",
    "Message",
    "Part",
    "ReadingProgress",
    "Redo",
    "Request",
    "Resnapshot",
    "Seq",
    "Settle",
    "Signals",
    "SinkTables",
    "SourceType",
    "StoredImages",
    "Summary",
    "Trouble",
    "UnreadableRows",
    "Waiting",
    "check_names",
    "decode",
    "encode",
    "op_letters",
    "open_images",
    "parse_request",
    "parse_windows",
    "sent_at",
    "serialised",
    "signal_id",
    "signal_path",
    "signal_type",
    "summarise",
    "typed_batch",
    "typed_images",
]

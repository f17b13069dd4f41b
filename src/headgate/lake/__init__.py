"""The lake: paths, tables, the ledger that groups commits into batches, consistent reads, single commits."""

from __future__ import annotations

from headgate.lake._append import CommitBase, append, append_rows, fit, inspect_base, table_schema
from headgate.lake._delta import DeltaPath, followed_log, schema_of, session_properties, spark_schema
from headgate.lake._ignored import IgnoredChanges, absent_columns
from headgate.lake._layout import Lake, short_name
from headgate.lake._ledger import (
    Ledger,
    check_lake,
    find_newest,
    ledger_files,
    ledger_notifications,
    newest_row,
    newest_rows,
    read_as_of,
)
from headgate.lake._ledger_row import LedgerRow, LeftOut, MergedState, Successor, TableState, versions_of
from headgate.lake._marker import Marker, batch_marker, newest_batch
from headgate.lake._merged import MergedTables, epochs_shown
from headgate.lake._notifications import TableChannel
from headgate.lake._places import PLACE_FIELDS, SHARDS, Place, Places
from headgate.lake._properties import MERGED, PIPELINE, TABLE, key_of
from headgate.lake._replace import ColumnsAfter, Fill, plan_replacement, reshape_files
from headgate.lake._restart import forget_position
from headgate.lake._states import ENDED, SUSPENDED, TABLE_STATES, TROUBLED, State
from headgate.lake._table_kind import (
    DELETED,
    END_GTID,
    END_SEQ,
    IS_CURRENT,
    ROW_HASH,
    SEEN,
    VALID_FROM,
    VALID_TO,
    Form,
    may_end_after,
    may_have_open,
    measured_columns,
    with_columns,
)
from headgate.lake._table_layout import TableLayout
from headgate.lake._takeover import begin_successor, take_over
from headgate.lake._target import Target, TargetColumn, columns_of, description_of, kept_columns
from headgate.lake._unentered import UnenteredBatches
from headgate.lake._workers import StoppedError, Workers, task
from headgate.lake._write_methods import WriteMethod, refusal

__all__ = [
    "DELETED",
    "ENDED",
    "END_GTID",
    "END_SEQ",
    "IS_CURRENT",
    "MERGED",
    "PIPELINE",
    "PLACE_FIELDS",
    "ROW_HASH",
    "SEEN",
    "SHARDS",
    "SUSPENDED",
    "TABLE",
    "TABLE_STATES",
    "TROUBLED",
    "VALID_FROM",
    "VALID_TO",
    "ColumnsAfter",
    "CommitBase",
    "DeltaPath",
    "Fill",
    "Form",
    "IgnoredChanges",
    "Lake",
    "Ledger",
    "LedgerRow",
    "LeftOut",
    "Marker",
    "MergedState",
    "MergedTables",
    "Place",
    "Places",
    "State",
    "StoppedError",
    "Successor",
    "TableChannel",
    "TableLayout",
    "TableState",
    "Target",
    "TargetColumn",
    "UnenteredBatches",
    "Workers",
    "WriteMethod",
    "absent_columns",
    "append",
    "append_rows",
    "batch_marker",
    "begin_successor",
    "check_lake",
    "columns_of",
    "description_of",
    "epochs_shown",
    "find_newest",
    "fit",
    "followed_log",
    "forget_position",
    "inspect_base",
    "kept_columns",
    "key_of",
    "ledger_files",
    "ledger_notifications",
    "may_end_after",
    "may_have_open",
    "measured_columns",
    "newest_batch",
    "newest_row",
    "newest_rows",
    "plan_replacement",
    "read_as_of",
    "refusal",
    "reshape_files",
    "schema_of",
    "session_properties",
    "short_name",
    "spark_schema",
    "table_schema",
    "take_over",
    "task",
    "versions_of",
    "with_columns",
]

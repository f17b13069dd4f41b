"""The lake: table paths, the ledger that groups commits into batches, consistent reads, and verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.lake._append import append, append_rows
from headgate.lake._delta import DeltaPath, schema_of, spark_schema
from headgate.lake._differences import Difference, TableResult
from headgate.lake._file_removal import Amount
from headgate.lake._ignored import IgnoredChanges, absent_columns
from headgate.lake._layout import Lake, short_name, split_table
from headgate.lake._ledger import (
    TABLE_STATES,
    Ledger,
    LedgerRow,
    LeftOut,
    MergedState,
    Successor,
    TableState,
    find_row,
    ledger_notifications,
    ledger_rows,
    newest_row,
    read_as_of,
)
from headgate.lake._maintain import Maintained, Maintenance
from headgate.lake._marker import Marker, batch_marker
from headgate.lake._merged import MergedTables, epochs_shown
from headgate.lake._notifications import TableChannel
from headgate.lake._places import Place, Places
from headgate.lake._properties import PIPELINE, TABLE, key_of, key_property
from headgate.lake._replace import ColumnsAfter, reshape_files
from headgate.lake._restart import forget_position
from headgate.lake._shares import Shares
from headgate.lake._status import (
    Activity,
    BatchStatus,
    FreshnessStatus,
    HistoryStatus,
    IndexStatus,
    KafkaStatus,
    LagStatus,
    Phase,
    SnapshotStatus,
    Status,
    TableReadProgress,
    TableStatus,
    WarningStatus,
    pid_namespace,
    read_status,
)
from headgate.lake._status_text import (
    activity_lines,
    activity_text,
    counted,
    duration,
    figures_text,
    gtid_text,
    index_text,
    lag_text,
    percent,
    place_text,
    progress_lines,
    snapshot_text,
    table_remarks,
    table_text,
)
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
    with_columns,
)
from headgate.lake._takeover import begin_successor, take_over
from headgate.lake._target import Target, TargetColumn, columns_of
from headgate.lake._unentered import UnenteredBatches
from headgate.lake._upkeep import Upkeep
from headgate.lake._verify import verify_table
from headgate.lake._workers import Workers
from headgate.lake._write_methods import WriteMethod, refusal

if TYPE_CHECKING:
    from headgate.lake._comparer import Comparer
    from headgate.lake._counted import CountedChanges
    from headgate.lake._row_changes import Ending, Marking
    from headgate.lake._upsert import Changes, Fill, Upserts, VersionChanges

__all__ = [
    "DELETED",
    "END_GTID",
    "END_SEQ",
    "IS_CURRENT",
    "PIPELINE",
    "ROW_HASH",
    "SEEN",
    "TABLE",
    "TABLE_STATES",
    "VALID_FROM",
    "VALID_TO",
    "Activity",
    "Amount",
    "BatchStatus",
    "Changes",
    "ColumnsAfter",
    "Comparer",
    "CountedChanges",
    "DeltaPath",
    "Difference",
    "Ending",
    "Fill",
    "Form",
    "FreshnessStatus",
    "HistoryStatus",
    "IgnoredChanges",
    "IndexStatus",
    "KafkaStatus",
    "LagStatus",
    "Lake",
    "Ledger",
    "LedgerRow",
    "LeftOut",
    "Maintained",
    "Maintenance",
    "Marker",
    "Marking",
    "MergedState",
    "MergedTables",
    "Phase",
    "Place",
    "Places",
    "Shares",
    "SnapshotStatus",
    "Status",
    "Successor",
    "TableChannel",
    "TableReadProgress",
    "TableResult",
    "TableState",
    "TableStatus",
    "Target",
    "TargetColumn",
    "UnenteredBatches",
    "Upkeep",
    "Upserts",
    "VersionChanges",
    "WarningStatus",
    "Workers",
    "WriteMethod",
    "absent_columns",
    "activity_lines",
    "activity_text",
    "append",
    "append_rows",
    "batch_marker",
    "begin_successor",
    "columns_of",
    "counted",
    "duration",
    "epochs_shown",
    "figures_text",
    "find_row",
    "forget_position",
    "gtid_text",
    "index_text",
    "key_of",
    "key_property",
    "lag_text",
    "ledger_notifications",
    "ledger_rows",
    "newest_row",
    "percent",
    "pid_namespace",
    "place_text",
    "progress_lines",
    "read_as_of",
    "read_status",
    "refusal",
    "reshape_files",
    "schema_of",
    "short_name",
    "snapshot_text",
    "spark_schema",
    "split_table",
    "table_remarks",
    "table_text",
    "take_over",
    "verify_table",
    "with_columns",
]


_LATE = {
    "Changes": "_upsert", "Comparer": "_comparer", "CountedChanges": "_counted", "Ending": "_row_changes",
    "Fill": "_upsert", "Marking": "_row_changes", "Upserts": "_upsert",
    "VersionChanges": "_upsert",
}  # fmt: skip


if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import names that need numba on first use: most users of this room neither write nor compare tables."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"headgate.lake.{_LATE[name]}"), name)

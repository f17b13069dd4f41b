"""The parts of the Delta table format that headgate writes itself: data files and their statistics, the log's file
list, commits, deletion vectors, the key index, the folding of small files, tables that take the place of others, and
which files may be removed. Independent of Spark and MySQL.
"""

from typing import TYPE_CHECKING, Any

from headgate.delta._checkpoint import worth_checkpoint, write_checkpoint
from headgate.delta._clustering import clusterable, kept_clustering, leaves_to
from headgate.delta._column_copies import ColumnCopies
from headgate.delta._commit import CommitOutcome, CommitPlan, commit
from headgate.delta._copy import copy_file, live_rows, read_rows
from headgate.delta._definition import (
    RETENTION_PROPERTIES,
    Description,
    NewColumn,
    addition,
    clustered,
    creation,
    describing,
    needs_mapping,
    renaming,
    unsupported_properties,
    unsupported_requirements,
    with_properties,
)
from headgate.delta._file_history import FileHistory, data_files_in
from headgate.delta._files import Listed, discard_files, files_of, open_parquet
from headgate.delta._fold import Fold, FoldLayout, choose_files, prepare_fold
from headgate.delta._log import (
    INDEXED_COLUMNS,
    LOG,
    DataFile,
    Snapshot,
    TableLog,
    checkpointed_version,
    checkpoints_among,
    indexed_leaves,
    snapshot_at,
)
from headgate.delta._log_files import LogFiles, version_at
from headgate.delta._mapping import MAPPING_FEATURE, ColumnNames, is_mapped, is_mapped_otherwise
from headgate.delta._parquet import CODECS, VARIANT, as_column, as_rows, grouped, is_ordered, is_plain, write_files
from headgate.delta._restore import missing_files, restoration
from headgate.delta._successor import new_successor, successor_log, successors, take_over
from headgate.delta._union import DifferentColumnsError, UnionLayout, UnionPart, changed_files, union_actions
from headgate.delta.vectors import VectorFile, positions_of, vectors_of

if TYPE_CHECKING:
    from headgate.delta._change import KeyedTable, KeyLookup, Sequences
    from headgate.delta._index import IndexCache
    from headgate.delta._keys import Keys, bytes_of, keys_of
    from headgate.delta._variant import to_variant

__all__ = [
    "CODECS",
    "INDEXED_COLUMNS",
    "LOG",
    "MAPPING_FEATURE",
    "RETENTION_PROPERTIES",
    "VARIANT",
    "ColumnCopies",
    "ColumnNames",
    "CommitOutcome",
    "CommitPlan",
    "DataFile",
    "Description",
    "DifferentColumnsError",
    "FileHistory",
    "Fold",
    "FoldLayout",
    "IndexCache",
    "KeyLookup",
    "KeyedTable",
    "Keys",
    "Listed",
    "LogFiles",
    "NewColumn",
    "Sequences",
    "Snapshot",
    "TableLog",
    "UnionLayout",
    "UnionPart",
    "VectorFile",
    "addition",
    "as_column",
    "as_rows",
    "bytes_of",
    "changed_files",
    "checkpointed_version",
    "checkpoints_among",
    "choose_files",
    "clusterable",
    "clustered",
    "commit",
    "copy_file",
    "creation",
    "data_files_in",
    "describing",
    "discard_files",
    "files_of",
    "grouped",
    "indexed_leaves",
    "is_mapped",
    "is_mapped_otherwise",
    "is_ordered",
    "is_plain",
    "kept_clustering",
    "keys_of",
    "leaves_to",
    "live_rows",
    "missing_files",
    "needs_mapping",
    "new_successor",
    "open_parquet",
    "positions_of",
    "prepare_fold",
    "read_rows",
    "renaming",
    "restoration",
    "snapshot_at",
    "successor_log",
    "successors",
    "take_over",
    "to_variant",
    "union_actions",
    "unsupported_properties",
    "unsupported_requirements",
    "vectors_of",
    "version_at",
    "with_properties",
    "worth_checkpoint",
    "write_checkpoint",
    "write_files",
]

_LATE = {
    "IndexCache": "_index", "KeyLookup": "_change", "KeyedTable": "_change", "Keys": "_keys", "Sequences": "_change",
    "bytes_of": "_keys", "keys_of": "_keys", "to_variant": "_variant",
}  # fmt: skip


if not TYPE_CHECKING:  # with this, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import names that need numba on first use."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"headgate.delta.{_LATE[name]}"), name)

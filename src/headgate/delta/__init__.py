"""The Delta table format, as far as headgate writes it itself: data files and their statistics, the log's list of
files, commits, deletion vectors, the index by which the rows of a key are found, the folding of small files, and which
files may be removed. Knows neither Spark nor MySQL.
"""

from typing import TYPE_CHECKING, Any

from headgate.delta._checkpoint import CHECKPOINT_COMMITS, OURS, write_checkpoint
from headgate.delta._commit import commit
from headgate.delta._log import DataFile, Snapshot, TableLog, checkpointed_version, log_folder
from headgate.delta._log_files import old_log_files, version_at
from headgate.delta._parquet import CODECS, is_plain, write_files

if TYPE_CHECKING:
    from headgate.delta._change import Found, KeyedTable, Sequences
    from headgate.delta._fold import Fold, choose_files, prepare_fold
    from headgate.delta._history import FileHistory, data_files_in
    from headgate.delta._index import IndexCache
    from headgate.delta._keys import Keys, keys_of

__all__ = [
    "CHECKPOINT_COMMITS",
    "CODECS",
    "OURS",
    "DataFile",
    "FileHistory",
    "Fold",
    "Found",
    "IndexCache",
    "KeyedTable",
    "Keys",
    "Sequences",
    "Snapshot",
    "TableLog",
    "checkpointed_version",
    "choose_files",
    "commit",
    "data_files_in",
    "is_plain",
    "keys_of",
    "log_folder",
    "old_log_files",
    "prepare_fold",
    "version_at",
    "write_checkpoint",
    "write_files",
]

_LATE = {
    "Found": "_change", "IndexCache": "_index", "KeyedTable": "_change", "Keys": "_keys", "Sequences": "_change",
    "keys_of": "_keys", "Fold": "_fold", "choose_files": "_fold", "prepare_fold": "_fold",
    "FileHistory": "_history", "data_files_in": "_history",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs numba is loaded when it is asked for."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headgate.delta.{_LATE[name]}"), name)

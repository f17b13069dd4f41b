"""The files of one table: which of them count, and Parquet among them.

Names are relative to the table's folder. New files get unique names, and count once a commit names them. A killed
writer leaves orphans. ``headgate.stores`` reads and writes them, in a local folder or an object store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow.parquet as pq

from headgate.errors import HeadgateError
from headgate.stores import FileIdentity, Folder, Listed, folder_of, is_remote

__all__ = [
    "SUCCESSOR",
    "FileIdentity",
    "Folder",
    "Listed",
    "discard_files",
    "files_of",
    "is_inside",
    "is_visible",
    "open_parquet",
]

SUCCESSOR: Final = "_successor_"
"""Beginning of the names of folders in which successors of the table are built (``_successor``)."""
_HIDDEN: Final = ("_", ".")

files_of = folder_of


def is_visible(name: str) -> bool:
    """Return whether a file or folder may have data: names that begin with ``_`` or ``.`` are hidden, other than those
    of successors.
    """
    return not name.startswith(_HIDDEN) or name.startswith(SUCCESSOR)


@contextmanager
def open_parquet(folder: str, name: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file from any writer; its times are in µs.

    :raises OSError: it cannot be read.
    """
    source = files_of(folder).open_input(name)
    with pq.ParquetFile(source, pre_buffer=is_remote(folder), coerce_int96_timestamp_unit="us") as file:
        yield file


def is_inside(name: str) -> bool:
    """Return whether a name in a table's log is of a file in the table's folder."""
    return "://" not in name and not name.startswith(("/", "file:")) and ".." not in name.split("/")


def discard_files(folder: str, names: Iterable[str]) -> None:
    """Remove files of ours that no version names. One that cannot be removed is left to the upkeep.

    Only files that no commit was tried with, or whose commit is known not to have been made.
    """
    for name in names:
        with suppress(HeadgateError, OSError):
            files_of(folder).delete(name)

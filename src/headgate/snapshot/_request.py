"""Which chunks a task reads, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from headgate.mysql import ConnectionSettings
from headgate.offsets import ChunkSpec, Hint
from headgate.policies import DEFAULT, Policies
from headgate.positions import Position
from headgate.snapshot._locks import TableLocks

__all__ = ["ChunkOptions", "ChunkRead"]


@dataclass(frozen=True)
class ChunkRead:
    """Chunks of a server's tables, to be read as of one position."""

    settings: ConnectionSettings
    chunks: Sequence[ChunkSpec]
    executed: Position
    """E. Read from the server before the chunks are read."""
    server_uuid: str
    """The server that the read was planned on."""
    epoch: int
    planned_us: int
    """``_ts`` of the rows, microseconds since 1970-01-01 UTC."""
    hint: Hint | None = None
    """Binlog position of a reader whose set was E or a part of it."""
    first_ordinal: int = 0
    """``_seq.ordinal`` of the first row; the task's rows are numbered on from there."""


@dataclass(frozen=True)
class ChunkOptions:
    """How chunks are read."""

    policies: Policies = DEFAULT
    truncate: Literal["keep", "redo"] = "redo"
    """If the chunk's table was truncated in its window: yield a ``Redo``, or the rows that remain."""
    locks: TableLocks | None = None
    """Lock the tables while the view of all chunks is opened; None: no locks."""
    partial: Literal["refuse", "tell"] = "refuse"
    """Rows of which an image holds only a part: an error, or yielded with ``_absent``, their unknown columns. For rows
    that are rewound; not for chunks with a filter or a surrogate key."""
    only: pa.Table | None = None
    """Key columns, as the table's codecs produce them: SELECT only the rows with these keys. The window may restore
    more. For chunks of one table, with a key and without a filter."""
    ambiguous: Literal["raise", "stop"] = "raise"
    """Rows whose key cannot be distinguished from another, of which it is unknown whether they pass the table's
    ``rows``, or with a value that MySQL cut: an error, or a ``Stop``."""

"""What comes out of the log: blocks of row images, statements, and how far a reader got."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from headgate.places import file_number

if TYPE_CHECKING:
    from headgate.catalog import AddedColumn, TableDef
    from headgate.errors import AmbiguousKeyError
    from headgate.gtid import GtidSet

__all__ = [
    "Ddl",
    "Idle",
    "ImageBatch",
    "LogBlock",
    "LogHint",
    "LogItem",
    "RangeEnd",
    "Stopped",
    "file_number",
    "key_reason",
]


@dataclass(frozen=True)
class LogHint:
    """Where a reader of one server stood when its GTID set was exactly some set; a dump may begin there."""

    server_uuid: str
    file: str
    pos: int


@dataclass
class ImageBatch:
    """Row images of one table definition, in log order, as a canonical record batch."""

    table: TableDef
    batch: pa.RecordBatch


@dataclass
class LogBlock:
    """One contiguous stretch of the log. The order between the images of different tables is that of ``_seq``."""

    images: list[ImageBatch]
    file: str = ""
    """The name of the log file it was read from."""
    whole: bool = False
    """Whether the last transaction is known to have ended here; all others have."""


@dataclass(frozen=True)
class Ddl:
    """A statement that changed a followed table's definition; one item for each table it touches."""

    statement: str
    action: str
    """``create``, ``alter``, ``drop``, ``rename`` (TRUNCATE comes as a ``t`` image), or ``drop_database``: then
    ``table`` is ``*``, because the log does not say which tables there were."""
    db: str
    table: str
    gtid: str | None
    """None: a log without GTIDs."""
    ts_us: int
    """Original commit time, microseconds since the Unix epoch."""
    file: str
    file_number: int
    pos: int
    ordinal: int = 0
    new_name: str | None = None
    """``db.table`` after a RENAME."""
    adds: tuple[AddedColumn, ...] | None = None
    """Of an ``alter``: the columns it adds, where nothing else changes in any row; None: rows may have changed."""


@dataclass(frozen=True)
class Stopped:
    """Images of a followed table that are left out: nobody knows its columns, or a value of its key cannot be told.

    Others follow without a word.
    """

    table: str
    """``db.table``"""
    reason: str
    """What happened, and what to do."""
    gtid: str
    file: str
    pos: int


def key_reason(error: AmbiguousKeyError, table: str) -> str:
    """Why a value of a key stops ``db.table``, and what to do."""
    place = f" at {error.file}:{error.pos}" if error.file else ""
    return (
        f"{error.message}, in column {error.column}{place}; change that value at the source, then read the table again"
        f" with: headgate run --resnapshot '{table}'"
    )


@dataclass(frozen=True)
class RangeEnd:
    """Where the reader stood when it had everything up to ``gtid``; a hint for whoever goes on."""

    server_uuid: str
    file: str
    pos: int
    gtid: GtidSet


@dataclass(frozen=True)
class Idle:
    """Nothing more to read for now; ``gtid`` is what has been read. Only :func:`follow` says so."""

    gtid: GtidSet
    hint: LogHint | None = None
    """Where the reader stood behind the last transaction; None: it has read none since it connected."""


LogItem: TypeAlias = LogBlock | Ddl | Stopped | RangeEnd | Idle

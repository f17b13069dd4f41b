"""Items that the log's readers yield: blocks of row images, statements, and positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import AmbiguousKeyError, UnreadableTableError
from headgate.positions import file_number

if TYPE_CHECKING:
    from headgate.catalog import ColumnChange, TableDef
    from headgate.columns import HookedTable
    from headgate.offsets import Hint, Last
    from headgate.positions import Position

__all__ = ["Ddl", "Idle", "ImageBatch", "LogBlock", "LogItem", "RangeEnd", "Stopped", "file_number", "stop_reason"]


@dataclass
class ImageBatch:
    """Row images of one table definition, in log order, as a canonical record batch."""

    table: TableDef
    batch: pa.RecordBatch
    hook: HookedTable | None = None
    """The table behind its hook, which has made the batch's columns; None: they are those of ``table``."""

    def from_ordinal(self, first: int) -> ImageBatch:
        """Return the images of a transaction's changes from this one on."""
        if not first:
            return self
        ordinals = pc.struct_field(self.batch.column(1), "ordinal")
        return replace(self, batch=self.batch.filter(pc.greater_equal(ordinals, first)))


@dataclass
class LogBlock:
    """One contiguous range of the log. ``_seq`` orders the images of different tables."""

    images: list[ImageBatch]
    file: str = ""
    """Name of the log file it was read from."""
    whole: bool = False
    """Whether the last transaction is known to have ended here. All others have."""


@dataclass(frozen=True)
class Ddl:
    """A statement that changed a followed table's definition; one item for each table."""

    statement: str
    action: str
    """``create``, ``alter``, ``drop``, ``rename`` (TRUNCATE is a ``t`` image), or ``drop_database``. For the last,
    ``table`` is ``*``, because the log does not name the tables."""
    db: str
    table: str
    gtid: str | None
    """None in a log without GTIDs."""
    ts_us: int
    """Original commit time, microseconds since the Unix epoch."""
    file: str
    file_number: int
    pos: int
    ordinal: int = 0
    new_name: str | None = None
    """``db.table`` after a RENAME."""
    changes: tuple[ColumnChange, ...] | None = None
    """Columns that an ``alter`` changes, if nothing else changes in any row. None: rows may have changed. For
    ``create``: see ``catalog.creates_if_absent``."""
    renames: tuple[tuple[str, str], ...] = ()
    """Columns that an ``alter`` renames, whatever else it does: their names before and after."""


@dataclass(frozen=True)
class Stopped:
    """A followed table's images are left out: its columns are unknown, a key value is ambiguous, or its ``rows`` cannot
    be decided.

    One notice may cover many images.
    """

    table: str
    """``db.table``"""
    reason: str
    """What happened, and what to do."""
    gtid: str
    file: str
    pos: int
    unknown: str | None = None
    """Why its columns are unknown, if that is the reason."""


def stop_reason(error: UnreadableTableError, table: str) -> str:
    """Return why ``db.table`` stops, and what to do."""
    text = error.message
    if isinstance(error, AmbiguousKeyError):
        position = f" at {error.file}:{error.pos}" if error.file else ""
        text = f"{text}, in column {error.column}{position}; change that value at the source"
    return f"{text}, then read the table again with: headgate run --resnapshot '{table}'"


@dataclass(frozen=True)
class RangeEnd:
    """Position at which the reader had everything up to ``gtid``: a hint for the next read."""

    server_uuid: str
    file: str
    pos: int
    gtid: Position
    created_s: int = 0
    """Of the file, as ``Hint.created_s``."""
    last: Last | None = None
    """The last transaction that was read; None: there was none, or the log has no GTIDs."""
    first: Last | None = None
    """The first one in a log without GTIDs, if all others are of its history: they came from one file, by one dump."""


@dataclass(frozen=True)
class Idle:
    """The log was read up to a position: ``gtid`` is all that ended before it. Only :func:`follow` yields it."""

    gtid: Position
    hint: Hint | None = None
    """Position behind the last transaction. None: no transaction was read since the reader connected."""
    last: Last | None = None
    """The last transaction that was read; None: none was."""
    server_uuid: str = ""
    """Server that is known to have executed ``gtid``."""
    unfinished: str = ""
    """GTID of the transaction that is open there, and not in ``gtid``; empty: none is."""
    is_end: bool = True
    """Whether it is the log's end, as far as it has arrived, with no open transaction."""


LogItem: TypeAlias = LogBlock | Ddl | Stopped | RangeEnd | Idle

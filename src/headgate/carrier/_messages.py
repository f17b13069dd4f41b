"""The messages of a batch, as values. ``_wire`` defines their wire format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from headgate.catalog import AddedColumn, ColumnChange, added_columns
from headgate.names import quote_name
from headgate.offsets import ChunkSpec, Hint, Last, ReadState, SinkPosition
from headgate.positions import Position

__all__ = [
    "CarriedColumn",
    "DdlRow",
    "Definition",
    "End",
    "Header",
    "HeaderTable",
    "HighWatermark",
    "ReadingProgress",
    "Redo",
    "Seq",
    "Signals",
    "SourceType",
    "UnreadableRows",
]

Seq: TypeAlias = tuple[int, int, int, int]
"""``(epoch, file, pos, ordinal)``: the order of a stream's changes."""


SourceType: TypeAlias = tuple[str, str]
"""A column's type at the source, as ``Column.mysql`` gives it, and its collation ("" for none)."""


@dataclass(frozen=True)
class CarriedColumn:
    """A column of a table's images; ``spark`` is a Spark type in its short spelling."""

    name: str
    spark: str
    mysql: str = ""
    nullable: bool = True
    rule: str = ""  # how the values differ from MySQL's: ``Column.rule``
    collation: str = ""  # MySQL's, of text, ENUM and SET
    source_name: str = ""  # of a column that a rule renames: its name in MySQL
    comment: str = ""  # MySQL's, if the definition's ``comment`` is known


@dataclass(frozen=True)
class Definition:
    """A table's definition, as of its images."""

    table: str
    key: tuple[str, ...]
    columns: tuple[CarriedColumn, ...]
    rows: str = ""  # the table's expression ``rows``: only rows that pass it have images
    chosen_key: bool = False  # MySQL does not enforce the key: the user chose it
    hook: str = ""  # what made the columns: ``headgate.columns.HookedTable.mark``; "": they are the source's
    hook_gets: tuple[tuple[str, str, str], ...] = ()  # the columns that it gets: name, MySQL type, collation
    comment: str | None = None  # the table's; None: it is unknown, and so are those of columns

    @classmethod
    @lru_cache(maxsize=4096)
    def from_json(cls, text: str) -> Definition:
        """Parse the JSON of :meth:`to_json`."""
        value = json.loads(text)
        columns = tuple(CarriedColumn(**column) for column in value["columns"])
        return cls(
            value["table"],
            tuple(value["key"]),
            columns,
            value.get("rows", ""),
            value.get("chosen_key", False),
            value.get("hook", ""),
            tuple((name, mysql, collation) for name, mysql, collation in value.get("hook_gets", ())),
            value.get("comment"),
        )

    @lru_cache(maxsize=4096)  # noqa: B019 - a definition is a value, and there are few
    def to_json(self) -> str:
        """Return the carrier's JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def ddl(self) -> str:
        """The table's own columns as Spark DDL."""
        return ", ".join(f"{quote_name(column.name)} {column.spark}" for column in self.columns)

    @property
    def text_ddl(self) -> str:
        """The columns as in the images, where a VARIANT is still JSON text, as Spark DDL."""
        plain = (f"{quote_name(c.name)} {'string' if c.spark == 'variant' else c.spark}" for c in self.columns)
        return ", ".join(plain)

    @property
    def rules(self) -> dict[str, str]:
        """Column name → rule, for columns that have one."""
        return {column.name: column.rule for column in self.columns if column.rule}

    @property
    def source_names(self) -> dict[str, str]:
        """Column name → name in MySQL, for columns that a rule renames."""
        return {column.name: column.source_name for column in self.columns if column.source_name}

    def with_comments_of(self, other: Definition | None) -> Definition:
        """Return the definition with another one's comments; None: with these."""
        if other is None or other.comment is None:
            return self
        columns = tuple(replace(column, comment=other.comments.get(column.name, "")) for column in self.columns)
        return replace(self, columns=columns, comment=other.comment)

    @property
    def comments(self) -> dict[str, str]:
        """Column name → comment, "" without one; empty if they are unknown."""
        return {} if self.comment is None else {column.name: column.comment for column in self.columns}

    @property
    def required(self) -> frozenset[str]:
        """The columns that have a value in each row of every table: those of the key, unless MySQL lets them be NULL,
        as it may those of a chosen one.
        """
        return frozenset(column.name for column in self.columns if column.name in self.key and not column.nullable)

    @property
    def types(self) -> dict[str, str]:
        """Column name → Spark type."""
        return {column.name: column.spark for column in self.columns}

    @property
    def source_types(self) -> dict[str, SourceType]:
        """Column name → type at the source. Behind a hook these are the columns that it gets."""
        if self.hook:
            return {name: (mysql, collation) for name, mysql, collation in self.hook_gets}
        return {column.name: (column.mysql, column.collation) for column in self.columns}

    def column(self, name: str) -> CarriedColumn:
        """Return the column of this name, which must exist."""
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True)
class HeaderTable:
    """The planner's state of one table in this batch."""

    state: ReadState = ReadState.READING  # of the table's read, after the batch was planned
    since_epoch: int | None = None  # epoch of the batch with the table's first chunk; None while it waits
    first: bool = False
    last: bool = False
    append: bool = False
    partial: bool = False  # only rows of a signal's condition are read: it begins and ends nothing
    filtered: bool = False  # only rows of the table's configured condition are read: counts as a full snapshot
    surrogate: bool = False  # read along another column than the key: a row changes its range without changing its key
    rows_estimate: int | None = None
    chunks_done: int | None = None
    chunks_estimate: int | None = None
    signals: tuple[str, ...] = ()  # ids of the signals that requested the snapshot


@dataclass(frozen=True)
class ReadingProgress:
    """Progress of a table snapshot, for display."""

    state: Literal["waits", "reading", "read", "done"]
    """``read``: this batch has chunks of it, the last one too; ``done``: that one was in an earlier batch."""
    since_epoch: int | None = None
    maximum_key: str = ""
    last_processed_key: str = ""


@dataclass(frozen=True)
class Header:
    """Header of a batch, which starts after ``start`` and ends at ``gtid`` (E). Exactly one per batch."""

    epoch: int
    start: str
    gtid: str
    server_uuid: str
    planned_us: int
    tables: dict[str, HeaderTable] = field(default_factory=dict)
    actions: tuple[Any, ...] = ()  # the signals that the batch took
    behind: int | None = 0  # transactions executed at planning, except those in ``gtid``; None: the log does not tell
    readings: Mapping[str, ReadingProgress] = field(default_factory=dict)
    full_restart: bool = False  # the stream begins with this batch, and reads all tables
    start_epoch: int = 0  # epoch of the batch that ended at ``start``; 0: there was none
    patterns: tuple[str, ...] = ("*.*",)  # of the tables whose changes the batch has, as of its planning
    last_gtid: str = ""  # the newest transaction in ``gtid``; "": unknown
    last_us: int = 0  # its original commit time, µs since 1970 UTC
    paused: bool = False  # a signal has paused table snapshots

    @property
    def applied(self) -> SinkPosition:
        """What sinks have applied after the batch."""
        return SinkPosition(self.gtid, self.server_uuid, Last(self.last_gtid, self.last_us) if self.last_gtid else None)


@dataclass(frozen=True)
class DdlRow:
    """One DDL statement, for one table that it affects."""

    table: str
    statement: str
    action: str
    seq: Seq
    gtid: str | None
    ts: int | None  # original commit time, µs since 1970 UTC
    new_name: str | None = None  # ``db.table`` after a RENAME
    changes: tuple[ColumnChange, ...] | None = None  # of an ALTER without other effects; None: rows may have changed
    schema: str | None = None
    """Of ``create``, ``alter``, ``rename``: the definition of the table (``new_name``), as JSON, when the statement was
    read, perhaps later than the batch. None: the table is gone, or has a column that cannot be read."""
    unmasks: tuple[str, ...] = ()
    """Columns whose values a rule hid, and no longer does under these names: an ALTER, or a RENAME of the table."""

    @property
    def adds(self) -> tuple[AddedColumn, ...] | None:
        """The columns that an ALTER adds, if it has no other effects and tells their values."""
        return added_columns(self.changes)


@dataclass(frozen=True)
class Redo:
    """A chunk that returned no rows and must be planned again for a later E."""

    chunk: ChunkSpec
    reason: str
    whole_table: bool = False
    """The range is no longer valid (the table is gone or has another key): all of the table must be read again."""

    @property
    def table(self) -> str:
        """``db.table``"""
        return self.chunk.table


@dataclass(frozen=True)
class UnreadableRows:
    """Images of a table, or with ``chunk`` (its number) rows of a chunk, were omitted: they cannot be read."""

    table: str
    reason: str
    gtid: str | None = None
    chunk: int | None = None
    unknown: str | None = None  # why the table's columns are unknown, if that is the reason


@dataclass(frozen=True)
class HighWatermark:
    """GTID set that must be applied before the table's rows are certainly exact."""

    table: str  # ``db.table``
    gtid: Position  # E, and everything in the window of a chunk whose rows were kept or dropped
    last: Last | None = None  # the window's newest transaction; None: the log has no GTIDs


@dataclass(frozen=True)
class Signals:
    """Rows that were inserted into the signal table: ``headgate.control.inserted_rows``."""

    table: str
    rows: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class End:
    """Position of a reader of the log when it had everything in ``gtid``."""

    gtid: str
    server_uuid: str
    file: str  # "": unknown
    pos: int
    created_s: int = 0  # when the server created the file, seconds since 1970 UTC

    @property
    def hint(self) -> Hint | None:
        """Return its position in the log, if known."""
        return Hint(self.server_uuid, self.file, self.pos, self.created_s) if self.file else None

"""A batch as the sinks see it: its messages, with the images as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from headgate.carrier._image_files import open_images
from headgate.carrier._images import Images, ImagesKind
from headgate.carrier._messages import (
    DdlRow,
    Definition,
    End,
    Header,
    HighWatermark,
    Redo,
    Seq,
    Signals,
    UnreadableRows,
)
from headgate.carrier._wire import Message
from headgate.errors import DecodeError
from headgate.offsets import Last
from headgate.positions import NOTHING, Position

__all__ = ["Batch", "Commits", "Part", "StoredImages"]


class StoredImages(NamedTuple):
    """A record batch of images, at least one, in the order of the log."""

    oldest: Seq  # of the first image
    data: pa.Buffer  # for ``open_images``


class Commits(NamedTuple):
    """Number of changes that were committed between two moments, in µs since 1970 UTC."""

    oldest_us: int
    newest_us: int
    changes: int


@dataclass
class Part:
    """All images of one table, kind and definition in a batch."""

    table: str
    kind: ImagesKind
    schema: str  # the definition, as JSON
    images: int = 0
    changes: int = 0  # an update with two images is one
    growth: int = 0  # rows that the changes add, minus those that they remove
    commits: list[Commits] = field(default_factory=list)  # of the changes in each record batch
    newest_seq: Seq | None = None
    truncates: int = 0  # ``t`` images
    partial: bool = False  # some image lacks columns
    stored: list[StoredImages] = field(default_factory=list, compare=False, repr=False)
    size: int = 0  # bytes of the images in memory, about

    @property
    def definition(self) -> Definition:
        """Definition of all images of this part."""
        return Definition.from_json(self.schema)

    @property
    def only_truncates(self) -> bool:
        """Whether all images are ``t`` images. These have the columns that the table had when they were read, which
        may be those of a later ALTER.
        """
        return 0 < self.truncates == self.images

    def record_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all images of this part.

        :raises EngineError: the file of some cannot be read.
        """
        return open_images(one.data for one in self.stored)

    def add(self, images: Images) -> None:
        """Add one record batch."""
        about = images.summary
        self.images += images.count
        self.changes += about.changes
        self.growth += about.growth
        self.size += about.size
        if about.oldest_us is not None and about.newest_us is not None:
            self.commits.append(Commits(about.oldest_us, about.newest_us, about.changes))
        if about.newest_seq is not None and about.oldest_seq is not None:
            self.stored.append(StoredImages(about.oldest_seq, images.data))
            self.newest_seq = max(about.newest_seq, self.newest_seq or about.newest_seq)
        self.truncates += about.truncates
        self.partial |= about.partial


@dataclass
class Batch:
    """A decoded batch."""

    header: Header
    parts: dict[str, list[Part]] = field(default_factory=dict)
    ddl: list[DdlRow] = field(default_factory=list)  # in log order
    redo: list[Redo] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    stops: dict[str, str] = field(default_factory=dict)  # tables with images that cannot be read, and why
    unread: dict[str, str] = field(default_factory=dict)  # tables with rows in chunks that cannot be read, and why
    unknown: dict[str, str] = field(default_factory=dict)  # tables with images of unknown columns, and why so
    signals: list[dict[str, object]] = field(default_factory=list)  # inserts into the signal table
    watermarks: dict[str, Position] = field(default_factory=dict)
    """Tables whose chunks in this batch are exact only once all of a GTID set is applied."""
    windows: dict[str, list[Last]] = field(default_factory=dict)
    """By table: the newest transactions of the windows that these sets end."""

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Batch:
        """Collect a batch's messages.

        :raises DecodeError: there is not exactly one header.
        """
        all_messages = list(messages)
        headers = [message for message in all_messages if isinstance(message, Header)]
        if len(headers) != 1:
            raise DecodeError(f"a batch has {len(headers)} headers instead of one")
        batch = cls(headers[0])
        for message in all_messages:
            batch._add(message)
        batch.ddl.sort(key=lambda ddl: ddl.seq)
        return batch

    def _add(self, message: Message) -> None:
        match message:
            case Images():
                self._part(message).add(message)
            case DdlRow():
                self.ddl.append(message)
            case Redo():
                self.redo.append(message)
            case UnreadableRows(table=table, reason=reason, chunk=chunk, unknown=unknown):
                (self.stops if chunk is None else self.unread).setdefault(table, reason)
                if unknown is not None:
                    self.unknown.setdefault(table, unknown)
            case HighWatermark(table=table, gtid=gtid, last=last):
                self.watermarks[table] = self.watermarks.get(table, NOTHING) | gtid
                if last is not None and last not in self.windows.setdefault(table, []):
                    self.windows[table].append(last)
            case Signals(rows=rows):
                self.signals += rows
            case End():
                self.ends.append(message)

    def _part(self, images: Images) -> Part:
        parts = self.parts.setdefault(images.table, [])
        for part in parts:
            if part.kind == images.kind and part.schema == images.schema:
                return part
        parts.append(Part(images.table, images.kind, images.schema))
        return parts[-1]

    def tables(self) -> list[str]:
        """Return every table with images, statements, chunks or problems in the batch, or an entry in its header,
        sorted.
        """
        named = {name for ddl in self.ddl for name in (ddl.table, ddl.new_name) if name is not None}
        redone = {redo.table for redo in self.redo}
        return sorted({*self.parts, *self.header.tables, *named, *redone, *self.stops, *self.unread})

    def name_dropped_tables(self, known: Iterable[str]) -> None:
        """Replace a DROP DATABASE, which does not name its tables, by a DROP of each.

        If the stream begins with this batch, add a DROP of each known table that it does not have, too: the statement
        that removed it is in a part of the log that was not read.

        :param known: tables of earlier batches.
        """
        earlier = {*known}
        drops = self._drops_of_missing(earlier) if self.header.full_restart else []
        names = sorted({*earlier, *self.parts, *self.header.tables})
        self.ddl = [*drops, *(named for ddl in self.ddl for named in _with_names(ddl, names))]

    def _drops_of_missing(self, known: set[str]) -> list[DdlRow]:
        statement = "missing, or not followed, when all tables were read again"
        missing = sorted(known - self.header.tables.keys() - self.parts.keys())
        return [
            DdlRow(table, statement, "drop", (self.header.epoch, 0, 0, number), None, None)
            for number, table in enumerate(missing)
        ]


def _with_names(ddl: DdlRow, names: Iterable[str]) -> list[DdlRow]:
    """Return the DROPs that a DROP DATABASE stands for; any other statement alone."""
    if ddl.action != "drop_database":
        return [ddl]
    prefix = ddl.table.removesuffix("*")
    return [replace(ddl, action="drop", table=name) for name in names if name.startswith(prefix)]

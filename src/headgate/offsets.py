"""The stream's position: where a batch ended, and what the next planner must know.

An offset is small (nothing in it grows with rows) and immutable. The same value always prints as the same JSON, so
comparing text shows whether anything changed. The JSON carries a version: an offset of a newer version or of another
program raises ``OffsetFormatError`` and is never read in part.

``gtid`` is everything handed on. The other fields are the progress of the snapshots next to the stream, and hints that
only save time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from headgate.errors import ConfigError, OffsetFormatError
from headgate.parsing import parse_json
from headgate.positions import Position, parse_position

__all__ = [
    "VERSION",
    "ChunkSpec",
    "Hint",
    "Last",
    "ReadState",
    "SinkPosition",
    "SnapshotProgress",
    "SnapshotRequest",
    "SnapshotState",
    "SourceOffset",
    "TableRead",
]

VERSION = 1
"""Version of the JSON form. Raised when a reader of the old form would misread the new one."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Hint:
    """Binlog position at which a reader had read exactly some GTID set. A dump may begin there, which saves the server
    a scan, if the server still has the same file: after RESET BINARY LOGS AND GTIDS its name is used again.
    """

    server_uuid: str
    file: str
    pos: int
    created_s: int = 0
    """When the server created the file, seconds since the Unix epoch, by its clock. 0: unknown; only a read that knows
    which transactions must arrive may begin there."""

    @classmethod
    def from_dict(cls, value: Any, where: str = "hint") -> Hint:
        """Parse the result of ``asdict``; OffsetFormatError for anything else."""
        fields = _Fields(value, where, ("server_uuid", "file", "pos", "created_s"))
        return cls(
            server_uuid=fields.text("server_uuid"),
            file=fields.text("file"),
            pos=fields.number("pos"),
            created_s=fields.number("created_s"),
        )


@dataclass(frozen=True, slots=True)
class Last:
    """The last transaction that was read, in the order of the log, to detect a server whose history was rewritten.

    Its number need not be the highest: a group assigns numbers in blocks, and users choose some.
    """

    gtid: str
    ts_us: int
    """Original commit time, microseconds since 1970-01-01 UTC."""

    @classmethod
    def from_dict(cls, value: Any, where: str = "last") -> Last:
        """Parse the result of ``asdict``; OffsetFormatError for anything else."""
        fields = _Fields(value, where, ("gtid", "ts_us"))
        return cls(gtid=fields.text("gtid"), ts_us=fields.number("ts_us"))


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """What sinks have applied, to resume without a checkpoint: a GTID set, the UUID of the server that it was read on,
    and its newest transaction. ``last`` is None if no header of it was read, because its log was purged before.
    """

    gtid: str
    server_uuid: str
    last: Last | None = None

    def to_json(self) -> str:
        """Return it for :meth:`from_json`."""
        return _dump(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SinkPosition:
        """Parse the result of :meth:`to_json`; OffsetFormatError for anything else."""
        fields = _Fields(_load(text, "position"), "applied", ("gtid", "server_uuid", "last"))
        return cls(_gtid(fields.text("gtid")), fields.text("server_uuid"), fields.optional("last", Last.from_dict))


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """A key range ``(lo, hi]`` of a table. Bounds are literals made by MySQL, one per key column; None = open."""

    table: str
    """``db.table``"""
    number: int
    """Index of the chunk in its table, from 0."""
    lo: tuple[str, ...] | None = None
    hi: tuple[str, ...] | None = None
    filter: str | None = None
    """SQL condition on the rows to read; None: all rows."""
    surrogate: str | None = None
    """The column that the bounds apply to; None: the key's columns."""
    order: str | None = None
    """Fingerprint of the order in which the bounds were made (``headgate.snapshot``); None: there are no bounds."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        more = {"filter": self.filter, "surrogate": self.surrogate, "order": self.order}
        return {
            "table": self.table,
            "number": self.number,
            "lo": _list(self.lo),
            "hi": _list(self.hi),
            **{name: value for name, value in more.items() if value is not None},
        }

    def to_json(self) -> str:
        """Return one line of JSON."""
        return _dump(self.to_dict())

    @classmethod
    def from_dict(cls, value: Any, where: str = "chunk") -> ChunkSpec:
        """Parse the result of ``to_dict``; OffsetFormatError for anything else."""
        fields = _Fields(value, where, ("table", "number", "lo", "hi"), ("filter", "surrogate", "order"))
        return cls(
            table=fields.text("table"),
            number=fields.number("number"),
            lo=fields.bound("lo"),
            hi=fields.bound("hi"),
            filter=fields.optional_text("filter"),
            surrogate=fields.optional_text("surrogate"),
            order=fields.optional_text("order"),
        )

    @classmethod
    def from_json(cls, text: str) -> ChunkSpec:
        """Parse the result of ``to_json``; OffsetFormatError for anything else."""
        return cls.from_dict(_load(text, "chunk"))


_OMITTED: Final = ("rows_left", "dense", "order")
"""Fields of a progress that are written only if they are set."""


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """Planning progress of one table's snapshot."""

    since_epoch: int
    """Epoch of the batch with the table's first chunk."""
    max: tuple[str, ...] | None = None
    """Literals of the greatest key when the snapshot began; None: the table was empty or has no key."""
    hi: tuple[str, ...] | None = None
    """Upper bound of the range planned so far; None: nothing planned yet."""
    chunks_done: int = 0
    """Chunks planned so far."""
    finished: bool = False
    """Whether every chunk was planned."""
    chunks_estimate: int = 0
    rows_estimate: int = 0
    rows_left: int = 0
    """About how many rows are not planned yet; 0: not known."""
    dense: bool = False
    """The key is one integer with closely spaced values, so bounds are calculated instead of counted."""
    order: str = ""
    """Fingerprint of the order in which ``max`` and ``hi`` were made; empty without ``max``."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        value = {**asdict(self), "max": _list(self.max), "hi": _list(self.hi)}
        return {name: one for name, one in value.items() if name not in _OMITTED or one}

    @classmethod
    def from_dict(cls, value: Any, where: str = "progress") -> SnapshotProgress:
        """Parse the result of ``to_dict``; OffsetFormatError for anything else."""
        names = ("since_epoch", "max", "hi", "chunks_done", "finished", "chunks_estimate", "rows_estimate")
        fields = _Fields(value, where, names, _OMITTED)
        return cls(
            since_epoch=fields.number("since_epoch"),
            max=fields.bound("max"),
            hi=fields.bound("hi"),
            chunks_done=fields.number("chunks_done"),
            finished=fields.flag("finished"),
            chunks_estimate=fields.number("chunks_estimate"),
            rows_estimate=fields.number("rows_estimate"),
            rows_left=fields.number("rows_left") if "rows_left" in value else 0,
            dense="dense" in value and fields.flag("dense"),
            order=fields.text("order") if "order" in value else "",
        )


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """How a table is read."""

    signals: tuple[str, ...] = ()
    """Signals that requested it."""
    filter: str | None = None
    """Only rows that fulfil this SQL condition."""
    partial: bool = False
    """It reads only a part of the wanted rows: the table's snapshot state neither begins nor ends with it."""
    surrogate: str | None = None
    """The column along which the table is divided, instead of its key."""
    blocking: bool = False
    """Whether live changes wait until it is done."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "signals": list(self.signals)}

    @classmethod
    def from_dict(cls, value: Any, where: str = "request") -> SnapshotRequest:
        """Parse the result of ``to_dict``; OffsetFormatError for anything else."""
        fields = _Fields(value, where, ("signals", "filter", "partial", "surrogate", "blocking"))
        return cls(
            signals=fields.texts("signals"),
            filter=fields.optional_text("filter"),
            partial=fields.flag("partial"),
            surrogate=fields.optional_text("surrogate"),
            blocking=fields.flag("blocking"),
        )


class ReadState(StrEnum):
    """State of a table's read. A table without a record is complete in the sinks, or was never seen."""

    QUEUED = "queued"  # waits for its first chunk, and was never read
    QUEUED_AGAIN = "queued again"  # waits for its first chunk; until then, the rows that the sinks have stay valid
    BEGUN = "begun"  # as READING, but never read before this batch, which reads no range of it yet
    READING = "reading"  # a range or a chunk to retry is not handed out yet
    READ = "read"  # every chunk was handed out, and the sinks have not confirmed that they have the table
    DEFERRED = "deferred"  # as FOLLOWED, but never read, which this batch's header says
    FOLLOWED = "followed"  # its changes are followed; it is read when a signal names it


_QUEUED: Final = (ReadState.QUEUED, ReadState.QUEUED_AGAIN)
_READING: Final = (ReadState.BEGUN, ReadState.READING)
_IDLE: Final = (ReadState.DEFERRED, ReadState.FOLLOWED)


@dataclass(frozen=True, slots=True)
class TableRead:
    """The read of one table: its state, and what the next planning needs to continue it.

    ``spark/table_reads.py`` has the transitions.
    """

    table: str
    """``db.table``"""
    state: ReadState
    progress: SnapshotProgress | None = None
    """Of its ranges, from the first chunk on. None also if only chunks of an earlier read are retried."""
    request: SnapshotRequest = SnapshotRequest()
    append: bool = False
    """Whether its unread ranges yield no changes, so that its chunks may be appended."""
    retries: tuple[ChunkSpec, ...] = ()
    """Chunks without a result, to be handed out again."""

    def __post_init__(self) -> None:
        has_chunks = self.has_ranges or bool(self.retries)
        if self.is_reading != has_chunks or (self.progress and not (self.is_reading or self.state is ReadState.READ)):
            raise OffsetFormatError(f"damaged offset: {self.table} is {self.state}, with {self.progress}")

    @property
    def has_ranges(self) -> bool:
        """Whether some of its ranges are not handed out yet."""
        return self.progress is not None and not self.progress.finished

    @property
    def is_queued(self) -> bool:
        """Whether it waits for its first chunk."""
        return self.state in _QUEUED

    @property
    def is_reading(self) -> bool:
        """Whether ranges or chunks of it are still to be handed out, and its first chunk is or was next."""
        return self.state in _READING

    @property
    def is_idle(self) -> bool:
        """Whether it is not read, and waits for a signal."""
        return self.state in _IDLE

    @property
    def is_pending(self) -> bool:
        """Whether chunks of it are still to be handed out."""
        return self.is_queued or self.is_reading

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without those that are not set."""
        more = {
            "progress": self.progress and self.progress.to_dict(),
            "request": None if self.request == SnapshotRequest() else self.request.to_dict(),
            "append": self.append,
            "retries": [chunk.to_dict() for chunk in self.retries],
        }
        return {"table": self.table, "state": self.state.value, **{name: one for name, one in more.items() if one}}

    @classmethod
    def from_dict(cls, value: Any, where: str = "read") -> TableRead:
        """Parse the result of ``to_dict``; OffsetFormatError for anything else."""
        fields = _Fields(value, where, ("table", "state"), ("progress", "request", "append", "retries"))
        state = fields.text("state")
        if state not in set(ReadState):
            raise OffsetFormatError(f"damaged offset: {where}.state is {state!r}")
        return cls(
            fields.text("table"),
            ReadState(state),
            fields.optional("progress", SnapshotProgress.from_dict),
            fields.optional("request", SnapshotRequest.from_dict) or SnapshotRequest(),
            "append" in value and fields.flag("append"),
            fields.chunks("retries") if "retries" in value else (),
        )


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """All snapshots next to the stream."""

    tables: tuple[TableRead, ...] = ()
    """One record a table, in the order of work: of the tables that wait, the first is next."""
    chunks: tuple[ChunkSpec, ...] = ()
    """The chunks of the batch that ends at this offset."""

    @property
    def by_table(self) -> dict[str, TableRead]:
        """The records by ``db.table``."""
        return {read.table: read for read in self.tables}

    @property
    def is_pending(self) -> bool:
        """Whether chunks of any table are still to be handed out."""
        return any(read.is_pending for read in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "tables": [read.to_dict() for read in self.tables],
            "chunks": [chunk.to_dict() for chunk in self.chunks],
        }

    @classmethod
    def from_dict(cls, value: Any, where: str = "snapshot") -> SnapshotState:
        """Parse the result of ``to_dict``; OffsetFormatError for anything else."""
        fields = _Fields(value, where, ("tables", "chunks"))
        reads = fields.get("tables", list)
        return cls(
            tables=tuple(TableRead.from_dict(read, f"{where}.tables[{i}]") for i, read in enumerate(reads)),
            chunks=fields.chunks("chunks"),
        )


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The position where a batch of the stream ends."""

    gtid: str
    """Everything handed on: the text of a position."""
    epoch: int
    """Grows with every batch, across restarts and checkpoints; at least the wall clock in milliseconds. Of the offset
    that a stream begins with: the epoch of the newest batch that the sinks have applied; 0: none."""
    tables: tuple[str, ...] = ()
    """The table patterns in force."""
    snapshot: SnapshotState = field(default_factory=SnapshotState)
    signals: Mapping[str, Any] = field(default_factory=dict)
    """State of the signal channels, as plain JSON values."""
    last: Last | None = None
    hint: Hint | None = None
    """Position of ``last`` in a server's log."""
    planned_us: int = 0
    """When the batch was planned, microseconds since 1970-01-01 UTC."""

    @property
    def position(self) -> Position:
        """``gtid``, parsed."""
        return parse_position(self.gtid)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "v": VERSION,
            "gtid": self.gtid,
            "epoch": self.epoch,
            "tables": list(self.tables),
            "snapshot": self.snapshot.to_dict(),
            "signals": dict(self.signals),
            "last": asdict(self.last) if self.last else None,
            "hint": asdict(self.hint) if self.hint else None,
            "planned_us": self.planned_us,
        }

    def to_json(self) -> str:
        """Return one line of JSON; equal offsets give equal text."""
        return _dump(self.to_dict())

    @classmethod
    def from_json(cls, value: str | Mapping[str, Any]) -> SourceOffset:
        """Parse the result of ``to_json`` (text or the parsed object).

        :raises OffsetFormatError: not an offset of headgate, damaged, or of a newer version.
        """
        loaded = _load(value, "offset") if isinstance(value, str) else value
        if not isinstance(loaded, Mapping) or "v" not in loaded:
            raise OffsetFormatError("the stored offset was not written by headgate; use another checkpoint location")
        version = loaded["v"]
        if isinstance(version, int) and not isinstance(version, bool) and version > VERSION:
            raise OffsetFormatError(
                f"the stored offset has version {version}; this headgate reads up to {VERSION}: upgrade headgate"
            )
        if version != VERSION or isinstance(version, bool):
            raise OffsetFormatError(f"the stored offset has the unknown version {version!r}")
        names = ("v", "gtid", "epoch", "tables", "snapshot", "signals", "last", "hint", "planned_us")
        fields = _Fields(loaded, "offset", names)
        return cls(
            gtid=_gtid(fields.text("gtid")),
            epoch=fields.number("epoch"),
            tables=fields.texts("tables"),
            snapshot=SnapshotState.from_dict(fields.get("snapshot", dict), "offset.snapshot"),
            signals=fields.get("signals", dict),
            last=fields.optional("last", Last.from_dict),
            hint=fields.optional("hint", Hint.from_dict),
            planned_us=fields.number("planned_us"),
        )


class _Fields:
    """The checked fields of a JSON object: exactly the named ones and perhaps ``more``, each of its type."""

    def __init__(self, value: Any, where: str, names: tuple[str, ...], more: tuple[str, ...] = ()) -> None:
        if not isinstance(value, Mapping):
            raise OffsetFormatError(f"damaged offset: {where} is not an object")
        different = sorted(set(names) ^ ({str(name) for name in value} - set(more)))
        if different:
            raise OffsetFormatError(f"damaged offset: missing or unknown in {where}: {', '.join(different)}")
        self._values = value
        self._where = where

    def get(self, name: str, kind: type[_T]) -> _T:
        value = self._values[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise OffsetFormatError(f"damaged offset: {self._where}.{name} is {value!r}, not {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        return self.get(name, str)

    def number(self, name: str) -> int:
        return self.get(name, int)

    def flag(self, name: str) -> bool:
        return self.get(name, bool)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.get(name, list)
        if not all(isinstance(value, str) for value in values):
            raise OffsetFormatError(f"damaged offset: {self._where}.{name} has an element that is not text")
        return tuple(values)

    def bound(self, name: str) -> tuple[str, ...] | None:
        return None if self._values[name] is None else self.texts(name)

    def chunks(self, name: str) -> tuple[ChunkSpec, ...]:
        values = self.get(name, list)
        return tuple(ChunkSpec.from_dict(chunk, f"{self._where}.{name}[{i}]") for i, chunk in enumerate(values))

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self._values.get(name) is not None else None

    def optional(self, name: str, read: Callable[[Any, str], _T]) -> _T | None:
        value = self._values.get(name)
        return None if value is None else read(value, f"{self._where}.{name}")


def _gtid(text: str) -> str:
    try:
        return str(parse_position(text))
    except ConfigError as error:
        raise OffsetFormatError(f"damaged offset: {error.message}") from None


def _list(bound: tuple[str, ...] | None) -> list[str] | None:
    return None if bound is None else list(bound)


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _load(text: str, what: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise OffsetFormatError(f"the stored {what} is not JSON: {error}") from None

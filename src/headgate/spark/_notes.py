"""The planner's own notes in an offset (its ``signals`` field): what the next planning and ``partitions`` must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from headgate.carrier import Skipped
from headgate.control import TopicPosition
from headgate.errors import ConfigError, OffsetFormatError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec, Hint

__all__ = ["Cut", "Notes", "Reading"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The start of a binlog file, and the transactions in all files before it."""

    file: str
    gtid: str

    @property
    def gtid_set(self) -> GtidSet:
        """``gtid``, parsed."""
        return GtidSet.parse(self.gtid)


@dataclass(frozen=True, slots=True)
class Reading:
    """What is special about the reading of one table."""

    signals: tuple[str, ...] = ()
    """The signals that asked for it."""
    filter: str | None = None
    """Only rows that fulfil this SQL condition."""
    partial: bool = False
    """They are a part of what the pipeline wants of the table: the reading begins and ends nothing."""
    surrogate: str | None = None
    """The column along which the table is divided, instead of its key."""
    blocking: bool = False
    """Live changes wait until it is done."""

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Reading:
        """From plain JSON values."""
        return cls(
            signals=tuple(str(name) for name in given["signals"]),
            filter=None if given["filter"] is None else str(given["filter"]),
            partial=bool(given.get("partial", given["filter"] is not None)),
            surrogate=None if given["surrogate"] is None else str(given["surrogate"]),
            blocking=bool(given["blocking"]),
        )


@dataclass(frozen=True, slots=True)
class Notes:
    """See the fields. Everything is about the batch that ends at the offset, or about what is still to do then."""

    server_uuid: str = ""
    """The server the batch was planned on."""
    begin: Hint | None = None
    """Where a reader stood when it had everything up to the batch's start."""
    cuts: tuple[Cut, ...] = ()
    """Where the batch's range of the log is divided between tasks, in log order."""
    taken: tuple[str, ...] = ()
    """Signals taken into a plan whose files may still be there."""
    actions: tuple[Mapping[str, Any], ...] = ()
    """The signals that this batch took."""
    redo: tuple[ChunkSpec, ...] = ()
    """Chunks to read again, not planned yet."""
    append: tuple[str, ...] = ()
    """Tables whose unread ranges give no changes, so that their chunks may be appended."""
    reread: tuple[str, ...] = ()
    """Queued tables that were read before."""
    paused: bool = False
    """No chunks are planned until a signal says so."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """By ``db.table``: readings that signals asked for, waiting or under way."""
    stopped: tuple[str, ...] = ()
    """Tables that are not new, and not read until a signal names them: their reading was stopped, or is yet to come."""
    found: tuple[str, ...] = ()
    """Tables that are followed from this batch on without having been read."""
    initial: str | None = None
    """Where the snapshot that a stream begins with stands in the log, a GTID set, until all of it was handed out."""
    settles: str = ""
    """A GTID set that is to be read before the stream ends: rows that were kept or dropped are exact only then."""
    signal_table: str | None = None
    """``db.table`` whose inserts in this batch are signals."""
    topic: TopicPosition | None = None
    """The next message of the Kafka topic with signals."""
    skipped: Skipped | None = None
    """Messages of the topic that were for others."""
    behind: int = 0
    """Transactions that the server had executed at planning, beyond the batch's end."""
    reads: Mapping[str, int] = field(default_factory=dict)
    """By ``db.table``: about how many rows the batch's chunks have."""
    fresh: bool = False
    """The stream begins here: no batch ends at this offset."""
    anew: bool = False
    """It begins by reading everything, whatever the sinks hold."""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        found: dict[str, Any] = _plain(self)
        return found

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Notes:
        """From :meth:`to_dict`; fields that are not there have their defaults.

        :raises OffsetFormatError: anything else.
        """
        try:
            begin, topic, skipped = given.get("begin"), given.get("topic"), given.get("skipped")
            return cls(
                server_uuid=str(given.get("server_uuid", "")),
                begin=Hint(str(begin["server_uuid"]), str(begin["file"]), int(begin["pos"])) if begin else None,
                cuts=tuple(Cut(str(cut["file"]), str(cut["gtid"])) for cut in given.get("cuts", ())),
                taken=tuple(str(name) for name in given.get("taken", ())),
                actions=tuple(dict(action) for action in given.get("actions", ())),
                redo=tuple(ChunkSpec.from_dict(chunk, "signals.redo") for chunk in given.get("redo", ())),
                append=tuple(str(table) for table in given.get("append", ())),
                reread=tuple(str(table) for table in given.get("reread", ())),
                paused=bool(given.get("paused", False)),
                readings={str(t): Reading.from_dict(reading) for t, reading in given.get("readings", {}).items()},
                stopped=tuple(str(table) for table in given.get("stopped", ())),
                found=tuple(str(table) for table in given.get("found", ())),
                initial=None if given.get("initial") is None else str(given["initial"]),
                settles=str(GtidSet.parse(str(given.get("settles", "")))),
                signal_table=None if given.get("signal_table") is None else str(given["signal_table"]),
                topic=TopicPosition(str(topic["topic"]), int(topic["offset"])) if topic else None,
                skipped=Skipped(int(skipped["count"]), tuple(skipped["keys"])) if skipped else None,
                behind=int(given.get("behind", 0)),
                reads={str(table): int(rows) for table, rows in given.get("reads", {}).items()},
                fresh=bool(given.get("fresh", False)),
                anew=bool(given.get("anew", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
            raise OffsetFormatError(f"damaged offset: the planner's notes cannot be read ({error!r})") from None


def _plain(value: Any) -> Any:
    if isinstance(value, ChunkSpec):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    return [_plain(one) for one in value] if isinstance(value, (tuple, list)) else value

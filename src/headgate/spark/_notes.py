"""The planner's notes in an offset (its ``signals`` field), for the next planning and for ``partitions``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from headgate.carrier import parse_windows, sent_at
from headgate.errors import ConfigError, OffsetFormatError
from headgate.offsets import Hint, Last
from headgate.positions import Position, parse_position

__all__ = ["Begin", "Cut", "Notes", "sent_times"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The start of a binlog file, and the transactions in all files before it."""

    file: str
    gtid: str

    @property
    def position(self) -> Position:
        """``gtid``, parsed."""
        return parse_position(self.gtid)


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a stream begins. Spark stores the ends of batches alone: when it repeats a stream's first batch, it asks
    again for the beginning, and the sinks and the server may be elsewhere by then.
    """

    gtid: str
    epoch: int
    full_restart: bool = False
    """Whether the stream begins by reading all tables, regardless of the sinks' state."""


@dataclass(frozen=True, slots=True)
class Notes:
    """The planner's notes about the batch that ends at the offset, or about work still to do then."""

    server_uuid: str = ""
    """UUID of the server on which the batch was planned."""
    begin: Hint | None = None
    """Binlog position of a reader that had everything up to the batch's start."""
    cuts: tuple[Cut, ...] = ()
    """Positions that divide the batch's range of the log between tasks, in log order."""
    taken: tuple[str, ...] = ()
    """Signals taken into a plan whose files may still exist: some stay until their tables are read."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """When these signals were sent, if known: a file with another time is another signal."""
    actions: tuple[Mapping[str, Any], ...] = ()
    """Signals that this batch took."""
    paused: bool = False
    """Whether chunks are planned only after a signal resumes them."""
    initial: str | None = None
    """GTID set of the stream's first snapshot, until all its chunks were handed out."""
    settles: str = ""
    """GTID set to read before the stream ends: rows that were kept or dropped are exact only then."""
    windows: Mapping[str, Sequence[Last]] = field(default_factory=dict)
    """By ``db.table``: the newest transactions of the windows in which its rows were kept or dropped, until they are
    read. Another transaction of one's GTID shows that a failover lost it."""
    signal_table: str | None = None
    """``db.table`` whose inserts in this batch are signals."""
    behind: int | None = None
    """Transactions that the server had executed at planning, beyond the batch's end; None: the log does not tell."""
    reads: Mapping[str, int] = field(default_factory=dict)
    """By ``db.table``: approximate rows of the batch's chunks."""
    begun: Begin | None = None
    """Where the stream began, at that offset itself and at the end of its first batch."""

    def is_another(self, name: str, signals: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether the signal of this name is another one than the one in ``taken``, whose tables may still be
        read.
        """
        return name in signals and sent_at(signals[name]) != self.sent.get(name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Notes:
        """Read from :meth:`to_dict`; missing fields have their defaults.

        :raises OffsetFormatError: invalid values.
        """
        try:
            begin, begun = values.get("begin"), values.get("begun")
            return cls(
                server_uuid=str(values.get("server_uuid", "")),
                begin=Hint.from_dict(begin, "signals.begin") if begin else None,
                cuts=tuple(Cut(str(cut["file"]), str(cut["gtid"])) for cut in values.get("cuts", ())),
                taken=tuple(str(name) for name in values.get("taken", ())),
                sent={str(name): int(us) for name, us in values.get("sent", {}).items()},
                actions=tuple(dict(action) for action in values.get("actions", ())),
                paused=bool(values.get("paused", False)),
                initial=None if values.get("initial") is None else str(values["initial"]),
                settles=str(parse_position(str(values.get("settles", "")))),
                windows=parse_windows(values.get("windows")),
                signal_table=None if values.get("signal_table") is None else str(values["signal_table"]),
                behind=None if values.get("behind") is None else int(values["behind"]),
                reads={str(table): int(rows) for table, rows in values.get("reads", {}).items()},
                begun=_begin(begun) if begun else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
            raise OffsetFormatError(f"damaged offset: the planner's notes cannot be read ({error!r})") from None


def _begin(values: Mapping[str, Any]) -> Begin:
    return Begin(str(parse_position(str(values["gtid"]))), int(values["epoch"]), bool(values["full_restart"]))


def sent_times(names: Iterable[str], signals: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return when these signals were submitted, µs since 1970 UTC, of those that say so."""
    times = {name: sent_at(signals[name]) for name in names if name in signals}
    return {name: us for name, us in times.items() if us is not None}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(value[name]) for name in sorted(value)}
    return [_plain(one) for one in value] if isinstance(value, (tuple, list)) else value

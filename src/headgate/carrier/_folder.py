"""The control folder: small JSON files through which sinks, commands and the planner communicate.

The planner of the Spark source runs in a Python process without a Spark session, so the folder needs only a file
system. It guarantees that a reader sees a file whole or not at all, and that a file survives a crash once ``write`` has
returned. Locally that is a temporary file, fsync, rename, fsync of the folder; on an object store a put is atomic.
There are no other guarantees: files carry an identity (a batch's epoch, a signal's id), so that reading one twice or
after its effect does no harm.

Content and writer of each file: docs/architecture/control.md. The sinks remove signals that are done, the planner
``trouble.json`` when planning succeeds again. ``waiting.json`` is obsolete when the next batch begins.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from headgate.carrier._messages import End, Redo
from headgate.errors import ConfigError, HeadgateError, OffsetFormatError
from headgate.offsets import ChunkSpec, Last
from headgate.parsing import parse_json
from headgate.positions import Position, parse_position
from headgate.stores import folder_of, is_remote

__all__ = [
    "SINK_SIGNALS",
    "ControlFile",
    "ControlFolder",
    "Request",
    "Resnapshot",
    "Settle",
    "SinkTables",
    "Trouble",
    "Waiting",
    "parse_request",
    "parse_windows",
    "sent_at",
    "signal_id",
    "signal_path",
    "signal_type",
]


class ControlFile(StrEnum):
    """Names of the files besides signals."""

    HINT = "hint.json"  # an ``End``: a reader's last position
    FINISHED = "finished.json"  # a ``SinkTables``
    MOVED = "moved.json"  # the last batch that met another server than it was planned on
    FORWARDED = "forwarded.json"  # the next message of the Kafka topic with signals
    NOTIFIED = "notified.json"  # by channel, the newest batch that it was notified of
    STATUS = "status.json"  # state of the pipeline
    TROUBLE = "trouble.json"
    WAITING = "waiting.json"


_SIGNALS: Final = "signals"


@dataclass(frozen=True)
class Resnapshot:
    """Request to read the tables again that match these patterns.

    The sinks write one for a table that a batch does not fit (``headgate.decide``), and a run at its start
    (``pipeline/divergence``, ``run --resnapshot``); the planner follows it (``spark/_requests``). What else
    makes it read a table again: the signal execute-snapshot, a chunk without a result (:class:`Redo`), patterns that
    match more tables, another key order, and a lost position.
    """

    tables: tuple[str, ...]
    reason: str | None = None
    """For readers of the file."""


@dataclass(frozen=True)
class Settle:
    """Request about rows that were kept or dropped while they were read. A stream that ends reads up to a GTID set:
    only then are these rows exact. A table is read again if a failover lost a transaction of its windows, and gave its
    number to another one.

    :param windows: by table, the newest transactions of its windows.
    """

    gtid: Position
    windows: Mapping[str, Sequence[Last]] = field(default_factory=dict)


Request: TypeAlias = Redo | Resnapshot | Settle

_TYPES: Final[Mapping[type, str]] = {Redo: "redo", Resnapshot: "resnapshot", Settle: "settle"}
SINK_SIGNALS: Final = tuple(_TYPES.values())
"""Types of the signals that are requests of the sinks, or of a run, to the stream: no user may send them."""


@dataclass(frozen=True)
class SinkTables:
    """The sinks' tables, and their session's cores, as ``finished.json`` has them."""

    finished: frozenset[str] = frozenset()
    """Those that they hold completely, and those that are suspended."""
    stale: frozenset[str] = frozenset()
    """Those of them whose rows are not valid until they are read again."""
    settling: frozenset[str] = frozenset()
    """Those of them whose rows are exact once later changes are applied."""
    requested: frozenset[str] = frozenset()
    """Those that a request of the sinks or of a run has read again, and that are not read yet. Unless they are stale,
    too, their rows stay valid until then."""
    paused: bool = False
    """Whether a signal has paused table snapshots."""
    slots: int = 0
    """How many tasks the session ran at once after the last batch, as far as executors had registered; 0: unknown."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> SinkTables:
        """Return what the file's content says; what it lacks is empty or unknown."""
        names = ("tables", "stale", "settling", "requested")
        finished, stale, settling, requested = (frozenset(map(str, content.get(name, ()))) for name in names)
        return cls(finished, stale, settling, requested, bool(content.get("paused")), int(content.get("slots", 0)))

    def to_dict(self) -> dict[str, Any]:
        """Return the file's content."""
        return {
            "tables": sorted(self.finished), "stale": sorted(self.stale), "settling": sorted(self.settling),
            "requested": sorted(self.requested), "paused": self.paused, "slots": self.slots,
        }  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """Planning fails since ``since_us`` (µs since 1970 UTC), and is retried."""

    error: str
    since_us: int
    seconds: float = 0.0
    """How long it has failed, by a clock that is never set."""


@dataclass(frozen=True)
class Waiting:
    """The planner has no work since the batch with this epoch. Times are µs since 1970 UTC."""

    epoch: int
    seen_us: int
    """When the server's newest answer said so."""
    paused: bool
    """Whether a signal has paused table snapshots."""
    until_us: int | None = None
    """The next answer is due before: later the server may have changes that nobody knows of."""


def signal_path(name: str) -> str:
    """Return the file of a signal; ``name`` must be safe as a file's name."""
    return f"{_SIGNALS}/{name}.json"


def parse_request(signal: Mapping[str, Any]) -> Request | None:
    """Return the request of a signal; None if it is a user's.

    :raises OffsetFormatError: the chunk of a ``redo`` is invalid; with its table, if the signal names it.
    :raises ConfigError: a signal of the other types is invalid.
    """
    kind = signal.get("type")
    if kind == _TYPES[Redo]:
        try:
            chunk = ChunkSpec.from_dict(signal.get("chunk"))
        except OffsetFormatError as error:
            table = signal.get("table")
            known = table if isinstance(table, str) and "." in table else None
            raise OffsetFormatError(error.message, table=known) from None
        return Redo(chunk, str(signal.get("reason", "")), bool(signal.get("whole_table", False)))
    if kind == _TYPES[Resnapshot]:
        patterns = signal.get("tables")
        if not isinstance(patterns, (list, tuple)):
            raise ConfigError("a resnapshot signal has no list of table patterns")
        reason = signal.get("reason")
        return Resnapshot(tuple(map(str, patterns)), None if reason is None else str(reason))
    if kind == _TYPES[Settle]:
        return Settle(parse_position(str(signal.get("gtid"))), parse_windows(signal.get("windows")))
    return None


def parse_windows(value: Any) -> dict[str, tuple[Last, ...]]:
    """Parse ``Settle.windows`` in its JSON form; None: there are none.

    :raises ConfigError: it is invalid.
    """
    windows = {} if value is None else value
    if not isinstance(windows, Mapping) or not all(isinstance(ends, (list, tuple)) for ends in windows.values()):
        raise ConfigError("the windows of kept rows are no lists of transactions by table")
    try:
        return {str(table): tuple(Last.from_dict(end, "windows") for end in ends) for table, ends in windows.items()}
    except OffsetFormatError as error:
        raise ConfigError(error.message) from None


def _as_signal(request: Request) -> dict[str, Any]:
    values = {name: one for name, one in vars(request).items() if one is not None}
    match request:
        case Redo(table=table, chunk=chunk):
            values |= {"table": table, "chunk": chunk.to_dict()}
        case Settle(gtid=gtid, windows=windows):
            values |= {"gtid": str(gtid), "windows": {table: [*map(asdict, ends)] for table, ends in windows.items()}}
    return {"type": _TYPES[type(request)], **values}


class ControlFolder:
    """Atomic JSON files in one folder. The folder and each file may be missing.

    A store that does not answer is a StorageError, one that refuses a TargetError; a local folder's errors are the
    system's.

    :param path: an absolute local path, or a URI.
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether the folder is in this machine's file system."""
        return not is_remote(self.path)

    # --- files

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write ``value`` to file ``name`` (:class:`ControlFile`, :func:`signal_path`), replacing an existing one."""
        folder_of(self.path).put(name, json.dumps(value, ensure_ascii=False, sort_keys=True).encode())

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the value of file ``name``; None if it does not exist.

        :raises ConfigError: the file is not a JSON object.
        """
        try:
            text = self.text(name)
            if text is None:
                return None
            value = parse_json(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path}/{name} is not a JSON object; remove the file")
        return value

    def text(self, name: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        try:
            return folder_of(self.path).read(name).decode()
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Remove file ``name``; no error if it does not exist."""
        folder_of(self.path).delete(name)

    # --- signals

    def signals(self) -> dict[str, Mapping[str, Any]]:
        """Return ``id -> signal``, in order of submission. A file that vanishes meanwhile is skipped.

        A user's signal that does not say when it was sent has its file's time as ``submitted_us``.
        A file that is not a JSON object becomes ``{"problem": …}``, to be answered like any other signal.
        """
        by_name = {}
        for file in folder_of(self.path).files(_SIGNALS):
            base_name = file.name.rpartition("/")[2]
            name, identity = base_name.removesuffix(".json"), file.identity()
            if identity is not None and name != base_name and base_name[0] != ".":
                signal = self._signal(name)
                if signal is not None:
                    by_name[name] = _timed(signal, identity.modified_ns // 1000)
        return {name: by_name[name][1] for name in sorted(by_name, key=lambda name: (by_name[name][0], name))}

    def _signal(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self.read(signal_path(name))
        except ConfigError as error:
            return {"problem": error.message.replace("; remove the file", "")}

    def requests(self) -> dict[str, Request]:
        """Return the valid requests; the planner answers the others."""
        valid = {}
        for name, signal in self.signals().items():
            with contextlib.suppress(HeadgateError):
                request = parse_request(signal)
                if request is not None:
                    valid[name] = request
        return valid

    def send_request(self, name: str, request: Request, sent_us: int | None = None) -> None:
        """Send a request to the planner, replacing one of the same name.

        :param sent_us: tells requests of one name apart, as ``submitted_us`` does for users' signals: the planner takes
            one although it took the other.
        """
        sent = {} if sent_us is None else {"submitted_us": sent_us}
        self.write(signal_path(name), {**_as_signal(request), **sent})

    def remove_signal(self, name: str) -> None:
        """Remove a signal; no error if it does not exist."""
        self.delete(signal_path(name))

    # --- from the sinks

    def hint(self) -> End | None:
        """Return the last recorded position in the log, if any."""
        content = self.read(ControlFile.HINT)
        names = End.__dataclass_fields__.keys()
        return End(**{name: content[name] for name in names}) if content and names <= content.keys() else None

    def record_hint(self, end: End) -> None:
        """Record a position in the log."""
        self.write(ControlFile.HINT, asdict(end))

    def sink_tables(self) -> SinkTables:
        """Return the sinks' tables as they were last recorded."""
        return SinkTables.of(self.read(ControlFile.FINISHED) or {})

    def record_tables(self, tables: SinkTables) -> None:
        """Record the sinks' tables."""
        self.write(ControlFile.FINISHED, tables.to_dict())

    def forget_position(self) -> None:
        """Remove the sinks' position, finished tables and requests. Users' signals stay, also a pause that was taken,
        and the position in the topic with signals: those that were sent meanwhile are for this pipeline.
        """
        self.delete(ControlFile.HINT)
        self.record_tables(SinkTables(paused=self.sink_tables().paused))
        for name, signal in self.signals().items():
            if signal.get("type") in SINK_SIGNALS:
                self.remove_signal(name)

    # --- from the planner

    def has_moved(self, epoch: int, planned_us: int) -> bool:
        """Return whether this is the last batch that met another server than it was planned on.

        :param planned_us: tells batches apart that have the same epoch, because the lake was removed in between.
        """
        content = self.read(ControlFile.MOVED) or {}
        return (content.get("epoch"), content.get("planned_us")) == (epoch, planned_us)

    def record_moved(self, epoch: int, planned_us: int) -> None:
        """Record that a batch met another server than it was planned on."""
        self.write(ControlFile.MOVED, {"epoch": epoch, "planned_us": planned_us})

    # --- from the planner, for display: write and read errors are ignored

    def trouble(self) -> Trouble | None:
        """Return why planning fails, if it does."""
        content = self._read_or_empty(ControlFile.TROUBLE)
        since, seconds = content.get("since_us"), content.get("seconds")
        if not isinstance(since, int):
            return None
        error = " ".join(str(content.get("error")).split())
        return Trouble(error, since, seconds if isinstance(seconds, (int, float)) else 0.0)

    def waiting(self) -> Waiting | None:
        """Return after which batch there was no work, if recorded."""
        content = self._read_or_empty(ControlFile.WAITING)
        epoch, until = content.get("epoch"), content.get("until_us")
        if not isinstance(epoch, int):
            return None
        until_us = until if isinstance(until, int) else None
        return Waiting(epoch, content.get("seen_us", 0), bool(content.get("paused")), until_us)

    def record_state(self, state: Trouble | Waiting) -> None:
        """Record one of these."""
        with contextlib.suppress(HeadgateError, OSError):
            self.write(ControlFile.TROUBLE if isinstance(state, Trouble) else ControlFile.WAITING, asdict(state))

    def forget(self, file: ControlFile) -> None:
        """Remove a file whose content is obsolete; errors are ignored."""
        with contextlib.suppress(Exception):  # each file system has its own errors
            self.delete(file)

    def _read_or_empty(self, file: ControlFile) -> dict[str, Any]:
        try:
            return self.read(file) or {}
        except (HeadgateError, OSError):
            return {}


def _timed(signal: Mapping[str, Any], written_us: int) -> tuple[int, Mapping[str, Any]]:
    """Return when a signal was submitted, µs since 1970 UTC, 0 for requests, which come first; and the signal."""
    if signal.get("type") in SINK_SIGNALS:
        return 0, signal
    submitted_us = sent_at(signal)
    if submitted_us is not None:
        return submitted_us, signal
    return written_us, signal if "problem" in signal else {**signal, "submitted_us": written_us}


def signal_type(signal: Mapping[str, Any]) -> str:
    """Return the type of a signal in the inbox; ``not a signal`` if the file names none."""
    return str(signal.get("type") or "not a signal")


def signal_id(name: str, signal: Mapping[str, Any]) -> str:
    """Return the id of a signal in the inbox, else the unquoted name of its file."""
    value = signal.get("id")
    return value if isinstance(value, str) and value else unquote(name)


def sent_at(signal: Mapping[str, Any]) -> int | None:
    """Return when a signal in the inbox was sent, in microseconds since 1970 UTC; None: it does not say so."""
    value = signal.get("submitted_us")
    return value if isinstance(value, int) else None

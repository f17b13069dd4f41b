"""The control folder: small JSON files through which sinks, commands and the planner tell each other things.

The planner of the Spark source runs in a Python process without a Spark session, so the folder needs nothing but a file
system. What it guarantees: a reader sees a file whole or not at all, and a file that ``write`` returned from survives a
crash. Locally that is a temporary file, fsync, rename, fsync of the folder; on an object store a put is atomic by
itself. Nothing else is promised: files carry their own identity (a batch's epoch, a signal's id), so that reading one
twice or after its effect does no harm.

What each file holds, and who writes it: docs/architecture/control.md. The planner
removes signals when the batch that took them is done, and ``trouble.json`` when planning goes well again.
``waiting.json`` says nothing any more when a batch has begun.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow.fs as pafs

from headgate.carrier._messages import End, Redo
from headgate.errors import ConfigError, HeadgateError, OffsetFormatError
from headgate.gtid import GtidSet
from headgate.offsets import ChunkSpec
from headgate.stores import is_remote, open_store

__all__ = [
    "SINK_SIGNALS",
    "ControlFile",
    "ControlFolder",
    "Request",
    "Resnapshot",
    "Settle",
    "Trouble",
    "Waiting",
    "parse_request",
    "signal_path",
]


class ControlFile(StrEnum):
    """The files beside the signals."""

    HINT = "hint.json"  # an ``End``: a reader stood there
    FINISHED = "finished.json"  # tables that the sinks hold completely
    NOTIFIED = "notified.json"  # by channel, the newest batch that it has been told of
    STATUS = "status.json"  # how the pipeline is doing
    TROUBLE = "trouble.json"
    WAITING = "waiting.json"


_LOCAL: Final = pafs.LocalFileSystem()
_SIGNALS: Final = "signals"
SINK_SIGNALS: Final = ("redo", "resnapshot", "settle")
"""Types of the signals that are requests: what the sinks and ``run --resnapshot`` ask of the stream."""


@dataclass(frozen=True)
class Resnapshot:
    """Read the tables again that match these patterns."""

    tables: tuple[str, ...]
    reason: str | None = None


@dataclass(frozen=True)
class Settle:
    """Rows that were kept or dropped are exact only once all of a set is applied."""

    gtid: GtidSet


Request: TypeAlias = Redo | Resnapshot | Settle


@dataclass(frozen=True)
class Trouble:
    """The planner cannot do its work since then (µs since 1970 UTC), and tries again."""

    error: str
    since_us: int


@dataclass(frozen=True)
class Waiting:
    """The planner has found nothing to do after the batch with this epoch."""

    epoch: int
    since_us: int
    paused: bool
    """Because a signal has paused the reading of tables."""


def signal_path(name: str) -> str:
    """The file of a signal; ``name`` is safe as a file's name."""
    return f"{_SIGNALS}/{name}.json"


def parse_request(signal: Mapping[str, Any]) -> Request | None:
    """What a signal asks; None: it is one of users.

    :raises OffsetFormatError: a ``redo`` whose chunk cannot be read; with its table, if it says that.
    :raises ConfigError: the other types cannot be read.
    """
    kind = signal.get("type")
    if kind == "redo":
        try:
            chunk = ChunkSpec.from_dict(signal.get("chunk"))
        except OffsetFormatError as error:
            table = signal.get("table")
            known = table if isinstance(table, str) and "." in table else None
            raise OffsetFormatError(error.message, table=known) from None
        return Redo(chunk, str(signal.get("reason", "")), bool(signal.get("whole_table", False)))
    if kind == "resnapshot":
        patterns = signal.get("tables")
        if not isinstance(patterns, (list, tuple)):
            raise ConfigError("a resnapshot signal has no list of table patterns")
        return Resnapshot(tuple(str(pattern) for pattern in patterns))
    return Settle(GtidSet.parse(str(signal.get("gtid")))) if kind == "settle" else None


def _as_signal(request: Request) -> dict[str, Any]:
    if isinstance(request, Redo):
        return {"type": "redo", "table": request.table, **vars(request), "chunk": request.chunk.to_dict()}
    if isinstance(request, Settle):
        return {"type": "settle", "gtid": str(request.gtid)}
    return {"type": "resnapshot", **{name: one for name, one in vars(request).items() if one is not None}}


class ControlFolder:
    """Atomic JSON files in one folder. Nothing in it needs to exist.

    :param path: an absolute local path, or a URI (``s3a://``, or of another kind that ``pyarrow.fs`` knows).
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    @property
    def is_local(self) -> bool:
        """Whether the folder is in this machine's file system."""
        return not is_remote(self.path)

    # --- files

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Put ``value`` under ``name`` (:class:`ControlFile`, :func:`signal_path`), replacing what was there."""
        data = json.dumps(value, ensure_ascii=False, sort_keys=True).encode()
        if self.is_local:
            _write_local(Path(self.path, name), data)
            return
        fs, path = self._open(name)
        if not isinstance(fs, pafs.S3FileSystem):  # which has no folders
            fs.create_dir(path.rpartition("/")[0], recursive=True)
        with fs.open_output_stream(path) as out:
            out.write(data)

    def read(self, name: str) -> dict[str, Any] | None:
        """The value under ``name``, or None.

        :raises ConfigError: the file is not a JSON object.
        """
        try:
            text = self.text(name)
            if text is None:
                return None
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConfigError(f"{self.path}/{name} is not a JSON object; remove the file")
        return value

    def text(self, name: str) -> str | None:
        """What a file holds, whatever it is; None: there is none."""
        fs, path = self._open(name)
        try:
            with fs.open_input_stream(path) as source:
                return bytes(source.read()).decode()
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Remove ``name``; it is no error if it is not there."""
        fs, path = self._open(name)
        with contextlib.suppress(FileNotFoundError):
            fs.delete_file(path)

    def _open(self, name: str) -> tuple[pafs.FileSystem, str]:
        fs, root = (_LOCAL, self.path) if self.is_local else open_store(self.path)
        return fs, f"{root}/{name}"

    # --- signals

    def signals(self) -> dict[str, Mapping[str, Any]]:
        """``id -> signal``, in the order in which they came. A file that vanishes meanwhile is left out.

        One that is no JSON object comes as ``{"problem": …}``, to be answered like any other signal.
        """
        fs, path = self._open(_SIGNALS)
        found = {}
        for info in fs.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
            name = info.base_name.removesuffix(".json")
            if info.is_file and name != info.base_name and info.base_name[0] != ".":
                signal = self._signal(name)
                if signal is not None:
                    found[name] = _submitted(signal, (info.mtime_ns or 0) // 1000), signal
        return {name: found[name][1] for name in sorted(found, key=lambda name: (found[name][0], name))}

    def _signal(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self.read(signal_path(name))
        except ConfigError as error:
            return {"problem": error.message.replace("; remove the file", "")}

    def requests(self) -> dict[str, Request]:
        """The requests that can be read; the planner answers the others."""
        found = {}
        for name, signal in self.signals().items():
            with contextlib.suppress(HeadgateError):
                request = parse_request(signal)
                if request is not None:
                    found[name] = request
        return found

    def ask(self, name: str, request: Request) -> None:
        """Ask something of the planner; a request of the same name is replaced."""
        self.write(signal_path(name), _as_signal(request))

    def remove_signal(self, name: str) -> None:
        """Remove a signal; it is no error if it is gone."""
        self.delete(signal_path(name))

    # --- from the sinks

    def hint(self) -> End | None:
        """The last recorded position in the log, if any."""
        found = self.read(ControlFile.HINT)
        names = End.__dataclass_fields__.keys()
        return End(**{name: found[name] for name in names}) if found and names <= found.keys() else None

    def tell_hint(self, end: End) -> None:
        """Record a position in the log."""
        self.write(ControlFile.HINT, asdict(end))

    def finished(self) -> frozenset[str]:
        """Tables that the sinks hold completely."""
        found = self.read(ControlFile.FINISHED) or {}
        return frozenset(str(table) for table in found.get("tables", ()))

    def tell_finished(self, tables: Iterable[str]) -> None:
        """Say which tables the sinks hold completely."""
        self.write(ControlFile.FINISHED, {"tables": sorted(tables)})

    def forget_position(self) -> None:
        """Forget where the sinks are and what they asked for; signals of users stay."""
        for file in (ControlFile.HINT, ControlFile.FINISHED):
            self.delete(file)
        for name, signal in self.signals().items():
            if signal.get("type") in SINK_SIGNALS:
                self.remove_signal(name)

    # --- from the planner, for people to see: where nothing can be written or read, nothing is said

    def trouble(self) -> Trouble | None:
        """Why planning fails, if it does."""
        found = self._said(ControlFile.TROUBLE)
        since = found.get("since_us")
        return Trouble(" ".join(str(found.get("error")).split()), since) if isinstance(since, int) else None

    def waiting(self) -> Waiting | None:
        """After which batch there was nothing to do."""
        found = self._said(ControlFile.WAITING)
        epoch = found.get("epoch")
        return Waiting(epoch, found.get("since_us", 0), bool(found.get("paused"))) if isinstance(epoch, int) else None

    def tell(self, what: Trouble | Waiting) -> None:
        """Say one of these."""
        with contextlib.suppress(OSError):
            self.write(ControlFile.TROUBLE if isinstance(what, Trouble) else ControlFile.WAITING, asdict(what))

    def forget(self, file: ControlFile) -> None:
        """What a file says is so no longer."""
        with contextlib.suppress(Exception):  # each file system has its own errors
            self.delete(file)

    def _said(self, file: ControlFile) -> dict[str, Any]:
        try:
            return self.read(file) or {}
        except (HeadgateError, OSError):
            return {}


def _write_local(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    with temporary.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _submitted(signal: Mapping[str, Any], written_us: int) -> int:
    """When a signal was submitted, microseconds since 1970 UTC; requests come first."""
    if signal.get("type") in SINK_SIGNALS:
        return 0
    found = signal.get("submitted_us")
    return found if isinstance(found, int) else written_us

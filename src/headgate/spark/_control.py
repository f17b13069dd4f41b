"""The control folder, as the planner sees it: small JSON files that sinks and commands leave for it.

=====================  ============================================================================
``hint.json``          ``{gtid, server_uuid, file, pos}``: a reader stood there when it had ``gtid``
``finished.json``      ``{tables: [...]}``: tables that the sinks hold completely
``signals/<id>.json``  ``{type: "resnapshot", tables: [patterns]}``, ``{type: "redo", chunk: {…}}``,
                       ``{type: "settle", gtid}``, or one of users (:mod:`headgate.control`)
``trouble.json``       ``{error, since_us}``: the planner cannot do its work now, and tries again
``waiting.json``       ``{epoch, since_us, paused}``: it has found nothing to do after the batch ``epoch``
=====================  ============================================================================

Writers put files there whole (rename). The planner reads, and removes signals when the batch that took them is done.
The last two are its own, for people to see: ``trouble.json`` is removed when planning goes well again, ``waiting.json``
says nothing any more when a batch has begun.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

from headgate.control import SINK_SIGNALS
from headgate.errors import ConfigError

__all__ = ["ControlFolder"]


class ControlFolder:
    """A local folder, or a URI that ``pyarrow.fs`` knows. Nothing in it needs to exist."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")
        self._opened: tuple[pafs.FileSystem, str] | None = None

    def hint(self) -> Mapping[str, Any] | None:
        """Where a reader stood, if anybody wrote it down."""
        found = self._read("hint.json")
        return found if found and {"gtid", "server_uuid", "file", "pos"} <= found.keys() else None

    def finished(self) -> frozenset[str]:
        """Tables that the sinks hold completely."""
        found = self._read("finished.json") or {}
        return frozenset(str(table) for table in found.get("tables", ()))

    def signals(self) -> dict[str, Mapping[str, Any]]:
        """``id -> signal``, in the order in which they came. A file that vanishes meanwhile is left out.

        One that is no JSON object comes as ``{"problem": …}``, to be answered like any other signal.
        """
        fs, root = self._open()
        infos = fs.get_file_info(pafs.FileSelector(f"{root}/signals", allow_not_found=True))
        files = {
            info.base_name.removesuffix(".json"): (info.mtime_ns or 0) // 1000
            for info in infos
            if info.is_file and info.base_name.endswith(".json") and info.base_name[0] != "."
        }
        found = {name: self._signal(name) for name in files}
        there = {name: signal for name, signal in found.items() if signal is not None}
        return dict(sorted(there.items(), key=lambda item: (_submitted(item[1], files[item[0]]), item[0])))

    def _signal(self, name: str) -> Mapping[str, Any] | None:
        try:
            return self._read(f"signals/{name}.json")
        except ConfigError as error:
            return {"problem": error.message.replace("; remove the file", "")}

    def remove_signal(self, name: str) -> None:
        """Remove a signal; it is no error if it is gone."""
        fs, root = self._open()
        try:
            fs.delete_file(f"{root}/signals/{name}.json")
        except FileNotFoundError:
            return

    def tell_trouble(self, error: str, since_us: int) -> None:
        """Planning fails since ``since_us``, in µs since 1970 UTC; where nothing can be written, nothing is."""
        self._tell("trouble.json", {"error": error, "since_us": since_us})

    def tell_waiting(self, epoch: int, since_us: int, *, paused: bool) -> None:
        """There is nothing to do after the batch with this epoch, as of ``since_us``.

        :param paused: because a signal has paused the reading of tables.
        """
        self._tell("waiting.json", {"epoch": epoch, "since_us": since_us, "paused": paused})

    def _tell(self, name: str, value: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            fs, root = self._open()
            whole = f"{root}/{name}"
            part = whole if "://" in self._path else f"{root}/.{name}.part"  # a put is atomic by itself
            with fs.open_output_stream(part) as out:
                out.write(json.dumps(value).encode())
            if part != whole:
                fs.move(part, whole)

    def forget_trouble(self) -> None:
        """Planning goes well."""
        with contextlib.suppress(OSError):
            fs, root = self._open()
            fs.delete_file(f"{root}/trouble.json")

    def _open(self) -> tuple[pafs.FileSystem, str]:
        if self._opened is None:
            if "://" in self._path:
                self._opened = pafs.FileSystem.from_uri(self._path.replace("s3a://", "s3://", 1))
            else:
                self._opened = pafs.LocalFileSystem(), self._path
        return self._opened

    def text(self, name: str) -> str | None:
        """What a file holds, whatever it is; None: there is none."""
        fs, root = self._open()
        try:
            with fs.open_input_stream(f"{root}/{name}") as source:
                return bytes(source.read()).decode()
        except FileNotFoundError:
            return None

    def _read(self, name: str) -> dict[str, Any] | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ConfigError(f"{self._path}/{name} is not a JSON object; remove the file")
        return value


def _submitted(signal: Mapping[str, Any], written_us: int) -> int:
    """When a signal was submitted, microseconds since 1970 UTC; those of the sinks come first."""
    if signal.get("type") in SINK_SIGNALS:
        return 0
    found = signal.get("submitted_us")
    return found if isinstance(found, int) else written_us

"""The inbox: small JSON files through which sinks, commands and the planner tell each other things.

The planner of the Spark source runs in a Python process without a Spark session, so the inbox needs nothing but a
file system. What it guarantees: a reader sees a file whole or not at all, and a file that ``write`` returned from
survives a crash. Locally that is a temporary file, fsync, rename, fsync of the folder; on an object store a put is
atomic by itself. Nothing else is promised: files carry their own identity (a batch's epoch, a signal's id), so that
reading one twice or after its effect does no harm.

=====================  ==============================================================  ======================
file                   content                                                         written by
=====================  ==============================================================  ======================
``hint.json``          ``{gtid, server_uuid, file, pos}``: a reader stood there         pipeline, after a batch
``finished.json``      ``{tables: [...]}``: tables the ledger has as read, or held         pipeline, after a batch
``notified.json``      ``{channel: epoch}``: the newest batch it has been told of        pipeline (control)
``signals/<id>.json``  ``{type: "resnapshot", tables: [patterns]}`` or                  pipeline, commands
                       ``{type: "redo", table, chunk, reason}``
``trouble.json``       ``{error, since_us}``: planning fails                            planner
``waiting.json``       ``{epoch, since_us, paused}``: nothing to do after that batch    planner
=====================  ==============================================================  ======================
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from headgate.errors import TargetError

__all__ = ["Inbox"]


class Inbox:
    """Atomic JSON files in one folder.

    :param path: an absolute local path, or a URI that ``pyarrow.fs`` knows (``s3://``, ``gs://``, ``hdfs://``;
        Hadoop's spelling ``s3a://`` is understood).
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._local = "://" not in path
        self._fs: Any = None
        self._root = self.path

    @property
    def is_local(self) -> bool:
        """Whether the folder is in this machine's file system."""
        return self._local

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Put ``value`` under ``name`` (``"hint.json"``, ``"signals/<id>.json"``), replacing what was there."""
        data = json.dumps(value, ensure_ascii=False, sort_keys=True).encode()
        if self._local:
            self._write_local(name, data)
            return
        fs, path = self._open(name)
        fs.create_dir(path.rpartition("/")[0], recursive=True)
        with fs.open_output_stream(path) as out:
            out.write(data)

    def read(self, name: str) -> dict[str, Any] | None:
        """The value under ``name``, or None. A file that is not a JSON object is a ``TargetError``."""
        fs, path = self._open(name)
        try:
            with fs.open_input_stream(path) as source:
                data = source.read()
        except FileNotFoundError:
            return None
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise TargetError(f"{self.path}/{name} is not a JSON object; remove the file and start again")
        return value

    def names(self, folder: str) -> list[str]:
        """The names (``"<folder>/<id>.json"``) in ``folder``, sorted."""
        fs, path = self._open(folder)
        infos = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        found = [info.base_name for info in infos if info.is_file and info.base_name.endswith(".json")]
        return sorted(f"{folder}/{name}" for name in found)

    def delete(self, name: str) -> None:
        """Remove ``name``; it is no error if it is not there."""
        fs, path = self._open(name)
        try:
            fs.delete_file(path)
        except FileNotFoundError:
            return

    def _open(self, name: str) -> tuple[Any, str]:
        if self._fs is None:
            if self._local:
                self._fs = pafs.LocalFileSystem()
            else:
                uri = self.path.replace("s3a://", "s3://", 1)
                self._fs, self._root = pafs.FileSystem.from_uri(uri)
        return self._fs, f"{self._root}/{name}"

    def _write_local(self, name: str, data: bytes) -> None:
        path = Path(self.path) / name
        folder = path.parent
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{path.name}.{uuid.uuid4().hex}"
        with temporary.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

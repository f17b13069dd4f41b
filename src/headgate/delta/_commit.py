"""Commits to a table's log: one version after another, each by one writer.

Delta's own transaction in the JVM takes some 100 ms per commit on a local disk, mostly for processes that Hadoop's
local file system starts to set permissions. In a local folder a commit is a file with an unused name: it is written
under a temporary name, synced, and linked to its name, which the operating system does for one writer only. So a writer
that has planned on a version commits the next one, or learns that another program did, and plans again. For tables
elsewhere the caller passes a function that creates a file only if it does not exist (:data:`Put`).

Only tables that require nothing of writers except these actions may be written this way (``headgate.lake``).
"""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headgate.delta._log import Snapshot, commit_name
from headgate.errors import CommitConflictError

__all__ = ["Put", "commit"]

Put = Callable[[str, str, str], None]
"""Creates a whole file of a table's folder: ``(folder, name, text)``. Raises ``FileExistsError`` if the name exists.
After any exception, its own file does not exist."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""Errors of file systems without hard links. There two programs that commit at the same moment can lose one commit, as
with Delta's own writers, which check and then rename."""


def commit(
    folder: str,
    read: Snapshot,
    actions: Sequence[Mapping[str, Any] | str],
    operation: str,
    parameters: Mapping[str, str],
    *,
    blind: bool,
    put: Put | None = None,
) -> None:
    """Commit the next version of the table in ``folder``, or its first one.

    :param read: the version that the commit was planned on.
    :param actions: as in the log: objects, or their JSON text.
    :param operation: its name in the table's history.
    :param blind: it only adds rows, independent of the table's content, so it conflicts with no other.
    :param put: creates the commit's file if it does not exist; by default in a local folder.
    :raises CommitConflictError: another program committed that version.
    :raises OSError: it cannot be written.
    """
    version = read.version + 1
    about = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": operation,
        "operationParameters": dict(parameters),
        "isolationLevel": "Serializable",
        "isBlindAppend": blind,
        "engineInfo": "headgate",
        "txnId": str(uuid.uuid4()),
        **({"readVersion": read.version} if read.version >= 0 else {}),
    }
    lines = [{"commitInfo": about}, *actions]
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    try:
        (put or _put)(folder, commit_name(version), text)
    except FileExistsError:
        raise CommitConflictError(f"{folder}: another program committed version {version}") from None


def _put(folder: str, name: str, text: str) -> None:
    """Create a whole file that does not exist yet. After any exception it does not exist."""
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with aside.open("xb") as out:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
        _link(aside, path)
    finally:
        with suppress(OSError):
            aside.unlink()


def _link(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(path) from None
        aside.rename(path)

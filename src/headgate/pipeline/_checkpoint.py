"""Spark's checkpoint: what it says of a stream that has ended, and its state after a loss of power.

Spark syncs nothing of it.

The end of a batch must outlast what the batch writes: else a run plans the next batch from an older end, and writes
changes again. So it is synced before the batch writes anything. What is torn afterwards is the end of a batch that
wrote nothing, which is planned again, or records of finished batches, which are repeated: the ledger has the last one.

On an object store a file is whole or does not exist.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.errors import TargetError
from headgate.files import file_errors, sync

__all__ = ["left_to_read", "remove_torn_files", "sync_end"]

log = logging.getLogger("headgate")

_LINES: Final = {"offsets": 3, "commits": 2}
"""Least number of lines in the files of a folder: a version, then JSON (``OffsetSeqLog``, ``CommitLog`` of Spark)."""


def left_to_read(checkpoint: str, warns: Callable[[str], None]) -> str:
    """Return which tables a stream that has ended by itself has left to read, why, and what to do, and warn of them;
    ``""``: there are none.

    :param warns: enters the warning in the status.
    :raises OffsetFormatError: the newest offset is damaged; a store's errors likewise.
    """
    from headgate.spark import TablesToRead

    left = TablesToRead.read(checkpoint)
    if not left.tables:
        return ""
    why = "their chunks could not be read as of one position: start again"
    if left.paused:
        why = "a signal paused that: send resume-snapshot, then start again"
    text = f"{', '.join(left.tables)}: waiting to be read; {why}"
    log.warning("%s", text)
    warns(text)
    return text


def sync_end(checkpoint: Path, batch_id: int) -> None:
    """Sync the file with the end of a batch, which Spark has written.

    :raises TargetError: it cannot be synced; StorageError likewise.
    """
    folder = checkpoint / "offsets"
    with file_errors(f"{folder} cannot be synced", TargetError):
        sync(folder / str(batch_id))
        for above in (folder, *(folder.parents if batch_id == 0 else ())):
            sync(above)


def remove_torn_files(checkpoint: Path) -> None:
    """Remove the newest files of the checkpoint if they are incomplete. They cannot be read, so no query would start.

    Hadoop's checksums, which it never syncs, go, too: they may contradict whole files.

    :raises TargetError: a file cannot be read or removed; StorageError likewise.
    """
    with file_errors(f"{checkpoint} cannot be read or written", TargetError):
        for crc in checkpoint.glob("**/.*.crc"):
            crc.unlink(missing_ok=True)
        for name, lines in _LINES.items():
            numbered = [file for file in checkpoint.glob(f"{name}/*") if file.name.isdigit()]
            for file in sorted(numbered, key=lambda one: int(one.name), reverse=True):
                if _is_whole(file, lines, 1):
                    break
                _remove(file)
        metadata = checkpoint / "metadata"
        if metadata.exists() and not _is_whole(metadata, 1, 0):
            _remove(metadata)


def _is_whole(file: Path, lines: int, first: int) -> bool:
    """Whether a file has all of its lines, and those from ``first`` on are JSON; ``-`` is a source without an end."""
    content = file.read_bytes().splitlines()
    try:
        for line in content[first:]:
            if line != b"-":
                json.loads(line)
    except ValueError:
        return False
    return len(content) >= lines


def _remove(file: Path) -> None:
    file.unlink()
    log.warning("%s was incomplete, as after a loss of power: removed, and what it recorded is done again", file)

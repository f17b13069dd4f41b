"""Checkpoints of a table's log."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable

from headgate.delta import LOG, RETENTION_PROPERTIES, TableLog, write_checkpoint

__all__ = ["make_checkpoint"]


def make_checkpoint(folder: str) -> None:
    """headgate's, or delta-rs', with tombstones, if headgate makes none because others may remove the table's files."""
    if RETENTION_PROPERTIES.items() <= TableLog(folder).refresh(files=False).properties.items():
        write_checkpoint(folder)
        return
    with TemporaryDirectory() as path:  # delta-rs would decode a name with %
        Path(path, LOG).symlink_to(Path(folder, LOG), target_is_directory=True)
        DeltaTable(path).create_checkpoint()

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate.files import OwnedError, sole_owner


def test_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "lock"
    with sole_owner(file):
        with pytest.raises(OwnedError, match=f"^process {os.getpid()}$"), sole_owner(file):
            pass
        assert file.read_text() == f"process {os.getpid()}"
    file.write_text("process 123456789")  # of one that was killed
    with sole_owner(file):
        assert file.read_text() == f"process {os.getpid()}"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), sole_owner(tmp_path / "file" / "lock"):
        pass

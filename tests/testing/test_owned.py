"""Processes that end with their owner."""

from __future__ import annotations

import pytest

from headgate.errors import ConnectError
from headgate_testing._owned import OwnedProcesses


def test_a_process_that_does_not_start_says_why() -> None:
    with OwnedProcesses("headgate-owned-") as owned, pytest.raises(ConnectError, match="one did not start: it broke"):
        owned.launch("one", ["sh", "-c", "echo it broke; exit 3"], lambda: False)
    assert not owned.folder.exists()


def test_processes_and_folder_go_with_their_owner() -> None:
    with OwnedProcesses("headgate-owned-") as owned:
        up = owned.folder / "up"
        process = owned.launch("one", ["sh", "-c", 'touch "$1"; exec sleep 600', "sh", str(up)], up.exists)
        assert process.poll() is None
    assert process.poll() is not None
    assert not owned.folder.exists()
    owned.stop()

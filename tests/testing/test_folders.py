"""Folders of private servers: those of killed owners are removed, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headgate_testing import _folders
from headgate_testing._folders import claim, new_folder


def test_only_old_folders_without_an_owner_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_folders, "_short_temporary_folder", lambda: str(tmp_path))
    killed, owned, other = new_folder("kind-"), new_folder("kind-"), new_folder("other-")
    (killed / "data").mkdir()
    lock = claim(owned)
    assert lock is not None
    assert claim(owned) is None, "another owner has it"
    for folder in (killed, owned, other):
        os.utime(folder, (1, 1))
    young = new_folder("kind-")
    assert {*tmp_path.iterdir()} == {owned, other, young}
    lock.close()
    os.utime(owned, (1, 1))
    new_folder("kind-")
    assert not owned.exists()
    assert claim(owned) is None, "it is gone"

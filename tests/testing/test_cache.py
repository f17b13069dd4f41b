"""Folders of the user's cache."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headgate.files import make_once


def test_a_folder_is_made_once_and_never_seen_half(tmp_path: Path) -> None:
    target, made = tmp_path / "target", []

    def make() -> None:
        with make_once(target) as folder:
            if folder is not None:
                made.append(folder)
                assert not target.exists()
                (folder / "file").touch()

    with pytest.raises(RuntimeError), make_once(target):
        raise RuntimeError("interrupted")
    assert not target.exists()
    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert [path.name for path in target.iterdir()] == ["file"]

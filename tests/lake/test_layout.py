from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import TargetError
from headgate.lake import Lake


def test_the_layout() -> None:
    lake = Lake.at("s3a://bucket/lake/")
    assert not lake.is_local
    assert lake.current("shop.orders") == "s3a://bucket/lake/shop/orders"
    assert lake.changelog("shop.a/b") == "s3a://bucket/lake/_changelog/shop/a-002fb"
    assert lake.ledger == "s3a://bucket/lake/_headgate/ledger"
    assert lake.current("_headgate.x") == "s3a://bucket/lake/-005fheadgate/x"


def test_a_folder_that_nothing_can_be_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Lake.at(tmp_path / "not" / "yet" / "lake").check_root()
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "lake"):
        with pytest.raises(TargetError, match=f"{file} is not a folder; choose another target.path"):
            Lake.at(path).check_root()
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(
        TargetError, match=f"{tmp_path}/lake cannot be written: {tmp_path}: Permission denied; check what"
    ):
        Lake.at(tmp_path / "lake").check_root()


def test_local_paths_are_made_absolute() -> None:
    assert Lake.at("lake").path == str(Path.cwd() / "lake")
    assert Lake.at("file:///tmp/x").path == "/tmp/x"
    assert Lake.at("lake").is_local

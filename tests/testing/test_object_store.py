"""Where the object store's program comes from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.files import cache_folder
from headgate_testing import _object_store
from headgate_testing.__main__ import main

GO = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/log"
echo program >"$GOBIN/minio"
"""


def test_an_object_store_needs_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda *_args, **_more: None)
    with pytest.raises(ConfigError, match="MinIO or Go"):
        _object_store.prepare_object_store()
    assert not cache_folder("minio", _object_store.MINIO_VERSION).exists()


def test_the_first_build_says_that_it_takes_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", ["headgate_testing", "object-store"])
    go = tmp_path / "go"
    go.write_text(GO)
    go.chmod(0o755)
    assert main() == 0
    out, err = capfd.readouterr()
    assert out.startswith("MinIO ")
    assert err.startswith("headgate: building an object store with Go (once; some minutes")
    assert main() == 0
    assert capfd.readouterr() == (out, ""), "it is there"
    assert len((tmp_path / "log").read_text().splitlines()) == 1

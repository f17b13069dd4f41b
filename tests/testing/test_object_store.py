"""Where the object store's program comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.files import cache_folder
from headgate_testing import _object_store


def test_an_object_store_needs_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda *_args, **_more: None)
    with pytest.raises(ConfigError, match="MinIO or Go"):
        _object_store.prepare_object_store()
    assert not cache_folder("minio", _object_store.MINIO_VERSION).exists()

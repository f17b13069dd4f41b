from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.files import cache_folder
from headgate_testing import _blob_store


def test_a_blob_store_needs_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"a blob store needs Node\.js: install it so that it is on PATH"):
        _blob_store.prepare_blob_store()
    assert not cache_folder("azurite", _blob_store.AZURITE_VERSION).exists()

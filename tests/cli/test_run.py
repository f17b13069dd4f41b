from __future__ import annotations

import gc

import pytest

from headgate.cli._run import _loading


def fail_to_load() -> None:
    with _loading():
        assert not gc.isenabled()
        raise ImportError


def test_garbage_is_not_collected_while_modules_load() -> None:
    """What follows collects, even if that failed, and leaves alone what was loaded."""
    try:
        with pytest.raises(ImportError):
            fail_to_load()
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()

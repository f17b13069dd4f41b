"""One worker compiles a kernel, and the others load it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from numba import njit

from headgate_testing import wait_until
from tests.fix_kernels import compiled_once, lock_of, locked


def made(value: int) -> Any:
    return value + 1


def is_awaited(file: Path) -> bool:
    """Whether a thread waits for a lock on ``file`` (proc(5), ``/proc/locks``)."""
    inode = f":{file.stat().st_ino} "
    return any("-> FLOCK" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_another_waits_while_a_kernel_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    kernel = njit(cache=True)(made)
    file = lock_of(kernel)
    assert file is not None
    assert tmp_path in file.parents
    steps: list[str] = []
    compile_kernel = compiled_once(lambda *_: steps.append("compiled"))
    with locked(file), monkeypatch.context() as patch:
        patch.setattr("tests.fix_kernels._held", set())  # as in another process
        other = threading.Thread(target=compile_kernel, args=(kernel, ()))
        other.start()
        wait_until(lambda: is_awaited(file))
        steps.append("released")
    other.join()
    assert steps == ["released", "compiled"]


def test_a_kernel_that_is_compiled_within_itself(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "lock"), locked(tmp_path / "a" / "lock"), locked(tmp_path / "b"):
        pass


def test_one_that_is_not_cached_has_no_lock() -> None:
    assert lock_of(njit(made)) is None

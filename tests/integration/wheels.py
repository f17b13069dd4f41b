"""The wheel of this checkout, and pip, as a user outside of it has them.

pip takes the packages from where its own settings say, in the versions of constraints.txt. Without a network, tests
that need them are skipped.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headgate.files import cache_folder, make_once

__all__ = ["CONSTRAINTS", "ROOT", "build_wheel", "environment_of", "outside", "pip", "run_with_index"]

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
OUT_OF_REACH = re.compile(r"connection broken by|Could not fetch URL|Temporary failure in name resolution")
OF_THE_CHECKOUT = ("PYTHONPATH", "VIRTUAL_ENV", "NUMBA_CACHE_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def outside() -> dict[str, str]:
    """The environment of a shell that knows nothing of the checkout."""
    return {name: value for name, value in os.environ.items() if name not in OF_THE_CHECKOUT}


def run_with_index(command: Sequence[str | Path], env: Mapping[str, str]) -> None:
    """Run a command that needs a package index; if that is out of reach, skip the test."""
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if run.returncode and OUT_OF_REACH.search(run.stderr):
        pytest.skip(f"the package index is out of reach: {run.stderr.strip().splitlines()[-1]}")
    assert run.returncode == 0, run.stdout + run.stderr


def pip(python: str, *words: str | Path) -> None:
    run_with_index([python, "-m", "pip", "--disable-pip-version-check", *map(str, words)], outside())


def environment_of(tool: str) -> Path:
    """The Python of an environment that has a tool alone, in the versions of ``constraints/``; made once, in the cache.

    They are of this Python, and were those of the index when the tool was first run here.
    """
    versions = Path(__file__).with_name("constraints") / f"{tool}.txt"
    digest = hashlib.sha256(versions.read_bytes()).hexdigest()[:12]
    target = cache_folder("orchestrators", f"{tool}-{sys.version_info.major}.{sys.version_info.minor}-{digest}")
    with make_once(target) as folder:
        if folder is not None:
            venv.create(folder, with_pip=True)
            pip(str(folder / "bin/python"), "install", "-q", "--requirement", versions)
    return target / "bin/python"


def build_wheel(folder: Path) -> Path:
    """Built from a copy: a build leaves its folders beside the sources."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    pip(sys.executable, "wheel", "-q", "--no-deps", "-w", folder / "out", folder)
    (file,) = (folder / "out").glob("headgate-*.whl")
    return file

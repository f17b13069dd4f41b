"""Packages of npm, each installed once into a folder of the user's cache; the machine's settings for npm apply."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from headgate.errors import ConfigError
from headgate.files import cache_folder, make_once

__all__ = ["npm_file"]


def npm_file(package: str, version: str, file: str) -> Path:
    """Return a file of a package; install the package if needed.

    :param file: its path inside the package.
    :raises ConfigError: npm is missing, or fails; the message has its last line.
    """
    target, path = cache_folder(package, version), Path("node_modules", package, file)
    with make_once(target) as folder:
        if folder is not None:
            _install(folder, package, version)
            if not (folder / path).exists():
                raise ConfigError(f"{package} {version} has no file {file}")
    return target / path


def _install(folder: Path, package: str, version: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError(f"{package} needs npm: install Node.js so that it is on PATH")
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"]
    command += [f"{package}@{version}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        lines = run.stderr.strip().splitlines()
        raise ConfigError(f"{package} could not be installed: {lines[-1] if lines else 'no message'}")

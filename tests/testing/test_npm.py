"""Packages of npm in the cache folder: what npm makes of them, and what a missing npm means."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.files import cache_folder
from headgate_testing import axe_script
from headgate_testing._axe import AXE_VERSION
from headgate_testing._npm import npm_file

NPM = """#!/bin/sh
echo "$*" >>"{log}"
test -n "{fails}" && echo "npm error no such version" >&2 && exit 1
mkdir -p "$3/node_modules/thing" && echo content >"$3/node_modules/thing/thing.js"
"""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The commands that a stand-in for npm gets."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return stand_in(tmp_path)


def stand_in(folder: Path, *, fails: str = "") -> Path:
    program, log = folder / "npm", folder / "log"
    program.write_text(NPM.format(log=log, fails=fails))
    program.chmod(0o755)
    return log


def test_a_package_is_installed_once_and_without_its_scripts(log: Path) -> None:
    file = npm_file("thing", "1.2", "thing.js")
    assert file.read_text() == "content\n"
    assert npm_file("thing", "1.2", "thing.js") == file
    (line,) = log.read_text().splitlines()
    assert line.startswith("install --prefix ")
    assert line.endswith("--ignore-scripts thing@1.2")


def test_what_npm_cannot_install_leaves_nothing(log: Path, tmp_path: Path) -> None:
    stand_in(tmp_path, fails="yes")
    with pytest.raises(ConfigError, match="thing could not be installed: npm error no such version"):
        npm_file("thing", "1.2", "thing.js")
    stand_in(tmp_path)
    with pytest.raises(ConfigError, match=r"thing 1\.2 has no file other\.js"):
        npm_file("thing", "1.2", "other.js")
    assert not cache_folder("thing", "1.2").exists()
    assert len(log.read_text().splitlines()) == 2


def test_axe_needs_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"axe-core needs npm: install Node\.js so that it is on PATH"):
        axe_script()
    assert not cache_folder("axe-core", AXE_VERSION).exists()

"""Which Java a session would start, and what is said if it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.engine import check_java
from headgate.errors import ConfigError


def java(folder: Path, release: str | None) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{release}"\nOS_ARCH="x86_64"\n')
    return folder


@pytest.mark.parametrize("release", ["17.0.15", "21", "25.0.1", None])
def test_good_ones(release: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, release)))
    check_java()


@pytest.mark.parametrize(("release", "number"), [("11.0.2", 11), ("1.8.0_392", 8)])
def test_old_ones(release: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java(tmp_path / "java", release)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    expected = rf"Spark needs Java 17 or newer, and {home} is Java {number}: install Java 17 .* or set JAVA_HOME"
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigError, match=expected):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigError, match=expected):
        check_java()


def test_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"no {tmp_path}/bin/java, as JAVA_HOME says: install Java 17"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no java on PATH: install Java 17"):
        check_java()

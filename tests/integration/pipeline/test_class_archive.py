"""A real JVM writes the archive that the next one uses."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from headgate.engine._class_archive import archive_option
from headgate.engine._java import java_home


def java(*options: str) -> subprocess.CompletedProcess[str]:
    home = java_home()
    if home is None:
        pytest.skip("there is no Java")
    command = [str(home / "bin" / "java"), *options, "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("options", ["-XX:+UseSerialGC", "-XX:+UseG1GC -Xmx2g", "-Xmx31g"])
def test_what_one_jvm_writes_the_next_uses(tmp_path: Path, options: str) -> None:
    """Whatever its collector, and its memory below 32 GB."""
    first = archive_option(tmp_path, (), "", "1g", writes=True)
    assert first is not None
    assert "ArchiveClassesAtExit" in first
    assert java(*shlex.split(first)).returncode == 0
    second = archive_option(tmp_path, (), "", "1g", writes=True)
    assert second is not None
    assert "SharedArchiveFile" in second
    used = java(*shlex.split(second), *options.split(), "-Xshare:on", "-Xlog:class+load")  # fails if it does not fit
    assert used.returncode == 0, used.stdout + used.stderr
    assert "source: shared objects file (top)" in used.stdout


def test_one_that_does_not_fit_is_not_used_and_not_told_of(tmp_path: Path) -> None:
    first = archive_option(tmp_path, (), "", "1g", writes=True)
    assert first is not None
    java(*shlex.split(first))
    (archive,) = tmp_path.glob("*.jsa")
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(8)
        file.write(os.urandom(200))
    os.utime(archive, (time.time(), time.time()))
    second = archive_option(tmp_path, (), "", "1g", writes=True)
    assert second is not None
    used = java(*shlex.split(second))
    assert used.returncode == 0
    assert "archive" not in used.stdout + used.stderr


def test_it_is_mapped_where_it_was_made_for(tmp_path: Path) -> None:
    first = archive_option(tmp_path, (), "", "1g", writes=True)
    assert first is not None
    java(*shlex.split(first))
    second = archive_option(tmp_path, (), "", "1g")
    assert second is not None
    options = [one for one in shlex.split(second) if not one.startswith("-Xlog")]
    used = java(*options, "-Xlog:cds")
    assert used.returncode == 0
    assert "alternative address" not in used.stdout, used.stdout

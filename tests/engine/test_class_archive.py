"""Which archive of classes a JVM is told to use, or to write."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from headgate.engine import _class_archive, store_class_archive
from headgate.engine._class_archive import archive_option

MAGIC = bytes.fromhex("a8ab0bf0")


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    modules = tmp_path / "java" / "lib" / "modules"
    modules.parent.mkdir(parents=True)
    modules.write_bytes(b"jimage")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return modules


def archive_request(
    folder: Path, options: str = "", memory: str = "2g", *, jars: tuple[str, ...] = (), writes: bool = True
) -> tuple[str, Path] | None:
    """What the JVM is to do, and the archive."""
    option = archive_option(folder, jars, options, memory, writes=writes)
    if option is None:
        return None
    match = re.match(r"'?-XX:(\w+)=([^ ]+\.jsa)'? .*-Xlog", option)
    assert match is not None, option
    return match[1], Path(match[2])


def written(folder: Path, options: str = "") -> Path:
    request = archive_request(folder, options)
    assert request is not None
    assert request[0] == "ArchiveClassesAtExit"
    request[1].write_bytes(MAGIC + b"classes")
    return request[1]


def test_the_first_writes_what_the_next_uses(tmp_path: Path) -> None:
    archive = written(tmp_path / "classes")
    assert archive_request(tmp_path / "classes") == ("SharedArchiveFile", archive)


def test_one_that_is_not_whole_is_left_alone_then_written_anew(tmp_path: Path) -> None:
    archive = written(tmp_path)
    archive.write_bytes(bytes(1000))  # the header comes last
    assert archive_request(tmp_path) is None
    os.utime(archive, (0, 0))
    assert archive_request(tmp_path) == ("ArchiveClassesAtExit", archive)


def test_other_options_jars_or_java_have_their_own(tmp_path: Path, java: Path) -> None:
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"one")
    jars = (str(jar),)
    names = {written(tmp_path, "-Xmx2g"), written(tmp_path, "-javaagent:some.jar")}
    for change in (None, jar, java):
        if change is not None:
            change.write_bytes(b"something else")
        request = archive_request(tmp_path, "-Xmx2g", jars=jars)
        assert request is not None
        names.add(request[1])
    assert len(names) == 5


@pytest.mark.parametrize(
    ("options", "memory"),
    [("-XX:+UseSerialGC", "2g"), ("", "31g"), ("-XX:+UseG1GC", "512"), ("-Xlog:gc:file=gc.log -verbose:gc", "2g")],
)
def test_neither_collector_nor_memory_nor_log_matters(tmp_path: Path, options: str, memory: str) -> None:
    archive = written(tmp_path)
    assert archive_request(tmp_path, options, memory) == ("SharedArchiveFile", archive)


@pytest.mark.parametrize("memory", ["32g", "1T", "32768", "33554432k", "40gb"])
def test_long_references_do(tmp_path: Path, memory: str) -> None:
    archive = written(tmp_path)
    request = archive_request(tmp_path, memory=memory)
    assert request is not None
    assert request[1] != archive


def test_short_commands_write_none(tmp_path: Path) -> None:
    assert archive_request(tmp_path, writes=False) is None
    archive = written(tmp_path)
    assert archive_request(tmp_path, writes=False) == ("SharedArchiveFile", archive)


def test_the_oldest_go(tmp_path: Path) -> None:
    archives = []
    for number in range(6):
        archives.append(written(tmp_path, str(number)))
        os.utime(archives[-1], (number, number))
    assert sorted(tmp_path.glob("*.jsa")) == sorted(archives[-4:])


def test_a_folder_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert archive_option(tmp_path / "file" / "classes", (), "", "2g", writes=True) is None


def test_the_first_process_of_a_container_requests_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would wait for it; one that exists is used."""
    archive = written(tmp_path, "")
    monkeypatch.setattr(os, "getpid", lambda: 1)
    option = archive_option(tmp_path, (), "", "2g", writes=True)
    assert option is not None
    assert "SharedArchiveFile" in option
    archive.unlink()
    assert archive_option(tmp_path, (), "", "2g", writes=True) is None


def test_without_java_there_is_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert archive_option(tmp_path, (), "", "2g", writes=True) is None


@pytest.mark.parametrize(("has_batch", "code"), [(False, -signal.SIGKILL), (True, 0)])
def test_a_jvm_writes_an_archive_only_if_a_batch_is_done(
    has_batch: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ends with its standard input, as the JVM does; nothing waits for it."""
    monkeypatch.setattr(_class_archive, "_BATCH_DONE", threading.Event())
    if has_batch:
        store_class_archive()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        _class_archive._kill_without_batch(process, os.getpid())
    assert process.returncode == code

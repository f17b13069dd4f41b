"""Processes of the fork server are what a new Python would be."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.engine._forked_python import forking_python

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="there is no fork server on this system")

TELLS = """
import gc, json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "main": __name__, "folder": os.getcwd(), "x": os.environ.get("X"),
    "home": os.environ.get("HOME"), "input": sys.stdin.read(), "path": sys.path[:2], "parent": os.getppid(),
    "loaded": "xml.dom.minidom" in sys.modules, "collects": gc.isenabled(),
}))
print("to the other stream", file=sys.stderr)
sys.exit(7)
"""
WAITS = """
import os, sys
print(os.getpid(), os.getppid(), flush=True)
sys.stdin.read()
print("the end", flush=True)
"""
BEGINS = """
import sys
from headgate.engine._forked_python import forking_python
python = forking_python("xml.dom.minidom:getDOMImplementation")
"""
HOLDS = f"""{BEGINS}
print(python, flush=True)
sys.stdin.read()
"""
FAILS = HOLDS.replace("xml.dom.minidom:getDOMImplementation", "no.such:module")
DRIVER = f"""{BEGINS}
import os, subprocess
process = subprocess.Popen([python, "-m", "waits"], stdin=0)
process.wait()
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in {"tells": TELLS, "waits": WAITS, "drives": DRIVER, "holds": HOLDS, "fails": FAILS}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def python(modules: Path) -> Iterator[str]:
    """What a driver that goes on has for Spark."""
    with drive(modules, "holds") as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        yield driver.stdout.readline().strip()
        driver.stdin.close()


def drive(modules: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *sys.path]), **more},
        text=True,
    )


def report_of(python: str, modules: Path, **more: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-m", "tells", "a b", "ü"],
        input="some text",
        env={"PYTHONPATH": str(modules), "X": "new\nline", **more},
        cwd=modules.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, "to the other stream\n")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_forked_process_is_as_a_new_python(python: str, modules: Path) -> None:
    forked, new = report_of(python, modules), report_of(sys.executable, modules)
    assert forked.pop("loaded")
    assert not new.pop("loaded")
    assert forked.pop("parent") != new.pop("parent") == os.getpid()
    assert forked == new
    assert forked["arguments"] == ["a b", "ü"]


def test_its_exit_is_that_of_the_module(python: str) -> None:
    done = subprocess.run([python, "-m", "no.such.module"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "No module named 'no'" in done.stderr


def test_a_programs_text_is_run_too(python: str) -> None:
    code = "import os, sys; print(sys.argv, __name__, os.getppid(), [twice for twice in [2] if sys], sep='|')"
    outputs = [
        subprocess.run([program, "-c", code, "x"], capture_output=True, text=True, timeout=60, check=True).stdout
        for program in (python, sys.executable)
    ]
    forked, new = ([part for i, part in enumerate(line.split("|")) if i != 2] for line in outputs)
    assert forked == new == ["['-c', 'x']", "__main__", "[2]\n"]
    assert str(os.getpid()) not in outputs[0]


@pytest.mark.parametrize("arguments", [["tells.py"], ["-m", "tells"]])
def test_what_the_server_cannot_fork_is_a_new_python(python: str, modules: Path, arguments: list[str]) -> None:
    """A file; another seed of hashes than the server began with."""
    if arguments[0] == "-m":
        report = report_of(python, modules, PYTHONHASHSEED="17")
    else:
        done = subprocess.run(
            [python, *arguments], input="", capture_output=True, text=True, timeout=60, check=False, cwd=modules
        )
        report = json.loads(done.stdout)
    assert (report["loaded"], report["parent"]) == (False, os.getpid())


def test_without_a_server_there_is_a_new_python(python: str, modules: Path, tmp_path: Path) -> None:
    alone = tmp_path / "python"
    alone.write_bytes(Path(python).read_bytes())
    alone.chmod(0o700)
    assert report_of(str(alone), modules)["parent"] == os.getpid()


def test_a_server_that_cannot_load_refuses(modules: Path) -> None:
    with drive(modules, "fails") as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        report = report_of(driver.stdout.readline().strip(), modules)
        driver.stdin.close()
    assert (report["loaded"], report["parent"]) == (False, os.getpid())


@pytest.mark.parametrize(("reply", "code"), [(b"-", 7), (b"", 1)], ids=["refused", "lost"])
def test_a_request_never_runs_twice(python: str, modules: Path, tmp_path: Path, reply: bytes, code: int) -> None:
    """If the server refuses, there is a new Python; if its reply is lost, the request may have begun."""
    alone = tmp_path / "python"
    alone.write_bytes(Path(python).read_bytes())
    alone.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "forks"))
        listening.listen()
        with subprocess.Popen(
            [str(alone), "-m", "tells"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(modules)},
        ) as launcher:
            server, _ = listening.accept()
            with server:
                size = int.from_bytes(server.recv(4, socket.MSG_WAITALL), "little")
                server.recv(size, socket.MSG_WAITALL)
                server.sendall(reply)
            assert launcher.wait(60) == code


@contextmanager
def waiting(python: str, modules: Path) -> Iterator[tuple[subprocess.Popen[str], psutil.Process, psutil.Process]]:
    """A launcher, its forked process, which waits, and the server of both."""
    with subprocess.Popen(
        [python, "-m", "waits"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(modules)},
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        forked, server = (psutil.Process(int(pid)) for pid in launcher.stdout.readline().split())
        yield launcher, forked, server


def test_who_ends_the_launcher_ends_the_process(python: str, modules: Path) -> None:
    with waiting(python, modules) as (launcher, forked, _):
        launcher.kill()
        forked.wait(30)  # raises if it takes longer


def test_a_killed_server_leaves_no_process(python: str, modules: Path) -> None:
    with waiting(python, modules) as (launcher, forked, server):
        server.kill()
        forked.wait(30)  # raises if it takes longer
        assert launcher.wait(30) == 1


@pytest.mark.parametrize("call", ["posix_spawn", "pipe", "statvfs", "mkdir"])
def test_a_system_that_refuses_a_server_gets_plain_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    caplog.set_level("INFO", "headgate")

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, call, refuse)
    assert forking_python(f"no.such:{call}") is None
    assert f"Spark starts each Python process separately: [Errno {errno.EAGAIN}]" in caplog.text
    assert [*tmp_path.iterdir()] == []


def test_a_driver_ends_without_a_word_about_its_server(modules: Path) -> None:
    """Which ends later."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-m", "holds"],
        input="",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *sys.path])},
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("killed", [True, False])
def test_the_server_ends_after_the_driver_and_the_last_process(modules: Path, tmp_path: Path, *, killed: bool) -> None:
    """Also if the driver is killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with drive(modules, "drives", TMPDIR=str(temporary)) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        server = psutil.Process(int(driver.stdout.readline().split()[1]))
        if killed:
            driver.kill()
        assert server.is_running()
        driver.stdin.close()
        assert driver.stdout.read() == "the end\n"
        server.wait(30)
    assert list(temporary.iterdir()) == [], "the server removes its folder"

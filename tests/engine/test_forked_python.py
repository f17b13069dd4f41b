"""Processes of the fork server are what a new Python would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from headgate.engine._forked_python import forking_python

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="there is no fork server on this system")

LOAD = "xml.dom.minidom:getDOMImplementation"
TELLS = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "main": __name__, "folder": os.getcwd(), "x": os.environ.get("X"),
    "home": os.environ.get("HOME"), "input": sys.stdin.read(), "path": sys.path[:2], "parent": os.getppid(),
    "loaded": "xml.dom.minidom" in sys.modules,
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
DRIVER = """
import os, subprocess, sys
from headgate.engine._forked_python import forking_python
python = forking_python("xml.dom.minidom:getDOMImplementation")
process = subprocess.Popen([python, "-m", "waits"], stdin=0)
process.wait() if sys.argv[1:] else os._exit(0)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in {"tells": TELLS, "waits": WAITS, "drives": DRIVER}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def python() -> str:
    found = forking_python(LOAD)
    assert found is not None
    return found


def told(python: str, modules: Path, **more: str) -> dict[str, Any]:
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
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_forked_process_is_as_a_new_python(python: str, modules: Path) -> None:
    forked, new = told(python, modules), told(sys.executable, modules)
    assert forked.pop("loaded")
    assert not new.pop("loaded")
    assert forked.pop("parent") != new.pop("parent") == os.getpid()
    assert forked == new
    assert forked["arguments"] == ["a b", "ü"]


def test_its_exit_is_that_of_the_module(python: str) -> None:
    done = subprocess.run([python, "-m", "no.such.module"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "No module named 'no'" in done.stderr


@pytest.mark.parametrize("arguments", [["-c", "print(1 + 1)"], ["-m", "tells"]])
def test_what_the_server_cannot_fork_is_a_new_python(python: str, modules: Path, arguments: list[str]) -> None:
    """Other arguments than a module's; another seed of hashes than the server began with."""
    if arguments[0] == "-m":
        found = told(python, modules, PYTHONHASHSEED="17")
        assert (found["loaded"], found["parent"]) == (False, os.getpid())
    else:
        done = subprocess.run([python, *arguments], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "2\n"


def test_without_a_server_there_is_a_new_python(python: str, modules: Path, tmp_path: Path) -> None:
    alone = tmp_path / "python"
    alone.write_bytes(Path(python).read_bytes())
    alone.chmod(0o700)
    assert told(str(alone), modules)["parent"] == os.getpid()


def test_who_ends_the_launcher_ends_the_process(python: str, modules: Path) -> None:
    with subprocess.Popen(
        [python, "-m", "waits"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(modules)},
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline().split()[0])
        forked = psutil.Process(pid)
        launcher.kill()
        forked.wait(30)  # raises if it takes longer


@pytest.mark.parametrize("waits", [True, False])
def test_the_server_ends_after_the_driver_and_the_last_process(modules: Path, tmp_path: Path, *, waits: bool) -> None:
    """Also if the driver ends at once, without a word."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "drives", *(["wait"] if waits else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *sys.path]), "TMPDIR": str(temporary)},
        text=True,
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        server = psutil.Process(int(driver.stdout.readline().split()[1]))
        if not waits:
            driver.wait(60)
        assert server.is_running()
        driver.stdin.close()
        assert driver.stdout.read() == "the end\n"
        server.wait(30)
    assert list(temporary.iterdir()) == [], "the server removes its folder"

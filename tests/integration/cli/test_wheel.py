"""The wheel, installed into a fresh environment outside the checkout: alone it has all that the log and tables need.

pip takes the packages from where its own settings say, in the versions of constraints.txt. Without a network the test
is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headgate.testing import MySQLServer

ROOT = Path(__file__).parents[3]
OUT_OF_REACH = re.compile(r"connection broken by|Could not fetch URL|Temporary failure in name resolution")
LONG = pytest.mark.timeout(3000)  # packages come over the network, and every loop is compiled again


def outside() -> dict[str, str]:
    """The environment of a shell that knows nothing of the checkout."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "NUMBA_CACHE_DIR")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def pip(python: str, *words: str | Path) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    run = subprocess.run(command, env=outside(), capture_output=True, text=True, check=False)
    if run.returncode and OUT_OF_REACH.search(run.stderr):
        pytest.skip(f"the package index is out of reach: {run.stderr.strip().splitlines()[-1]}")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves its folders beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    pip(sys.executable, "wheel", "-q", "--no-deps", "-w", folder / "out", folder)
    (found,) = (folder / "out").glob("headgate-*.whl")
    return found


class Installed:
    """headgate in an environment of its own. Nothing of the checkout is in sight."""

    def __init__(self, wheel: Path, folder: Path, extra: str = "") -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        wanted = f"headgate[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        pip(self.program("python"), "install", "-q", "-c", ROOT / "constraints.txt", wanted)
        self.environment = {**outside(), "PATH": f"{folder}/venv/bin:{os.environ['PATH']}"}

    def program(self, name: str) -> str:
        return str(self.folder / "venv/bin" / name)

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [self.program(words[0]), *words[1:]]
        run = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == code, run.stdout + run.stderr
        return run

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, "utf-8")
        return name


@pytest.fixture
def install(
    wheel: Path, tmp_path: Path, mysql_server: MySQLServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Installed]:
    monkeypatch.setenv("HEADGATE_PASSWORD", mysql_server._password)
    return lambda extra: Installed(wheel, tmp_path, extra)


def orders(server: MySQLServer, db: str) -> str:
    """A table of two rows; all that was executed before them, as a GTID set."""
    before = server.gtid_executed
    server.execute(f"CREATE TABLE `{db}`.orders (id INT PRIMARY KEY, name VARCHAR(9))")
    server.execute(f"INSERT INTO `{db}`.orders VALUES (1, 'Ada'), (2, 'Ben')")
    return before


def pipeline(server: MySQLServer, db: str) -> str:
    return f"""
        name = "shop"
        source = {{ url = "{server.url}", tables = ["{db}.*"] }}
        target = {{ path = "lake" }}
    """


@pytest.mark.slow
@LONG
def test_alone_it_has_the_log_and_snapshots(
    install: Callable[[str], Installed], mysql_server: MySQLServer, mysql_db: str
) -> None:
    here, before = install(""), orders(mysql_server, mysql_db)
    place = here.run("python", "-c", "import headgate; print(headgate.__file__, headgate.__version__)").stdout
    assert place.startswith(str(here.folder))
    assert here.run("headgate", "--version").stdout == f"headgate {place.split()[-1]}\n"
    tables = ("--tables", f"{mysql_db}.*", mysql_server.url)
    logged = here.run("headgate", "tail", "--from", before, "--until-current", *tables).stdout
    assert [line["after"]["name"] for line in map(json.loads, logged.splitlines()) if "after" in line] == ["Ada", "Ben"]
    assert "Ada" in here.run("headgate", "snapshot", *tables).stdout
    file = here.file("pipeline.toml", pipeline(mysql_server, mysql_db))
    told = here.run("headgate", "run", file, code=2).stderr
    assert told == "error: pyspark is not installed. This needs headgate[spark]: pip install 'headgate[spark]'\n"

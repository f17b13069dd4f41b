"""The tutorials of docs/tutorials, typed as they stand there, from top to bottom; only places are others.

A page is typed by these rules:

- ``sql`` runs in MySQL as its administrator, ``sh`` in a shell in the reader's folder.
- ``toml`` is written to the file that the line before it names; so is ``python`` after such a line. Other ``python`` is
  a cell of one notebook.
- A command that ends in ``# until Ctrl-C`` stays running until the page says "Press Ctrl-C", or ends. A run is followed
  until all of its tables are live.
- ``text`` and ``json`` are what the newest command or cell shows; ``…`` is any text. A cell is run again as long as
  something is running and the result is another one.

The section "1. Install" is left out: ``test_wheel.py`` installs headgate with its extras.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.carrier import ControlFolder
from headgate.lake import Lake
from headgate.status import read_status
from headgate_testing import KafkaBroker, MySQLServer, wait_until
from headgate_testing._ports import free_port
from tests.test_documents import ROOT

pytestmark = [pytest.mark.needs_own_server, pytest.mark.long]

PAGES = ROOT / "docs" / "tutorials"
PATIENCE_SECONDS = 240
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"`([\w.-]+)`[^`]*:\s*\Z")


class Running:
    """A command in the reader's folder, with what it prints."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self.command = command
        self.output, self.errors = (folder / f"{name}-{id(self)}" for name in ("output", "errors"))
        with self.output.open("w") as stdout, self.errors.open("w") as stderr:
            words = ["bash", "-euc", f"exec {command}"]
            self.process = subprocess.Popen(words, cwd=folder, env=environment, stdout=stdout, stderr=stderr)

    def shows(self) -> str:
        assert self.process.poll() is None, self.errors.read_text()
        return self.output.read_text()

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE_SECONDS)
        assert code == 0 or not self.command.startswith("headgate "), self.errors.read_text()


class Reader:
    """Types a page.

    :param places: what the page names → what is here.
    """

    def __init__(self, folder: Path, server: MySQLServer, db: str, **places: str) -> None:
        self.folder, self.server = folder, server
        self.places = {"127.0.0.1:3306": f"{server.host}:{server.port}", **places}
        self.db = db
        self.environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.names: dict[str, Any] = {}
        self.running: list[Running] = []
        self.look: Callable[[], str] = str
        self.typed: list[str] = []

    def placed(self, text: str) -> str:
        for there, here in self.places.items():
            text = text.replace(there, here)
        return re.sub(r"\bshop\b", self.db, text)

    def type_page(self, name: str) -> None:
        page = (PAGES / name).read_text("utf-8")
        install, before, rest = page.partition("\n## 2. ")
        assert "\n## 1. Install\n" in install
        text = before + rest
        at = 0
        for block in _BLOCK.finditer(text):
            self.read(text[at : block.start()])
            self.type_block(block[1], self.placed(block[2]), _FILE.search(text[at : block.start()]))
            at = block.end()
        self.read(text[at:])

    def read(self, prose: str) -> None:
        if "Press Ctrl-C" in prose:
            self.running.pop().press_ctrl_c()

    def type_block(self, language: str, text: str, file: re.Match[str] | None) -> None:
        self.typed.append(language)
        if language in ("toml", "python") and file is not None:
            (self.folder / file[1]).write_text(text, "utf-8")
        elif language == "python":
            self.cell(text)
        elif language == "sql":
            self.server.execute(*filter(str.strip, text.split(";\n")))
        elif language == "sh":
            for line in text.splitlines():
                self.command(line)
        elif language in ("text", "json"):
            self.compare(text)
        else:
            assert language == "properties", f"a reader does not know what to do with {language}"

    def command(self, line: str) -> None:
        if variable := re.fullmatch(r"export (\w+)=(\S+)", line):
            self.environment[variable[1]] = variable[2]
            return
        command, until, _ = line.partition("    # until Ctrl-C")
        if until:
            self.running.append(one := Running(command, self.folder, self.environment))
            self.look = one.shows
            if command.startswith("headgate run "):
                wait_until(self.all_live, one.errors.read_text, seconds=PATIENCE_SECONDS)
            return
        words = ["bash", "-euc", command]
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        self.look = lambda: done.stdout

    def all_live(self) -> bool:
        self.running[-1].shows()
        status = read_status(ControlFolder(Lake.at(str(self.folder / "lake")).inbox))
        if status is None or status.condition() not in ("running", "idle") or not status.tables:
            return False
        return {table.state for table in status.tables.values()} == {"live"}

    def cell(self, text: str) -> None:
        *lines, last = ast.parse(text).body
        assert isinstance(last, ast.Expr), "a cell shows something"

        def look() -> str:
            exec(compile(ast.Module(lines, []), "cell", "exec"), self.names)
            return repr(eval(compile(ast.Expression(last.value), "cell", "eval"), self.names))

        self.look = look

    def compare(self, text: str) -> None:
        wanted = re.compile(".*?".join(map(re.escape, text.strip().split("…"))))
        seen: list[str] = []

        def is_shown() -> bool:
            seen[:] = [self.look().strip()]
            return wanted.fullmatch(seen[0]) is not None

        if self.running:
            wait_until(is_shown, lambda: f"{seen} is not {text}", seconds=60, every=0.2)
        else:
            assert is_shown(), f"{seen} is not {text}"

    def end(self) -> None:
        """Stop what still runs; as its reader would, unless something failed."""
        for one in self.running:
            one.process.kill()
            one.process.wait()
        self.server.execute("DROP USER IF EXISTS headgate@'%'")


@pytest.fixture
def reader(
    mysql_server: MySQLServer, mysql_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)  # a notebook's folder
    reader = Reader(tmp_path, mysql_server, mysql_db)
    try:
        yield reader
    finally:
        reader.end()


def test_your_own_mysql_to_a_notebook(reader: Reader) -> None:
    pytest.importorskip("polars")
    reader.type_page("notebook.md")
    assert reader.typed.count("text") == 2


def test_a_relay_and_a_consumer(reader: Reader) -> None:
    reader.places["11115"] = str(free_port())
    reader.type_page("relay.md")
    assert (reader.typed.count("json"), reader.typed.count("text")) == (3, 3)


def test_from_debezium(reader: Reader, kafka_broker: KafkaBroker) -> None:
    reader.places["127.0.0.1:9092"] = kafka_broker.bootstrap
    reader.type_page("from-debezium.md")
    assert reader.typed.count("text") == 1

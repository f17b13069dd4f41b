"""Names of tables that are chosen to break what shows them: one test for each output."""

from __future__ import annotations

import json
import logging
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from headgate.carrier import ControlFolder
from headgate.cli import _common
from headgate.cli import app as commands
from headgate.cli.log_lines import Format
from headgate.cli.text import TextLines
from headgate.lake import Lake
from headgate.names import printable
from headgate.ui import Watched, create_app
from tests.cli.test_log_view import logged_to_stderr
from tests.hostile import NAMES
from tests.ui.status import put
from tests.ui.test_app import ask


def states(names: list[str]) -> dict[str, Any]:
    return {f"shop.{name}": {"state": "stopped", "reason": name, "version": 1, "changes": 2} for name in names}


def everywhere(names: list[str]) -> dict[str, Any]:
    """A status with these names wherever it has texts of others."""
    now = {"at_us": 1, "level": "warning"}
    signals = [
        {"id": f"{n}", "type": "log", "state": "refused", "reason": name, "tables": [f"shop.{name}"], "sent_us": 1,
         "at_us": 1} for n, name in enumerate(names)
    ]  # fmt: skip
    return {
        "tables": states(names), "error": " ".join(names), "signals": signals,
        "warnings": [{**now, "text": f"shop.{name} is stopped"} for name in names],
    }  # fmt: skip


def test_paths_stay_in_the_lake() -> None:
    lake = Lake.at("/srv/lake")
    folders = {name: Path(lake.current(f"shop.{name}")) for name in NAMES}
    assert {one.parent for one in folders.values()} == {Path(lake.current("shop.x")).parent}
    assert len({one.name.lower() for one in folders.values()}) == len(NAMES)
    assert all(one.name.isascii() and one.name.isprintable() and len(one.name) < 256 for one in folders.values())
    databases = [Path(lake.current(f"{name}.t")) for name in NAMES if "." not in name]
    assert {one.parent.parent for one in databases} == {Path(lake.current("shop.x")).parent.parent}


class Shown(HTMLParser):
    """Elements of a page, with their attributes' names, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, ...]] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, *sorted(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_has_no_element_more(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path))
    app = create_app([Watched("shop", inbox)])
    put(inbox, **everywhere([f"t{number}" for number in range(len(NAMES))]))
    plain = Shown(ask(app, "/").text)
    put(inbox, **everywhere(NAMES))
    page = Shown(ask(app, "/").text)
    assert page.elements == plain.elements
    assert [name for name in NAMES if f"shop.{name}" not in page.text] == []


def test_prometheus_labels_hold_them_whole(tmp_path: Path) -> None:
    inbox = ControlFolder(str(tmp_path))
    put(inbox, **everywhere(NAMES))
    text = ask(create_app([Watched("shop", inbox)]), "/metrics").text
    labels = {sample.labels.get("table") for one in text_string_to_metric_families(text) for sample in one.samples}
    assert labels - {None} == {f"shop.{name}" for name in NAMES}


def test_log_lines_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with logged_to_stderr():
        for name in NAMES:
            logging.getLogger("headgate").warning("shop.%s is stopped", name)
    lines = capsys.readouterr().err.split("\n")[:-1]
    assert [line.split(" ", 2)[2] for line in lines] == [f"WARNING shop.{printable(name)} is stopped" for name in NAMES]
    assert all(line.isprintable() for line in lines)
    with logged_to_stderr(form=Format.json):
        for name in NAMES:
            logging.getLogger("headgate").warning("%s", name)
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.split("\n")[:-1]] == NAMES


def test_what_commands_print_obeys_no_name(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'name = "shop"\n[source]\nurl = "mysql://u@h"\ntables = ["a.b"]\n[target]\npath = "{tmp_path}/lake"\n'
    )
    inbox = ControlFolder(str(tmp_path / "lake" / "_headgate" / "inbox"))

    def status(names: list[str]) -> list[str]:
        put(inbox, **everywhere(names))
        return CliRunner().invoke(commands, ["status", str(file)]).stdout.split("\n")

    plain, lines = status([f"t{number}" for number in range(len(NAMES))]), status(NAMES)
    assert len(lines) == len(plain)
    assert all(line.isprintable() for line in lines)
    assert [name for name in NAMES if not any(f"shop.{printable(name)}" in line for line in lines)] == []
    failed = CliRunner().invoke(commands, ["status", str(tmp_path / "\x1b[2J.toml")]).stderr
    assert failed.startswith("error: ")
    assert failed.removesuffix("\n").isprintable()


def test_tables_on_a_terminal_obey_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name", header_style="bold")
    for name in NAMES:
        table.add_row(Text(name))
    _common.console(width=200).print(table)
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert printable("\x1b[2J") in shown


def test_changes_as_text_are_one_line_each() -> None:
    for name in NAMES:
        change = {
            "op": "c", "db": "shop", "table": name, "gtid": "x:1", "ts": "2026-01-01T00:00:00Z", "file": "b.1",
            "before": None, "after": {name: name},
        }  # fmt: skip
        _, line = TextLines(colours=False).of(json.dumps(change), {})
        assert line.isprintable()
        assert line.startswith(f"  + shop.{printable(name)}  ")

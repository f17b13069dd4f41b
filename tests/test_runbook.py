"""The runbook: each error class and each alert names an entry that is there, and each entry is named."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from headgate import errors
from headgate.errors import ConfigError, HeadgateError, error_line

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "runbook.md").read_text("utf-8")
RULES = yaml.safe_load((ROOT / "deploy" / "monitoring" / "headgate-rules.yml").read_text("utf-8"))
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HeadgateError)]


def entries(part: str) -> dict[str, str]:
    """Texts of the entries in a part of the page, by their anchors."""
    text = PAGE.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    pieces = re.split(r"^### (.*)$", text, flags=re.MULTILINE)[1:]
    return {title.lower().replace(" ", "-"): body for title, body in zip(pieces[::2], pieces[1::2], strict=True)}


FAULTS, TASKS = entries("Faults"), entries("Tasks")


def named_by_errors() -> set[str]:
    return {kind.runbook for kind in KINDS if kind.runbook is not None}


def named_by_alerts() -> set[str]:
    links = [rule["annotations"]["runbook"] for group in RULES["groups"] for rule in group["rules"]]
    assert all(link.startswith("docs/runbook.md#") for link in links)
    return {link.partition("#")[2] for link in links}


def test_every_error_that_an_owner_can_meet_has_an_entry() -> None:
    """All but the base, and wrong configurations: their line names the key."""
    without = {kind for kind in KINDS if kind.runbook is None}
    assert without == {kind for kind in KINDS if kind is HeadgateError or issubclass(kind, ConfigError)}
    assert len(KINDS) > 40


def test_every_entry_is_there_and_named() -> None:
    assert named_by_errors() | named_by_alerts() == FAULTS.keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_entry_shows_the_errors_that_name_it(kind: type[HeadgateError]) -> None:
    """Each by its name, or by that of a class above or below it."""
    if kind.runbook is not None:
        related = (other for other in KINDS if issubclass(kind, other) or issubclass(other, kind))
        names = {other.__name__ for other in related if other.runbook == kind.runbook}
        assert names & set(re.findall(r"\w+", FAULTS[kind.runbook]))


def test_an_entry_shows_the_alerts_that_name_it() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            entry = FAULTS[rule["annotations"]["runbook"].partition("#")[2]]
            assert re.search(rf"\b{rule['alert']}\b", entry), rule["alert"]


def test_each_entry_has_the_same_parts() -> None:
    for anchor, text in FAULTS.items():
        bold = re.findall(r"^\*\*(You see|Why|Do|Over when)\b", text, re.MULTILINE)
        assert bold == ["You see", "Why", "Do", "Over when"], anchor
    for anchor, text in TASKS.items():
        bold = re.findall(r"^\*\*(When|Do|Over when)\b", text, re.MULTILINE)
        assert bold == ["When", "Do", "Over when"], anchor


def test_the_tasks_are_there() -> None:
    assert TASKS.keys() == {"stop", "restart", "move-a-lake", "upgrade", "retire-a-table", "rotate-a-password"}


def test_the_line_of_an_error() -> None:
    error = errors.BinlogPurgedError("the server has\npurged log", gtid="u:1")
    line = "the server has purged log [gtid=u:1] (see docs/runbook.md#lost-binlog)"
    assert error_line(error) == error_line(pickle.loads(pickle.dumps(error))) == line
    assert error_line(error, "another text") == "another text (see docs/runbook.md#lost-binlog)"
    assert error_line(ConfigError("name: expected text")) == "name: expected text"
    assert error_line(ValueError("odd")) == "odd"
    assert error_line(KeyboardInterrupt()) == "KeyboardInterrupt"

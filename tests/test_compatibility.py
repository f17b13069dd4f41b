"""docs/reference/compatibility.md proves what it says by tests; they must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "compatibility.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)(?:\[(\w+)\])?`", PAGE)))


def test_every_case_names_a_test() -> None:
    section = PAGE.split("\n## Values other tools get wrong\n")[1]
    rows = re.findall(r"^\| (?!case|---)(.*) \|$", section, re.MULTILINE)
    assert len(rows) == 12
    assert [row for row in rows if "::test_" not in row.split(" | ")[-1]] == []


@pytest.mark.parametrize(("file", "name", "case"), NAMED)
def test_the_named_tests_exist(file: str, name: str, case: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in text
    assert not case or f'    "{case}": Family(' in text

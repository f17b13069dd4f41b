"""The check of the language finds what the rules forbid and nothing else; the project's own prose passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_language import check, main


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ('"""Is there no such row, the ``u`` is left out."""', "begin the condition"),
        ("# A chunk is read. Is there one in W, it is read again.", "begin the condition"),
        ("raise ValueError('read on: is there a row, take it')", "begin the condition"),
        ('"""Reads it anew."""', "again"),
        ("x = 1  # for whoever asks", "the actor's name"),
        ('y = f"{x} stretches of the log"', "range"),
    ],
)
def test_what_the_rules_forbid_is_found(tmp_path: Path, line: str, advice: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f'"""First line."""\n{line}\n')
    (finding,) = check(file)
    assert finding.startswith(f"{file}:2: ")
    assert advice in finding
    assert main([str(file)]) == 1


@pytest.mark.parametrize(
    "line",
    [
        '"""If no such row exists, skip the ``u``."""',
        '"""Does it stay as it is? Is there a row, or none?"""',
        '"""The key, which\n    is the row\'s own, and more."""',
        '"""Do not write \\"Is there no row, it is left out\\"."""',
        '"""Call ``anew()``."""',
        "anew = 1",
        'x = "avoided"',
        'x["anew"] = "restart it with --anew"',
    ],
)
def test_what_they_allow_is_not(tmp_path: Path, line: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"{line}\n")
    assert check(file) == []
    assert main([str(file)]) == 0


def test_code_on_a_page_is_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nread_anew()  # anew\n```\n\nRead it\nanew.\n")
    (finding,) = check(page)
    assert finding == f"{page}:8: anew: again, from the start"

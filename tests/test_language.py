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


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("found = 1", "found"),
        ("(x, *Told) = 1, 2", "Told"),
        ("OWN: int = 1", "OWN"),
        ("found += 1", "found"),
        ("for said in []: pass", "said"),
        ("with open(0) as _asked: pass", "_asked"),
        ("x = [given for given in []]", "given"),
        ("x = (found := 1)", "found"),
        ("try: pass\nexcept OSError as found: pass", "found"),
        ("def means(): pass", "means"),
        ("class Told: pass", "Told"),
        ("class A:\n    def heed(self): pass", "heed"),
        ("class A:\n    def a(self, *, own): pass", "own"),
        ("class A:\n    given = 1", "given"),
        ("def f():\n    told: int = 1", "told"),
        ("async def asked(): pass", "asked"),
        ("x = lambda found: 1", "found"),
        ("match 1:\n    case said: pass", "said"),
    ],
)
def test_names_that_do_not_tell_what_a_value_is_are_found(tmp_path: Path, line: str, name: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"\n{line}\n")
    at = 2 + line.count("\n") if name in line.splitlines()[-1] else 2
    assert check(file) == [f"{file}:{at}: {name}: name it after what it is"]
    assert main([str(file)]) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from hypothesis import given\n\n@given(1)\ndef f(): pass",
        "print(x.found)",
        "x.found = 1",
        "class Notes:\n    found: tuple[str, ...] = ()",
        "f(found=1)",
        "print(found)",
        "found_rows = not_found = founder = 1",
    ],
)
def test_other_names_are_not(tmp_path: Path, line: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"{line}\n")
    assert check(file) == []


def test_findings_are_in_the_order_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("found = 1\n# anew\ntold = 1  # anew\n")
    assert [line.split(":")[-3:-1] for line in check(file)] == [
        ["1", " found"], ["2", " anew"], ["3", " anew"], ["3", " told"],
    ]  # fmt: skip


def test_code_on_a_page_is_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nread_anew()  # anew\n```\n\nRead it\nanew.\n")
    (finding,) = check(page)
    assert finding == f"{page}:8: anew: again, from the start"

"""The demonstration: its tables fit their files, and what it refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from examples.demo import flights, run


@pytest.mark.parametrize("table", flights.FLIGHT_TABLES)
def test_every_column_of_a_file_has_one_in_its_table(table: str) -> None:
    folder = flights._data_folder()
    header, *lines = flights._lines(folder, table, 3)
    names = header.split(",")
    definitions = {part.split()[0] for part in flights._SCHEMAS[table].split(", ")}
    assert {*names} <= definitions
    assert len(lines) == 3 or table != "flights"
    assert not any(re.search(r"(^|,)NA(,|$)", line) for line in lines)
    statement = flights._load_statement("nyc", table, names, Path("/x.csv"))
    assert ("SET time_hour" in statement) == ("time_hour" in names)


def test_it_needs_a_new_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lake").mkdir()
    monkeypatch.setattr(sys, "argv", ["demo", "--path", str(tmp_path)])
    code, (output, errors) = run.main(), capsys.readouterr()
    assert (code, output) == (2, "")
    assert errors.startswith(f"error: {tmp_path / 'lake'} exists, and belongs to an earlier server: remove it")
    assert len(errors.splitlines()) == 1

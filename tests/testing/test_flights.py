"""The tables of the demonstration fit their files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate_testing import FLIGHT_TABLES, _flights


@pytest.mark.parametrize("table", FLIGHT_TABLES)
def test_every_column_of_a_file_has_one_in_its_table(table: str) -> None:
    folder = _flights._data_folder()
    header, *lines = _flights._lines(folder, table, 3)
    names = header.split(",")
    definitions = {part.split()[0] for part in _flights._SCHEMAS[table].split(", ")}
    assert {*names} <= definitions
    assert len(lines) == 3 or table != "flights"
    assert not any(re.search(r"(^|,)NA(,|$)", line) for line in lines)
    statement = _flights._load_statement("nyc", table, names, Path("/x.csv"))
    assert ("SET time_hour" in statement) == ("time_hour" in names)

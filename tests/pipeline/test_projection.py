"""The projection of files and requests, compared with what the benchmarks counted and the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headgate.config import parse_config
from headgate.lake import Lake
from headgate.pipeline import Projection

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def results(name: str) -> list[dict[str, float]]:
    lines: list[dict[str, float]] = json.loads((RESULTS / name).read_text("utf-8"))["results"]
    return lines


@pytest.mark.parametrize("line", results("requests.json"), ids=lambda line: str(line["tables"]))
def test_requests_are_as_counted(line: dict[str, float]) -> None:
    projection = Projection(int(line["tables"]), 0, 10.0, 1.0)
    assert projection.put_and_list_a_day == pytest.approx(8640 * (line["put"] + line["list"]), rel=0.1)
    assert projection.get_a_day == pytest.approx(8640 * line["get"], rel=0.1)


def test_the_page_has_the_projection() -> None:
    page = (ROOT / "docs" / "explanation" / "performance.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d[\d,]*) \|(( [\d,]+ / [\d,]+, \$[\d,.]+ \|){3})$", page, re.MULTILINE)
    assert [int(tables.replace(",", "")) for tables, *_ in rows] == [1, 8, 32, 100, 1000]
    for tables, cells, _ in rows:
        projections = [Projection(int(tables.replace(",", "")), 0, freshness, 1.0) for freshness in (1.0, 10.0, 60.0)]
        assert cells == "".join(f" {cell(one)} |" for one in projections)


def cell(projection: Projection) -> str:
    """Thousands of requests a day, and dollars."""
    put, get = projection.put_and_list_a_day / 1000, projection.get_a_day / 1000
    return f"{put:,.0f} / {get:,.0f}, ${put * 0.005 + get * 0.0004:,.2f}"


def test_what_it_depends_on() -> None:
    text = 'name = "p"\n[source]\nurl = "mysql://u@h"\ntables = ["shop.*"]\n[target]\npath = "/lake"\n{}\n'

    def projection(more: str, path: str = "/lake") -> Projection:
        return Projection.of(parse_config(text.format(more)), Lake(path), 8)

    local, remote = projection(""), projection("", "s3a://bucket/lake")
    assert (local.batches_a_day, remote.batches_a_day) == (86_400, 8_640), "by the defaults of both"
    assert local.files == 6 * 3600 * (2 + 3 * 8)
    assert local.bytes >= 1000 * local.files
    assert projection("retention_hours = 0.5").files == local.files / 12
    assert projection('mode = "changelog"').files == 6 * 3600 * (2 + 2 * 8)
    both = projection('mode = ["current", "changelog"]')
    assert both.files == 6 * 3600 * (2 + 3 * 8 + 2 * 8)
    assert both.get_a_day > local.get_a_day
    assert projection("freshness_ms = 0").batches_a_day > local.batches_a_day

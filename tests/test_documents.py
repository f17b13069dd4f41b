"""The pages: what they link to is there, headings among it, and so are the tests that they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headgate.config import PipelineConfig, parse_config

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md"), *ROOT.glob("tests/**/README.md")]
)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(((?!http)[^)#\s]*)(?:#([^)]*))?\)", page.read_text("utf-8")):
        file = page.parent / target if target else page
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_tests_exist(page: Path) -> None:
    for name, test in re.findall(r"`(tests/[\w/]+\.\w+)(?:::(\w+))?", page.read_text("utf-8")):
        assert (ROOT / name).exists(), name
        assert not test or f"def {test}(" in (ROOT / name).read_text("utf-8"), f"{name}::{test}"


def test_each_failure_of_others_names_a_test() -> None:
    """Whether that test is there, ``test_named_tests_exist`` shows."""
    text = (ROOT / "docs" / "explanation" / "what-others-lose.md").read_text("utf-8")
    rows = [row.split(" | ") for row in re.findall(r"^\| (?!failure |---)(.*) \|$", text, re.MULTILINE)]
    assert len(rows) >= 75
    assert {len(row) for row in rows} == {4}
    tests = re.compile(r"`tests/[\w/]+\.py::test_\w+`(, `tests/[\w/]+\.py::test_\w+`)*")
    assert [row for row in rows if not tests.fullmatch(row[-1])] == []


def test_the_way_of_a_change_goes_through_functions_that_exist() -> None:
    text = (ROOT / "docs" / "architecture" / "one-change.md").read_text("utf-8")
    stops = re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \| .+ \|$", text, re.MULTILINE)
    assert len(stops) == text.count(".py`") > 40
    for file, function in stops:
        source = (ROOT / "src" / "headgate" / file).read_text("utf-8")
        assert re.search(rf"^ *def {function}\(", source, re.MULTILINE), f"{file}: {function}"


@pytest.mark.parametrize(("name", "least"), [("from-debezium.md", 28), ("from-flink-cdc.md", 15)])
def test_settings_that_a_page_names_exist(name: str, least: int) -> None:
    """Whole pipeline files on it are valid, and names such as ``source.url`` are keys of the file."""
    text = (ROOT / "docs" / "how-to" / name).read_text("utf-8")
    files = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert files
    for file in files:
        parse_config(file)
    names = re.findall(r"`((?:source|target|notifications|signals)\.[a-z_.]+)`", text)
    assert len(names) >= least
    for dotted in names:
        model: Any = PipelineConfig
        for key in dotted.split("."):
            known = {field.alias or field_name: field for field_name, field in model.model_fields.items()}
            assert key in known, dotted
            kinds = (known[key].annotation, *getattr(known[key].annotation, "__args__", ()))
            model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)

"""What a release is made from: the index page, the project's links, the workflow, and Delta's version."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

from tools import build_distributions

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://code.example/owner/headgate"


def test_links_of_the_index_page_are_absolute() -> None:
    page = "![one](docs/a.svg) [two](docs/b.md#part) [three](https://example.org/c) `[4]`"
    assert build_distributions.absolute(page, REPOSITORY, "v1.0.0") == (
        f"![one]({REPOSITORY}/raw/v1.0.0/docs/a.svg) [two]({REPOSITORY}/blob/v1.0.0/docs/b.md#part)"
        " [three](https://example.org/c) `[4]`"
    )


def test_distributions_are_built_from_a_copy_with_links(tmp_path: Path) -> None:
    build_distributions.copy_sources(tmp_path, REPOSITORY)
    here = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    there = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))
    links = there["project"].pop("urls")
    assert there == here
    tag = f"v{here['project']['version']}"
    assert links["Changelog"] == f"{REPOSITORY}/blob/{tag}/CHANGELOG.md"
    page = (tmp_path / "README.md").read_text("utf-8")
    assert [target for target in re.findall(r"\]\(([^)]*)\)", page) if not target.startswith("https://")] == []
    assert f"]({REPOSITORY}/raw/{tag}/docs/pictures/overview.svg)" in page


def test_a_pushed_tag_is_built_attested_and_published() -> None:
    yaml: Any = importlib.import_module("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}, "YAML reads `on` as true"
    assert workflow["permissions"] == {}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = "\n".join(step.get("run", "") for step in build["steps"])
    assert "python -m tools.build_distributions --repository" in commands
    assert build["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    actions = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert [action for action in actions if "@" not in action] == []
    assert not re.search(r"secrets\.|password:", (ROOT / ".github/workflows/release.yml").read_text("utf-8"))


def test_the_version_of_delta_is_spelled_once() -> None:
    """Scripts read it from the code, and pages and examples that have to name it have the same."""
    settings = (ROOT / "src" / "headgate" / "archives.py").read_text("utf-8")
    (version,) = re.findall(r'^DELTA_VERSION: Final = "([\d.]+)"$', settings, re.MULTILINE)
    defaults = (ROOT / "examples" / "declarative" / "conf" / "spark-defaults.conf").read_text("utf-8")
    assert re.findall(r"io\.delta:\S+:([\d.]+)", defaults) == [version]
    assert f"Delta {version} (" in (ROOT / "docs" / "reference" / "compatibility.md").read_text("utf-8")

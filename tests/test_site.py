"""The site: which pages it has, what is copied for it, and its versions. ``scripts/check`` builds it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tools import build_site

PROJECT = tomllib.loads(build_site.CONFIGURATION.read_text("utf-8"))["project"]


def test_the_navigation_lists_each_page_of_the_documentation_once() -> None:
    listed = sorted(one for one in build_site.listed(PROJECT["nav"]) if one.startswith("docs/"))
    assert listed == sorted(str(page.relative_to(build_site.ROOT)) for page in build_site.ROOT.glob("docs/**/*.md"))


def test_the_page_of_all_pages_has_those_of_the_navigation() -> None:
    """For readers of the repository. The architecture has a page of its own."""
    page = build_site.ROOT / "docs" / "README.md"
    linked = {str((page.parent / target).resolve().relative_to(build_site.ROOT)) for target in build_site.links(page)}
    listed = {one for one in build_site.listed(PROJECT["nav"]) if one.startswith("docs/")} - {"docs/README.md"}
    assert linked - {"README.md"} == {
        one for one in listed if not one.startswith("docs/architecture/") or one == "docs/architecture/README.md"
    }


def test_the_kinds_of_page_are_folders() -> None:
    sections = {title: value for entry in PROJECT["nav"] for title, value in entry.items() if isinstance(value, list)}
    for title in ("Tutorials", "How-to", "Reference"):
        folder = f"docs/{title.lower()}/"
        inside = [one for one in build_site.listed(sections[title]) if one.startswith("docs/")]
        assert inside
        assert [one for one in inside if not one.startswith(folder)] == []


def test_what_pages_link_to_is_copied(tmp_path: Path) -> None:
    root, copies = tmp_path / "root", tmp_path / "copies"
    (root / "docs" / "how-to").mkdir(parents=True)
    (root / "data").mkdir()
    (root / "data" / "figures.json").write_text("{}", "utf-8")
    (root / "data" / "other.json").write_text("{}", "utf-8")
    (root / "README.md").write_text("[one](docs/how-to/one.md#a-part) [there](https://example.org/data/other.json)")
    (root / "docs" / "how-to" / "one.md").write_text("![figures](../../data/figures.json) [out](../../../out.md)")
    (tmp_path / "out.md").write_text("outside")
    (copies / "old").mkdir(parents=True)
    build_site.copy_pages(copies, root)
    copied = {str(file.relative_to(copies)) for file in copies.rglob("*") if file.is_file()}
    assert copied == {"README.md", "docs/how-to/one.md", "data/figures.json"}


def test_code_in_tables_loses_the_backslash_of_github(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("| `int \\| None` | 48 \\| 2 |\n", "utf-8")
    build_site.copy_pages(tmp_path / "copies", tmp_path)
    assert (tmp_path / "copies" / "README.md").read_text("utf-8") == "| `int | None` | 48 \\| 2 |\n"


def test_versions_stand_side_by_side(tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "versions"
    site.mkdir()
    for version in ("0.9.0", "0.10.0", "0.9.0"):
        (site / "index.html").write_text(f"built as {version}")
        build_site.add_version(site, folder, version)
    versions = json.loads((folder / "versions.json").read_text("utf-8"))
    assert [(one["version"], one["aliases"]) for one in versions] == [("0.10.0", ["latest"]), ("0.9.0", [])]
    assert "url=0.10.0/" in (folder / "index.html").read_text("utf-8")
    assert (folder / "0.9.0" / "index.html").read_text("utf-8") == "built as 0.9.0"

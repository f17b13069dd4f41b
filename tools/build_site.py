"""Build the site of the documentation, strictly: a dead link or anchor is an error. ``zensical.toml`` describes it.

``python -m tools.build_site`` writes it into ``build/site``. ``--into FOLDER`` also puts it into ``FOLDER/<version>``,
beside other versions, and lists these for the version selector in ``FOLDER/versions.json``; ``FOLDER/index.html`` leads
to the newest.

The generator reads one folder, and pages link to files outside of ``docs/``: so it gets copies of the pages and of all
that they link to, by the same paths.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

ROOT: Final = Path(__file__).parents[1]
CONFIGURATION: Final = ROOT / "zensical.toml"
_LINK: Final = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
_CODE_IN_TABLE: Final = re.compile(r"(?<=[|] )`[^`\n]*`(?= [|])")
_REDIRECT: Final = '<!doctype html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="0; url={newest}/">\n'


def pages(root: Path = ROOT) -> list[Path]:
    """The pages of the site."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("tests/**/README.md")])


def links(page: Path) -> list[str]:
    """The relative links of a page, without anchors."""
    return _LINK.findall(page.read_text("utf-8"))


def listed(navigation: Sequence[Any]) -> Iterator[str]:
    """The pages that the navigation lists."""
    for entry in navigation:
        for value in entry.values() if isinstance(entry, Mapping) else (entry,):
            yield from (value,) if isinstance(value, str) else listed(value)


def copy_pages(folder: Path, root: Path = ROOT) -> None:
    """Fill ``folder`` with the pages and the files that they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages(root):
        linked = ((page.parent / target).resolve() for target in links(page))
        for file in (page, *linked):
            if file.is_file() and file.is_relative_to(root):
                copy = folder / file.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if file.suffix == ".md":
                    copy.write_text(_for_generator(file.read_text("utf-8")), "utf-8")
                else:
                    shutil.copyfile(file, copy)


def _for_generator(page: str) -> str:
    """Return a page without the backslash that GitHub needs, and Python-Markdown shows, in code in tables."""
    return _CODE_IN_TABLE.sub(lambda row: row[0].replace("\\|", "|"), page)


def add_version(site: Path, folder: Path, version: str) -> None:
    """Put a site into ``folder`` as that of ``version``."""
    shutil.copytree(site, folder / version, dirs_exist_ok=True)
    versions = sorted((one.parent.name for one in folder.glob("*/index.html")), key=Version, reverse=True)
    entries = [{"version": one, "title": one, "aliases": ["latest"] if one == versions[0] else []} for one in versions]
    (folder / "versions.json").write_text(json.dumps(entries, indent=1), "utf-8")
    (folder / "index.html").write_text(_REDIRECT.format(newest=versions[0]), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site; the exit code."""
    parser = argparse.ArgumentParser(description="Build the site of the documentation.")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="put it beside other versions, too")
    into = parser.parse_args(arguments).into
    project = tomllib.loads(CONFIGURATION.read_text("utf-8"))["project"]
    copy_pages(ROOT / project["docs_dir"])
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(CONFIGURATION)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if built.returncode:
        sys.stderr.write(f"{built.stdout}{built.stderr}\nthe site cannot be built\n")
        return 1
    if into is not None:
        add_version(ROOT / project["site_dir"], into, metadata.version("headgate"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

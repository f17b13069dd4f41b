"""Build what is published, the sdist and the wheel, from one copy of the sources, and check both.

``python -m tools.build_distributions --repository https://github.com/OWNER/NAME --out dist`` needs the packages of the
dependency group ``release``. The address is known only where a release is made; the metadata has it in the project's
links, and the README's pictures and links become absolute, at the version's tag, because a package index shows the page
without the repository. The wheel is built from the sdist.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
FILES: Final = ("pyproject.toml", "README.md", "LICENSE")
_LINK: Final = re.compile(r"(!?)(\[[^]]*\])\((?!\w+:)([^)]+)\)")
_AFTER_LINKS: Final = "\n[project.scripts]\n"


def absolute(page: str, repository: str, tag: str) -> str:
    """Return a page of the repository's root with absolute links."""

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}{match[2]}({repository}/{kind}/{tag}/{match[3]})"

    return _LINK.sub(link, page)


def with_links(pyproject: str, repository: str, tag: str) -> str:
    """Return ``pyproject.toml`` with the project's links."""
    links = {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/README.md",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    before, scripts, after = pyproject.partition(_AFTER_LINKS)
    lines = "".join(f'{name} = "{address}"\n' for name, address in links.items())
    return f"{before}\n[project.urls]\n{lines}{scripts}{after}"


def copy_sources(folder: Path, repository: str) -> None:
    """Fill ``folder`` with what the distributions are built from."""
    shutil.copytree(
        ROOT / "src" / "headgate", folder / "src" / "headgate", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in FILES:
        shutil.copyfile(ROOT / name, folder / name)
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    project: dict[str, Any] = tomllib.loads(pyproject)["project"]
    tag = f"v{project['version']}"
    (folder / "pyproject.toml").write_text(with_links(pyproject, repository, tag), "utf-8")
    (folder / "README.md").write_text(absolute((ROOT / "README.md").read_text("utf-8"), repository, tag), "utf-8")


def build(repository: str, out: Path) -> list[Path]:
    """Build the sdist and the wheel into ``out``, and check them.

    :raises subprocess.CalledProcessError: a build or a check failed; its output is on stdout and stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy_sources(Path(folder), repository)
        subprocess.run([sys.executable, "-m", "build", "--outdir", str(out.resolve()), folder], check=True)
    files = sorted(out.glob("headgate-*"))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    subprocess.run([sys.executable, "-m", "check_wheel_contents", *out.glob("headgate-*.whl")], check=True)
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and check; the exit code."""
    parser = argparse.ArgumentParser(description="Build and check the sdist and the wheel.")
    parser.add_argument("--repository", required=True, metavar="URL", help="address of the repository")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where they go")
    settings = parser.parse_args(arguments)
    try:
        files = build(settings.repository.rstrip("/"), settings.out)
    except subprocess.CalledProcessError as error:
        return error.returncode
    sys.stdout.writelines(f"{file}\n" for file in files)
    return 0


if __name__ == "__main__":
    sys.exit(main())

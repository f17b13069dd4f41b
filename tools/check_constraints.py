"""Check that constraints.txt has all that headgate needs on each Python version of pyproject.toml's classifiers.

``python tools/check_constraints.py`` prints one line for each fault; the exit code is 1 if there is any. It asks the
package index of pip's settings, so it needs a network: ``scripts/check`` runs it once for each change.

pip can look for another Python's wheels (``--python-version``), but it evaluates the markers of requirements for the
Python that runs it, so its resolver would miss what only newer versions need. As every package is pinned there is
nothing to resolve. For each version, of the pins whose markers apply:

1. pip finds a wheel of each (``install --dry-run --no-deps``). A package that is installed here without compiled code
   needs no search: its ``Requires-Python`` decides.
2. The pins meet all requirements of the project, its extras, its dev group and of these packages in turn, with markers
   evaluated for that version.

A pin that no version needs is a fault as well.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

ROOT: Final = Path(__file__).parents[1]
_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")


class NoBuildError(Exception):
    """pip finds no wheel of a pin; the text is pip's last line, which names the package."""


@dataclass(frozen=True)
class Package:
    """What one version of a package asks for: its ``Requires-Python`` and ``Requires-Dist``."""

    python: SpecifierSet
    requirements: tuple[Requirement, ...]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Package:
        """From a package's metadata as JSON, which pip's report and importlib give alike."""
        requirements = (Requirement(text) for text in described.get("requires_dist", ()))
        return cls(SpecifierSet(described.get("requires_python", "")), tuple(requirements))


def supported(pyproject: Mapping[str, Any]) -> list[str]:
    """The Python versions that pyproject.toml's classifiers name, as ``3.11``."""
    matches = (_CLASSIFIER.fullmatch(one) for one in pyproject["project"]["classifiers"])
    return [match[1] for match in matches if match]


def roots(pyproject: Mapping[str, Any]) -> list[Requirement]:
    """The requirements of the project, of all its extras and of its dev group."""
    project = pyproject["project"]
    extras = [text for extra in project.get("optional-dependencies", {}).values() for text in extra]
    texts = [*project["dependencies"], *extras, *pyproject["dependency-groups"]["dev"]]
    requirements = [Requirement(text) for text in texts]
    return [one for one in requirements if one.name != project.get("name")]  # extras that are made of other extras


def applying(constraints: Iterable[Requirement], version: str) -> dict[NormalizedName, str]:
    """Name → pinned version, of the lines whose markers apply on Python ``version``."""
    lines = (one for one in constraints if one.marker is None or one.marker.evaluate(_environment(version)))
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in lines}


def installed(pins: Mapping[NormalizedName, str]) -> dict[NormalizedName, Package]:
    """The pinned packages that are installed here, in their pinned version and without compiled code."""
    packages: dict[NormalizedName, Package] = {}
    for one in metadata.distributions():
        name, tags = canonicalize_name(one.name), one.read_text("WHEEL") or ""
        if pins.get(name) == one.version and re.search(r"^Tag: \S*py3-none-any$", tags, re.MULTILINE):
            packages[name] = Package.of(one.metadata.json)
    return packages


def fetched(pins: Mapping[NormalizedName, str], version: str) -> dict[NormalizedName, Package]:
    """The pinned packages as the package index describes their wheels for Python ``version``.

    :raises NoBuildError: a pin has no such wheel, or no package index can be reached.
    """
    if not pins:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--ignore-installed",
            "--only-binary=:all:", f"--python-version={version}", f"--report={report}",
            *(f"{name}=={pin}" for name, pin in pins.items()),
        ]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            reached = "" if "after connection broken by" not in run.stderr else "the package index is out of reach: "
            raise NoBuildError(reached + run.stderr.strip().rpartition("\n")[2].removeprefix("ERROR: "))
        described = [one["metadata"] for one in json.loads(report.read_text(encoding="utf-8"))["install"]]
    return {canonicalize_name(one["name"]): Package.of(one) for one in described}


def follow(
    wanted: Iterable[Requirement],
    version: str,
    pins: Mapping[NormalizedName, str],
    packages: Mapping[NormalizedName, Package],
) -> tuple[set[str], set[NormalizedName]]:
    """Follow requirements on Python ``version`` through the pins.

    :param packages: what each pinned package asks for.
    :returns: what is wrong, a line each, and the names of all packages that are needed.
    """
    faults: set[str] = set()
    done: set[tuple[NormalizedName, str]] = set()  # package, extra
    todo = [("pyproject.toml", "", requirement) for requirement in wanted]
    while todo:
        by, extra, requirement = todo.pop()
        if requirement.marker and not requirement.marker.evaluate(_environment(version) | {"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in pins:
            faults.add(f"{by} needs {requirement}, and constraints.txt has no {name}")
        elif not requirement.specifier.contains(pins[name], prereleases=True):
            faults.add(f"{by} needs {requirement}, and constraints.txt has {name}=={pins[name]}")
        elif not packages[name].python.contains(_full(version)):
            faults.add(f"{name}=={pins[name]} needs Python {packages[name].python}")
        else:
            new = {(name, one) for one in ("", *requirement.extras)} - done
            done |= new
            todo += [(name, one, further) for _, one in new for further in packages[name].requirements]
    return faults, {name for name, _ in done}


def check(root: Path) -> list[str]:
    """Check constraints.txt and pyproject.toml in ``root``: what is wrong, a line each."""
    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = [Requirement(line) for line in lines if line and not line.startswith("#")]
    faults: list[str] = []
    needed: set[NormalizedName] = set()
    for version in supported(pyproject):
        pins = applying(constraints, version)
        packages = installed(pins)
        try:
            packages |= fetched({name: pin for name, pin in pins.items() if name not in packages}, version)
        except NoBuildError as error:
            faults.append(f"Python {version}: {error}")
            continue
        wrong, used = follow(roots(pyproject), version, pins, packages)
        faults += [f"Python {version}: {one}" for one in sorted(wrong)]
        needed |= used
    unused = sorted({canonicalize_name(one.name) for one in constraints} - needed) if not faults else []
    return faults + [f"constraints.txt has {name}, which nothing needs" for name in unused]


def _full(version: str) -> str:
    """The version that pip takes ``3.13`` for."""
    return f"{version}.0"


def _environment(version: str) -> dict[str, str]:
    """This machine's values of the variables in markers, with another Python."""
    ours = cast("dict[str, str]", default_environment())
    return ours | {
        "python_version": version,
        "python_full_version": _full(version),
        "implementation_version": _full(version),
    }


if __name__ == "__main__":
    faults = check(ROOT)
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(bool(faults))

"""Which Python versions headgate runs on: pyproject.toml's classifiers say it, everything else follows them."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import platform_tags
from packaging.utils import canonicalize_name

from tools.check_constraints import Package, applying, check, follow, roots, supported

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSIONS = supported(PYPROJECT)
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_what_is_named_elsewhere_is_what_the_classifiers_name() -> None:
    minors = [int(version.removeprefix("3.")) for version in VERSIONS]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert RUNNING in VERSIONS
    assert PYPROJECT["project"]["requires-python"] == f">={OLDEST}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == OLDEST
    assert f"Python {OLDEST} to {NEWEST}" in (ROOT / "README.md").read_text()
    assert f"Python {OLDEST} to {NEWEST}" in (ROOT / "docs" / "reference" / "spark.md").read_text()
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    assert re.findall(r"^\| (3\.\d+) \(\1\.\d+\) \|", page, re.MULTILINE) == VERSIONS, "what was run on each"


def test_the_scripts_name_no_version() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    assert [path.name for path in scripts if re.search(r"\b(python)?3\.\d\d", path.read_text())] == []


def find_python(versions: str) -> subprocess.CompletedProcess[str]:
    """What scripts/_setup.sh finds when this interpreter comes first; ``versions`` after it has read its own."""
    setup = (ROOT / "scripts" / "_setup.sh").read_text()
    parts = re.findall(r"^(?:pythons=.*|(?:is_supported|find_python)\(\)(?s:.*?)^})$", setup, re.MULTILINE)
    script = "\n".join([*parts, versions, 'echo "$pythons"', "find_python"])
    environment = {"PATH": "/usr/bin:/bin", "HEADGATE_PYTHON": sys.executable}
    command = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_set_up_takes_a_python_of_the_classifiers() -> None:
    run = find_python("")
    assert run.stdout.splitlines() == [" ".join(VERSIONS), sys.executable], run.stderr


def test_set_up_takes_no_other_python() -> None:
    run = find_python("pythons=3.99")
    assert (run.returncode, run.stdout) == (1, "3.99\n"), run.stderr


def test_the_constraints_name_all_that_is_needed_here() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = applying([Requirement(line) for line in lines if not line.startswith("#")], RUNNING)
    packages = {canonicalize_name(one.name): Package.of(one.metadata.json) for one in metadata.distributions()}
    faults, _ = follow(roots(PYPROJECT), RUNNING, pins, packages)
    assert faults == set()


# --- tools/check_constraints.py, with a folder of wheels as the package index -----------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def write(folder: Path, needs: list[str], constraints: list[str], versions: tuple[str, ...] = ("3.12", "3.13")) -> None:
    (folder / "constraints.txt").write_text("# pinned\n" + "".join(f"{line}\n" for line in constraints))
    (folder / "pyproject.toml").write_text(f"""
        [project]
        classifiers = {["Programming Language :: Python :: " + one for one in ("3", *versions)]}
        dependencies = {needs[:1]}
        optional-dependencies = {{ more = {needs[1:2]} }}
        [dependency-groups]
        dev = {needs[2:]}
    """)


def wheel(folder: Path, name: str, *needs: str, python: str = ">=3.9", tag: str = "py3-none-any") -> None:
    """Version 1.0 of a package without files."""
    info = f"{name}-1.0.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", f"Requires-Python: {python}"]
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join([*lines, *(f"Requires-Dist: {need}" for need in needs)]) + "\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")


def test_constraints_that_hold_on_all_versions(project: Path) -> None:
    wheel(project, "hg_a", "hg-b[x]", 'hg-c; python_version >= "3.13"', 'hg-d; python_version < "3"')
    wheel(project, "hg_b", 'hg-e>=1; extra == "x"', 'hg-d; extra == "y"')
    for name in ("hg_e", "hg_f", "hg_g"):
        wheel(project, name)
    wheel(project, "hg_c", python=">=3.13")
    pins = ["hg-a==1.0", "hg-b==1.0", 'hg-c==1.0; python_version >= "3.13"', "hg-e==1.0", "hg-f==1.0", "hg-g==1.0"]
    write(project, ["hg_a", "hg_f", "hg_g"], pins)
    assert check(project) == []


def test_a_version_without_a_build_is_named_with_the_package(project: Path) -> None:
    wheel(project, "hg_a", tag=f"cp312-cp312-{next(platform_tags())}")
    write(project, ["hg-a"], ["hg-a==1.0"])
    assert check(project) == ["Python 3.13: No matching distribution found for hg-a==1.0"]


def test_a_package_index_out_of_reach_is_told_apart(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # but not listening: nothing else gets the port, and connections are refused
        bound.bind(("127.0.0.1", 0))
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        write(project, ["hg-a"], ["hg-a==1.0"], versions=("3.12",))
        (fault,) = check(project)
    assert fault == "Python 3.12: the package index is out of reach: No matching distribution found for hg-a==1.0"


def test_a_package_that_needs_a_newer_python_is_named(project: Path) -> None:
    wheel(project, "hg_a", python=">=3.13")
    write(project, ["hg-a"], ["hg-a==1.0"])
    assert check(project) == ["Python 3.12: Package 'hg-a' requires a different Python: 3.12.0 not in '>=3.13'"]


def test_what_only_a_newer_python_needs_must_be_pinned_for_it(project: Path) -> None:
    wheel(project, "hg_a", 'hg-c; python_version >= "3.13"')
    write(project, ["hg-a"], ["hg-a==1.0"])
    need = 'hg-c; python_version >= "3.13"'
    assert check(project) == [f"Python 3.13: hg-a needs {need}, and constraints.txt has no hg-c"]


def test_a_pin_outside_what_is_asked_for(project: Path) -> None:
    wheel(project, "hg_a")
    write(project, ["hg-a>=2"], ["hg-a==1.0"], versions=("3.12",))
    assert check(project) == ["Python 3.12: pyproject.toml needs hg-a>=2, and constraints.txt has hg-a==1.0"]


def test_a_pin_that_nothing_needs(project: Path) -> None:
    wheel(project, "hg_a")
    wheel(project, "hg_b")
    write(project, ["hg-a"], ["hg-a==1.0", "Hg_B==1.0"])
    assert check(project) == ["constraints.txt has hg-b, which nothing needs"]


def test_what_is_installed_without_compiled_code_is_not_searched_for(project: Path) -> None:
    pin = f"iniconfig=={metadata.version('iniconfig')}"
    write(project, ["iniconfig"], [pin], versions=("3.2", RUNNING))
    (fault,) = check(project)  # the folder has no wheel of it
    assert fault.startswith(f"Python 3.2: {pin} needs Python >=3.")


def test_faults_are_printed_and_end_with_1(tmp_path: Path) -> None:
    write(tmp_path, ["hg-a"], [], versions=("3.12",))
    tool = tmp_path / "tools" / "check_constraints.py"
    tool.parent.mkdir()
    shutil.copyfile(ROOT / "tools" / "check_constraints.py", tool)
    run = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "Python 3.12: pyproject.toml needs hg-a, and constraints.txt has no hg-a\n"

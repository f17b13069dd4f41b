"""headgate's extras: what is told when one is missing, and that each has what its part of headgate imports."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headgate.errors import MissingExtraError
from headgate.extras import EXTRAS, missing_extra_error, require_extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WITHOUT = """
import sys
for name in sys.argv[1].split():
    sys.modules[name] = None  # an import of it fails, as of what is not installed
"""


def without(packages: set[str], code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python as if these packages were not installed."""
    command = [sys.executable, "-c", WITHOUT + code, " ".join(sorted(packages)), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def packages(*extras: str) -> set[str]:
    return {package for extra in extras for package in EXTRAS[extra]}


def test_an_extra_installs_the_modules_that_are_looked_for() -> None:
    by_module = metadata.packages_distributions()
    for extra, requirements in PROJECT["optional-dependencies"].items():
        names = {canonicalize_name(Requirement(one).name) for one in requirements} - {"headgate"}
        if extra == "all":
            assert requirements == [f"headgate[{','.join(sorted(EXTRAS))}]"]
        else:
            assert {canonicalize_name(by_module[module][0]) for module in EXTRAS[extra]} == names


def test_a_package_of_no_extra_is_an_error_as_ever() -> None:
    error = ModuleNotFoundError("No module named 'json5'", name="json5")
    assert missing_extra_error(error) is error
    require_extra("spark")  # it is installed with the tests


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("run", "spark"), ("verify", "spark"), ("status", "spark"), ("relay --sources", "relay"), ("ui", "ui"),
    ],
)  # fmt: skip
def test_a_command_names_the_extra(command: str, extra: str, tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text(f"""
        name = "shop"
        source = {{ url = "mysql://nobody@127.0.0.1:1", tables = ["*.*"] }}
        target = {{ path = "{tmp_path}/lake" }}
    """)
    words = [*command.split(), str(file)]
    run = without(packages(*EXTRAS), "import headgate.cli; sys.argv[:2] = ['headgate']; headgate.cli.main()", *words)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.endswith(f"is not installed. This needs headgate[{extra}]: pip install 'headgate[{extra}]'\n")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import headgate; headgate.RelayClient", "relay"),
        ("import headgate; headgate.MySQLCDCDataSource", "spark"),
        ("import headgate; headgate.read_as_of", "spark"),
        ("from headgate.engine import build_session; build_session('x')", "spark"),
        ("from headgate.control import KafkaChannel; KafkaChannel('h:1', 't', key='k')", "kafka"),
        ("from headgate.control import *; check_topic(KafkaTopic(KafkaCluster('h:1'), 't', 'k'))", "kafka"),
    ],
)
def test_a_name_names_the_extra(code: str, extra: str) -> None:
    run = without(packages(*EXTRAS), code)
    last = run.stderr.splitlines()[-1]
    assert last.startswith(f"headgate.errors.{MissingExtraError.__name__}: "), run.stderr
    assert last.endswith(f"This needs headgate[{extra}]: pip install 'headgate[{extra}]'")


@pytest.mark.parametrize(
    ("extras", "modules"),
    [
        (set(), ["replication", "snapshot", "config", "gtid", "cli._tail", "cli._snapshot", "cli._check", "cli._init"]),
        ({"relay"}, ["relay.server", "relay.client", "web.serving", "cli._relay", "cli._consume"]),
        ({"ui"}, ["ui", "cli._ui"]),
        ({"spark"}, ["pipeline", "verification", "sinks", "spark._source", "cli._run"]),
    ],
)
def test_an_extra_is_enough_for_its_part(extras: set[str], modules: list[str]) -> None:
    code = "import importlib\nfor name in sys.argv[2:]: importlib.import_module(f'headgate.{name}')"
    run = without(packages(*EXTRAS) - packages(*extras), code, *modules)
    assert run.returncode == 0, run.stderr

"""The systemd unit, judged by systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy/systemd/headgate@.service"
HIGHEST_EXPOSURE = 2.0
"""Of 10, by ``systemd-analyze security``: 0 has no rights at all."""

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """An instance of it, with a program that exists here."""
    file = tmp_path / "headgate@shop.service"
    file.write_text(UNIT.read_text("utf-8").replace("/opt/headgate/bin/headgate", sys.executable))
    return file


def test_it_is_valid(unit: Path) -> None:
    run = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (run.returncode, [line for line in run.stderr.splitlines() if unit.name in line]) == (0, [])


def test_it_exposes_little(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", str(unit)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    exposure = re.search(r"exposure level for \S+ (\d+\.\d+)", run.stdout)
    assert exposure is not None, run.stdout + run.stderr
    assert float(exposure[1]) <= HIGHEST_EXPOSURE


def test_a_wrong_file_is_not_tried_again() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE))
    assert (settings["Restart"], settings["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert settings["KillMode"] == "mixed", "else Spark's JVM ends before the batch does"

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import binary_targets, text_targets  # noqa: F401 - they enter themselves
from tests.fuzz.targets import TARGETS

CASES = 100

PLANTED = """
import ctypes, sys
from tests.fuzz.__main__ import main
from tests.fuzz.targets import TARGETS, Target

def address(buf):
    return buf.ctypes.data

def plant(name, decode):
    TARGETS[name] = lambda: Target(lambda rng: rng.randbytes(9), lambda case, place: decode(place(case)))

plant("sound", lambda buf: bytes(buf))
plant("read-behind", lambda buf: ctypes.string_at(address(buf) + len(buf), 1) and None)
plant("read-before", lambda buf: ctypes.string_at(address(buf) - 1, 1))
plant("write", lambda buf: buf.__setitem__(0, buf[0] ^ 1))
plant("other-error", lambda buf: {}[len(buf)])
plant("allocation", lambda buf: len(bytearray(1 << 30)))
plant("slow", lambda buf: sum(range(1 << 27)))
sys.exit(main(sys.argv[1:]))
"""


def run(*command: str) -> dict[str, tuple[int, list[str]]]:
    """Return cases and faults by target."""
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=500, check=False)
    rows = re.findall(r"^([\w-]+) +([\d,]+) +[\d,]+ +\d+$", result.stdout, re.MULTILINE)
    faults = re.findall(r"^FAULT ([\w-]+): (.*)$", result.stdout, re.MULTILINE)
    assert rows, result.stderr
    assert result.returncode == bool(faults), result.stderr
    return {
        name: (int(cases.replace(",", "")), [what for target, what in faults if target == name]) for name, cases in rows
    }


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[int, list[str]]]:
    return run("-m", "tests.fuzz", "--seed", "1", "--cases", str(CASES))


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_damaged_input_of(outcomes: dict[str, tuple[int, list[str]]], name: str) -> None:
    cases, faults = outcomes[name]
    assert cases == CASES
    assert not faults


def test_planted_faults() -> None:
    wanted = {
        "sound": "",
        "read-behind": "the process ended by signal SIGSEGV; --target read-behind --case 1000000000",
        "read-before": "depends on memory around its input",
        "write": "the input was written to",
        "other-error": "KeyError: 9; --target other-error --case 1000000000",
        "allocation": "MemoryError",
        "slow": "of processor time",
    }
    chosen = [argument for name in wanted for argument in ("--target", name)]
    outcomes = run("-c", PLANTED, "--seed", "1", "--cases", "1", *chosen)
    for name, what in wanted.items():
        cases, faults = outcomes[name]
        assert cases == 1
        assert what in "".join(faults), name
        assert len(faults) == bool(what), name


def test_a_run_continues_the_last_one(tmp_path: Path) -> None:
    file = tmp_path / "fuzz.json"
    for cases in ("2", "3"):
        run("-m", "tests.fuzz", "--target", "gtid-sets", "--cases", cases, "--figures", str(file))
    (entry,) = json.loads(file.read_text()).values()
    assert entry["cases"] == {"gtid-sets": 5}

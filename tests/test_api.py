"""What ``import headgate`` gives: the names, what is written of them, and that they do not change in silence."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import headgate
from headgate.errors import HeadgateError
from tests.examples import NAMES, ON_A_SERVER, PIPELINE, examples, run_examples
from tests.relay.server.rows import block, people
from tests.relay.server.serving import PERSON, physical, served
from tools import generate_api

PLAIN = sorted({name for name in NAMES if examples(name)} - ON_A_SERVER)
RELAYED = ("Consumer", "RelayClient")


def test_no_name_changes_in_silence() -> None:
    known, current = generate_api.NAMES.read_text("utf-8").splitlines(), generate_api.names().splitlines()
    gone, new = [line for line in known if line not in current], [line for line in current if line not in known]
    assert known == current, (
        "the public names or their signatures have changed. If that is meant, say in CHANGELOG.md what users have to"
        " do, then run python tools/generate_api.py --accept."
        f"\nno longer there: {gone}\nnew: {new}"
    )


def test_the_page_is_made_from_the_docstrings() -> None:
    assert generate_api.PAGE.read_text("utf-8") == generate_api.page(), "run python tools/generate_api.py"


def test_type_checkers_and_programs_find_the_same_names() -> None:
    statements = ast.parse(inspect.getsource(headgate)).body
    for_type_checkers = next(one for one in statements if isinstance(one, ast.If))
    imported = {
        alias.name: node.module
        for node in (*statements, *for_type_checkers.body)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headgate.")
        for alias in node.names
    }
    assert set(imported) == set(NAMES)
    lazy = {name: module for name, module in imported.items() if module != "headgate.errors"}
    assert lazy == headgate._MODULES
    assert set(headgate.__all__) <= set(dir(headgate))
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(headgate, "nonsense")  # noqa: B009 - mypy knows that it is none


def test_the_version_is_the_installed_one() -> None:
    assert headgate.__version__ == importlib.metadata.version("headgate")


def test_a_name_loads_what_it_needs_and_no_more() -> None:
    code = "import sys, headgate; headgate.GtidSet; headgate.load_config; print({*sys.modules} & {'numba', 'pyspark'})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_every_name_has_an_example() -> None:
    """The errors share that of their base."""
    things = {name: getattr(headgate, name) for name in NAMES}
    errors = {name for name, thing in things.items() if thing.__module__ == "headgate.errors"}
    missing = [name for name in NAMES if not examples(name)]
    assert {*missing} == errors - {"HeadgateError"}
    assert all(issubclass(things[name], HeadgateError) for name in errors - {"Definite", "Transient"})
    assert [name for name in NAMES if not inspect.getdoc(things[name])] == []


@pytest.mark.parametrize("name", sorted({*PLAIN} - {*RELAYED}))
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.toml").write_text(PIPELINE, "utf-8")
    run_examples(name, {})


@pytest.mark.parametrize("name", RELAYED)
def test_examples_with_a_relay(name: str) -> None:
    with served(physical(1, "or_test", PERSON)) as relay:
        relay.put(block(people([1, 2])))
        run_examples(name, {"http://relay1:11115": f"http://127.0.0.1:{relay.port}"})

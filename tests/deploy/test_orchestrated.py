"""The Airflow DAG and the Dagster asset, without these tools: their exit codes, commands and keys are headgate's.

``tests/integration/cli/test_orchestrators.py`` runs them.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from headgate.status import BatchStatus, Status, TableStatus
from tests.integration.commands import run

FOLDER = Path(__file__).parents[2] / "deploy"
FILES = sorted(FOLDER.glob("*/headgate_shop.py"))


@pytest.fixture(params=FILES, ids=lambda file: file.parent.name)
def tree(request: pytest.FixtureRequest) -> ast.Module:
    file: Path = request.param
    return ast.parse(file.read_text("utf-8"))


def texts(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_both_are_here() -> None:
    assert [file.parent.name for file in FILES] == ["airflow", "dagster"]


def test_what_they_read_is_in_the_status(tree: ast.Module) -> None:
    known = {**Status.model_fields, **BatchStatus.model_fields, **TableStatus.model_fields}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    read = {
        text
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "get"
        and getattr(call.func.value, "id", "") in ("status", "batch", "seen")
        for text in texts(call.args[0])
    }
    assert {"batch", "gtid", "batch_id", "as_of_us"} <= read
    assert read - {*known} == set()
    assert "transient" in texts(tree)


@pytest.mark.parametrize("command", ["run", "status", "verify"])
def test_commands_and_options_exist(tree: ast.Module, command: str) -> None:
    assert command in texts(tree)
    code, out, _ = run(command, "--help")
    assert code == 0
    option = {"run": "--once", "status": "--json"}.get(command)
    assert option is None or (option in out and option in texts(tree))


def test_exit_codes_are_those_of_the_commands(tree: ast.Module, tmp_path: Path) -> None:
    names = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            assert isinstance(node.value, ast.Tuple)
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            names = {ast.unparse(name): ast.literal_eval(value) for name, value in pairs}
    assert names["MISUSED"] == run("run", str(tmp_path / "missing.toml"))[0]
    assert names["FAILED"] == run("tail", "mysql://user@127.0.0.1:1", "--until-current")[0]

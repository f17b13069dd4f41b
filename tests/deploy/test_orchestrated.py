"""The Airflow DAG and the Dagster asset, without these tools: their exit codes, commands and keys are headgate's, and
a program in headgate's place shows how they end it and when they try again.

``tests/integration/cli/test_orchestrators.py`` runs them.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from headgate.status import BatchStatus, Status, TableStatus
from headgate_testing import wait_until
from tests.deploy.orchestrators import FOLDER, AirflowException, AirflowFailException, Failure, load
from tests.integration.commands import run

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
    assert {"batch", "gtid", "batch_id", "as_of_us", "started_us", "transient"} <= read
    assert read - {*known} == set()


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


# --- when they try again

FAILING = """
import sys
if sys.argv[1] == "status":
    print({status!r})
    sys.exit(1)
print("error: the stub fails")
sys.exit({code})
"""


@pytest.fixture(params=["airflow", "dagster"])
def tool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Allows = Callable[..., bool]


@pytest.fixture
def allows_retry(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Allows:
    """Whether a tool tries a command again that ends with a code and leaves a status."""

    def allows(command: str, code: int, **status: Any) -> bool:
        monkeypatch.setenv("HEADGATE_PROGRAM", program(tmp_path, FAILING.format(code=code, status=json.dumps(status))))
        module = load(tool)
        if tool == "airflow":
            with pytest.raises(AirflowException, match=f"exit code {code}: error: the stub fails") as airflow:
                module.HeadgateOperator(command=command).execute({})
            return not isinstance(airflow.value, AirflowFailException)
        function = {"run": module.shop_lake, "verify": module.equal_to_the_source}[command]
        with pytest.raises(Failure, match=f"exit code {code}: error: the stub fails") as dagster:
            function(MagicMock())
        return dagster.value.allow_retries

    return allows


def program(folder: Path, code: str) -> str:
    """Write a program that runs Python code."""
    file = folder / "headgate"
    file.write_text(f"#!{sys.executable}\n{code}")
    file.chmod(0o755)
    return str(file)


def in_us(seconds: float) -> int:
    return int((time.time() + seconds) * 1e6)


def test_a_lasting_error_of_this_run_is_final(allows_retry: Allows) -> None:
    assert not allows_retry("run", 3, transient=False, started_us=in_us(60))
    assert allows_retry("run", 3, transient=True, started_us=in_us(60))
    assert not allows_retry("run", 2)


def test_the_status_of_an_earlier_run_does_not_count(allows_retry: Allows) -> None:
    """A run that fails before it writes a status leaves the one before."""
    assert allows_retry("run", 3, transient=False, started_us=in_us(-60))
    assert allows_retry("run", 3, pipeline="shop", condition="not running")


def test_other_commands_are_not_judged_by_the_status(allows_retry: Allows) -> None:
    assert allows_retry("verify", 3, transient=False, started_us=in_us(60))
    assert not allows_retry("verify", 2, transient=True, started_us=in_us(60))


# --- how they end it

ENDLESS = """
import os, signal, sys
if sys.argv[1] == "status":
    sys.exit(1)
notes = open({notes!r}, "a", buffering=1)
ends = [signal.SIGTERM, signal.SIGINT]
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
print("own session" if os.getsid(0) == os.getpid() else "same session", file=notes)
print("ready", file=notes)
print("a line", flush=True)
seconds = 60
while signal.sigtimedwait(ends, seconds):
    print("TERM", file=notes)
    seconds = 1
print("ended", file=notes)
"""
"""Notes each signal, and ends a second after the last one."""


def wait_for(file: Path, text: str) -> list[str]:
    """Return the lines of ``file`` when one of them is ``text``."""

    def lines() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    return wait_until(lambda: text in lines() and lines(), lambda: f"no line {text!r} in {lines()}", seconds=30) or []


class Task:
    """A task of Airflow in a process group of its own, whose headgate notes what happens to it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.notes = folder / "notes"
        env = {**os.environ, "HEADGATE_PROGRAM": program(folder, ENDLESS.format(notes=str(self.notes)))}
        command = [sys.executable, "-m", "tests.deploy.orchestrators", *words]
        self.process = subprocess.Popen(
            command, env=env, cwd=FOLDER.parent, stderr=subprocess.PIPE, text=True, process_group=0
        )

    def signal_group(self, number: signal.Signals) -> None:
        """Signal as Airflow's supervisor does."""
        os.killpg(self.process.pid, number)

    def end(self) -> str:
        """Wait for the task, and return what it wrote to stderr."""
        return self.process.communicate(timeout=30)[1]


ONE_SIGNAL = ["own session", "ready", "TERM", "ended"]


@pytest.mark.parametrize("command", ["run", "verify"])
def test_airflow_ends_headgate_after_its_batch(tmp_path: Path, command: str) -> None:
    """Although the stub ends with exit code 0, the task fails: what it began is not done."""
    task = Task(tmp_path, command)
    wait_for(task.notes, "ready")
    task.signal_group(signal.SIGTERM)
    assert f"AirflowException: headgate {command} was ended before it was done: a line" in task.end()
    assert task.notes.read_text().splitlines() == ONE_SIGNAL


@pytest.mark.parametrize("further", [signal.SIGTERM, signal.SIGKILL])
def test_further_signals_of_airflow_do_not_reach_headgate(tmp_path: Path, further: signal.Signals) -> None:
    task = Task(tmp_path, "run")
    wait_for(task.notes, "ready")
    task.signal_group(signal.SIGTERM)
    wait_for(task.notes, "TERM")
    task.signal_group(further)
    task.end()
    assert wait_for(task.notes, "ended") == ONE_SIGNAL


def test_a_time_limit_of_airflow_ends_headgate_after_its_batch(tmp_path: Path) -> None:
    task = Task(tmp_path, "run", "0.1")
    assert task.end().endswith("TimeoutError\n")
    assert task.notes.read_text().splitlines() == ONE_SIGNAL


def test_dagster_ends_headgate_after_its_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("HEADGATE_PROGRAM", program(tmp_path, ENDLESS.format(notes=str(notes))))
    context = MagicMock()
    context.log.info.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        load("dagster").shop_lake(context)
    assert notes.read_text().splitlines() == ONE_SIGNAL


# --- the asset's metadata


@pytest.fixture
def dagster() -> ModuleType:
    return load("dagster")


@pytest.mark.parametrize("seen", [{}, {"tables": {}}, {"pipeline": "shop", "condition": "not running"}])
def test_metadata_without_tables(dagster: ModuleType, seen: dict[str, Any]) -> None:
    values = dagster.metadata(seen)
    assert "tables" not in values
    assert (values["rows read"], values["changes"], values["batch"]) == (0, 0, 0)


def test_metadata_of_tables(dagster: ModuleType) -> None:
    table = {"state": "live", "version": 7, "rows": 3, "changes": 2}
    values = dagster.metadata({"tables": {"shop.a": table, "shop.b": table}, "batch": {"gtid": "u:1-9", "batch_id": 4}})
    assert values["tables"] == [{"table": f"shop.{name}", "state": "live", "version": 7} for name in "ab"]
    assert (values["rows read"], values["changes"], values["batch"], values["gtid"]) == (6, 4, 4, "u:1-9")

"""The house rules that no single module can keep: who imports whom, what loads what, what is public."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headgate

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "headgate"
TESTING = SOURCES.parent / "headgate_testing"
ROOMS = sorted(f"headgate.{module.name}" for module in pkgutil.iter_modules(headgate.__path__))
TESTS_OF_PRIVATE_MODULES = 56
GENERATED = {"_charset_data.py", "_letter_case_data.py"}


def lint_imports(sources: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
            "--no-logo",
            "--no-cache",
        ],
        cwd=ROOT,
        env={"PYTHONPATH": str(sources), "PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("binlog/_crc.py", "import socket", "Decoding and positions do no I/O"),
        ("columns/_kernels.py", "import pyspark", "Spark stays in the upper rooms"),
        ("gtid.py", "import headgate.mysql", "Rooms import downwards only"),
        ("cli/_run.py", "import headgate_testing", "The wheel needs nothing beside it"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, line: str, contract: str) -> None:
    shutil.copytree(SOURCES.parent, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "headgate" / module
    planted.write_text(planted.read_text() + f"\n{line}\n")
    run = lint_imports(tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert f"{contract}" in run.stdout.split("Broken contracts")[1]


@pytest.mark.parametrize("command", [["-c", "import headgate"], ["-m", "headgate.cli", "--help"]])
def test_the_start_loads_neither_numba_nor_spark(command: list[str]) -> None:
    run = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in run.stderr.splitlines()}
    assert "headgate" in loaded
    assert not loaded & {"numba", "pyspark", "pyarrow", "pandas"}


@pytest.mark.parametrize("room", [*ROOMS, "headgate_testing"])
def test_public_names_exist_once(room: str) -> None:  # their order is held by ruff (RUF022)
    module = importlib.import_module(room)
    names: list[str] = module.__all__
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


def test_a_class_name_stands_in_one_room() -> None:
    rooms: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms.setdefault(node.name, set()).add(path.relative_to(SOURCES).parts[0])
    assert {name: where for name, where in rooms.items() if len(where) > 1} == {}


def test_modules_stay_readable() -> None:
    long = [
        path.name
        for path in [*SOURCES.rglob("*.py"), *TESTING.rglob("*.py")]
        if path.name not in GENERATED and len(path.read_text().splitlines()) > 600
    ]
    assert long == []


RUNS_WHAT_IT_READS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "read_pickle", "allow_pickle"}
"""Modules, functions and arguments that run code of the data that they load."""
EXECUTES = {"eval", "exec", "system", "popen", "import_module", "__import__", "runpy"}
EXECUTED = {
    "engine/_fork_server.py": "the program of Spark's command line; its socket is in a folder of this user",
    "columns/_hooks.py": "a hook, which the pipeline's file names; the page cannot change it",
    "cli/_app.py": "headgate's commands, by name",
    "__init__.py": "headgate's modules, by name",
    "delta/__init__.py": "headgate's modules, by name",
    "preload.py": "modules that it lists",
}
"""Modules that execute what has a name or text at run time, and whose it is."""
PRIVATE = {"TemporaryDirectory", "TemporaryFile", "gettempdir", "mkdtemp", "mkstemp"}
MAKES_FOLDERS = {"files.py": "private ones", "stores/_access.py": "a lake's", "stores/_folder.py": "a lake's"}


def names_in(tree: ast.AST) -> Iterator[str]:
    """Names of imported modules, of functions that are called and of the arguments of calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (getattr(node, "module", None) or "").split(".")
            yield from (part for one in node.names for part in one.name.split("."))
        elif isinstance(node, ast.Call):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from (one.arg for one in node.keywords if one.arg is not None)


def sources_with(names: set[str]) -> dict[str, set[str]]:
    """Modules that use one of these names, with the names."""
    used = {
        str(path.relative_to(SOURCES)): names & {*names_in(ast.parse(path.read_text("utf-8")))}
        for path in SOURCES.rglob("*.py")
    }
    return {path: some for path, some in used.items() if some}


def test_nothing_runs_code_of_data_that_it_loads() -> None:
    """Lakes, inboxes, checkpoints, caches and answers may be written by others."""
    assert sources_with(RUNS_WHAT_IT_READS) == {}
    trees = {path: path.read_text("utf-8") for path in SOURCES.rglob("*.py")}
    assert [str(path) for path, text in trees.items() if re.search(r"shell\s*=\s*True", text)] == []


def test_who_executes_text_or_loads_modules_by_name_is_known() -> None:
    assert sources_with(EXECUTES).keys() == EXECUTED.keys()


def test_temporary_files_are_private() -> None:
    """tempfile's functions make them so; other folders are made by one module, which tests/test_files.py checks."""
    temporary = re.compile(r"(?:tempfile\.|from tempfile import )([\w, ]+)")
    made = {
        name.strip()
        for path in SOURCES.rglob("*.py")
        for names in temporary.findall(path.read_text("utf-8"))
        for name in names.split(",")
    }
    assert made <= PRIVATE
    assert sources_with({"mkdir", "makedirs"}).keys() == MAKES_FOLDERS.keys()


def test_modules_of_the_root_are_rooms() -> None:
    private = {path.name for path in SOURCES.iterdir() if path.name.startswith("_")}
    assert private <= {"__init__.py", "__pycache__"}


def test_the_formatter_decides_but_for_tables() -> None:
    """``fmt: skip`` is for tables of constants and the like, which the formatter would spread over a page."""
    written = [path for path in SOURCES.rglob("*.py") if path.name not in GENERATED]
    marked = sum(path.read_text("utf-8").count("# fmt: skip") for path in written)
    assert marked < 40


def test_hooks_are_commands_of_the_checkout() -> None:
    """They fetch nothing, and what runs with a push is what must pass."""
    text = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"repo: (.*)", text) == ["local"]
    entries = [entry.split()[0] for entry in re.findall(r"entry: (.*)", text)]
    assert "scripts/check" in entries
    assert [entry for entry in entries if not os.access(ROOT / entry, os.X_OK)] == []


def test_timings_are_values_that_tests_pass() -> None:
    """No test replaces a constant that is an interval or a time limit: the code takes it as a value."""
    patched = re.compile(r"setattr\([^)]*\b_[A-Z_]*(?:SECONDS|_MS)\b")
    texts = {file: file.read_text() for file in (ROOT / "tests").rglob("*.py")}
    assert [str(file) for file, text in texts.items() if patched.search(text)] == []


def test_one_module_sleeps() -> None:
    """Tests wait by ``headgate_testing.wait_until``, or for an event."""
    files = [*(ROOT / "tests").rglob("*.py"), *TESTING.glob("*.py")]
    sleeps = re.compile(r"\btime\.sleep\(|^from time import.*\bsleep\b", re.MULTILINE)
    assert [file.name for file in files if sleeps.search(file.read_text())] == ["_waiting.py"]


def test_tests_spell_no_statement_that_was_renamed() -> None:
    """``MySQLServer.log_status()`` and ``reset_log()`` do, so that the suite runs on each version."""
    renamed = re.compile(
        r"""["'](?:SHOW (?:BINARY LOG|MASTER|REPLICA|SLAVE) STATUS|RESET (?:BINARY LOGS|MASTER)|SHOW SLAVE)"""
    )
    files = [*(ROOT / "tests" / "integration").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    assert [file.name for file in files if renamed.search(file.read_text())] == []


def test_fewer_and_fewer_tests_import_private_modules() -> None:
    """Tests prove rules by a room's public names. If this number has become smaller, write it above."""
    private = re.compile(r"(?:from|import) headgate(?:\.[a-z0-9]+)*\._[a-z]")
    files = [file for file in (ROOT / "tests").rglob("*.py") if private.search(file.read_text("utf-8"))]
    assert len(files) <= TESTS_OF_PRIVATE_MODULES

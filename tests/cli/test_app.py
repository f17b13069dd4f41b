"""The frame of the commands: help, exit codes, how errors end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli import _app, app
from headgate.cli._interrupt import until_interrupt
from headgate.errors import AccessError, ConfigError, ConnectError

SRC = str(Path(_app.__file__).parents[2])
Use = Callable[[Callable[..., object]], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Make a function the command ``try``."""

    def install(function: Callable[..., object]) -> None:
        module = types.ModuleType("headgate_tried")
        module.__spec__ = types.SimpleNamespace(name="headgate_tried")  # type: ignore[assignment]
        module.command = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "headgate_tried", module)
        monkeypatch.setattr(_app, "COMMANDS", {"try": ("headgate_tried", "Try it.")})

    return install


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stdout, result.stderr


def python(code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SRC}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_an_argument_that_is_no_text_is_in_the_error() -> None:
    environment = {**os.environ, "PYTHONPATH": SRC}
    command: list[str | bytes] = [sys.executable, "-m", "headgate.cli", "status", b"caf\xe9.toml"]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, b"")
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(r"error: caf\udce9.toml cannot be read")


def test_help_lists_the_commands_that_exist() -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "tail" in out
    assert "Print the changes of a server" in out
    assert run()[0] == 0
    assert "Print the changes" in run()[1]


def test_help_is_text_that_flows(use: Use) -> None:
    def tried() -> None:
        """First.

        A line that ends
        here.

        Examples:
          headgate try one

          headgate try two
        """

    use(tried)
    out = run("try", "--help")[1]
    assert "A line that ends here." in out
    usage, first, *lines = [line.strip() for line in out.splitlines() if line.strip()]
    assert ("Usage: " in usage, first) == (True, "headgate try one")
    assert lines[:4] == ["First.", "A line that ends here.", "More examples:", "headgate try two"]
    assert "password comes from the environment" in " ".join(run()[1].split())
    assert not [line for line in run()[1].splitlines() if line.strip() == "comes"]


def words_of(example: str) -> list[str]:
    """The words of an example after the program's name, without what the shell does with its output."""
    words = shlex.split(example)
    return words[1 : next((index for index, word in enumerate(words) if word in (">", "|")), len(words))]


@pytest.mark.parametrize("name", _app.COMMANDS)
def test_help_begins_with_a_command_that_works(name: str) -> None:
    lines = (_app._LazyCommand(name, *_app.COMMANDS[name])._load().help or "").splitlines()
    first = lines[0].removeprefix("[bold]").removesuffix("[/bold]")
    assert first.split()[:2] == ["headgate", name]
    more = lines[lines.index("More examples:") + 1 :] if "More examples:" in lines else []
    examples = [first, *map(str.strip, more)]
    for example in examples:
        command, *arguments = words_of(example)
        _app._LazyCommand(command, *_app.COMMANDS[command]).make_context(command, arguments)


def test_the_groups_of_help_have_commands_and_options_that_exist() -> None:
    assert {name for names in _app._AREAS.values() for name in names} == {*_app.COMMANDS}
    loaded = [_app._LazyCommand(name, *_app.COMMANDS[name])._load() for name in _app.COMMANDS]
    flags = {flag for one in loaded for parameter in one.params for flag in parameter.opts}
    assert {flag for named in _app._GROUPS.values() for flag in named.split()} <= flags


def test_help_of_flags_shows_no_value(use: Use) -> None:
    def tried(force: Annotated[bool, typer.Option("--force", "-f")] = False, rows: int = 1) -> None:
        print(force, rows)

    use(tried)
    out = run("try", "--help")[1]
    assert "bool" not in out + run("--help")[1]
    assert "--rows" in out
    assert "--force" in out
    assert run("try", "-f", "--rows", "2")[1] == "True 2\n"


def test_a_misspelt_command() -> None:
    code, _, err = run("chekc")
    assert (code, err) == (2, "error: No such command 'chekc'; did you mean check? (see headgate --help)\n")
    assert run("kafka")[2] == "error: No such command 'kafka' (see headgate --help)\n"


def test_help_shows_brackets_as_they_are() -> None:
    assert "[[tenants]]" in " ".join(run("relay", "--help")[1].split())


def test_commands_without_a_module_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_app, "COMMANDS", {"none": ("headgate.cli._none", "Is not."), **_app.COMMANDS})
    assert "none" not in run("--help")[1]
    code, _, err = run("none")
    assert code == 2
    assert err.startswith("error: No such command 'none'")


HELP = """
import sys, time
begin = time.process_time()
sys.argv = ["headgate", "--help"]
{program}
try: main()
except SystemExit as end: assert end.code == 0, end.code
loaded = {{"numba", "pyspark", "pyarrow", "numpy", "pydantic"}} & set(sys.modules)
print(sorted(loaded), time.process_time() - begin, file=sys.stderr)
"""
BARE = """
import typer
main = typer.Typer(add_completion=False, rich_markup_mode="rich")
main.callback()(lambda: None)
for name in {names}: main.command(name)(lambda: None)
"""


def test_help_is_fast_and_loads_neither_numba_nor_spark() -> None:
    """At most twice what typer takes for a program that does nothing: seconds would say how fast the machine is."""
    programs = [BARE.format(names=list(_app.COMMANDS)), "from headgate.cli import main"]
    runs = [python(HELP.format(program=program)) for _ in range(4) for program in programs]
    results = [process.communicate(timeout=240)[1].split() for process in runs]
    assert [result[0] for result in results] == ["[]"] * len(runs)
    bare, ours = (min(float(result[1]) for result in results[first::2]) for first in range(2))
    assert ours < 2 * bare


@pytest.mark.parametrize("args", [["tail"], ["tail", "mysql://a", "--nonsense"], ["--nonsense"], ["tail", "a", "b"]])
def test_bad_use_is_one_line_and_2(args: list[str]) -> None:
    code, out, err = run(*args)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "(see headgate" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong\n  key"), 2),
        (AccessError("wrong password", code=1045), 3),
        (ConnectError("no way", host="h", port=1), 3),
        (ZeroDivisionError("division by zero"), 3),
    ],
)
def test_errors_are_one_line_with_their_code(use: Use, error: Exception, code: int) -> None:
    def command() -> None:
        raise error

    use(command)
    got, out, err = run("try")
    assert got == code
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    for args in (["--debug", "try"], ["try", "--debug"]):
        got, _, err = run(*args)
        assert got == code
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("error: ")


def test_each_mistake_in_a_configuration_is_a_line(use: Use) -> None:
    def command() -> None:
        raise ConfigError.of(["a: wrong", "b: wrong"], "x.toml: ")

    use(command)
    assert run("try") == (2, "", "error: x.toml: a: wrong\nerror: x.toml: b: wrong\n")


def test_what_a_command_returns_is_the_exit_code(use: Use) -> None:
    def command(code: int) -> int | None:
        if code == 9:
            raise typer.Exit(4)
        return code or None

    use(command)
    assert [run("try", str(code))[0] for code in (0, 1, 3, 9)] == [0, 1, 3, 4]


def test_an_interrupted_command_is_not_done(use: Use) -> None:
    """A comparison that SIGTERM ends halfway has not found the lake equal."""

    def command() -> None:
        print("half")
        raise KeyboardInterrupt

    use(command)
    assert run("try") == (130, "half\n", "interrupted\n")


def test_an_interrupt_is_the_success_of_what_has_no_other_end(use: Use) -> None:
    def command() -> None:
        with until_interrupt():
            raise KeyboardInterrupt

    use(command)
    assert run("try") == (0, "", "")


def test_a_question_without_an_answer_ends_with_1(use: Use) -> None:
    use(lambda: typer.confirm("Delete it?"))
    assert run("try")[0] == 1


def test_a_reader_that_goes_away_is_the_success_of_what_has_no_other_end(use: Use) -> None:
    def command() -> None:
        with until_interrupt():
            raise BrokenPipeError

    use(command)
    assert run("try") == (0, "", "")


def test_a_reader_that_goes_away_hides_no_difference(use: Use) -> None:
    """As in `headgate verify FILE | grep -m1 equal`."""

    def command() -> int:
        raise BrokenPipeError

    use(command)
    assert run("try") == (141, "", "")


WAITING = """
import sys, types, signal, threading
from headgate.cli import _app
def command():
    try:
        print("ready", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        if {stubborn}:
            print("cleaning", flush=True)
            threading.Event().wait()
        raise
module = types.ModuleType("tried")
module.__spec__ = types.SimpleNamespace(name="tried")
module.command = command
sys.modules["tried"] = module
_app.COMMANDS = {{"try": ("tried", "Try it.")}}
sys.argv = ["headgate", "try"]
_app.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_cleanly(number: signal.Signals) -> None:
    with python(WAITING.format(stubborn=False)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=120) == ("", "interrupted\n")
        assert process.returncode == 130


def test_the_second_signal_ends_with_130() -> None:
    with python(WAITING.format(stubborn=True)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "cleaning\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130


PRINTING = """
from contextlib import nullcontext
from headgate.cli._common import console
from headgate.cli._interrupt import until_interrupt
def endless():
    with {block}():
        while True:
            {prints}('x' * 1000)
"""


@pytest.mark.parametrize("prints", ["print", "console().print"])
@pytest.mark.parametrize(("block", "code"), [("nullcontext", 141), ("until_interrupt", 0)])
def test_a_closed_pipe_ends_quietly(prints: str, block: str, code: int) -> None:
    waiting = WAITING.format(stubborn=False).replace("threading.Event().wait()", "endless()", 1)
    with python(PRINTING.format(prints=prints, block=block) + waiting) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdout.close()
        assert process.wait(120) == code
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_version() -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("headgate ")

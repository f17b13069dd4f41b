"""Frame of the commands: their list, the exit codes of errors, Ctrl-C.

A new command is a module with a function ``command`` (or of the command's name) and one line in ``COMMANDS``. The
function's parameters are in typer's notation, its docstring is the help, and it returns the exit code or None. The help
begins with the docstring's first example, and shows options in the groups of ``_GROUPS``. A module is imported when its
command is called, so ``headgate --help`` loads neither numba nor pyspark. A command whose module is missing is not
listed.

Every error is one line on stderr, ``error: …``, which ends with its entry in the runbook; each mistake of a
configuration is one. ``--debug``, anywhere on the line, adds the traceback.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import io
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NoReturn

import typer
import typer.core
import typer.main

from headgate.cli._interrupt import INTERRUPTED, UNREAD, Interrupts, discard_output
from headgate.errors import ConfigError, HeadgateError, error_line
from headgate.extras import missing_extra_error
from headgate.files import kernel_cache, system_error
from headgate.names import printable

__all__ = ["COMMANDS", "DIFFERENT", "FAILED", "MISUSED", "OK", "app", "main"]

OK: Final = 0
DIFFERENT: Final = 1
"""A difference was found, a check failed, or what was requested is not done."""
MISUSED: Final = 2
"""Bad use or configuration."""
FAILED: Final = 3
"""The source or the target failed."""

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "check": ("headgate.cli._check", "Check a server's settings, privileges and tables, all at once."),
    "init": ("headgate.cli._init", "Write a commented pipeline.toml for the tables of a server."),
    "prefetch": ("headgate.cli._prefetch", "Fetch and compile what a run needs, so that it needs no network."),
    "run": ("headgate.cli._run", "Run a pipeline: snapshot the tables, then follow their changes."),
    "signal": ("headgate.cli._signal", "Tell a running pipeline to read tables again, to pause, to resume."),
    "forget": ("headgate.cli._forget", "Remove a table that is not followed any more from a pipeline's records."),
    "status": ("headgate.cli._status", "Show the status of a pipeline: states, progress, lag, warnings."),
    "ui": ("headgate.cli._ui", "Show the status of pipelines, as a page and for Prometheus."),
    "relay": ("headgate.cli._relay", "Serve the changes of servers to consumers, in Databus's protocol."),
    "consume": ("headgate.cli._consume", "Print the changes that a relay serves."),
    "verify": ("headgate.cli._verify", "Compare the rows of the lake with those of the source, while writers run."),
    "maintain": ("headgate.cli._maintain", "Remove files that the lake no longer needs, and fold small files, now."),
    "doctor": ("headgate.cli._doctor", "Gather what a bug report needs into one archive, without secrets."),
    "tail": ("headgate.cli._tail", "Print the changes of a server as they are logged."),
    "snapshot": ("headgate.cli._snapshot", "Print the rows of tables, all as of one GTID set."),
}
"""Name → module and one line of help, in the order of ``headgate --help``."""

_AREAS: Final[Mapping[str, Sequence[str]]] = {
    "A pipeline": (
        "check",
        "init",
        "prefetch",
        "run",
        "status",
        "verify",
        "ui",
        "signal",
        "maintain",
        "forget",
        "doctor",
    ),
    "A relay": ("relay", "consume"),
    "Without Spark": ("tail", "snapshot"),
}
"""Groups of commands in ``headgate --help``."""

_GROUPS: Final[Mapping[str, str]] = {
    "Login and network": "--host --port --insecure --password-file --password-env --token-file --ca-file --tls-cert"
    " --tls-key --relay --relay-source --relay-token-file --relay-ca-file --give-up-seconds",
    "How tables are read": "--resnapshot --snapshot-mode --type --condition --surrogate-key --chunk-rows --window"
    " --watermark --signal-table --lock-hold --lock-wait-seconds",
    "Events": "--scn --scn-column --event-version --before-images",
    "State and files": "--state --schemas --disk-bytes --log-disk-bytes",
    "Checkpoints and groups": "--checkpoints --name --checkpoint-seconds --bootstrap --group --partitions"
    " --lease-seconds",
    "Log": "--log-level --log-format",
}
"""Groups of options in the help of commands; all others come first."""

_USAGE_ERROR: Final[type[Exception]] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)
"""The base of typer's usage errors; which package defines it depends on typer's version."""


def _arranged(parameters: Any) -> Any:
    """Return a command's parameters, in groups. Help shows no type of a flag, because a flag takes no value."""
    group_of = {flag: group for group, flags in _GROUPS.items() for flag in flags.split()}
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        group = next(filter(None, map(group_of.get, parameter.opts)), None)
        if group is not None:
            parameter.rich_help_panel = group
    return parameters


class _Command(typer.core.TyperCommand):
    """A command that has been loaded."""

    def get_params(self, ctx: Any) -> Any:
        return _arranged(super().get_params(ctx))


class _LazyCommand(typer.core.TyperCommand):
    """A command that has only its name and help until it is called."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, callback=None, help=summary)
        self._module = module
        self.rich_help_panel = next((area for area, names in _AREAS.items() if name in names), None)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> Any:
        module = importlib.import_module(self._module)
        function: Callable[..., Any] = getattr(module, "command", None) or getattr(module, str(self.name))
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        text = _example_first(_flowing(inspect.getdoc(function) or ""))
        single.command(self.name, cls=_Command, help=text, context_settings=_SETTINGS)(function)
        return typer.main.get_command(single)


class _Headgate(typer.core.TyperGroup):
    """Group of all commands whose modules exist."""

    def get_params(self, ctx: Any) -> Any:
        return _arranged(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return [name for name, (module, _) in COMMANDS.items() if importlib.util.find_spec(module) is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = self.list_commands(ctx)
        if cmd_name not in names:
            near = difflib.get_close_matches(cmd_name, names, 1)
            if near:
                ctx.fail(f"No such command {cmd_name!r}; did you mean {near[0]}?")
            return None
        return _LazyCommand(cmd_name, *COMMANDS[cmd_name])

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            return UNREAD
        except KeyboardInterrupt:  # typer would exit with 130
            return _interrupted()
        return result

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line, and exit with the code that the command returned."""
        words, debug = _without_debug(sys.argv[1:] if args is None else args)
        code: Any
        with Interrupts():
            try:
                code = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)
            except KeyboardInterrupt:
                code = _interrupted()
            except typer.Abort as error:  # Ctrl-C before the command began, or a question without an answer
                code = INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else DIFFERENT
            except Exception as error:  # noqa: BLE001 - every error becomes one line and an exit code here
                code = _print_error(error, debug=debug)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else OK)
        return code


def _flowing(text: str) -> str:
    """Join the lines of each paragraph of a docstring, for any terminal width. Lines that begin with a blank stay."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text)


def _example_first(text: str) -> str:
    """Return a command's help with its first example as the first line, and the others at the end."""
    about, title, examples = text.partition("\nExamples:\n")
    first, *others = [line.strip() for line in examples.splitlines() if line.strip()] or [""]
    more = "\n  ".join(("\n\nMore examples:", *others)) if others else ""
    return f"[bold]{first}[/bold]\n\n{about.strip()}{more}" if title else text


def _without_debug(args: Sequence[str]) -> tuple[list[str], bool]:
    """Return the words without ``--debug``, and whether it was given; after ``--`` nothing is an option."""
    end = args.index("--") if "--" in args else len(args)
    kept = [word for word in args[:end] if word != "--debug"]
    return [*kept, *args[end:]], len(kept) < end


def _interrupted() -> int:
    """Say that the command did not do all that was requested, and return its exit code."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        print("interrupted", file=sys.stderr, flush=True)  # noqa: T201 - output
    return INTERRUPTED


def _print_error(error: Exception, *, debug: bool) -> int:
    """Print the error in one line, or a line for each mistake in a configuration, and return the exit code."""
    texts: tuple[str, ...]
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra_error(error)
    if isinstance(error, OSError):
        error = system_error(error) or error
    if isinstance(error, _USAGE_ERROR):
        context: Any = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "headgate"
        message = str(error.format_message()).replace(": Value error, ", ": ").rstrip(".")  # type: ignore[attr-defined]
        texts, code = (f"{message} (see {path} --help)",), MISUSED
    elif isinstance(error, ConfigError) and len(error.lines) > 1:
        texts, code = error.lines, MISUSED
    elif isinstance(error, HeadgateError):
        texts, code = (error_line(error),), MISUSED if isinstance(error, ConfigError) else FAILED
    else:
        texts, code = (f"unexpected {type(error).__name__}: {error} (--debug prints the traceback)",), FAILED
    if debug:
        traceback.print_exception(error)
    for text in texts:
        print(f"error: {printable(' '.join(text.split()))}", file=sys.stderr, flush=True)  # noqa: T201 - output
    return code


_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="headgate",
    cls=_Headgate,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import headgate

        print(f"headgate {headgate.__version__}")  # noqa: T201 - the command's output
        raise typer.Exit


_HELP: Final = """\
[bold]headgate check mysql://user@host:3306[/bold]

Brings MySQL tables into Delta tables, exactly, and keeps them up to date. The first steps:

  headgate check mysql://user@host:3306    what the server lacks, with remedies
  headgate init mysql://user@host:3306     writes a commented pipeline.toml
  headgate run pipeline.toml               reads the tables, then follows them
  headgate status pipeline.toml            in another terminal: how far it is

The password comes from the environment variable HEADGATE_PASSWORD.

Exit codes: 0 success, 1 a difference or a failed check, 2 bad use or configuration, 3 the source or the target failed.
The first Ctrl-C ends a command cleanly (with 130 if it was not done), a second one at once.
"""


@app.callback(help=_flowing(_HELP))
def _headgate(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,  # noqa: ARG001
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Define the options of all commands; without a command, print the help."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())  # noqa: T201 - the command's output


def main() -> NoReturn:
    """Run the program ``headgate``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # JSON is UTF-8 in every locale. An argument's bytes that are not UTF-8 must not hide an error's text.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    with contextlib.suppress(RuntimeError):  # no home: a command that needs a cache says so
        kernel_cache()
    app(prog_name="headgate")
    sys.exit(OK)

"""What several commands share: arguments, how to connect, where to print.

Typer reads the annotations when a command is imported, so command modules must not use
``from __future__ import annotations`` for names that only type checkers see.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headgate.cli._interrupt import on_interrupt
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from headgate.catalog import TablePatterns
    from headgate.mysql import ConnectionSettings

__all__ = [
    "TABLE_STYLES",
    "Format",
    "PasswordEnv",
    "PasswordFile",
    "Tables",
    "Url",
    "connection_settings",
    "console",
    "no_match",
    "on_terminal",
    "patterns_of",
    "start_spark",
    "warn",
    "write_lines",
]


TABLE_STYLES: Final = {
    "snapshotting": "cyan",
    "settling": "cyan",
    "live": "green",
    "inexact": "yellow",
    "filtered": "green",
    "stale": "yellow",
    "stopped": "red",
}
"""How terminals show the states of tables, as ``rich`` names colours."""
_AT_ONCE: Final = 10_000
"""Lines that are put together in memory."""


class Format(StrEnum):
    """How lines are written."""

    json = "json"
    text = "text"


Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="The server: mysql://user@host:3306, with /?tls=required (or disabled, verify_ca, verify_identity;"
        " tls_ca, tls_cert, tls_key) where needed.",
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        "-t",
        metavar="PATTERN",
        help="Globs on db.table, such as 'shop.*'; '!shop.tmp_*' removes; the last match wins. Repeatable.",
    ),
]
PasswordFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File that holds the password, instead of HEADGATE_PASSWORD.")
]
PasswordEnv = Annotated[
    str | None, typer.Option(metavar="NAME", help="Environment variable that holds the password.", show_default=False)
]


def connection_settings(
    url: str, *, password_file: Path | None = None, password_env: str | None = None
) -> ConnectionSettings:
    """How to connect; warns when the password stands in the URL.

    :raises ConfigError: not a MySQL URL.
    """
    from headgate.mysql import ConnectionSettings

    settings = ConnectionSettings.from_url(
        url, password_file=None if password_file is None else str(password_file), password_env=password_env
    )
    if settings.password_in_url:
        warn("the password stands in the URL, where shells and process lists keep it; HEADGATE_PASSWORD is safer")
    return settings


def patterns_of(tables: Sequence[str] | None) -> TablePatterns:
    """The tables meant: all if none are named, all but those if only some are removed.

    :raises ConfigError: not a pattern.
    """
    from headgate.catalog import TablePatterns

    given = list(tables or ())
    return TablePatterns(given if any(not one.startswith("!") for one in given) else ["*.*", *given])


def start_spark(name: str, settings: Mapping[str, str], *, quiet: bool) -> SparkSession:
    """A Spark session. A first Ctrl-C waits until it is there: pyspark would leave a JVM behind that never ends.

    :raises KeyboardInterrupt: Ctrl-C came meanwhile.
    """
    from headgate.engine import build_session

    came = threading.Event()
    with on_interrupt(came.set):
        spark = build_session(name, settings, quiet=quiet)
    if came.is_set():
        spark.stop()
        raise KeyboardInterrupt
    return spark


def no_match(patterns: TablePatterns) -> ConfigError:
    """The error when the patterns match no table that the account can see."""
    named = ", ".join(patterns.patterns)
    return ConfigError(f"no table matches {named}: check the spelling (case counts) and the grants")


def write_lines(lines: Iterable[str]) -> None:
    """Lines to stdout, at once and whole: a first Ctrl-C waits until they are out.

    :raises BrokenPipeError: nobody reads on.
    :raises KeyboardInterrupt: Ctrl-C came meanwhile.
    """
    came = threading.Event()
    with on_interrupt(came.set):
        sys.stdout.flush()
        left = iter(lines)
        while some := list(islice(left, _AT_ONCE)):
            text = "\n".join(some)
            rest = memoryview(f"{text}\n".encode())
            while rest:  # with PYTHONUNBUFFERED a write that a signal meets is short
                rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.flush()
    if came.is_set():
        raise KeyboardInterrupt


def warn(text: str) -> None:
    """One line on stderr."""
    print("warning:", " ".join(text.split()), file=sys.stderr, flush=True)  # noqa: T201 - the command's own voice


def on_terminal() -> bool:
    """Whether a person looks at our output; otherwise it is plain text."""
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """A console for tables and progress."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)

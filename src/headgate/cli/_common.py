"""Arguments, connections and output of several commands.

Typer reads the annotations when a command is imported, so command modules must not use ``from __future__ import
annotations`` for names that only type checkers see.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headgate.cli._interrupt import on_interrupt
from headgate.errors import ConfigError
from headgate.names import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from headgate.catalog import TablePatterns
    from headgate.mysql import Connection, ConnectionSettings
    from headgate.policies import Policies

__all__ = [
    "SIGNAL_STYLES",
    "TABLE_STYLES",
    "Format",
    "PasswordCommand",
    "PasswordEnv",
    "PasswordFile",
    "RulesFile",
    "Tables",
    "Url",
    "connection_settings",
    "console",
    "folding_table",
    "no_match",
    "on_terminal",
    "patterns_of",
    "printed_policies",
    "warn",
    "warn_unmatched",
    "write_lines",
    "write_text",
]


TABLE_STYLES: Final = {
    "snapshotting": "cyan",
    "settling": "cyan",
    "live": "green",
    "inexact": "yellow",
    "filtered": "green",
    "stale": "yellow",
    "stopped": "red",
    "excluded": "dim",
    "dropped": "dim",
}
"""Terminal styles of tables' states, as ``rich`` names colours."""
SIGNAL_STYLES: Final = {
    "sent": "cyan",
    "taken": "cyan",
    "running": "cyan",
    "done": "dim",
    "partly": "yellow",
    "stopped": "yellow",
    "refused": "red",
}
"""Terminal styles of signals' states."""
_AT_ONCE: Final = 10_000
"""Lines that are joined in memory before a write."""


class Format(StrEnum):
    """Format of printed lines."""

    json = "json"
    text = "text"


Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="The server: mysql://user@host:3306, with /?tls=required (or disabled, verify_ca, verify_identity;"
        " tls_ca, tls_crl, tls_cert, tls_key) where needed.",
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
RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Apply the rules for columns in this pipeline file: \\[columns] and the mask key.",
    ),
]
PasswordEnv = Annotated[
    str | None, typer.Option(metavar="NAME", help="Environment variable that holds the password.", show_default=False)
]

PasswordCommand = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND", help="Program that prints the password, with its arguments; no shell.", show_default=False
    ),
]


def connection_settings(
    url: str, *, password_file: Path | None = None, password_env: str | None = None, password_command: str | None = None
) -> ConnectionSettings:
    """Return the connection settings; warn if the URL contains a password.

    :raises ConfigError: not a MySQL URL.
    """
    from headgate.mysql import ConnectionSettings

    settings = ConnectionSettings.from_url(
        url,
        password_file=None if password_file is None else str(password_file),
        password_env=password_env,
        password_command=password_command,
    )
    if settings.password_in_url:
        warn("the URL contains the password, and shells and process lists show it; HEADGATE_PASSWORD is safer")
    return settings


def patterns_of(tables: Sequence[str] | None) -> TablePatterns:
    """Return the patterns: without any all tables, with only removing ones all except those.

    :raises ConfigError: not a pattern.
    """
    from headgate.catalog import TablePatterns

    patterns = list(tables or ())
    return TablePatterns(patterns if any(not one.startswith("!") for one in patterns) else ["*.*", *patterns])


def printed_policies(rules: Path | None, connection: Connection, patterns: TablePatterns) -> Policies:
    """Return the policies of printed lines.

    :param rules: a pipeline file with rules for columns; None: no rules. A rule without a column gives a warning.
    :raises ConfigError: the file cannot be read, or the key of hashes.
    :raises UnsupportedError: a rule is not for its column.
    """
    from headgate.policies import Policies

    if rules is None:
        return Policies(temporals="text", ambiguous_keys="spell")
    from headgate.catalog import load_tables
    from headgate.columns import check_rules
    from headgate.config import load_config

    configured = load_config(rules).policies()
    policies = Policies(
        temporals="text", ambiguous_keys="spell", columns=configured.columns, mask_key=configured.mask_key
    )
    for pattern in check_rules(policies, load_tables(connection.query, patterns)):
        warn(f"the rule for {pattern} in {rules} matches no column of these tables")
    return policies


def no_match(patterns: Sequence[str], connection: Connection) -> ConfigError:
    """Return the error for patterns that match no table visible to the account."""
    from headgate.catalog import TablePatterns
    from headgate.mysql import missing_select

    named = ", ".join(patterns)
    grants = missing_select(connection, TablePatterns(patterns).literal_databases())
    spelling = "check the spelling (case counts)"
    reason = f"the account lacks SELECT: {grants} or {spelling}" if grants else spelling
    return ConfigError(f"no table matches {named}: {reason}")


def warn_unmatched(patterns: TablePatterns, names: Iterable[str]) -> None:
    """Warn about patterns without a table: theirs may be created later, have been dropped, or are misspelt.

    :param names: ``db.table`` of those that match.
    """
    if missing := patterns.unmatched(names):
        warn(f"no table matches {', '.join(missing)} yet: check the spelling (case counts) and the grants")


def write_lines(lines: Iterable[str]) -> None:
    """Write whole lines to stdout and flush; a first Ctrl-C waits for that.

    :raises BrokenPipeError: the reader has gone.
    :raises KeyboardInterrupt: Ctrl-C came meanwhile.
    """
    interrupted = threading.Event()
    with on_interrupt(interrupted.set):
        sys.stdout.flush()
        left = iter(lines)
        while some := list(islice(left, _AT_ONCE)):
            text = "\n".join(some)
            rest = memoryview(f"{text}\n".encode())
            while rest:  # with PYTHONUNBUFFERED, a write interrupted by a signal is short
                rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.flush()
    if interrupted.is_set():
        raise KeyboardInterrupt


def write_text(lines: Iterable[str]) -> None:
    """Write lines for people as :func:`write_lines`; control characters in them are escaped."""
    write_lines(map(printable, lines))


def warn(text: str) -> None:
    """Print a warning in one line on stderr."""
    print("warning:", printable(" ".join(text.split())), file=sys.stderr, flush=True)  # noqa: T201 - the command's output


def on_terminal() -> bool:
    """Return whether stdout is a terminal; otherwise output is plain text."""
    return sys.stdout.isatty()


def folding_table(*titles: str, **options: Any) -> Table:
    """Return an empty table whose cells continue in the next line, where ``rich`` would cut long words.

    :param options: as of ``rich.table.Table``.
    """
    from rich.table import Table

    view = Table(header_style="bold", **options)
    for title in titles:
        view.add_column(title, overflow="fold")
    return view


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console for tables and progress. It escapes control characters of names and messages, and raises
    ``BrokenPipeError`` if its reader has gone.

    :param width: columns; None: those of the terminal.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Pipe(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit with 1

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else "\n".join(map(printable, segment.text.split("\n")))
                yield segment._replace(text=text)

    return Pipe(stderr=stderr, highlight=False, width=width)

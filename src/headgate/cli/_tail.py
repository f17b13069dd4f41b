"""``headgate tail``: the changes of a server, as they are logged."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._common import (
    Format,
    PasswordCommand,
    PasswordEnv,
    PasswordFile,
    RulesFile,
    Tables,
    Url,
    connection_settings,
    patterns_of,
    printed_policies,
    warn_unmatched,
    write_lines,
)
from headgate.cli._interrupt import until_interrupt

if TYPE_CHECKING:
    from headgate.replication import LogItem

__all__ = ["command"]


def command(
    url: Url,
    tables: Tables = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="current|earliest|TIME|GTIDSET",
            help="Where to begin: now, at the oldest log, at the first transaction from a time on"
            " (2026-11-21T10:00:00Z), or after everything in a GTID set; with gtid_mode=OFF after file:position.",
        ),
    ] = "current",
    until_current: Annotated[
        bool, typer.Option("--until-current", help="End at what the server has executed now, instead of following.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="JSON lines, or a short form for people.")] = Format.json,
    rules: RulesFile = None,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    password_command: PasswordCommand = None,
) -> None:
    """Print the changes of a server as they are logged: one JSON object a line, in log order.

    It reads only the log: no table is locked or read, nothing is written. Ctrl-C ends it. With --rules, what the rules
    of a pipeline hide is not printed, except in statements, which are printed as they were logged.

    Examples:
      headgate tail mysql://root@127.0.0.1:3306
      headgate tail mysql://root@127.0.0.1:3306 -t 'shop.*' -t '!shop.tmp_*' --format text
      headgate tail mysql://root@127.0.0.1:3306 --from earliest --until-current > changes.jsonl
    """
    settings = connection_settings(
        url, password_file=password_file, password_env=password_env, password_command=password_command
    )
    patterns = patterns_of(tables)

    from headgate.catalog import load_stats
    from headgate.mysql import Connection, check_required
    from headgate.positions import KINDS
    from headgate.replication import start_of

    with Connection.open(settings) as connection:
        uuid = check_required(connection, kinds=KINDS, ordered=False).server_uuid
        read_before, executed = start_of(connection, start)
        if tables:
            warn_unmatched(patterns, load_stats(connection.query, patterns))
        policies = printed_policies(rules, connection, patterns)

    from headgate.replication import DecodeOptions, LogRead, follow, read_range

    options = DecodeOptions(patterns, policies=policies)
    items: Iterable[LogItem]
    if until_current:
        items = read_range(
            LogRead(settings, wanted=executed - read_before, executed=executed, server_uuid=uuid), options
        )
    else:
        items = follow(settings, read_before, options)
    with nullcontext() if until_current else until_interrupt():
        for lines in _lines(items, output):
            write_lines(lines)


def _lines(items: Iterable[LogItem], output: Format) -> Iterator[list[str]]:
    """Yield the lines of each item that has some.

    They are printed at once, also before their transaction ends: what is in the log is committed, and the reader
    delivers XA transactions where they are committed.
    """
    from headgate.cli.jsonl import block_lines, ddl_line
    from headgate.cli.text import TextLines
    from headgate.replication import Ddl, LogBlock

    text = TextLines(colours=sys.stdout.isatty()) if output is Format.text else None
    for item in items:
        if isinstance(item, LogBlock):
            lines = block_lines(item)
            keys = {image.table.full_name: image.table.key_names for image in item.images}
        elif isinstance(item, Ddl):
            lines, keys = [ddl_line(item)], {}
        else:
            continue
        yield lines if text is None else [line for one in lines for line in text.of(one, keys)]

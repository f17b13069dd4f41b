"""``headgate check``: a report on a server's settings, privileges and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._common import (
    Format,
    PasswordCommand,
    PasswordEnv,
    PasswordFile,
    Tables,
    Url,
    connection_settings,
    console,
    folding_table,
    on_terminal,
    patterns_of,
    write_lines,
    write_text,
)
from headgate.names import quote_name

if TYPE_CHECKING:
    from rich.console import Console

    from headgate.catalog import TableDef, TablePatterns, TableStats
    from headgate.mysql import Connection, Prerequisite

__all__ = ["command", "conclusion", "server_report"]


def command(
    url: Url,
    tables: Tables = None,
    output: Annotated[Format, typer.Option("--format", help="How to print the report.")] = Format.text,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    password_command: PasswordCommand = None,
    relay: Annotated[
        str | None, typer.Option(metavar="URL", help="A relay to read the log from: http://host:port.")
    ] = None,
    relay_source: Annotated[
        str | None, typer.Option(metavar="NAME", help="The relay's physical source, if it has several.")
    ] = None,
    relay_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that holds the relay's token.")
    ] = None,
    relay_ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates to trust, for a relay with https.")
    ] = None,
) -> int:
    """Check a server's settings, privileges and tables, all at once.

    Also checks the tables' engines, keys and types, and which watermarks are available. Each problem is printed with
    its remedy; nothing is changed.
    The exit code is 1 if a check fails; warnings leave it at 0.

    Examples:
      headgate check mysql://headgate@127.0.0.1:3306
      headgate check mysql://headgate@127.0.0.1:3306 --tables 'shop.*' --tables '!shop.tmp_*'
      headgate check mysql://headgate@127.0.0.1:3306 --relay http://relay1:11115
    """
    from headgate.mysql import Connection
    from headgate.relay.archive import LogOfRelay, relay_prerequisite

    patterns = patterns_of(tables)
    with Connection.open(
        connection_settings(
            url, password_file=password_file, password_env=password_env, password_command=password_command
        )
    ) as connection:
        rows = server_report(connection, patterns)
        if relay is not None:
            token, ca = (None if one is None else str(one) for one in (relay_token_file, relay_ca_file))
            rows.append(relay_prerequisite(connection, LogOfRelay(relay, relay_source, token, ca)))
    if output is Format.json:
        write_lines([json.dumps([row.as_dict() for row in rows], indent=2, ensure_ascii=False)])
    elif on_terminal():
        _show(rows)
    else:
        write_text(_lines(rows))
    return 1 if any(row.status == "fail" for row in rows) else 0


def server_report(connection: Connection, patterns: TablePatterns) -> list[Prerequisite]:
    """Return all checks of a server and of the tables that match."""
    from headgate.catalog import load_stats, load_tables
    from headgate.mysql import cascades, kinds_of_watermark, prerequisites, watermarks

    tables = load_tables(connection.query, patterns)
    stats = load_stats(connection.query, patterns)
    databases = list(dict.fromkeys(table.db for table in tables))
    rows = prerequisites(connection, kinds=kinds_of_watermark("gtid"))
    rows += watermarks(connection, rows, databases)
    rows += _patterns(connection, patterns, tables)
    of_tables = [row for table in tables for row in _table(connection, table, stats.get(table.full_name))]
    rows += [*_passed_checks(tables, of_tables), *of_tables]
    rows += cascades(connection, [(table.db, table.name) for table in tables])
    return rows


def _patterns(connection: Connection, patterns: TablePatterns, tables: Sequence[TableDef]) -> Iterator[Prerequisite]:
    """Report a pattern without a match as failed: it is misspelt, or its tables are invisible to the account."""
    from headgate.catalog import HELPERS_LEFT_OUT, TablePatterns
    from headgate.mysql import Prerequisite

    for pattern in patterns.patterns:
        if pattern.startswith("!"):
            continue
        one = TablePatterns([pattern])
        count = sum(one.matches(table.db, table.name) for table in tables)
        if count:
            yield Prerequisite(f"tables {pattern}", "one or more", str(count), "ok")
        else:
            actual, remedy = _unmatched(connection, one)
            yield Prerequisite(f"tables {pattern}", "one or more", actual, "fail", remedy)
    if left_out := patterns.left_out(table.full_name for table in tables):
        yield Prerequisite("tables that a pipeline leaves out", "", ", ".join(left_out), "info", HELPERS_LEFT_OUT)


def _unmatched(connection: Connection, pattern: TablePatterns) -> tuple[str, str]:
    """Return why a pattern has no match, and the remedy: a grant, or another spelling."""
    from headgate.mysql import missing_select

    grant = missing_select(connection, pattern.literal_databases())
    if grant:
        return "none visible: no SELECT, or misspelt (case counts)", grant
    return "none", "check the spelling: names are case-sensitive"


def _passed_checks(tables: Sequence[TableDef], of_tables: Sequence[Prerequisite]) -> Iterator[Prerequisite]:
    """Yield one row for each check that all tables pass."""
    from headgate.mysql import Prerequisite

    count = f"{len(tables)} table" + ("" if len(tables) == 1 else "s")
    for name, expected, prefix in (
        ("engines", "InnoDB", "engine of "),
        ("keys", "primary or unique, NOT NULL", "key of "),
        ("column types", "supported", "column "),
        ("SELECT", "granted", "SELECT on "),
    ):
        if tables and not any(row.name.startswith(prefix) for row in of_tables):
            yield Prerequisite(name, expected, f"{expected} ({count})", "ok")


def _table(connection: Connection, table: TableDef, stats: TableStats | None) -> Iterator[Prerequisite]:
    """Yield the problems of one table."""
    from headgate.catalog import hides_columns
    from headgate.columns import codec_for
    from headgate.errors import UnsupportedError
    from headgate.mysql import Prerequisite, check_engine, try_select

    quoted = ".".join(quote_name(part) for part in (table.db, table.name))
    engine = None if stats is None else check_engine(table.full_name, stats.engine)
    if engine is not None:
        yield engine
    if not table.key:
        remedy = f"ALTER TABLE {quoted} ADD PRIMARY KEY (…), or set `key`; without, each batch reads the whole copy"
        yield Prerequisite(f"key of {table.full_name}", "primary or unique, NOT NULL", "none", "warn", remedy)
    for column in table.columns:
        try:
            codec_for(column, table=table.full_name)
        except UnsupportedError as error:
            name = f"column {table.full_name}.{column.name}"
            yield Prerequisite(name, "a supported type", error.message, "fail", "leave the table out")
    refused = try_select(connection, table.db, table.name, [column.name for column in table.columns])
    if refused is not None:
        yield refused
    elif hides_columns(connection.query, table.db, table.name):
        remedy = f"GRANT SELECT ON {quoted} to the account, or exclude each of the others by its name in [columns]"
        yield Prerequisite(f"SELECT on {table.full_name}", "granted", "granted on some columns only", "fail", remedy)


_TABLE_WIDTH = 120
"""Columns of a terminal from which on a table of settings can be read; on a narrower one its texts would be torn."""
_WORDS = {"ok": "ok", "info": "-", "warn": "WARN", "fail": "FAIL"}
_STYLES = {"ok": "green", "info": "dim", "warn": "yellow", "fail": "bold red"}


def _lines(rows: Sequence[Prerequisite]) -> Iterator[str]:
    """Yield plain text: one line a row, and the remedy below it."""
    width = max(len(row.name) for row in rows)
    for row in rows:
        wanted = "" if row.status in ("ok", "info") else f" (expected: {row.expected})"
        yield f"{_WORDS[row.status]:4}  {row.name:{width}}  {row.actual}{wanted}"
        if row.remedy:
            yield f"      {'':{width}}  -> {row.remedy}"
    yield conclusion(rows)


def _show(rows: Sequence[Prerequisite]) -> None:
    """Print the report on a terminal."""
    screen = console()
    if screen.width < _TABLE_WIDTH:
        _print_colored(rows, screen)
    else:
        _print_table(rows, screen)


def _print_table(rows: Sequence[Prerequisite], screen: Console) -> None:
    from rich.text import Text

    table = folding_table("", "setting", "expected", "actual", "remedy")
    for row in rows:
        mark = Text(_WORDS[row.status], style=_STYLES[row.status])
        table.add_row(mark, Text(row.name), Text(row.expected), Text(row.actual), Text(row.remedy))
    screen.print(table)
    screen.print(conclusion(rows), markup=False)


def _print_colored(rows: Sequence[Prerequisite], screen: Console) -> None:
    """Print the plain lines, the status of each row in its colour. Long lines wrap, and can be copied whole."""
    from rich.text import Text

    style_of = {_WORDS[status]: style for status, style in _STYLES.items()}
    for line in _lines(rows):
        word = line[:4].strip()
        screen.print(Text.assemble((line[:4], style_of.get(word, "")), line[4:]), soft_wrap=True)


def conclusion(rows: Sequence[Prerequisite]) -> str:
    """Return the numbers of failed checks, warnings and passed ones, as text."""
    counts = {status: sum(row.status == status for row in rows) for status in _WORDS}
    warnings = f"{counts['warn']} warning" + ("" if counts["warn"] == 1 else "s")
    return f"{counts['fail']} failed, {warnings}, {counts['ok']} ok"

"""``headgate init``: a first pipeline.toml for the tables of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit

import typer

from headgate.cli._common import (
    PasswordCommand,
    PasswordEnv,
    PasswordFile,
    Tables,
    Url,
    connection_settings,
    no_match,
    patterns_of,
    warn_unmatched,
    write_text,
)
from headgate.errors import ConfigError
from headgate.files import file_errors

if TYPE_CHECKING:
    from headgate.catalog import TableDef, TablePatterns, TableStats
    from headgate.mysql import ConnectionSettings, Secret, ServerFacts

__all__ = ["command"]

_LISTED = 40
"""Tables that are listed in the file; more would hide the settings."""


def command(
    url: Url,
    tables: Tables = None,
    target: Annotated[str, typer.Option("--target", metavar="PATH", help="Folder or URI for the tables.")] = "./lake",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")] = Path(
        "pipeline.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    password_file: PasswordFile = None,
    password_env: PasswordEnv = None,
    password_command: PasswordCommand = None,
) -> None:
    """Write a commented pipeline.toml for the tables of a server.

    Nothing is changed on the server. The file never contains the password, only where it is.

    Examples:
      headgate init mysql://headgate@127.0.0.1:3306
      headgate init mysql://headgate@127.0.0.1:3306 --tables 'shop.*' --target /data/lake -o shop.toml
    """
    from headgate.catalog import TablePatterns, exact_pattern, load_stats, load_tables
    from headgate.config import parse_config
    from headgate.mysql import Connection, read_facts

    if output.exists() and not force:
        raise ConfigError(f"{output} exists already; --force overwrites it, --output FILE writes another one")
    settings = connection_settings(
        url, password_file=password_file, password_env=password_env, password_command=password_command
    )
    patterns = patterns_of(tables)
    with Connection.open(settings) as connection:
        facts = read_facts(connection)
        definitions = load_tables(connection.query, patterns)
        stats = load_stats(connection.query, patterns)
        if not definitions:
            raise no_match(patterns.patterns, connection)
    chosen = (
        list(patterns.patterns)
        if tables
        else [f"{exact_pattern(db)}.*" for db in dict.fromkeys(table.db for table in definitions)]
    )
    text = "".join(
        [
            _head(settings, facts),
            _source(url, settings, chosen),
            _table_list(definitions, stats, TablePatterns(chosen)),
            _target(target),
            _rest(definitions),
        ]
    )
    parse_config(text, where=str(output))
    warn_unmatched(patterns, [table.full_name for table in definitions])
    with file_errors(f"{output} cannot be written"):
        output.write_text(text, encoding="utf-8")
    write_text(
        [
            f"wrote {output}: {len(definitions)} table{'s' if len(definitions) > 1 else ''}",
            f"next: headgate run {output} --dry-run prints the plan, and what would prevent a run",
        ]
    )


def _bare(url: str, settings: ConnectionSettings) -> str:
    """Return the URL without its password options."""
    options = [(name, value) for name, value in parse_qsl(urlsplit(url).query) if not name.startswith("password")]
    return settings.url + (f"/?{urlencode(options, safe='/')}" if options else "")


def _quoted(text: str) -> str:
    """Return a TOML basic string. JSON's escapes are a subset of TOML's, except for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _name(db: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", db).strip("-_.")
    return name[:100] or "pipeline"


def _head(settings: ConnectionSettings, facts: ServerFacts) -> str:
    return (
        f"# A headgate pipeline, made for MySQL {facts.version} at {settings.host}:{settings.port}.\n"
        "# Commented lines show the default, or an example.\n\n"
    )


def _source(url: str, settings: ConnectionSettings, chosen: Sequence[str]) -> str:
    first = next(pattern for pattern in chosen if not pattern.startswith("!")) if chosen else "pipeline"
    lines = [
        f"name = {_quoted(_name(first.partition('.')[0]))}",
        "",
        "[source]",
        f"url = {_quoted(_bare(url, settings))}",
        _password_line(settings.secret),
        "# Globs on db.table, case-sensitive; ! removes; the last match wins.",
        f"tables = [{', '.join(map(_quoted, chosen))}]",
        '# snapshot_mode = "initial"                 # or "initial_only", "no_data", "when_needed", "always"',
        '# start = "current"                         # "no_data", "initial": or "earliest", a time, a GTID set',
        "# chunk_rows = 250000                       # most rows of a snapshot chunk",
        "# snapshot_share = 1                        # below 1: the part of the time that chunks take at most",
        f"# signal_table = {_quoted(first.partition('.')[0] + '.signals')}    # (id, type, data): inserts are signals",
        '# skip = []                                 # leaves out "insert", "update", "delete", "truncate"',
        '# zero_dates = "error"                      # or "null", "text": for dates that Spark cannot hold',
    ]
    return "\n".join(lines) + "\n"


def _password_line(secret: Secret) -> str:
    if secret.file is not None:
        return f"password_file = {_quoted(str(Path(secret.file).absolute()))}"
    if secret.env is not None:
        return f"password_env = {_quoted(secret.env)}"
    if secret.command is not None:
        return f"password_command = {_quoted(secret.command)}"
    return '# password_file = "/run/secrets/mysql"    # else the environment variable HEADGATE_PASSWORD'


def _table_list(tables: Sequence[TableDef], stats: dict[str, TableStats], patterns: TablePatterns) -> str:
    from headgate.catalog import HELPERS_LEFT_OUT

    lines = ["", "# Tables found (rows are the server's estimates):"]
    width = max(len(table.full_name) for table in tables[:_LISTED])
    for table in tables[:_LISTED]:
        known = stats.get(table.full_name)
        key = ", ".join(table.columns[index].name for index in table.key) or "NONE"
        engine = known.engine if known is not None and known.engine.lower() != "innodb" else ""
        note = f"  engine {engine}: cannot be read exactly" if engine else ""
        rows = known.rows if known is not None else 0
        lines.append(_comment(f"  {table.full_name:{width}}  {rows:>12,} rows  key: {key}{note}"))
    if len(tables) > _LISTED:
        lines.append(f"#   … and {len(tables) - _LISTED} more")
    if left_out := patterns.left_out(table.full_name for table in tables):
        lines.append(_comment(f" Left out: {', '.join(left_out[:_LISTED])}, {HELPERS_LEFT_OUT}."))
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """Return a TOML comment, without the control characters that MySQL allows in names and TOML does not."""
    return "#" + "".join(c if c.isprintable() else "?" for c in text)


def _target(path: str) -> str:
    return (
        "\n[target]\n"
        f"path = {_quoted(path)}    # a folder, or a URI such as s3a://bucket/lake\n"
        'mode = "current"    # each table as it is now; "history": every version of its rows; "changelog": every\n'
        '                    # change; or a list, such as ["current", "kafka"]\n'
        '# deletes = "mark"    # current tables keep deleted rows, with _deleted = true; by default "remove"\n'
        '# With "kafka" in mode, every change becomes a message in Debezium\'s format:\n'
        "#   [target.kafka]\n"
        '#   bootstrap = "kafka:9092"\n'
        '#   delivery = "exactly-once"               # by default "at-least-once"\n'
        '#   format = "avro"                         # by default "json"; also "json-schema"\n'
        '#   registry = "http://registry:8081"       # of the Avro schemas\n'
        "#   heartbeat_ms = 10000                    # a sign of life every 10 seconds; by default none\n"
        "\n[spark]\n"
        '# master = "local[*]"                       # any spark.* setting; the prefix may be left out\n'
        '# "driver.memory" = "4g"\n'
        "\n# Signals from a Kafka topic; the key of its messages is the pipeline's name:\n"
        "# [signals.kafka]\n"
        '# bootstrap = "kafka:9092"\n'
        '# topic = "headgate-signals"\n'
        "\n# [notifications]                            # channels for the progress of snapshots\n"
        "# log = true                                 # also: table = true, [notifications.kafka], …webhook]\n"
    )


def _rest(tables: Sequence[TableDef]) -> str:
    """Return the keyless tables, or without any an example of a table's policies."""
    keyless = [table for table in tables if not table.key]
    if keyless:
        lines = [
            "",
            "# These tables have no primary key and no unique key of NOT NULL columns. Equal rows are counted: exact,",
            "# but slower, as each batch reads the whole copy. Add a key, name columns that identify a row (key in",
            '# [tables."db.table"]), or leave them out with "!db.table".',
        ]
        lines += [_comment(f"   {table.full_name}") for table in keyless[:_LISTED]]
        return "\n".join(lines) + "\n"
    name = _quoted(tables[0].full_name)
    example = ["", "# Policies of one table:", _comment(f" [tables.{name}]")]
    example.append('# schema_changes = "evolve"    # or "strict": an ALTER that may change rows stops the table')
    example.append(
        '# inconsistent_images = "stop" # "reread", "fail", "skip": changes with other columns than the table has'
    )
    example.append("# rows = \"country = 'DE'\"      # only these rows, from table reads and from changes")
    example.append('# hook = "my_company.hooks:orders"    # a Python function that makes the columns')
    example += [
        "",
        "# Other names in the lake, and tables merged from several, with a column that says from which a row is:",
        "# [routes]",
        _comment(f' {name} = "{tables[0].db}.another_name"'),
        '# "shop_*.orders" = { to = "shop.orders", shard = "{db}" }',
    ]
    example += ["", "# An ALTER of columns that keeps every value is applied to the lake, unless you say otherwise:"]
    example += [
        "# [schema_changes]",
        '# drop_column = "evolve"       # or "ignore", "reread", "stop"; so add_column, rename_column, widen_column',
    ]
    return "\n".join(example) + "\n"

"""Plan of a run: tables, keys, chunks, types, and obstacles. Starts no JVM and reads no row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from headgate.catalog import Column, TableDef, TablePatterns, TableStats, load_stats, load_tables
from headgate.cli._common import console, on_terminal
from headgate.columns import HookedTable, TableCodec, hooked_table, with_chosen_key
from headgate.config import PipelineConfig
from headgate.errors import ChosenKeyError, UnsupportedError
from headgate.kafka import TopicNames
from headgate.lake import Lake, Places, check_lake, refusal
from headgate.mysql import Connection
from headgate.pipeline import (
    Projection,
    check_config,
    check_interfaces,
    check_patterns,
    check_resnapshot,
    connection_settings,
    find_hooks,
    followed_tables,
    names_of,
)
from headgate.policies import Policies
from headgate.status import duration, place_text

__all__ = ["print_plan"]

_WIDTH: Final = 200
"""Columns of a plan that goes to a file or a pipe, where lines may be long."""


def print_plan(config: PipelineConfig, resnapshot: Sequence[str] = ()) -> None:
    """Print the plan of a pipeline to stdout.

    :param resnapshot: patterns of tables to read again.
    :raises HeadgateError: the server cannot be queried, or, after the plan, the error that would prevent a run.
    """
    lake = Lake.of(config)
    lake.check_root()
    patterns = TablePatterns.following(config.source.tables)
    with Connection.open(connection_settings(config)) as connection:
        tables = load_tables(connection.query, patterns)
        stats = load_stats(connection.query, patterns)
    check_patterns(config.source.tables, [table.full_name for table in tables], followed_tables(lake))
    find_hooks(config)
    out = console(width=None if on_terminal() else _WIDTH)
    out.print(f"pipeline {escape(config.name)}: {len(tables)} tables into {escape(lake.path)}, mode ", end="")
    out.print(escape(", ".join(config.target.mode)))
    out.print(_overview(config, lake, tables, stats))
    for table in tables:
        out.print(_columns(config, table))
    for line in _costs(Projection.of(config, lake, len(tables)), lake):
        out.print(line)
    check_interfaces(config)
    followed = check_config(config)
    check_resnapshot(resnapshot, followed)
    check_lake(lake, config.name, {table: Places(config.routes).of(table) for table in followed})


def _costs(projection: Projection, lake: Lake) -> Iterator[str]:
    """Yield what the pipeline costs if all its tables change all the time."""
    counts = f"a batch every {duration(projection.freshness)}" if projection.freshness else "batches without a pause"
    yield f"if all tables change all the time ({counts}), at most:"
    kept = f"{projection.retention_hours:g} h (target.retention_hours)"
    yield f"  files of the last {kept}: {projection.files:,}, from {projection.bytes / 1e6:,.0f} MB on"
    if not lake.is_local:
        yield f"  requests a day: {projection.put_and_list_a_day:,} PUT and LIST, {projection.get_a_day:,} GET"


def _overview(config: PipelineConfig, lake: Lake, tables: list[TableDef], stats: dict[str, TableStats]) -> Table:
    view = Table(title="tables", title_justify="left")
    for title in ("table", "key"):
        view.add_column(title, overflow="fold")
    for title in ("rows (about)", "chunks (about)"):
        view.add_column(title, justify="right")
    view.add_column("remark", overflow="fold")
    policies = config.policies()
    for plain in tables:
        table = _keyed(plain, policies)
        known = stats.get(table.full_name)
        rows = known.rows if known else 0
        chunks = max(1, -(-rows // config.source.chunk_rows)) if plain.key else 1
        key = ", ".join(table.columns[index].name for index in table.key)
        remarks = escape("; ".join(_remarks(config, lake, table)))
        view.add_row(escape(table.full_name), escape(key) or "-", f"{rows:,}", str(chunks), remarks)
    return view


def _keyed(table: TableDef, policies: Policies) -> TableDef:
    """Return the table with its chosen key. If it lacks a column of the key, the check at the end reports that."""
    try:
        return with_chosen_key(table, policies.of(table.full_name))
    except ChosenKeyError:
        return table


def _source_remarks(config: PipelineConfig, table: TableDef) -> Iterator[str]:
    """Yield what is read and followed of a table."""
    condition = config.conditions().get(table.full_name)
    if condition is not None:
        yield f"only rows with {condition} are read"
    policies = config.policies().of(table.full_name)
    if policies.rows:
        yield f"only rows with {policies.rows} belong to it"
    if policies.hook is not None:
        yield f"columns by the hook {policies.hook.spelled}"
    if table.has_chosen_key:
        yield "the key is chosen, and proven to be unique"
    skipped = config.skips(table.full_name)
    if skipped:
        yield f"skips {', '.join(skipped)}"


def _remarks(config: PipelineConfig, lake: Lake, table: TableDef) -> Iterator[str]:
    yield from _source_remarks(config, table)
    if config.target.kafka is not None:
        yield f"topic {TopicNames.make(config.target.kafka, config.name).of(table.full_name)}"
    place = Places(config.routes).of(table.full_name)
    if place is not None:
        yield place_text(place)
    name = table.full_name if place is None else place.table
    if config.target.catalog is not None:
        yield f"named {names_of(config.target.catalog, name)[0]}"
    if not config.target.has_tables:
        return
    if "history" in config.target.mode:
        yield "each version of a row is kept"
    if config.marks_deletes(table.full_name):
        yield "deleted rows stay, marked"
    ignored = config.schema_changes.ignored
    if (
        ignored
        and {"current", "history"} & {*config.target.mode}
        and config.policies().of(table.full_name).hook is None
    ):
        yield f"later ALTERs do not change its columns: {', '.join(ignored)}"
    if not table.key:
        yield "no primary key and no unique key of NOT NULL columns"
    reason = refusal(lake, table.full_name, config.spark.get, place)
    if reason is not None:
        yield f"headgate cannot write its table: {reason}"


def _columns(config: PipelineConfig, table: TableDef) -> Table:
    view = Table(title=escape(table.full_name), title_justify="left")
    for title in ("column", "MySQL", "Arrow"):
        view.add_column(title, overflow="fold")
    policies = config.policies()
    hook = _hooked(table, policies)
    if hook is not None:
        for field in hook.fields:
            source = hook.sources.get(field.name)
            view.add_row(escape(field.name), escape(source.type) if source else "by the hook", escape(str(field.type)))
        return view
    for column in table.columns:
        view.add_row(escape(column.name), escape(column.type), escape(_arrow_type(policies, table, column)))
    return view


def _hooked(table: TableDef, policies: Policies) -> HookedTable | None:
    if policies.of(table.full_name).hook is None:  # other tables may have columns that are not supported
        return None
    codec = TableCodec(table, policies)
    return hooked_table(codec.table, codec.fields, policies)


def _arrow_type(policies: Policies, table: TableDef, column: Column) -> str:
    try:
        codec = TableCodec(
            TableDef(table.db, table.name, (column,), (0,) if column.name in table.key_names else ()), policies
        )
    except UnsupportedError as error:
        return f"not supported: {error.message}"
    if not codec.fields:
        return "excluded"
    written = codec.table.columns[0]
    remarks = [*([written.rule] if written.rule else []), *([f"named {written.name}"] if written.source_name else [])]
    return f"{codec.fields[0].type} ({', '.join(remarks)})" if remarks else str(codec.fields[0].type)

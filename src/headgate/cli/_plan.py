"""Plan of a run: tables, keys, chunks, types, and obstacles. Starts no JVM and reads no row.

It has the columns of those tables of which the file shapes a column or a type is not supported; with ``--log-level
debug`` those of each table. On a terminal it is tables; elsewhere plain lines, which a program can search and no width
cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.table import Table
from rich.text import Text

from headgate.catalog import Column, TableDef, TablePatterns, TableStats, load_stats, load_tables
from headgate.cli._common import console, folding_table, on_terminal, write_text
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
    check_log,
    check_patterns,
    check_resnapshot,
    check_texts,
    connection_settings,
    find_hooks,
    followed_tables,
    names_of,
)
from headgate.policies import Policies
from headgate.status import counted, duration, place_text

__all__ = ["print_plan"]


def print_plan(config: PipelineConfig, resnapshot: Sequence[str] = (), *, all_columns: bool = False) -> None:
    """Print the plan of a pipeline to stdout.

    :param resnapshot: patterns of tables to read again.
    :param all_columns: print the columns of each table.
    :raises HeadgateError: the server cannot be queried, or, after the plan, the error that would prevent a run.
    """
    check_texts(config)
    lake = Lake.of(config)
    lake.check_root()
    patterns = TablePatterns.following(config.source.tables)
    with Connection.open(connection_settings(config)) as connection:
        tables = load_tables(connection.query, patterns)
        stats = load_stats(connection.query, patterns)
    check_patterns(config.source.tables, [table.full_name for table in tables], followed_tables(lake))
    find_hooks(config)
    modes = ", ".join(config.target.mode)
    head = f"pipeline {config.name}: {counted(len(tables), 'table')} into {lake.path}, mode {modes}"
    rows = [_planned(config, lake, table, stats.get(table.full_name)) for table in tables]
    columns = _shown_columns(config, tables, all_columns=all_columns)
    costs = [*_unshown(len(tables) - len(columns)), *_costs(config, lake, len(tables))]
    if on_terminal():
        out = console()
        out.print(Text(head))
        out.print(_table("tables", _TITLES, [row.cells for row in rows]))
        for name, cells in columns.items():
            out.print(_table(name, ("column", "MySQL", "Arrow"), cells))
        for line in costs:
            out.print(Text(line))
    else:
        write_text([head, *(row.line for row in rows)])
        of_columns = ((name, *cells) for name, each in columns.items() for cells in each)
        write_text(f"column {name}.{column}: {kind} as {arrow}" for name, column, kind, arrow in of_columns)
        write_text(costs)
    check_interfaces(config)
    followed = check_config(config)
    check_resnapshot(resnapshot, followed)
    check_lake(lake, config.name, {table: Places(config.routes).of(table) for table in followed})
    check_log(config, lake)


def _shown_columns(
    config: PipelineConfig, tables: Sequence[TableDef], *, all_columns: bool
) -> dict[str, list[tuple[str, str, str]]]:
    """Return the columns of the tables whose columns are not what MySQL's types make by default, by table."""
    policies, default = config.policies(), Policies()
    shown = {}
    for table in tables:
        columns = [*_columns(policies, table)]
        is_unsupported = any(arrow.startswith(_UNSUPPORTED) for _, _, arrow in columns)
        if all_columns or is_unsupported or columns != [*_columns(default, table)]:
            shown[table.full_name] = columns
    return shown


def _unshown(tables: int) -> Iterator[str]:
    """Yield a line about tables whose columns are not shown."""
    if tables:
        yield f"columns of {counted(tables, 'table')} are as in MySQL (--log-level debug prints them)"


def _costs(config: PipelineConfig, lake: Lake, tables: int) -> Iterator[str]:
    """Yield what the pipeline costs, if one of its tables changes all the time, or all of them do."""
    pace = Projection.of(config, lake, tables).freshness
    batches = f"a batch every {duration(pace)}" if pace else "batches without a pause"
    if tables:
        yield f"files of the last {config.target.retention_hours:g} h (target.retention_hours), with {batches}:"
    for number in sorted({1, tables} - {0}):
        changing = "one table changes" if number == 1 else f"all {number:,} tables change"
        yield f"  if {changing} in each batch: at most {_cost(Projection.of(config, lake, number), lake)}"
    if tables > 1:
        yield "  tables that fewer batches change have fewer files"


def _cost(projection: Projection, lake: Lake) -> str:
    files = f"{projection.files:,}, of {projection.bytes / 1e6:,.0f} MB or more"
    if lake.is_local:
        return files
    return f"{files}; a day {projection.put_and_list_a_day:,} PUT and LIST, {projection.get_a_day:,} GET"


_UNSUPPORTED: Final = "not supported"
_TITLES: Final = ("table", "key", "rows (about)", "chunks (about)", "remark")


class _PlannedTable(NamedTuple):
    """A table of the plan."""

    name: str
    key: str
    rows: int
    chunks: int
    remarks: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        return self.name, self.key or "-", f"{self.rows:,}", f"{self.chunks:,}", "; ".join(self.remarks)

    @property
    def line(self) -> str:
        key = f"key {self.key}" if self.key else "no key"
        size = f"about {counted(self.rows, 'row')} in {counted(self.chunks, 'chunk')}"
        return f"table {self.name}: {'; '.join((key, size, *self.remarks))}"


def _planned(config: PipelineConfig, lake: Lake, plain: TableDef, stats: TableStats | None) -> _PlannedTable:
    table, rows = _keyed(plain, config.policies()), stats.rows if stats else 0
    chunks = max(1, -(-rows // config.source.chunk_rows)) if plain.key else 1
    key = ", ".join(table.columns[index].name for index in table.key)
    return _PlannedTable(table.full_name, key, rows, chunks, tuple(_remarks(config, lake, table)))


def _table(title: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    view = folding_table(*titles, title=Text(title), title_justify="left")
    for column in view.columns:
        column.justify = "right" if "about" in str(column.header) else "left"
    for row in rows:
        view.add_row(*map(Text, row))
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


def _columns(policies: Policies, table: TableDef) -> Iterator[tuple[str, str, str]]:
    """Yield the columns of a table in the lake: name, type in MySQL, Arrow's."""
    hook = _hooked(table, policies)
    if hook is not None:
        for field in hook.fields:
            source = hook.sources.get(field.name)
            yield field.name, source.type if source else "by the hook", str(field.type)
        return
    for column in table.columns:
        yield column.name, column.type, _arrow_type(policies, table, column)


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
        return f"{_UNSUPPORTED}: {error.message}"
    if not codec.fields:
        return "excluded"
    written = codec.table.columns[0]
    remarks = [*([written.rule] if written.rule else []), *([f"named {written.name}"] if written.source_name else [])]
    return f"{codec.fields[0].type} ({', '.join(remarks)})" if remarks else str(codec.fields[0].type)

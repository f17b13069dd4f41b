"""``headgate forget``: remove a table whose life is over from headgate's records, and on request from the lake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._common import warn, write_lines
from headgate.errors import ConfigError, TargetError

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.lake import Lake, TableState

__all__ = ["forget"]


def forget(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    table: Annotated[str, typer.Argument(help="The table, db.table.", show_default=False)],
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete its folders in the lake, after a question.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without the question.")] = False,
) -> int:
    """Remove a table from the ledger and the status of a pipeline that does not follow it any more.

    The table must be excluded (source.tables leaves it out) or dropped (the source has no table of this name). The
    pipeline removes it with its next batch; if it is not running, with the first batch of its next run. The rows in the
    lake stay, and are no longer maintained; --delete-data deletes them, too, when a running pipeline has forgotten the
    table. If the table comes back, it is a new one.

    The exit code is 1 if the pipeline refuses, or the answer to the question is no.

    Examples:
      headgate forget pipeline.toml shop.old_orders

      headgate forget pipeline.toml shop.old_orders --delete-data
    """
    from headgate.carrier import ControlFolder
    from headgate.cli._outcome import is_running, send, wait_for
    from headgate.config import load_config
    from headgate.control import SignalState, parse_signal
    from headgate.lake import Lake

    config = load_config(pipeline)
    lake = Lake.of(config)
    inbox = ControlFolder(lake.inbox)
    state = _checked(config, lake, table)
    running = is_running(inbox)
    folders = _folders(lake, state) if delete_data else []
    if delete_data and not running:
        raise ConfigError(
            f"--delete-data needs pipeline {config.name} to run, which forgets the table first: start it, then repeat"
        )
    question = f"Delete {' and '.join(folders)}? Older batches of the ledger need them"
    if folders and not yes and not typer.confirm(question):
        return 1
    signal = parse_signal({"type": "forget-table", "data": {"data-collections": [re.escape(table)]}})
    sent_us = send(inbox, signal)
    if not running:
        warn(f"pipeline {config.name} is not running; it forgets {table} with the first batch of its next run")
        return 0
    outcome = wait_for(inbox, config.name, signal, sent_us)
    if outcome.state is not SignalState.DONE:
        return 1
    for folder in folders:
        _delete(folder)
        write_lines([f"deleted: {folder}"])
    return 0


def _checked(config: PipelineConfig, lake: Lake, table: str) -> TableState:
    """Return the table's state in the ledger.

    :raises ConfigError: it has no such table, or the pipeline follows it.
    """
    from headgate.catalog import TablePatterns
    from headgate.lake import State, newest_row
    from headgate.names import split_table

    if "." not in table:
        raise ConfigError(f"{table} is no table's name: write db.table")
    tables = newest_row(lake).tables
    if table not in tables:
        raise ConfigError(f"the ledger of {lake.path} has no table {table}; it has {_some(sorted(tables))}")
    state, patterns = tables[table], config.source.tables
    is_included = TablePatterns.following(patterns).matches(*split_table(table))
    if is_included and (state.state != State.DROPPED or table in patterns):
        raise ConfigError(
            f'{table} is in source.tables, so the pipeline follows it: leave it out first ("!{table}"), then repeat'
        )
    if state.place is not None and state.place.shard is not None:
        raise ConfigError(f"the rows of {table} are part of {state.place.table} in the lake, so it stays in the ledger")
    return state


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _folders(lake: Lake, state: TableState) -> list[str]:
    """Return the folders of the table's Delta tables."""
    from headgate.lake import versions_of

    return [folder for _, folder, _ in versions_of(lake, state, state.place)]


def _delete(folder: str) -> None:
    """Delete a folder; its log last, so that what is left of a failed attempt is still a table of headgate.

    :raises TargetError: it cannot be deleted.
    """
    import shutil

    from headgate.files import file_errors
    from headgate.stores import folder_of, is_remote

    with file_errors(f"{folder} cannot be deleted", TargetError):
        names = [file.name for file in folder_of(folder).below()]
        for name in sorted(names, key=lambda name: name.startswith("_delta_log")):
            folder_of(folder).delete(name)
        if not is_remote(folder):
            shutil.rmtree(folder)

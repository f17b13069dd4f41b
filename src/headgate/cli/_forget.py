"""``headgate forget``: remove a table whose life is over from headgate's records, and on request from the lake."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._common import warn, write_text
from headgate.errors import ConfigError, HeadgateError, TargetError

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.lake import Lake, LedgerRow, MergedState, TableState

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

    The exit code is 1 if the pipeline refuses, the answer to the question is no or missing, the table comes back before
    its data are deleted, or Ctrl-C ends the waiting.

    Examples:
      headgate forget pipeline.toml shop.old_orders
      headgate forget pipeline.toml shop.old_orders --delete-data
    """
    from headgate.carrier import ControlFolder
    from headgate.cli._outcome import is_running, send, wait_for
    from headgate.config import load_config
    from headgate.control import parse_signal
    from headgate.lake import Lake, newest_row

    config = load_config(pipeline)
    lake = Lake.of(config)
    inbox = ControlFolder(lake.inbox)
    state = _checked(config, lake, table)
    running = is_running(inbox)
    if delete_data and not running:
        raise ConfigError(
            f"--delete-data needs pipeline {config.name} to run, which forgets the table first: start it, then repeat"
        )
    folders = _folders(lake, state) if delete_data else []
    if folders and not yes and not _confirmed(folders):
        return 1
    signal = parse_signal({"type": "forget-table", "data": {"data-collections": [re.escape(table)]}})
    sent_us = send(lake, config.name, signal)
    if not running:
        warn(f"pipeline {config.name} is not running; it forgets {table} with the first batch of its next run")
        return 0
    if not wait_for(inbox, config.name, signal, sent_us):
        return 1
    if delete_data and not folders:
        write_text(["no folders to delete"])
    if folders and table in newest_row(lake).tables:
        warn(f"{table} has come back meanwhile, as a new table: nothing is deleted")
        return 1
    return _delete_all(folders)


def _confirmed(folders: list[str]) -> bool:
    """Return the answer to the question; no answer is none."""
    try:
        return typer.confirm(f"Delete {' and '.join(folders)}? Older batches of the ledger need them")
    except typer.Abort:
        if not sys.stdin.isatty():
            warn("without a terminal nobody answers the question: add --yes")
        return False


def _checked(config: PipelineConfig, lake: Lake, table: str) -> TableState:
    """Return the table's state in the ledger.

    :raises ConfigError: it has no such table, or the pipeline follows it.
    """
    from headgate.catalog import TablePatterns
    from headgate.lake import State, newest_row
    from headgate.names import split_table

    if "." not in table:
        raise ConfigError(f"{table} is no table's name: write db.table")
    row, patterns = newest_row(lake), config.source.tables
    is_included = TablePatterns.following(patterns).matches(*split_table(table))
    if table not in row.tables:
        # the first batch of a table that is included makes its folders before the ledger has the table
        left = [] if is_included else _left_behind(config, lake, row, table)
        rest = _by_hand(left) if left else f"it has {_some(sorted(row.tables))}"
        raise ConfigError(f"the ledger of {lake.path} has no table {table}; {rest}")
    state = row.tables[table]
    if is_included and (state.state != State.DROPPED or table in patterns):
        raise ConfigError(
            f'{table} is in source.tables, so the pipeline follows it: leave it out first ("!{table}"), then repeat'
        )
    if state.place is not None and state.place.shard is not None:
        raise ConfigError(f"the rows of {table} are part of {state.place.table} in the lake, so it stays in the ledger")
    return state


def _left_behind(config: PipelineConfig, lake: Lake, row: LedgerRow, table: str) -> list[str]:
    """Return the folders of a table that the ledger does not have, except those that are or hold a folder of it."""
    from headgate.lake import Places
    from headgate.stores import folder_of

    states: list[TableState | MergedState] = [*row.tables.values(), *row.merged]
    used = [f"{folder}/" for one in states for folder in lake.delta_tables(one.table, one.place).values()]
    unknown = lake.delta_tables(table, Places(config.routes).of(table)).values()
    free = [folder for folder in unknown if not any(one.startswith(f"{folder}/") for one in used)]
    return [folder for folder in free if folder_of(folder).has_folder("_delta_log")]


def _by_hand(folders: list[str]) -> str:
    return f"{' and '.join(folders)} can be removed by hand"


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _folders(lake: Lake, state: TableState) -> list[str]:
    """Return the folders of the table's Delta tables."""
    from headgate.lake import versions_of

    return [folder for _, folder, _ in versions_of(lake, state, state.place)]


def _delete_all(folders: list[str]) -> int:
    """Delete folders of a table that the ledger has no more, so another attempt does not find them.

    :raises TargetError: one cannot be deleted.
    """
    left = [*folders]
    try:
        while left:
            _delete(left[0])
            write_text([f"deleted: {left.pop(0)}"])
    except KeyboardInterrupt:
        if left:
            warn(f"what is left of {_by_hand(left)}")
            return 1
    except HeadgateError as error:
        raise TargetError(f"{error.message}; what is left of {_by_hand(left)}") from error
    return 0


def _delete(folder: str) -> None:
    """Delete a folder that may be gone; its log last, so that the rest of a failed attempt is a table of headgate.

    :raises TargetError: it cannot be deleted.
    """
    import shutil
    from contextlib import suppress

    from headgate.files import file_errors
    from headgate.stores import folder_of, is_remote

    with file_errors(f"{folder} cannot be deleted", TargetError):
        names = [file.name for file in folder_of(folder).below()]
        for name in sorted(names, key=lambda name: name.startswith("_delta_log")):
            folder_of(folder).delete(name)
        if not is_remote(folder):
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)

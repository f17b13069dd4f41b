"""``headgate status``: the status of a pipeline, from the file in its lake."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headgate.cli._common import (
    SIGNAL_STYLES,
    TABLE_STYLES,
    console,
    folding_table,
    on_terminal,
    write_lines,
    write_text,
)
from headgate.cli._interrupt import until_interrupt
from headgate.errors import HeadgateError, TargetError, UnreadableTableError, error_line, runbook_entry
from headgate.files import file_errors

if TYPE_CHECKING:
    from rich.console import Group

    from headgate.carrier import ControlFolder
    from headgate.status import BatchStatus, SignalStatus, Status

__all__ = ["command"]

_SECONDS: Final = 2.0
"""Interval of ``--watch``; a busy pipeline writes about as often."""
_STYLES: Final = {"running": "cyan", "idle": "green", "failed": "bold red", "not running": "bold red", "stopped": ""}
_BATCHES: Final = 5
_SIGNALS: Final = 5


def command(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line each time.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh it until Ctrl-C.")] = False,
) -> int:
    """Show the status of a pipeline: each table's state, progress and lag, the last batches and warnings.

    The running pipeline keeps a file in its lake, and this reads it; neither MySQL nor Spark is queried. The exit code
    is 1 if the run failed, has disappeared without an end, or has not run yet, and if a table is stale or stopped; else
    0.

    Examples:
      headgate status pipeline.toml
      headgate status pipeline.toml --watch
      headgate status pipeline.toml --json | jq .lag
    """
    from headgate.carrier import ControlFolder
    from headgate.config import load_config
    from headgate.lake import Lake

    config = load_config(pipeline)
    lake = Lake.of(config)
    inbox = ControlFolder(lake.inbox)
    if watch:
        with until_interrupt():
            _watch(inbox, config.name, lake.path, as_json=as_json)
        return 0
    seen = _read(inbox, config.name)
    if as_json:
        write_lines([_json(seen, config.name)])
    elif on_terminal():
        console().print(_picture(seen, config.name, lake.path))
    else:
        write_text(_lines(seen, config.name, lake.path))
    status = seen.status
    return 1 if status is None or status.needs_attention() else 0


class _Seen(NamedTuple):
    """A pipeline's status, None before its first run, and the signals to show."""

    status: Status | None
    signals: tuple[SignalStatus, ...]


def _read(inbox: ControlFolder, name: str) -> _Seen:
    """Read the status and the signals of a pipeline.

    :raises TargetError: the file cannot be read, is damaged, or another pipeline's.
    """
    from headgate.status import read_status, shown_signals

    with file_errors(f"{inbox.path} cannot be read", TargetError):
        status = read_status(inbox)
        if status is not None:
            status.check_pipeline(inbox, name)
        return _Seen(status, shown_signals(inbox, status))


def _watch(inbox: ControlFolder, name: str, lake: str, *, as_json: bool) -> None:
    """Show the status until Ctrl-C; write lines when there is something new. What cannot be read now is tried again."""
    if on_terminal() and not as_json:
        from rich.live import Live

        with Live(_picture_now(inbox, name, lake), console=console(), auto_refresh=False) as live:
            while True:
                time.sleep(_SECONDS)
                live.update(_picture_now(inbox, name, lake), refresh=True)
    before: object = ()
    while True:
        try:
            seen = _read(inbox, name)
        except HeadgateError as error:
            now: object = error_line(error)
            lines = [_json_problem(name, error)] if as_json else [f"{name}: {error_line(error)}"]
        else:
            status, signals = seen
            now = status and (status.updated_us, status.condition()), [(one.id, one.state) for one in signals]
            lines = [_json(seen, name)] if as_json else [*_lines(seen, name, lake)]
        if now != before:
            (write_lines if as_json else write_text)(lines)
            before = now
        time.sleep(_SECONDS)


def _picture_now(inbox: ControlFolder, name: str, lake: str) -> Group:
    """Return the picture of the present status, or why it cannot be read."""
    from rich.console import Group
    from rich.text import Text

    try:
        return _picture(_read(inbox, name), name, lake)
    except HeadgateError as error:
        return Group(Text(f"{name}: {error_line(error)}", style="red"))


def _json_problem(name: str, error: HeadgateError) -> str:
    """Return one line, with the page's keys for a status that cannot be read."""
    return json.dumps({"pipeline": name, "condition": "unknown", "problem": error_line(error)}, ensure_ascii=False)


def _json(seen: _Seen, name: str) -> str:
    """Return one line: the file's content and ``condition``."""
    status = seen.status
    value: dict[str, Any] = {"pipeline": name} if status is None else status.to_dict()
    value["signals"] = [one.model_dump(mode="json") for one in seen.signals]
    value["condition"] = "not running" if status is None else status.condition()
    return json.dumps(value, ensure_ascii=False)


def _head(status: Status) -> str:
    from headgate.status import figures_text

    written = f"written {_ago(status.updated_us)}"
    return f"{figures_text(status)}, {written}" if status.condition() in ("running", "idle") else written


def _now(status: Status) -> Iterator[str]:
    """Yield the run's activity and progress, and what the lake costs."""
    from headgate.status import activity_lines, progress_lines, storage_lines

    if status.activity is not None:
        yield from activity_lines(status.activity, status.updated_us)
    yield from progress_lines(status)
    yield from storage_lines(status)


def _batch(batch: BatchStatus) -> str:
    from headgate.status import counted, duration

    counts = (batch.transactions, "transaction"), (batch.changes, "change"), (batch.rows, "row")
    what = ", ".join(counted(number, thing) for number, thing in counts if number is not None)
    return f"batch {batch.batch_id}, {_ago(batch.committed_us)}: {what} read, {duration(batch.seconds)}"


def _not_begun(name: str, lake: str) -> str:
    """Name the lake: a relative path of it starts at the working directory, which may be another than the run's."""
    return f"{name}: not running; no run has written to {lake} yet"


def _lines(seen: _Seen, name: str, lake: str) -> Iterator[str]:
    from headgate.status import files_text, table_text

    status = seen.status
    if status is None:
        yield _not_begun(name, lake)
        yield from map(_signal, _shown(seen.signals))
        return
    yield f"{name}: {status.condition()}, {_head(status)}"
    if status.error:
        yield f"error: {status.error}"
    for text in _now(status):
        yield f"  {text}"
    for table, state in status.tables_now().items():
        text = "; ".join(filter(None, [table_text(state, status.read_progress(table)), files_text(state.files)]))
        yield f"  {table} {state.state}: {text}"
    yield from _advice(status)
    yield from map(_signal, _shown(seen.signals))
    for warning in status.warnings:
        yield f"{warning.level} {_ago(warning.at_us)}: {warning.text}"


def _picture(seen: _Seen, name: str, lake: str) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from headgate.status import files_text, table_text

    status = seen.status
    signals = [Text(_signal(one), SIGNAL_STYLES[one.state]) for one in _shown(seen.signals)]
    if status is None:
        return Group(Text(_not_begun(name, lake)), *signals)
    condition = status.condition()
    parts: list[Text | Table] = [
        Text.assemble((name, "bold"), ": ", (condition, _STYLES[condition]), f", {_head(status)}")
    ]
    if status.error:
        parts.append(Text(status.error, style="red"))
    parts += map(Text, _now(status))
    tables = folding_table("table", "state", "progress", "files")
    for known, state in status.tables_now().items():
        progress = Text(table_text(state, status.read_progress(known)))
        style = TABLE_STYLES.get(state.state, "")
        tables.add_row(Text(known), Text(state.state, style), progress, Text(files_text(state.files)))
    if tables.rows:
        parts.append(tables)
    parts += (Text(advice, "yellow") for advice in _advice(status))
    for batch in status.recent[:_BATCHES]:
        parts.append(Text(_batch(batch), "dim"))
    parts += signals
    for warning in status.warnings:
        style = "red" if warning.level == "error" else "yellow"
        parts.append(Text(f"{warning.level} {_ago(warning.at_us)}: {warning.text}", style))
    return Group(*parts)


def _advice(status: Status) -> Iterator[str]:
    """Yield what to do about tables that are stopped or stale, if there are any."""
    troubled = [name for name, table in status.tables.items() if table.is_troubled]
    if troubled:
        yield f"what to do about {', '.join(troubled)}: see {runbook_entry(UnreadableTableError)}"


def _shown(signals: Iterable[SignalStatus]) -> list[SignalStatus]:
    """Return the newest signals, those first that are still open."""
    return sorted(signals, key=lambda one: one.is_over)[:_SIGNALS]


def _signal(signal: SignalStatus) -> str:
    from headgate.status import signal_text

    return f"signal {signal.id} {signal.state} {_ago(signal.at_us)}: {signal_text(signal)}"


def _ago(at_us: int) -> str:
    from headgate.status import duration

    return f"{duration(max(0.0, time.time() - at_us / 1e6))} ago"

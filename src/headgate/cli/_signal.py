"""``headgate signal``: send a signal to a running pipeline."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli._common import warn, write_lines
from headgate.errors import ConfigError
from headgate.files import file_errors

if TYPE_CHECKING:
    from headgate.control import Signal

__all__ = ["signal"]


class Action(StrEnum):
    """The signals, in Debezium's names."""

    execute_snapshot = "execute-snapshot"
    stop_snapshot = "stop-snapshot"
    pause_snapshot = "pause-snapshot"
    resume_snapshot = "resume-snapshot"
    log = "log"


class SnapshotType(StrEnum):
    """How a snapshot is read."""

    incremental = "incremental"
    blocking = "blocking"


def signal(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    action: Annotated[Action | None, typer.Argument(help="The signal.", show_default=False)] = None,
    message: Annotated[
        str | None, typer.Argument(help="For log: the text; {} becomes the GTID set.", show_default=False)
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables",
            "-t",
            metavar="PATTERN",
            help="Globs on db.table, such as 'shop.*'; '!shop.tmp_*' removes; the last match wins. Repeatable."
            " stop-snapshot without it: all.",
        ),
    ] = None,
    kind: Annotated[
        SnapshotType | None,
        typer.Option("--type", help="blocking: live changes wait until the tables are read; default: incremental."),
    ] = None,
    condition: Annotated[
        list[str] | None,
        typer.Option("--condition", metavar="PATTERN:SQL", help="Read only these rows of these tables. Repeatable."),
    ] = None,
    surrogate_key: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Divide the table along this column instead of its key.")
    ] = None,
    name: Annotated[str | None, typer.Option("--id", help="The signal's id; random if not given.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="A signal in Debezium's JSON; - reads stdin.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Print what becomes of the signal, until its outcome.")] = False,
) -> int:
    r"""Tell a running pipeline to read tables (again), to stop, pause or resume reading, or to log a line.

    The signal is put into the pipeline's inbox, and its id is printed. The pipeline takes it with its next batch, or
    when it starts. Live changes continue meanwhile, except with --type blocking. headgate status shows what became of
    it: sent, taken, running, then done, partly, stopped or refused, with the reason. With --wait the exit code is 0 if
    it is done, else 1; Ctrl-C ends the waiting with 1, and the signal stays under way.

    Examples:
      headgate signal pipeline.toml execute-snapshot --tables shop.orders --wait
      headgate signal pipeline.toml execute-snapshot -t shop.orders -t 'shop.item*'
      headgate signal pipeline.toml execute-snapshot -t shop.orders --condition 'shop.orders:status = 1'
      headgate signal pipeline.toml pause-snapshot
      headgate signal pipeline.toml stop-snapshot -t shop.orders
      headgate signal pipeline.toml log 'here we were: {}'
    """
    from headgate.carrier import ControlFolder
    from headgate.cli._outcome import is_running, send, wait_for
    from headgate.config import load_config
    from headgate.lake import Lake

    config = load_config(pipeline)
    arguments: dict[str, Any] = {
        "action": action,
        "message": message,
        "tables": tables,
        "condition": condition,
        "surrogate_key": surrogate_key,
        "kind": kind,
        "name": name,
    }
    parsed_signal = _from_json(json_file, arguments) if json_file is not None else _from_words(**arguments)
    lake = Lake.of(config)
    inbox = ControlFolder(lake.inbox)
    sent_us = send(lake, config.name, parsed_signal)
    write_lines([parsed_signal.id])
    if wait:
        return 0 if wait_for(inbox, config.name, parsed_signal, sent_us) else 1
    if not is_running(inbox):
        warn(f"pipeline {config.name} is not running; the signal waits in {inbox.path} for its next run")
    return 0


def _from_json(file: Path, words: dict[str, Any]) -> Signal:
    """Return the signal in a file.

    :raises ConfigError: the file cannot be read or holds no signal, or the command line also describes one.
    """
    from headgate.control import parse_signal

    beside = [what for what, value in words.items() if value and what != "name"]
    if beside:
        what = beside[0].replace("_", "-").replace("kind", "type")
        raise ConfigError(f"--json holds the whole signal; leave out {what}")
    with file_errors(f"{file} cannot be read"):
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return parse_signal(content.decode("utf-8-sig"), name=words["name"])


def _from_words(
    *,
    action: Action | None,
    message: str | None,
    tables: list[str] | None,
    condition: list[str] | None,
    surrogate_key: str | None,
    kind: SnapshotType | None,
    name: str | None,
) -> Signal:
    """Return the signal that the command line describes.

    :raises ConfigError: something is missing, or does not belong to this signal.
    """
    from headgate.catalog import expressions
    from headgate.control import parse_signal

    if action is None:
        raise ConfigError(f"name a signal ({', '.join(Action)}), or use --json")
    if message is not None and action is not Action.log:
        raise ConfigError(f"{action.value} takes no message; tables are named with --tables")
    if action is Action.execute_snapshot and not tables:
        raise ConfigError("execute-snapshot needs tables: add --tables PATTERN, such as 'shop.orders'")
    data: dict[str, Any] = {}
    if tables:
        data["data-collections"] = expressions(tables)
    if condition:
        data["additional-conditions"] = [_condition(one) for one in condition]
    if surrogate_key:
        data["surrogate-key"] = surrogate_key
    if message:
        data["message"] = message
    if action in (Action.execute_snapshot, Action.stop_snapshot):
        data["type"] = (kind or SnapshotType.incremental).value
    elif kind is not None:
        raise ConfigError("--type is for execute-snapshot and stop-snapshot")
    return parse_signal({"id": name, "type": action.value, "data": data})


def _condition(text: str) -> dict[str, str]:
    from headgate.catalog import expressions

    table, colon, condition = text.partition(":")
    if not (table and colon and condition.strip()):
        raise ConfigError(f"--condition {text!r}: expected PATTERN:SQL, such as 'shop.orders:status = 1'")
    return {"data-collection": expressions([table])[0], "filter": condition.strip()}

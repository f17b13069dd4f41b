"""``headgate consume``: what a relay serves, as JSON lines."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headgate.cli._common import write_lines
from headgate.cli._interrupt import on_interrupt

if TYPE_CHECKING:
    from headgate.relay import Consumer, Event

__all__ = ["command"]


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="The relay: http://host:11115.", show_default=False)],
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", "-s", metavar="NAME", help="A logical source; repeatable. None: all there are."),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option("--checkpoints", metavar="DIR", help="Keep the checkpoint there, and go on from it."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the checkpoint's files.")] = "headgate",
    windows: Annotated[
        int | None, typer.Option("--windows", min=1, help="End after so many transactions, instead of following.")
    ] = None,
) -> None:
    """Print the changes that a relay serves: one JSON object a line, in the order of the log.

    Each line has the source, the SCN, UPSERT or DELETE, the key, the time of the commit and the row. A transaction is
    printed when all of it is there. With --checkpoints it goes on where it was; what it had printed since the last
    checkpoint may come again. Ctrl-C ends it.

    Examples:
      headgate consume http://localhost:11115

      headgate consume http://localhost:11115 -s com.example.shop.Order --checkpoints ./checkpoints
    """
    from headgate.relay import CheckpointFile, RelayClient

    kept = None if checkpoints is None else CheckpointFile(checkpoints, name)
    printer = _printer(lambda: client.stop(), windows)  # noqa: PLW0108 - the client comes after it
    client = RelayClient(url, sources or (), printer, kept)
    with on_interrupt(client.stop):
        client.run()


def _printer(stop: Callable[[], None], windows: int | None) -> Consumer:
    """A consumer that prints whole windows."""
    from headgate.relay import Consumer

    class Printer(Consumer):
        def __init__(self) -> None:
            self._lines: list[str] = []
            self._left = windows

        def on_data_event(self, event: Event) -> None:
            self._lines.append(_line(event))

        def on_end_data_event_sequence(self, scn: int) -> None:
            del scn
            lines, self._lines = self._lines, []
            write_lines(lines)

        def on_rollback(self, scn: int) -> None:
            del scn
            self._lines = []

        def on_checkpoint(self, scn: int) -> None:
            del scn
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    stop()

    return Printer()


def _line(event: Event) -> str:
    """One event as JSON; what JSON lacks as in docs/json-lines.md."""
    stamp = dt.datetime.fromtimestamp(event.stamp_ns // 1000 / 1_000_000, dt.timezone.utc)
    key = event.key if isinstance(event.key, int) else event.key.decode("utf-8", "replace")
    value = {
        "source": event.source, "scn": event.scn, "opcode": event.opcode, "key": key,
        "ts": stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "row": event.row,
    }  # fmt: skip
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_json)


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value.isoformat()

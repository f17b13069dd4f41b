"""``headgate consume``: the changes of a relay, as JSON lines."""

from __future__ import annotations

import base64
import datetime as dt
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from headgate.cli._common import warn, write_lines
from headgate.cli._interrupt import on_interrupt, until_interrupt
from headgate.errors import ConfigError, HeadgateError
from headgate.files import reason_of

if TYPE_CHECKING:
    from headgate.relay.client import Consumer, Event
    from headgate.relay.databus import Schema

__all__ = ["command"]

_T = TypeVar("_T")

_PARTITIONS: Final = 8
"""Of a new group, by default."""
_MEMORY_CHARACTERS: Final = 16 << 20
"""Characters of an open transaction that are held in memory."""


def command(
    urls: Annotated[
        list[str],
        typer.Argument(
            metavar="URL...",
            help="The relay: http://host:11115; or several that give the same SCNs: if one fails, the next is used.",
            show_default=False,
        ),
    ],
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            "-s",
            metavar="NAME",
            help="A logical source; repeatable. By default all, also tables that appear later.",
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option("--checkpoints", metavar="DIR", help="Store the checkpoint there, and continue from it."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the checkpoint's files.")] = "headgate",
    every: Annotated[
        float | None,
        typer.Option("--checkpoint-seconds", min=0, help="Shortest interval between checkpoints: by default 0.1."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Share the changes with the other members of this group, by key."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", min=1, help="With --group: the number of partitions, the same for ever; by default 8."
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            "--lease-seconds",
            help="With --group: others take over after this time without a sign, 0.1 to 600; by default 10.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="File with the relay's token.")
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="With https: trust these certificates instead of the system's."),
    ] = None,
    give_up: Annotated[
        float | None,
        typer.Option("--give-up-seconds", min=0, help="End after failing for so long, instead of retrying for ever."),
    ] = None,
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap",
            help="Without a checkpoint, or with one that is too old, print the existing rows first, then the"
            " changes. In a group, all members do so from then on.",
        ),
    ] = False,
    before_images: Annotated[
        bool, typer.Option("--before-images", help="Print the row before each update, from a relay that keeps it.")
    ] = False,
    windows: Annotated[
        int | None,
        typer.Option("--windows", min=1, help="End after printing so many transactions, instead of following."),
    ] = None,
) -> None:
    """Print the changes that a relay serves: one JSON object a line, in the order of the log.

    Each line has the source, the SCN, UPSERT or DELETE, the key, the commit time and the row. With --before-images the
    lines of updates also have the row "before". A transaction is printed when all of it has arrived. With --checkpoints
    the command continues where it was; lines printed since the last checkpoint may come again. Ctrl-C ends it.

    With --group the keys are cut into partitions, which the members of the group share. Members may join and leave. The
    relay stores the checkpoints. Each line has its partition, and only the lines of one partition are in order.

    Examples:
      headgate consume http://localhost:11115
      headgate consume http://localhost:11115 -s com.example.shop.Order --checkpoints ./checkpoints --bootstrap
      headgate consume http://localhost:11115 --group billing --partitions 16
    """
    from headgate.relay.client import Access, CheckpointFile, RelayClient, Retry

    shared: dict[str, Any] = {
        "access": Access(_token(token_file), ca_file),
        "retry": Retry(deadline_seconds=give_up),
        "before_images": before_images,
        "bootstrap": bootstrap,
    }
    if group is not None:
        if any(one is not None for one in (checkpoints, every, windows)):
            raise ConfigError(
                "with --group the relay stores the checkpoints: remove --checkpoints, --checkpoint-seconds, --windows"
            )
        shared |= {} if lease is None else {"lease_seconds": lease}
        _consume_in_group(urls, group, partitions or _PARTITIONS, sources or (), shared)
        return
    if partitions is not None or lease is not None:
        raise ConfigError("--partitions and --lease-seconds are for a group: add --group NAME")
    store = None if checkpoints is None else CheckpointFile(checkpoints, name)
    shared |= {} if every is None else {"checkpoint_seconds": every}
    client: RelayClient
    lines = _Lines(write_lines, windows)
    printer = lines.printer(stop=lambda: client.stop())  # noqa: PLW0108 - it is assigned below
    client = RelayClient(urls, sources or (), printer, store, **shared)
    with until_interrupt() if windows is None else nullcontext(), _output_errors(lines), on_interrupt(client.stop):
        client.run()
    if lines.windows_left:
        raise KeyboardInterrupt


def _consume_in_group(
    urls: list[str], group: str, partitions: int, sources: Sequence[str], options: Mapping[str, Any]
) -> None:
    from headgate.relay.client import GroupMember

    lines = _Lines(_write_together())
    member = GroupMember(urls, group, partitions, sources, lambda number, _: lines.printer(number), **options)
    with until_interrupt(), _output_errors(lines), on_interrupt(member.stop):
        member.run()


def _token(file: Path | None) -> str | None:
    from headgate.web import read_token

    return None if file is None else read_token(file, f"the token file {file}")


def _write_together() -> Callable[[Iterable[str]], None]:
    """Return a function for several threads that writes the lines of each call together."""
    lock = threading.Lock()

    def write(lines: Iterable[str]) -> None:
        with lock:
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()

    return write


class _WindowLines:
    """Lines of an open window: in memory, and from some MB on in an unnamed file."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._file: Any = None

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _MEMORY_CHARACTERS:
            self._spill()

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115 - until the window ends
            self._file.writelines(f"{line}\n" for line in self._lines)
        except OSError as error:
            raise ConfigError(f"cannot buffer a large transaction in {gettempdir()}: {reason_of(error)}") from None
        self._lines, self._size = [], 0

    def take(self) -> Iterator[str]:
        """Yield all lines in order, and forget them."""
        file, self._file = self._file, None
        lines, self._lines, self._size = self._lines, [], 0
        if file is not None:
            with file:
                file.seek(0)
                for line in file:
                    yield line.removesuffix("\n")
        yield from lines

    def drop(self) -> None:
        """Forget all lines."""
        if self._file is not None:
            self._file.close()
        self._lines, self._size, self._file = [], 0, None


class _Lines:
    """Output of consumers.

    :param windows: how many windows to print; None: without end.
    """

    def __init__(self, write: Callable[[Iterable[str]], None], windows: int | None = None) -> None:
        self.write, self.windows_left = write, windows
        self.error: Exception | None = None
        """The error that ended the output."""

    def printer(self, partition: int | None = None, *, stop: Any = None) -> Any:
        """Return a consumer that prints whole windows."""
        return _printer(self, partition, stop)


@contextmanager
def _output_errors(lines: _Lines) -> Iterator[None]:
    """Raise the error that ended the output, if there was one, instead of the consumer's."""
    try:
        yield
    finally:
        if lines.error is not None:
            raise lines.error


def _printer(out: _Lines, partition: int | None, stop: Callable[[], None] | None) -> Consumer:
    from headgate.relay.client import Consumer, Result

    class Printer(Consumer):
        def __init__(self) -> None:
            self._open_window = _WindowLines()
            self._last_warning = ""

        def _write(self, write: Callable[[_T], None], what: _T) -> Result:
            """Write something, now or when its window ends. An error ends the consumer: nobody reads on, or the disk is
            full.
            """
            try:
                write(what)
            except (OSError, HeadgateError) as error:
                out.error = out.error or error
                return Result.ERROR_FATAL
            return Result.SUCCESS

        def _print(self) -> Result:
            self._last_warning = ""
            return self._write(out.write, self._open_window.take())

        def on_data_event(self, event: Event) -> Result:
            return self._write(self._open_window.add, _line(event, partition))

        def on_end_data_event_sequence(self, scn: int) -> Result:
            del scn
            if out.windows_left is not None:
                out.windows_left -= 1
            return self._print()

        def on_rollback(self, scn: int) -> None:
            del scn
            self._open_window.drop()

        def on_error(self, error: Exception) -> None:
            if str(error) != self._last_warning:
                warn(str(error))
            self._last_warning = str(error)

        def on_start_bootstrap(self) -> None:
            self._open_window.drop()

        def on_bootstrap_checkpoint(self, scn: int) -> Result:
            del scn
            return self._print()

        on_end_bootstrap_sequence = on_bootstrap_checkpoint
        on_bootstrap_rollback = on_rollback

        def on_checkpoint(self, scn: int) -> None:
            del scn
            if out.windows_left == 0 and stop is not None:
                stop()

    return Printer()


def _line(event: Event, partition: int | None) -> str:
    """Return one event as JSON; types that JSON lacks are written as in docs/reference/json-lines.md."""
    stamp = dt.datetime.fromtimestamp(event.stamp_ns // 1000 / 1_000_000, dt.UTC)
    key = event.key if isinstance(event.key, int) else event.key.decode("utf-8", "replace")
    value = {
        "source": event.source,
        "scn": event.scn,
        "opcode": event.opcode,
        "key": key,
        "ts": stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "row": _row(event.row, event.schema),
    }
    if (before := event.row_before) is not None:
        value["before"] = _row(before, event.schema)
    if partition is not None:
        value = {"partition": partition, **value}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_json)


def _row(values: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return a row whose FLOATs and VECTORs print in their own precision: 0.1, not 0.10000000149011612."""
    return {field["name"]: _shortest(values[field["name"]], field["type"]) for field in schema.value["fields"]}


def _shortest(value: Any, avro: Any) -> Any:
    import numpy as np

    if isinstance(value, list):
        return [_shortest(one, "float") for one in value]
    if isinstance(value, float) and "float" in (avro if isinstance(avro, list) else [avro]):
        return float(str(np.float32(value)))
    return value


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value.isoformat()

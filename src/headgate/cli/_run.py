"""``headgate run``: snapshot, then follow."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._interrupt import on_interrupt
from headgate.config import SnapshotMode

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.pipeline import Pipeline

__all__ = ["run"]


@contextmanager
def _on_hangup(reload: Callable[[], None]) -> Iterator[None]:
    """SIGHUP reloads, unless whoever started us wants it ignored (``nohup``)."""
    before = signal.getsignal(signal.SIGHUP)
    if before == signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGHUP, lambda *_: reload())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def run(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file; headgate init writes one.", show_default=False)],
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is applied that the server had executed at the start.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print tables, keys, chunks and column types, and what would keep a run from beginning; do nothing.",
        ),
    ] = False,
    resnapshot: Annotated[
        list[str] | None,
        typer.Option("--resnapshot", metavar="PATTERN", help="Read these tables again beside the stream; repeatable."),
    ] = None,
    snapshot_mode: Annotated[
        SnapshotMode | None,
        typer.Option(
            "--snapshot-mode",
            help="What this run reads, instead of the file's snapshot_mode: when the pipeline begins (initial), that "
            "alone (initial_only), nothing (no_data), also what the server has purged (when_needed), at every start "
            "(always).",
        ),
    ] = None,
) -> None:
    """Read the tables exactly, then follow their changes into Delta tables.

    Ctrl-C ends it cleanly; the next run goes on where it stopped. The file may change meanwhile: new tables are
    followed from the next batch on, and SIGHUP has it read again. On a terminal you see a line per table; elsewhere
    plain log lines.

    Examples:
      headgate run pipeline.toml --dry-run

      headgate run pipeline.toml

      headgate run pipeline.toml --once --resnapshot 'shop.orders'

      headgate run pipeline.toml --snapshot-mode initial_only
    """
    from headgate.config import ConfigFile

    file = ConfigFile(pipeline)
    config = file.config
    if dry_run:
        from headgate.cli._plan import print_plan

        print_plan(config)
        return

    from headgate.catalog import TablePatterns
    from headgate.engine import begun_session

    TablePatterns(resnapshot or ())  # a wrong pattern is told before anything starts
    with begun_session(config.name, config.spark):
        from headgate.pipeline import Pipeline

        running = Pipeline(config, file=file, snapshot_mode=snapshot_mode)
        _run(running, pipeline, once=once, resnapshot=resnapshot or ())


def _run(running: Pipeline, file: Path, *, once: bool, resnapshot: Sequence[str]) -> None:
    """Run until the end, or until a signal asks for it, and show it."""
    from headgate.cli._live import LiveView, LogView

    if sys.stdout.isatty():
        from rich.console import Console

        view: LiveView | LogView = LiveView(Console())
    else:
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
        logging.getLogger("headgate").setLevel(logging.INFO)
        view = LogView()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def begins() -> None:
        """Spark installs a handler for Ctrl-C that would cancel the batch under way."""
        for number, handler in handlers.items():
            signal.signal(number, handler)
        view.begins()

    def ends() -> None:
        running.stop()
        view.ends()

    with _page(running.config, file), view, on_interrupt(ends), _on_hangup(running.reload):
        running.run(once=once, resnapshot=resnapshot, on_progress=view.take, on_start=begins, on_status=view.tell)


def _page(config: PipelineConfig, path: Path) -> AbstractContextManager[object]:
    """The page, if ``[ui]`` asks for one; it ends with the run."""
    if config.ui.port is None:
        return nullcontext()
    from headgate.cli._ui import serving

    file = config.ui.token_file
    return serving([(config, path)], config.ui.host, config.ui.port, None if file is None else Path(file))

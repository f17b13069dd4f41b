"""``headgate run``: snapshot, then follow."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._common import Format, console, write_lines
from headgate.cli._interrupt import on_interrupt
from headgate.cli.log_lines import LogFormatOption, LogLevel, LogLevelOption, OneLineFormatter, log_to_stderr
from headgate.config import SnapshotMode
from headgate.errors import HeadgateError
from headgate.extras import require_extra
from headgate.preload import PRELOAD

if TYPE_CHECKING:
    from headgate.config import PipelineConfig
    from headgate.pipeline import Pipeline

__all__ = ["run"]

log = logging.getLogger("headgate")


@contextmanager
def _on_hangup(reload: Callable[[], None]) -> Iterator[None]:
    """Reload on SIGHUP, unless SIGHUP is ignored (``nohup``)."""
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
            help="Only print tables, keys, chunks, columns that the file shapes (all with --log-level debug), and what"
            " would prevent a run from beginning.",
        ),
    ] = False,
    resnapshot: Annotated[
        list[str] | None,
        typer.Option(
            "--resnapshot", metavar="PATTERN", help="Read these tables again in parallel with the stream; repeatable."
        ),
    ] = None,
    snapshot_mode: Annotated[
        SnapshotMode | None,
        typer.Option(
            "--snapshot-mode",
            help="What this run reads, instead of the file's snapshot_mode: all tables when the pipeline begins"
            " (initial), only that (initial_only), nothing (no_data), also tables whose log was purged (when_needed),"
            " all at every start (always).",
        ),
    ] = None,
    log_level: LogLevelOption = LogLevel.info,
    log_format: LogFormatOption = Format.text,
) -> None:
    """Read the tables exactly, then follow their changes into Delta tables.

    Ctrl-C ends it cleanly; the next run continues where it stopped. If nothing was applied yet, or with --once not
    everything, or if it ends with tables left to read, the exit code is 3. The file may change meanwhile: new tables
    are followed from the next batch on, and on SIGHUP it is read again. On a terminal you see a line per table;
    elsewhere log lines: changes of a table's state, and a summary a minute.

    Examples:
      headgate run pipeline.toml
      headgate run pipeline.toml --dry-run
      headgate run pipeline.toml --once --resnapshot 'shop.orders'
      headgate run pipeline.toml --snapshot-mode initial_only
    """
    from headgate.config import ConfigFile, with_snapshot_mode

    file = ConfigFile(pipeline)
    config = with_snapshot_mode(file.config, snapshot_mode)
    if dry_run:
        from headgate.cli._plan import print_plan
        from headgate.engine import check_java

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLineFormatter("warning: %(message)s"))
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
        print_plan(config, resnapshot or (), all_columns=log_level is LogLevel.debug)
        check_java()
        _check_page(config, pipeline)
        write_lines([_verdict(config, pipeline)])
        return

    from headgate.catalog import TablePatterns
    from headgate.engine import prestart_session

    TablePatterns(resnapshot or ())  # report a wrong pattern before anything starts
    require_extra("spark")
    _announce(config, log_level, log_format)
    _announce_fetch(config)
    completed, unread = False, ""
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        with _loading():
            stack.enter_context(prestart_session(config.name, config.spark, PRELOAD))
            from headgate.pipeline import Pipeline

            running = Pipeline(file.config, file=file, snapshot_mode=snapshot_mode)
        completed = _run(running, pipeline, once=once, resnapshot=resnapshot or ())
        unread = running.unread
    if unread:
        raise HeadgateError(unread)
    if not completed:
        raise HeadgateError(f"stopped before {'everything' if once else 'anything'} was applied; run it again")


def _verdict(config: PipelineConfig, file: Path) -> str:
    """Return what follows from a plan without obstacles: a run may begin, but no second one beside the first."""
    from headgate.carrier import ControlFolder
    from headgate.cli._outcome import is_running
    from headgate.lake import Lake

    if is_running(ControlFolder(Lake.of(config).inbox)):
        return f"nothing but the present run prevents one: end it, then headgate run {file}"
    return f"nothing prevents a run; next: headgate run {file}"


@contextmanager
def _loading() -> Iterator[None]:
    """Collect no garbage while modules load: that would take half a second, and there is next to none."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Stderr(logging.Handler):
    """Writes to what stderr is at the moment: the live view replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)  # noqa: T201 - the command's output


def _announce(config: PipelineConfig, level: LogLevel, form: Format) -> None:
    """Print a line before the modules load, which takes seconds, and longer on a machine that has compiled none yet."""
    text = f"pipeline {config.name}: loading"
    if config.notifications.log:
        notifications = logging.getLogger("headgate.notifications")
        notifications.setLevel(logging.DEBUG)
        if sys.stdout.isatty():
            handler = _Stderr()
            handler.setFormatter(OneLineFormatter())
            notifications.addHandler(handler)
    if not sys.stdout.isatty():
        log_to_stderr(level, form)
    _say(text)


def _say(text: str) -> None:
    """Print a line about what is done now, or log it where there is no terminal."""
    if sys.stdout.isatty():
        console().print(text, style="dim", markup=False)
    else:
        log.info(text)


def _announce_fetch(config: PipelineConfig) -> None:
    """Print what has to be fetched from the network before Spark can start."""
    from headgate.archives import archives_of
    from headgate.engine import is_submitted

    if is_submitted():  # Spark has started, with what spark-submit has fetched
        return
    missing = [package for one in archives_of(config.spark) if not one.are_there for package in one.packages]
    if missing:
        _say(f"fetching {', '.join(missing)} for Spark, once (headgate prefetch does it before)")


def _run(running: Pipeline, file: Path, *, once: bool, resnapshot: Sequence[str]) -> bool:
    """Run until the end or a signal, and show the progress. Return what :meth:`Pipeline.run` returns."""
    from headgate.cli.live import LiveView
    from headgate.cli.log_view import LogView

    view: LiveView | LogView = LiveView(console()) if sys.stdout.isatty() else LogView()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def spark_started() -> None:
        """Restore the signal handlers: Spark's handler for Ctrl-C would cancel the running batch."""
        for number, handler in handlers.items():
            signal.signal(number, handler)
        view.spark_started()

    def stop() -> None:
        running.stop()
        view.stop_requested()

    with _page(running.config, file), view, on_interrupt(stop), _on_hangup(running.reload):
        return running.run(once=once, resnapshot=resnapshot, on_start=spark_started, on_status=view.update)


def _check_page(config: PipelineConfig, path: Path) -> None:
    """Check the settings of the page. Its port is left alone: the pipeline itself may run and have it."""
    if config.ui.port is not None:
        from headgate.cli._ui import page_app

        page_app([(config, path)], config.ui.host, _token_file(config))


def _token_file(config: PipelineConfig) -> Path | None:
    return None if config.ui.token_file is None else Path(config.ui.token_file)


def _page(config: PipelineConfig, path: Path) -> AbstractContextManager[object]:
    """Return the page, if ``[ui]`` enables it; it ends with the run."""
    if config.ui.port is None:
        return nullcontext()
    from headgate.cli._ui import check_runnable, serving
    from headgate.config import check_change

    def check(replacement: PipelineConfig) -> None:
        """Check that this run follows the replacement, too, although the file may have changed since its start."""
        check_change(config, replacement)
        check_runnable(replacement)

    return serving([(config, path)], config.ui.host, config.ui.port, _token_file(config), check)

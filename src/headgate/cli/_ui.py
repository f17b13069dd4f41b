"""``headgate ui``: a page with the status of pipelines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headgate.cli._common import write_lines
from headgate.cli._interrupt import on_interrupt, until_interrupt
from headgate.cli._settings import setting
from headgate.config import UiConfig
from headgate.extras import require_extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from headgate.config import PipelineConfig
    from headgate.ui import Serving

__all__ = ["check_runnable", "command", "page_app", "serving"]

_HOST: Final = UiConfig.model_fields["host"].default


def command(
    pipelines: Annotated[
        list[Path], typer.Argument(help="The pipeline files; the pipelines need not run.", show_default=False)
    ],
    host: Annotated[str, setting(UiConfig, "host", metavar="ADDRESS")] = _HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8321,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with a token: allows signals, and addresses other than loopback ones."),
    ] = None,
) -> None:
    """Show the status of pipelines, as a page, as JSON and for Prometheus, until Ctrl-C.

    / is the page, /api/status the same as JSON, /metrics for Prometheus. It reads the files that running pipelines keep
    in their lakes, so it may run where those can be read. With a token, POST /signals takes signals, the page has
    buttons for them, and PUT /config replaces a pipeline's file, if the pipeline can continue with the new one. On an
    address that others can reach everything needs the token: as Bearer, or as the password that a browser prompts for.

    Examples:
      headgate ui pipeline.toml
      headgate ui shop.toml billing.toml --host 0.0.0.0 --token-file /run/secrets/headgate-token
    """
    from headgate.config import load_config

    ended = threading.Event()
    files = [(load_config(file), file) for file in pipelines]
    with until_interrupt(), serving(files, host, port, token_file) as page, on_interrupt(ended.set):
        write_lines([page.url])
        ended.wait()


def check_runnable(config: PipelineConfig) -> None:
    """Check a configuration as at the start of a run; import the checks on the first call.

    :raises HeadgateError: a pipeline cannot run with it.
    """
    from headgate.pipeline import check_config

    check_config(config)


def serving(
    files: Sequence[tuple[PipelineConfig, Path]],
    host: str,
    port: int,
    token_file: Path | None,
    check: Callable[[PipelineConfig], object] = check_runnable,
) -> Serving:
    """Return the page of these pipelines (configuration and file of each), as a context manager.

    :param check: called before a file is replaced; raises a HeadgateError if its pipeline cannot continue.
    :raises ConfigError: a required token is missing or invalid, or the address cannot be listened on.
    """
    app = page_app(files, host, token_file, check)
    from headgate.ui import Serving

    return Serving(app, host, port)


def page_app(
    files: Sequence[tuple[PipelineConfig, Path]],
    host: str,
    token_file: Path | None,
    check: Callable[[PipelineConfig], object] = check_runnable,
) -> ASGIApp:
    """Return the application of the page of these pipelines; it listens nowhere. The arguments are :func:`serving`'s.

    :raises ConfigError: a required token is missing or invalid.
    """
    require_extra("ui")
    from headgate.ui import Token, Watched, create_app

    token = None if token_file is None else Token.from_file(token_file)
    watched = [Watched.of(config, file.absolute(), check) for config, file in files]
    return create_app(watched, host=host, token=token)

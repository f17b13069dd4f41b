"""``headgate prefetch``: what a run would fetch and compile, before it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate.cli._common import write_lines

if TYPE_CHECKING:
    from headgate.archives import Archives

__all__ = ["command"]


def command(
    pipeline: Annotated[
        Path | None,
        typer.Argument(help="A pipeline file, for the packages that its [spark] names.", show_default=False),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels/--no-kernels", help="Compile the kernels of all column types, too.")
    ] = True,
) -> None:
    """Fetch the Java archives that a run needs, and compile its kernels. The run then needs no network for them.

    The archives are Delta's, and those of the packages that section spark of the file names. Spark fetches them with
    the machine's settings: a local Maven repository, a mirror in DEFAULT_ARTIFACT_REPOSITORY, Java's proxies. All goes
    into ~/.cache/headgate, or into the folder headgate in XDG_CACHE_HOME. Copy its folder jars to a machine without a
    network.

    Examples:
      headgate prefetch
      headgate prefetch pipeline.toml
    """
    from headgate.archives import archives_of, fetch_packages
    from headgate.config import load_config
    from headgate.engine import check_java
    from headgate.extras import require_extra
    from headgate.files import kernel_cache

    settings = {} if pipeline is None else load_config(pipeline).spark
    require_extra("spark")
    check_java()
    _say("fetching archives")
    fetch_packages(settings)
    write_lines(map(_line, archives_of(settings)))
    if kernels:
        from headgate.preload import compile_kernels

        folder = kernel_cache()
        begun = time.monotonic()
        _say("compiling kernels, which takes a minute or two")
        compile_kernels(all_types=True)
        write_lines([f"kernels in {folder} ({time.monotonic() - begun:.0f} s)"])


def _say(step: str) -> None:
    print(f"{step} …", file=sys.stderr, flush=True)  # noqa: T201 - progress of a command


def _line(archives: Archives) -> str:
    number = len([*archives.folder.glob("*.jar")])
    return f"{', '.join(archives.packages)}: {number} archives in {archives.folder}"

"""``headgate doctor``: what a bug report needs, in one archive, without secrets."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headgate.cli._common import write_lines
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.cli._doctor_parts import ReportPart
    from headgate.cli._secrets import Secrets

__all__ = ["command"]

_BATCHES: Final = 20


def command(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline file.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The archive to write; by default headgate-doctor-NAME-TIME.tar.gz in the working directory.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="A file with the log of the run, to add its last lines."),
    ] = None,
    batches: Annotated[
        int, typer.Option("--batches", min=1, max=10_000, help="Rows of the ledger, the newest ones.")
    ] = _BATCHES,
) -> int:
    """Gather what a bug report needs into one archive, without secrets.

    The archive has a JSON file for each part: versions, limits of this machine, the configuration, the status, files of
    the control folder, the newest rows of the ledger and offsets of the checkpoint, sizes of the lake's folders, the
    server's settings, what headgate check finds, and the definitions of the tables. Of a log, which a run writes to
    stderr, it has the last 5,000 lines.

    Passwords, tokens, keys, and users in URLs are removed. Names of tables and columns, and no rows of them, are in it:
    read it before you send it. A part that cannot be read, because the server or the lake cannot be reached, has the
    error instead. Nothing is changed, and no Spark starts.

    Examples:
      headgate doctor pipeline.toml

      headgate doctor pipeline.toml --log run.log --output report.tar.gz
    """
    from headgate.cli._doctor_parts import failed_part, machine_parts, pipeline_parts
    from headgate.cli._secrets import Secrets
    from headgate.config import load_config
    from headgate.files import file_errors, write_bytes

    parts, secrets, made = [*machine_parts(log)], Secrets.of(), time.time()
    name = f"headgate-doctor-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(made))}"
    try:
        config = load_config(pipeline)
    except ConfigError as error:
        parts.append(failed_part("configuration", error))
    else:
        secrets, name = Secrets.of(config), name.replace("doctor", f"doctor-{config.name}")
        parts += pipeline_parts(config, batches)
    lines = [f"{part.name + ':':15}{secrets.hide(part.summary)}" for part in parts]
    content = _archive(name, [*(_file(part, secrets) for part in parts), ("summary.txt", "\n".join(lines))], made)
    file = output or Path(f"{name}.tar.gz")
    with file_errors(f"{file} cannot be written"):
        write_bytes(file, content)
    size = f"{len(content) / 1e3:,.0f} kB"
    write_lines([*lines, f"wrote {file} ({size}); it names tables and columns: read it before you send it"])
    return 0


def _file(part: ReportPart, secrets: Secrets) -> tuple[str, str]:
    """Return name and text of a part's file."""
    if isinstance(part.content, str):
        return f"{part.name}.txt", secrets.hide(part.content)
    text = json.dumps(secrets.hide_all(part.content), indent=1, ensure_ascii=False, default=str)
    return f"{part.name}.json", text


def _archive(folder: str, files: list[tuple[str, str]], made: float) -> bytes:
    """Return a compressed archive of text files in one folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files:
            data = f"{text}\n".encode("utf-8", "backslashreplace")
            about = tarfile.TarInfo(f"{folder}/{name}")
            about.size, about.mtime, about.mode = len(data), int(made), 0o600
            archive.addfile(about, io.BytesIO(data))
    return out.getvalue()

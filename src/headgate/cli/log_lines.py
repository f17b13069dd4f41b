"""Log lines of the commands on stderr: one set-up for all, as text or as JSON lines.

A record's ``extra`` becomes fields of its JSON line; the text form has the message alone. headgate's records are shown
from the chosen level on, those of libraries from WARNING on, or from the chosen level if that is higher.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from headgate.cli._common import Format
from headgate.names import printable

__all__ = ["Format", "LogFormatOption", "LogLevel", "LogLevelOption", "OneLineFormatter", "log_to_stderr"]

_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


class LogLevel(StrEnum):
    """The least level that is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="Log lines from this level on (debug, info, warning, error); debug has a line for each batch and table.",
    ),
]
LogFormatOption = Annotated[
    Format, typer.Option("--log-format", help="Log lines as text, or as JSON objects with fields for programs.")
]


def log_to_stderr(level: LogLevel = LogLevel.info, form: Format = Format.text) -> None:
    """Write log records to stderr, unless the process has set its logging up otherwise."""
    least = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json_lines() if form is Format.json else OneLineFormatter(_TEXT))
    logging.basicConfig(level=max(least, logging.WARNING), handlers=[handler])
    logging.getLogger("headgate").setLevel(least)


class OneLineFormatter(logging.Formatter):
    """One line a message, whatever names and texts of other systems are in it; a traceback has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        return printable(super().formatMessage(record))


def _json_lines() -> logging.Formatter:
    """Return a formatter to one JSON object a line: ``timestamp`` in UTC, ``level``, ``event``, and the record's own.

    A traceback is one text.
    """
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )

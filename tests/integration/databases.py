"""A database of a server, and the configuration of a pipeline that follows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headgate.config import PipelineConfig, parse_config
from headgate_testing import MySQLServer

__all__ = ["Database", "pipeline_config", "pipeline_text"]


class Database:
    """A database of a server."""

    def __init__(self, server: MySQLServer, db: str) -> None:
        self.server, self.db = server, db

    def do(self, *statements: str, db: str | None = None, **session: Any) -> None:
        """Run statements in a new session, each in a transaction of its own."""
        with self.server.connect(database=db or self.db, **session) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def pipeline_text(
    server: MySQLServer,
    tables: Sequence[str],
    folder: Path,
    *,
    source: str = "",
    mode: str = '"current"',
    more: str = "",
) -> str:
    """A pipeline file into ``lake`` in a folder.

    :param source: further keys of ``[source]``.
    :param more: further sections, or first further keys of ``[target]``.
    """
    (folder / "secret").write_text(server._password)
    return f"""\
name = "test"
[source]
url = "{server.url}"
password_file = "{folder / "secret"}"
tables = {json.dumps([*tables])}
{source}
[target]
path = "{folder / "lake"}"
mode = {mode}
{more}
"""


def pipeline_config(*arguments: Any, **options: Any) -> PipelineConfig:
    """:func:`pipeline_text`, parsed."""
    return parse_config(pipeline_text(*arguments, **options))

"""Where everything of a lake lies.

``<path>/<db>/<table>`` and ``<path>/_changelog/<db>/<table>`` hold tables, ``<path>/_headgate/`` holds what headgate
keeps for itself. MySQL names may hold any character, so each name is percent-encoded into one path segment: letters,
digits, ``-`` and ``_`` stand for themselves; everything else, and a leading ``_`` (hidden to Spark, and it could meet
``_headgate`` or ``_changelog``), becomes ``%XX`` of its UTF-8 bytes. The encoding is one-to-one, so two tables never
share a folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from headgate.errors import ConfigError, TargetError
from headgate.stores import grant, is_remote, obstacle

if TYPE_CHECKING:
    from headgate.config import PipelineConfig

__all__ = ["Lake", "decode_name", "encode_name", "split_table"]


def encode_name(name: str) -> str:
    """One path segment for a MySQL name; the inverse is :func:`decode_name`."""
    text = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    return f"%5F{text[1:]}" if text.startswith("_") else text


def decode_name(segment: str) -> str:
    """The MySQL name that :func:`encode_name` made this path segment from."""
    return unquote(segment)


def split_table(table: str) -> tuple[str, str]:
    """``db.name`` → ``(db, name)``; the first dot separates, as everywhere in headgate."""
    db, dot, name = table.partition(".")
    if not (db and dot and name):
        raise ConfigError(f"{table!r} is not a table name of the form db.table")
    return db, name


@dataclass(frozen=True)
class Lake:
    """The paths of one lake. ``path`` is absolute (local) or a URI, without a slash at its end."""

    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Lake:
        """The lake at ``path``: a local path (resolved here) or a URI for Spark."""
        text = os.fspath(path)
        if text.startswith("file:"):
            text = "/" + text[len("file:") :].lstrip("/")
        if not is_remote(text):
            text = os.path.abspath(Path(text).expanduser())  # noqa: PTH100 - links stay as they are
        return cls(text.rstrip("/"))

    @classmethod
    def of(cls, config: PipelineConfig) -> Lake:
        """The lake of a pipeline, which this process can reach then as the configuration's ``[spark]`` says."""
        lake = cls.at(config.target.path or "")
        grant(lake.path, lambda name: config.spark.get(f"spark.hadoop.{name}"))
        return lake

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder of this machine's file system."""
        return not is_remote(self.path)

    @property
    def obstacle(self) -> str | None:
        """Why only Spark reads and writes the lake's files; None: that is done here, too."""
        return obstacle(self.path)

    def current(self, table: str) -> str:
        """The Delta table that holds ``db.table`` as it is now."""
        db, name = split_table(table)
        return f"{self.path}/{encode_name(db)}/{encode_name(name)}"

    def changelog(self, table: str) -> str:
        """The Delta table that holds every change of ``db.table``."""
        db, name = split_table(table)
        return f"{self.path}/_changelog/{encode_name(db)}/{encode_name(name)}"

    def check_folder(self, path: str, table: str) -> None:
        """``TargetError`` if files that are no Delta table lie at a local ``path``: what can be told without Spark."""
        folder = Path(path)
        if not self.is_local or (folder / "_delta_log").is_dir():
            return
        if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise TargetError(
                f"{path} holds files that are not a table of headgate; move them away or choose another target.path",
                table=table,
            )

    @property
    def ledger(self) -> str:
        """The Delta table with one row a committed batch."""
        return f"{self.path}/_headgate/ledger"

    @property
    def schema_history(self) -> str:
        """The Delta table with every DDL statement met."""
        return f"{self.path}/_headgate/schema_history"

    @property
    def notifications(self) -> str:
        """The Delta table with every notification, where one is asked for."""
        return f"{self.path}/_headgate/notifications"

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint of the stream."""
        return f"{self.path}/_headgate/checkpoint"

    @property
    def inbox(self) -> str:
        """The folder through which sinks and commands talk to the planner."""
        return f"{self.path}/_headgate/inbox"

    @property
    def lock(self) -> str:
        """The lock file of the running pipeline (local lakes only)."""
        return f"{self.path}/_headgate/lock"

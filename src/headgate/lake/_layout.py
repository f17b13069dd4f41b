"""Paths of everything in a lake.

``<path>/<db>/<table>`` and ``<path>/_changelog/<db>/<table>`` hold tables, ``<path>/_headgate/`` headgate's own files.
A table's place (``_places``) may give it another name there. Each name is one path segment (``names.path_segment``).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import TargetError
from headgate.files import reason_of
from headgate.lake._places import Place
from headgate.names import path_segment, split_table
from headgate.stores import check_bucket, check_scheme, is_remote, share_credentials

if TYPE_CHECKING:
    from headgate.config import PipelineConfig

__all__ = ["Lake", "short_name"]


_SHORT: Final = 180


def short_name(table: str) -> str:
    """Return a part of a file's name for ``db.table``, which leaves room for others."""
    return path_segment(table, _SHORT)


@dataclass(frozen=True)
class Lake:
    """Paths of one lake. ``path`` is absolute (local) or a URI, without a slash at its end."""

    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Lake:
        """Return the lake at ``path``: a local path (made absolute here) or a URI.

        :raises ConfigError: there are no lakes in stores of this URI's kind.
        """
        text = os.fspath(path)
        if text.startswith("file:"):
            text = "/" + text[len("file:") :].lstrip("/")
        if not is_remote(text):
            text = os.path.abspath(Path(text).expanduser())  # noqa: PTH100 - does not resolve links
        check_scheme(text)
        return cls(text.rstrip("/"))

    @classmethod
    def of(cls, config: PipelineConfig) -> Lake:
        """Return the lake of a pipeline, and give this process access to it as the configuration's ``[spark]`` says."""
        lake = cls.at(config.target.path or "")
        for path in (lake.path, *(route.path for route in config.routes.values() if route.path)):
            share_credentials(cls.at(path).path, lambda name: config.spark.get(f"spark.hadoop.{name}"))
        return lake

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder of this machine's file system."""
        return not is_remote(self.path)

    def current(self, table: str, place: Place | None = None) -> str:
        """Return the path of the Delta table with the current rows of ``db.table``.

        :param place: where a route puts it; None: it keeps its name.
        """
        return self._folder("", table, place)

    def changelog(self, table: str, place: Place | None = None) -> str:
        """Return the path of the Delta table with every change of ``db.table``; see :meth:`current`."""
        return self._folder("/_changelog", table, place)

    def delta_tables(self, table: str, place: Place | None = None) -> dict[str, str]:
        """Return the paths of the Delta tables of ``db.table``, by the ledger's column that has their version."""
        return {"version": self.current(table, place), "changelog_version": self.changelog(table, place)}

    def _folder(self, area: str, table: str, place: Place | None) -> str:
        place = place or Place(table)
        db, name = split_table(place.table)
        root = self.path if place.path is None else Lake.at(place.path).path
        folder = f"{root}{area}/{path_segment(db)}/{path_segment(name)}"
        return folder if place.folder is None else f"{folder}/{place.folder}"

    def check_root(self) -> None:
        """Raise ``TargetError`` if nothing can be written into the lake: no folder, no permission, no such bucket."""
        if not self.is_local:
            check_bucket(self.path)
            return
        root = Path(self.path)
        nearest = next(folder for folder in (root, *root.parents) if os.path.lexists(folder))
        if not nearest.is_dir():
            raise TargetError(f"{nearest} is not a folder; choose another target.path")
        if not os.access(nearest, os.W_OK | os.X_OK):
            number = errno.EROFS if os.statvfs(nearest).f_flag & os.ST_RDONLY else errno.EACCES
            refusal = OSError(number, os.strerror(number))
            raise TargetError(f"{self.path} cannot be written: {nearest}: {reason_of(refusal)}")

    def check_folder(self, path: str, table: str) -> None:
        """Raise ``TargetError`` if a local ``path`` holds files but no Delta table: the check without Spark."""
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
        """The Delta table with one row per committed batch."""
        return f"{self.path}/_headgate/ledger"

    @property
    def schema_history(self) -> str:
        """The Delta table with every DDL statement of the log."""
        return f"{self.path}/_headgate/schema_history"

    @property
    def notifications(self) -> str:
        """The Delta table with every notification, if configured."""
        return f"{self.path}/_headgate/notifications"

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint of the stream."""
        return f"{self.path}/_headgate/checkpoint"

    @property
    def inbox(self) -> str:
        """The folder through which sinks and commands send messages to the planner."""
        return f"{self.path}/_headgate/inbox"

    @property
    def images(self) -> str:
        """The folder for images of the batch that is being applied, if tasks run on several machines."""
        return f"{self.path}/_headgate/images"

    @property
    def lock(self) -> str:
        """The lock file of the running pipeline (local lakes only)."""
        return f"{self.path}/_headgate/lock"

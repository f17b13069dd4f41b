"""The pipelines that a page shows: each is a name and an inbox, read again for each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.carrier import ControlFolder
from headgate.config import PipelineConfig, check_change, load_config, parse_config, write_config
from headgate.errors import ConfigError, HeadgateError
from headgate.lake import Lake, Status, TableStatus, read_status

__all__ = ["View", "Watched", "watch"]

_NOT_FROM_AFAR = ("url", "password_env", "password_file")
"""Keys of ``[source]``: whoever could change them could have the password sent to a server of theirs."""


@dataclass(frozen=True)
class WatchedFile:
    """A pipeline's file, which may be replaced while the pipeline runs."""

    path: Path
    config: PipelineConfig
    """What the pipeline runs with, as far as it may not change."""
    check: Callable[[PipelineConfig], object]

    def replace(self, text: str) -> None:
        """Put ``text`` in its place, if a pipeline that runs with it now can go on with that.

        :raises HeadgateError: why it cannot; the file is as it was.
        :raises OSError: the file cannot be written.
        """
        found = parse_config(text, where="the configuration")
        check_change(self.config, found)
        now = self._now().source
        for name in _NOT_FROM_AFAR:
            if getattr(found.source, name) != getattr(now, name):
                raise ConfigError(f"source.{name} can be changed in the file only: the password goes where it says")
        self.check(found)
        write_config(self.path, text)

    def _now(self) -> PipelineConfig:
        try:
            return load_config(self.path)
        except ConfigError:
            return self.config


@dataclass(frozen=True)
class Watched:
    """A pipeline to show, whether it runs or not."""

    name: str
    inbox: ControlFolder
    file: WatchedFile | None = None

    @classmethod
    def of(
        cls, config: PipelineConfig, file: Path | None = None, check: Callable[[PipelineConfig], object] | None = None
    ) -> Watched:
        """The pipeline of a configuration.

        :param file: where the configuration comes from.
        :param check: raises a HeadgateError if a pipeline cannot run with a configuration.
        """
        watched = None if file is None or check is None else WatchedFile(file, config, check)
        return cls(config.name, ControlFolder(Lake.of(config).inbox), watched)

    def look(self) -> View:
        """How it is doing now; a file that cannot be read is a ``problem``, not an error."""
        now_us = time.time_ns() // 1000
        try:
            return View(self.name, now_us, read_status(self.inbox, now_us))
        except HeadgateError as error:
            return View(self.name, now_us, None, str(error))
        except OSError as error:
            return View(self.name, now_us, None, f"{self.inbox.path} cannot be read: {error.strerror or error}")


@dataclass(frozen=True)
class View:
    """One look at a pipeline. ``status`` is None if it has not run yet, or if there is a ``problem``."""

    name: str
    now_us: int
    status: Status | None
    problem: str | None = None

    @property
    def condition(self) -> str:
        """``running``, ``idle``, ``stopped``, ``failed``, ``not running``; ``unknown`` with a problem."""
        if self.problem is not None:
            return "unknown"
        return "not running" if self.status is None else self.status.condition(self.now_us)

    @property
    def up(self) -> bool:
        """Whether the pipeline runs, so that its lag and rates mean something."""
        return self.condition in ("running", "idle")

    def tables(self) -> list[tuple[str, TableStatus]]:
        """What needs care first, then by name."""
        tables = self.status.tables_now().items() if self.status else ()
        return sorted(tables, key=lambda found: (found[1].care, found[0]))

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values: the status file's content and ``condition``; ``problem`` if there is one."""
        value: dict[str, Any] = {"pipeline": self.name} if self.status is None else self.status.to_dict()
        value["condition"] = self.condition
        if self.problem is not None:
            value["problem"] = self.problem
        return value


def watch(pipelines: Sequence[Watched]) -> dict[str, Watched]:
    """By name; at least one.

    :raises ConfigError: two of the same name.
    """
    found: dict[str, Watched] = {}
    for pipeline in pipelines:
        if pipeline.name in found:
            raise ConfigError(f"two pipelines are named {pipeline.name}; a page needs a name for each")
        found[pipeline.name] = pipeline
    return found

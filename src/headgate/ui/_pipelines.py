"""The pipelines that a page shows: each is a name and an inbox, read again for each response."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.carrier import ControlFolder
from headgate.config import PipelineConfig, ServerLogin, SourceConfig, check_change, load_config, parse_config
from headgate.control import Signal, submit
from headgate.errors import ConfigError, HeadgateError, error_line
from headgate.files import reason_of, write_bytes
from headgate.lake import Lake
from headgate.status import SignalStatus, Status, TableStatus, read_status, shown_signals

__all__ = ["PipelineView", "Watched", "watch"]

_FILE_ONLY: Final = tuple(
    name
    for name in SourceConfig.model_fields
    if name in (*ServerLogin.model_fields, "relay") or name.endswith(("_env", "_file"))
)
"""Keys of ``[source]`` that the page must not change: an attacker could have a password or a file sent elsewhere, or a
command run."""


@dataclass(frozen=True)
class WatchedFile:
    """A pipeline's configuration file, which may be replaced while the pipeline runs."""

    path: Path
    config: PipelineConfig
    """The pipeline's configuration when the page started; it counts while the file is invalid."""
    check: Callable[[PipelineConfig], object]

    def replace(self, text: str) -> None:
        """Replace the file by ``text``, if a pipeline that runs with the file can continue with that. A symbolic link
        and the file's permissions stay.

        :raises HeadgateError: the pipeline cannot; the file is unchanged.
        :raises OSError: the file cannot be written.
        """
        current, replacement = self._current_config(), parse_config(text, where="the configuration")
        check_change(current, replacement)
        _check_file_only(current, replacement)
        self.check(replacement)
        write_bytes(self.path.resolve(), text.encode(), keep_mode=True)

    def _current_config(self) -> PipelineConfig:
        try:
            return load_config(self.path)
        except ConfigError:
            return self.config


def _check_file_only(before: PipelineConfig, after: PipelineConfig) -> None:
    """:raises ConfigError: secrets would be read or sent elsewhere, or other code would run."""
    for name in _FILE_ONLY:
        if getattr(after.source, name) != getattr(before.source, name):
            raise ConfigError(f"source.{name} can be changed in the file only: it decides which secrets go where")
    for table in sorted({*before.tables, *after.tables}):
        if _hook(after, table) != _hook(before, table):
            raise ConfigError(f'tables."{table}".hook can be changed in the file only: it decides which code runs')


def _hook(config: PipelineConfig, table: str) -> str | None:
    hook = config.tables[table].policy("hook") if table in config.tables else None
    return None if hook is None else hook.function


@dataclass(frozen=True)
class Watched:
    """A pipeline to show, running or not."""

    name: str
    inbox: ControlFolder
    file: WatchedFile | None = None

    @classmethod
    def of(
        cls, config: PipelineConfig, file: Path | None = None, check: Callable[[PipelineConfig], object] | None = None
    ) -> Watched:
        """Return the pipeline of a configuration.

        :param file: the configuration's file.
        :param check: raises a HeadgateError if a pipeline cannot run with a configuration.
        """
        watched = None if file is None or check is None else WatchedFile(file, config, check)
        return cls(config.name, ControlFolder(Lake.of(config).inbox), watched)

    def state(self) -> PipelineView:
        """Return the current state; a file that cannot be read is a ``problem``, not an error."""
        now_us = time.time_ns() // 1000
        try:
            status = self._status(now_us)
            return PipelineView(self.name, now_us, status, signals=shown_signals(self.inbox, status))
        except HeadgateError as error:
            return PipelineView(self.name, now_us, None, error_line(error))
        except OSError as error:
            return PipelineView(self.name, now_us, None, f"{self.inbox.path} cannot be read: {reason_of(error)}")

    def submit(self, signal: Signal) -> None:
        """Put a signal into the inbox.

        :raises TargetError: the inbox is another pipeline's. HeadgateError, OSError: it cannot be read or written.
        """
        self._status(time.time_ns() // 1000)
        submit(self.inbox, signal)

    def _status(self, now_us: int) -> Status | None:
        """Return the status in the inbox, if there is one.

        :raises TargetError: it is another pipeline's. HeadgateError, OSError: it cannot be read.
        """
        status = read_status(self.inbox, now_us)
        if status is not None:
            status.check_pipeline(self.inbox, self.name)
        return status


@dataclass(frozen=True)
class PipelineView:
    """State of a pipeline at one moment. ``status`` is None if the pipeline never ran, or if there is a ``problem``."""

    name: str
    now_us: int
    status: Status | None
    problem: str | None = None
    signals: tuple[SignalStatus, ...] = ()
    """Also before the first run."""

    @property
    def condition(self) -> str:
        """``running``, ``idle``, ``stopped``, ``failed``, ``not running``; ``unknown`` with a problem."""
        if self.problem is not None:
            return "unknown"
        return "not running" if self.status is None else self.status.condition(self.now_us)

    @property
    def up(self) -> bool:
        """Whether the pipeline runs, so that its lag and rates are valid."""
        return self.condition in ("running", "idle")

    @property
    def is_following(self) -> bool:
        """Whether the pipeline runs, is not recovering from a failure, and has applied a batch in this run, or waits
        for changes: what earlier runs applied says nothing of this one.
        """
        status = self.status
        return (
            self.up and status is not None and status.error is None and (status.batches > 0 or status.state == "idle")
        )

    def tables(self) -> list[tuple[str, TableStatus]]:
        """Return the tables: those that need attention first, then by name."""
        tables = self.status.tables_now().items() if self.status else ()
        return sorted(tables, key=lambda item: (item[1].sort_rank, item[0]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: the status file's content, ``condition``, and ``problem`` if there is one."""
        value: dict[str, Any] = {"pipeline": self.name} if self.status is None else self.status.to_dict()
        value["signals"] = [one.model_dump(mode="json") for one in self.signals]
        value["condition"] = self.condition
        if self.problem is not None:
            value["problem"] = self.problem
        return value


def watch(pipelines: Sequence[Watched]) -> dict[str, Watched]:
    """Return the pipelines by name.

    :raises ConfigError: two pipelines have the same name.
    """
    by_name: dict[str, Watched] = {}
    for pipeline in pipelines:
        if pipeline.name in by_name:
            raise ConfigError(f"two pipelines are named {pipeline.name}; a page needs distinct names")
        by_name[pipeline.name] = pipeline
    return by_name

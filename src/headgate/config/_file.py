"""The file of a running pipeline: it may change, and it is written whole or not at all."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

from headgate.config._parse import load_config
from headgate.config._pipeline import PipelineConfig
from headgate.errors import ConfigError

__all__ = ["ConfigFile", "check_change", "write_config"]

log = logging.getLogger("headgate")


class ConfigFile:
    """A pipeline file that may change while its pipeline runs.

    What a running pipeline takes over is ``[source]`` and ``[tables]``; a file that is wrong, or that changes anything
    else, is refused with a warning, once, and the configuration before stays in force.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """:raises ConfigError: as :func:`load_config`."""
        self.path = Path(path)
        self._seen = self._look()
        self.config = load_config(path)

    def reread(self, *, asked: bool = False) -> PipelineConfig | None:
        """The new configuration, if the file has changed and is right; :meth:`take` makes it the one in force.

        :param asked: read the file even if it looks the same.
        """
        now = self._look()
        if now == self._seen and not asked:
            return None
        self._seen = now
        try:
            found = load_config(self.path)
        except ConfigError as error:
            self.refuse(error.message)
            return None
        try:
            check_change(self.config, found)
        except ConfigError as error:
            self.refuse(error.message)
            return None
        return found if found != self.config else None

    def take(self, config: PipelineConfig) -> None:
        """It is in force now."""
        self.config = config
        log.info("%s: the new configuration is in force", self.path)

    def refuse(self, reason: str) -> None:
        """It cannot be followed."""
        log.warning("%s changed and is not followed: %s", self.path, reason)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def check_change(before: PipelineConfig, after: PipelineConfig) -> None:
    """Whether a running pipeline can take over ``after``.

    :raises ConfigError: more than ``[source]`` and ``[tables]`` is different.
    """
    others = [name for name in PipelineConfig.model_fields if name not in ("source", "tables")]
    fixed = [name for name in others if getattr(after, name) != getattr(before, name)]
    if fixed:
        raise ConfigError(f"{fixed[0]} changed: stop the pipeline and run it again for that")


def write_config(path: str | os.PathLike[str], text: str) -> None:
    """Put ``text`` in place of a pipeline file, whole or not at all; its permissions stay.

    :raises OSError: it cannot be written.
    """
    file = Path(path).resolve()  # a link stays one
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        shutil.copymode(file, name)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
